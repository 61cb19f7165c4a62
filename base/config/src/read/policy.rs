//! `[[set]]`, `[[group]]`, `[[class]]`, `[[source_pool]]` and `[[rule]]`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ipnet::{IpNet, Ipv6Net};
use toml::de::DeValue;

use crate::findings::Findings;
use crate::policy_types::{
    ActionSetting, FlowClassSettings, GroupLimitSettings, GroupSettings, OriginSetting,
    PolicySettings, PortSpan, ProtocolSetting, RedirectSetting, RuleAddress, RuleSettings,
    SetSettings, SetSource, SourcePoolSettings,
};
use crate::read::address;
use crate::read::node::is_printable;
use crate::read::timeouts;
use crate::section::{KeyedValue, Section, integer};

const NAME_BYTES_MAX: usize = 32;
const NET_FIX: &str = "write an address or a prefix, \"a.b.c.d/length\" or \"x:y::/length\"";
const ADDRESS_FIX: &str =
    "write an address, a prefix \"a.b.c.d/length\" or \"x:y::/length\", or \"@set\"";

/// IPv4 addresses in the form of IPv6 (RFC 4291 section 2.5.5.2). No packet has them.
const MAPPED: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), IPV4_MAPPED_BITS);
const IPV4_MAPPED_BITS: u8 = 96;

pub(crate) fn read(root: &Section<'_>, findings: &mut Findings<'_>) -> PolicySettings {
    let sets = root.sections("set", "set", findings);
    let groups = root.sections("group", "group", findings);
    let classes = root.sections("class", "class", findings);
    let source_pools = root.sections("source_pool", "source_pool", findings);
    let rules = root.sections("rule", "rule", findings);
    PolicySettings {
        sets: sets.iter().map(|section| set(section, findings)).collect(),
        groups: groups.iter().map(|section| group(section, findings)).collect(),
        classes: classes.iter().map(|section| class(section, findings)).collect(),
        source_pools: source_pools.iter().map(|it| source_pool(it, findings)).collect(),
        rules: rules.iter().map(|section| rule(section, findings)).collect(),
    }
}

/// Whether a text may be the name of a set, a group, a class, a source pool or a rule.
fn is_policy_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}

fn name(section: &Section<'_>, findings: &mut Findings<'_>) -> String {
    section.text("name", findings, is_policy_name).unwrap_or_default().to_owned()
}

fn set(section: &Section<'_>, findings: &mut Findings<'_>) -> SetSettings {
    let name = name(section, findings);
    let is_path = |text: &str| text.starts_with('/') && is_printable(text);
    let file = section.text("file", findings, is_path).map(PathBuf::from);
    let prefixes = list(section, "prefixes", findings, net);
    let given = ["file", "prefixes"].map(|key| findings.is_given(&section.path_of(key)));
    match given {
        [false, false] => {
            let fix = "write file = \"/etc/weir/sets/NAME.txt\" or prefixes = [...]";
            findings.error(&section.path_of("file"), "missing, as are prefixes", fix);
        }
        [true, true] => {
            let fix = "a set has its entries in a file or here: remove one";
            findings.error(&section.path_of("file"), "beside prefixes", fix);
        }
        _ => {}
    }
    SetSettings { name, source: file.map_or(SetSource::Prefixes(prefixes), SetSource::File) }
}

fn group(section: &Section<'_>, findings: &mut Findings<'_>) -> GroupSettings {
    GroupSettings {
        name: name(section, findings),
        subscribers: list(section, "subscribers", findings, net),
        limits: group_limits(&section.section("limits", "group-limits", findings), findings),
    }
}

fn group_limits(section: &Section<'_>, findings: &mut Findings<'_>) -> GroupLimitSettings {
    GroupLimitSettings {
        ports_per_subscriber: section.optional_integer("ports_per_subscriber", findings),
        flows: section.optional_integer("flows", findings),
        sessions: section.optional_integer("sessions", findings),
        new_flows_per_sec: section.optional_integer("new_flows_per_sec", findings),
        new_flows_burst: section.optional_integer("new_flows_burst", findings),
        fragments_percent: section.optional_integer("fragments_percent", findings),
        icmp_errors_per_sec: section.optional_integer("icmp_errors_per_sec", findings),
        slow_path_packets_per_sec: section.optional_integer("slow_path_packets_per_sec", findings),
    }
}

fn class(section: &Section<'_>, findings: &mut Findings<'_>) -> FlowClassSettings {
    FlowClassSettings {
        id: section.integer("id", findings),
        name: name(section, findings),
        dscp: section.entry("dscp", findings).and_then(|entry| {
            let codepoint = codepoint(entry.value);
            if codepoint.is_none() {
                entry.refuse(findings);
            }
            codepoint
        }),
        timeouts: timeouts::given(
            &section.section("timeouts", "class-timeouts", findings),
            findings,
        ),
    }
}

/// Reads a codepoint, a number or a name (RFC 2474, 2597, 3246, 5865, 8622).
fn codepoint(value: &DeValue<'_>) -> Option<u8> {
    let digit = |text: &str, digits: std::ops::RangeInclusive<u8>| {
        text.parse().ok().filter(|_| text.len() == 1).filter(|digit| digits.contains(digit))
    };
    let Some(name) = value.as_str() else {
        return integer(value).and_then(|number| u8::try_from(number).ok()).filter(|it| *it < 64);
    };
    if let Some(precedence) = name.strip_prefix("cs") {
        return digit(precedence, 0..=7).map(|precedence| precedence << 3);
    }
    if let Some((class, drop)) = name.strip_prefix("af").and_then(|it| it.split_at_checked(1)) {
        return Some(digit(class, 1..=4)? << 3 | digit(drop, 1..=3)? << 1);
    }
    match name {
        "ef" => Some(46),
        "voice-admit" => Some(44),
        "le" => Some(1),
        _ => None,
    }
}

fn source_pool(section: &Section<'_>, findings: &mut Findings<'_>) -> SourcePoolSettings {
    SourcePoolSettings {
        name: name(section, findings),
        public: address::prefixes(section, "public", findings),
    }
}

fn rule(section: &Section<'_>, findings: &mut Findings<'_>) -> RuleSettings {
    let word = |value: &DeValue<'_>, what: &str, fix: &str| -> Result<String, ElementError> {
        let name = value.as_str().filter(|text| is_policy_name(text));
        name.map(str::to_owned).ok_or_else(|| (what.to_owned(), fix.to_owned()))
    };
    RuleSettings {
        name: name(section, findings),
        from: match section.choice("from", findings) {
            "internet" => OriginSetting::Internet,
            "any" => OriginSetting::Any,
            _ => OriginSetting::Home,
        },
        groups: list(section, "groups", findings, |value| {
            word(value, "not the name of a group", "write the name of a [[group]]")
        }),
        subscribers: list(section, "subscribers", findings, rule_address),
        protocol: list(section, "protocol", findings, protocol),
        inside_port: list(section, "inside_port", findings, ports),
        remote: list(section, "remote", findings, rule_address),
        remote_port: list(section, "remote_port", findings, ports),
        action: match section.choice("action", findings) {
            "drop" => ActionSetting::Drop,
            "reject" => ActionSetting::Reject,
            "bypass" => ActionSetting::Bypass,
            "redirect" => ActionSetting::Redirect,
            _ => ActionSetting::Accept,
        },
        to: redirect(section, findings),
        class: section.text("class", findings, is_policy_name).map(str::to_owned),
        source_pool: section.text("source_pool", findings, is_policy_name).map(str::to_owned),
        log: section.boolean("log", findings),
        rematch: section.boolean("rematch", findings),
    }
}

fn redirect(section: &Section<'_>, findings: &mut Findings<'_>) -> Option<RedirectSetting> {
    let entry = section.entry("to", findings)?;
    let text = entry.value.as_str().ok_or_else(|| "not a string".to_owned());
    let read = text.and_then(str::parse).and_then(|to: RedirectSetting| {
        match address::special(to.address.into()) {
            Some(kind) => Err(format!("{} is {kind}", to.address)),
            None => Ok(to),
        }
    });
    let fix = "write the address of a host, \"192.0.2.53\", or with a port \"192.0.2.53:53\"";
    read.map_err(|message| findings.error(&entry.path, message, fix)).ok()
}

/// What is wrong with an element, and the fix.
type ElementError = (String, String);

/// Returns the elements of a list, or the one value that the file has instead of a list. Elements
/// with an error are left out: nothing that is read from such a file is used.
fn list<T>(
    section: &Section<'_>,
    name: &str,
    findings: &mut Findings<'_>,
    element: impl Fn(&DeValue<'_>) -> Result<T, ElementError>,
) -> Vec<T> {
    let Some(entry) = section.entry(name, findings) else { return Vec::new() };
    let mut values = Vec::new();
    for (path, value) in one_or_many(&entry, findings) {
        match element(value) {
            Ok(value) => values.push(value),
            Err((message, fix)) => findings.error(&path, message, fix),
        }
    }
    values
}

fn one_or_many<'d>(
    entry: &KeyedValue<'d>,
    findings: &mut Findings<'_>,
) -> Vec<(String, &'d DeValue<'d>)> {
    if !entry.value.is_array() {
        return vec![(entry.path.clone(), entry.value)];
    }
    let elements = entry.elements(findings).unwrap_or_default();
    if elements.is_empty() {
        let fix = "name at least one, or remove the key";
        findings.error(&entry.path, "an empty list", fix);
    }
    elements
}

fn net(value: &DeValue<'_>) -> Result<IpNet, ElementError> {
    let refusal = |message: String| (message, NET_FIX.to_owned());
    prefix(value.as_str().ok_or_else(|| refusal("not a string".to_owned()))?).map_err(refusal)
}

fn rule_address(value: &DeValue<'_>) -> Result<RuleAddress, ElementError> {
    let refusal = |message: String| (message, ADDRESS_FIX.to_owned());
    let text = value.as_str().ok_or_else(|| refusal("not a string".to_owned()))?;
    match text.strip_prefix('@') {
        Some(name) if is_policy_name(name) => Ok(RuleAddress::Set(name.to_owned())),
        Some(_) => Err(refusal(format!("{text:?} is not the name of a set"))),
        None => prefix(text).map(RuleAddress::Net).map_err(refusal),
    }
}

fn protocol(value: &DeValue<'_>) -> Result<ProtocolSetting, ElementError> {
    match value.as_str() {
        Some("tcp") => Ok(ProtocolSetting::Tcp),
        Some("udp") => Ok(ProtocolSetting::Udp),
        Some("icmp") => Ok(ProtocolSetting::Icmp),
        _ => Err(("not a protocol".into(), "must be \"tcp\", \"udp\" or \"icmp\"".into())),
    }
}

fn ports(value: &DeValue<'_>) -> Result<PortSpan, ElementError> {
    let fix = || "write a port 0..=65535, or \"first-last\"".to_owned();
    let port = |text: &str| text.parse::<u16>().ok().filter(|_| !text.starts_with('+'));
    let span = match value.as_str() {
        Some(text) => match text.split_once('-') {
            Some((first, last)) => port(first).zip(port(last)),
            None => port(text).map(|port| (port, port)),
        },
        None => integer(value).and_then(|port| u16::try_from(port).ok()).map(|port| (port, port)),
    };
    match span {
        Some((first, last)) if first <= last => Ok(PortSpan { first, last }),
        Some((first, last)) => {
            let message = format!("the range {first}-{last} is reversed");
            Err((message, format!("write \"{last}-{first}\"")))
        }
        None => Err(("not a port".to_owned(), fix())),
    }
}

/// Reads a prefix, or an address as the prefix of it alone.
pub(crate) fn prefix(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<std::net::IpAddr>().map(IpNet::from);
    let net: IpNet = text
        .parse()
        .or_else(|_| address())
        .map_err(|_| format!("{text:?} is not an address or a prefix"))?;
    if net.addr() != net.network() {
        return Err(format!("{net} has host bits; its prefix is {}", net.trunc()));
    }
    match net {
        IpNet::V6(mapped) if MAPPED.contains(&mapped) => Err(format!(
            "{mapped} is of IPv4-mapped addresses, which no packet has; the prefix of IPv4 is {}",
            unmapped(mapped)
        )),
        _ => Ok(net),
    }
}

/// Returns the IPv4 prefix that a part of [`MAPPED`] stands for.
fn unmapped(mapped: Ipv6Net) -> String {
    let [.., a, b, c, d] = mapped.network().octets();
    format!("{}/{}", Ipv4Addr::new(a, b, c, d), mapped.prefix_len() - IPV4_MAPPED_BITS)
}
