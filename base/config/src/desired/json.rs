//! The JSON form: one value of etcd.
//!
//! ```json
//! {"format":1,
//!  "cluster":{"name":"edge","replicas":1,"commit":"async","replication_port":7473, ...},
//!  "access":{...}, "nat":{...}, "timeouts":{...}, "fragments":{...}, "limits":{...},
//!  "set":[...], "group":[...], "class":[...], "source_pool":[...], "rule":[...], "public":{...},
//!  "ipv6":{...}, "delegation":[...],
//!  "shard":[{"id":1,"endpoint":"10.100.0.1","public":["203.0.113.0/28"],
//!            "subscribers_max":256}, ...]}
//! ```
//!
//! Keys and words are those of the cluster file, and values are read by the file's own reader with
//! its ranges, defaults and checks: a value that was written by hand is refused like a file.
//! Lists of sets, static mappings and delegations that are long are compressed (`long_list.rs`).
//! Unknown keys are skipped and missing keys have their default, so that versions can read each
//! other. What older versions would misread has a higher `format`: 2 if there are source pools or
//! redirects, which versions that read up to 1 would take for pools of all homes and for accept; 3
//! if there is IPv6, which versions that read up to 2 would leave out, so that the homes of the
//! workers that they run on had none; 4 if homes have tunnels over IPv6, for the same reason.

use std::fmt::Write;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use toml::de::DeTable;

use crate::cluster_types::{ClusterSettings, ClusterShard};
use crate::desired::{Desired, long_list};
use crate::file_kind::FileKind;
use crate::findings::Findings;
use crate::ipv6_types::Ipv6Settings;
use crate::policy_types::{
    FlowClassSettings, GroupSettings, PolicySettings, RuleSettings, SourcePoolSettings,
};
use crate::types::{Access, Fragments, LimitSettings, NatSettings, TimeoutSettings};
use crate::{check, read};

/// The format number of a state without source pools, redirects and IPv6.
const FORMAT_PLAIN: u64 = 1;
/// The format number of a state with source pools or redirects, and without IPv6.
const FORMAT_POOLS: u64 = 2;
/// The format number of a state with IPv6, and without tunnels over it.
const FORMAT_IPV6: u64 = 3;
/// The format number of a state with tunnels over IPv6, and the highest that is read.
pub const DESIRED_FORMAT: u64 = 4;
/// Most bytes of the JSON. A request to etcd may have 1.5 MiB, including its other parts.
pub(crate) const BYTES_MAX: usize = 1_400_000;
/// Most mistakes that an error names.
const NAMED_MAX: usize = 3;

/// Reason that a value is no valid desired state.
#[derive(Debug, thiserror::Error)]
pub enum DesiredError {
    #[error("no JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("not a description of a cluster: no number \"format\"")]
    NoFormat,
    #[error("format {0} is of a newer version: this one reads up to {DESIRED_FORMAT}")]
    Format(u64),
    #[error("not valid: {0}")]
    Refused(String),
}

/// The serialized form.
#[derive(Serialize)]
pub(crate) struct Stored {
    format: u64,
    cluster: ClusterSettings,
    access: Access,
    nat: NatSettings,
    timeouts: TimeoutSettings,
    fragments: Fragments,
    limits: LimitSettings,
    /// Sets, groups, classes, source pools and rules are written only if there are some: earlier
    /// versions do not know them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    set: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    group: Vec<GroupSettings>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    class: Vec<FlowClassSettings>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    source_pool: Vec<SourcePoolSettings>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rule: Vec<RuleSettings>,
    /// [`PublicSettings`](crate::PublicSettings), if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<Value>,
    /// The settings of IPv6, if there are any that are not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6: Option<Ipv6Settings>,
    /// The static delegations, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    delegation: Option<Value>,
    shard: Vec<ClusterShard>,
}

impl From<Desired> for Stored {
    fn from(desired: Desired) -> Self {
        let format = match (desired.has_ipv6(), &desired.policy) {
            _ if desired.has_outer_ipv6() => DESIRED_FORMAT,
            (true, _) => FORMAT_IPV6,
            (false, policy) if policy.has_pools_or_redirects() => FORMAT_POOLS,
            _ => FORMAT_PLAIN,
        };
        let Desired {
            cluster,
            access,
            nat,
            timeouts,
            fragments,
            limits,
            policy,
            public,
            ipv6,
            shards,
        } = desired;
        let PolicySettings { sets, groups, classes, source_pools, rules } = policy;
        Self {
            format,
            cluster,
            access,
            nat,
            timeouts,
            fragments,
            limits,
            set: sets.iter().map(|set| with_short_list(set, PREFIXES)).collect(),
            group: groups,
            class: classes,
            source_pool: source_pools,
            rule: rules,
            public: (!public.is_empty()).then(|| with_short_list(&public, STATIC)),
            delegation: short_delegations(&ipv6),
            ipv6: (!ipv6.is_default()).then_some(ipv6),
            shard: shards,
        }
    }
}

/// Lists that may be long: of a set, of the section `public`, and of the whole.
const PREFIXES: &str = "prefixes";
const STATIC: &str = "static";
const DELEGATION: &str = "delegation";

/// Returns settings as JSON, with this list compressed if it is long.
fn with_short_list(settings: &impl Serialize, list: &str) -> Value {
    let mut value =
        serde_json::to_value(settings).expect("no map in it has keys that are not strings");
    long_list::compress(&mut value, list);
    value
}

/// Returns the delegations as JSON, compressed if they are many.
fn short_delegations(settings: &Ipv6Settings) -> Option<Value> {
    let list = Some(&settings.delegations).filter(|list| !list.is_empty())?;
    with_short_list(&json!({ DELEGATION: list }), DELEGATION).get_mut(DELEGATION).map(Value::take)
}

impl<'de> Deserialize<'de> for Desired {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::try_from(value).map_err(serde::de::Error::custom)
    }
}

impl Desired {
    /// Returns the JSON that [`from_json`](Self::from_json) reads.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("no map in it has keys that are not strings")
    }

    /// Number of bytes that the delegations take of the JSON.
    pub(crate) fn delegation_bytes(&self) -> usize {
        short_delegations(&self.ipv6).map_or(0, |list| list.to_string().len())
    }

    /// Reads and checks a value that this or another version wrote with [`to_json`](Self::to_json).
    ///
    /// # Errors
    /// When it is no JSON, of a newer format, or the checks of the cluster file refuse it.
    pub fn from_json(text: &str) -> Result<Self, DesiredError> {
        Self::try_from(serde_json::from_str::<Value>(text)?)
    }
}

impl TryFrom<Value> for Desired {
    type Error = DesiredError;

    fn try_from(value: Value) -> Result<Self, DesiredError> {
        let mut value = value;
        match value.get("format").and_then(Value::as_u64) {
            None => return Err(DesiredError::NoFormat),
            Some(format) if format > DESIRED_FORMAT => return Err(DesiredError::Format(format)),
            Some(_) => {}
        }
        let sets = value.get_mut("set").and_then(Value::as_array_mut).into_iter().flatten();
        for set in sets {
            long_list::decompress(set, PREFIXES).map_err(DesiredError::Refused)?;
        }
        if let Some(public) = value.get_mut("public") {
            long_list::decompress(public, STATIC).map_err(DesiredError::Refused)?;
        }
        long_list::decompress(&mut value, DELEGATION).map_err(DesiredError::Refused)?;
        let Value::Object(keys) = value else { return Err(DesiredError::NoFormat) };
        let mut text = String::new();
        for (key, value) in keys.iter().filter(|(_, value)| !value.is_null()) {
            write_string(&mut text, key);
            text.push('=');
            write_value(&mut text, value);
            text.push('\n');
        }
        let document = DeTable::parse(&text)
            .map_err(|error| DesiredError::Refused(error.message().to_owned()))?;
        let mut findings = Findings::new(&text, "");
        let file = read::cluster(document.get_ref(), FileKind::Stored, &mut findings);
        check::cluster(&file, &mut findings);
        let (errors, _) = findings.into_parts();
        if errors.is_empty() {
            return Ok(Self::of(file));
        }
        let named: Vec<String> = errors
            .iter()
            .take(NAMED_MAX)
            .map(|error| format!("{}: {}", error.key, error.message))
            .collect();
        let more = match errors.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        Err(DesiredError::Refused(named.join("; ") + &more))
    }
}

/// Writes `value` as TOML, on one line. TOML has no null: null keys count as missing, null elements
/// of a list as empty text.
fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("\"\""),
        Value::String(string) => write_string(text, string),
        Value::Array(elements) => {
            text.push('[');
            for element in elements {
                write_value(text, element);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(keys) => {
            text.push('{');
            let given = keys.iter().filter(|(_, value)| !value.is_null());
            for (position, (key, value)) in given.enumerate() {
                if position > 0 {
                    text.push(',');
                }
                write_string(text, key);
                text.push('=');
                write_value(text, value);
            }
            text.push('}');
        }
        Value::Bool(_) | Value::Number(_) => {
            let _ = write!(text, "{value}");
        }
    }
}

/// Writes a string. JSON and TOML strings are the same except for DEL, which TOML requires to be
/// escaped.
fn write_string(text: &mut String, string: &str) {
    let json = Value::from(string).to_string();
    text.push_str(&json.replace('\u{7f}', "\\u007f"));
}
