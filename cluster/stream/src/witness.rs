//! Tracks which nodes are heard by which others: a worker reports its sightings in each heartbeat,
//! and takes those of its peers.
//!
//! A node that stalls and one that is cut off from this worker alone look alike from here. Other
//! nodes can tell them apart: they still hear the second.
//!
//! - A node is heard when any of its workers is: only what all of a node's workers share can
//!   silence all of them.
//! - Nodes that are not heard are not reported. A peer whose heartbeats have no sightings at all is
//!   of an earlier build: what it hears is not known.

use serde::{Deserialize, Serialize};

use crate::bytes::ByteWriter;
use crate::control::{SIGHTINGS_MAX, Sighting, Sightings, emit_sightings};
use crate::endpoint::{StreamEndpoint, StreamPeer};
use crate::identity::PeerIndex;

/// A node that was silent for longer is not reported, in microseconds.
const SILENT_MAX_US: u64 = 1_000_000;

/// Heartbeat state of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSigns {
    /// Milliseconds since something authentic came from the peer, or since it was added.
    pub silent_ms: u64,
    /// Milliseconds since a worker of another node heard any worker of the peer's node, as far as
    /// peers have reported. None: no peer has reported it.
    pub seen_ms: Option<u64>,
    /// The peer reports which nodes it hears.
    pub is_witness: bool,
}

/// A node that peers belong to.
#[derive(Clone, Copy, Debug)]
struct WitnessNode {
    node: u64,
    /// When one of its workers was heard here; 0: none was.
    received_us: u64,
    /// When a worker of another node heard one of them.
    seen_us: Option<u64>,
}

/// The nodes of all peers, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct PeerNodes {
    nodes: Vec<WitnessNode>,
}

impl PeerNodes {
    /// Returns an empty table with room for one node per peer.
    pub(crate) fn new(peers_max: usize) -> Self {
        Self { nodes: Vec::with_capacity(peers_max) }
    }

    fn position(&self, node: u64) -> Result<usize, usize> {
        self.nodes.binary_search_by_key(&node, |it| it.node)
    }

    fn get_mut(&mut self, node: u64) -> Option<&mut WitnessNode> {
        let position = self.position(node).ok()?;
        Some(&mut self.nodes[position])
    }

    /// Notes when each node was heard last: before heartbeats go out.
    pub(crate) fn look(&mut self, peers: &[Option<StreamPeer>]) {
        for peer in peers.iter().flatten().filter(|peer| peer.boot.is_some()) {
            if let Some(node) = peer.node.and_then(|node| self.get_mut(node)) {
                node.received_us = node.received_us.max(peer.link.received_us);
            }
        }
    }

    /// Writes the sightings of a heartbeat: those whose turn it is for this peer, from `turn` on.
    /// Returns the next turn.
    pub(crate) fn emit(
        &self,
        receiver: Option<u64>,
        turn: usize,
        now_us: u64,
        writer: &mut ByteWriter<'_>,
    ) -> usize {
        let mut listed = [Sighting { node: 0, silent_ms: 0 }; SIGHTINGS_MAX];
        let (mut count, mut looked) = (0, 0);
        let turn = if turn < self.nodes.len() { turn } else { 0 };
        for it in self.nodes[turn..].iter().chain(&self.nodes[..turn]) {
            if count == SIGHTINGS_MAX {
                break;
            }
            looked += 1;
            let silent_us = now_us.saturating_sub(it.received_us);
            if it.received_us > 0 && silent_us < SILENT_MAX_US && Some(it.node) != receiver {
                listed[count] = Sighting { node: it.node, silent_ms: (silent_us / 1000) as u16 };
                count += 1;
            }
        }
        emit_sightings(&listed[..count], writer);
        (turn + looked) % self.nodes.len().max(1)
    }
}

impl StreamEndpoint {
    /// Sets the node that a peer belongs to: a number that all nodes know it by.
    pub fn set_node(&mut self, peer: PeerIndex, node: u64) {
        let Some(Some(known)) = self.peers.get_mut(peer.index()) else { return };
        known.node = Some(node);
        self.keep_nodes();
    }

    /// Keeps exactly the nodes that peers belong to.
    pub(crate) fn keep_nodes(&mut self) {
        let StreamEndpoint { peers, witness, .. } = self;
        let is_named = |node: u64| peers.iter().flatten().any(|peer| peer.node == Some(node));
        witness.nodes.retain(|it| is_named(it.node));
        for node in peers.iter().flatten().filter_map(|peer| peer.node) {
            if let Err(position) = witness.position(node) {
                witness.nodes.insert(position, WitnessNode { node, received_us: 0, seen_us: None });
            }
        }
    }

    /// Takes a peer's sightings of the nodes that it hears.
    pub(crate) fn take_sightings(
        &mut self,
        from: PeerIndex,
        sightings: Sightings<'_>,
        now_us: u64,
    ) {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else { return };
        peer.is_witness = true;
        let own = peer.node;
        for Sighting { node, silent_ms } in sightings.iter() {
            // A worker cannot vouch for its own node.
            if Some(node) == own {
                continue;
            }
            let at_us = now_us.saturating_sub(1_000 * u64::from(silent_ms));
            if let Some(it) = self.witness.get_mut(node) {
                it.seen_us = it.seen_us.max(Some(at_us));
            }
        }
    }

    /// Returns the heartbeat state of a peer. None if there is no such peer.
    pub fn signs(&self, peer: PeerIndex, now_us: u64) -> Option<PeerSigns> {
        let peer = self.peers.get(peer.index())?.as_ref()?;
        let position = peer.node.and_then(|node| self.witness.position(node).ok());
        let seen_us = position.and_then(|position| self.witness.nodes[position].seen_us);
        Some(PeerSigns {
            silent_ms: peer.link.silent_us(now_us) / 1000,
            seen_ms: seen_us.map(|at_us| now_us.saturating_sub(at_us) / 1000),
            is_witness: peer.is_witness && peer.link.session.is_some(),
        })
    }
}
