//! A worker's NAT, and what orders do to the rest of its data path.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use weir_engine::Misses;
use weir_member::order::ShardSetup;
use weir_member::replication::DataPath;
use weir_nat::{
    AddressRanges, Endpoint, Home, Nat, NatConfig, Outbound, PageCursor, Protocol, SessionFilter,
    ShardIndex, ShardRoom, Tick,
};

/// A flow that a home has: which home, from which port, and the public endpoint that it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flow {
    pub(crate) shard: u32,
    pub(crate) outer: u32,
    pub(crate) inside_port: u16,
    pub(crate) public: (u32, u16),
}

pub(crate) struct Site {
    pub(crate) nat: Nat,
    /// Positions of shards by number.
    pub(crate) shards: BTreeMap<u32, ShardIndex>,
    pub(crate) peers: BTreeSet<Ipv4Addr>,
    pub(crate) serving: BTreeMap<ShardIndex, bool>,
    pub(crate) misses: BTreeMap<ShardIndex, Misses<Ipv4Addr>>,
}

/// Shards of more than this many have one address and few homes each.
const FEW: u16 = 8;

/// The NAT of a worker that has room for so many shards.
pub(crate) fn nat(seed: u64, shards: u16, flows_max: u32) -> Nat {
    let (addresses, homes) = if shards > FEW { (1, 4) } else { (16, 256) };
    Nat::new(NatConfig {
        flows_max,
        subscribers: vec!["10.200.0.0/16".parse().unwrap()],
        room: ShardRoom {
            shards,
            public_addresses: addresses * u32::from(shards),
            subscribers: homes * u32::from(shards),
        },
        port_block: 64,
        replicas: 4,
        seed: [seed, 2, 3, 4],
        ..NatConfig::default()
    })
    .expect("a good configuration")
}

/// The shard of a number: a tunnel endpoint and a /28.
pub(crate) fn setup(number: u32) -> ShardSetup {
    let id = weir_shard::ShardId(number);
    let prefix = format!("203.0.{}.{}/28", 113 + number / 16, number % 16 * 16);
    ShardSetup {
        engine: weir_engine::ShardConfig {
            id,
            endpoint: Some(u32::from(Ipv4Addr::new(10, 100, 0, number as u8))),
            subscribers: vec![],
        },
        nat: weir_nat::ShardConfig {
            id,
            public: vec![prefix.parse().unwrap()],
            subscribers_max: 256,
        },
        awaits_replicas: false,
    }
}

/// One of many shards: a tunnel endpoint and an address.
pub(crate) fn small_setup(number: u32) -> ShardSetup {
    let id = weir_shard::ShardId(number);
    let public = vec![Ipv4Addr::from(0xc612_0000 + number).into()];
    let endpoint = Some(0x0a64_0000 + number);
    ShardSetup {
        engine: weir_engine::ShardConfig { id, endpoint, subscribers: vec![] },
        nat: weir_nat::ShardConfig { id, public, subscribers_max: 4 },
        awaits_replicas: false,
    }
}

const SERVER: Endpoint = Endpoint { address: u32::from_be_bytes([198, 51, 100, 1]), port: 443 };
const INSIDE: u32 = u32::from_be_bytes([192, 168, 1, 10]);
const HOMES: u32 = u32::from_be_bytes([10, 200, 0, 1]);

impl Site {
    pub(crate) fn new(nat: Nat) -> Self {
        Self {
            nat,
            shards: BTreeMap::new(),
            peers: BTreeSet::new(),
            serving: BTreeMap::new(),
            misses: BTreeMap::new(),
        }
    }

    /// A packet of a home's n-th port; the flow that it belongs to, new or not. None: refused.
    pub(crate) fn up(&mut self, shard: u32, home: u32, port: u16, now: Tick) -> Option<Flow> {
        let index = *self.shards.get(&shard)?;
        let home = Home { shard: index, outer: HOMES + home, gre_key: None };
        let inside = Endpoint::new(INSIDE, port);
        let protocol = Protocol::Udp;
        let hash = self.nat.outbound_hash(&home, inside, protocol);
        let packet = Outbound { home, inside, remote: SERVER, protocol, tcp_flags: 0 };
        let public = self.nat.outbound(hash, &packet, now).ok()?;
        let public = (public.address, public.port);
        Some(Flow { shard, outer: home.outer, inside_port: port, public })
    }

    /// All flows of a shard.
    pub(crate) fn flows(&mut self, shard: u32) -> BTreeSet<Flow> {
        let (mut cursor, mut all) = (PageCursor::default(), Vec::new());
        while self.nat.sessions(&mut cursor, usize::MAX, &SessionFilter::default(), &mut all) {}
        let flow = |view: &weir_nat::SessionView| Flow {
            shard,
            outer: view.outer,
            inside_port: view.inside.port,
            public: (view.public.address, view.public.port),
        };
        all.iter().filter(|view| view.shard.0 == shard).map(flow).collect()
    }

    pub(crate) fn serves(&self, shard: u32) -> bool {
        self.serving[&self.shards[&shard]]
    }

    pub(crate) fn misses(&self, shard: u32) -> Misses<Ipv4Addr> {
        self.misses[&self.shards[&shard]]
    }
}

impl DataPath for Site {
    fn nat(&mut self) -> &mut Nat {
        &mut self.nat
    }

    fn add_peer(&mut self, address: Ipv4Addr) -> bool {
        self.peers.insert(address);
        true
    }

    fn remove_peer(&mut self, address: Ipv4Addr) {
        self.peers.remove(&address);
    }

    fn add_shard(&mut self, setup: &ShardSetup, now_ms: u64) -> Result<ShardIndex, String> {
        let now = Tick((now_ms / 1000) as u32);
        let index = self.nat.add_shard(&setup.nat, 0, now).map_err(|error| error.to_string())?;
        self.shards.insert(setup.nat.id.0, index);
        Ok(index)
    }

    fn remove_shard(&mut self, shard: ShardIndex) {
        self.nat.begin_removal(shard);
        self.shards.retain(|_, index| *index != shard);
    }

    fn set_serving(&mut self, shard: ShardIndex, is_serving: bool) {
        self.serving.insert(shard, is_serving);
    }

    fn set_misses(&mut self, shard: ShardIndex, misses: Misses<Ipv4Addr>) {
        self.misses.insert(shard, misses);
    }

    fn set_all_public(&mut self, _public: Arc<AddressRanges>) {}
}
