//! Names of clusters and nodes, and the error that explains why a text is no identity.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Reason that a text is no identity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NameError {
    #[error(
        "cluster name {0:?}: it must be 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_`, `-` and begin with a letter or digit"
    )]
    Cluster(String),
    #[error(
        "node name {0:?}: it must be 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_`, `-` and begin with a letter or digit"
    )]
    Node(String),
    #[error("worker {0:?}: it must be a node's name, `/` and the number of the worker")]
    Worker(String),
    #[error("boot id {0:?}: it must be 32 hexadecimal digits")]
    Boot(String),
}

/// Whether a text can name a cluster or a node: 1 to 63 letters, digits, `.`, `_`, `-`, the first a
/// letter or digit. So no name can leave its folder of keys in etcd or of files.
pub fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.len() <= NAME_BYTES_MAX
        && text.bytes().all(is_inner)
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// Name of a cluster: one etcd may serve several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(String);

impl FromStr for ClusterName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if is_name(text) { Ok(Self(text.into())) } else { Err(NameError::Cluster(text.into())) }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of a node, unique in its cluster: `name` of `[node]` in its configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(Arc<str>);

impl NodeId {
    pub fn new(name: &str) -> Result<Self, NameError> {
        if is_name(name) { Ok(Self(name.into())) } else { Err(NameError::Node(name.into())) }
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
        name.as_str().to_owned()
    }
}

impl FromStr for NodeId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_folder() {
        for name in ["", ".", "..", "a/b", "-a", "a b", "é", &"x".repeat(64)] {
            assert_eq!(NodeId::new(name), Err(NameError::Node(name.into())));
            assert_eq!(name.parse::<ClusterName>(), Err(NameError::Cluster(name.into())));
        }
        assert!("x".repeat(63).parse::<ClusterName>().is_ok());
        assert!("rack1.node-7_b".parse::<NodeId>().is_ok());
    }
}
