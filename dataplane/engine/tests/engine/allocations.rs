//! The data path allocates nothing: established packets, new flows, refusals, fragments, expiry.

use std::sync::Arc;

use allocation_counter::measure;
use weir_engine::{
    Engine, EngineConfig, LiveEngineSettings, LiveSettings, Misses, Now, Output, Redirects, Side,
    TraceFilter,
};
use weir_nat::{ActiveRules, HomeSelector, LiveNatSettings, StaticMappings, home_addresses};
use weir_rules::{RuleAction, RuleFilter, RuleSet};
use weir_wire::arp::Arp;
use weir_wire::build;
use weir_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Mac};
use weir_wire::frame::Frame;
use weir_wire::ndp::NdpPacket;

use crate::world::fixed_frame::{FixedFrame, FixedPool};
use crate::world::ipv6::{gre_header, over_ipv6, tunnelled};
use crate::world::link6::{STRANGER, config6, gateway_answer, icmp6_packet, own6, station6};
use crate::world::pair::{A, B, PORT, SHARD, clustered};
use crate::world::*;

struct Bench {
    engine: Engine<FixedFrame>,
    pool: FixedPool,
    out: Output<FixedFrame>,
    frames: Vec<FixedFrame>,
    /// Frames that were sent; nothing is freed while measuring, as DPDK frees into its own pool.
    sent: Vec<FixedFrame>,
    now: Now,
}

impl Bench {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(mut config: EngineConfig) -> Self {
        config.nat.timeouts.udp = 2;
        config.nat.quarantine_sec = 2;
        config.nat.ports_per_subscriber = 1024;
        config.nat.room = weir_nat::ShardRoom { shards: 3, public_addresses: 24, subscribers: 48 };
        let mut bench = Self {
            engine: Engine::new(config).unwrap(),
            pool: FixedPool::new(),
            out: Output::new(),
            frames: Vec::with_capacity(64),
            sent: Vec::with_capacity(4096),
            now: Now { ms: 1_000_000 },
        };
        bench.engine.start(bench.now, &mut bench.pool, &mut bench.out);
        for (side, worker_ip) in [(Side::Access, WORKER_ACCESS), (Side::Internet, WORKER_INTERNET)]
        {
            let reply = Arp::reply(
                gateway_mac(side),
                gateway_ip(side).to_bits(),
                worker_mac(side),
                worker_ip.to_bits(),
            );
            bench.burst(side, &[build::arp(reply)]);
        }
        bench.refill();
        bench
    }

    /// Makes a worker with IPv6, for homes with tunnels over either family. The first two rounds
    /// are those of the probes, which no station answers.
    fn with_ipv6() -> Self {
        let mut bench = Self::with(over_ipv6());
        for round in 0..4 {
            bench.now.ms += 500;
            bench.engine.tick(bench.now, &mut bench.pool, &mut bench.out);
            for side in [Side::Access, Side::Internet] {
                let answer = gateway_answer(side, gateway_mac(side));
                let to = answer.multicast_mac().unwrap_or(worker_mac(side));
                let frame = build::ethernet_of(ETHERTYPE_IPV6, to, STRANGER, answer.as_bytes());
                let made = bench.burst(side, &[frame]);
                assert!(round < 2 || made == 0);
            }
        }
        bench.refill();
        bench
    }

    /// Returns the number of allocations made while one burst passes through the engine.
    fn burst(&mut self, side: Side, packets: &[Vec<u8>]) -> u64 {
        for packet in packets {
            let frame = self.pool.filled(packet);
            self.frames.push(frame);
        }
        measure(|| {
            self.engine.receive(side, self.now, &mut self.frames, &mut self.pool, &mut self.out);
            self.sent.append(&mut self.out.access);
            self.sent.append(&mut self.out.internet);
        })
        .count_total
    }

    /// Traces a packet of a home, which is sent, and checks that nothing is allocated.
    fn trace(&mut self, side: Side, frame: &[u8], home: HomeSelector, what: &str) {
        let filter = TraceFilter { subscriber: Some(home), ..TraceFilter::default() };
        let frame = self.pool.filled(frame);
        let made = measure(|| {
            let Self { engine, pool, out, frames, sent, now } = self;
            assert!(engine.is_traced(side, &frame, &filter), "{what}");
            frames.push(frame);
            let trace = engine.receive_traced(side, *now, frames, pool, out);
            assert_eq!(trace.unwrap().outputs_total, 1, "{what}");
            sent.append(&mut out.access);
            sent.append(&mut out.internet);
        });
        assert_eq!(made.count_total, 0, "{what}");
    }

    fn refill(&mut self) {
        self.sent.clear();
        self.pool = FixedPool::new();
    }
}

fn up(home: &str, inner: impl AsRef<[u8]>) -> Vec<u8> {
    let packet = build::ipv4(home, ENDPOINT).gre(build::gre(), inner);
    build::ethernet(worker_mac(Side::Access), gateway_mac(Side::Access), packet)
}

fn new_flows(base: u16) -> Vec<Vec<u8>> {
    let packet = |port| up(HOME_A, build::ipv4(PC, SERVER).udp(base + port, 53, b"x"));
    (0..64).map(packet).collect()
}

/// Puts an IP packet of either family into a frame.
fn framed(side: Side, packet: Vec<u8>) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
    build::ethernet_of(ethertype, worker_mac(side), gateway_mac(side), packet)
}

#[test]
fn allocation_counter_counts_an_allocation() {
    assert_eq!(measure(|| drop(std::hint::black_box(Box::new(7)))).count_total, 1);
}

#[test]
fn new_and_established_flows_allocate_nothing() {
    let mut bench = Bench::new();
    for base in [1000, 2000, 3000] {
        assert_eq!(bench.burst(Side::Access, &new_flows(base)), 0, "new flows");
        assert_eq!(bench.burst(Side::Access, &new_flows(base)), 0, "established flows");
    }
    assert_eq!(bench.sent.len(), 6 * 64);
    let answers: Vec<_> = bench.sent[..64]
        .iter()
        .map(|frame| {
            let (address, port, _, _) = ends(&frame.data()[14..]);
            let packet = build::ipv4(SERVER, address).udp(53, port, b"y");
            build::ethernet(worker_mac(Side::Internet), gateway_mac(Side::Internet), packet)
        })
        .collect();
    assert_eq!(bench.burst(Side::Internet, &answers), 0, "answers");
    assert_eq!(bench.sent.len(), 7 * 64);
}

#[test]
fn refusals_errors_and_fragments_allocate_nothing() {
    let mut bench = Bench::new();
    for base in (0..20).map(|n| 1000 + 64 * n) {
        assert_eq!(bench.burst(Side::Access, &new_flows(base)), 0, "up to the quota and beyond");
        bench.refill();
    }
    let strange: Vec<_> = [
        up(HOME_B, build::ipv4(PC, SERVER).ttl(1).udp(1, 2, b"x")),
        up(HOME_B, build::ipv4(PC, SERVER).tcp(build::tcp(1, 2).ack())),
        up("10.99.0.1", build::ipv4(PC, SERVER).udp(1, 2, b"x")),
        vec![0; 13],
    ]
    .to_vec();
    assert_eq!(bench.burst(Side::Access, &strange), 0, "errors and drops");
    let datagram = build::ipv4(PC, SERVER).udp(1, 2, vec![0; 4000]);
    let mut pieces: Vec<_> =
        build::fragments(&datagram, 1400).iter().map(|piece| up(HOME_B, piece)).collect();
    pieces.reverse();
    assert_eq!(bench.burst(Side::Access, &pieces), 0, "fragments");
}

#[test]
fn questions_to_rules_and_their_answers_allocate_nothing() {
    for action in [RuleAction::Accept, RuleAction::Drop, RuleAction::Reject] {
        let mut bench = Bench::new();
        bench.burst(Side::Access, &new_flows(1000));
        let public = ends(&bench.sent[0].data()[14..]);
        let set = RuleSet::new(&[RuleFilter::all(0)], vec![action], Vec::new()).unwrap();
        let mut rules = Some(Box::new(ActiveRules::new(Arc::new(set))));
        let swapped = measure(|| {
            let mut admin = bench.engine.nat_mut().admin_mut();
            rules = rules.take().map(|rules| admin.swap_rules(rules));
        });
        assert_eq!(swapped.count_total, 0, "a swap");
        assert_eq!(bench.burst(Side::Access, &new_flows(2000)), 0, "first packets, {action:?}");
        let syn = |port| up(HOME_B, build::ipv4(PC, SERVER).tcp(build::tcp(port, 80).syn()));
        let syns: Vec<_> = (0..64).map(|port| syn(1000 + port)).collect();
        assert_eq!(bench.burst(Side::Access, &syns), 0, "SYNs, {action:?}");
        let further = |port| up(HOME_A, build::ipv4(PC, SERVER_2).udp(1000, port, b"x"));
        let further: Vec<_> = (0..64).map(|port| further(1000 + port)).collect();
        assert_eq!(bench.burst(Side::Access, &further), 0, "further remotes, {action:?}");
        let inbound = (0..64).map(|port| {
            let packet = build::ipv4(SERVER_2, public.0).udp(2000 + port, public.1, b"y");
            build::ethernet(worker_mac(Side::Internet), gateway_mac(Side::Internet), packet)
        });
        assert_eq!(bench.burst(Side::Internet, &inbound.collect::<Vec<_>>()), 0, "{action:?}");
        assert_eq!(bench.engine.nat().admin().active_rules().hits[..], [4 * 64]);
    }
}

#[test]
fn tracing_a_packet_allocates_nothing() {
    let mut bench = Bench::new();
    let home = HomeSelector::Ipv4(HOME_A.to_bits());
    for kind in ["new", "established"] {
        bench.trace(Side::Access, &new_flows(1000)[0], home, kind);
    }
}

/// Of IPv6, and of both families in tunnels over IPv6.
#[test]
fn tracing_a_packet_of_ipv6_allocates_nothing() {
    let mut bench = Bench::with_ipv6();
    let home = |net: &str| HomeSelector::Ipv6(net.parse().unwrap());
    let (outer, inside) = (home("2001:db8:e::1/128"), home("2001:db8:1000:1::/64"));
    let query = build::ipv6("2001:db8:1000:1::7", "2001:db8:9::1").udp(5000, 53, b"x");
    let query4 = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let answer = build::ipv6("2001:db8:9::1", "2001:db8:1000:1::7").udp(53, 5000, b"y");
    for round in ["new", "established"] {
        for packet in [&query, &query4] {
            let packet = tunnelled("2001:db8:e::1", None, packet);
            bench.trace(Side::Access, &framed(Side::Access, packet), outer, round);
        }
        bench.trace(Side::Internet, &framed(Side::Internet, answer.clone()), inside, round);
    }
}

/// Packets from other workers, packets redirected to them, and the commands that set duties and
/// peers.
#[test]
fn cluster_traffic_and_duties_allocate_nothing() {
    let mut bench = Bench::with(clustered(config()));
    let made = measure(|| {
        assert!(bench.engine.setup().add_peer(B));
        bench.engine.setup().set_redirects(B, Redirects::Plain);
        bench.engine.setup().set_misses(SHARD, Misses::Redirect(B));
        bench.engine.tick(bench.now, &mut bench.pool, &mut bench.out);
    });
    assert_eq!(made.count_total, 0, "commands to the engine");
    bench.sent.append(&mut bench.out.access);
    let announced =
        build::arp(Arp::reply(build::mac(3), B.to_bits(), worker_mac(Side::Access), A.to_bits()));
    assert_eq!(bench.burst(Side::Access, &[announced]), 0);
    let sent = bench.sent.len();
    assert_eq!(bench.burst(Side::Access, &new_flows(1000)), 0, "redirected up");
    let scan = (0..64).map(|port| {
        let packet = build::ipv4(SERVER, "203.0.113.1").udp(53, 60_000 + port, b"y");
        build::ethernet(worker_mac(Side::Internet), gateway_mac(Side::Internet), packet)
    });
    assert_eq!(bench.burst(Side::Internet, &scan.collect::<Vec<_>>()), 0, "redirected down");
    let large = build::ipv4(PC, SERVER).udp(1, 2, vec![0; 1460]);
    assert_eq!(bench.burst(Side::Access, &[up(HOME_B, large)]), 0, "in pieces");
    assert_eq!(bench.sent.len(), sent + 64 + 64 + 2);
    bench.engine.setup().set_misses(SHARD, Misses::Create);
    let from_b = |packet: Vec<u8>| build::ethernet(worker_mac(Side::Access), build::mac(3), packet);
    let stray = |inner| from_b(build::ipv4(B.to_bits(), A.to_bits()).ipip(inner));
    let flows = new_flows(2000);
    let strays: Vec<_> = flows.iter().map(|frame| stray(&frame[14..])).collect();
    for kind in ["new", "established"] {
        assert_eq!(bench.burst(Side::Access, &strays), 0, "{kind} flows of strays");
    }
    assert_eq!(bench.engine.nat().admin().gauges().flows, 64);
    let datagram = build::ipv4(B.to_bits(), A.to_bits()).udp(PORT, PORT, vec![7; 1400]);
    assert_eq!(bench.burst(Side::Access, &vec![from_b(datagram); 64]), 0, "datagrams in");
    let made = measure(|| {
        while let Some((from, frame)) = bench.engine.take_datagram() {
            let Bench { engine, pool, out, .. } = &mut bench;
            assert!(engine.replica_and_sender().1.send(from, frame.data(), pool, out));
            bench.sent.push(frame);
        }
        bench.engine.take_traffic(|_| {});
        bench.engine.setup().set_serving(SHARD, false);
        bench.engine.setup().remove_peer(B);
    });
    assert_eq!((made.count_total, bench.out.access.len()), (0, 64), "datagrams out");
}

/// The value is built beside the worker, and freed there.
#[test]
fn swapping_a_generation_allocates_and_frees_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.burst(Side::Access, &new_flows(1000)), 0);
    let mut new = config();
    new.nat.flows_max = 1000;
    new.nat.ports_per_subscriber = 512;
    new.nat.new_homes_per_sec = Some(3);
    new.fragments.percent = 100;
    let mut live = Some(Box::new(LiveSettings {
        number: 1,
        engine: LiveEngineSettings::of(&new),
        nat: LiveNatSettings::of(&new.nat).unwrap(),
        homes: home_addresses(&new.nat.subscribers),
        homes6: weir_nat::HomePrefixes::new(&new.nat.subscribers6),
        rules: Box::new(ActiveRules::none()),
        statics: Arc::new(StaticMappings::none()),
        delegations: Arc::default(),
        out_of_service: Box::default(),
    }));
    for number in [0, 1, 0] {
        let made = measure(|| {
            let given = live.take().unwrap();
            live = Some(bench.engine.setup().swap_live(given));
        });
        assert_eq!((made.count_total, made.bytes_current), (0, 0));
        assert_eq!(live.as_ref().map(|live| live.number), Some(number));
    }
    assert_eq!(bench.burst(Side::Access, &new_flows(2000)), 0, "under the new settings");
}

/// Tables do not grow for a shard that is added. The few allocations are its lists, and they leave
/// nothing behind.
#[test]
fn adding_and_removing_a_shard_allocates_little() {
    let mut bench = Bench::new();
    let tables = bench.engine.nat().admin().gauges().tables;
    let endpoint = "10.100.7.1";
    let id = weir_nat::ShardId(7);
    let shard = weir_engine::ShardConfig {
        id,
        endpoint: Some(endpoint.to_bits()),
        endpoint6: None,
        subscribers: vec!["10.7.0.0/16".parse().unwrap()],
    };
    let public = vec!["192.0.2.0/29".parse().unwrap()];
    let nat = weir_nat::NatShardConfig { id, public, public6: Vec::new(), subscribers_max: 16 };
    let packets: Vec<_> = (0..64)
        .map(|port| {
            let inner = build::ipv4(PC, SERVER).udp(5000 + port, 53, b"x");
            let packet = build::ipv4(HOME_A, endpoint).gre(build::gre(), inner);
            build::ethernet(worker_mac(Side::Access), gateway_mac(Side::Access), packet)
        })
        .collect();
    let mut left_over = Vec::new();
    for _ in 0..3 {
        let mut index = None;
        let come = measure(|| {
            index = Some(bench.engine.setup().add_shard(&shard, &nat, 0xff, bench.now).unwrap());
        });
        assert!(come.bytes_total < 20_000, "{come:?}");
        assert_eq!(bench.burst(Side::Access, &packets), 0, "new flows");
        assert_eq!(bench.burst(Side::Access, &packets), 0, "established flows");
        assert_eq!(bench.engine.nat().admin().shard_gauges(index.unwrap()).ports_used, 64);
        bench.refill();
        let gone = measure(|| {
            bench.engine.setup().remove_shard(index.unwrap());
            while !bench.engine.nat().replica().is_removed(index.unwrap()) {
                bench.now.ms += 1;
                bench.engine.tick(bench.now, &mut bench.pool, &mut bench.out);
                while bench.engine.nat_mut().admin_mut().next_event().is_some() {}
            }
        });
        assert!(gone.bytes_total < 1000, "{gone:?}");
        left_over.push(come.bytes_current + gone.bytes_current);
    }
    assert_eq!(left_over[1..], [0, 0], "lists that have grown once do not grow again");
    assert_eq!(bench.engine.nat().admin().gauges().tables, tables);
}

#[test]
fn expiry_and_gateways_allocate_nothing() {
    let mut bench = Bench::new();
    bench.burst(Side::Access, &new_flows(1000));
    bench.refill();
    for _ in 0..200 {
        bench.now.ms += 100;
        let made = measure(|| {
            bench.engine.tick(bench.now, &mut bench.pool, &mut bench.out);
            while bench.engine.nat_mut().admin_mut().next_event().is_some() {}
            bench.sent.append(&mut bench.out.access);
            bench.sent.append(&mut bench.out.internet);
        });
        assert_eq!(made.count_total, 0);
    }
    assert_eq!(bench.engine.nat().admin().gauges().flows, 0);
}

#[test]
fn neighbor_discovery_and_pings_of_ipv6_allocate_nothing() {
    let (mut bench, side) = (Bench::with(config6()), Side::Internet);
    let frame = |to: Mac, packet: &[u8]| build::ethernet_of(ETHERTYPE_IPV6, to, STRANGER, packet);
    let message = |packet: NdpPacket| {
        frame(packet.multicast_mac().unwrap_or(worker_mac(side)), packet.as_bytes())
    };
    let ping = icmp6_packet(station6(), own6(side), 64, &[128, 0, 0, 0, 0, 7, 0, 8]);
    let messages = [
        message(NdpPacket::solicitation(station6(), STRANGER, own6(side))),
        message(NdpPacket::duplicate_detection(own6(side))),
        message(NdpPacket::unsolicited(own6(side), STRANGER, true)),
        message(gateway_answer(side, gateway_mac(side))),
        message(gateway_answer(side, STRANGER)),
        frame(worker_mac(side), &ping),
        frame(worker_mac(side), &ping[..47]),
    ];
    for round in 0..60 {
        bench.now.ms += 500;
        let made = measure(|| {
            bench.engine.tick(bench.now, &mut bench.pool, &mut bench.out);
            bench.sent.append(&mut bench.out.access);
            bench.sent.append(&mut bench.out.internet);
        });
        assert_eq!(made.count_total, 0);
        // The first two rounds are those of the probes, which no station answers.
        if round >= 2 {
            assert_eq!(bench.burst(side, &messages), 0);
        }
    }
    assert!(bench.sent.len() > 200, "three of the messages are answered, and half of the claims");
}

#[test]
fn flows_of_ipv6_and_of_tunnels_over_ipv6_allocate_nothing() {
    let mut bench = Bench::with_ipv6();
    let inner6 = |host: u16, port| {
        build::ipv6(&*format!("2001:db8:1000:{host}::7"), "2001:db8:9::1").udp(port, 53, b"x")
    };
    let up = |port: u16| {
        let packet = match port % 4 {
            0 => build::ipv4(HOME_A, ENDPOINT)
                .gre(build::gre(), build::ipv4(PC, SERVER).udp(port, 53, b"x")),
            1 => build::ipv4(HOME_A, ENDPOINT)
                .gre(gre_header(None, &inner6(1, port)), inner6(1, port)),
            2 => tunnelled("2001:db8:e::1", None, build::ipv4(PC, SERVER).udp(port, 53, b"x")),
            _ => tunnelled("2001:db8:e::1", None, inner6(2, port)),
        };
        framed(Side::Access, packet)
    };
    for base in [1000, 2000, 3000] {
        let packets: Vec<_> = (base..base + 64).map(up).collect();
        assert_eq!(bench.burst(Side::Access, &packets), 0, "new flows");
        assert_eq!(bench.burst(Side::Access, &packets), 0, "established flows");
    }
    assert_eq!(bench.sent.len(), 6 * 64);
    let answer = |packet: &[u8]| match packet[0] >> 4 {
        4 => {
            let (address, port, ..) = ends(packet);
            build::ipv4(SERVER, address).udp(53, port, b"y")
        }
        _ => {
            let port = u16::from_be_bytes([packet[40], packet[41]]);
            let source: [u8; 16] = packet[8..24].try_into().unwrap();
            build::ipv6("2001:db8:9::1", u128::from_be_bytes(source)).udp(53, port, b"y")
        }
    };
    let sent = bench.sent[..64].iter().map(|frame| answer(&frame.data()[14..]));
    let answers: Vec<_> = sent.map(|packet| framed(Side::Internet, packet)).collect();
    assert_eq!(bench.burst(Side::Internet, &answers), 0, "answers");
    assert_eq!(bench.sent.len(), 7 * 64);
}
