//! The operator's rules about new flows, as the file has them: sets of prefixes, groups of homes,
//! classes of flows, pools of public addresses, rules in their order.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Serialize, Serializer};

/// Most groups of homes. A home that is in none has the number 0, and a group's number has 4 bits.
pub const GROUPS_MAX: usize = 15;

/// Greatest number of a class. A flow's class has 2 bits, and 0 is none.
pub(crate) const CLASS_ID_MAX: u8 = 3;

/// Most source pools. Addresses that are in none have the number 0, and a pool's number has 4 bits.
pub const SOURCE_POOLS_MAX: usize = 7;

/// `[[set]]`, `[[group]]`, `[[class]]`, `[[source_pool]]` and `[[rule]]`. Unless a file has some,
/// all are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySettings {
    /// By name. Names of sets differ from each other, as those of groups and of rules do.
    pub sets: Vec<SetSettings>,
    /// By name, at most [`GROUPS_MAX`]; no two overlap.
    pub groups: Vec<GroupSettings>,
    /// By number; names differ from each other.
    pub classes: Vec<FlowClassSettings>,
    /// By name, at most [`SOURCE_POOLS_MAX`]; no two overlap.
    pub source_pools: Vec<SourcePoolSettings>,
    /// In the order of the file: the first that fits a flow decides on it.
    pub rules: Vec<RuleSettings>,
}

impl PolicySettings {
    /// Whether the file has nothing of it.
    pub fn is_empty(&self) -> bool {
        let Self { sets, groups, classes, source_pools, rules } = self;
        sets.is_empty()
            && groups.is_empty()
            && classes.is_empty()
            && source_pools.is_empty()
            && rules.is_empty()
    }

    /// Whether it has what versions without source pools and redirects would misread.
    pub(crate) fn has_pools_or_redirects(&self) -> bool {
        let redirects = |rule: &RuleSettings| rule.action == ActionSetting::Redirect;
        !self.source_pools.is_empty() || self.rules.iter().any(redirects)
    }

    /// Puts in one order what has none, so that equal policies are equal values.
    pub(crate) fn sorted(mut self) -> Self {
        self.sets.sort_by(|one, other| one.name.cmp(&other.name));
        self.groups.sort_by(|one, other| one.name.cmp(&other.name));
        self.classes.sort_by_key(|class| class.id);
        self.source_pools.sort_by(|one, other| one.name.cmp(&other.name));
        for set in &mut self.sets {
            if let SetSource::Prefixes(prefixes) = &mut set.source {
                sort(prefixes);
            }
        }
        self.groups.iter_mut().for_each(|group| sort(&mut group.subscribers));
        self.source_pools.iter_mut().for_each(|pool| sort(&mut pool.public));
        for rule in &mut self.rules {
            sort(&mut rule.groups);
            sort(&mut rule.subscribers);
            sort(&mut rule.protocol);
            sort(&mut rule.inside_port);
            sort(&mut rule.remote);
            sort(&mut rule.remote_port);
        }
        self
    }
}

fn sort<T: Ord>(list: &mut Vec<T>) {
    list.sort_unstable();
    list.dedup();
}

/// `[[set]]`: prefixes under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetSettings {
    pub name: String,
    #[serde(flatten)]
    pub source: SetSource,
}

/// Place of a set's entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetSource {
    /// The file itself; in order of addresses.
    Prefixes(Vec<IpNet>),
    /// A file with an entry on each line; an absolute path.
    File(PathBuf),
}

/// `[[group]]`: homes under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupSettings {
    pub name: String,
    /// In order of addresses, IPv4 before IPv6. Behind tunnels a home is its outer address.
    pub subscribers: Vec<IpNet>,
    #[serde(skip_serializing_if = "GroupLimitSettings::is_empty")]
    pub limits: GroupLimitSettings,
}

/// `limits` of a group: what one home of it may have. `None`: as all homes, by `[limits]` and
/// `[nat]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupLimitSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports_per_subscriber: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_flows_per_sec: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_flows_burst: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragments_percent: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_errors_per_sec: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_path_packets_per_sec: Option<u32>,
}

impl GroupLimitSettings {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// `[[class]]`: what flows get beside the verdict of their rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowClassSettings {
    /// 1 to 3.
    pub id: u8,
    pub name: String,
    /// Codepoint of the packets, below 64; `None`: as they came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Keys of `[timeouts]` that have other values here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub timeouts: BTreeMap<&'static str, u32>,
}

/// `[[source_pool]]`: public addresses of the flows of the rules that name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourcePoolSettings {
    pub name: String,
    /// In order of addresses.
    pub public: Vec<Ipv4Net>,
}

/// `[[rule]]`. Empty lists fit everything; written are only the keys that the file has.
///
/// In each family a rule fits the flows between its subscribers and its remotes of that family: a
/// rule without addresses fits flows of both, a rule with prefixes of one family those of that one.
/// A rule that redirects or has a source pool fits IPv4 alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleSettings {
    pub name: String,
    #[serde(skip_serializing_if = "OriginSetting::is_home")]
    pub from: OriginSetting,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<RuleAddress>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protocol: Vec<ProtocolSetting>,
    /// Empty unless `protocol` has TCP or UDP alone, as `remote_port`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside_port: Vec<PortSpan>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remote: Vec<RuleAddress>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remote_port: Vec<PortSpan>,
    pub action: ActionSetting,
    /// Destination of the packets; `Some` exactly with [`ActionSetting::Redirect`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<RedirectSetting>,
    /// Name of the class of the flows that it lets begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Name of the source pool of the flows that it lets begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_pool: Option<String>,
    /// Whether the log names the flows on which it decides.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
    /// Whether live flows that it refuses end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rematch: bool,
}

/// Side that begins a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginSetting {
    Home,
    Internet,
    Any,
}

impl OriginSetting {
    fn is_home(&self) -> bool {
        *self == Self::Home
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProtocolSetting {
    Tcp,
    Udp,
    /// ICMP of IPv4, and ICMPv6 of IPv6.
    Icmp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionSetting {
    Accept,
    /// Packets are dropped without an answer.
    Drop,
    /// Packets are dropped and their sender is notified.
    Reject,
    /// Packets pass as they are.
    Bypass,
    /// Flows begin, and their packets go to [`RuleSettings::to`].
    Redirect,
}

impl ActionSetting {
    /// Whether flows begin.
    pub(crate) fn begins_flows(self) -> bool {
        matches!(self, Self::Accept | Self::Redirect)
    }
}

/// `to` of a rule: where packets go in place of their own destination. In text `192.0.2.53:53`, or
/// `192.0.2.53` if the port stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedirectSetting {
    pub address: Ipv4Addr,
    /// Not 0.
    pub port: Option<u16>,
}

impl fmt::Display for RedirectSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.address),
            None => self.address.fmt(f),
        }
    }
}

impl Serialize for RedirectSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for RedirectSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, port) = match text.split_once(':') {
            Some((address, port)) => (address, Some(port)),
            None => (text, None),
        };
        let address = address.parse().map_err(|_| format!("{address:?} is no IPv4 address"))?;
        let number = |port: &str| port.parse::<u16>().ok().filter(|_| !port.starts_with('+'));
        let port = match port.map(|port| (number(port), port)) {
            None => None,
            Some((None, port)) => return Err(format!("{port:?} is not a port")),
            Some((Some(0), _)) => return Err("there is no port 0".to_owned()),
            Some((port, _)) => port,
        };
        Ok(Self { address, port })
    }
}

/// An element of `subscribers` or `remote`. In text a prefix, or `@` and the name of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleAddress {
    Net(IpNet),
    Set(String),
}

impl fmt::Display for RuleAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) => net.fmt(f),
            Self::Set(name) => write!(f, "@{name}"),
        }
    }
}

impl Serialize for RuleAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Ports, inclusive. In text a number, or two with `-` between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortSpan {
    pub first: u16,
    pub last: u16,
}

impl fmt::Display for PortSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl Serialize for PortSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.first == self.last {
            true => serializer.serialize_u16(self.first),
            false => serializer.collect_str(self),
        }
    }
}
