//! Destinations that a chain of type nat gives packets of homes (`dnat`), as rules that redirect.
//!
//! nftables translates before it forwards: chains of forwarded packets see the new destination. A
//! rule of weir sees the one that the home has asked. So for each `dnat` the entries of the
//! forwarding chains are repeated with the flows that they would fit afterwards.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::bail;
use serde_json::Value;
use weir_config::RedirectSetting;

use super::family::AddressFamily;
use super::flatten::{ENTRIES_MAX, Fate, FlatEntry, FlatOutcome};
use super::flow_set::{FlowSet, HOME, INTERNET};
use super::ranges::{LAST_PORT, RangeSet};
use super::ruleset::RulePlace;

/// The most sets of flows of one `dnat` that rules before it leave.
const PARTS_MAX: usize = 1000;

const OF_INTERNET: &str =
    "dnat of packets from the internet: write port forwards to homes in [public] static";

/// Reads the body of a `dnat`; `None` if it is not for packets of this family.
///
/// # Errors
/// With the reason, when it is not one address and perhaps one port, or of IPv6.
pub(super) fn parse(
    body: &Value,
    family: AddressFamily,
) -> Result<Option<RedirectSetting>, String> {
    let text = body.get("addr").and_then(Value::as_str);
    let text = text.ok_or("dnat: weir redirects to one address")?;
    match (family, text.contains(':')) {
        (AddressFamily::Ipv4, true) | (AddressFamily::Ipv6, false) => return Ok(None),
        (AddressFamily::Ipv6, true) => return Err("dnat: weir does not translate IPv6".to_owned()),
        (AddressFamily::Ipv4, false) => {}
    }
    let address: Ipv4Addr = text.parse().map_err(|_| format!("dnat to {text}"))?;
    let first = address.octets()[0];
    if first == 0 || first >= 224 || address.is_loopback() {
        return Err(format!("dnat to {address}: it is no address of another host"));
    }
    let port = match body.get("port") {
        None => None,
        Some(port) => {
            let number = port.as_u64().and_then(|it| u16::try_from(it).ok());
            let number = number.filter(|it| *it != 0);
            Some(number.ok_or("dnat: weir redirects to one port, or leaves it")?)
        }
    };
    Ok(Some(RedirectSetting { address, port }))
}

/// Puts the entries about redirected flows before those of the forwarding chains. `nat` are those
/// of the chains that translate.
///
/// # Errors
/// When the list would be too long.
pub(super) fn redirect<'a>(
    nat: Vec<FlatEntry<'a>>,
    forward: Vec<FlatEntry<'a>>,
    fates: &mut BTreeMap<&'a RulePlace, Fate>,
) -> anyhow::Result<Vec<FlatEntry<'a>>> {
    let mut all: Vec<FlatEntry<'a>> = Vec::new();
    // What the chains that translate let pass as it is.
    let mut untranslated: Vec<FlowSet> = Vec::new();
    for entry in nat {
        let mut parts = vec![entry.flows.clone()];
        for other in &untranslated {
            parts = parts.iter().flat_map(|part| part.without(other)).collect();
            if parts.len() > PARTS_MAX || all.len() > ENTRIES_MAX {
                bail!("{}: the chains make more than {ENTRIES_MAX} rules", entry.place);
            }
        }
        match entry.outcome {
            FlatOutcome::Accept | FlatOutcome::Default => untranslated.push(entry.flows),
            FlatOutcome::Drop | FlatOutcome::Reject => {
                all.extend(parts.into_iter().map(|flows| FlatEntry { flows, ..entry.clone() }));
            }
            FlatOutcome::Redirect(to) => {
                for part in parts {
                    if !part.of_side(INTERNET).is_empty() {
                        note_missing(fates, entry.place);
                    }
                    let flows = part.of_side(HOME);
                    if !flows.is_empty() {
                        all.extend(redirected(&FlatEntry { flows, ..entry.clone() }, to, &forward));
                    }
                }
            }
        }
    }
    all.extend(forward);
    Ok(all)
}

fn note_missing(fates: &mut BTreeMap<&RulePlace, Fate>, place: &RulePlace) {
    if let Some(Fate::Understood(understood)) = fates.get_mut(place) {
        if !understood.missing.iter().any(|it| it == OF_INTERNET) {
            understood.missing.push(OF_INTERNET.to_owned());
        }
    }
}

/// Returns what becomes of the flows of an entry that redirects: it alone, unless the forwarding
/// chains refuse some of them.
fn redirected<'a>(
    entry: &FlatEntry<'a>,
    to: RedirectSetting,
    forward: &[FlatEntry<'a>],
) -> Vec<FlatEntry<'a>> {
    let mut all = Vec::new();
    for later in forward {
        let flows = &entry.flows & &before_translation(&later.flows, to);
        if flows.is_empty() {
            continue;
        }
        let is_last = flows == entry.flows;
        all.push(match later.outcome {
            FlatOutcome::Drop | FlatOutcome::Reject => FlatEntry { flows, ..later.clone() },
            _ => FlatEntry { flows, ..entry.clone() },
        });
        if is_last {
            break;
        }
    }
    match all.iter().all(|it| it.outcome == entry.outcome) {
        true => vec![entry.clone()],
        false => all,
    }
}

/// Returns the flows that are in a set once they have their new destination.
fn before_translation(flows: &FlowSet, to: RedirectSetting) -> FlowSet {
    let mut before = flows.clone();
    let preimage = |set: &RangeSet, number: u128, last: u128| match set.has(number) {
        true => RangeSet::up_to(last),
        false => RangeSet::of(Vec::new()),
    };
    let addresses = &mut before.addresses.destination;
    *addresses = preimage(addresses, to.address.to_bits().into(), flows.family.last_address());
    if let Some(port) = to.port {
        let ports = &mut before.ports.destination;
        *ports = preimage(ports, port.into(), LAST_PORT);
    }
    before
}
