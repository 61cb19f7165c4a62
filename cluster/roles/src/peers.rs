//! The peers of one worker: which it needs, and when it heard each last.

use std::collections::BTreeMap;

use weir_map::{BootId, Incarnation};
use weir_stream::{PeerIndex, PeerSigns};

use super::directory::Directory;
use super::input::RolesOptions;
use weir_ids::PeerId;
use weir_replication::command::WorkerCommand;

#[derive(Debug, Default)]
struct RolesPeer {
    /// Number of shards that need it.
    shards: usize,
    /// When the last shard released it.
    idle_since_ms: u64,
    session: Option<(PeerIndex, BootId)>,
    heartbeat_ms: Option<u64>,
    /// The number of its node, as it was last sent to the worker.
    node: Option<u64>,
    /// When another node last heard its node, as far as was reported.
    seen_ms: Option<u64>,
    /// Since when it has been heard without a long gap.
    steady_since_ms: u64,
    /// Whether it reports which nodes it hears.
    is_witness: bool,
    /// Whether it was heard within the time of a silent primary, when it was looked at last.
    has_heartbeat: bool,
    /// Whether it was heard within the longer time after which it is gone.
    is_near: bool,
    /// When it was first needed.
    known_ms: u64,
    /// Whether it was neither heard nor first needed within the time after which a registered
    /// worker counts as cut off.
    is_cut_off: bool,
}

#[derive(Debug, Default)]
pub(super) struct RolesPeers {
    peers: BTreeMap<PeerId, RolesPeer>,
    by_index: BTreeMap<u16, PeerId>,
}

/// The finding of a new session with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Met {
    /// The incarnation that was met there before, if it was another: it has ended.
    pub(super) ended: Option<BootId>,
}

/// Limits of silence, milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    pub(super) witness_ms: u64,
    pub(super) heartbeat_ms: u64,
    pub(super) near_ms: u64,
    pub(super) cut_off_ms: u64,
}

impl Silence {
    pub(super) fn of(options: &RolesOptions) -> Self {
        Self {
            witness_ms: options.witness_ms,
            heartbeat_ms: options.role.silence_ms,
            near_ms: options.gone_ms,
            cut_off_ms: options.cut_off_ms,
        }
    }
}

/// The state of a peer's node, as the peer's heartbeats show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerNodeSigns {
    pub(super) heartbeat_ms: u64,
    /// When another node last heard it; 0: never.
    pub(super) seen_ms: u64,
    /// Since when it has been heard without a long gap, if it is heard now.
    pub(super) steady_since_ms: Option<u64>,
    /// Whether it is heard now and does not report which nodes it hears.
    pub(super) is_mute: bool,
}

impl RolesPeers {
    /// Notes that a shard needs the peer. `node`: the number of its node, if it is known.
    pub(super) fn hold(
        &mut self,
        peer: PeerId,
        node: Option<u64>,
        now_ms: u64,
        commands: &mut impl Extend<WorkerCommand>,
    ) {
        let known = self.peers.entry(peer).or_insert_with(|| {
            commands.extend([WorkerCommand::AddPeer { peer, address: peer.address() }]);
            RolesPeer { known_ms: now_ms, ..RolesPeer::default() }
        });
        known.shards += 1;
        if let Some(number) = node.filter(|_| known.node != node) {
            known.node = node;
            commands.extend([WorkerCommand::SetPeerNode { peer, node: number }]);
        }
    }

    /// Notes that a shard does not need the peer any more.
    pub(super) fn release(&mut self, peer: PeerId, now_ms: u64) {
        if let Some(known) = self.peers.get_mut(&peer) {
            known.shards -= 1;
            known.idle_since_ms = now_ms;
        }
    }

    /// Releases peers that no shard has needed for `idle_ms`.
    pub(super) fn forget_idle(
        &mut self,
        now_ms: u64,
        idle_ms: u64,
        commands: &mut impl Extend<WorkerCommand>,
    ) {
        let is_over = |peer: &RolesPeer| peer.shards == 0 && now_ms >= peer.idle_since_ms + idle_ms;
        if !self.peers.values().any(is_over) {
            return;
        }
        self.peers.retain(|&id, peer| {
            let goes = is_over(peer);
            if goes {
                commands.extend([WorkerCommand::RemovePeer(id)]);
            }
            !goes
        });
        let peers = &self.peers;
        self.by_index.retain(|_, peer| peers.contains_key(peer));
    }

    /// Notes a new session with this incarnation, which counts as a heartbeat. None: no shard needs
    /// the peer any more.
    pub(super) fn met(
        &mut self,
        peer: PeerId,
        peer_index: PeerIndex,
        boot_id: BootId,
        now_ms: u64,
    ) -> Option<Met> {
        let known = self.peers.get_mut(&peer)?;
        let former = known.session.replace((peer_index, boot_id));
        if let Some((peer_index, _)) = former
            && self.by_index.get(&peer_index.0) == Some(&peer)
        {
            self.by_index.remove(&peer_index.0);
        }
        self.by_index.insert(peer_index.0, peer);
        known.heartbeat_ms = Some(now_ms);
        (known.steady_since_ms, known.is_witness) = (now_ms, false);
        (known.has_heartbeat, known.is_near, known.is_cut_off) = (true, true, false);
        let ended = former.map(|(_, former)| former).filter(|former| *former != boot_id);
        Some(Met { ended })
    }

    /// Takes heartbeats of a peer. Returns the peer if it counted as silent until now.
    pub(super) fn on_heartbeats(
        &mut self,
        peer_index: PeerIndex,
        signs: PeerSigns,
        now_ms: u64,
        limits: Silence,
    ) -> Option<PeerId> {
        let &id = self.by_index.get(&peer_index.0)?;
        let peer = self.peers.get_mut(&id)?;
        let at_ms = now_ms.saturating_sub(signs.silent_ms);
        if peer.heartbeat_ms.is_none_or(|heartbeat_ms| at_ms >= heartbeat_ms + limits.witness_ms) {
            peer.steady_since_ms = at_ms;
        }
        peer.seen_ms = peer.seen_ms.max(signs.seen_ms.map(|ms| now_ms.saturating_sub(ms)));
        peer.is_witness = signs.is_witness;
        peer.heartbeat_ms = peer.heartbeat_ms.max(Some(at_ms));
        let was = (peer.has_heartbeat, peer.is_near, peer.is_cut_off);
        peer.has_heartbeat |= now_ms < at_ms + limits.heartbeat_ms;
        peer.is_near |= now_ms < at_ms + limits.near_ms;
        peer.is_cut_off &= now_ms >= at_ms + limits.cut_off_ms;
        (was != (peer.has_heartbeat, peer.is_near, peer.is_cut_off)).then_some(id)
    }

    /// Returns the peers that have fallen silent, or are gone, since the last look.
    pub(super) fn fallen_silent(&mut self, now_ms: u64, limits: Silence) -> Vec<PeerId> {
        let mut silent = Vec::new();
        for (&id, peer) in &mut self.peers {
            let is_within =
                |limit_ms| peer.heartbeat_ms.is_some_and(|at_ms| now_ms < at_ms + limit_ms);
            let is = (is_within(limits.heartbeat_ms), is_within(limits.near_ms));
            let last_ms = peer.heartbeat_ms.map_or(peer.known_ms, |at_ms| at_ms.max(peer.known_ms));
            let is_cut_off = now_ms >= last_ms + limits.cut_off_ms;
            if (peer.has_heartbeat && !is.0)
                || (peer.is_near && !is.1)
                || is_cut_off && !peer.is_cut_off
            {
                (peer.has_heartbeat, peer.is_near) = is;
                peer.is_cut_off |= is_cut_off;
                silent.push(id);
            }
        }
        silent
    }

    /// True if some peer that was heard is silent.
    pub(super) fn is_any_silent(&self) -> bool {
        self.peers.values().any(|peer| !peer.has_heartbeat && peer.heartbeat_ms.is_some())
    }

    /// Returns the heartbeats of all peers that were ever heard.
    pub(super) fn signs(
        &self,
        now_ms: u64,
        witness_ms: u64,
    ) -> impl Iterator<Item = (PeerId, PeerNodeSigns)> {
        self.peers.iter().filter_map(move |(&id, peer)| {
            let heartbeat_ms = peer.heartbeat_ms?;
            let is_there = now_ms < heartbeat_ms + witness_ms;
            // A peer that no shard needs any more may have released this worker: its silence says
            // nothing.
            if peer.shards == 0 && !is_there {
                return None;
            }
            let signs = PeerNodeSigns {
                heartbeat_ms,
                seen_ms: peer.seen_ms.unwrap_or(0),
                steady_since_ms: is_there.then_some(peer.steady_since_ms),
                is_mute: is_there && !peer.is_witness,
            };
            Some((id, signs))
        })
    }

    /// True if this incarnation of a worker is heard now.
    pub(super) fn has_heartbeat(&self, directory: &Directory, who: &Incarnation) -> bool {
        self.in_this_life(directory, who).is_some_and(|peer| peer.has_heartbeat)
    }

    /// Returns the incarnation that was met last.
    pub(super) fn met_boot(&self, peer: PeerId) -> Option<BootId> {
        self.peers.get(&peer)?.session.map(|(_, boot_id)| boot_id)
    }

    /// True if the peer was heard a short time ago.
    pub(super) fn is_near(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.is_near)
    }

    fn in_this_life(&self, directory: &Directory, who: &Incarnation) -> Option<&RolesPeer> {
        let peer = self.peers.get(&directory.peer_of(who)?)?;
        peer.session.filter(|(_, boot_id)| *boot_id == who.boot_id)?;
        Some(peer)
    }

    /// Returns when this incarnation of a worker was heard last.
    pub(super) fn heartbeat_ms(&self, directory: &Directory, who: &Incarnation) -> Option<u64> {
        self.in_this_life(directory, who)?.heartbeat_ms
    }

    /// True if this incarnation of a worker goes on and can be reached as far as is known: it is
    /// heard, or registered and silent for a short time only.
    pub(super) fn is_present(&self, directory: &Directory, who: &Incarnation) -> bool {
        let peer = directory.peer_of(who).and_then(|peer| self.peers.get(&peer));
        directory.is_registered(who) && !peer.is_some_and(|peer| peer.is_cut_off)
            || self.in_this_life(directory, who).is_some_and(|peer| peer.is_near)
    }

    /// Returns each peer that a shard needs, and whether it is heard.
    pub(super) fn hears(&self) -> impl Iterator<Item = (PeerId, bool)> {
        let needed = self.peers.iter().filter(|(_, peer)| peer.shards > 0);
        needed.map(|(&id, peer)| (id, peer.is_near))
    }
}
