//! The operator's rules about new flows, as the file has them: sets of prefixes, groups of homes,
//! classes of flows, rules in their order.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use ipnet::{IpNet, Ipv4Net};
use serde::{Serialize, Serializer};

/// Most groups of homes. A home that is in none has the number 0, and a group's number has 4 bits.
pub const GROUPS_MAX: usize = 15;

/// Greatest number of a class. A flow's class has 2 bits, and 0 is none.
pub(crate) const CLASS_ID_MAX: u8 = 3;

/// `[[set]]`, `[[group]]`, `[[class]]` and `[[rule]]`. Unless a file has some, all are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySettings {
    /// By name. Names of sets differ from each other, as those of groups and of rules do.
    pub sets: Vec<SetSettings>,
    /// By name, at most [`GROUPS_MAX`]; no two overlap.
    pub groups: Vec<GroupSettings>,
    /// By number; names differ from each other.
    pub classes: Vec<FlowClassSettings>,
    /// In the order of the file: the first that fits a flow decides on it.
    pub rules: Vec<RuleSettings>,
}

impl PolicySettings {
    /// Whether the file has nothing of it.
    pub fn is_empty(&self) -> bool {
        let Self { sets, groups, classes, rules } = self;
        sets.is_empty() && groups.is_empty() && classes.is_empty() && rules.is_empty()
    }

    /// Puts in one order what has none, so that equal policies are equal values.
    pub(crate) fn sorted(mut self) -> Self {
        self.sets.sort_by(|one, other| one.name.cmp(&other.name));
        self.groups.sort_by(|one, other| one.name.cmp(&other.name));
        self.classes.sort_by_key(|class| class.id);
        for set in &mut self.sets {
            if let SetSource::Prefixes(prefixes) = &mut set.source {
                sort(prefixes);
            }
        }
        self.groups.iter_mut().for_each(|group| sort(&mut group.subscribers));
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
    /// In order of addresses.
    pub subscribers: Vec<Ipv4Net>,
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

/// `[[rule]]`. Empty lists fit everything; written are only the keys that the file has.
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
    /// Name of the class of the flows that it accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
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
}

/// An element of `subscribers` or `remote`. In text a prefix, or `@` and the name of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleAddress {
    Net(Ipv4Net),
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
