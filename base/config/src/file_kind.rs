//! The kinds of files, and the keys that each may contain.
//!
//! ```text
//!   single node        [node] [[worker]]            service [[shard]]
//!   node of a cluster  [node] [[worker]] [cluster]
//!   cluster file                         [cluster]  service [[shard]] [[pool]]
//!
//!   service: [access] [nat] [timeouts] [fragments] [limits] [[set]] [[group]] [[class]]
//!            [[source_pool]] [[rule]] [public]
//! ```
//!
//! Each fact has one place: facts about one machine in its node's file, facts about all machines in
//! the cluster file.

use toml::de::DeTable;

/// Kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A node without a cluster.
    Single,
    /// A node of a cluster.
    Member,
    /// The settings that all nodes of a cluster share.
    Cluster,
    /// The checked cluster file as stored in etcd: every shard listed, possibly with keys of newer
    /// versions.
    Stored,
}

impl FileKind {
    /// Guesses the kind of `document`: with pools or `[cluster]` it is part of a cluster, with a
    /// process or workers a node.
    pub(crate) fn of(document: &DeTable<'_>) -> Self {
        let has = |names: [&str; 2]| names.iter().any(|name| document.contains_key(*name));
        match (has(["cluster", "pool"]), has(["node", "worker"])) {
            (true, false) => Self::Cluster,
            (true, true) if document.contains_key("cluster") => Self::Member,
            _ => Self::Single,
        }
    }

    /// Whether unknown keys are skipped.
    pub(crate) fn takes_unknown_keys(self) -> bool {
        self == Self::Stored
    }

    /// Returns the error for a key of `files` in a file of this kind, and the fix.
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

/// A set of kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Files(u8);

impl Files {
    pub(crate) const SINGLE: Self = Self(1);
    pub(crate) const MEMBER: Self = Self(2);
    pub(crate) const CLUSTER: Self = Self(4);
    pub(crate) const ALL: Self = Self(7);
    /// Kinds with keys of one machine.
    pub(crate) const NODE: Self = Self::SINGLE.or(Self::MEMBER);
    /// Kinds with the service that all homes get, whichever worker serves them.
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

    /// Returns the names of the kinds in the reference.
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
