//! The operator's rules, from the configuration to what a worker asks.
//!
//! ```text
//!   PolicySettings --+
//!                    +--expand--> filters --weir_rules--> RuleSet      (a worker asks it)
//!   LoadedSet, ... --+               |
//!                                    +--> explain: all rules that fit a flow, in order
//!                                    +--> warnings: rules never reached, sets without use
//!                                    +--> compare: flows on which two policies differ
//! ```
//!
//! A rule makes a filter for each combination of its subscribers, remotes and ports; the prefixes
//! of one rule are merged before. Each family has filters of its own, of the rule's prefixes of
//! that family: a rule without addresses has some in both. The crate is pure: it reads no file and
//! knows no clock.

#![forbid(unsafe_code)]

mod compare;
mod compile;
mod corners;
mod cover;
mod error;
mod expand;
mod family;
mod given;
mod question;
mod warning;

pub use compare::{
    ComparedHomes, DecisionChange, PolicyComparison, PolicyDecision, QUESTIONS_MAX, compare,
};
pub use compile::{CompiledPolicy, RuleExplanation, compile};
pub use error::PolicyError;
pub use question::{FlowAddresses, FlowQuestion, RuleVerdict};
pub use warning::{PolicySubject, PolicyWarning, warnings};
