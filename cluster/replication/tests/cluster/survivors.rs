//! Two to five workers with one shard, over links that lose, repeat and reorder, while homes open
//! flows and sessions and servers answer. At a random instant as many of them die as output commit
//! has to survive.
//!
//! Then some survivor has the mapping and the session of every packet that had left, as it left,
//! and no survivor contradicts it. `WEIR_SEED=n` runs one history again.

use std::collections::BTreeMap;

use weir_engine::{CommitLimits, DropReason, EarlyRelease, Side, Uncommitted};
use weir_map::LANES;
use weir_nat::{Endpoint, Protocol};
use weir_replication::CommitOptions;
use weir_replication::command::ShardDuties;
use weir_stream::StreamOptions;
use weir_wire::build;

use crate::cluster::{Cluster, SERVICE, read};
use crate::member::{Commit, ENDPOINT, HOMES, INSIDE, Make, Member, SERVERS, address};
use crate::network::Faults;
use crate::plan::Plan;

const TURN_US: u64 = 50;

/// A home's request: the home, its port, the server, and whether it is TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ask {
    home: u32,
    port: u16,
    server: u32,
    is_tcp: bool,
}

/// Public endpoint that each request left with.
type Left = BTreeMap<Ask, Endpoint>;

struct History {
    cluster: Cluster,
    plan: Plan,
    asked: Vec<Ask>,
    left: Left,
    /// Last packet of each request that went to the internet, by the number that it carries.
    order: BTreeMap<Ask, u32>,
    packets: u32,
}

impl History {
    fn new(members: usize, commit: Commit, seed: u64) -> Self {
        let mut history = Self::without_shards(members, commit, seed);
        (0..members).for_each(|member| history.join(member));
        history.make_whole();
        history
    }

    /// Returns workers that know each other.
    fn without_shards(members: usize, commit: Commit, seed: u64) -> Self {
        let mut cluster = Cluster::empty(members, seed, Faults::NONE);
        let options = StreamOptions {
            peers_max: 4,
            copies_max: 64,
            acknowledge_us: 0,
            ..StreamOptions::default()
        };
        cluster.make = Make { flows_max: 16_384, shards_max: 2, options, commit };
        cluster.turn_us = TURN_US;
        (0..members).for_each(|member| cluster.start(member));
        let plan = Plan::new(&Vec::from_iter(0..members));
        let (asked, left, order) = (Vec::new(), Left::new(), BTreeMap::new());
        Self { cluster, plan, asked, left, order, packets: 0 }
    }

    /// Gives a member the shard, and its lanes of it.
    fn join(&mut self, member: usize) {
        self.cluster.add_shard(member);
        self.plan.order_one(&mut self.cluster, member);
    }

    /// Sets the primary's duties, while the others are members or guests that stay or leave.
    fn serve(&mut self, is_awaited: bool, is_guest: bool) {
        let mut duties = self.plan.duties(&mut self.cluster, 0);
        for copy in &mut duties.copies {
            (copy.is_awaited, copy.is_guest) = (is_awaited, is_guest);
        }
        self.cluster.duties(0, duties);
    }

    /// The primary keeps its lanes, and no other worker has copies any more.
    fn be_alone(&mut self) {
        let duties = self.plan.duties(&mut self.cluster, 0);
        let (copies, sources) = (Vec::new(), [None; LANES]);
        self.cluster.duties(0, ShardDuties { copies, sources, ..duties });
    }

    /// True if every lane of a worker is complete at all others, and theirs at the worker.
    fn is_whole(&self, member: &Member) -> bool {
        let own = self.plan.lanes.iter().filter(|lane| lane.owner == member.number).count();
        let status = member.status();
        status.outgoing.synced == own * (self.plan.members.len() - 1)
            && status.lanes_awaited > 0
            && status.lanes_followed == status.lanes_awaited
    }

    fn make_whole(&mut self) {
        let began_us = self.cluster.now_us;
        while !self.cluster.members.iter().flatten().all(|member| self.is_whole(member)) {
            assert!(
                self.cluster.now_us < began_us + 10_000_000,
                "the copies are complete within 10 s"
            );
            self.turn();
        }
        // Long enough for everything that is checked rarely.
        (0..1000).for_each(|_| self.turn());
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.cluster.network.random.below(bound)
    }

    fn primary(&mut self) -> &mut Member {
        self.cluster.worker(0)
    }

    /// Advances time: datagrams arrive, every worker has a turn.
    fn turn(&mut self) {
        self.cluster.step();
        self.note_sent();
    }

    fn packet(&mut self, ask: Ask) -> Vec<u8> {
        self.packets += 1;
        let (number, server) = (self.packets.to_be_bytes(), SERVERS + ask.server);
        let packet = build::ipv4(INSIDE, server);
        let inner = match ask.is_tcp {
            false => packet.udp(ask.port, SERVICE, number),
            true => packet.tcp(build::tcp(ask.port, SERVICE).syn().payload(number)),
        };
        build::ipv4(HOMES + ask.home, ENDPOINT).gre(build::gre(), inner)
    }

    /// Sends a burst of the homes' packets: new flows, further remotes of these, and packets of
    /// existing flows.
    fn ask(&mut self) {
        let count = 1 + self.below(8);
        let mut burst = Vec::new();
        for _ in 0..count {
            let is_old = !self.asked.is_empty() && self.below(3) > 0;
            let mut ask = match is_old {
                true => {
                    let index = self.below(self.asked.len() as u64) as usize;
                    self.asked[index]
                }
                false => Ask {
                    home: self.below(40) as u32,
                    port: 10_000 + self.asked.len() as u16,
                    server: 0,
                    is_tcp: self.below(3) == 0,
                },
            };
            if is_old && self.below(3) == 0 {
                ask.server = self.below(4) as u32;
            }
            self.asked.push(ask);
            burst.push(self.packet(ask));
        }
        self.primary().packets(Side::Access, burst);
    }

    /// Answers, as servers, some of the packets that have left.
    fn answer(&mut self) {
        let count = self.left.len() as u64;
        if count == 0 {
            return;
        }
        let index = self.below(count) as usize;
        let (ask, public) = self
            .left
            .iter()
            .nth(index)
            .map(|(a, p)| (*a, *p))
            .expect("the index is below the number of flows");
        let packet = build::ipv4(SERVERS + ask.server, public.address);
        let answer = match ask.is_tcp {
            false => packet.udp(SERVICE, public.port, [0; 4]),
            true => packet.tcp(build::tcp(SERVICE, public.port).syn().ack().payload([0; 4])),
        };
        self.primary().packets(Side::Internet, vec![answer]);
    }

    /// Notes all packets that went out, by request.
    fn note_sent(&mut self) {
        let Some(primary) = &mut self.cluster.members[0] else { return };
        let [to_homes, to_servers] = primary.sent();
        for packet in to_servers {
            let (source, server, is_tcp, number) = read(&packet);
            let ask = self.asked_by(number, server.address - SERVERS, is_tcp);
            let known = *self.left.entry(ask).or_insert(source);
            assert_eq!(known, source, "a mapping has one public endpoint");
            let last = self.order.insert(ask, number).unwrap_or(0);
            assert!(last < number, "packets of {ask:?} keep their order");
        }
        for packet in to_homes {
            let (server, inside, is_tcp, _) = read(&packet);
            let server = server.address - SERVERS;
            let is_his = |ask: &&Ask| {
                ask.port == inside.port && ask.server == server && ask.is_tcp == is_tcp
            };
            assert!(
                self.left.keys().any(|ask| is_his(&ask)),
                "an answer belongs to a request that has left"
            );
        }
    }

    fn asked_by(&self, number: u32, server: u32, is_tcp: bool) -> Ask {
        let ask = self.asked[number as usize - 1];
        assert_eq!((ask.server, ask.is_tcp), (server, is_tcp));
        ask
    }

    fn kill(&mut self, count: usize) -> Vec<usize> {
        let mut dead = Vec::new();
        while dead.len() < count {
            let index = self.below(self.cluster.members.len() as u64) as usize;
            if self.cluster.members[index].take().is_some() {
                dead.push(index);
            }
        }
        dead
    }

    /// Returns the flows that have left and that no survivor knows.
    fn lost(&mut self) -> Vec<Ask> {
        let (mut lost, left) = (Vec::new(), self.left.clone());
        for (ask, public) in left {
            let server = Endpoint::new(SERVERS + ask.server, SERVICE);
            let protocol = if ask.is_tcp { Protocol::Tcp } else { Protocol::Udp };
            let survivors = self.cluster.members.iter_mut().flatten();
            let known = survivors.filter_map(|member| {
                member.engine().nat_mut().peek_inbound(public, server, protocol)
            });
            let known: Vec<_> = known.collect();
            for delivery in &known {
                let here = (delivery.to.home.outer, delivery.to.inside);
                let there = (HOMES + ask.home, Endpoint::new(INSIDE, ask.port));
                assert_eq!(here, there, "all survivors translate alike");
            }
            if known.is_empty() {
                lost.push(ask);
            }
        }
        lost
    }
}

fn commit(failures: usize, policy: Uncommitted, timeout_ms: u64) -> Commit {
    let limits = CommitLimits { held_max: 4096, changes_max: 8192, timeout_ms, policy };
    let options = CommitOptions {
        replicas: failures,
        is_strict: policy == Uncommitted::Drop,
        changes_max: 8192,
        pace_us: 120,
    };
    Some((limits, options))
}

/// Runs traffic for a while, then kills workers. Returns how many flows had left, and those that no
/// survivor knows.
fn run(members: usize, failures: usize, commit: Commit, seed: u64) -> (usize, Vec<Ask>) {
    let mut history = History::new(members, commit, seed);
    history.cluster.network.faults = [Faults::NONE, Faults::MANY][history.below(2) as usize];
    let turns = 100 + history.below(600);
    for _ in 0..turns {
        history.ask();
        if history.below(2) == 0 {
            history.answer();
        }
        history.turn();
    }
    let counters = history.primary().engine().admin().counters();
    let early: u64 = EarlyRelease::ALL.iter().map(|&why| counters.early(why)).sum();
    assert_eq!(early, 0, "no packet left before its commit");
    history.kill(failures);
    (history.left.len(), history.lost())
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("WEIR_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (1..=count).collect(),
    }
}

#[test]
fn sent_flows_survive_as_many_failures_as_awaited_replicas() {
    let mut all_left = 0;
    for seed in seeds(40) {
        let members = 2 + (seed % 4) as usize;
        let failures = 1 + (seed / 4) as usize % (members - 1);
        let policy = [Uncommitted::Release, Uncommitted::Drop][(seed / 3 % 2) as usize];
        let (left, lost) = run(members, failures, commit(failures, policy, 10_000), seed);
        assert!(lost.is_empty(), "seed {seed}: {failures} of {members} died: lost {lost:?}");
        assert!(left > 0, "seed {seed}: nothing left");
        all_left += left;
    }
    assert!(all_left > 1_000 || std::env::var("WEIR_SEED").is_ok(), "{all_left} flows left");
}

/// Checks the test itself: without commit flows are lost in the same histories.
#[test]
fn without_commit_the_same_histories_lose_flows() {
    let lost = (1..=10).filter(|seed| !run(2, 1, None, *seed).1.is_empty()).count();
    assert!(lost > 0);
}

/// With fewer replicas than wanted the network goes on, or makes no new flow, as configured.
#[test]
fn too_few_replicas_are_dealt_with_as_configured() {
    for policy in [Uncommitted::Release, Uncommitted::Drop] {
        let mut history = History::new(3, commit(2, policy, 100), 1);
        history.cluster.kill(2);
        // Long enough for its silence to be noticed.
        (0..2_000).for_each(|_| history.turn());
        let before = history.left.len();
        for _ in 0..100 {
            history.ask();
            history.turn();
        }
        (0..100).for_each(|_| history.turn());
        let now_us = history.cluster.now_us;
        let status = history.primary().replication().status(now_us);
        assert_eq!(status.shards_short.len(), 1);
        match policy {
            Uncommitted::Release => {
                assert!(history.left.len() > before + 50);
                assert!(status.counters.changes_degraded_total > 0);
                // The remaining replica has all of it.
                assert!({
                    history.cluster.kill(0);
                    history.lost().is_empty()
                });
            }
            Uncommitted::Drop => assert_eq!(history.left.len(), before),
        }
    }
}

/// Such changes would hold up all shards of the worker until there is a replica again, or until the
/// limit of waiting changes is reached. Packets that came after that would leave without a copy:
/// seed 406824 of the simulator.
#[test]
fn changes_without_waiting_packets_hold_up_nothing() {
    let mut history = History::new(2, commit(1, Uncommitted::Drop, 100), 1);
    history.cluster.kill(1);
    // Flows begin and wait for the replica until its silence is noticed.
    for _ in 0..20 {
        history.ask();
        history.turn();
    }
    (0..4_000).for_each(|_| history.turn());
    let now_us = history.cluster.now_us;
    let primary = history.primary();
    assert!(
        primary.engine().admin().counters().dropped(DropReason::CommitTimeout) > 0,
        "some packets waited until the timeout"
    );
    let (committed, taken) = primary.committed(now_us);
    assert_eq!(committed, taken);
}

/// A worker that does not know the shard yet acknowledges a copy of it without applying it: the
/// worker has nothing.
#[test]
fn a_worker_that_acknowledges_an_unapplied_copy_is_no_replica() {
    let mut history = History::without_shards(2, commit(1, Uncommitted::Drop, 100), 1);
    (0..1_000).for_each(|_| history.turn());
    history.join(0);
    (0..1_000).for_each(|_| history.turn());
    let now_us = history.cluster.now_us;
    let status = history.primary().replication().status(now_us);
    assert!(status.outgoing.synced > 0, "the copy is acknowledged");
    assert_eq!(status.shards_short.len(), 1);
    history.ask();
    (0..1_000).for_each(|_| history.turn());
    assert!(history.left.is_empty(), "no replica has the flow");
    history.join(1);
    history.make_whole();
    history.ask();
    (0..1_000).for_each(|_| history.turn());
    assert!(!history.left.is_empty());
    history.cluster.kill(0);
    assert!(history.lost().is_empty());
}

/// A member that leaves the shard soon forgets what it has acknowledged.
#[test]
fn a_member_that_leaves_the_shard_is_no_replica() {
    let mut history = History::new(2, commit(1, Uncommitted::Drop, 100), 1);
    for is_awaited in [false, true] {
        history.serve(is_awaited, false);
        (0..1_000).for_each(|_| history.turn());
        history.ask();
        (0..3_000).for_each(|_| history.turn());
        assert_eq!(history.left.is_empty(), !is_awaited);
    }
}

/// A guest that is made a member may have forgotten what it confirmed before. Seed 3288 of the
/// simulator.
#[test]
fn confirmations_of_a_guest_are_void_once_it_is_a_member() {
    let mut history = History::new(2, commit(1, Uncommitted::Drop, 100), 1);
    // Soon enough that a peer which falls silent still counts as heard.
    let is_short = |history: &mut History| {
        (0..5_000 / TURN_US).for_each(|_| history.turn());
        let now_us = history.cluster.now_us;
        !history.primary().replication().status(now_us).shards_short.is_empty()
    };
    history.serve(true, true);
    history.make_whole();
    assert!(!is_short(&mut history), "the guest counts");
    history.serve(false, false);
    assert!(is_short(&mut history), "a new member may be forgetting");
    history.cluster.network.muted.push(address(1));
    history.serve(true, false);
    assert!(is_short(&mut history), "the peer has confirmed nothing as a member");
    history.cluster.network.muted.clear();
    history.make_whole();
    history.cluster.network.muted.push(address(1));
    history.serve(true, false);
    assert!(!is_short(&mut history), "its confirmations as a member stay");
}

/// A change made while there were copies is waited for, though there are none when it is appended.
#[test]
fn flows_opened_before_the_last_copy_stopped_are_held() {
    let mut history = History::new(2, commit(1, Uncommitted::Drop, 100), 1);
    history.ask();
    history.be_alone();
    (0..3_000).for_each(|_| history.turn());
    assert!(history.left.is_empty(), "no other worker has the flow");
}

/// A replica that falls silent holds up packets no longer than a primary may be silent.
#[test]
fn a_silent_replica_is_not_waited_for_for_long() {
    let mut history = History::new(3, commit(2, Uncommitted::Release, 1_000), 1);
    history.cluster.network.muted.push(address(2));
    history.ask();
    let began_us = history.cluster.now_us;
    while history.left.is_empty() {
        history.turn();
        assert!(history.cluster.now_us < began_us + 45_000, "packets wait for the silent replica");
    }
    let counters = history.primary().engine().admin().counters();
    assert_eq!(counters.early(EarlyRelease::Timeout), 0);
}

/// Mappings that ended while a replica heard nothing are still in its copy: no port is reused until
/// it hears again, whether the replica is heard meanwhile or not.
#[test]
fn ports_rest_while_a_replica_is_deaf() {
    let [primary, replica] = [0, 1].map(address);
    for cut in [vec![(primary, replica), (replica, primary)], vec![(primary, replica)]] {
        let mut history = History::new(2, None, 1);
        let after = |history: &mut History, seconds: u64| {
            for _ in 0..50 * seconds {
                history.cluster.now_us += 20_000;
                history.turn();
            }
            let gauges = history.primary().engine().nat().admin().gauges();
            (gauges.flows, gauges.quarantined)
        };
        (0..10).for_each(|_| history.ask());
        assert!(after(&mut history, 1).0 > 10);
        history.cluster.network.cut = cut;
        let (_, ended) = after(&mut history, 301);
        assert_eq!((ended > 10, after(&mut history, 121)), (true, (0, ended)));
        history.cluster.network.cut.clear();
        history.make_whole();
        assert_eq!(after(&mut history, 1), (0, 0));
    }
}

/// Workers that wait for replicas, and the replicas, allocate nothing.
#[test]
fn waiting_allocates_nothing() {
    let mut history = History::new(3, commit(2, Uncommitted::Release, 1_000), 1);
    for _ in 0..200 {
        history.ask();
        history.turn();
    }
    history.cluster.members.iter_mut().flatten().for_each(Member::warm_up);
    history.cluster.allocations = 0;
    for _ in 0..200 {
        history.ask();
        history.turn();
    }
    assert_eq!(history.cluster.allocations, 0);
}
