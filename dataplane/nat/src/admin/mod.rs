//! Administration: listings, flushes and numbers for operators, in pieces between bursts.

pub(crate) mod facet;
pub(crate) mod flow_trace;
pub(crate) mod flush;
pub(crate) mod gauges;
mod home_listing;
pub(crate) mod home_selector;
pub(crate) mod session_filter;
mod session_listing;
pub(crate) mod session_view;
