//! What a search says.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::SystemTime;

/// The answer of the logs to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub verdict: Verdict,
    /// The times asked about, the error of the clocks included; `None`: the logs know nothing of what was asked.
    pub asked: Option<(SystemTime, SystemTime)>,
    /// The tenancies that touch that time, in order of their beginning.
    pub holders: Vec<Holder>,
    /// Why the logs do not tell all of that time.
    pub missing: Vec<Missing>,
    /// Records the nodes reported as lost, in the logs that were read.
    pub records_lost: u64,
    /// Lines that are no records, such as one that a crash cut off.
    pub lines_unreadable: u64,
    /// Files that were not read, since those around the time asked about have the answer.
    pub files_skipped: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By one home; where an address or a home was asked for: by these and no others.
    Held,
    Nobody,
    /// More than one home comes into question, or a part of the time is not known.
    CannotSay,
}

/// A home that held a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// As `begin` says.
    pub from: Option<SystemTime>,
    pub begin: Begin,
    /// As `end` says.
    pub until: Option<SystemTime>,
    pub end: End,
    /// The nodes that had the block in that time, in order.
    pub nodes: Vec<String>,
    pub shard: u32,
    /// Outer source address in gre mode, inside address in plain mode.
    pub subscriber: Ipv4Addr,
    pub gre_key: Option<u32>,
    pub public: Ipv4Addr,
    /// The block, both ports included.
    pub ports: (u16, u16),
}

/// How a tenancy began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Begin {
    /// At `from`.
    Allocated,
    /// At `from` or before: a listing says so.
    Listed,
    /// The logs do not say when; it was held at `from`.
    Unknown,
}

/// How a tenancy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// At `until`.
    Released,
    /// At `until`: the node stopped.
    NodeStopped,
    /// At `until` or before: the node started again.
    NodeRestarted,
    /// At `until` or before: another worker took the lane, and did not find the home there.
    NotListed,
    /// At `until` or before: another home has the block, and the record of the release is missing.
    GivenToAnother,
    /// At `until` or later: then the logs do not say more.
    Unknown,
    /// It had not ended at the end of these logs; no `until`.
    Open,
}

/// A time of which the logs do not tell all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// `None`: since ever.
    pub from: Option<SystemTime>,
    /// `None`: for ever.
    pub until: Option<SystemTime>,
    pub shard: Option<u32>,
    pub lane: Option<u8>,
    pub reason: Reason,
    /// The node and the epoch that `reason` is about.
    pub node: Option<String>,
    pub epoch: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No record names what was asked for.
    NotNamed,
    /// No record is of this lane.
    LaneMissing,
    /// The logs begin later.
    BeforeLogs,
    /// The log of the owner since `epoch` is missing.
    OwnerMissing,
    /// The owner before `epoch` is not known.
    OwnerUnknown,
    /// The beginning of what `node` wrote is missing.
    BeginMissing,
    /// The log of `node` ends without a word that it gave the lane away.
    CutOff,
    /// `node` took the lane and did not list what it held.
    NotListed,
    /// Records of `node` are missing.
    RecordsMissing,
    /// Records of `node` do not go with those before.
    Contradiction,
    /// A life of `node` may be missing.
    LifeMissing,
    /// The log of `node` ends.
    EndOfLog,
    /// `node` gave the lane away, and the log of the next owner is missing.
    NextOwnerMissing,
}

impl Reason {
    /// For programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotNamed => "not-named",
            Self::LaneMissing => "lane-missing",
            Self::BeforeLogs => "before-logs",
            Self::OwnerMissing => "owner-missing",
            Self::OwnerUnknown => "owner-unknown",
            Self::BeginMissing => "begin-missing",
            Self::CutOff => "log-cut-off",
            Self::NotListed => "not-listed",
            Self::RecordsMissing => "records-missing",
            Self::Contradiction => "contradiction",
            Self::LifeMissing => "life-missing",
            Self::EndOfLog => "end-of-log",
            Self::NextOwnerMissing => "next-owner-missing",
        }
    }
}

/// The reason as a sentence, without the times.
impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(shard), Some(lane)) = (self.shard, self.lane) {
            write!(f, "shard {shard} lane {lane}: ")?;
        }
        let node = self.node.as_deref().unwrap_or("a node");
        let epoch = self.epoch.unwrap_or_default();
        let owner = match self.epoch {
            Some(epoch) => format!("{node} (owner since epoch {epoch})"),
            None => node.to_owned(),
        };
        match self.reason {
            Reason::NotNamed => write!(f, "no record names it; its log may be missing"),
            Reason::LaneMissing => write!(f, "these logs have no record of the lane"),
            Reason::BeforeLogs => write!(f, "these logs begin with {owner}"),
            Reason::OwnerMissing => {
                write!(
                    f,
                    "the log of the owner since epoch {epoch} is missing; {node} came after it"
                )
            }
            Reason::OwnerUnknown => {
                write!(f, "the log of the owner before {owner} is missing")
            }
            Reason::BeginMissing => write!(f, "the first records of {owner} are missing"),
            Reason::CutOff => {
                write!(f, "the log of {owner} is cut off; its last records may be missing")
            }
            Reason::NotListed => write!(f, "{owner} took the lane and did not list what it held"),
            Reason::RecordsMissing => write!(f, "records of {owner} are missing"),
            Reason::Contradiction => write!(f, "records of {owner} do not go with those before"),
            Reason::LifeMissing => {
                write!(f, "{node} may have run meanwhile; the log of that time would be missing")
            }
            Reason::EndOfLog => write!(f, "the log of {owner} ends"),
            Reason::NextOwnerMissing => {
                write!(f, "{owner} gave the lane away; the log of the next owner is missing")
            }
        }
    }
}
