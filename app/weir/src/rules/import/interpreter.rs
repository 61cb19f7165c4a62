//! What nftables does with the first packet of a flow, straight from the JSON of a ruleset, and
//! what the imported rules do with it: two plain readings for a comparison.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The first packet of a flow, between the interfaces `lan0` (homes) and `wan0`.
#[derive(Clone, Debug)]
pub(super) struct FirstPacket {
    pub is_from_home: bool,
    pub is_ipv6: bool,
    /// In the words of nftables.
    pub protocol: &'static str,
    pub source: u128,
    pub destination: u128,
    pub source_port: u32,
    pub destination_port: u32,
}

/// What becomes of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowVerdict {
    Accept,
    Drop,
    Reject,
    /// It goes to another address, and perhaps port.
    Redirect(u128, Option<u32>),
    /// No rule decides, and the policy is accept.
    Undecided,
}

/// How a chain ends.
enum End {
    Decided(FlowVerdict),
    Fell,
    Left,
}

pub(super) struct Interpreter<'a> {
    objects: &'a [Value],
}

impl<'a> Interpreter<'a> {
    pub(super) fn new(ruleset: &'a Value) -> Self {
        Self { objects: ruleset["nftables"].as_array().unwrap() }
    }

    fn all(&self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter_map(move |object| object.get(kind))
    }

    pub(super) fn verdict(&self, packet: &FirstPacket) -> FlowVerdict {
        let mut packet = packet.clone();
        let nat = self.all("chain").find(|it| it["hook"] == "prerouting");
        let translated = nat.map(|nat| self.chain(nat["name"].as_str().unwrap(), &packet));
        let Some(End::Decided(FlowVerdict::Redirect(address, port))) = translated else {
            return self.forwarded(&packet);
        };
        packet.destination = address;
        packet.destination_port = port.unwrap_or(packet.destination_port);
        match self.forwarded(&packet) {
            FlowVerdict::Accept | FlowVerdict::Undecided => FlowVerdict::Redirect(address, port),
            refused => refused,
        }
    }

    fn forwarded(&self, packet: &FirstPacket) -> FlowVerdict {
        let mut bases: Vec<&Value> =
            self.all("chain").filter(|it| it["hook"] == "forward").collect();
        bases.sort_by_key(|chain| chain["prio"].as_i64().unwrap());
        let mut last = FlowVerdict::Undecided;
        for base in bases {
            last = match self.chain(base["name"].as_str().unwrap(), packet) {
                End::Decided(verdict) => verdict,
                _ if base["policy"] == "drop" => FlowVerdict::Drop,
                _ => FlowVerdict::Undecided,
            };
            if matches!(last, FlowVerdict::Drop | FlowVerdict::Reject) {
                return last;
            }
        }
        last
    }

    fn chain(&self, name: &str, packet: &FirstPacket) -> End {
        for rule in self.all("rule").filter(|rule| rule["chain"] == name) {
            let Some(verdict) = self.rule(&rule["expr"], packet) else { continue };
            let (kind, body) = verdict.as_object().unwrap().iter().next().unwrap();
            let target = body["target"].as_str();
            match kind.as_str() {
                "accept" => return End::Decided(FlowVerdict::Accept),
                "drop" => return End::Decided(FlowVerdict::Drop),
                "reject" => return End::Decided(FlowVerdict::Reject),
                "dnat" => {
                    let port = body["port"].as_u64().map(|port| port as u32);
                    return End::Decided(FlowVerdict::Redirect(scalar(&body["addr"]), port));
                }
                "return" => return End::Left,
                "jump" => match self.chain(target.unwrap(), packet) {
                    End::Decided(verdict) => return End::Decided(verdict),
                    End::Fell | End::Left => {}
                },
                "goto" => match self.chain(target.unwrap(), packet) {
                    End::Decided(verdict) => return End::Decided(verdict),
                    End::Fell | End::Left => return End::Left,
                },
                "continue" => {}
                other => panic!("verdict {other}"),
            }
        }
        End::Fell
    }

    fn rule(&self, statements: &'a Value, packet: &FirstPacket) -> Option<&'a Value> {
        for statement in statements.as_array().unwrap() {
            let (kind, body) = statement.as_object().unwrap().iter().next().unwrap();
            match kind.as_str() {
                // It is for packets of IPv4 alone.
                "dnat" if packet.is_ipv6 => return None,
                "match" if self.matches(body, packet) => {}
                "match" => return None,
                "counter" => {}
                "vmap" => {
                    let elements = self.elements(&body["data"]).iter();
                    let mut pairs = elements.map(|pair| (&pair[0], &pair[1]));
                    let found = pairs.find(|(value, _)| self.fits(&body["key"], value, packet));
                    return found.map(|(_, verdict)| verdict);
                }
                _ => return Some(statement),
            }
        }
        None
    }

    fn matches(&self, body: &Value, packet: &FirstPacket) -> bool {
        let (left, right) = (&body["left"], &body["right"]);
        let has_field = match left["payload"]["protocol"].as_str() {
            Some("tcp" | "udp") => left["payload"]["protocol"] == packet.protocol,
            Some("ip") => !packet.is_ipv6,
            Some("ip6") => packet.is_ipv6,
            _ => true,
        };
        let is_one_of = || match right.as_str().is_some_and(|it| it.starts_with('@'))
            || right.get("set").is_some()
        {
            true => self.elements(right).iter().any(|value| self.fits(left, value, packet)),
            false => self.fits(left, right, packet),
        };
        let number = || number_of(left, packet).unwrap();
        has_field
            && match body["op"].as_str().unwrap() {
                "==" | "in" => is_one_of(),
                "!=" => !is_one_of(),
                "<" => number() < scalar(right),
                ">" => number() > scalar(right),
                "<=" => number() <= scalar(right),
                ">=" => number() >= scalar(right),
                other => panic!("operator {other}"),
            }
    }

    fn elements(&self, set: &'a Value) -> &'a [Value] {
        let elements = match set.as_str() {
            Some(name) => {
                let mut sets = self.all("set").chain(self.all("map"));
                &sets.find(|set| set["name"] == name[1..]).unwrap()["elem"]
            }
            None => &set["set"],
        };
        elements.as_array().unwrap()
    }

    fn fits(&self, left: &Value, value: &Value, packet: &FirstPacket) -> bool {
        if let Some(parts) = left["concat"].as_array() {
            let values = value["concat"].as_array().unwrap();
            return parts.iter().zip(values).all(|(part, value)| self.fits(part, value, packet));
        }
        let (home, internet) = ("lan0", "wan0");
        let (input, output) = if packet.is_from_home { (home, internet) } else { (internet, home) };
        match left["meta"]["key"].as_str() {
            Some("iifname") => return value == input,
            Some("oifname") => return value == output,
            Some("l4proto") => return value == packet.protocol,
            Some("nfproto") => return value == if packet.is_ipv6 { "ipv6" } else { "ipv4" },
            _ => {}
        }
        if left["ct"]["key"] == "state" {
            return value == "new";
        }
        if left["payload"]["field"] == "protocol" {
            return !packet.is_ipv6 && value == packet.protocol;
        }
        let Some(number) = number_of(left, packet) else { return false };
        if let Some(range) = value["range"].as_array() {
            return scalar(&range[0]) <= number && number <= scalar(&range[1]);
        }
        if let Some(bits) = value["prefix"]["len"].as_u64() {
            let width = if packet.is_ipv6 { 128 } else { 32 };
            let mask = u128::MAX.checked_shl(width - bits as u32).unwrap_or(0);
            return number & mask == scalar(&value["prefix"]["addr"]);
        }
        number == scalar(value)
    }
}

/// Returns an address or a port of a packet; `None` of a port of another protocol.
fn number_of(left: &Value, packet: &FirstPacket) -> Option<u128> {
    let payload = &left["payload"];
    let family = if packet.is_ipv6 { "ip6" } else { "ip" };
    let is_of = [family, "th", packet.protocol].iter().any(|it| payload["protocol"] == *it);
    is_of.then(|| match payload["field"].as_str().unwrap() {
        "saddr" => packet.source,
        "daddr" => packet.destination,
        "sport" => packet.source_port.into(),
        "dport" => packet.destination_port.into(),
        other => panic!("field {other}"),
    })
}

fn scalar(value: &Value) -> u128 {
    match value.as_str().map(|text| text.parse::<IpAddr>().unwrap()) {
        Some(IpAddr::V4(address)) => address.to_bits().into(),
        Some(IpAddr::V6(address)) => address.to_bits(),
        None => value.as_u64().unwrap().into(),
    }
}

/// Returns the tables of a TOML text.
pub(super) fn parse_toml(text: &str) -> Value {
    table(DeTable::parse(text).unwrap().get_ref())
}

fn table(entries: &DeTable<'_>) -> Value {
    let entry = |(key, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
        (key.get_ref().to_string(), plain(value.get_ref()))
    };
    entries.iter().map(entry).collect()
}

fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => Value::from(number.as_str().parse::<u64>().unwrap()),
        DeValue::Array(values) => values.iter().map(|value| plain(value.get_ref())).collect(),
        DeValue::Table(entries) => table(entries),
        other => panic!("{other:?}"),
    }
}

/// Returns the verdict of rules in the syntax of a configuration file.
pub(super) fn first_rule(rules: &Value, packet: &FirstPacket) -> FlowVerdict {
    let list = |key: &str| rules.get(key).and_then(Value::as_array);
    let rule = list("rule").into_iter().flatten().find(|rule| fits_rule(rules, rule, packet));
    match rule.map(|rule| rule["action"].as_str().unwrap()) {
        None => FlowVerdict::Undecided,
        Some("accept") => FlowVerdict::Accept,
        Some("drop") => FlowVerdict::Drop,
        Some("reject") => FlowVerdict::Reject,
        Some("redirect") => {
            let to = rule.unwrap()["to"].as_str().unwrap();
            let (address, port) = to.split_once(':').map_or((to, None), |(a, p)| (a, Some(p)));
            let address = address.parse::<Ipv4Addr>().unwrap().to_bits();
            FlowVerdict::Redirect(address.into(), port.map(|port| port.parse().unwrap()))
        }
        Some(other) => panic!("action {other}"),
    }
}

fn fits_rule(rules: &Value, rule: &Value, packet: &FirstPacket) -> bool {
    let (mut local, mut remote) =
        ((packet.source, packet.source_port), (packet.destination, packet.destination_port));
    if !packet.is_from_home {
        std::mem::swap(&mut local, &mut remote);
    }
    let from = rule["from"].as_str().unwrap();
    let list = |key: &str| rule.get(key).and_then(Value::as_array);
    let port = |key: &str, port: u32| {
        assert!(list(key).is_none() || list("protocol").is_some(), "ports need a protocol");
        list(key).is_none_or(|ports| ports.iter().any(|it| has_port(it, port)))
    };
    let address = |key: &str, address: u128| {
        let address = match packet.is_ipv6 {
            true => IpAddr::from(Ipv6Addr::from(address)),
            false => IpAddr::from(Ipv4Addr::from(address as u32)),
        };
        list(key).is_none_or(|all| all.iter().any(|it| has_address(rules, it, address)))
    };
    // ICMP and ICMPv6 have one word.
    let protocol = if packet.protocol == "ipv6-icmp" { "icmp" } else { packet.protocol };
    let has_protocol = |all: &Vec<Value>| all.iter().any(|it| it.as_str() == Some(protocol));
    // IPv6 is not translated.
    !(packet.is_ipv6 && rule["action"] == "redirect")
        && (from == "any" || (from == "home") == packet.is_from_home)
        && list("protocol").is_none_or(has_protocol)
        && address("subscribers", local.0)
        && address("remote", remote.0)
        && port("inside_port", local.1)
        && port("remote_port", remote.1)
}

fn has_port(value: &Value, port: u32) -> bool {
    match value.as_str() {
        None => value.as_u64() == Some(u64::from(port)),
        Some(range) => {
            let (first, last) = range.split_once('-').unwrap();
            first.parse::<u32>().unwrap() <= port && port <= last.parse().unwrap()
        }
    }
}

fn has_address(rules: &Value, value: &Value, address: IpAddr) -> bool {
    let text = value.as_str().unwrap();
    if let Some(name) = text.strip_prefix('@') {
        let sets = rules["set"].as_array().unwrap();
        let set = sets.iter().find(|set| set["name"].as_str() == Some(name)).unwrap();
        let prefixes = set["prefixes"].as_array().unwrap();
        return prefixes.iter().any(|it| has_address(rules, it, address));
    }
    let prefix: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => text.parse().unwrap(),
    };
    assert_eq!(prefix.network(), prefix.addr(), "bits behind the prefix");
    prefix.contains(&address)
}
