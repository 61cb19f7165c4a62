//! A worker by its node and its position.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::{NameError, NodeId};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_parsed_as_it_is_written() {
        let worker = WorkerId { node: NodeId::new("rack1.node-7").unwrap(), index: 65_535 };
        assert_eq!(worker.to_string(), "rack1.node-7/65535");
        assert_eq!(worker.to_string().parse(), Ok(worker));
    }

    #[test]
    fn a_text_without_a_node_or_a_number_is_no_worker() {
        for text in ["n1", "n1/", "/0", "n1/+1", "n1/-1", "n1/65536", "n1/0/1", "n 1/0"] {
            assert!(text.parse::<WorkerId>().is_err(), "{text}");
        }
    }
}
