//! The result of a search.

use std::fmt;
use std::net::IpAddr;
use std::time::SystemTime;

use crate::holding::Holding;

/// The answer of the logs to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogAnswer {
    pub verdict: LogVerdict,
    /// The times asked about, widened by the clock error; `None` if the logs know nothing of the
    /// subject.
    pub asked: Option<(SystemTime, SystemTime)>,
    /// The tenancies that touch that time, in order of their start.
    pub holders: Vec<BlockHolder>,
    /// Why the logs do not cover all of that time.
    pub missing: Vec<Missing>,
    /// Records that nodes reported as lost, in the logs that were read.
    pub records_lost: u64,
    /// Lines that are no records, such as one that a crash cut off.
    pub lines_unreadable: u64,
    /// Files that were not read, because those around the time asked about have the answer.
    pub files_skipped: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogVerdict {
    /// By one home; if the question is about an address or a home: by the holders listed and no
    /// others.
    Held,
    Nobody,
    /// More than one home may have held it, or a part of the time is not covered.
    CannotSay,
}

/// A home that held a block or a prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockHolder {
    /// The time to which `begin` refers.
    pub from: Option<SystemTime>,
    pub begin: Begin,
    /// The time to which `end` refers.
    pub until: Option<SystemTime>,
    pub end: TenancyEnd,
    /// The nodes that had its lane in that time, in order.
    pub nodes: Vec<String>,
    pub shard: u32,
    /// Outer source address in gre mode, inside address in plain mode.
    pub subscriber: IpAddr,
    pub gre_key: Option<u32>,
    pub holding: Holding,
}

/// How a tenancy began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Begin {
    /// At `from`.
    Allocated,
    /// At `from` or before: a listing names the home.
    Listed,
    /// The logs do not show when; the home held the block at `from`.
    Unknown,
}

/// How a tenancy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TenancyEnd {
    /// At `until`.
    Released,
    /// At `until`: the node stopped.
    NodeStopped,
    /// At `until` or before: the node started again.
    NodeRestarted,
    /// At `until` or before: another worker took the lane, and did not list the home.
    NotListed,
    /// At `until` or before: another home has it, and the record of the release is missing.
    GivenToAnother,
    /// At `until` or later: the logs say nothing about the time after it.
    Unknown,
    /// It had not ended at the end of these logs; no `until`.
    Open,
}

/// A time that the logs do not cover completely.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// `None`: without a beginning.
    pub from: Option<SystemTime>,
    /// `None`: without an end.
    pub until: Option<SystemTime>,
    pub shard: Option<u32>,
    pub lane: Option<u8>,
    pub reason: Reason,
    /// The node and the epoch that `reason` refers to.
    pub node: Option<String>,
    pub epoch: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No record names the subject of the question.
    NotNamed,
    /// There is no record of this lane.
    LaneMissing,
    /// The logs begin later.
    BeforeLogs,
    /// The log of the owner since `epoch` is missing.
    OwnerMissing,
    /// The owner before `epoch` is not known.
    OwnerUnknown,
    /// The first records of `node` are missing.
    BeginMissing,
    /// The log of `node` ends without a record that it gave the lane away.
    CutOff,
    /// `node` took the lane and did not list what it held.
    NotListed,
    /// Records of `node` are missing.
    RecordsMissing,
    /// Records of `node` contradict those before.
    Contradiction,
    /// An incarnation of `node` may be missing.
    LifeMissing,
    /// The log of `node` ends.
    EndOfLog,
    /// `node` gave the lane away, and the log of the next owner is missing.
    NextOwnerMissing,
}

impl Reason {
    /// Returns a code for programs.
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

/// Formats the reason as a sentence, without the times.
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
