//! The data path of one worker: each burst is decapsulated, looked up, translated, encapsulated.
//!
//! ```text
//!   access side                                                        internet side
//!   -----------                                                        -------------
//!   ethernet_input -> access_input -> upstream: prefetch, nat, rewrite -> send (Ethernet)
//!        |                 |  (GRE)        |  hairpin
//!        |                 |               v
//!        |  send (GRE) <- downstream: nat, prefetch, rewrite <- internet_input <- ethernet_input
//!        |                 |                                                           |
//!        +-> arp, ping, GRE keepalive: answered in place <-----------------------------+
//! ```
//!
//! In a cluster the access side leads to the other workers too:
//!
//! ```text
//!   no mapping, in a shard whose flows another worker makes:
//!               redirect -> sealed -> that worker's peer_input
//!   peer_input: a datagram -> take_datagram -> opened by the owner of the sessions
//!               redirected here -> receive_redirected -> upstream or downstream, finally
//! ```
//!
//! The engine knows neither DPDK nor a clock nor a thread: frames, buffers ([`weir_wire::frame`]),
//! time ([`Now`]) and seeds are arguments, so the same code runs in a worker, in a test and in a
//! simulator. Each frame that enters either leaves through [`Output`], or is held for a bounded
//! time (as a fragment, or until replicas have its dependency), or is dropped under exactly one
//! [`DropReason`].
//!
//! [`Engine`] itself has the steps of a worker's turn. The configuration and the worker's roles use
//! [`Engine::setup`], operators use [`Engine::admin`].
//!
//! Invariants of the data path: no allocation after [`Engine::new`], no lock, no system call, no
//! log line, and every loop is bounded by the burst or by a configured limit.

#![forbid(unsafe_code)]

mod access_input;
mod admin;
mod arp;
mod both_families;
mod burst;
mod bypass;
mod config;
mod counters;
mod datagram;
mod downstream;
mod drop_reason;
mod duplicate_detection;
mod duty;
mod ecn;
mod endpoints6;
mod engine;
mod error_translation;
mod ethernet_input;
mod fast_path;
mod fast_path_output;
mod flow_key;
mod fragment_cache;
mod fragment_down;
mod fragment_room;
mod fragment_up;
mod frame_pattern;
mod held;
mod icmp_error;
mod identification;
mod internet_input;
mod ip_error;
mod ip_fragment;
mod ip_input;
mod ipv6;
mod late;
mod link_header;
mod live;
mod local;
mod local6;
mod mark;
mod ndp;
mod neighbor;
mod new_flows;
mod outer_fragment;
mod output;
mod output_commit;
mod over_ipv6;
mod packet_direction;
mod packet_preview;
mod packet_trace;
mod party;
mod peer;
mod peer_input;
mod rate_limit;
mod redirect;
mod reject;
mod rewrite;
mod setup;
mod shards;
mod side6;
mod slow_path;
mod tunnel6;
mod tunnel6_output;
mod upstream;
mod waiting_packet;

/// The unit tests use the `world` module of the tests in `tests/`, which refers to this crate by
/// its external name.
#[cfg(test)]
extern crate self as weir_engine;
#[cfg(test)]
#[path = "../tests/engine/world/mod.rs"]
mod world;

pub use admin::{EngineAdmin, TABLES};
pub use config::{
    AccessMode, EngineConfig, EngineError, FragmentLimits, GroupLimits, MssClamp, ResourceLimits,
    ShardConfig, Side6Config, SideConfig,
};
pub use counters::{Counter, Direction, EarlyRelease, EngineCounters};
pub use datagram::DatagramSender;
pub use drop_reason::DropReason;
pub use engine::{BURST_MAX, Engine, Now};
pub use live::{LiveEngineSettings, LiveSettings};
pub use output::{OUTPUT_MAX, Output, Side};
pub use output_commit::{CommitLimits, Uncommitted};
pub use packet_trace::{
    FrameCopy, OUTPUTS_TRACED, PacketTrace, TraceFilter, TracedFlow, TracedKind, TracedOutput,
    TracedStep,
};
pub use peer::Redirects;
pub use setup::EngineSetup;
pub use weir_wire::Misses;
