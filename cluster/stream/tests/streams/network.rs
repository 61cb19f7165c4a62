//! Workers joined by a network that loses, repeats, delays and separates, in virtual time and from
//! a seed.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weir_stream::{
    BootId, ClusterKeys, CopyId, CopyState, DATAGRAM_MAX, Fingerprint, Identity, Lane, PeerId,
    PeerIndex, RecordKind, ShardId, StreamEndpoint, StreamOptions, StreamRecord, Ticket, Transmit,
    TurnLoad, VERSION_MAX, VERSION_MIN,
};

use crate::world::{Slab, Slot, World, is_newer, live};

/// Random numbers of a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn is_one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Faults of the network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss_percent: u64,
    pub(crate) repeat_percent: u64,
    pub(crate) delay_us: u64,
    /// Upper bound of a random extra delay, which reorders datagrams.
    pub(crate) jitter_us: u64,
}

#[derive(Debug)]
struct Flight {
    from: usize,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// Datagrams on their way, by arrival time.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) faults: Faults,
    pub(crate) random: Random,
    flights: BTreeMap<(u64, u64), Flight>,
    count: u64,
    /// Pairs of workers that do not hear each other.
    pub(crate) parted: Vec<(usize, usize)>,
    /// Sent datagrams, if they are recorded: sender, destination, bytes.
    pub(crate) recorder: Option<Vec<(usize, SocketAddr, Vec<u8>)>>,
}

struct Port<'a> {
    network: &'a mut Network,
    from: usize,
    now_us: u64,
}

impl Transmit for Port<'_> {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        assert!(datagram.len() <= DATAGRAM_MAX);
        self.network.send(self.from, to, datagram, self.now_us);
        true
    }
}

impl Network {
    fn send(&mut self, from: usize, to: SocketAddr, datagram: &[u8], now_us: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.push((from, to, datagram.to_vec()));
        }
        let copies = 1 + u64::from(self.random.below(100) < self.faults.repeat_percent);
        for _ in 0..copies {
            if self.random.below(100) < self.faults.loss_percent {
                continue;
            }
            let arrival =
                now_us + self.faults.delay_us + self.random.below(self.faults.jitter_us + 1);
            self.count += 1;
            let flight = Flight { from, to, bytes: datagram.to_vec() };
            self.flights.insert((arrival, self.count), flight);
        }
    }

    fn is_parted(&self, a: usize, b: usize) -> bool {
        self.parted.contains(&(a, b)) || self.parted.contains(&(b, a))
    }
}

pub(crate) fn address(worker: usize) -> SocketAddr {
    SocketAddr::from(([10, 9, 0, worker as u8 + 1], 4789))
}

pub(crate) fn keys() -> ClusterKeys {
    ClusterKeys::parse(&"5a".repeat(32)).unwrap()
}

/// A worker: its endpoint, its slabs, and the copies that it wants.
pub(crate) struct Node {
    pub(crate) endpoint: StreamEndpoint,
    pub(crate) world: World,
    pub(crate) boot: BootId,
    pub(crate) peers: Vec<Option<PeerIndex>>,
    pub(crate) copies: Vec<(CopyId, usize, ShardId, Lane)>,
    /// Tickets of records that one replica should have: number and incarnation of the replica,
    /// slab, slot and version.
    pub(crate) tickets: Vec<(Ticket, usize, BootId, ShardId, u32, u32)>,
    serial: u64,
    /// Packets of each turn.
    pub(crate) load: TurnLoad,
}

/// All workers, their network and the time.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    pub(crate) now_us: u64,
    pub(crate) options: StreamOptions,
    boots: u128,
    /// Records that were acknowledged and looked up on the replica.
    pub(crate) acknowledged: u64,
    pub(crate) step_us: u64,
}

pub(crate) fn small_options() -> StreamOptions {
    StreamOptions {
        peers_max: 4,
        copies_max: 32,
        buffers: 512,
        log_datagrams: 128,
        copy_slots_per_poll: 128,
        // Rare, so that there are times when nothing at all is under way.
        scrub_us: 100_000,
        settle_us: 20_000,
        ..StreamOptions::default()
    }
}

impl Cluster {
    pub(crate) fn new(workers: usize, seed: u64, faults: Faults, options: StreamOptions) -> Self {
        let network = Network {
            faults,
            random: Random(seed),
            flights: BTreeMap::new(),
            count: 0,
            parted: Vec::new(),
            recorder: None,
        };
        let mut cluster = Self {
            nodes: Vec::new(),
            network,
            now_us: 1_000_000,
            options,
            boots: 0,
            acknowledged: 0,
            step_us: 250,
        };
        cluster.nodes = (0..workers).map(|worker| cluster.boot(worker, workers)).collect();
        cluster
    }

    /// Returns a worker by itself, to put in place of another one.
    pub(crate) fn boot_with(
        &mut self,
        worker: usize,
        fingerprint: Fingerprint,
        keys: ClusterKeys,
    ) -> Node {
        let workers = self.nodes.len();
        self.make(worker, workers, fingerprint, keys)
    }

    fn boot(&mut self, worker: usize, workers: usize) -> Node {
        self.make(worker, workers, Fingerprint::default(), keys())
    }

    fn make(
        &mut self,
        worker: usize,
        workers: usize,
        fingerprint: Fingerprint,
        keys: ClusterKeys,
    ) -> Node {
        self.boots += 1;
        let boot = BootId(self.boots << 64 | u128::from(self.network.random.next()));
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&self.network.random.next().to_be_bytes());
        let identity = Identity { worker: PeerId(worker as u64), boot, secret };
        let mut options = self.options.clone();
        if self.boots.is_multiple_of(2) {
            // Where an earlier version is spoken, only every other incarnation speaks it, as during
            // an upgrade.
            options.versions = VERSION_MIN..=VERSION_MAX;
        }
        let mut endpoint = StreamEndpoint::new(options, identity, fingerprint, keys).unwrap();
        let add = |peer: usize| {
            let id = PeerId(peer as u64);
            (peer != worker).then(|| endpoint.add_peer(id, address(peer), self.now_us).unwrap())
        };
        let peers = (0..workers).map(add).collect();
        let world = World::default();
        let (copies, tickets, load) = (Vec::new(), Vec::new(), TurnLoad::default());
        Node { endpoint, world, boot, peers, copies, tickets, serial: 0, load }
    }

    /// Ends the process of a worker and starts it again without records.
    pub(crate) fn restart(&mut self, worker: usize) {
        let workers = self.nodes.len();
        self.nodes[worker] = self.boot(worker, workers);
        for node in 0..workers {
            let gone: Vec<_> =
                self.nodes[node].copies.iter().filter(|copy| copy.1 == worker).copied().collect();
            self.nodes[node].copies.retain(|copy| copy.1 != worker);
            for (id, _, shard, lane) in gone {
                self.nodes[node].endpoint.stop_copy(id, self.now_us);
                self.copy(node, worker, shard, lane);
            }
        }
    }

    /// Makes a worker remove another and add it again, as after a wrong report that it had gone;
    /// both stay alive.
    pub(crate) fn add_anew(&mut self, at: usize, other: usize) {
        let node = &mut self.nodes[at];
        node.endpoint.remove_peer(node.peers[other].expect("the peer is another worker"));
        let peer = node.endpoint.add_peer(PeerId(other as u64), address(other), self.now_us);
        node.peers[other] = Some(peer.expect("room for a peer"));
        let gone: Vec<_> = node.copies.iter().filter(|copy| copy.1 == other).copied().collect();
        node.copies.retain(|copy| copy.1 != other);
        gone.into_iter().for_each(|(_, _, shard, lane)| self.copy(at, other, shard, lane));
    }

    /// Starts to copy a slab from one worker to another.
    pub(crate) fn copy(&mut self, from: usize, to: usize, shard: ShardId, lane: Lane) {
        let boot = self.nodes[to].boot;
        let node = &mut self.nodes[from];
        let peer = node.peers[to].expect("the peer is another worker");
        let id = node.endpoint.start_copy(peer, boot, shard, lane).expect("room for a copy");
        node.copies.push((id, to, shard, lane));
    }

    /// Makes a change at an owner: creates, changes or deletes a slot, and appends the record for
    /// its replicas.
    pub(crate) fn change(&mut self, owner: usize, shard: ShardId, lane: Lane, slots: u64) {
        let slot = self.network.random.below(slots) as usize;
        let length = 8 + self.network.random.below(100) as usize;
        let dies = self.network.random.is_one_in(3);
        let now_us = self.now_us;
        let node = &mut self.nodes[owner];
        let replicas: Vec<usize> = node
            .copies
            .iter()
            .filter(|copy| (copy.2, copy.3) == (shard, lane))
            .map(|copy| copy.1)
            .collect();
        node.serial += 1;
        let mut body = vec![node.serial as u8; length];
        body[..8].copy_from_slice(&node.serial.to_be_bytes());
        let slab = node.world.own.entry((shard, lane)).or_default();
        if slab.len() <= slot {
            slab.resize(slot + 1, Slot::default());
        }
        let kind = match (slab[slot].body.is_some(), dies) {
            (false, _) => RecordKind::Create,
            (true, false) => RecordKind::Change,
            (true, true) => RecordKind::Delete,
        };
        let version = slab[slot].version + 1;
        let is_live = kind != RecordKind::Delete;
        slab[slot] = Slot { version, body: is_live.then(|| body.clone()) };
        let peers: Vec<_> = replicas.iter().filter_map(|&to| node.peers[to]).collect();
        let record = StreamRecord { kind, shard, slot: slot as u32, version, body: &body };
        let ticket = node.endpoint.append(&peers, lane, &record, now_us);
        match replicas[..] {
            [replica] if self.nodes[owner].tickets.len() < 64 => {
                let boot = self.nodes[replica].boot;
                let entry = (ticket, replica, boot, shard, slot as u32, version);
                self.nodes[owner].tickets.push(entry);
            }
            _ => {}
        }
    }

    /// Advances time: datagrams arrive, endpoints are polled.
    pub(crate) fn step(&mut self) {
        self.now_us += self.step_us;
        while let Some(entry) = self.network.flights.first_entry() {
            if entry.key().0 > self.now_us {
                break;
            }
            let mut flight = entry.remove();
            let to = (0..self.nodes.len()).find(|&worker| address(worker) == flight.to);
            let Some(to) = to.filter(|&to| !self.network.is_parted(flight.from, to)) else {
                continue;
            };
            let node = &mut self.nodes[to];
            let from = address(flight.from);
            let _ = node.endpoint.receive(from, &mut flight.bytes, self.now_us, &mut node.world);
        }
        for from in 0..self.nodes.len() {
            let node = &mut self.nodes[from];
            let mut port = Port { network: &mut self.network, from, now_us: self.now_us };
            node.endpoint.note_turn(node.load);
            node.endpoint.poll(self.now_us, &mut node.world, &mut port);
            let (used, total) = node.endpoint.buffers_used();
            assert!(used <= total);
            self.check_tickets(from);
            self.check_synced(from);
        }
    }

    /// Checks that the replica has every copy to its end that the owner calls synced, if the owner
    /// knows its incarnation.
    fn check_synced(&self, owner: usize) {
        let node = &self.nodes[owner];
        for &(id, to, shard, lane) in &node.copies {
            let is_synced = node
                .endpoint
                .copy_status(id)
                .is_some_and(|status| status.state == CopyState::Synced);
            let peer = node.peers[to].and_then(|peer| node.endpoint.peer_status(peer, self.now_us));
            if is_synced && peer.is_some_and(|peer| peer.boot == Some(self.nodes[to].boot)) {
                let key = (PeerId(owner as u64), shard, lane);
                assert!(self.nodes[to].world.finished.contains(&key), "{key:?} on {to}");
            }
        }
    }

    /// Checks that acknowledged records are on the replica.
    fn check_tickets(&mut self, owner: usize) {
        let tickets = std::mem::take(&mut self.nodes[owner].tickets);
        let mut waiting = Vec::new();
        for entry in tickets {
            let (ticket, replica, boot, shard, slot, version) = entry;
            let endpoint = &self.nodes[owner].endpoint;
            if endpoint.is_void(&ticket) || self.nodes[replica].boot != boot {
                continue;
            }
            if endpoint.replicated_on(&ticket) == 0 {
                waiting.push(entry);
                continue;
            }
            self.acknowledged += 1;
            let copies = &self.nodes[replica].world.copies;
            let slab = &copies[&(PeerId(owner as u64), shard, Lane::ALL[0])];
            let has = slab[slot as usize].version;
            assert!(!is_newer(version, has), "slot {slot}: {version} acknowledged, {has} there");
        }
        self.nodes[owner].tickets = waiting;
    }

    pub(crate) fn run(&mut self, duration_us: u64) {
        let end_us = self.now_us + duration_us;
        while self.now_us < end_us {
            self.step();
        }
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.nodes.iter().all(|node| {
            node.copies.iter().all(|&(id, to, _, lane)| {
                let status = node.endpoint.copy_status(id).expect("the copy was not stopped");
                let peer = node.peers[to].unwrap();
                let lag = node.endpoint.lag(peer, lane, self.now_us);
                status.state == CopyState::Synced && lag.records == 0
            })
        })
    }

    /// Runs until all copies are synced and nothing lags.
    pub(crate) fn settle(&mut self, limit_us: u64) {
        let end_us = self.now_us + limit_us;
        while !self.is_synced() {
            assert!(self.now_us < end_us, "not in sync after {limit_us} us: {}", self.state());
            self.step();
        }
    }

    /// Returns the state that an engineer would look at.
    fn state(&self) -> String {
        let mut lines = String::new();
        for (number, node) in self.nodes.iter().enumerate() {
            for peer in node.peers.iter().flatten() {
                let status = node.endpoint.peer_status(*peer, self.now_us);
                lines += &format!("\n{number} {status:?}");
            }
            for &(id, to, shard, lane) in &node.copies {
                let status = node.endpoint.copy_status(id);
                lines += &format!("\n{number} -> {to} {shard:?} {lane:?} {status:?}");
            }
        }
        lines
    }

    /// Checks that every copy equals its original.
    pub(crate) fn check_equal(&self) {
        let empty = Slab::new();
        for (owner, node) in self.nodes.iter().enumerate() {
            for &(_, to, shard, lane) in &node.copies {
                let original = node.world.own.get(&(shard, lane)).unwrap_or(&empty);
                let key = (PeerId(owner as u64), shard, lane);
                let copy = self.nodes[to].world.copies.get(&key).unwrap_or(&empty);
                assert_eq!(live(original), live(copy), "{shard:?} {lane:?} of {owner} on {to}");
            }
        }
    }
}
