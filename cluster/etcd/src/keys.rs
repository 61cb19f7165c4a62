//! The keys of one cluster in etcd.
//!
//! ```text
//!   /weir/<cluster>/meta            the identity of the cluster
//!   /weir/<cluster>/desired         the desired state
//!   /weir/<cluster>/nodes/<node>    a live node; goes with its lease
//!   /weir/<cluster>/shards/<id>     a shard's members
//!   /weir/<cluster>/intents/<node>  the operator's orders for a node
//!   /weir/<cluster>/control         the operator's orders for the controller
//!   /weir/<cluster>/report          what the controller observes and waits for
//!   /weir/<cluster>/events/<slot>   its last decisions, in a ring of slots
//!   /weir/<cluster>/leader/elected  the acting controller; goes with its lease
//! ```
//!
//! A key has one spelling: `parse` refuses a path that `path` would not have written. The types of
//! names confine each name to its folder.

use serde::{Deserialize, Serialize};
use weir_ids::{ClusterName, NodeId, ShardId};

const LEADER: &str = "leader/elected";

/// A key, without the cluster it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Key {
    Meta,
    Desired,
    Node(NodeId),
    Shard(ShardId),
    Intent(NodeId),
    Control,
    Report,
    Event(u32),
    Leader,
}

/// A part of the keys that can be listed and watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRange {
    /// Every key of the cluster.
    All,
    Nodes,
    Shards,
    Intents,
    Events,
}

/// Reason that a path is no [`Key`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The path is outside `/weir/<cluster>/`.
    #[error("{0} is not a key of cluster {1}")]
    Foreign(String, ClusterName),
    /// The path is inside, but this version knows no such key.
    #[error("{0} is not a key that this version of weir knows")]
    Unknown(String),
}

/// Formats and parses the paths of one cluster's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    cluster: ClusterName,
    prefix: String,
}

impl Keys {
    pub fn new(cluster: ClusterName) -> Self {
        let prefix = format!("/weir/{cluster}/");
        Self { cluster, prefix }
    }

    /// Returns the cluster that the keys belong to.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// Returns `/weir/<cluster>/`: a role of etcd must be allowed to read and write below it.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the prefix that the paths of `range`, and no others, share.
    pub fn range(&self, range: KeyRange) -> String {
        let folder = match range {
            KeyRange::All => "",
            KeyRange::Nodes => "nodes/",
            KeyRange::Shards => "shards/",
            KeyRange::Intents => "intents/",
            KeyRange::Events => "events/",
        };
        format!("{}{folder}", self.prefix)
    }

    /// Returns the path of a key in etcd.
    pub fn path(&self, key: &Key) -> String {
        let prefix = &self.prefix;
        match key {
            Key::Meta => format!("{prefix}meta"),
            Key::Desired => format!("{prefix}desired"),
            Key::Node(name) => format!("{prefix}nodes/{name}"),
            Key::Shard(id) => format!("{prefix}shards/{id}"),
            Key::Intent(name) => format!("{prefix}intents/{name}"),
            Key::Control => format!("{prefix}control"),
            Key::Report => format!("{prefix}report"),
            Key::Event(slot) => format!("{prefix}events/{slot}"),
            Key::Leader => format!("{prefix}{LEADER}"),
        }
    }

    /// Parses a path.
    ///
    /// # Errors
    /// When the path is not one that [`path`](Self::path) writes.
    pub fn parse(&self, path: &[u8]) -> Result<Key, KeyError> {
        let text = String::from_utf8_lossy(path);
        let Some(rest) = text.strip_prefix(self.prefix.as_str()) else {
            return Err(KeyError::Foreign(text.into_owned(), self.cluster.clone()));
        };
        let key = match rest.split_once('/') {
            None if rest == "meta" => Some(Key::Meta),
            None if rest == "desired" => Some(Key::Desired),
            None if rest == "control" => Some(Key::Control),
            None if rest == "report" => Some(Key::Report),
            Some(("nodes", name)) => name.parse().ok().map(Key::Node),
            Some(("intents", name)) => name.parse().ok().map(Key::Intent),
            Some(("shards", id)) => parse_number(id).map(|id| Key::Shard(ShardId(id))),
            Some(("events", slot)) => parse_number(slot).map(Key::Event),
            Some(_) if rest == LEADER => Some(Key::Leader),
            _ => None,
        };
        key.ok_or_else(|| KeyError::Unknown(text.into_owned()))
    }
}

/// Parses a number as [`Keys::path`] writes it: without sign or leading zero.
fn parse_number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use bolero::check;

    use super::*;

    fn keys() -> Keys {
        Keys::new("north".parse().unwrap())
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let node: NodeId = "rack1.node-7".parse().unwrap();
        let all = [
            Key::Meta,
            Key::Desired,
            Key::Node(node.clone()),
            Key::Shard(ShardId(0)),
            Key::Shard(ShardId(u32::MAX)),
            Key::Intent(node),
            Key::Control,
            Key::Report,
            Key::Event(511),
            Key::Leader,
        ];
        for key in all {
            assert_eq!(keys().parse(keys().path(&key).as_bytes()), Ok(key));
        }
        assert_eq!(keys().path(&Key::Shard(ShardId(12))), "/weir/north/shards/12");
    }

    #[test]
    fn other_clusters_and_other_spellings_are_refused() {
        for path in ["/weir/north2/meta", "/weir/north", "meta", "", "/weir/NORTH/meta"] {
            assert!(matches!(keys().parse(path.as_bytes()), Err(KeyError::Foreign(..))), "{path}");
        }
        for rest in [
            "shards/07",
            "shards/+7",
            "shards/4294967296",
            "events/00",
            "nodes/",
            "nodes/a/b",
            "leader/",
            "metas",
        ] {
            let path = format!("/weir/north/{rest}");
            assert_eq!(keys().parse(path.as_bytes()), Err(KeyError::Unknown(path)));
        }
    }

    #[test]
    fn any_path_that_parses_is_written_the_same() {
        check!().with_iterations(20_000).for_each(|tail: &[u8]| {
            let path = [b"/weir/north/shards/", tail].concat();
            if let Ok(key) = keys().parse(&path) {
                assert_eq!(keys().path(&key).as_bytes(), path);
            }
        });
    }
}
