//! Administration: listings, flushes and numbers for operators, in pieces between bursts.

pub(crate) mod facet;
pub(crate) mod flow_trace;
pub(crate) mod flush;
pub(crate) mod gauges;
mod listings;
pub(crate) mod session_view;
