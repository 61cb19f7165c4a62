//! The workers that datagrams are exchanged with.

use std::net::SocketAddrV4;

use weir_engine::Redirects;
use weir_stream::{BootId, PeerIndex};

use crate::PeerId;

#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicationPeer {
    pub(super) id: PeerId,
    pub(super) index: PeerIndex,
    pub(super) address: SocketAddrV4,
    /// The incarnation that was reported last.
    pub(super) met: Option<BootId>,
    /// Form of packets that are redirected to the peer, as last set in the data path.
    pub(super) redirects: Option<Redirects>,
}

/// All peers, in no order: they are few.
#[derive(Debug, Default)]
pub(super) struct ReplicationPeers(pub(super) Vec<ReplicationPeer>);

impl ReplicationPeers {
    pub(super) fn find_mut(&mut self, id: PeerId) -> Option<&mut ReplicationPeer> {
        self.0.iter_mut().find(|peer| peer.id == id)
    }

    pub(super) fn address(&self, id: PeerId) -> Option<SocketAddrV4> {
        self.0.iter().find(|peer| peer.id == id).map(|peer| peer.address)
    }

    pub(super) fn take(&mut self, id: PeerId) -> Option<ReplicationPeer> {
        let position = self.0.iter().position(|peer| peer.id == id)?;
        Some(self.0.swap_remove(position))
    }

    /// True if another peer is reached at the same address, as workers that share one are.
    pub(super) fn has_address(&self, address: SocketAddrV4) -> bool {
        self.0.iter().any(|peer| peer.address.ip() == address.ip())
    }
}
