//! What a match of nftables looks at, and the flows that fit its values.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::flow_set::{FlowSet, ICMP, TCP, UDP};
use super::interfaces::SideInterfaces;
use super::ranges::{LAST_PORT, RangeSet};
use super::ruleset::only_entry;

/// A field of a packet, or what the kernel knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchKey {
    Address { is_source: bool },
    Port { protocols: u8, is_source: bool },
    Protocol,
    Interface { is_input: bool },
    Family,
    CtState,
    IcmpType,
}

/// What fits a match.
#[derive(Clone, Debug)]
pub(super) enum Fit {
    /// New flows; the texts say which values are none of weir's.
    New(FlowSet, Vec<String>),
    /// No packet that begins a flow, but packets of live flows, of which rules are not asked.
    Live,
    /// Packets of no flow that begin none.
    Invalid,
}

/// How a match compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchOperator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl MatchOperator {
    /// # Errors
    /// With the reason, when it is none that weir knows.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "==" | "in" => Self::Equal,
            "!=" | "!" => Self::Unequal,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            other => return Err(format!("operator {other:?}")),
        })
    }
}

impl MatchKey {
    /// Returns the keys of the left side of a match: several of a concatenation.
    ///
    /// # Errors
    /// With the reason, when weir's rules have no such field.
    pub(super) fn parse(left: &Value) -> Result<Vec<Self>, String> {
        match only_entry(left) {
            Some(("concat", parts)) => {
                let parts = parts.as_array().ok_or("a concatenation without parts")?;
                parts.iter().map(Self::parse_one).collect()
            }
            _ => Ok(vec![Self::parse_one(left)?]),
        }
    }

    fn parse_one(left: &Value) -> Result<Self, String> {
        let Some((kind, body)) = only_entry(left) else {
            return Err(format!("match on {left}"));
        };
        let text = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or_default();
        let port = |protocols| Self::Port { protocols, is_source: text("field") == "sport" };
        Ok(match (kind, text("protocol"), text("field")) {
            ("payload", "ip", field @ ("saddr" | "daddr")) => {
                Self::Address { is_source: field == "saddr" }
            }
            ("payload", "tcp", "sport" | "dport") => port(TCP),
            ("payload", "udp", "sport" | "dport") => port(UDP),
            ("payload", "th", "sport" | "dport") => port(TCP | UDP),
            ("payload", "ip", "protocol") => Self::Protocol,
            ("payload", "icmp", "type") => Self::IcmpType,
            ("payload", "ip6" | "icmpv6", _) => return Err("IPv6".to_owned()),
            ("payload", protocol, field) => {
                return Err(format!("match on {protocol} {field}").trim_end().to_owned());
            }
            ("meta", ..) => match text("key") {
                "l4proto" => Self::Protocol,
                "iif" | "iifname" => Self::Interface { is_input: true },
                "oif" | "oifname" => Self::Interface { is_input: false },
                "nfproto" | "protocol" => Self::Family,
                key => return Err(format!("match on meta {key}")),
            },
            ("ct", ..) if text("key") == "state" => Self::CtState,
            ("ct", ..) => return Err(format!("match on ct {}", text("key"))),
            _ => return Err(format!("match on {kind}")),
        })
    }

    /// Returns what fits one of the values.
    ///
    /// # Errors
    /// With the reason, when weir's rules cannot express it exactly.
    pub(super) fn fit(
        self,
        operator: MatchOperator,
        values: &[Value],
        interfaces: &SideInterfaces,
    ) -> Result<Fit, String> {
        let is_negated = operator == MatchOperator::Unequal;
        let mut flows = FlowSet::all();
        let mut others = Vec::new();
        match self {
            Self::Address { is_source } => {
                let set = compared(operator, ranges(values, address)?, u32::MAX)?;
                let ends = &mut flows.addresses;
                *if is_source { &mut ends.source } else { &mut ends.destination } = set;
            }
            Self::Port { protocols, is_source } => {
                flows.protocols = protocols;
                let set = compared(operator, ranges(values, port)?, LAST_PORT)?;
                let ends = &mut flows.ports;
                *if is_source { &mut ends.source } else { &mut ends.destination } = set;
            }
            _ if !matches!(operator, MatchOperator::Equal | MatchOperator::Unequal) => {
                return Err("a comparison of what is no address and no port".to_owned());
            }
            Self::Protocol => {
                let mut protocols = 0;
                for value in values {
                    match protocol(value)? {
                        0 if is_negated => {}
                        0 => others.push(format!("protocol {} is none of weir's", plain(value))),
                        known => protocols |= known,
                    }
                }
                flows.protocols = if is_negated { flows.protocols & !protocols } else { protocols };
            }
            Self::Interface { is_input } => {
                let names: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
                let names = names.ok_or("an interface without a name")?;
                let sides = interfaces.sides(&names, is_negated)?;
                // What leaves towards the homes comes from the internet.
                flows.from = if is_input { sides } else { sides >> 1 | (sides & 1) << 1 };
            }
            Self::Family => {
                let has_ipv4 = values.iter().any(|value| value == "ipv4" || value == "ip");
                if has_ipv4 == is_negated {
                    return Err("IPv6, or another family".to_owned());
                }
            }
            Self::CtState if !is_negated && matches!(values, [state] if state == "invalid") => {
                return Ok(Fit::Invalid);
            }
            Self::CtState if !fits_new(values, is_negated)? => return Ok(Fit::Live),
            Self::CtState => {}
            Self::IcmpType => match icmp_types(values, is_negated)? {
                true => flows.protocols = ICMP,
                false => return Ok(Fit::Live),
            },
        }
        Ok(Fit::New(flows, others))
    }
}

/// Whether a match on the state of a connection fits new flows; fails for what fits neither those
/// nor live flows alone.
fn fits_new(values: &[Value], is_negated: bool) -> Result<bool, String> {
    let has = |state: &str| values.iter().any(|value| value == state) != is_negated;
    if has("new") {
        return Ok(true);
    }
    match ["invalid", "untracked"].into_iter().find(|state| has(state)) {
        Some(state) => {
            Err(format!("ct state {state}: weir judges the states of flows and ICMP errors itself"))
        }
        None => Ok(false),
    }
}

/// Whether a match on ICMP types fits all queries; false if it fits none.
fn icmp_types(values: &[Value], is_negated: bool) -> Result<bool, String> {
    let has = |name: &str, number: u64| {
        let is = |value: &Value| value == name || value.as_u64() == Some(number);
        values.iter().any(is) != is_negated
    };
    let (echo, timestamp) = (has("echo-request", 8), has("timestamp-request", 13));
    if echo != timestamp || values.iter().any(|value| !value.is_string() && !value.is_u64()) {
        return Err("icmp type: weir's rules do not tell echo from timestamp queries; \
                    write protocol = \"icmp\" if the rule may decide on both"
            .to_owned());
    }
    Ok(echo)
}

fn compared(operator: MatchOperator, set: RangeSet, last: u32) -> Result<RangeSet, String> {
    let bounds = || set.only_number().ok_or("a comparison with more than one value");
    let of =
        |first: Option<u32>, last: Option<u32>| RangeSet::of(first.zip(last).into_iter().collect());
    Ok(match operator {
        MatchOperator::Equal => set,
        MatchOperator::Unequal => set.complement(last),
        MatchOperator::Less => of(Some(0), bounds()?.checked_sub(1)),
        MatchOperator::LessOrEqual => of(Some(0), Some(bounds()?)),
        MatchOperator::Greater => of(bounds()?.checked_add(1), Some(last)),
        MatchOperator::GreaterOrEqual => of(Some(bounds()?), Some(last)),
    })
}

/// Returns the values, prefixes and ranges as one set.
fn ranges(
    values: &[Value],
    number: impl Fn(&Value) -> Result<u32, String>,
) -> Result<RangeSet, String> {
    let range = |value: &Value| match only_entry(value) {
        Some(("range", ends)) => match ends.as_array().map(Vec::as_slice) {
            Some([first, last]) => Ok((number(first)?, number(last)?)),
            _ => Err(format!("range {ends}")),
        },
        Some(("prefix", body)) => {
            let first = number(body.get("addr").unwrap_or(&Value::Null))?;
            let bits = body.get("len").and_then(Value::as_u64).filter(|bits| *bits <= 32);
            let bits = bits.ok_or_else(|| format!("prefix {body}"))? as u32;
            let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
            Ok((first & !rest, first | rest))
        }
        _ => number(value).map(|number| (number, number)),
    };
    Ok(RangeSet::of(values.iter().map(range).collect::<Result<_, String>>()?))
}

fn address(value: &Value) -> Result<u32, String> {
    let text = value.as_str().unwrap_or_default();
    match text.parse::<Ipv4Addr>() {
        Ok(address) => Ok(address.to_bits()),
        Err(_) if text.contains(':') => Err("IPv6".to_owned()),
        Err(_) => Err(format!("address {}", plain(value))),
    }
}

fn port(value: &Value) -> Result<u32, String> {
    let number = value.as_u64().filter(|port| *port <= u64::from(LAST_PORT));
    number.map(|port| port as u32).ok_or_else(|| {
        format!("port {}: take the output of `nft -j list ruleset` without -S", plain(value))
    })
}

/// Returns the bit of a protocol; 0 for those that weir does not translate.
fn protocol(value: &Value) -> Result<u8, String> {
    let name = value.as_str().ok_or(());
    Ok(match (name, value.as_u64()) {
        (Ok("tcp"), _) | (_, Some(6)) => TCP,
        (Ok("udp"), _) | (_, Some(17)) => UDP,
        (Ok("icmp"), _) | (_, Some(1)) => ICMP,
        (Ok(_), _) | (_, Some(_)) => 0,
        _ => return Err(format!("protocol {value}")),
    })
}

/// A value without the quotes of JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
