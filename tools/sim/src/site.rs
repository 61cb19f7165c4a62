//! Addresses and MACs of workers, switches, homes and servers, and of the shards.
//!
//! ```text
//!   homes 10.200.shard.home == GRE ==> 10.100.0.shard
//!   access 10.1.node.worker | worker | internet 10.2.node.worker         servers 198.51.100.x
//!                       2001:db8:ff01::node:worker           2001:db8:ff00::x
//!   203.0.113.0/29, .8/29, ...: public addresses of shard 1, 2, ...
//!   2001:db8:shard::/48: IPv6 addresses of the homes of a shard, two /64 for each home
//! ```

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use weir_config::{Desired, Ipv6Settings, PolicySettings, PublicSettings};
use weir_engine::{
    AccessMode, EngineConfig, FragmentLimits, LiveEngineSettings, LiveSettings, MssClamp,
    ResourceLimits, Side, Side6Config, SideConfig,
};
use weir_map::LANES;
use weir_nat::{
    ActiveRules, CLASSES, ClassSettings, Delegation, FlowClass, HomePrefixes, LiveNatSettings,
    NatConfig, ShardRoom, Timeouts, home_addresses,
};
use weir_node_core::FlowSettings;
use weir_wire::ethernet::Mac;

use crate::dice::Dice;
use crate::options::Options;

/// UDP port of replication.
pub(crate) const REPLICATION_PORT: u16 = 7473;
/// Number of public addresses of a shard, a power of two.
const ADDRESSES: u32 = 8;
/// Most shards for which there are public addresses.
const SHARDS_MAX: u32 = 256 / ADDRESSES;
const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
/// Stands for the node in the address and the MAC of a switch.
const SWITCH: u8 = 255;
/// Size of a port block: ports that a home gets at once.
const PORT_BLOCK: u16 = 64;
/// The servers that homes call: so many addresses from this one on.
pub(crate) const SERVERS: u32 = 0xc633_6401;
pub(crate) const SERVERS_COUNT: u64 = 4;
/// The server whose packets rules send to [`GARDEN`].
pub(crate) const REDIRECTED: u32 = SERVERS;
/// The destination of redirected packets.
pub(crate) const GARDEN: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 150);
/// The server whose flows have addresses of a source pool.
pub(crate) const POOLED: u32 = SERVERS + 1;
/// A server whose flows no rule redirects or gives a source pool.
pub(crate) const PLAIN: u32 = SERVERS + 2;
/// An address that all rules refuse.
pub(crate) const FORBIDDEN: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 200);
/// The servers of IPv6: [`SERVERS_COUNT`] from this one on.
pub(crate) const SERVERS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff00, 0, 0, 0, 0, 1);
/// An IPv6 address that all rules refuse.
pub(crate) const FORBIDDEN6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff00, 0, 0, 0, 0, 200);
/// A stranger with IPv6.
pub(crate) const STRANGER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff00, 0, 0, 0, 0, 0x666);
/// Length of the IPv6 prefix that is all of a shard's homes, of the one that is a home's, and of
/// the one that a home claims.
const SHARD_LENGTH6: u8 = 48;
const HOME_LENGTH6: u8 = 63;
const CLAIM_LENGTH6: u8 = 64;
/// Time for which a home keeps its prefix after its last flow.
const CLAIM_HOLD_SEC: u32 = 5;
/// The inside endpoint of the port forward.
pub(crate) const FORWARD_INSIDE: SocketAddrV4 =
    SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 80), 443);
/// Most subscribers of a shard.
pub(crate) const SUBSCRIBERS_MAX: u32 = 32;

/// A worker's position in the cluster. It is the same for all incarnations of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WorkerPosition {
    pub(crate) node: usize,
    pub(crate) worker: usize,
}

/// A device with a MAC on one of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Station {
    Worker(WorkerPosition),
    Switch,
}

pub(crate) fn address(position: WorkerPosition, side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + side as u8, position.node as u8, 1 + position.worker as u8)
}

/// Returns the IPv6 address of a worker on the internet side.
pub(crate) fn address6(position: WorkerPosition) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 0, 0, 0, position.node as u16, 1 + position.worker as u16)
}

/// Returns the IPv6 address of the internet switch.
pub(crate) fn gateway6() -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 0, 0, 0, SWITCH.into(), 1)
}

pub(crate) fn replication(position: WorkerPosition) -> SocketAddrV4 {
    SocketAddrV4::new(address(position, Side::Access), REPLICATION_PORT)
}

pub(crate) fn gateway(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + side as u8, SWITCH, 1)
}

pub(crate) fn mac(station: Station, side: Side) -> Mac {
    let [node, worker] = match station {
        Station::Worker(position) => [position.node as u8, position.worker as u8],
        Station::Switch => [SWITCH, 0],
    };
    Mac([2, 0, 0, side as u8, node, worker])
}

/// Returns the station that has this MAC.
pub(crate) fn station(mac: Mac) -> Station {
    let [.., node, worker] = mac.0;
    match node {
        SWITCH => Station::Switch,
        _ => Station::Worker(WorkerPosition { node: node.into(), worker: worker.into() }),
    }
}

/// Returns the worker with this address on a side.
pub(crate) fn worker_at(address: Ipv4Addr) -> Option<WorkerPosition> {
    let [10, 1 | 2, node, worker] = address.octets() else { return None };
    let is_worker = node != SWITCH && worker > 0;
    is_worker.then(|| WorkerPosition { node: node.into(), worker: usize::from(worker) - 1 })
}

/// Returns the tunnel endpoint of a shard. Shards are numbered from 1.
pub(crate) fn endpoint(shard: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 100, 0, shard as u8)
}

pub(crate) fn public(shard: u32) -> Ipv4Net {
    let first = Ipv4Addr::from_bits(PUBLIC.to_bits() + (shard - 1) * ADDRESSES);
    Ipv4Net::new_assert(first, 32 - ADDRESSES.ilog2() as u8)
}

/// Returns the IPv6 prefix of a shard's homes.
pub(crate) fn public6(shard: u32) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, shard as u16, 0, 0, 0, 0, 0), SHARD_LENGTH6)
}

/// Returns the prefix of a public address that the internet switch has routes for.
pub(crate) fn public_prefix_of(address: IpAddr) -> IpNet {
    let length = match address {
        IpAddr::V4(_) => 32 - ADDRESSES.ilog2() as u8,
        IpAddr::V6(_) => SHARD_LENGTH6,
    };
    IpNet::new_assert(address, length).trunc()
}

/// Returns the /64 of an IPv6 address, the unit in which homes claim their addresses.
pub(crate) fn claimed_prefix_of(address: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::new_assert(address, CLAIM_LENGTH6).trunc()
}

/// Returns the addresses that each switch is asked for a shard's next hop: the tunnel endpoint on
/// the access side, the prefixes of both families on the other.
pub(crate) fn routed(shard: u32) -> [(Side, IpAddr); 3] {
    [
        (Side::Access, endpoint(shard).into()),
        (Side::Internet, public(shard).addr().into()),
        (Side::Internet, public6(shard).addr().into()),
    ]
}

/// Returns the lane that a public port belongs to: blocks are distributed in turn.
pub(crate) fn lane(port: u16) -> usize {
    usize::from(port / PORT_BLOCK) % LANES
}

pub(crate) fn home(shard: u32, home: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 200, shard as u8, 1 + home as u8)
}

/// Whether a home speaks IPv6 beside IPv4: every second one does, if any does.
pub(crate) fn has_ipv6(options: &Options, shard: u32, home: u32) -> bool {
    options.has_ipv6 && (shard + home) % 2 == 1
}

/// Returns the IPv6 prefix of a home, which contains two of those that it claims.
fn home_prefix6(shard: u32, home: u32) -> Ipv6Net {
    let first = Ipv6Addr::new(0x2001, 0xdb8, shard as u16, 2 * home as u16, 0, 0, 0, 0);
    Ipv6Net::new_assert(first, HOME_LENGTH6)
}

/// Returns the address of a station of a home, in one of the home's two networks.
pub(crate) fn inside6(shard: u32, home: u32, station: u16) -> Ipv6Addr {
    let network = u128::from(station & 1) << 64;
    Ipv6Addr::from_bits(home_prefix6(shard, home).addr().to_bits() | network | 0x10)
}

/// Returns the number of the home with this outer address in its shard.
pub(crate) fn number(home: Ipv4Addr) -> u32 {
    u32::from(home.octets()[3]) - 1
}

pub(crate) fn is_home(address: Ipv4Addr) -> bool {
    address.octets()[..2] == [10, 200]
}

/// Returns how long a port rests if sessions end after `idle_sec`.
pub(crate) fn quarantine_sec(idle_sec: u32) -> u32 {
    idle_sec / 3
}

pub(crate) fn timeouts(options: &Options) -> Timeouts {
    let Some(seconds) = options.idle_sec else { return Timeouts::default() };
    Timeouts {
        tcp_syn_sent: seconds,
        tcp_syn_received: seconds,
        tcp_established: seconds,
        tcp_fin_wait: seconds,
        tcp_close_wait: seconds,
        tcp_last_ack: seconds,
        tcp_time_wait: seconds,
        tcp_close: seconds,
        tcp_reset: seconds,
        udp: seconds,
        udp_stream: seconds,
        icmp: seconds,
    }
}

/// Returns the configuration of a worker's engine, without shards.
pub(crate) fn engine_config(
    options: &Options,
    position: WorkerPosition,
    seed: [u64; 4],
) -> EngineConfig {
    let internet6 = Side6Config {
        address: Ipv6Net::new_assert(address6(position), 64),
        gateways: vec![gateway6()],
    };
    let side = |side: Side| SideConfig {
        mac: mac(Station::Worker(position), side),
        address: Ipv4Net::new_assert(address(position, side), 16),
        gateways: vec![gateway(side)],
        gateway_macs: Vec::new(),
        ipv6: (side == Side::Internet).then(|| internet6.clone()),
        vlan: None,
        mtu: 1500,
    };
    let (shards, nat) = (options.shards, NatConfig::default());
    EngineConfig {
        mode: AccessMode::Gre,
        access: side(Side::Access),
        internet: side(Side::Internet),
        mss_clamp: MssClamp::Auto,
        shards: Vec::new(),
        nat: NatConfig {
            flows_max: 16_384,
            port_block: PORT_BLOCK,
            subscribers: vec![Ipv4Net::new_assert(Ipv4Addr::new(10, 200, 0, 0), 16)],
            room: ShardRoom {
                shards: shards as u16,
                public_addresses: ADDRESSES * shards,
                subscribers: SUBSCRIBERS_MAX * shards,
            },
            replicas: options.replicas.max(1),
            delegation: Some(match options.is_delegated && options.has_ipv6 {
                true => Delegation::Static,
                false => Delegation::Claim { hold_sec: CLAIM_HOLD_SEC },
            }),
            seed,
            timeouts: timeouts(options),
            quarantine_sec: options.idle_sec.map_or(nat.quarantine_sec, quarantine_sec),
            ..nat
        },
        fragments: FragmentLimits { datagrams_max: 64, held_max: 64, ..FragmentLimits::default() },
        limits: ResourceLimits::default(),
        forward_source_routes: false,
        peers_max: weir_worker::PEERS_MAX,
        replication_port: Some(REPLICATION_PORT),
    }
}

/// Returns rules, classes and static mappings for the cluster's file. All of them refuse
/// [`FORBIDDEN`], [`FORBIDDEN6`] and nothing that homes otherwise send, so that a rule with rematch
/// ends no flow; most give the flows to one server a class, and odd ones have a port forward. Half
/// of them have a source pool, or all with `has_pool`, and half of them redirect the flows to one
/// server.
pub(crate) fn policy(number: u64, has_pool: bool) -> String {
    let dice = &mut Dice::new(number);
    let mut text = String::new();
    if number % 2 == 1 {
        let (home, public) = (forward_home(), forward_public());
        let _ = writeln!(text, "[public]\nstatic = [\"{home} tcp {FORWARD_INSIDE} {public}\"]");
    }
    for rule in 0..dice.below(20) {
        let (third, action) = (dice.below(256), *dice.pick(&["accept", "drop", "reject"]));
        let _ = writeln!(
            text,
            "[[rule]]\nname = \"r{rule}\"\nremote = \"192.0.{third}.0/24\"\naction = \"{action}\""
        );
    }
    let (action, rematch) = (*dice.pick(&["drop", "reject"]), dice.below(2) == 0);
    let _ = writeln!(
        text,
        "[[rule]]\nname = \"forbidden\"\nfrom = \"any\"\nremote = \"{FORBIDDEN}\"\naction = \"{action}\"\nrematch = {rematch}"
    );
    let _ = writeln!(
        text,
        "[[rule]]\nname = \"forbidden6\"\nfrom = \"any\"\nremote = \"{FORBIDDEN6}\"\naction = \"{action}\"\nrematch = {rematch}"
    );
    if dice.below(2) == 0 {
        let _ = writeln!(
            text,
            "[[rule]]\nname = \"garden\"\nremote = \"{}\"\naction = \"redirect\"\nto = \"{GARDEN}\"",
            Ipv4Addr::from_bits(REDIRECTED)
        );
    }
    if dice.below(2) == 0 || has_pool {
        let remote = Ipv4Addr::from_bits(POOLED);
        let pool = |shard: u32| format!("{}/32", public(shard).broadcast());
        let _ = writeln!(
            text,
            "[[source_pool]]\nname = \"pool\"\npublic = {:?}\n\
             [[rule]]\nname = \"pooled\"\nremote = \"{remote}\"\naction = \"accept\"\nsource_pool = \"pool\"",
            (1..=SHARDS_MAX).map(pool).collect::<Vec<_>>()
        );
    }
    let (class, dscp) = (dice.below(CLASSES as u64), dice.below(64));
    if class > 0 {
        let server = Ipv4Addr::from_bits(SERVERS + dice.below(SERVERS_COUNT) as u32);
        let _ = writeln!(
            text,
            "[[class]]\nid = {class}\nname = \"marked\"\ndscp = {dscp}\n\
             [[rule]]\nname = \"marked\"\nremote = \"{server}\"\naction = \"accept\"\nclass = \"marked\""
        );
    }
    text
}

/// Returns the part of the cluster's file about the IPv6 prefixes of homes.
pub(crate) fn delegations(options: &Options) -> String {
    if !options.is_delegated || !options.has_ipv6 {
        return format!("[ipv6]\ndelegation = \"claim\"\nclaim_hold_sec = {CLAIM_HOLD_SEC}\n");
    }
    let mut text = "[ipv6]\ndelegation = \"static\"\n".to_owned();
    for shard in 1..=options.shards {
        for number in (0..options.homes_per_shard).filter(|home| has_ipv6(options, shard, *home)) {
            let (home, prefix) = (home(shard, number), home_prefix6(shard, number));
            let _ = writeln!(text, "[[delegation]]\nhome = \"{home}\"\nprefix = \"{prefix}\"");
        }
    }
    text
}

/// Whether a public address is one of the source pool: the last one of its shard.
pub(crate) fn is_of_pool(public: u32) -> bool {
    public % ADDRESSES == ADDRESSES - 1
}

/// Returns the home with the port forward, which sends nothing.
pub(crate) fn forward_home() -> Ipv4Addr {
    home(1, 200)
}

/// Returns the public endpoint of the port forward.
pub(crate) fn forward_public() -> SocketAddrV4 {
    SocketAddrV4::new(PUBLIC, 8443)
}

/// Returns generation `number` of a worker's settings, as the cluster's file wants them.
pub(crate) fn live_settings(
    options: &Options,
    position: WorkerPosition,
    number: u64,
    desired: &Desired,
    flows: &FlowSettings,
) -> Box<LiveSettings> {
    let mut config = engine_config(options, position, [0; 4]);
    config.nat.quarantine_sec = desired.nat.quarantine_sec;
    let (classes, timeouts) = (&desired.policy.classes, config.nat.timeouts);
    config.nat.classes = classes
        .iter()
        .filter_map(|class| {
            Some((FlowClass::new(class.id)?, ClassSettings { timeouts, dscp: class.dscp }))
        })
        .collect();
    Box::new(LiveSettings {
        number,
        engine: LiveEngineSettings::of(&config),
        nat: LiveNatSettings::of(&config.nat).expect("the tables were built for them"),
        homes: home_addresses(&desired.access.subscribers),
        homes6: HomePrefixes::new(&desired.access.subscribers6),
        rules: Box::new(ActiveRules::new(flows.rules.clone())),
        statics: flows.statics.clone(),
        delegations: flows.delegations.clone(),
        out_of_service: Box::default(),
    })
}

/// The rules and static mappings of the file that was compiled last.
#[derive(Debug, Default)]
pub(crate) struct CompiledPolicy(
    Option<(PolicySettings, PublicSettings, Ipv6Settings, FlowSettings)>,
);

impl CompiledPolicy {
    pub(crate) fn of(&mut self, desired: &Desired) -> &FlowSettings {
        let Desired { policy, public, ipv6, .. } = desired;
        self.0.take_if(|(of_rules, of_public, of_ipv6, _)| {
            (&*of_rules, &*of_public, &*of_ipv6) != (policy, public, ipv6)
        });
        let (.., flows) = self.0.get_or_insert_with(|| {
            let flows = FlowSettings::new(policy, public, ipv6).expect("the policy compiles");
            (policy.clone(), public.clone(), ipv6.clone(), flows)
        });
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_station_is_found_by_address_and_by_mac() {
        let position = WorkerPosition { node: 3, worker: 1 };
        for side in Side::ALL {
            assert_eq!(worker_at(address(position, side)), Some(position));
            assert_eq!(station(mac(Station::Worker(position), side)), Station::Worker(position));
            assert_eq!(station(mac(Station::Switch, side)), Station::Switch);
            assert_eq!(worker_at(gateway(side)), None);
        }
        assert_eq!(worker_at(home(1, 0)), None);
        assert!(is_home(home(2, 3)) && !is_home(endpoint(2)));
    }

    #[test]
    fn shards_have_prefixes_of_their_own() {
        assert_eq!(public(1).to_string(), "203.0.113.0/29");
        assert_eq!(public(2).to_string(), "203.0.113.8/29");
        assert_eq!(public_prefix_of(Ipv4Addr::new(203, 0, 113, 14).into()), public(2).into());
        assert_eq!(public_prefix_of(inside6(2, 3, 1).into()), public6(2).into());
        assert_ne!(claimed_prefix_of(inside6(2, 3, 1)), claimed_prefix_of(inside6(2, 3, 0)));
    }
}
