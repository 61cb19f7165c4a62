//! What a match of nftables looks at, and the flows that fit its values.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::family::AddressFamily;
use super::flow_set::{FlowSet, ICMP, TCP, UDP};
use super::interfaces::SideInterfaces;
use super::ranges::{LAST_PORT, RangeSet};
use super::ruleset::only_entry;

/// A field of a packet, or what the kernel knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchKey {
    Address {
        family: AddressFamily,
        is_source: bool,
    },
    Port {
        protocols: u8,
        is_source: bool,
    },
    /// The protocol of packets of one family, or of any.
    Protocol {
        family: Option<AddressFamily>,
    },
    Interface {
        is_input: bool,
    },
    Family,
    CtState,
    IcmpType {
        family: AddressFamily,
    },
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
                Self::Address { family: AddressFamily::Ipv4, is_source: field == "saddr" }
            }
            ("payload", "ip6", field @ ("saddr" | "daddr")) => {
                Self::Address { family: AddressFamily::Ipv6, is_source: field == "saddr" }
            }
            ("payload", "tcp", "sport" | "dport") => port(TCP),
            ("payload", "udp", "sport" | "dport") => port(UDP),
            ("payload", "th", "sport" | "dport") => port(TCP | UDP),
            ("payload", "ip", "protocol") => Self::Protocol { family: Some(AddressFamily::Ipv4) },
            ("payload", "ip6", "nexthdr") => {
                return Err("match on ip6 nexthdr, behind which extension headers may stand: \
                            write meta l4proto"
                    .to_owned());
            }
            ("payload", "icmp", "type") => Self::IcmpType { family: AddressFamily::Ipv4 },
            ("payload", "icmpv6", "type") => Self::IcmpType { family: AddressFamily::Ipv6 },
            ("payload", protocol, field) => {
                return Err(format!("match on {protocol} {field}").trim_end().to_owned());
            }
            ("meta", ..) => match text("key") {
                "l4proto" => Self::Protocol { family: None },
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

    /// Returns the family of which alone packets have the field.
    fn family(self) -> Option<AddressFamily> {
        match self {
            Self::Address { family, .. } | Self::IcmpType { family } => Some(family),
            Self::Protocol { family } => family,
            Self::Port { .. } | Self::Interface { .. } | Self::Family | Self::CtState => None,
        }
    }

    /// Returns what of a family fits one of the values.
    ///
    /// # Errors
    /// With the reason, when weir's rules cannot express it exactly.
    pub(super) fn fit(
        self,
        operator: MatchOperator,
        values: &[Value],
        interfaces: &SideInterfaces,
        family: AddressFamily,
    ) -> Result<Fit, String> {
        if self.family().is_some_and(|own| own != family) {
            return Ok(Fit::New(FlowSet::none(family), Vec::new()));
        }
        let is_negated = operator == MatchOperator::Unequal;
        let mut flows = FlowSet::all(family);
        let mut others = Vec::new();
        match self {
            Self::Address { is_source, .. } => {
                let number = |value: &Value| address(value, family);
                let set = ranges(values, family.bits(), number)?;
                let set = compared(operator, set, family.last_address())?;
                let ends = &mut flows.addresses;
                *if is_source { &mut ends.source } else { &mut ends.destination } = set;
            }
            Self::Port { protocols, is_source } => {
                flows.protocols = protocols;
                let set = compared(operator, ranges(values, u16::BITS, port)?, LAST_PORT)?;
                let ends = &mut flows.ports;
                *if is_source { &mut ends.source } else { &mut ends.destination } = set;
            }
            _ if !matches!(operator, MatchOperator::Equal | MatchOperator::Unequal) => {
                return Err("a comparison of what is no address and no port".to_owned());
            }
            Self::Protocol { .. } => {
                let mut protocols = 0;
                for value in values {
                    match protocol(value, family)? {
                        None if is_negated => {}
                        None => others.push(format!("protocol {} is none of weir's", plain(value))),
                        Some(known) => protocols |= known,
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
                let names = match family {
                    AddressFamily::Ipv4 => ["ipv4", "ip"],
                    AddressFamily::Ipv6 => ["ipv6", "ip6"],
                };
                let has_family = values.iter().any(|value| names.iter().any(|it| value == it));
                if has_family == is_negated {
                    flows = FlowSet::none(family);
                }
            }
            Self::CtState if !is_negated && matches!(values, [state] if state == "invalid") => {
                return Ok(Fit::Invalid);
            }
            Self::CtState if !fits_new(values, is_negated)? => return Ok(Fit::Live),
            Self::CtState => {}
            Self::IcmpType { .. } => match icmp_types(values, is_negated, family)? {
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
fn icmp_types(values: &[Value], is_negated: bool, family: AddressFamily) -> Result<bool, String> {
    let has = |name: &str, number: u64| {
        let is = |value: &Value| value == name || value.as_u64() == Some(number);
        values.iter().any(is) != is_negated
    };
    let (echo, timestamp) = match family {
        AddressFamily::Ipv4 => (has("echo-request", 8), has("timestamp-request", 13)),
        // Of ICMPv6 echo is the only query (RFC 4443 section 4.1).
        AddressFamily::Ipv6 => (has("echo-request", 128), has("echo-request", 128)),
    };
    if values.iter().any(|value| !value.is_string() && !value.is_u64()) {
        return Err("icmp type: a value that is no type".to_owned());
    }
    if echo != timestamp {
        return Err("icmp type: weir's rules do not tell echo from timestamp queries; \
                    write protocol = \"icmp\" if the rule may decide on both"
            .to_owned());
    }
    Ok(echo)
}

fn compared(operator: MatchOperator, set: RangeSet, last: u128) -> Result<RangeSet, String> {
    let bounds = || set.only_number().ok_or("a comparison with more than one value");
    let of = |first: Option<u128>, last: Option<u128>| {
        RangeSet::of(first.zip(last).into_iter().collect())
    };
    Ok(match operator {
        MatchOperator::Equal => set,
        MatchOperator::Unequal => set.complement(last),
        MatchOperator::Less => of(Some(0), bounds()?.checked_sub(1)),
        MatchOperator::LessOrEqual => of(Some(0), Some(bounds()?)),
        MatchOperator::Greater => of(bounds()?.checked_add(1), Some(last)),
        MatchOperator::GreaterOrEqual => of(Some(bounds()?), Some(last)),
    })
}

/// Returns the values, prefixes and ranges as one set of numbers of so many bits.
fn ranges(
    values: &[Value],
    width: u32,
    number: impl Fn(&Value) -> Result<u128, String>,
) -> Result<RangeSet, String> {
    let range = |value: &Value| match only_entry(value) {
        Some(("range", ends)) => match ends.as_array().map(Vec::as_slice) {
            Some([first, last]) => Ok((number(first)?, number(last)?)),
            _ => Err(format!("range {ends}")),
        },
        Some(("prefix", body)) => {
            let first = number(body.get("addr").unwrap_or(&Value::Null))?;
            let bits =
                body.get("len").and_then(Value::as_u64).filter(|bits| *bits <= u64::from(width));
            let bits = bits.ok_or_else(|| format!("prefix {body}"))? as u32;
            let rest = u128::MAX.checked_shr(u128::BITS - width + bits).unwrap_or(0);
            Ok((first & !rest, first | rest))
        }
        _ => number(value).map(|number| (number, number)),
    };
    Ok(RangeSet::of(values.iter().map(range).collect::<Result<_, String>>()?))
}

fn address(value: &Value, family: AddressFamily) -> Result<u128, String> {
    let text = value.as_str().unwrap_or_default();
    let number = match family {
        AddressFamily::Ipv4 => text.parse::<Ipv4Addr>().ok().map(|it| u128::from(it.to_bits())),
        AddressFamily::Ipv6 => text.parse::<Ipv6Addr>().ok().map(|it| it.to_bits()),
    };
    number.ok_or_else(|| format!("address {}", plain(value)))
}

fn port(value: &Value) -> Result<u128, String> {
    let number = value.as_u64().map(u128::from).filter(|port| *port <= LAST_PORT);
    number.ok_or_else(|| {
        format!("port {}: take the output of `nft -j list ruleset` without -S", plain(value))
    })
}

/// Returns the bit of a protocol: 0 of the ICMP of the other family, none of those that weir has no
/// flows of.
fn protocol(value: &Value, family: AddressFamily) -> Result<Option<u8>, String> {
    let name = value.as_str().ok_or(());
    let icmp_of = |of: AddressFamily| Some(if of == family { ICMP } else { 0 });
    Ok(match (name, value.as_u64()) {
        (Ok("tcp"), _) | (_, Some(6)) => Some(TCP),
        (Ok("udp"), _) | (_, Some(17)) => Some(UDP),
        (Ok("icmp"), _) | (_, Some(1)) => icmp_of(AddressFamily::Ipv4),
        (Ok("ipv6-icmp" | "icmpv6"), _) | (_, Some(58)) => icmp_of(AddressFamily::Ipv6),
        (Ok(_), _) | (_, Some(_)) => None,
        _ => return Err(format!("protocol {value}")),
    })
}

/// A value without the quotes of JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
