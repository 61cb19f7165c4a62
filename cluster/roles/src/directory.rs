//! Where each worker of the cluster is reached, as its node registered it last.
//!
//! The end of a registration does not prove the end of a process: address and incarnation are kept
//! until the node comes back with others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use weir_map::{BootId, Incarnation, NodeId, WorkerId};

use super::input::NodeWorker;
use weir_ids::PeerId;

/// Stands for a worker whose address is not known yet: a copy from it is awaited, and never comes.
pub const NOBODY: PeerId = PeerId(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownIncarnation {
    boot_id: BootId,
    address: SocketAddrV4,
    is_registered: bool,
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    workers: BTreeMap<WorkerId, KnownIncarnation>,
    by_peer: BTreeMap<PeerId, WorkerId>,
    /// By worker: the incarnation that ended last while it was known, and the peer at which another
    /// one was met.
    ended: BTreeMap<WorkerId, (BootId, PeerId)>,
}

/// Returns the number of a node in the heartbeats of all builds: FNV-1a of its name, 64 bits.
pub(super) fn number_of(node: &NodeId) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    node.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Directory {
    /// Takes a node's record and returns whether it says anything new.
    pub(super) fn register(&mut self, node: &NodeId, workers: Option<&[NodeWorker]>) -> bool {
        let of_node = |id: &WorkerId| id.node == *node;
        let Some(workers) = workers else {
            let mut lives =
                self.workers.iter_mut().filter(|(id, life)| of_node(id) && life.is_registered);
            return lives.by_ref().map(|(_, life)| life.is_registered = false).count() > 0;
        };
        // A node registers all its workers: a worker that is missing has ended.
        let mut after: BTreeMap<WorkerId, KnownIncarnation> = BTreeMap::new();
        for &NodeWorker { index, boot_id, replication } in workers {
            let id = WorkerId { node: node.clone(), index };
            let life = KnownIncarnation { boot_id, address: replication, is_registered: true };
            // The store may still have the record of an incarnation after which another one was
            // met.
            let is_over = self.ended.get(&id).is_some_and(|&(ended, _)| ended == boot_id);
            let known = self.workers.get(&id).filter(|_| is_over).copied();
            after.insert(id, known.unwrap_or(life));
        }
        let before = self.workers.iter().filter(|(id, _)| of_node(id));
        if before.eq(after.iter()) {
            return false;
        }
        self.workers.retain(|id, _| !of_node(id));
        self.by_peer.retain(|_, id| !of_node(id));
        let by_peer = after.iter().map(|(id, life)| (PeerId::at(life.address), id.clone()));
        self.by_peer.extend(by_peer);
        self.workers.extend(after);
        true
    }

    /// Returns the nodes with a record, as far as the store has reported.
    pub(super) fn registered(&self) -> BTreeSet<NodeId> {
        let lives = self.workers.iter().filter(|(_, life)| life.is_registered);
        lives.map(|(id, _)| id.node.clone()).collect()
    }

    pub(super) fn is_node_registered(&self, node: &NodeId) -> bool {
        self.workers.iter().any(|(id, life)| id.node == *node && life.is_registered)
    }

    /// Ends an incarnation: another one was met at its peer, whatever its node's record still says.
    pub(super) fn end(&mut self, peer: PeerId, boot_id: BootId) {
        if let Some(worker) = self.by_peer.get(&peer)
            && self.workers.get(worker).is_some_and(|life| life.boot_id == boot_id)
        {
            self.workers.remove(worker);
            self.ended.insert(worker.clone(), (boot_id, peer));
        }
    }

    /// Notes that an incarnation, met at this peer, has resumed the member slot of one that has
    /// ended. The store does not name it yet.
    pub(super) fn resumed(&mut self, life: &Incarnation, peer: PeerId) {
        let Incarnation { worker, boot_id } = life.clone();
        self.by_peer.insert(peer, worker.clone());
        let life = KnownIncarnation { boot_id, address: peer.address(), is_registered: false };
        self.workers.insert(worker, life);
    }

    fn life(&self, who: &Incarnation) -> Option<&KnownIncarnation> {
        self.workers.get(&who.worker).filter(|life| life.boot_id == who.boot_id)
    }

    /// Returns the peer of an incarnation. None if it is not, or not any more, the worker's known
    /// one.
    pub(super) fn peer_of(&self, who: &Incarnation) -> Option<PeerId> {
        self.life(who).map(|life| PeerId::at(life.address))
    }

    /// Returns the peer at which a later incarnation of the worker was met than this one.
    pub(super) fn successor_of(&self, who: &Incarnation) -> Option<PeerId> {
        let &(boot_id, peer) = self.ended.get(&who.worker)?;
        (boot_id == who.boot_id).then_some(peer)
    }

    pub(super) fn is_registered(&self, who: &Incarnation) -> bool {
        self.life(who).is_some_and(|life| life.is_registered)
    }

    pub(super) fn worker_at(&self, peer: PeerId) -> Option<&WorkerId> {
        self.by_peer.get(&peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(index: u16, boot_id: u128) -> NodeWorker {
        let address = SocketAddrV4::new([10, 0, 0, 1 + index as u8].into(), 7473);
        NodeWorker { index, boot_id: BootId(boot_id), replication: address }
    }

    fn life(index: u16, boot_id: u128) -> Incarnation {
        let node = NodeId::new("n1").expect("a name");
        Incarnation { worker: WorkerId { node, index }, boot_id: BootId(boot_id) }
    }

    /// Builds that disagree would not understand each other's heartbeats.
    #[test]
    fn the_number_of_a_node_is_the_same_in_all_builds() {
        let node = NodeId::new("n1").expect("a name");
        assert_eq!(number_of(&node), 0x08b3_7b07_b558_d4c0);
    }

    #[test]
    fn a_worker_that_is_not_registered_any_more_is_still_reached() {
        let mut directory = Directory::default();
        let node = NodeId::new("n1").expect("a name");
        assert!(directory.register(&node, Some(&[worker(0, 1), worker(1, 2)])));
        assert!(!directory.register(&node, Some(&[worker(0, 1), worker(1, 2)])), "nothing new");
        let peer = directory.peer_of(&life(0, 1)).expect("registered");
        assert_eq!(peer.address(), worker(0, 1).replication);
        assert_eq!(directory.peer_of(&life(0, 9)), None, "another incarnation is not known");
        assert!(directory.register(&node, None));
        assert!(!directory.is_registered(&life(0, 1)));
        assert_eq!(directory.peer_of(&life(0, 1)), Some(peer));
        directory.end(peer, BootId(9));
        assert!(directory.peer_of(&life(0, 1)).is_some(), "another incarnation has ended");
        directory.end(peer, BootId(1));
        assert_eq!(directory.peer_of(&life(0, 1)), None, "another incarnation answers there");
        assert_eq!(directory.successor_of(&life(0, 1)), Some(peer));
        assert_eq!(directory.successor_of(&life(0, 9)), None, "that incarnation was never known");
        assert!(!directory.is_registered(&life(0, 1)));
        // The store may report an old record again, though the incarnation that was met has resumed
        // the member slot.
        directory.resumed(&life(0, 8), peer);
        directory.register(&node, Some(&[worker(0, 1), worker(1, 2)]));
        assert_eq!(directory.peer_of(&life(0, 8)), Some(peer));
        assert_eq!(directory.peer_of(&life(0, 1)), None);
        assert!(directory.register(&node, Some(&[worker(0, 3)])));
        assert_eq!(directory.peer_of(&life(0, 1)), None, "it has another incarnation");
        assert_eq!(directory.peer_of(&life(1, 2)), None, "it is not registered any more");
        assert_eq!(directory.worker_at(peer), Some(&life(0, 3).worker));
    }
}
