//! Workers of a cluster, each the turn of `weir_worker` with its engine, over a network in virtual
//! time that loses, repeats and delays: their flows, copies and lanes, the packets that they
//! redirect, and output commit.

mod cluster;
mod copies;
mod hostile;
mod keys;
mod lanes;
mod many;
mod member;
mod messages;
mod network;
mod pair;
mod plan;
mod redirects;
mod seeds;
mod survivors;
mod versions;
