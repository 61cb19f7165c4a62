//! Public prefixes belong to one shard and are nothing else; a home belongs to one shard.

use ipnet::Ipv4Net;

use crate::check::interfaces;
use crate::findings::Findings;
use crate::read::address::overlap;
use crate::types::{Config, Shard};

/// A prefix, the key it stands at, and the shard it belongs to.
#[derive(Debug)]
struct Named {
    key: String,
    net: Ipv4Net,
    shard: usize,
}

pub(crate) fn check(config: &Config, findings: &mut Findings<'_>) {
    let public = prefixes(config, "public", |shard| &shard.public, findings);
    let homes = prefixes(config, "subscribers", |shard| &shard.subscribers, findings);
    refuse_shared(&public, findings);
    refuse_shared(&homes, findings);

    for named in &public {
        if let Some(what) = occupied(config, named, findings) {
            let fix = "public prefixes are routed to the worker and used by nothing else";
            findings.error(&named.key, format!("{} overlaps {what}", named.net), fix);
        }
    }
    endpoints(config, &public, findings);
}

/// The prefixes without an error of all shards.
fn prefixes(
    config: &Config,
    name: &str,
    of: impl Fn(&Shard) -> &[Ipv4Net],
    findings: &Findings<'_>,
) -> Vec<Named> {
    let mut all = Vec::new();
    for (shard, nets) in config.shards.iter().map(of).enumerate() {
        for (position, net) in nets.iter().enumerate() {
            let key = findings.element(&format!("shard[{shard}].{name}"), position);
            if findings.is_good(&key) {
                all.push(Named { key, net: *net, shard });
            }
        }
    }
    all
}

/// Reports prefixes that two shards have. In order of address a prefix can only overlap the widest-reaching one before
/// it, so thousands of shards are no burden.
fn refuse_shared(prefixes: &[Named], findings: &mut Findings<'_>) {
    let mut sorted: Vec<&Named> = prefixes.iter().collect();
    sorted.sort_by_key(|named| (named.net.network(), named.net.prefix_len(), named.shard));
    let mut reach: Option<&Named> = None;
    for named in sorted {
        match reach.filter(|before| before.net.broadcast() >= named.net.network()) {
            Some(before) => {
                let (first, second) =
                    if before.shard <= named.shard { (before, named) } else { (named, before) };
                if first.shard != second.shard {
                    let message = format!("{} overlaps {} of {}", second.net, first.net, first.key);
                    findings.error(&second.key, message, "a prefix belongs to one shard");
                }
            }
            None => reach = Some(named),
        }
    }
}

/// What else uses a public prefix.
fn occupied(config: &Config, public: &Named, findings: &Findings<'_>) -> Option<String> {
    for (path, side) in interfaces(config) {
        let key = format!("{path}.address");
        if findings.is_good(&key) && overlap(side.address.trunc(), public.net) {
            return Some(format!("the connected prefix {} ({key})", side.address.trunc()));
        }
    }
    // Without translation a home's inside address is its public one.
    let served = config.access.subscribers.iter().enumerate();
    for (position, net) in served.filter(|_| config.nat.enabled) {
        let key = findings.element("access.subscribers", position);
        if findings.is_good(&key) && overlap(*net, public.net) {
            return Some(format!("the homes' {net} ({key})"));
        }
    }
    None
}

/// An endpoint inside a public prefix would be announced to both sides.
fn endpoints(config: &Config, public: &[Named], findings: &mut Findings<'_>) {
    let mut sorted: Vec<&Named> = public.iter().collect();
    sorted.sort_by_key(|named| named.net.network());
    for (index, shard) in config.shards.iter().enumerate() {
        let key = format!("shard[{index}].endpoint");
        let Some(endpoint) = shard.endpoint.filter(|_| findings.is_good(&key)) else { continue };
        let after = sorted.partition_point(|named| named.net.network() <= endpoint);
        let before = after.checked_sub(1).map(|position| sorted[position]);
        if let Some(public) = before.filter(|public| public.net.contains(&endpoint)) {
            let message =
                format!("{endpoint} lies in the public prefix {} ({})", public.net, public.key);
            findings.error(&key, message, "an endpoint is an address of the access network");
        }
    }
}
