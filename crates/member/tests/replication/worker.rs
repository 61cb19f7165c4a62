//! Workers and their network, turn by turn.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use allocation_counter::measure;
use weir_member::order::ShardDuties;
use weir_member::{News, Order, PeerId, Replication};
use weir_nat::Tick;
use weir_replica::{BootId, ClusterKeys, Fingerprint, Identity, Options};
use weir_shard::{LaneSet, ShardId};

use crate::network::{Faults, Network};
use crate::site::{Flow, Site, nat, setup};

pub(crate) const PORT: u16 = 7473;
pub(crate) const SHARD: u32 = 3;

pub(crate) fn address(worker: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 1 + worker as u8), PORT)
}

pub(crate) fn peer_id(worker: usize) -> PeerId {
    PeerId::at(address(worker))
}

pub(crate) fn options() -> Options {
    Options {
        peers_max: 4,
        copies_max: 256,
        buffers: 1024,
        log_datagrams: 256,
        scrub_us: 20_000,
        settle_us: 20_000,
        ..Options::default()
    }
}

pub(crate) fn keys() -> ClusterKeys {
    ClusterKeys::parse(&"5a".repeat(32)).unwrap()
}

pub(crate) fn no_duties(shard: u32) -> ShardDuties {
    ShardDuties::none(ShardId(shard))
}

/// A worker in one life.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) boot: BootId,
    pub(crate) replication: Replication,
    pub(crate) site: Site,
    /// What it has told, all of it.
    pub(crate) news: Vec<News>,
}

/// All workers, their network and the time.
pub(crate) struct Cluster {
    pub(crate) workers: Vec<Option<Worker>>,
    pub(crate) network: Network,
    pub(crate) now_us: u64,
    pub(crate) flows_max: u32,
    /// Shards that each worker has room for.
    pub(crate) shards_max: u16,
    lives: u128,
    /// Made by the workers in their turns.
    pub(crate) allocations: u64,
    /// Who has a public endpoint: no other flow may get it.
    pub(crate) given: BTreeMap<(u32, u16), Flow>,
}

impl Cluster {
    /// Workers that know each other and have the shard, and no duties yet.
    pub(crate) fn new(workers: usize, seed: u64, faults: Faults) -> Self {
        let mut cluster = Self::empty(workers, seed, faults);
        for worker in 0..workers {
            cluster.start(worker);
            cluster.order(worker, Order::AddShard(Box::new(setup(SHARD))));
        }
        cluster
    }

    /// No worker runs yet.
    pub(crate) fn empty(workers: usize, seed: u64, faults: Faults) -> Self {
        Self {
            workers: (0..workers).map(|_| None).collect(),
            network: Network::new(seed, faults),
            now_us: 1_000_000_000,
            flows_max: 60_000,
            shards_max: 8,
            lives: 0,
            allocations: 0,
            given: BTreeMap::new(),
        }
    }

    /// A new life of a worker, with nothing.
    pub(crate) fn start(&mut self, number: usize) {
        self.lives += 1;
        let boot = BootId(self.lives << 64 | u128::from(self.network.random.next()));
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&self.network.random.next().to_be_bytes());
        let identity = Identity { worker: peer_id(number), boot, secret };
        let fingerprint = Fingerprint::default();
        let shards = usize::from(self.shards_max);
        let options = Options { copies_max: 32 * shards, ..options() };
        let replication = Replication::new(options, identity, fingerprint, keys(), shards).unwrap();
        let site = Site::new(nat(self.network.random.next(), self.shards_max, self.flows_max));
        self.workers[number] = Some(Worker { number, boot, replication, site, news: vec![] });
        for other in (0..self.workers.len()).filter(|&other| other != number) {
            let (peer, address) = (peer_id(other), address(other));
            self.order(number, Order::AddPeer { peer, address });
        }
    }

    pub(crate) fn kill(&mut self, number: usize) {
        self.workers[number] = None;
    }

    pub(crate) fn is_alive(&self, number: usize) -> bool {
        self.workers[number].is_some()
    }

    pub(crate) fn worker(&mut self, number: usize) -> &mut Worker {
        self.workers[number].as_mut().expect("the worker lives")
    }

    pub(crate) fn boot(&self, number: usize) -> BootId {
        self.workers[number].as_ref().map_or(BootId(0), |worker| worker.boot)
    }

    pub(crate) fn order(&mut self, number: usize, order: Order) {
        let now_us = self.now_us;
        let worker = self.worker(number);
        worker.replication.obey(order, &mut worker.site, now_us);
    }

    pub(crate) fn duties(&mut self, number: usize, duties: ShardDuties) {
        self.order(number, Order::Duties(Box::new(duties)));
    }

    /// A packet of a home at a worker. A new flow must have a public endpoint that nobody else has.
    pub(crate) fn up(&mut self, number: usize, home: u32, port: u16) -> Option<Flow> {
        let now = Tick((self.now_us / 1_000_000) as u32);
        let flow = self.worker(number).site.up(SHARD, home, port, now)?;
        let holder = *self.given.entry(flow.public).or_insert(flow);
        assert_eq!(holder, flow, "worker {number} gave a port twice");
        Some(flow)
    }

    /// Time passes by a quarter of a millisecond: datagrams arrive, everybody has a turn.
    pub(crate) fn step(&mut self) {
        self.now_us += 250;
        let now_us = self.now_us;
        while let Some(mut datagram) = self.network.arrived(now_us) {
            let to = (0..self.workers.len()).find(|&worker| address(worker) == datagram.to);
            if let Some(worker) = to.and_then(|to| self.workers[to].as_mut()) {
                let (from, bytes) = (datagram.from, &mut datagram.bytes);
                let made = measure(|| {
                    let _ = worker.replication.receive(from, bytes, now_us, &mut worker.site.nat);
                });
                self.allocations += made.count_total;
            }
        }
        for worker in self.workers.iter_mut().flatten() {
            let mut port = self.network.port(address(worker.number), now_us);
            let made = measure(|| {
                worker.replication.poll(now_us, &mut worker.site.nat, &mut port);
            });
            self.allocations += made.count_total;
            worker.site.nat.expire(Tick((now_us / 1_000_000) as u32), 256, 64);
            worker.news.extend(std::iter::from_fn(|| worker.replication.next_news()));
        }
    }

    pub(crate) fn run(&mut self, microseconds: u64) {
        let end_us = self.now_us + microseconds;
        while self.now_us < end_us {
            self.step();
        }
    }

    /// Until it holds.
    pub(crate) fn run_until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end_us = self.now_us + 30_000_000;
        while !holds(self) {
            assert!(self.now_us < end_us, "never: {what}");
            self.step();
        }
    }

    /// What a worker last said of the copies of its shard: complete, or lost.
    pub(crate) fn is_done(&mut self, number: usize) -> bool {
        let said = self.worker(number).news.iter().rev().find_map(|news| match news {
            News::CopyDone(shard) if shard.0 == SHARD => Some(true),
            News::StreamLost(shard) if shard.0 == SHARD => Some(false),
            _ => None,
        });
        said == Some(true)
    }

    /// Every lane that is to come from others is complete and followed.
    pub(crate) fn has_all(&mut self, number: usize) -> bool {
        let status = self.worker(number).status();
        status.lanes_followed == status.lanes_awaited && status.lanes_full == 0
    }

    /// All workers that live know the same flows.
    pub(crate) fn check_equal(&mut self) {
        let mut all = self.workers.iter_mut().flatten().map(|worker| worker.site.flows(SHARD));
        let first = all.next().expect("somebody lives");
        for other in all {
            assert_eq!(first.len(), other.len());
            assert_eq!(first, other);
        }
    }

    pub(crate) fn flows(&mut self, number: usize) -> usize {
        self.worker(number).site.flows(SHARD).len()
    }

    /// A worker has died with these lanes: flows that none of the others has heard of are lost, and their public endpoints
    /// free. All others are to live on.
    pub(crate) fn forget_lost(&mut self, lanes: LaneSet) {
        let alive = self.workers.iter_mut().flatten();
        let known: BTreeSet<Flow> = alive.flat_map(|worker| worker.site.flows(SHARD)).collect();
        let lane = |public: &(u32, u16)| usize::from(public.1 / 64 % 8);
        self.given.retain(|public, flow| !lanes.contains(lane(public)) || known.contains(flow));
    }

    /// No two inside endpoints hold one public endpoint, on whichever workers.
    pub(crate) fn check_unique(&mut self) {
        let mut holders: BTreeMap<(u32, u16), Flow> = BTreeMap::new();
        for worker in self.workers.iter_mut().flatten() {
            for flow in worker.site.flows(SHARD) {
                let holder = *holders.entry(flow.public).or_insert(flow);
                assert_eq!(holder, flow, "worker {} has a port of another's", worker.number);
            }
        }
    }

    /// Every flow that a survivor knew when a worker died is known to all.
    pub(crate) fn check_kept(&mut self) {
        for worker in self.workers.iter_mut().flatten() {
            let known = worker.site.flows(SHARD);
            let lost: Vec<_> = self.given.values().filter(|flow| !known.contains(flow)).collect();
            assert!(lost.is_empty(), "worker {} lost {lost:?}", worker.number);
        }
    }
}

impl Worker {
    pub(crate) fn status(&self) -> weir_member::replication::ReplicationStatus {
        self.replication.status(0)
    }
}
