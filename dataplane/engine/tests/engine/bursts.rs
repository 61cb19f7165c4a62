//! Compares bursts with single packets: the same frames go through two engines, one of which gets
//! each frame alone. What is sent, what is dropped and what the tables hold must be the same. The
//! public endpoint of a flow, and which flow of a burst went first, may differ.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use bolero::{TypeGenerator, check, produce};
use weir_engine::{BURST_MAX, DropReason, EngineConfig, Side};
use weir_nat::{Filtering, Protocol, ShardIndex};
use weir_wire::frame::VecFrame;
use weir_wire::{build, icmp, ipv4, tcp};

use crate::world::*;

const HOMES: u8 = 3;

/// An inside endpoint and its protocol. All homes use the same addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, TypeGenerator)]
struct Flow {
    #[generator(0..HOMES)]
    home: u8,
    host: u8,
    #[generator(0..3_u8)]
    protocol: u8,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Remote {
    Server(u8),
    /// Another home's public endpoint, if it has one already (hairpinning).
    Public(Flow),
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Packet {
    flow: Flow,
    remote: Remote,
    is_syn: bool,
}

/// A burst: from the homes, or from the servers back to known flows.
#[derive(Clone, Debug, TypeGenerator)]
struct Burst {
    is_up: bool,
    #[generator(produce::<Vec<Packet>>().with().len(1..=BURST_MAX))]
    packets: Vec<Packet>,
}

/// Limits of a play.
#[derive(Clone, Copy)]
struct Crowd {
    hosts: u8,
    servers: u8,
    has_hairpins: bool,
    inside: fn(u8) -> u32,
}

fn private(host: u8) -> u32 {
    PC.to_bits() + u32::from(host)
}

fn public(host: u8) -> u32 {
    "203.0.113.0".to_bits() + u32::from(host % 8)
}

const MANY: Crowd = Crowd { hosts: 6, servers: 3, has_hairpins: true, inside: private };
/// One remote for each host: a flow is a mapping.
const MAPPINGS: Crowd = Crowd { hosts: 12, servers: 1, has_hairpins: false, inside: private };
/// More flows than a port block has ports.
const PORTS: Crowd = Crowd { hosts: 100, servers: 1, has_hairpins: false, inside: private };
const FIREWALL: Crowd = Crowd { inside: public, hosts: 16, ..MANY };

impl Crowd {
    /// Returns the packet changed to fit these limits.
    fn fit(&self, packet: Packet) -> Packet {
        let flow = |flow: Flow| Flow { host: flow.host % self.hosts, ..flow };
        let remote = match packet.remote {
            Remote::Public(other) if self.has_hairpins => {
                Remote::Public(flow(Flow { protocol: packet.flow.protocol, ..other }))
            }
            Remote::Public(other) => Remote::Server(other.host % self.servers),
            Remote::Server(n) => Remote::Server(n % self.servers),
        };
        Packet { flow: flow(packet.flow), remote, ..packet }
    }
}

impl Flow {
    fn protocol(self) -> Protocol {
        [Protocol::Udp, Protocol::Tcp, Protocol::Icmp][usize::from(self.protocol)]
    }

    fn outer(self) -> u32 {
        HOME_A.to_bits() + u32::from(self.home)
    }

    fn port(self) -> u16 {
        5000 + u16::from(self.host)
    }

    /// Returns the payload that distinguishes a packet from all others: flow and number.
    fn tag(self, number: u32) -> Vec<u8> {
        [&[self.home, self.host, self.protocol, 0][..], &number.to_be_bytes()].concat()
    }
}

/// The sent packets in order: by flow, by the home that gets them (`None`: the internet), and by
/// whether they are ICMP errors about the flow.
type Seen = BTreeMap<(Flow, Option<u32>, bool), Vec<String>>;

/// An engine, and the public endpoints of its flows.
struct Player {
    world: World,
    crowd: Crowd,
    publics: HashMap<Flow, (u32, u16)>,
    owners: HashMap<(u32, u16, u8), Flow>,
    seen: Seen,
    hairpins: u32,
}

impl Player {
    fn new(config: EngineConfig, crowd: Crowd) -> Self {
        Self {
            world: World::new(config),
            crowd,
            publics: HashMap::new(),
            owners: HashMap::new(),
            seen: Seen::new(),
            hairpins: 0,
        }
    }

    /// Returns the frame of a packet; `None` if it belongs to a flow without a public endpoint.
    fn frame(&self, is_up: bool, packet: Packet, number: u32) -> Option<VecFrame> {
        let Packet { flow, is_syn, .. } = packet;
        let remote = match packet.remote {
            Remote::Server(n) => (SERVER.to_bits() + u32::from(n), 53),
            Remote::Public(other) => *self.publics.get(&other)?,
        };
        let (from, to) = match is_up {
            true => (((self.crowd.inside)(flow.host), flow.port()), remote),
            false => (remote, *self.publics.get(&flow)?),
        };
        let head = build::ipv4(from.0, to.0);
        let tag = flow.tag(number);
        let inner = match flow.protocol() {
            Protocol::Udp => head.udp(from.1, to.1, tag),
            Protocol::Tcp => {
                let ack = if is_up { 0 } else { tcp::ACK };
                let flags = if is_syn { tcp::SYN | ack } else { tcp::ACK };
                head.tcp(build::tcp(from.1, to.1).flags(flags).payload(tag))
            }
            Protocol::Icmp if is_up => head.icmp_echo_request(from.1, 1, tag),
            Protocol::Icmp => head.icmp_echo_reply(to.1, 1, tag),
        };
        let (side, packet) = match is_up {
            true => (Side::Access, build::ipv4(flow.outer(), ENDPOINT).gre(build::gre(), inner)),
            false => (Side::Internet, inner),
        };
        Some(VecFrame::new(&build::ethernet(worker_mac(side), gateway_mac(side), packet)))
    }

    /// Plays a burst in bursts of `at_once`; the first packet has number `number`.
    fn play(&mut self, is_up: bool, packets: &[Packet], number: u32, at_once: usize) {
        let numbered = packets.iter().zip(number..);
        let mut frames: Vec<_> =
            numbered.filter_map(|(&packet, number)| self.frame(is_up, packet, number)).collect();
        let side = if is_up { Side::Access } else { Side::Internet };
        let mut found = Vec::new();
        while !frames.is_empty() {
            let rest = frames.split_off(at_once.min(frames.len()));
            let out = self.world.frames(side, std::mem::replace(&mut frames, rest));
            assert!(out.other.is_empty());
            found.extend(out.internet.into_iter().map(|packet| (None, packet)));
            found.extend(out.access.iter().map(|packet| {
                let (home, _, inner) = decapsulate(packet);
                self.hairpins += u32::from(is_up && !is_error(&inner));
                (Some(home), inner)
            }));
        }
        if is_up {
            // A query delivered to a home has that home's identifier instead of its sender's.
            let is_query = |packet: &[u8]| tag_of(packet).0.protocol() == Protocol::Icmp;
            for (home, packet) in &found {
                if home.is_none() || !is_query(packet) {
                    self.learn(packet);
                }
            }
        }
        for (home, packet) in found {
            let is_error = is_error(&packet);
            let (flow, number) = tag_of(&packet);
            let text = match is_error {
                true => format!("refused: {number}"),
                false => format!("{number}: {}", self.describe(&packet)),
            };
            self.seen.entry((flow, home, is_error)).or_default().push(text);
        }
    }

    /// Learns the public endpoint of a home's flow from a translated packet.
    fn learn(&mut self, packet: &[u8]) {
        if is_error(packet) {
            return;
        }
        let (flow, _) = tag_of(packet);
        let (address, port, ..) = ends(packet);
        let known = *self.publics.entry(flow).or_insert((address, port));
        assert_eq!(known, (address, port), "endpoint-independent mapping of {flow:?}");
        let owner = *self.owners.entry((address, port, flow.protocol)).or_insert(flow);
        assert_eq!(owner, flow, "a public endpoint has one owner");
    }

    /// Describes a packet without the values that two engines may choose differently.
    fn describe(&self, packet: &[u8]) -> String {
        let (flow, _) = tag_of(packet);
        let (ip, header_len, len) = ipv4::parse(packet).unwrap();
        let (source, sport, destination, dport) = ends(packet);
        let [source, destination] = [(source, sport), (destination, dport)].map(|end| {
            match self.owners.get(&(end.0, end.1, flow.protocol)) {
                Some(owner) => format!("{owner:?}"),
                // An identifier belongs to the sender of the query alone.
                None if flow.protocol() == Protocol::Icmp => dotted(end.0),
                None => format!("{}:{}", dotted(end.0), end.1),
            }
        });
        let flags = match flow.protocol() {
            Protocol::Tcp => packet[header_len + 13],
            Protocol::Udp | Protocol::Icmp => 0,
        };
        let (ttl, tos) = (ip.ttl, ip.tos);
        format!("{source} > {destination} ttl {ttl} tos {tos} len {len} flags {flags:#x}")
    }

    /// Returns all sums that must not depend on how packets arrive, except for what was sent.
    fn balance(&self) -> (Vec<(&'static str, u64)>, Vec<u64>) {
        let drops = DropReason::ALL
            .iter()
            .map(|&reason| (reason.name(), self.world.dropped(reason)))
            .filter(|(_, dropped)| *dropped > 0);
        let nat = self.world.engine.nat();
        let gauges = nat.admin().gauges();
        let mut sums = vec![
            gauges.flows.into(),
            gauges.flow_creates_total,
            gauges.flow_expired_total,
            gauges.subscribers.into(),
            gauges.quarantined.into(),
        ];
        for shard in [ShardIndex(0), ShardIndex(1)] {
            let gauges = nat.admin().shard_gauges(shard);
            sums.extend([gauges.subscribers, gauges.ports_used, gauges.blocks_free].map(u64::from));
        }
        (drops.collect(), sums)
    }

    fn block_events(&mut self) -> usize {
        std::iter::from_fn(|| self.world.engine.nat_mut().admin_mut().next_event()).count()
    }
}

fn is_error(packet: &[u8]) -> bool {
    let (ip, header_len, _) = ipv4::parse(packet).unwrap();
    ip.protocol == ipv4::PROTOCOL_ICMP && icmp::is_error(packet[header_len])
}

/// Returns flow and number of a packet, or of the packet that an error quotes to its end.
fn tag_of(packet: &[u8]) -> (Flow, u32) {
    let &[home, host, protocol, 0, a, b, c, d] = packet.last_chunk().unwrap() else {
        panic!("a packet without a tag");
    };
    (Flow { home, host, protocol }, u32::from_be_bytes([a, b, c, d]))
}

/// Compares the sent packets; a failure names the first flow whose packets differ.
fn assert_same_seen(together: &Player, alone: &Player) {
    for key in together.seen.keys().chain(alone.seen.keys()) {
        assert_eq!(together.seen.get(key), alone.seen.get(key), "{key:?}");
    }
}

/// Plays the same bursts to both engines and compares them after each; returns the player of whole
/// bursts.
fn compare(config: &EngineConfig, crowd: Crowd, bursts: &[Burst]) -> Player {
    let [mut alone, mut together] = [(), ()].map(|()| Player::new(config.clone(), crowd));
    let mut number = 0;
    for Burst { is_up, packets } in bursts {
        let packets: Vec<_> = packets.iter().map(|&packet| crowd.fit(packet)).collect();
        alone.play(*is_up, &packets, number, 1);
        together.play(*is_up, &packets, number, BURST_MAX);
        number += packets.len() as u32;
        assert_same_seen(&together, &alone);
        assert_eq!(together.balance(), alone.balance());
        assert_eq!(together.block_events(), alone.block_events());
        let known = |player: &Player| {
            player.publics.keys().copied().collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(known(&together), known(&alone));
        for player in [&mut alone, &mut together] {
            player.world.pass_sec(1);
        }
    }
    together
}

/// How often each reason dropped a packet, and how many packets were hairpinned.
type Sums = (BTreeMap<&'static str, u64>, u32);

/// Plays random bursts and returns the sums.
fn play(config: EngineConfig, crowd: Crowd) -> Sums {
    let sums = Mutex::new(Sums::default());
    play_into(&sums, &config, crowd);
    sums.into_inner().unwrap()
}

fn play_into(sums: &Mutex<Sums>, config: &EngineConfig, crowd: Crowd) {
    check!()
        .with_iterations(250)
        .with_generator(produce::<Vec<Burst>>().with().len(1..12_usize))
        .for_each(|bursts: &Vec<Burst>| {
            let player = compare(config, crowd, bursts);
            let (drops, hairpins) = &mut *sums.lock().unwrap();
            for (reason, dropped) in player.balance().0 {
                *drops.entry(reason).or_default() += dropped;
            }
            *hairpins += player.hairpins;
        });
}

fn eager() -> EngineConfig {
    let mut config = config();
    config.nat.filtering = Filtering::EndpointIndependent;
    config
}

#[test]
fn bursts_are_as_single_packets_when_there_is_room() {
    for filtering in [Filtering::EndpointIndependent, Filtering::AddressAndPortDependent] {
        let mut config = config();
        config.nat.filtering = filtering;
        let (drops, hairpins) = play(config, MANY);
        let is_open = filtering == Filtering::EndpointIndependent;
        assert!(!is_open || hairpins > 200, "{hairpins} hairpins");
        assert!(is_open || drops["filtered"] > 1000, "{drops:?}");
        assert!(drops["tcp-not-syn"] > 100, "{drops:?}");
    }
}

#[test]
fn bursts_are_as_single_packets_when_the_table_is_full() {
    let mut config = eager();
    config.nat.flows_max = 20;
    let (drops, _) = play(config, MAPPINGS);
    assert!(drops["table-full"] > 1000, "{drops:?}");
}

#[test]
fn bursts_are_as_single_packets_when_homes_are_at_their_limit() {
    let mut config = eager();
    config.nat.flows_per_subscriber = 10;
    let (drops, _) = play(config, MAPPINGS);
    assert!(drops["flows-per-subscriber"] > 1000, "{drops:?}");
}

#[test]
fn bursts_are_as_single_packets_when_ports_run_out() {
    let mut config = eager();
    config.nat.port_block = 64;
    config.nat.ports_per_subscriber = 64;
    // All packets are of one home and protocol.
    let crowded: Vec<_> = (0..6)
        .map(|burst| Burst {
            is_up: true,
            packets: (0..BURST_MAX as u8)
                .map(|n| udp(0, (n / 2 + burst * 16) % PORTS.hosts, Remote::Server(0)))
                .collect(),
        })
        .collect();
    let player = compare(&config, PORTS, &crowded);
    assert!(player.world.dropped(DropReason::PortsExhausted) > 50);
    assert_eq!(player.world.engine.nat().admin().gauges().flows, 64);
    play(config, PORTS);
}

#[test]
fn bursts_are_as_single_packets_without_translation() {
    let mut config = eager();
    config.nat.enabled = false;
    let (drops, hairpins) = play(config, FIREWALL);
    assert!(drops["address-conflict"] > 1000, "{drops:?}");
    assert!(hairpins > 50, "{hairpins} hairpins");
}

fn udp(home: u8, host: u8, remote: Remote) -> Packet {
    Packet { flow: Flow { home, host, protocol: 0 }, remote, is_syn: false }
}

fn up(packets: impl IntoIterator<Item = Packet>) -> Burst {
    Burst { is_up: true, packets: packets.into_iter().collect() }
}

/// New flows, mixed with further packets of the same flows.
#[test]
fn first_packets_and_followers_in_one_burst_all_leave_in_order() {
    let packets = (0..BURST_MAX as u8).map(|n| udp(n % 3, n % 5, Remote::Server(n % 2)));
    let player = compare(&config(), MANY, &[up(packets)]);
    assert_eq!(player.world.drops(), 0);
    assert_eq!(player.seen.len(), 15, "flows");
    assert_eq!(player.seen.values().map(Vec::len).sum::<usize>(), BURST_MAX);
    let gauges = player.world.engine.nat().admin().gauges();
    assert_eq!((gauges.flows, gauges.subscribers), (30, 3), "a flow each of two servers");
}

#[test]
fn a_refused_flow_is_refused_with_its_followers() {
    let mut config = config();
    config.nat.flows_max = 2;
    let hosts = [0, 1, 2, 2, 0, 2, 3, 1, 3];
    let packets = hosts.map(|host| udp(0, host, Remote::Server(0)));
    let player = compare(&config, MANY, &[up(packets)]);
    assert_eq!(player.world.dropped(DropReason::TableFull), 5);
    assert_eq!(player.world.drops(), 5);
    let errors = player.seen.iter().filter(|((.., is_error), _)| *is_error);
    assert_eq!(
        errors.map(|(_, packets)| packets.len()).sum::<usize>(),
        5,
        "an ICMP error for each"
    );
}

/// Ports in quarantine fill the table except for one slot, which three flows of two homes want at
/// once.
#[test]
fn last_slot_of_the_table_goes_to_the_first_flow_of_a_burst() {
    let mut config = config();
    config.nat.flows_max = 8;
    let mut players = [1, BURST_MAX].map(|at_once| (at_once, Player::new(config.clone(), MANY)));
    for (at_once, player) in &mut players {
        let first: Vec<_> = (0..7).map(|host| udp(0, host, Remote::Server(0))).collect();
        player.play(true, &first, 0, *at_once);
        player.world.pass_sec(301);
        assert_eq!(player.world.engine.nat().admin().gauges().quarantined, 7);
        let hosts = [(1, 10), (2, 10), (2, 11), (2, 10), (1, 10)];
        let late = hosts.map(|(home, host)| udp(home, host, Remote::Server(0)));
        player.play(true, &late, 100, *at_once);
        assert_eq!(player.world.dropped(DropReason::TableFull), 3);
        assert_eq!(player.block_events(), 2, "no event for a block that was never used");
    }
    let [(_, alone), (_, together)] = &players;
    assert_same_seen(together, alone);
    assert_eq!(together.balance(), alone.balance());
}

#[test]
fn hairpins_of_a_burst_reach_each_other() {
    let flow = |home| Flow { home, host: 0, protocol: 0 };
    let between = |n: u8| udp(n % 2, 0, Remote::Public(flow(1 - n % 2)));
    // A third home's first packets go to both, between the packets of the two.
    let strangers = [udp(2, 1, Remote::Public(flow(1))), udp(2, 2, Remote::Public(flow(0)))];
    let bursts = [
        up([udp(0, 0, Remote::Server(0)), udp(1, 0, Remote::Server(0))]),
        up((0..20).map(between).chain(strangers).chain((0..20).map(between))),
    ];
    let player = compare(&eager(), MANY, &bursts);
    assert_eq!((player.hairpins, player.world.drops()), (42, 0));
}

#[test]
fn first_home_of_a_burst_that_claims_an_endpoint_gets_it() {
    let mut config = config();
    config.nat.enabled = false;
    let homes = [1, 0, 0, 1, 2, 1];
    let packets = homes.map(|home| udp(home, 3, Remote::Server(0)));
    let player = compare(&config, FIREWALL, &[up(packets)]);
    assert_eq!(player.world.dropped(DropReason::AddressConflict), 3);
    assert_eq!(player.seen.len(), 1);
    assert_eq!(player.seen[&(Flow { home: 1, host: 3, protocol: 0 }, None, false)].len(), 3);
    assert_eq!(
        player.world.engine.nat().admin().gauges().subscribers,
        1,
        "the others hold nothing"
    );
}
