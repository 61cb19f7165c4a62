//! The peer at the other end of a connection.

/// The peer's user, from SO_PEERCRED when it connected. `None`: the kernel did not say.
#[derive(Clone, Copy, Debug)]
pub struct PeerUser {
    pub uid: Option<u32>,
}
