//! Copies at peers, and what tells their writer that they are followed.

use weir_stream::{BootId, CopyId, CopyState, Endpoint, Lane, PeerIndex, Reign, Ticket};

/// A copy at a peer, kept in sync from here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) peer: PeerIndex,
    pub(super) boot: BootId,
    pub(super) copy: CopyId,
    /// The epoch of the stream to the peer, and the reign, in which it follows its copy, as it has said. None: it has not
    /// said so of the last copy.
    pub(super) followed_in: Option<(u64, u64)>,
    /// Packets may wait for the peer.
    pub(super) is_awaited: bool,
    /// The peer was a guest, and is not known to be synced as a member since.
    pub(super) was_guest: bool,
}

impl Outgoing {
    pub(super) fn new(peer: PeerIndex, boot: BootId, copy: CopyId) -> Self {
        Self { peer, boot, copy, followed_in: None, is_awaited: false, was_guest: false }
    }

    /// It is made anew.
    pub(super) fn restart(&mut self, endpoint: &mut Endpoint) {
        endpoint.restart_copy(self.copy);
        self.followed_in = None;
    }

    /// Whether the peer has all of it, follows, and stays: what is acknowledged from then on is in its tables. Who does not
    /// know the shard yet, or has to forget another reign first, acknowledges a copy that he does not take.
    pub(super) fn counts(&self, endpoint: &Endpoint, lane: Lane, reign: Reign) -> bool {
        let status = endpoint.copy_status(self.copy);
        let is_synced = status.is_some_and(|status| status.state == CopyState::Synced);
        let (epoch, _) = endpoint.acknowledged(self.peer, lane);
        let is_followed = self.followed_in == Some((epoch.into(), reign.now));
        is_synced && is_followed && self.is_awaited
    }
}

/// A writer that is to hear that his copy of a lane is followed: the epoch of his stream, and the reign.
#[derive(Clone, Copy, Debug)]
pub(super) struct Confirmation {
    pub(super) peer: PeerIndex,
    pub(super) lane: Lane,
    pub(super) copy: (u64, u64),
    pub(super) ticket: Option<Ticket>,
}
