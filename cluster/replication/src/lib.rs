//! Carries out a worker's commands for the cluster: moves changes between the NAT and the streams.
//!
//! ```text
//!   command --> obey: peers, shards, duties   duties --> lanes, misses --> engine, NAT
//!                                                 \--> copies, grants, announcements --> endpoint
//!   NAT's journal --> poll: tell_changes --> endpoint --> datagrams
//!   datagrams --> receive: endpoint --> world --> NAT's copies --> event
//!   committed: how much of the journal enough replicas have --> engine, for packets that wait
//! ```
//!
//! - Each copy of a lane goes through the stream of its lane, so a lane is followed when its copy
//!   is complete and the stream goes on. A worker that lacks a copy asks its source for it until it
//!   comes.
//! - A lane changes hands behind a grant: the giver sends it after all that it wrote, the taker
//!   counts it when it has all of that.
//! - Time is microseconds of the clock whose milliseconds the engine is given.
//!
//! It decides nothing: commands say which worker writes which lane, and which worker copies to
//! which.

#![forbid(unsafe_code)]

pub mod command;
mod commit;
mod duties;
pub mod event;
mod numbers;
mod outgoing;
mod peers;
mod resting;
mod sending;
mod shard_copies;
mod stall;
mod state;
mod status;
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, SocketAddrV4};

use weir_map::{Epoch, ShardId};
use weir_nat::{BODY_MAX, Replica, ReplicaMut, ShardIndex};
use weir_stream::{
    BootId, ClusterKeys, Comeback, DatagramRefusal, Fingerprint, Identity, OptionError, PeerError,
    PeerIndex, PeerSigns, Received, RedirectForm, StreamEndpoint, StreamOptions, Transmit,
    TurnLoad,
};

use command::ShardSetup;
pub use command::WorkerCommand;
pub use commit::CommitOptions;
use commit::CommitQueue;
pub use event::WorkerEvent;
use peers::{ReplicationPeer, ReplicationPeers};
use sending::SHARDS_PER_SWEEP;
pub use stall::{LATE_MAX_US, STALL_US, Stall};
pub use state::ReplicationCounters;
use state::ReplicationState;
use status::Counted;
pub use status::{CopyCounts, ReplicationReport};
use weir_engine::{Engine, EngineSetup, Misses, Now, Output, Redirects};
use weir_wire::frame::Frame;
use world::World;

pub use weir_ids::PeerId;

/// Records that one turn forgets of a lane whose writer began a new lineage.
const FORGET_PER_TURN: usize = 64;

/// Shards that one turn notifies of restarted streams.
const LOST_PER_TURN: usize = 64;

/// Time between two looks at what is seldom due.
const SWEEP_US: u64 = 1_000;

/// A worker's replication, without decisions: one thread owns it, as it owns the engine.
#[derive(Debug)]
pub struct Replication {
    endpoint: StreamEndpoint,
    boot: BootId,
    peers: ReplicationPeers,
    state: ReplicationState,
    /// Lineages drawn in this incarnation.
    lineages: u64,
    /// Shards with grants or announcements under way.
    busy: VecDeque<ShardIndex>,
    /// Shards whose removal from the NAT is under way.
    removing: Vec<(ShardIndex, ShardId)>,
    swept: usize,
    commits: CommitQueue,
    counted: Counted,
    sweep_due_us: u64,
    /// Last reported state of each shard that a peer came back to.
    comebacks: BTreeMap<(PeerId, ShardId), Comeback>,
    /// The map may be old: workers other than the ordered ones may have copies.
    is_map_stale: bool,
    /// Some peer is reached in another way than the data path knows.
    redirects_changed: bool,
    /// Body of the change that is being appended.
    body: [u8; BODY_MAX],
}

impl Replication {
    /// Returns a replication without peers and shards; `shards_max` is how many shards it may be
    /// given.
    ///
    /// # Errors
    /// [`OptionError`].
    pub fn new(
        options: StreamOptions,
        identity: Identity,
        fingerprint: Fingerprint,
        keys: ClusterKeys,
        shards_max: usize,
    ) -> Result<Self, OptionError> {
        let options = StreamOptions { earlier_body: weir_nat::body_without_images, ..options };
        Ok(Self {
            boot: identity.boot,
            endpoint: StreamEndpoint::new(options, identity, fingerprint, keys)?,
            peers: ReplicationPeers::default(),
            state: ReplicationState::new(shards_max),
            lineages: 0,
            busy: VecDeque::new(),
            removing: Vec::new(),
            swept: 0,
            commits: CommitQueue::none(),
            counted: Counted::default(),
            sweep_due_us: 0,
            comebacks: BTreeMap::new(),
            is_map_stale: false,
            redirects_changed: false,
            body: [0; BODY_MAX],
        })
    }

    /// True if commands are best given now. A command given at another time first completes the
    /// work that goes on piece by piece.
    pub fn takes_orders(&self) -> bool {
        !self.state.is_losing()
    }

    /// Carries out a command. May allocate: commands are rare.
    pub fn obey<F: Frame>(
        &mut self,
        command: WorkerCommand,
        engine: &mut EngineSetup<'_, F>,
        now_us: u64,
    ) {
        if self.state.is_losing() {
            self.state.lose_some(usize::MAX, engine.replica());
        }
        if self.commits.is_on() {
            self.send_all_changes(now_us, &mut engine.replica_mut());
        }
        match command {
            WorkerCommand::AddPeer { peer, address } => {
                self.add_peer(peer, address, engine, now_us)
            }
            WorkerCommand::SetPeerNode { peer, node } => {
                if let Some(peer) = self.peers.find_mut(peer) {
                    self.endpoint.set_node(peer.index, node);
                }
            }
            WorkerCommand::RemovePeer(peer) => self.remove_peer(peer, engine, now_us),
            WorkerCommand::AddShard(setup) => self.add_shard(&setup, engine, now_us),
            WorkerCommand::RemoveShard(shard) => self.remove_shard(shard, engine, now_us),
            WorkerCommand::Duties(duties) => self.take_duties(*duties, engine, now_us),
            WorkerCommand::SetFingerprint(fingerprint) => {
                self.endpoint.set_fingerprint(fingerprint)
            }
            WorkerCommand::SetKeys(keys) => self.endpoint.set_keys(keys, now_us),
            WorkerCommand::SetAllPublic(public) => engine.set_all_public(public),
            WorkerCommand::SetComebacks(comebacks) => self.endpoint.set_comebacks(comebacks),
            WorkerCommand::SetMapStale(is_stale) => self.is_map_stale = is_stale,
        }
    }

    fn add_peer<F: Frame>(
        &mut self,
        id: PeerId,
        address: SocketAddrV4,
        engine: &mut EngineSetup<'_, F>,
        now_us: u64,
    ) {
        if let Some(peer) = self.peers.find_mut(id) {
            let former = std::mem::replace(&mut peer.address, address);
            peer.redirects = None;
            self.endpoint.set_address(peer.index, address.into());
            self.forget_address(former, engine);
        } else {
            match self.endpoint.add_peer(id, address.into(), now_us) {
                Ok(index) => self.peers.0.push(ReplicationPeer {
                    id,
                    index,
                    address,
                    met: None,
                    redirects: None,
                }),
                Err(PeerError::Full | PeerError::Known(_)) => {
                    self.state.counters.refused_total += 1;
                    return;
                }
            }
        }
        if !engine.add_peer(*address.ip()) {
            self.state.counters.refused_total += 1;
        }
        let waits = |copies: &shard_copies::ShardCopies| {
            !copies.is_settled || copies.duties.misses == Misses::Redirect(id)
        };
        let waiting =
            self.state.all_copies().filter(|(_, copies)| waits(copies)).map(|(shard, _)| shard);
        for shard in waiting.collect::<Vec<_>>() {
            self.settle(shard, engine, now_us);
            self.state.review(shard, engine.replica());
        }
    }

    fn forget_address<F: Frame>(&mut self, address: SocketAddrV4, engine: &mut EngineSetup<'_, F>) {
        if !self.peers.has_address(address) {
            engine.remove_peer(*address.ip());
        }
    }

    fn remove_peer<F: Frame>(&mut self, id: PeerId, engine: &mut EngineSetup<'_, F>, now_us: u64) {
        let Some(gone) = self.peers.take(id) else { return };
        self.endpoint.remove_peer(gone.index);
        self.forget_address(gone.address, engine);
        self.state.wanted.retain(|&(peer, ..)| peer != gone.index);
        let shards: Vec<_> = self.state.all_copies().map(|(shard, _)| shard).collect();
        for shard in shards {
            let Some(copies) = self.state.copies_mut(shard) else { continue };
            let mut names_it = false;
            for lane in &mut copies.lanes {
                names_it |= lane.source == Some(gone.index) || lane.readers.contains(&gone.index);
                lane.outgoing.retain(|out| out.peer != gone.index);
                lane.lose(gone.index);
            }
            copies.confirmations.retain(|it| it.peer != gone.index);
            for to in copies.announcements.iter_mut().filter(|to| to.peer == id) {
                to.ticket = None;
            }
            if names_it {
                self.settle(shard, engine, now_us);
            }
            self.state.review(shard, engine.replica());
        }
    }

    fn add_shard<F: Frame>(
        &mut self,
        setup: &ShardSetup,
        engine: &mut EngineSetup<'_, F>,
        now_us: u64,
    ) {
        let number = setup.nat.id;
        if self.state.index(number).is_some() {
            self.state.answers.push_back(WorkerEvent::ShardAdded(number));
            return;
        }
        // Removals are reported first: the index of a removed shard may be the next to be used.
        self.report_removed(engine.replica());
        let added = match self.state.has_room() {
            true => engine
                .add_shard(&setup.engine, &setup.nat, 0, Now { ms: now_us / 1000 })
                .map_err(|error| error.to_string()),
            false => Err("there are as many shards as this worker keeps room for".to_owned()),
        };
        let event = match added {
            Ok(shard) => {
                engine.set_serving(shard, false);
                engine.set_misses(shard, Misses::Refuse);
                self.state.add(shard, number, setup.awaits_replicas);
                if setup.awaits_replicas && self.commits.is_on() {
                    engine.replica_mut().set_commit(shard, true);
                    engine.replica_mut().set_short(shard, true);
                }
                WorkerEvent::ShardAdded(number)
            }
            Err(why) => WorkerEvent::ShardRefused { shard: number, why },
        };
        self.state.answers.push_back(event);
    }

    fn remove_shard<F: Frame>(
        &mut self,
        number: ShardId,
        engine: &mut EngineSetup<'_, F>,
        now_us: u64,
    ) {
        let Some(shard) = self.state.index(number) else {
            if !self.removing.iter().any(|&(_, other)| other == number) {
                self.state.answers.push_back(WorkerEvent::ShardRemoved(number));
            }
            return;
        };
        if let Some(copies) = self.state.copies_mut(shard) {
            copies.duties = shard_copies::ShardCopies::new(number).duties;
        }
        self.settle(shard, engine, now_us);
        self.comebacks.retain(|&(_, shard), _| shard != number);
        self.state.remove(shard);
        engine.remove_shard(shard);
        self.removing.push((shard, number));
    }

    /// Takes a datagram (UDP payload), which is decrypted in place. Its content is applied before
    /// this returns, except for a packet that the peer redirected: that is for
    /// [`Engine::receive_redirected`].
    ///
    /// # Errors
    /// Why it was not used; counted already.
    pub fn receive(
        &mut self,
        from: SocketAddrV4,
        datagram: &mut [u8],
        now_us: u64,
        nat: ReplicaMut<'_>,
    ) -> Result<Received, DatagramRefusal> {
        let world = &mut World { nat, state: &mut self.state, now_us };
        self.endpoint.receive(SocketAddr::V4(from), datagram, now_us, world)
    }

    /// Seals and sends the packets that the engine redirects to other workers: once in each turn of
    /// the worker's loop.
    #[inline]
    pub fn redirect<F: Frame>(&mut self, engine: &mut Engine<F>, out: &mut Output<F>) {
        if std::mem::take(&mut self.redirects_changed) {
            self.set_redirects(&mut engine.setup());
        }
        let Self { endpoint, peers, .. } = self;
        engine.send_redirects(out, |to, front, buffer| {
            let peer = peers.0.iter().find(|peer| *peer.address.ip() == to);
            peer.is_some_and(|peer| endpoint.seal_redirect(peer.index, front, buffer))
        });
    }

    /// Sets in the engine which peers have a session that seals, an earlier one, or none.
    #[cold]
    fn set_redirects<F: Frame>(&mut self, engine: &mut EngineSetup<'_, F>) {
        for peer in &mut self.peers.0 {
            let redirects = redirects_of(&self.endpoint, peer.index);
            peer.redirects = Some(redirects);
            engine.set_redirects(*peer.address.ip(), redirects);
        }
    }

    /// Notes the packets of the turn that the next poll belongs to: the more a worker has, the more
    /// slowly it copies. Without a note the turn had none.
    #[inline]
    pub fn note_turn(&mut self, load: TurnLoad) {
        self.endpoint.note_turn(load);
    }

    /// Does what is due: once in each turn of the worker's loop, or at least every millisecond.
    pub fn poll(&mut self, now_us: u64, mut nat: ReplicaMut<'_>, transmit: &mut impl Transmit) {
        if self.state.is_losing() {
            self.state.lose_some(LOST_PER_TURN, nat.read());
        }
        self.send_changes(now_us, &mut nat);
        self.restart_lost(&mut nat);
        if !self.state.wanted.is_empty() {
            self.answer_wants();
        }
        self.busy.extend(self.state.confirming.drain(..));
        if !self.busy.is_empty() {
            self.send_messages(now_us, nat.read());
        }
        if !self.state.forgetting.is_empty() {
            self.forget_some(&mut nat);
        }
        if now_us >= self.sweep_due_us {
            self.sweep_due_us = now_us + SWEEP_US;
            self.do_periodic_work(now_us, &mut nat);
        }
        let world = &mut World { nat, state: &mut self.state, now_us };
        self.endpoint.poll(now_us, world, transmit);
    }

    fn do_periodic_work(&mut self, now_us: u64, nat: &mut ReplicaMut<'_>) {
        for peer in &mut self.peers.0 {
            let boot = self.endpoint.boot(peer.index);
            if let (true, Some(boot)) = (peer.met != boot, boot) {
                peer.met = Some(boot);
                let (index, peer) = (peer.index, peer.id);
                // Reports of its former incarnation are void; this one repeats its own.
                self.comebacks.retain(|&(of, _), _| of != peer);
                self.state.comebacks.retain(|&(of, _)| of != index);
                self.state.report_met(peer, index, boot);
            }
            self.redirects_changed |=
                peer.redirects != Some(redirects_of(&self.endpoint, peer.index));
        }
        while let Some((shard, _)) = nat.take_filled() {
            self.state.review(shard, nat.read());
        }
        self.report_comebacks();
        self.report_removed(nat.read());
        self.sweep(now_us, nat);
        self.sweep_commits(SHARDS_PER_SWEEP, now_us, nat);
    }

    /// Reports the comebacks that differ from those reported before.
    fn report_comebacks(&mut self) {
        for (index, comeback) in self.state.comebacks.drain(..) {
            let Some(peer) = self.peers.0.iter().find(|peer| peer.index == index) else { continue };
            let (peer, shard) = (peer.id, comeback.shard);
            if self.comebacks.insert((peer, shard), comeback) != Some(comeback) {
                let Comeback { epoch, state, .. } = comeback;
                let event = WorkerEvent::CameBack { peer, shard, epoch: Epoch(epoch), state };
                self.state.answers.push_back(event);
            }
        }
    }

    fn report_removed(&mut self, nat: Replica<'_>) {
        let answers = &mut self.state.answers;
        self.removing.retain(|&(shard, number)| {
            let is_gone = nat.is_removed(shard);
            if is_gone {
                answers.push_back(WorkerEvent::ShardRemoved(number));
            }
            !is_gone
        });
    }

    /// Goes on with the first lane that is to be emptied. When the lane is empty, its source is
    /// asked for a copy.
    fn forget_some(&mut self, nat: &mut ReplicaMut<'_>) {
        let Some(&(shard, number)) = self.state.forgetting.first() else { return };
        let Some(copies) = self.state.copies_mut(shard) else { return };
        let lane = &mut copies.lanes[number];
        let is_over = !lane.is_forgetting;
        if is_over || nat.forget_lane(shard, number as u8, FORGET_PER_TURN) {
            if !is_over {
                lane.forgotten();
            }
            self.state.forgetting.swap_remove(0);
            self.state.review(shard, nat.read());
        }
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<WorkerEvent> {
        self.state.next_event()
    }

    /// Returns the NAT's index of a shard. None: it was not added, or is removed.
    pub fn index_of(&self, shard: ShardId) -> Option<ShardIndex> {
        self.state.index(shard)
    }

    /// Returns the heartbeat state of a peer. None if there is no such peer.
    pub fn signs(&self, peer: PeerIndex, now_us: u64) -> Option<PeerSigns> {
        self.endpoint.signs(peer, now_us)
    }
}

fn redirects_of(endpoint: &StreamEndpoint, peer: PeerIndex) -> Redirects {
    match endpoint.redirects(peer) {
        RedirectForm::Refused => Redirects::Refused,
        RedirectForm::Plain => Redirects::Plain,
        RedirectForm::Sealed { front, behind } => Redirects::Sealed { front, behind },
    }
}
