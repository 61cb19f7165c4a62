//! The text of a traced packet, from a real engine.

use weir_engine::{
    AccessMode, Engine, EngineConfig, FragmentLimits, MssClamp, Now, Output, ResourceLimits,
    ShardConfig, SideConfig,
};
use weir_nat::{NatConfig, NatShardConfig, ShardId};
use weir_wire::arp::Arp;
use weir_wire::build;
use weir_wire::frame::{VecFrame, VecPool};

use super::*;

const NOW: Now = Now { ms: 1_000_000 };
const ENDPOINT: &str = "10.100.0.1";

fn bits(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().to_bits()
}

struct TracedWorker {
    engine: Engine<VecFrame>,
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
            ipv6: None,
            vlan: None,
            mtu: 1500,
        };
        let shard = NatShardConfig {
            id: ShardId(1),
            public: vec!["203.0.113.0/29".parse().unwrap()],
            public6: Vec::new(),
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
                endpoint6: None,
                subscribers: vec![],
            }],
            nat: NatConfig {
                flows_max: 4096,
                subscribers: vec!["10.200.0.0/16".parse().unwrap()],
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
        let mut worker = Self { engine: engine.unwrap(), pool: VecPool::new(), out: Output::new() };
        worker.engine.start(NOW, &mut worker.pool, &mut worker.out);
        for side in Side::ALL {
            let own = bits(&format!("10.{}.0.1", 1 + side as u8));
            let gateway = bits(&format!("10.{}.0.2", 1 + side as u8));
            let (from, to) = (build::mac(11 + side as u8), build::mac(1 + side as u8));
            let frame = build::arp(Arp::reply(from, gateway, to, own));
            worker.trace_frame(side, &frame);
        }
        worker
    }

    fn trace_frame(&mut self, side: Side, frame: &[u8]) -> TracedPacket {
        let mut frames = vec![VecFrame::new(frame)];
        let Self { engine, pool, out, .. } = self;
        let trace = engine.receive_traced(side, NOW, &mut frames, pool, out);
        out.access.clear();
        out.internet.clear();
        traced_packet(0, &trace.unwrap())
    }

    fn trace(&mut self, side: Side, packet: &[u8]) -> TracedPacket {
        let (to, from) = (build::mac(1 + side as u8), build::mac(11 + side as u8));
        self.trace_frame(side, &build::ethernet(to, from, packet))
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
