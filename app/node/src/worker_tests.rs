//! The whole loop on real ports, with every allocation counted.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use allocation_counter::measure;
use pcap_file::pcap::{PcapPacket, PcapWriter};
use weir_dpdk::{Eal, EalConfig, HugePages, MbufPool, Port, PortConfig, tsc_hz};
use weir_engine::{
    AccessMode, BURST_MAX, Direction, DropReason, Engine, EngineConfig, FragmentLimits, MssClamp,
    ResourceLimits, ShardConfig, Side, SideConfig,
};
use weir_nat::{NatConfig, ShardId};
use weir_wire::arp::Arp;
use weir_wire::build;
use weir_wire::ethernet::Mac;

use super::*;
use crate::clock::Clock;
use crate::dpdk_ports::PortQueues;
use crate::request::mailbox;
use crate::request_server::RequestServer;
use crate::worker_stats::WorkerStats;

const WORKER: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
const GATEWAY: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 11]), Mac([2, 0, 0, 0, 0, 12])];
const ADDRESSES: [&str; 2] = ["10.1.0.1/24", "10.2.0.1/24"];
const GATEWAYS: [&str; 2] = ["10.1.0.2", "10.2.0.2"];
const FLOWS: u16 = 40;
/// Packets before the measurement: caches of pool and driver are filled, all flows are open.
const WARM_PACKETS: u64 = 10_000;
const PACKETS: u64 = 100_000;

/// Returns the frames that a port receives over and over: its gateway's ARP reply, and on the
/// access side packets of some homes.
fn frames(side: Side) -> Vec<Vec<u8>> {
    let (worker, gateway) = (WORKER[side as usize], GATEWAY[side as usize]);
    let bits = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().to_bits();
    let own = bits(ADDRESSES[side as usize].trim_end_matches("/24"));
    let reply = Arp::reply(gateway, bits(GATEWAYS[side as usize]), worker, own);
    let mut frames = vec![build::arp(reply)];
    if side == Side::Access {
        frames.extend((0..FLOWS).map(|flow| {
            let inner = build::ipv4("192.168.1.2", "198.51.100.1").udp(5000 + flow, 53, b"query");
            let home = format!("10.200.0.{}", flow % 8 + 1);
            let outer = build::ipv4(home.as_str(), "10.100.0.1").gre(build::gre(), inner);
            build::ethernet(worker, gateway, outer)
        }));
    }
    frames
}

fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    let mut file = PcapWriter::new(File::create(path).unwrap()).unwrap();
    for frame in frames {
        let len = frame.len() as u32;
        file.write_packet(&PcapPacket::new(Duration::ZERO, len, frame)).unwrap();
    }
}

fn engine() -> Engine<Mbuf> {
    let side = |side: Side| SideConfig {
        mac: WORKER[side as usize],
        address: ADDRESSES[side as usize].parse().unwrap(),
        gateways: vec![GATEWAYS[side as usize].parse().unwrap()],
        gateway_macs: Vec::new(),
        ipv6: None,
        vlan: None,
        mtu: 1500,
    };
    let endpoint = Some(0x0a64_0001);
    Engine::new(EngineConfig {
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
            shards: vec![weir_nat::NatShardConfig {
                id: ShardId(1),
                public: vec!["203.0.113.0/29".parse().unwrap()],
                public6: Vec::new(),
                subscribers_max: 16,
            }],
            ..NatConfig::default()
        },
        fragments: FragmentLimits::default(),
        limits: ResourceLimits::default(),
        forward_source_routes: false,
        peers_max: 0,
        replication_port: None,
    })
    .unwrap()
}

#[test]
fn the_loop_allocates_nothing_per_packet() {
    let folder = tempfile::tempdir().unwrap();
    let eal = Eal::init(EalConfig {
        file_prefix: format!("weir-node-test-{}", std::process::id()),
        memory_mb: 256,
        hugepages: HugePages::Never,
        ..EalConfig::default()
    })
    .unwrap();
    let pool = MbufPool::new("loop", 16_384, MbufPool::data_room_for(1500), 0).unwrap();
    let attach = |side: Side| {
        let path = folder.path().join(side.name());
        write_pcap(&path, &frames(side));
        let device = format!("net_pcap{},rx_pcap={},infinite_rx=1", side as usize, path.display());
        let config = PortConfig {
            rx_descriptors: 256,
            tx_descriptors: 256,
            mtu: 1500,
            mac: None,
            pool: pool.clone(),
            socket: 0,
        };
        let port = Port::attach(&eal, &device, config).unwrap();
        let (rx, tx) = port.queues();
        (port, PortQueues { rx, tx })
    };
    let (_access_port, access) = attach(Side::Access);
    let (_internet_port, internet) = attach(Side::Internet);
    let engine = engine();
    let stats = Arc::new(WorkerStats::new(engine.admin().counters(), 1, tsc_hz()));
    let (_requester, mailbox) = mailbox();
    let mut worker = WorkerLoop {
        core: weir_worker::Worker::new(engine, None),
        ports: DpdkPorts {
            pool,
            access,
            internet,
            stats: Arc::clone(&stats),
            request_server: RequestServer::new(mailbox),
            clock: Clock::start(),
            has_ticked: false,
        },
        publisher: Publisher::default(),
        block_log: None,
        poll: Poll::Busy,
        is_stopping: Arc::default(),
    };
    while stats.busy_packets.get() < WARM_PACKETS {
        worker.turn();
    }
    let sent = stats.engine.packets(Side::Internet, Direction::Transmit);
    let allocations = measure(|| {
        while stats.busy_packets.get() < WARM_PACKETS + PACKETS {
            worker.turn();
        }
    });
    assert_eq!(allocations.count_total, 0);
    assert!(stats.turns.read().count() > PACKETS / (2 * BURST_MAX as u64));
    let sent = stats.engine.packets(Side::Internet, Direction::Transmit) - sent;
    assert!(sent > PACKETS / 4, "only {sent} packets were translated");
    assert_eq!(stats.engine.dropped(DropReason::NoBuffer), 0);
}
