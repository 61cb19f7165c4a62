//! Workers of a cluster over a network that loses, repeats and delays: their flows, copies and lanes.

mod copies;
mod hostile;
mod keys;
mod lanes;
mod many;
mod messages;
mod network;
mod plan;
mod seeds;
mod site;
mod worker;
