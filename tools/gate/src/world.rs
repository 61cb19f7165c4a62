//! A worker's engine between two networks, in memory.

use std::hint::black_box;
use std::net::Ipv6Addr;
use std::sync::Arc;

use ipnet::Ipv6Net;
use weir_engine::{
    AccessMode, BURST_MAX, DropReason, Engine, EngineConfig, FragmentLimits, MssClamp, Now, Output,
    ResourceLimits, ShardConfig, Side, Side6Config, SideConfig,
};
use weir_nat::{ActiveRules, Delegation, NatConfig, ShardId, ShardIndex, Tick};
use weir_rules::shapes::{RuleShape, filters};
use weir_rules::{Prefix, RuleAction, RuleSet};
use weir_wire::arp::Arp;
use weir_wire::build;
use weir_wire::ethernet::Mac;
use weir_wire::frame::Frame;
use weir_wire::ndp::{NdpPacket, NeighborSolicitation};

use crate::buffer::{BufferFrame, Buffers};

pub(crate) const SHARDS: u32 = 4;
const START: Now = Now { ms: 998_000 };
const NOW: Now = Now { ms: 1_000_000 };

/// The measured function: only its instructions and those of its callees count.
#[inline(never)]
pub fn measured_burst(
    engine: &mut Engine<BufferFrame>,
    side: Side,
    frames: &mut Vec<BufferFrame>,
    pool: &mut Buffers,
    out: &mut Output<BufferFrame>,
) {
    engine.receive(side, NOW, frames, pool, out);
    // This is not the last call, which would be a jump: valgrind counts until the function returns.
    black_box(out.access.len());
}

/// An engine whose gateways have answered ARP.
#[derive(Debug)]
pub(crate) struct World {
    engine: Engine<BufferFrame>,
    pool: Buffers,
    out: Output<BufferFrame>,
}

impl World {
    pub(crate) fn new(mode: AccessMode) -> Self {
        Self::with(config(mode))
    }

    /// Makes a worker whose shards another worker mirrors.
    pub(crate) fn replicated() -> Self {
        let mut config = config(AccessMode::Gre);
        config.nat.replicas = 1;
        let mut world = Self::with(config);
        for shard in (0..SHARDS as u16).map(ShardIndex) {
            let mut nat = world.engine.nat_mut().replica_mut();
            nat.set_owned_lanes(shard, 0x7f, Tick((NOW.ms / 1000) as u32));
            nat.set_replicated_lanes(shard, 0xff);
        }
        world
    }

    /// Makes a worker whose homes have IPv6, too: each a /64 of its shard.
    pub(crate) fn dual_stack(mode: AccessMode) -> Self {
        Self::with(Self::with_ipv6(mode))
    }

    /// Makes a worker whose homes have tunnels over IPv6.
    pub(crate) fn over_ipv6() -> Self {
        let mut config = Self::with_ipv6(AccessMode::Gre);
        let homes = Ipv6Net::new(Ipv6Addr::from(outer6(0, 0)), 48).expect("48 bits of 128");
        config.nat.subscribers6 = vec![homes.trunc()];
        for (shard, settings) in (0..).zip(&mut config.shards) {
            settings.endpoint6 = Some(endpoint6(shard));
        }
        Self::with(config)
    }

    fn with_ipv6(mode: AccessMode) -> EngineConfig {
        let mut config = config(mode);
        config.nat.delegation = Some(match mode {
            AccessMode::Gre => Delegation::Claim { hold_sec: 600 },
            AccessMode::Plain => Delegation::Prefix { home_length: 64 },
        });
        for side in Side::ALL {
            let [worker, gateway] = addresses6(side).map(Ipv6Addr::from);
            let link = match side {
                Side::Access => &mut config.access,
                Side::Internet => &mut config.internet,
            };
            let address = Ipv6Net::new(worker, 64).expect("64 bits of 128");
            link.ipv6 = Some(Side6Config { address, gateways: vec![gateway] });
        }
        for (shard, settings) in (0..).zip(&mut config.nat.shards) {
            settings.public6 = vec![prefix6(shard)];
        }
        config
    }

    /// Makes a worker with room for `flows` flows, whose homes may have 4,096 ports each.
    pub(crate) fn with_room(flows: u32) -> Self {
        let mut config = config(AccessMode::Gre);
        config.nat.flows_max = flows;
        config.nat.ports_per_subscriber = 4096;
        Self::with(config)
    }

    /// Makes a worker that limits each home to this many packets a second on the slow path.
    pub(crate) fn with_slow_path(packets_per_sec: u32) -> Self {
        let mut config = config(AccessMode::Gre);
        config.limits.slow_path_packets_per_sec = packets_per_sec;
        Self::with(config)
    }

    fn with(config: EngineConfig) -> Self {
        let has_ipv6 = config.internet.ipv6.is_some();
        let mut world = Self {
            engine: Engine::new(config).expect("the configuration is valid"),
            pool: Buffers,
            out: Output::new(),
        };
        world.engine.start(START, &mut world.pool, &mut world.out);
        // It looks for duplicates of its IPv6 addresses for a second.
        world.engine.tick(NOW, &mut world.pool, &mut world.out);
        world.take_sent(Side::Access);
        world.take_sent(Side::Internet);
        for side in Side::ALL {
            let [worker, gateway] = addresses(side);
            let reply = Arp::reply(gateway_mac(side), gateway, worker_mac(side), worker);
            let mut frames = vec![BufferFrame::new(&build::arp(reply))];
            if has_ipv6 {
                let [worker, gateway] = addresses6(side);
                let asked = NeighborSolicitation {
                    source: worker,
                    destination: gateway,
                    target: gateway,
                    source_mac: None,
                };
                let answer = NdpPacket::answer(&asked, gateway_mac(side), true);
                let (worker, gateway) = (worker_mac(side), gateway_mac(side));
                frames.push(BufferFrame::new(&build::ethernet6(
                    worker,
                    gateway,
                    answer.as_bytes(),
                )));
            }
            world.engine.receive(side, NOW, &mut frames, &mut world.pool, &mut world.out);
        }
        assert!(world.engine.admin().is_ready(), "both gateways have answered");
        world
    }

    /// Puts rules of a provider into force, all with this action, and groups of homes. The last
    /// rule is about every flow.
    pub(crate) fn load_rules(&mut self, rules: u32, action: RuleAction) {
        let filters = filters(RuleShape::Provider, rules - 1, &mut fastrand::Rng::with_seed(1));
        let group = |shard| (Prefix::new(home(shard, 0), 24), 1 + shard as u8);
        let groups = (1..SHARDS).map(group).collect();
        let set = RuleSet::new(&filters, vec![action; filters.len()], groups);
        let rules = ActiveRules::new(Arc::new(set.expect("a provider's rules compile")));
        drop(self.engine.nat_mut().admin_mut().swap_rules(Box::new(rules)));
    }

    /// Sends IP packets in at `side`, not counted, and returns the IP packets that come out on the
    /// other side.
    ///
    /// # Panics
    /// When not every packet comes out.
    pub(crate) fn pass(&mut self, side: Side, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut passed = Vec::new();
        for burst in packets.chunks(BURST_MAX) {
            let mut frames = Self::framed(side, burst);
            self.engine.receive(side, NOW, &mut frames, &mut self.pool, &mut self.out);
            passed.extend(self.take_sent(other(side)));
        }
        assert_eq!(passed.len(), packets.len(), "every packet passes");
        passed
    }

    /// Sends IP packets in at `side`, not counted, without checking whether they come out.
    pub(crate) fn offer(&mut self, side: Side, packets: &[Vec<u8>]) {
        for burst in packets.chunks(BURST_MAX) {
            let mut frames = Self::framed(side, burst);
            self.engine.receive(side, NOW, &mut frames, &mut self.pool, &mut self.out);
            self.take_sent(other(side));
        }
    }

    /// Sends IP packets in at `side`, counted, and returns how many they are.
    ///
    /// # Panics
    /// When a packet does not come out on the other side, or, with a `drop`, is not dropped for
    /// that reason.
    pub(crate) fn measure(
        &mut self,
        side: Side,
        packets: &[Vec<u8>],
        drop: Option<DropReason>,
    ) -> usize {
        let mut passed = 0;
        let dropped =
            |engine: &Engine<_>| drop.map_or(0, |drop| engine.admin().counters().dropped(drop));
        let before = dropped(&self.engine);
        for burst in packets.chunks(BURST_MAX) {
            let mut frames = Self::framed(side, burst);
            measured_burst(&mut self.engine, side, &mut frames, &mut self.pool, &mut self.out);
            passed += self.take_sent(other(side)).len();
        }
        match drop {
            None => assert_eq!(passed, packets.len(), "every packet passes"),
            Some(_) => {
                let dropped = dropped(&self.engine) - before;
                assert_eq!(dropped, packets.len() as u64, "every packet is dropped");
            }
        }
        packets.len()
    }

    fn framed(side: Side, packets: &[Vec<u8>]) -> Vec<BufferFrame> {
        let framed = |packet: &Vec<u8>| {
            let (worker, gateway) = (worker_mac(side), gateway_mac(side));
            let frame = match packet[0] >> 4 {
                6 => build::ethernet6(worker, gateway, packet),
                _ => build::ethernet(worker, gateway, packet),
            };
            BufferFrame::new(&frame)
        };
        packets.iter().map(framed).collect()
    }

    fn take_sent(&mut self, side: Side) -> Vec<Vec<u8>> {
        let frames = match side {
            Side::Access => &mut self.out.access,
            Side::Internet => &mut self.out.internet,
        };
        frames.drain(..).map(|frame| frame.data()[ETHERNET_LEN..].to_vec()).collect()
    }
}

const ETHERNET_LEN: usize = 14;

/// Returns the IPv6 addresses of the worker and of its gateway.
fn addresses6(side: Side) -> [u128; 2] {
    let net = 0x2001_0db8_0001_0000_0000_0000_0000_0000 + ((side as u128) << 80);
    [net + 1, net + 2]
}

/// Returns the IPv6 prefix of a shard's homes.
fn prefix6(shard: u32) -> Ipv6Net {
    let address = Ipv6Addr::from(home6(shard, 0));
    Ipv6Net::new(address, 48).expect("48 bits of 128").trunc()
}

/// Returns a host of the n-th home of a shard: each home has a /64.
pub(crate) fn home6(shard: u32, n: u32) -> u128 {
    0x2001_0db8_1000_0000_0000_0000_0000_0007 + (u128::from(shard) << 80) + (u128::from(n) << 64)
}

const fn other(side: Side) -> Side {
    match side {
        Side::Access => Side::Internet,
        Side::Internet => Side::Access,
    }
}

fn worker_mac(side: Side) -> Mac {
    build::mac(1 + side as u8)
}

fn gateway_mac(side: Side) -> Mac {
    build::mac(11 + side as u8)
}

/// Returns the address of the worker and that of its gateway.
fn addresses(side: Side) -> [u32; 2] {
    let net = u32::from_be_bytes([10, 1 + side as u8, 0, 0]);
    [net + 1, net + 2]
}

/// Returns the tunnel endpoint of a shard.
pub(crate) fn endpoint(shard: u32) -> u32 {
    u32::from_be_bytes([10, 100, 0, 1]) + shard
}

/// Returns the n-th home of a shard: each shard has a /24.
pub(crate) fn home(shard: u32, n: u32) -> u32 {
    u32::from_be_bytes([10, 200, 0, 1]) + (shard << 8) + n
}

/// Returns the IPv6 tunnel endpoint of a shard.
pub(crate) fn endpoint6(shard: u32) -> u128 {
    0x2001_0db8_0064_0000_0000_0000_0000_0001 + u128::from(shard)
}

/// Returns the outer address of the n-th home of a shard, if its tunnel is over IPv6.
pub(crate) fn outer6(shard: u32, n: u32) -> u128 {
    0x2001_0db8_000e_0000_0000_0000_0000_0001 + (u128::from(shard) << 72) + (u128::from(n) << 64)
}

fn config(mode: AccessMode) -> EngineConfig {
    let net = |text: String| text.parse().expect("a prefix");
    let side = |side: Side| {
        let [worker, gateway] = addresses(side).map(std::net::Ipv4Addr::from);
        SideConfig {
            mac: worker_mac(side),
            address: net(format!("{worker}/24")),
            gateways: vec![gateway],
            gateway_macs: Vec::new(),
            ipv6: None,
            vlan: None,
            mtu: 1500,
        }
    };
    let shards = (0..SHARDS).map(|shard| ShardConfig {
        id: ShardId(shard),
        endpoint: (mode == AccessMode::Gre).then(|| endpoint(shard)),
        endpoint6: None,
        subscribers: match mode {
            AccessMode::Gre => vec![],
            AccessMode::Plain => vec![net(format!("10.200.{shard}.0/24"))],
        },
    });
    let nat_shards = (0..SHARDS).map(|shard| weir_nat::NatShardConfig {
        id: ShardId(shard),
        public: vec![net(format!("203.0.113.{}/29", 8 * shard))],
        public6: Vec::new(),
        subscribers_max: 64,
    });
    EngineConfig {
        mode,
        access: side(Side::Access),
        internet: side(Side::Internet),
        mss_clamp: MssClamp::Auto,
        shards: shards.collect(),
        nat: NatConfig {
            flows_max: 4096,
            subscribers: vec![net("10.200.0.0/16".to_owned())],
            shards: nat_shards.collect(),
            seed: [1, 2, 3, 4],
            ..NatConfig::default()
        },
        fragments: FragmentLimits { datagrams_max: 64, held_max: 64, ..FragmentLimits::default() },
        limits: ResourceLimits::default(),
        forward_source_routes: false,
        peers_max: 0,
        replication_port: None,
    }
}
