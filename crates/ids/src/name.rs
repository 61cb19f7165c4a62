//! Names, and the error that says why a text is none.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// Why a text is no identity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NameError {
    #[error(
        "node name {0:?}: it must be 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_`, `-` and begin with a letter or digit"
    )]
    Node(String),
    #[error("worker {0:?}: it must be a node's name, `/` and the number of the worker")]
    Worker(String),
    #[error("boot id {0:?}: it must be 32 hexadecimal digits")]
    Boot(String),
}

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Name of a node, unique in its cluster: `name` of `[node]` in its configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

impl NodeId {
    pub fn new(name: &str) -> Result<Self, NameError> {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = name.len() <= NAME_BYTES_MAX
            && name.bytes().all(is_inner)
            && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if is_name { Ok(Self(name.into())) } else { Err(NameError::Node(name.into())) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
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
