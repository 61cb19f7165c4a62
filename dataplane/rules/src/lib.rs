//! Ordered rules about new flows. The first rule that fits a flow decides on it, and it is found in
//! a time that does not grow with their number.
//!
//! A rule is one or more [`RuleFilter`]s: a set of prefixes makes a filter of each prefix. Each
//! filter goes through one door, the one that the fewest others share; a question asks all doors,
//! and the lowest rule number wins.
//!
//! ```text
//!   remote address -> longest prefix -> list      block lists, redirects
//!   local address  -> longest prefix -> list      rules of a home, forwards; and the home's group
//!   remote port    -> page of ports  -> list      rules about services, wide on both addresses
//!   local port     -> page of ports  -> list
//!   kind and group ------------------> rule       rules wide on all of these
//!
//!   list: filters from the lowest rule number on; what the door has decided is not in them
//!   list of a nested prefix: a copy of the outer prefix's list with its own filters, or,
//!   where that is long, its own filters and a link to the outer list
//!   list of a block of addresses with a filter or two: these filters, with their prefixes
//! ```
//!
//! The address walk is a poptrie (Asai, Ohara: "Poptrie", SIGCOMM 2015): the first bits, as many as
//! the prefixes need, choose a root, then each node decides on six bits. A walk ends where a block
//! has few filters: to compare these is less than to walk on, and most blocks of scattered prefixes
//! need no node at all. [`Classifier::bound`] states how many filters are compared at most,
//! whatever the packet. IPv4 and IPv6 have a classifier each, of one source text; a [`RuleSet`] has
//! both, with one list of rules. The crate is pure: it knows no file, no clock and no packet.

#![forbid(unsafe_code)]

mod address;
mod classifier;
mod doors;
mod filter;
mod flow_class;
mod flow_kind;
mod flow_policy;
mod lists;
mod packed;
mod ports;
mod prefix_lists;
mod prefix_pair;
mod rule_set;
#[cfg(any(test, feature = "shapes"))]
pub mod shapes;
mod trie;
mod wide_rules;

pub use address::{IpAddress, Prefix};
pub use classifier::{Bound, Classifier, NO_RULE, QuestionWalks, TOGETHER, WorstPacket};
pub use doors::TooManyFilters;
pub use filter::{PortRange, Question, RuleFilter, first_match};
pub use flow_class::{CLASSES, FlowClass};
pub use flow_kind::{FlowKind, FlowKinds, FlowOrigin};
pub use flow_policy::{Destination, FlowPolicy, SOURCE_POOLS, SourcePool};
pub use rule_set::{DecidingRule, GROUPS, OUTCOMES_MAX, OUTER_HANDLES, RuleAction, RuleSet};
