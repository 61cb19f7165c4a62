//! Static mappings and addresses out of service: homes and public addresses that exist, and
//! mappings that exclude each other.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

use crate::check::delegations::unknown_home;
use crate::findings::Findings;
use crate::public_types::{PublicSettings, StaticProtocol, StaticSettings};
use crate::read::address::overlap;
use crate::types::{Access, AccessSetting, GreKey, NatSettings};

/// What static mappings and addresses out of service must fit.
#[derive(Clone, Copy, Debug)]
pub struct PublicContext<'c> {
    pub access: &'c Access,
    /// Sorted public prefixes of all shards and pools.
    pub public: &'c [Ipv4Net],
}

impl PublicContext<'_> {
    fn has(&self, address: Ipv4Addr) -> bool {
        let behind = self.public.partition_point(|net| net.network() <= address);
        behind.checked_sub(1).is_some_and(|at| self.public[at].contains(&address))
    }
}

pub(crate) fn check(
    settings: &PublicSettings,
    nat: &NatSettings,
    context: &PublicContext<'_>,
    findings: &mut Findings<'_>,
) {
    let keys =
        ["static", "static_file", "drain", "quarantine"].map(|name| format!("public.{name}"));
    if !nat.enabled {
        for key in keys {
            if !findings.is_given(&key) {
                continue;
            }
            let fix = "remove it, or write nat.enabled = true";
            findings.error(&key, "there are no public addresses without translation", fix);
        }
        return;
    }
    let whole = ["public.static", "access.subscribers", "access.subscribers6"];
    if whole.iter().all(|key| findings.is_whole(key)) {
        for (at, message, fix) in static_errors(&settings.statics, context) {
            findings.error(&format!("public.static[{at}]"), message, fix);
        }
    }
    for (name, nets) in [("drain", &settings.drain), ("quarantine", &settings.quarantine)] {
        let key = format!("public.{name}");
        if !findings.is_whole(&key) {
            continue;
        }
        for (at, net) in nets.iter().enumerate() {
            if !context.public.iter().any(|public| overlap(*public, *net)) {
                let message = format!("{net} is in no shard's public prefixes");
                findings.warning(&findings.element(&key, at), message, "remove it");
            }
        }
    }
    for net in &settings.quarantine {
        if let Some(other) = settings.drain.iter().find(|other| overlap(**other, *net)) {
            let message = format!("{net} overlaps {other} in public.drain");
            findings.error("public.quarantine", message, "remove one");
        }
    }
}

/// Returns what is wrong with static mappings: position, message, fix.
pub(crate) fn static_errors(
    mappings: &[StaticSettings],
    context: &PublicContext<'_>,
) -> Vec<(usize, String, &'static str)> {
    let mut errors = Vec::new();
    // Endpoints and addresses that are given, each with the mapping that has it.
    let mut public: HashMap<(Ipv4Addr, u16, StaticProtocol), usize> = HashMap::new();
    let mut inside: HashMap<_, usize> = HashMap::new();
    let mut addresses: HashMap<Ipv4Addr, (bool, usize)> = HashMap::new();
    for (at, it) in mappings.iter().enumerate() {
        if let Some((message, fix)) = error_alone(it, context) {
            errors.push((at, message, fix));
            continue;
        }
        let is_whole = it.protocol == StaticProtocol::All;
        let holder = match addresses.get(&it.public) {
            Some(&(other_is_whole, other)) if is_whole || other_is_whole => Some(other),
            _ => public.get(&(it.public, it.public_port, it.protocol)).copied(),
        };
        if let Some(other) = holder {
            let message = format!("{it}: its public side is taken by {}", mappings[other]);
            errors.push((at, message, "give one of them another public endpoint"));
            continue;
        }
        let key = (it.subscriber, it.gre_key, it.inside, it.inside_port, it.protocol);
        if let Some(&other) = inside.get(&key) {
            let message = format!("{it}: its inside endpoint has {} already", mappings[other]);
            errors.push((at, message, "an inside endpoint has one public endpoint: remove one"));
            continue;
        }
        addresses.entry(it.public).or_insert((is_whole, at));
        public.insert((it.public, it.public_port, it.protocol), at);
        inside.insert(key, at);
    }
    errors
}

fn error_alone(it: &StaticSettings, context: &PublicContext<'_>) -> Option<(String, &'static str)> {
    let PublicContext { access, .. } = context;
    let by_key = access.gre_key == GreKey::Subscriber;
    if let Some((message, fix)) = unknown_home(it.subscriber, access) {
        return Some((format!("{it}: {message}"), fix));
    }
    if !context.has(it.public) {
        let message = format!("{it}: {} is in no shard's public prefixes", it.public);
        return Some((message, "use a public address of a shard"));
    }
    if access.mode == AccessSetting::Plain && IpAddr::from(it.inside) != it.subscriber {
        let message = format!("{it}: without tunnels the home is its inside address");
        return Some((message, "write the inside address as the subscriber, too"));
    }
    match (by_key, it.gre_key) {
        (true, None) => Some((
            format!("{it}: the home's GRE key is missing"),
            "write SUBSCRIBER,KEY: access.gre_key is \"subscriber\"",
        )),
        (false, Some(_)) => Some((format!("{it}: GRE keys tell no homes apart"), "remove the key")),
        _ => None,
    }
}
