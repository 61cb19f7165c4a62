//! Copies at peers, and the confirmations that report to a writer that its copies are followed.

use weir_stream::{BootId, CopyId, CopyState, Lane, Lineage, PeerIndex, StreamEndpoint, Ticket};

/// A copy at a peer, kept in sync from here.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutgoingCopy {
    pub(super) peer: PeerIndex,
    pub(super) boot: BootId,
    pub(super) copy: CopyId,
    /// Epoch of the stream to the peer, and lineage, in which the peer confirmed that it follows
    /// its copy. None: it has not confirmed the last copy.
    pub(super) followed_in: Option<(u64, u64)>,
    /// Packets may wait for the peer.
    pub(super) is_awaited: bool,
    /// The peer was a guest, and is not known to be synced as a member since.
    pub(super) was_guest: bool,
}

impl OutgoingCopy {
    pub(super) fn new(peer: PeerIndex, boot: BootId, copy: CopyId) -> Self {
        Self { peer, boot, copy, followed_in: None, is_awaited: false, was_guest: false }
    }

    /// Starts the copy again; its confirmation is void.
    pub(super) fn restart(&mut self, endpoint: &mut StreamEndpoint) {
        endpoint.restart_copy(self.copy);
        self.followed_in = None;
    }

    /// True if the peer has all of the lane, follows, and stays: what it acknowledges is in its
    /// tables then. A peer that does not know the shard yet, or has to forget another lineage
    /// first, acknowledges a copy that it does not apply.
    pub(super) fn counts(&self, endpoint: &StreamEndpoint, lane: Lane, lineage: Lineage) -> bool {
        let status = endpoint.copy_status(self.copy);
        let is_synced = status.is_some_and(|status| status.state == CopyState::Synced);
        let (epoch, _) = endpoint.acknowledged(self.peer, lane);
        let is_followed = self.followed_in == Some((epoch.into(), lineage.now));
        is_synced && is_followed && self.is_awaited
    }
}

/// A confirmation for a writer that its copy of a lane is followed: the epoch of its stream, and
/// the lineage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Confirmation {
    pub(super) peer: PeerIndex,
    pub(super) lane: Lane,
    pub(super) copy: (u64, u64),
    pub(super) ticket: Option<Ticket>,
}
