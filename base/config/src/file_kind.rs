//! The kinds of files, and which keys may stand in which.
//!
//! ```text
//!   single node     [node] [[worker]]             [access] [nat] [timeouts] [fragments] [limits] [[shard]]
//!   node of a       [node] [[worker]] [cluster]
//!   cluster file                      [cluster]   [access] [nat] [timeouts] [fragments] [limits] [[shard]] [[pool]]
//! ```
//!
//! A fact stands in one place: what concerns one machine in its node's file, what concerns all of them in the cluster
//! file.

use toml::de::DeTable;

/// What a document describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A node that is all there is.
    Single,
    /// A node of a cluster.
    Member,
    /// What all nodes of a cluster share.
    Cluster,
    /// The checked cluster file as it lies in etcd: every shard by itself, and keys of newer versions.
    Stored,
}

impl FileKind {
    /// What `document` seems to be: with pools or `[cluster]` part of a cluster, with a process or workers a node.
    pub(crate) fn of(document: &DeTable<'_>) -> Self {
        let has = |names: [&str; 2]| names.iter().any(|name| document.contains_key(*name));
        match (has(["cluster", "pool"]), has(["node", "worker"])) {
            (true, false) => Self::Cluster,
            (true, true) if document.contains_key("cluster") => Self::Member,
            _ => Self::Single,
        }
    }

    /// Whether keys that nobody knows are passed over.
    pub(crate) fn takes_unknown_keys(self) -> bool {
        self == Self::Stored
    }

    /// What is wrong with a key of `files` in a file of this kind, and what to do.
    pub(crate) fn misplaced(self, files: Files) -> (&'static str, String) {
        let (message, fix) = match self {
            Self::Member => ("the same for the whole cluster", "write it in the cluster file"),
            Self::Cluster | Self::Stored if files.has(Self::Member) => {
                ("belongs to one node", "write it in that node's file")
            }
            Self::Cluster | Self::Stored => ("has a meaning on a single node only", "remove it"),
            Self::Single if files.has(Self::Member) => {
                ("has a meaning in a cluster only", "remove it, or write a section [cluster]")
            }
            Self::Single => ("has a meaning in the cluster file only", "remove it"),
        };
        (message, fix.to_owned())
    }
}

/// Some of the kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Files(u8);

impl Files {
    pub(crate) const SINGLE: Self = Self(1);
    pub(crate) const MEMBER: Self = Self(2);
    pub(crate) const CLUSTER: Self = Self(4);
    pub(crate) const ALL: Self = Self(7);
    /// What concerns one machine.
    pub(crate) const NODE: Self = Self::SINGLE.or(Self::MEMBER);
    /// What all homes get, wherever they are served.
    pub(crate) const SERVICE: Self = Self::SINGLE.or(Self::CLUSTER);
    pub(crate) const OF_CLUSTERS: Self = Self::MEMBER.or(Self::CLUSTER);

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn has(self, file: FileKind) -> bool {
        let bits = match file {
            FileKind::Single => Self::SINGLE,
            FileKind::Member => Self::MEMBER,
            FileKind::Cluster | FileKind::Stored => Self::CLUSTER,
        };
        self.0 & bits.0 != 0
    }

    /// As the reference calls them.
    pub(crate) fn words(self) -> String {
        let words = [
            (Self::SINGLE, "single node"),
            (Self::MEMBER, "node of a cluster"),
            (Self::CLUSTER, "cluster file"),
        ];
        let these = words.iter().filter(|(files, _)| self.0 & files.0 != 0);
        these.map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
    }
}
