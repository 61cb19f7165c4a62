//! Refuses a policy that cannot work, with words an operator can act on.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use thiserror::Error;
use weir_flow::OutOfMemory;
use weir_ids::ShardId;
use weir_rules::{GROUPS, OUTER_HANDLES};

use crate::config::{NatConfig, NatShardConfig};
use crate::ipv6::{Delegation, PREFIX_MAX, PREFIX_MIN};
use crate::ports::shard_capacity::blocks_usable;
use crate::replication::lane::LANES;
use crate::subscribers::allowance::HomeAllowance;
use crate::subscribers::subscriber::{BLOCK_LISTS_MAX, SUBSCRIBERS_TOTAL_MAX};

/// Maximum number of public addresses of all shards together: each takes 24 KiB of port bitmaps
/// once it is in use.
pub const PUBLIC_ADDRESSES_MAX: u64 = 65_536;
/// Maximum number of shards of one worker: a shard's index is a u16.
pub const SHARDS_MAX: usize = 65_535;
/// Maximum of `flows_max`: keeps record ids, with room for part-filled extents, inside a u32.
pub const FLOWS_MAX: u32 = 1 << 31;
/// Maximum of `flows_max` with replicas: two tables share the slots of a lane.
pub const FLOWS_MAX_REPLICATED: u32 = 1 << 30;
/// Maximum number of other workers that copy a shard: each has a lane in reserve, and the primary
/// needs some for itself.
pub const REPLICAS_MAX: u8 = 4;
pub const PORT_BLOCK_MIN: u16 = 64;
pub const PORT_BLOCK_MAX: u16 = 8192;

/// Least and greatest length of a shard's IPv6 prefix, bits.
const PREFIX6_MIN: u8 = 16;
const PREFIX6_MAX: u8 = 64;

/// Why a policy is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NatError {
    #[error("there is no shard: without one no home can be served")]
    NoShard,
    #[error("{count} shards: one worker serves {SHARDS_MAX} at most")]
    ShardsMax { count: usize },
    #[error("shard id {id} is used twice")]
    ShardTwice { id: ShardId },
    #[error("shard {id} is still being removed: add it again when it is gone")]
    ShardLeaving { id: ShardId },
    #[error("no room for shard {id}: {shards} shards are all that room was made for at the start")]
    NoRoomForShard { id: ShardId, shards: usize },
    #[error(
        "no room for shard {id}: it has {addresses} public addresses, and of those that room was made for at the start \
         {free} are left"
    )]
    NoRoomForAddresses { id: ShardId, addresses: u64, free: u64 },
    #[error(
        "no room for shard {id}: its `subscribers_max` is {subscribers}, and of those that room was made for at the \
         start {free} are left"
    )]
    NoRoomForSubscribers { id: ShardId, subscribers: u32, free: u64 },
    #[error(
        "`subscribers` and `subscribers6` are empty: without a prefix of the homes' addresses no home can be served"
    )]
    NoSubscribers,
    #[error(
        "`subscribers` has {net}, and homes have tunnels over IPv6: 240.0.0.0/4 is reserved (RFC 1112 section 4), and \
         stands for their addresses"
    )]
    ReservedSubscribers { net: Ipv4Net },
    #[error("`subscribers6` is for homes with tunnels, and homes are IPv6 prefixes without one")]
    TunnelsOfPrefixes,
    #[error("shard {id} has no public prefix")]
    NoPublicPrefix { id: ShardId },
    #[error(
        "public prefix {first} of shard {first_id} overlaps {second} of shard {second_id}: an address belongs to one shard"
    )]
    PublicOverlap { first: IpNet, first_id: ShardId, second: IpNet, second_id: ShardId },
    #[error(
        "the shards have {addresses} public addresses: {PUBLIC_ADDRESSES_MAX} are the limit with translation"
    )]
    PublicAddressesMax { addresses: u64 },
    #[error(
        "shard {id} has the IPv6 prefix {net}, and the worker has no IPv6: give it IPv6 addresses"
    )]
    NoIpv6 { id: ShardId, net: Ipv6Net },
    #[error(
        "IPv6 prefix {net} of shard {id}: the length must be from {PREFIX6_MIN} to {PREFIX6_MAX} bits"
    )]
    PrefixLength { id: ShardId, net: Ipv6Net },
    #[error(
        "homes are IPv6 prefixes of {home_length} bits: the length must be from {PREFIX_MIN} to {PREFIX_MAX}, and not \
         below that of {net}, the prefix of shard {id}"
    )]
    HomeLength { id: ShardId, home_length: u8, net: Ipv6Net },
    #[error("`subscribers_max` of shard {id} is 0: it could serve no home")]
    SubscribersMaxZero { id: ShardId },
    #[error(
        "`subscribers_max` of all shards is {total} together: {SUBSCRIBERS_TOTAL_MAX} are the limit"
    )]
    SubscribersTotal { total: u64 },
    #[error(
        "`ports_per_subscriber` is {quota} blocks and `subscribers_max` is {subscribers} together: \
         their product must not exceed {BLOCK_LISTS_MAX}"
    )]
    QuotaTimesSubscribers { quota: u32, subscribers: u64 },
    #[error(
        "`port_block` is {port_block}: it must be a power of two from {PORT_BLOCK_MIN} to {PORT_BLOCK_MAX}"
    )]
    PortBlock { port_block: u16 },
    #[error("`ports_per_subscriber` is 0: a home needs at least one port")]
    PortsPerSubscriberZero,
    #[error("`port_min` is 0: port 0 cannot be given to anyone")]
    PortMinZero,
    #[error("`flows_max` is {flows_max}: it must be from 1 to {FLOWS_MAX}")]
    FlowsMax { flows_max: u32 },
    #[error("`flows_max` is {flows_max}: with replicas it must not exceed {FLOWS_MAX_REPLICATED}")]
    FlowsMaxReplicated { flows_max: u32 },
    #[error("{replicas} replicas: {REPLICAS_MAX} are the limit")]
    ReplicasMax { replicas: u8 },
    #[error(
        "shard {id}: {homes} homes share a public address, but a reserve lane has {blocks} blocks of {port_block} ports \
         on it: after a failure {} of them would get no port until the lanes of the failed worker are taken over; \
         use a smaller `port_block`, more public addresses or a lower `subscribers_max`", homes - blocks
    )]
    ReserveLane { id: ShardId, homes: u64, blocks: u64, port_block: u16 },
    #[error("`{name}` is 0: no home could open a flow")]
    LimitZero { name: &'static str },
    #[error("`flows_per_subscriber` is 0: a home needs at least one flow")]
    FlowsPerSubscriberZero,
    #[error("timeout `{name}` is 0: every packet would be the first")]
    TimeoutZero { name: &'static str },
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Checks everything that does not need memory; the first problem found is returned.
pub(crate) fn check(config: &NatConfig) -> Result<(), NatError> {
    check_scalars(config)?;
    let shards: Vec<&NatShardConfig> = config.shards.iter().collect();
    check_shards(&shards)?;
    shards.iter().try_for_each(|shard| check_ipv6(config.delegation, shard))?;
    check_room(config)
}

/// Checks how shards go together: their numbers and their public prefixes.
pub(crate) fn check_shards(shards: &[&NatShardConfig]) -> Result<(), NatError> {
    let mut ids: Vec<ShardId> = shards.iter().map(|shard| shard.id).collect();
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(NatError::ShardTwice { id: pair[0] });
    }
    for shard in shards {
        if shard.public.is_empty() {
            return Err(NatError::NoPublicPrefix { id: shard.id });
        }
        if shard.subscribers_max == 0 {
            return Err(NatError::SubscribersMaxZero { id: shard.id });
        }
    }
    check_public_prefixes(shards)
}

/// Checks that the worker can serve the IPv6 prefixes of a shard.
pub(crate) fn check_ipv6(
    delegation: Option<Delegation>,
    shard: &NatShardConfig,
) -> Result<(), NatError> {
    let id = shard.id;
    for &net in &shard.public6 {
        if !(PREFIX6_MIN..=PREFIX6_MAX).contains(&net.prefix_len()) {
            return Err(NatError::PrefixLength { id, net });
        }
        match delegation {
            None => return Err(NatError::NoIpv6 { id, net }),
            Some(Delegation::Prefix { home_length })
                if !(PREFIX_MIN..=PREFIX_MAX).contains(&home_length)
                    || home_length < net.prefix_len() =>
            {
                return Err(NatError::HomeLength { id, home_length, net });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Checks that every home of a public address can have a block in each lane that a replica holds in
/// reserve. If not, some home of a full shard could open no flow between the failure of its primary
/// and the take-over of the primary's lanes. For `weir check`; `config` must have passed the checks
/// of [`Nat::new`](crate::Nat::new), which accepts such a configuration.
///
/// # Errors
/// [`NatError::ReserveLane`] for the first shard whose homes do not fit.
pub fn check_reserve_lanes(config: &NatConfig) -> Result<(), NatError> {
    if !config.enabled || config.replicas == 0 {
        return Ok(());
    }
    for shard in &config.shards {
        // Homes are paired with the address that has the most free blocks, so evenly.
        let homes = u64::from(shard.subscribers_max).div_ceil(shard.addresses());
        // Usable blocks follow each other, so the poorest lane has its share, rounded down.
        let blocks = u64::from(blocks_usable(config) / LANES);
        if homes > blocks {
            let (id, port_block) = (shard.id, config.port_block);
            return Err(NatError::ReserveLane { id, homes, blocks, port_block });
        }
    }
    Ok(())
}

fn check_scalars(config: &NatConfig) -> Result<(), NatError> {
    if config.flows_max == 0 || config.flows_max > FLOWS_MAX {
        return Err(NatError::FlowsMax { flows_max: config.flows_max });
    }
    if config.replicas > REPLICAS_MAX {
        return Err(NatError::ReplicasMax { replicas: config.replicas });
    }
    if config.replicas > 0 && config.flows_max > FLOWS_MAX_REPLICATED {
        return Err(NatError::FlowsMaxReplicated { flows_max: config.flows_max });
    }
    if config.new_homes_per_sec == Some(0) {
        return Err(NatError::LimitZero { name: "new_homes_per_sec" });
    }
    (0..GROUPS).try_for_each(|group| check_allowance(&config.allowance(group), config.enabled))?;
    if config.subscribers.is_empty() && config.subscribers6.is_empty() {
        return Err(NatError::NoSubscribers);
    }
    if !config.subscribers6.is_empty() && config.home_mask() != 0 {
        return Err(NatError::TunnelsOfPrefixes);
    }
    let reserved = Ipv4Net::new_assert(OUTER_HANDLES.into(), 4);
    if let Some(&net) = config.subscribers.iter().find(|net| {
        !config.subscribers6.is_empty() && (net.contains(&reserved) || reserved.contains(*net))
    }) {
        return Err(NatError::ReservedSubscribers { net });
    }
    let of_classes = config.classes.values().map(|class| class.timeouts);
    for timeouts in of_classes.chain([config.timeouts]) {
        if let Some((name, _)) = timeouts.named().into_iter().find(|(_, seconds)| *seconds == 0) {
            return Err(NatError::TimeoutZero { name });
        }
    }
    if !config.enabled {
        return Ok(());
    }
    let port_block = config.port_block;
    if !port_block.is_power_of_two() || !(PORT_BLOCK_MIN..=PORT_BLOCK_MAX).contains(&port_block) {
        return Err(NatError::PortBlock { port_block });
    }
    if config.port_min == 0 {
        return Err(NatError::PortMinZero);
    }
    Ok(())
}

fn check_allowance(allowance: &HomeAllowance, is_translated: bool) -> Result<(), NatError> {
    if allowance.flows == 0 {
        return Err(NatError::FlowsPerSubscriberZero);
    }
    let limits = [
        ("new_flows_per_sec", allowance.new_flows_per_sec),
        ("new_flows_burst", allowance.new_flows_burst.into()),
    ];
    if let Some(&(name, _)) = limits.iter().find(|(_, limit)| *limit == 0) {
        return Err(NatError::LimitZero { name });
    }
    if is_translated && allowance.ports == 0 {
        return Err(NatError::PortsPerSubscriberZero);
    }
    Ok(())
}

/// Checks the amounts of everything, with the room for shards that are added later.
fn check_room(config: &NatConfig) -> Result<(), NatError> {
    let count = config.shards_max();
    if count == 0 {
        return Err(NatError::NoShard);
    }
    if count > SHARDS_MAX {
        return Err(NatError::ShardsMax { count });
    }
    let total = config.subscribers_max();
    if total > SUBSCRIBERS_TOTAL_MAX {
        return Err(NatError::SubscribersTotal { total });
    }
    let addresses = config.public_addresses_max();
    if config.enabled && addresses > PUBLIC_ADDRESSES_MAX {
        return Err(NatError::PublicAddressesMax { addresses });
    }
    Ok(())
}

fn check_public_prefixes(shards: &[&NatShardConfig]) -> Result<(), NatError> {
    let of = |shard: &NatShardConfig| {
        let ipv4 = shard.public.iter().map(|&net| IpNet::V4(net));
        ipv4.chain(shard.public6.iter().map(|&net| IpNet::V6(net))).collect::<Vec<_>>()
    };
    let mut prefixes: Vec<(IpNet, ShardId)> =
        shards.iter().flat_map(|shard| of(shard).into_iter().map(|net| (net, shard.id))).collect();
    // Prefixes are nested or disjoint, so sorted by first address an overlap shows between
    // neighbours.
    prefixes.sort_unstable_by_key(|(net, _)| (net.network(), net.prefix_len()));
    for pair in prefixes.windows(2) {
        let ((first, first_id), (second, second_id)) = (pair[0], pair[1]);
        if first.contains(&second.network()) {
            return Err(NatError::PublicOverlap { first, first_id, second, second_id });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NatShardConfig;

    fn valid() -> NatConfig {
        NatConfig {
            subscribers: vec!["10.200.0.0/16".parse().unwrap()],
            shards: vec![shard(1, &["203.0.113.0/28"]), shard(2, &["198.51.100.0/28"])],
            ..NatConfig::default()
        }
    }

    fn shard(id: u32, public: &[&str]) -> NatShardConfig {
        NatShardConfig {
            id: ShardId(id),
            public: public.iter().map(|net| net.parse().unwrap()).collect(),
            public6: Vec::new(),
            subscribers_max: 256,
        }
    }

    /// Changes the valid configuration and returns the text of the refusal.
    fn refusal(change: impl FnOnce(&mut NatConfig)) -> String {
        let mut config = valid();
        change(&mut config);
        check(&config).unwrap_err().to_string()
    }

    #[test]
    fn the_default_with_homes_and_shards_is_valid() {
        check(&valid()).unwrap();
    }

    #[test]
    fn overlapping_prefixes_are_named() {
        let text =
            refusal(|config| config.shards[1].public.push("203.0.113.8/29".parse().unwrap()));
        assert!(
            text.contains("203.0.113.0/28 of shard 1")
                && text.contains("203.0.113.8/29 of shard 2"),
            "{text}"
        );
        let twice =
            refusal(|config| config.shards[0].public.push("203.0.113.0/28".parse().unwrap()));
        assert!(twice.contains("overlaps"), "{twice}");
    }

    #[test]
    fn ipv6_prefixes_that_cannot_be_served_are_refused() {
        let claim = Some(Delegation::Claim { hold_sec: 600 });
        let with = |delegation, nets: [&'static str; 2]| {
            move |config: &mut NatConfig| {
                config.delegation = delegation;
                for (shard, net) in config.shards.iter_mut().zip(nets) {
                    shard.public6 = vec![net.parse().unwrap()];
                }
            }
        };
        let disjoint = ["2001:db8:1::/48", "2001:db8:2::/48"];
        let text = refusal(with(None, disjoint));
        assert!(text.contains("2001:db8:1::/48") && text.contains("no IPv6"), "{text}");
        let text = refusal(with(claim, ["2001:db8::/32", "2001:db8:2::/48"]));
        assert!(text.contains("2001:db8::/32 of shard 1 overlaps 2001:db8:2::/48"), "{text}");
        let text = refusal(with(claim, ["2001:db8:1::/65", "2001:db8:2::/48"]));
        assert!(text.contains("2001:db8:1::/65 of shard 1"), "{text}");
        for home_length in [47, 65] {
            let prefix = Some(Delegation::Prefix { home_length });
            assert!(refusal(with(prefix, disjoint)).contains("homes are IPv6 prefixes"));
        }
        let text = refusal(with(
            Some(Delegation::Prefix { home_length: 56 }),
            ["2001:db8:1::/48", "2001:db8:2::/60"],
        ));
        assert!(text.contains("not below that of 2001:db8:2::/60"), "{text}");
        let mut config = valid();
        with(Some(Delegation::Prefix { home_length: 56 }), disjoint)(&mut config);
        check(&config).unwrap();
    }

    #[test]
    fn block_sizes_are_powers_of_two_with_a_block_per_lane() {
        for port_block in [0, 8, 32, 100, 16_384] {
            assert!(refusal(|config| config.port_block = port_block).contains("port_block"));
        }
        for port_block in [64, 256, 8192] {
            check(&NatConfig { port_block, ..valid() }).unwrap();
        }
    }

    #[test]
    fn zero_is_refused_wherever_no_home_could_be_served() {
        assert!(refusal(|config| config.subscribers.clear()).contains("subscribers"));
        assert!(refusal(|config| config.shards.clear()).contains("no shard"));
        assert!(refusal(|config| config.shards[0].public.clear()).contains("no public prefix"));
        assert!(refusal(|config| config.shards[0].subscribers_max = 0).contains("subscribers_max"));
        assert!(refusal(|config| config.shards[1].id = ShardId(1)).contains("used twice"));
        assert!(refusal(|config| config.flows_max = 0).contains("flows_max"));
        assert!(refusal(|config| config.flows_per_subscriber = 0).contains("flows_per_subscriber"));
        assert!(refusal(|config| config.new_flows_per_sec = 0).contains("new_flows_per_sec"));
        assert!(refusal(|config| config.new_flows_burst = 0).contains("new_flows_burst"));
        assert!(refusal(|config| config.new_homes_per_sec = Some(0)).contains("new_homes"));
        assert!(refusal(|config| config.ports_per_subscriber = 0).contains("ports_per_subscriber"));
        assert!(refusal(|config| config.port_min = 0).contains("port_min"));
        assert!(refusal(|config| config.timeouts.udp = 0).contains("`udp`"));
    }

    #[test]
    fn every_home_fits_in_each_reserve_lane() {
        // 256 homes on 16 addresses, 31 blocks of a lane on each.
        let fits = NatConfig { replicas: 1, ..valid() };
        check_reserve_lanes(&fits).unwrap();
        let mut tight = fits.clone();
        tight.shards[1].subscribers_max = 16 * 31;
        check_reserve_lanes(&tight).unwrap();
        tight.shards[1].subscribers_max += 1;
        let text = check_reserve_lanes(&tight).unwrap_err().to_string();
        assert!(text.contains("shard 2: 32 homes") && text.contains("31 blocks of 256"), "{text}");
        assert!(text.contains("1 of them"), "{text}");
        check_reserve_lanes(&NatConfig { port_block: 128, ..tight.clone() }).unwrap();
        check_reserve_lanes(&NatConfig { replicas: 0, ..tight.clone() }).unwrap();
        check_reserve_lanes(&NatConfig { enabled: false, ..tight }).unwrap();
    }

    #[test]
    fn replicas_are_limited() {
        assert!(refusal(|config| config.replicas = 5).contains("5 replicas"));
        let large = |config: &mut NatConfig| config.flows_max = FLOWS_MAX_REPLICATED + 1;
        assert!(check(&NatConfig { flows_max: FLOWS_MAX_REPLICATED + 1, ..valid() }).is_ok());
        let text = refusal(|config| {
            large(config);
            config.replicas = 1;
        });
        assert!(text.contains("with replicas"), "{text}");
    }

    #[test]
    fn large_pools_are_limited_only_with_translation() {
        let large =
            |config: &mut NatConfig| config.shards[0].public = vec!["10.0.0.0/8".parse().unwrap()];
        assert!(refusal(large).contains("public addresses"));
        let mut firewall = NatConfig { enabled: false, ..valid() };
        large(&mut firewall);
        check(&firewall).unwrap();
    }
}
