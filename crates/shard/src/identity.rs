//! Names and numbers of the cluster, one type each.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a name is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NameError {
    #[error(
        "node name {0:?}: it must be 1 to {NODE_NAME_MAX} letters, digits, `.`, `_`, `-` and begin with a letter or digit"
    )]
    Node(String),
    #[error("worker {0:?}: it must be a node's name, `/` and the number of the worker")]
    Worker(String),
    #[error("boot id {0:?}: it must be 32 hexadecimal digits")]
    Boot(String),
}

const NODE_NAME_MAX: usize = 63;

/// Number of a shard, the same in every node's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardId(pub u32);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Name of a node: `name` of `[node]` in its configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(Arc<str>);

impl NodeId {
    pub fn new(name: &str) -> Result<Self, NameError> {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = name.len() <= NODE_NAME_MAX
            && name.bytes().all(is_inner)
            && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if is_name { Ok(Self(name.into())) } else { Err(NameError::Node(name.into())) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeId {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        Self::new(&name)
    }
}

impl From<NodeId> for String {
    fn from(name: NodeId) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A worker of a node, by its position in the node's configuration. Written `n1/0`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkerId {
    pub node: NodeId,
    pub index: u16,
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.index)
    }
}

impl fmt::Debug for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for WorkerId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (node, index) = text.split_once('/').ok_or_else(|| NameError::Worker(text.into()))?;
        let is_number = index.bytes().all(|byte| byte.is_ascii_digit());
        let index = index.parse().ok().filter(|_| is_number);
        let index = index.ok_or_else(|| NameError::Worker(text.into()))?;
        Ok(Self { node: NodeId::new(node)?, index })
    }
}

impl TryFrom<String> for WorkerId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<WorkerId> for String {
    fn from(worker: WorkerId) -> Self {
        worker.to_string()
    }
}

/// Drawn at random when a worker starts, and anew when its guard had fenced it: 128 bits, so that
/// no two are ever equal. Written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootId(pub u128);

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl TryFrom<String> for BootId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&text, 16).ok().filter(|_| is_hex);
        number.map(Self).ok_or(NameError::Boot(text))
    }
}

impl From<BootId> for String {
    fn from(boot_id: BootId) -> Self {
        boot_id.to_string()
    }
}

/// One life of a worker, from a start to its end: what roles are granted to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    pub worker: WorkerId,
    pub boot_id: BootId,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.worker, self.boot_id)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{:?}", self.worker, self.boot_id)
    }
}

/// Counts the changes of a shard's entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// A change a nanosecond takes centuries to get there. Below the end of the numbers, so that the next one has its place.
    pub const MAX: Self = Self(1 << 63);
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Counts the changes of a shard's primary.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Term(pub u32);

impl Term {
    /// Metrics of routes begin at 2^31 and fall by 8 a term.
    pub const MAX: Self = Self((1 << 28) - 2);
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Position among the members of a shard: 0 is the primary, 1 the first to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u8);

impl Rank {
    pub const PRIMARY: Self = Self(0);
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
