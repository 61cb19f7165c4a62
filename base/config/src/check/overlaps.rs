//! Each public prefix, of either family, belongs to one shard and has no other use; each home
//! belongs to one shard.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::check::interfaces;
use crate::cluster_types::ClusterFile;
use crate::findings::Findings;
use crate::policy_types::SourcePoolSettings;
use crate::read::address::overlap;
use crate::types::{Access, AccessSetting, Config};

/// A prefix, its key, and the shard or pool that holds it.
#[derive(Debug)]
struct NamedPrefix {
    key: String,
    net: IpNet,
    holder: usize,
}

/// All claims to prefixes. Prefixes with an error are left out.
#[derive(Debug, Default)]
struct Claims {
    public: Vec<NamedPrefix>,
    homes: Vec<NamedPrefix>,
    /// Addresses that weir answers for: tunnel endpoints, steering addresses.
    endpoints: Vec<NamedPrefix>,
    /// The workers' links.
    connected: Vec<NamedPrefix>,
    /// Prefixes of the homes' addresses.
    served: Vec<NamedPrefix>,
}

pub(crate) fn single(config: &Config, findings: &mut Findings<'_>) {
    let mut claims = Claims::default();
    for (index, shard) in config.shards.iter().enumerate() {
        let path = |name: &str| format!("shard[{index}].{name}");
        claims.public.extend(named(&path("public"), &shard.public, index, findings));
        claims.homes.extend(named(&path("subscribers"), &shard.subscribers, index, findings));
        claims.public.extend(named(&path("public6"), &shard.public6, index, findings));
        let endpoint = shard.endpoint.map(Ipv4Net::from);
        claims.endpoints.extend(named(&path("endpoint"), endpoint.as_slice(), index, findings));
        let endpoint6 = shard.endpoint6.map(Ipv6Net::from);
        claims.endpoints.extend(named(&path("endpoint6"), endpoint6.as_slice(), index, findings));
    }
    for (path, side) in interfaces(&config.workers) {
        let net = side.address.trunc();
        claims.connected.extend(named(&format!("{path}.address"), &[net], 0, findings));
        let net6 = side.ipv6.as_ref().map(|it| it.address.trunc());
        claims.connected.extend(named(&format!("{path}.address6"), net6.as_slice(), 0, findings));
    }
    claims.served = served(&config.access, findings);
    check(&claims, config.nat.enabled, findings);
}

pub(crate) fn cluster(file: &ClusterFile, findings: &mut Findings<'_>) {
    let mut claims = Claims::default();
    for (index, pool) in file.pools.iter().enumerate() {
        let path = |name: &str| format!("pool[{index}].{name}");
        let (name, public) = public(file, &pool.public, &pool.subscribers);
        claims.public.extend(named(&path(name), public, index, findings));
        claims.homes.extend(named(&path("subscribers"), &pool.subscribers, index, findings));
        claims.endpoints.extend(named(&path("endpoints"), &pool.endpoints, index, findings));
        claims.endpoints.extend(named(&path("endpoints6"), &pool.endpoints6, index, findings));
        claims.endpoints.extend(named(&path("steer"), &pool.steer, index, findings));
        claims.public.extend(named(&path("public6"), &pool.public6, index, findings));
        claims.endpoints.extend(named(&path("steer6"), &pool.steer6, index, findings));
    }
    for (index, shard) in file.shards.iter().enumerate() {
        let holder = file.pools.len() + index;
        let path = |name: &str| format!("shard[{index}].{name}");
        let (name, public) = public(file, &shard.public, &shard.subscribers);
        claims.public.extend(named(&path(name), public, holder, findings));
        claims.homes.extend(named(&path("subscribers"), &shard.subscribers, holder, findings));
        claims.public.extend(named(&path("public6"), &shard.public6, holder, findings));
        for (name, address) in [
            ("endpoint", shard.endpoint.map(IpAddr::from)),
            ("endpoint6", shard.endpoint6.map(IpAddr::from)),
            ("steer", shard.steer.map(IpAddr::from)),
            ("steer6", shard.steer6.map(IpAddr::from)),
        ] {
            let net = address.map(IpNet::from);
            claims.endpoints.extend(named(&path(name), net.as_slice(), holder, findings));
        }
    }
    claims.served = served(&file.access, findings);
    check(&claims, file.nat.enabled, findings);
    refuse_shared(&claims.endpoints, "an address belongs to one shard", findings);
    refuse_served(&claims, file.access.mode, findings);
}

/// Returns the prefixes of the homes' addresses, of both families.
fn served(access: &Access, findings: &Findings<'_>) -> Vec<NamedPrefix> {
    let mut served = named("access.subscribers", &access.subscribers, 0, findings);
    served.extend(named("access.subscribers6", &access.subscribers6, 0, findings));
    served
}

/// Reports source pools that have addresses in common.
pub(crate) fn source_pools(pools: &[SourcePoolSettings], findings: &mut Findings<'_>) {
    let mut claims = Vec::new();
    for (index, pool) in pools.iter().enumerate() {
        let key = format!("source_pool[{index}].public");
        if findings.is_whole(&key) {
            claims.extend(named(&key, &pool.public, index, findings));
        }
    }
    refuse_shared(&claims, "a public address is in one source pool at most", findings);
}

/// Returns the public prefixes and their key: without translation the homes' own, if no others are
/// given.
fn public<'f>(
    file: &ClusterFile,
    public: &'f [Ipv4Net],
    subscribers: &'f [Ipv4Net],
) -> (&'static str, &'f [Ipv4Net]) {
    let are_own = public.is_empty() && !file.nat.enabled;
    if are_own { ("subscribers", subscribers) } else { ("public", public) }
}

/// Returns the prefixes at `key` that have no error.
fn named<N: Copy + Into<IpNet>>(
    key: &str,
    nets: &[N],
    holder: usize,
    findings: &Findings<'_>,
) -> Vec<NamedPrefix> {
    let elements = nets.iter().enumerate();
    elements
        .map(|(position, net)| NamedPrefix {
            key: findings.element(key, position),
            net: (*net).into(),
            holder,
        })
        .filter(|named| findings.is_good(&named.key))
        .collect()
}

fn check(claims: &Claims, is_translated: bool, findings: &mut Findings<'_>) {
    refuse_shared(&claims.public, "a prefix belongs to one shard", findings);
    refuse_shared(&claims.homes, "a prefix belongs to one shard", findings);
    for public in &claims.public {
        if let Some(what) = occupied(claims, is_translated, public) {
            let fix = "public prefixes are routed to the worker and used by nothing else";
            findings.error(&public.key, format!("{} overlaps {what}", public.net), fix);
        }
    }
    endpoints(claims, findings);
}

/// Reports prefixes that two holders have. In order of addresses a prefix can only overlap the one
/// before it that reaches furthest, so thousands of shards are checked quickly.
fn refuse_shared(prefixes: &[NamedPrefix], fix: &str, findings: &mut Findings<'_>) {
    let mut sorted: Vec<&NamedPrefix> = prefixes.iter().collect();
    sorted.sort_by_key(|named| (named.net.network(), named.net.prefix_len(), named.holder));
    let mut reach: Option<&NamedPrefix> = None;
    for named in sorted {
        match reach.filter(|before| before.net.broadcast() >= named.net.network()) {
            Some(before) => {
                let (first, second) =
                    if before.holder <= named.holder { (before, named) } else { (named, before) };
                if first.holder != second.holder {
                    let message = format!(
                        "{} overlaps {} of {}",
                        words(second.net),
                        words(first.net),
                        first.key
                    );
                    findings.error(&second.key, message, fix);
                }
            }
            None => reach = Some(named),
        }
    }
}

/// Describes the other use of a public prefix, if there is one. Without translation a home's inside
/// address is its public address, but not that of a tunnel over IPv6.
fn occupied(claims: &Claims, is_translated: bool, public: &NamedPrefix) -> Option<String> {
    let uses = |named: &&NamedPrefix| overlap(named.net, public.net);
    if let Some(link) = claims.connected.iter().find(uses) {
        return Some(format!("the connected prefix {} ({})", link.net, link.key));
    }
    let is_other = |homes: &&NamedPrefix| is_translated || homes.net.addr().is_ipv6();
    let homes = claims.served.iter().filter(is_other).find(uses)?;
    Some(format!("the homes' {} ({})", homes.net, homes.key))
}

/// Reports endpoints inside a public prefix, which would be announced to both sides.
fn endpoints(claims: &Claims, findings: &mut Findings<'_>) {
    let mut sorted: Vec<&NamedPrefix> = claims.public.iter().collect();
    sorted.sort_by_key(|named| named.net.network());
    for endpoint in &claims.endpoints {
        let last: IpAddr = endpoint.net.broadcast();
        let after = sorted.partition_point(|named| named.net.network() <= last);
        let before = after.checked_sub(1).map(|position| sorted[position]);
        if let Some(public) = before.filter(|public| overlap(public.net, endpoint.net)) {
            let message = format!(
                "{} {} the public prefix {} ({})",
                words(endpoint.net),
                if public.net.contains(&endpoint.net) { "lies in" } else { "overlaps" },
                public.net,
                public.key
            );
            findings.error(
                &endpoint.key,
                message,
                "an endpoint is an address of the access network",
            );
        }
    }
}

/// Reports addresses that weir answers for and that are inside the homes' prefixes.
fn refuse_served(claims: &Claims, mode: AccessSetting, findings: &mut Findings<'_>) {
    let what = match mode {
        AccessSetting::Gre => "a home would be the end of its own tunnel",
        AccessSetting::Plain => "a home would be the way to itself",
    };
    for endpoint in &claims.endpoints {
        let homes = claims.served.iter().find(|homes| overlap(homes.net, endpoint.net));
        if let Some(homes) = homes.filter(|_| findings.is_good(&endpoint.key)) {
            let message = format!(
                "{} overlaps the homes' {} ({})",
                words(endpoint.net),
                homes.net,
                homes.key
            );
            findings.error(&endpoint.key, message, what);
        }
    }
}

/// Formats a prefix; a single address without its length.
fn words(net: IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}
