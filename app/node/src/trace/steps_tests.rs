//! The text of a traced packet, from a real engine.

use std::net::{Ipv6Addr, SocketAddrV4};

use weir_engine::{
    AccessMode, Engine, EngineConfig, FragmentLimits, MssClamp, Now, Output, ResourceLimits,
    ShardConfig, Side6Config, SideConfig,
};
use weir_nat::{Delegation, NatConfig, NatShardConfig, ShardId};
use weir_wire::arp::Arp;
use weir_wire::build;
use weir_wire::frame::{VecFrame, VecPool};
use weir_wire::ndp::{NdpPacket, NeighborSolicitation};
use weir_wire::{gre, ipv6};

use super::*;

const ENDPOINT: &str = "10.100.0.1";
const ENDPOINT6: &str = "2001:db8:64::1";

fn bits(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().to_bits()
}

fn bits6(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().to_bits()
}

struct TracedWorker {
    engine: Engine<VecFrame>,
    now: Now,
    pool: VecPool,
    out: Output<VecFrame>,
}

impl TracedWorker {
    fn start() -> Self {
        let side = |side: Side| SideConfig {
            mac: build::mac(1 + side as u8),
            address: format!("10.{}.0.1/24", 1 + side as u8).parse().unwrap(),
            gateways: vec![format!("10.{}.0.2", 1 + side as u8).parse().unwrap()],
            gateway_macs: Vec::new(),
            ipv6: Some(Side6Config {
                address: format!("2001:db8:{}::1/64", 1 + side as u8).parse().unwrap(),
                gateways: vec![format!("2001:db8:{}::2", 1 + side as u8).parse().unwrap()],
            }),
            vlan: None,
            mtu: 1500,
        };
        let shard = NatShardConfig {
            id: ShardId(1),
            public: vec!["203.0.113.0/29".parse().unwrap()],
            public6: vec!["2001:db8:1000::/40".parse().unwrap()],
            subscribers_max: 16,
        };
        let endpoint = Some(bits(ENDPOINT));
        let engine = Engine::new(EngineConfig {
            mode: AccessMode::Gre,
            access: side(Side::Access),
            internet: side(Side::Internet),
            mss_clamp: MssClamp::Auto,
            shards: vec![ShardConfig {
                id: ShardId(1),
                endpoint,
                endpoint6: Some(bits6(ENDPOINT6)),
                subscribers: vec![],
            }],
            nat: NatConfig {
                flows_max: 4096,
                subscribers: vec!["10.200.0.0/16".parse().unwrap()],
                subscribers6: vec!["2001:db8:e::/48".parse().unwrap()],
                delegation: Some(Delegation::Claim { hold_sec: 600 }),
                shards: vec![shard],
                seed: [1, 2, 3, 4],
                ..NatConfig::default()
            },
            fragments: FragmentLimits::default(),
            limits: ResourceLimits::default(),
            forward_source_routes: false,
            peers_max: 0,
            replication_port: None,
        });
        let (pool, out, now) = (VecPool::new(), Output::new(), Now { ms: 1_000_000 });
        let mut worker = Self { engine: engine.unwrap(), now, pool, out };
        worker.engine.start(now, &mut worker.pool, &mut worker.out);
        for _ in 0..10 {
            worker.now.ms += 100;
            worker.engine.tick(worker.now, &mut worker.pool, &mut worker.out);
        }
        Side::ALL.into_iter().for_each(|side| worker.gateways_answer(side));
        worker
    }

    fn gateways_answer(&mut self, side: Side) {
        let number = 1 + side as u8;
        let [own, gateway] = [1, 2].map(|host| bits(&format!("10.{number}.0.{host}")));
        let (from, to) = (build::mac(11 + side as u8), build::mac(number));
        self.trace_frame(side, &build::arp(Arp::reply(from, gateway, to, own)));
        let [own, gateway] = [1, 2].map(|host| bits6(&format!("2001:db8:{number}::{host}")));
        let asked = NeighborSolicitation {
            source: own,
            destination: gateway,
            target: gateway,
            source_mac: None,
        };
        self.trace(side, NdpPacket::answer(&asked, from, true).as_bytes());
    }

    fn trace_frame(&mut self, side: Side, frame: &[u8]) -> TracedPacket {
        let mut frames = vec![VecFrame::new(frame)];
        let Self { engine, now, pool, out } = self;
        let trace = engine.receive_traced(side, *now, &mut frames, pool, out);
        out.access.clear();
        out.internet.clear();
        traced_packet(0, &trace.unwrap())
    }

    fn trace(&mut self, side: Side, packet: &[u8]) -> TracedPacket {
        let (to, from) = (build::mac(1 + side as u8), build::mac(11 + side as u8));
        let frame = match ipv6::is_version_6(packet) {
            true => build::ethernet6(to, from, packet),
            false => build::ethernet(to, from, packet),
        };
        self.trace_frame(side, &frame)
    }
}

fn text(packet: &TracedPacket) -> String {
    let line = |step: &TraceStep| format!("  {:<8} {}\n", step.step, step.text);
    format!("{}\n{}", packet.outcome, packet.steps.iter().map(line).collect::<String>())
}

/// Asserts that a text has these parts in this order; between them is what the seed draws.
fn has(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("no {part:?} in order in\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn first_packet_answer_and_packet_of_a_stranger_are_described() {
    let mut worker = TracedWorker::start();
    let query = build::ipv4("192.168.1.10", "198.51.100.53").udp(5000, 53, b"query");
    let query = build::ipv4("10.200.1.5", ENDPOINT).gre(build::gre(), query);
    let first = text(&worker.trace(Side::Access, &query));
    println!("{first}");
    has(
        &first,
        &[
            "sent\n  input    access, 71 bytes: ",
            "10.200.1.5 > 10.100.0.1 ttl 64 gre | 192.168.1.10:5000 > 198.51.100.53:53",
            "key      home 10.200.1.5; udp 192.168.1.10:5000 > 198.51.100.53:53\n",
            "index    outbound, hash ",
            ": miss\n  record   none\n  mapping  opened: 192.168.1.10:5000 is 203.0.113.",
            ", block ",
            "\n  session  begun: one-way\n  edit     tunnel GRE -> none, source 192.168.1.10 -> 203.0.113.",
            ", ttl 64 -> 63, header checksum ",
            ", source port 5000 -> ",
            ", udp checksum ",
            "\n  output   internet, 47 bytes: ",
        ],
    );
    let public = first.split(" is ").nth(1).and_then(|it| it.split(',').next()).unwrap();
    let public: SocketAddrV4 = public.parse().unwrap();
    let from = |remote: &str| build::ipv4(remote, *public.ip()).udp(53, public.port(), b"answer");
    let answer = text(&worker.trace(Side::Internet, &from("198.51.100.53")));
    println!("{answer}");
    let found = [
        "sent\n  input    internet, 48 bytes: ",
        "key      home 10.200.1.5; udp 198.51.100.53:53 > 203.0.113.",
        "index    inbound, hash ",
        ": hit in the primary bucket\n  record   number ",
        "; first session, one-way, idle 0 of ",
        "session  one-way becomes stream\n  edit     tunnel none -> GRE, destination 203.0.113.",
        "\n  output   access, 72 bytes: ",
    ];
    has(&answer, &found);
    let stranger = text(&worker.trace(Side::Internet, &from("192.0.2.66")));
    println!("{stranger}");
    let kept_out = [
        "dropped\n",
        "; no session with this remote\n  filter   nat.filtering keeps the remote out\n",
        "  drop     filtered: ",
    ];
    has(&stranger, &kept_out);
}

const HOME6: &str = "2001:db8:e::5";
const HOST: &str = "2001:db8:1000:1::7";
const SERVER6: &str = "2001:db8:9::53";

/// A packet in the tunnel of a home over IPv6.
fn over6(inner: &[u8]) -> Vec<u8> {
    let protocol = if ipv6::is_version_6(inner) { gre::PROTOCOL_IPV6 } else { gre::PROTOCOL_IPV4 };
    build::ipv6(HOME6, ENDPOINT6).gre(build::gre().protocol(protocol), inner)
}

/// The texts are those of the example in `docs/operations.md`.
#[test]
fn packets_of_ipv6_and_a_stranger_that_the_firewall_keeps_out_are_described() {
    let mut worker = TracedWorker::start();
    let stranger = build::ipv6("2001:db8:bad::1", HOST).tcp(build::tcp(6000, 22).syn());
    let nobody = [
        "key      no home is known; tcp [2001:db8:bad::1]:6000 > ",
        "  record   none\n  drop     no-mapping: ",
    ];
    has(&text(&worker.trace(Side::Internet, &stranger)), &nobody);
    let query = over6(&build::ipv6(HOST, SERVER6).udp(5000, 53, b"query"));
    let first = text(&worker.trace(Side::Access, &query));
    println!("{first}");
    let parts = [
        "sent\n  input    access, 111 bytes: ",
        "2001:db8:e::5 > 2001:db8:64::1 hlim 64 gre | [2001:db8:1000:1::7]:5000 > [2001:db8:9::53]:53 hlim 64 udp 5\n",
        "key      home 2001:db8:e::5; udp [2001:db8:1000:1::7]:5000 > [2001:db8:9::53]:53\n",
        "index    IPv6, hash ",
        ": miss\n  record   none\n  flow     opened: [2001:db8:1000:1::7]:5000 and [2001:db8:9::53]:53\n",
        "  session  begun: one-way\n  edit     tunnel GRE over IPv6 -> none, hop limit 64 -> 63\n",
        "  output   internet, 67 bytes: ",
    ];
    has(&first, &parts);
    let answer = build::ipv6(SERVER6, HOST).udp(53, 5000, b"answer");
    let answer = text(&worker.trace(Side::Internet, &answer));
    println!("{answer}");
    let found = [
        "sent\n  input    internet, 68 bytes: ",
        "key      home 2001:db8:e::5; udp [2001:db8:9::53]:53 > [2001:db8:1000:1::7]:5000\n",
        ": hit in the primary bucket\n  record   number ",
        ", [2001:db8:1000:1::7]:5000 and [2001:db8:9::53]:53; one-way, idle 0 of 300 s\n",
        "  session  one-way becomes stream\n  edit     tunnel none -> GRE over IPv6, hop limit 64 -> 63\n",
        "  output   access, 112 bytes: ",
    ];
    has(&answer, &found);
    let stranger = text(&worker.trace(Side::Internet, &stranger));
    println!("{stranger}");
    let kept_out = [
        "dropped\n",
        "key      home 2001:db8:e::5; tcp [2001:db8:bad::1]:6000 > [2001:db8:1000:1::7]:22\n",
        ": miss\n  record   none\n  filter   no rule lets the remote in\n  drop     no-mapping: ",
    ];
    has(&stranger, &kept_out);
}

#[test]
fn ipv4_packet_of_a_home_over_ipv6_is_described_with_its_mapping() {
    let mut worker = TracedWorker::start();
    let query = build::ipv4("192.168.1.10", "198.51.100.53").udp(5000, 53, b"query");
    let parts = [
        "key      home 2001:db8:e::5; udp 192.168.1.10:5000 > 198.51.100.53:53\n  index    outbound, ",
        "mapping  opened: 192.168.1.10:5000 is 203.0.113.",
        "edit     tunnel GRE over IPv6 -> none, source 192.168.1.10 -> 203.0.113.",
    ];
    has(&text(&worker.trace(Side::Access, &over6(&query))), &parts);
}

#[test]
fn ipv6_packets_that_no_flow_is_looked_up_for_say_what_they_are() {
    let mut worker = TracedWorker::start();
    let query = build::ipv6(HOST, SERVER6).udp(5000, 53, b"query");
    worker.trace(Side::Access, &over6(&query));
    let error = build::ipv6(SERVER6, HOST).port_unreachable(&query);
    let about = [
        " icmp6 unreachable code 4 | [2001:db8:1000:1::7]:5000 > ",
        ", ICMPv6 error; slow path\n  index    not asked for the packet's own key, ",
    ];
    has(&text(&worker.trace(Side::Internet, &error)), &about);
    let probe = build::ipv6(HOST, SERVER6).hop_limit(1).udp(5000, 33434, b"x");
    let ends = [
        "dropped\n",
        "key      home 2001:db8:e::5; udp [2001:db8:1000:1::7]:5000 > [2001:db8:9::53]:33434; its hop limit ends here\n",
        "  output   access, ",
        " icmp6 time exceeded code 0 | ",
        "  drop     ttl-exceeded: ",
    ];
    let told = text(&worker.trace(Side::Access, &over6(&probe)));
    has(&told, &ends);
    assert!(!told.contains("  index "), "{told}");
    let pieces = build::fragments6(build::ipv6(HOST, SERVER6).udp(5000, 53, [7; 400]), 300, 9);
    let later = [
        "held\n",
        " fragment 9@",
        ", later fragment; slow path\n  index    not asked: its first fragment decides\n  wait     ",
    ];
    has(&text(&worker.trace(Side::Access, &over6(&pieces[1]))), &later);
    let ask =
        NdpPacket::solicitation(bits6("2001:db8:2::77"), build::mac(99), bits6("2001:db8:2::1"));
    let frame = build::ethernet6(ask.multicast_mac().unwrap(), build::mac(99), ask.as_bytes());
    let neighbor = [
        "sent\n",
        " icmp6 who has 2001:db8:2::1, tell 02:00:00:00:00:63\n  key      for the worker itself\n",
        " icmp6 2001:db8:2::1 is here, ",
    ];
    has(&text(&worker.trace_frame(Side::Internet, &frame)), &neighbor);
}

#[test]
fn home_with_the_address_of_another_is_described_with_that_one() {
    let mut worker = TracedWorker::start();
    worker.trace(Side::Access, &over6(&build::ipv6(HOST, SERVER6).udp(5000, 53, b"query")));
    let taken = build::ipv6(HOST, SERVER6).udp(5001, 53, b"query");
    let taken =
        build::ipv4("10.200.1.5", ENDPOINT).gre(build::gre().protocol(gre::PROTOCOL_IPV6), taken);
    let parts = [
        "dropped\n",
        "key      home 10.200.1.5; udp [2001:db8:1000:1::7]:5001 > ",
        "record   none; the address is of home 2001:db8:e::5\n",
        "drop     claim-conflict: ",
    ];
    has(&text(&worker.trace(Side::Access, &taken)), &parts);
}
