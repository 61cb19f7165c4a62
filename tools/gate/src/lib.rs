//! The instruction gate: how many instructions the engine spends on a packet, and how many it may.
//!
//! ```text
//!   weir-gate            for each part: valgrind --tool=callgrind weir-gate run PART
//!                        ->  instructions / packets <= limit
//!   weir-gate run PART   builds an engine, fills it,
//!                        sends the part's bursts through `measured_burst`
//! ```
//!
//! Noise cannot move the counts: packets, their order, hash keys and time are fixed, there is no
//! device and no thread. Only release builds count. The gate does not see cache misses, packet
//! input and output, or the worker's loop.

#![forbid(unsafe_code)]

pub mod buffer;
pub mod callgrind;
mod mirroring;
pub mod trace;
mod trace6;
mod trace_gre6;
pub mod world;

/// A part of the trace and its limit.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub name: &'static str,
    pub about: &'static str,
    /// Instructions per packet, a few percent above the measured count (rustc 1.95, x86-64-v3).
    /// Lower it when the code gets better; raise it only with a reason in the commit.
    pub limit: f64,
    pub run: fn() -> usize,
}

/// Every part. `run` sends its packets through [`world::measured_burst`], or its flow changes
/// through a function with the same prefix, and returns the number of packets or flows.
pub const PARTS: [Part; 34] = [
    part("gre-udp-up", "established UDP, home to internet", 298.0, trace::gre_udp_up),
    part("gre-udp-down", "established UDP, internet to home", 308.0, trace::gre_udp_down),
    part("gre-tcp-up", "established TCP, home to internet", 390.0, trace::gre_tcp_up),
    part("gre-tcp-down", "established TCP, internet to home", 320.0, trace::gre_tcp_down),
    part("gre-udp-open", "first packets of UDP flows", 1020.0, trace::gre_udp_open),
    part("gre-tcp-open", "SYNs, the MSS clamped", 1238.0, trace::gre_tcp_open),
    part("open-homes-100", "as gre-udp-open, 100 flows a home", 994.0, trace::open_homes_100),
    part("open-homes-1000", "as gre-udp-open, 1,000 flows a home", 1070.0, trace::open_homes_1000),
    part("open-homes-3000", "as gre-udp-open, 3,000 flows a home", 1137.0, trace::open_homes_3000),
    part("plain-udp-up", "established UDP without tunnels, up", 308.0, trace::plain_udp_up),
    part("plain-udp-down", "established UDP without tunnels, down", 254.0, trace::plain_udp_down),
    part("ipv6-gre-up", "IPv6, established UDP, home to internet", 309.0, trace6::gre_up),
    part("ipv6-gre-down", "IPv6, established UDP, internet to home", 317.0, trace6::gre_down),
    part("ipv6-plain-up", "IPv6 without tunnels, up", 252.0, trace6::plain_up),
    part("ipv6-plain-down", "IPv6 without tunnels, down", 252.0, trace6::plain_down),
    part("ipv6-gre-open", "IPv6, first packets of UDP flows", 1725.0, trace6::gre_open),
    part("ipv6-plain-open", "the same without tunnels", 1306.0, trace6::plain_open),
    part("mixed-up", "gre-udp-up and ipv6-gre-up in turn", 315.0, trace6::mixed_up),
    part("mixed-down", "gre-udp-down and ipv6-gre-down in turn", 327.0, trace6::mixed_down),
    part("gre6-up", "as gre-udp-up, tunnels over IPv6", 425.0, trace_gre6::udp_up),
    part("gre6-down", "as gre-udp-down, tunnels over IPv6", 320.0, trace_gre6::udp_down),
    part("gre6-open", "as gre-udp-open, tunnels over IPv6", 1432.0, trace_gre6::udp_open),
    part("ipv6-gre6-up", "as ipv6-gre-up, tunnels over IPv6", 409.0, trace_gre6::ipv6_up),
    part("ipv6-gre6-down", "as ipv6-gre-down, tunnels over IPv6", 337.0, trace_gre6::ipv6_down),
    part("rules-up", "as gre-udp-up, 100,000 rules loaded", 298.0, trace::rules_up),
    part("rules-open", "as gre-udp-open, 1,000 rules that accept", 1184.0, trace::rules_open),
    part(
        "rules-refused",
        "first packets that one of 1,000 rules drops",
        747.0,
        trace::rules_refused,
    ),
    part("no-mapping", "from the internet to ports that no home holds", 592.0, trace::no_mapping),
    part("flood-syn", "SYNs of a home over its limit of the slow path", 408.0, trace::flood_syn),
    part("flood-remotes", "one port to new remotes, over the limit", 415.0, trace::flood_remotes),
    part("flood-fragments", "first fragments, over the limit", 519.0, trace::flood_fragments),
    part(
        "replica-open",
        "first packets of UDP flows, noted for replicas",
        1084.0,
        trace::replica_open,
    ),
    part(
        "replica-journal",
        "a new flow read from the journal, its change written",
        135.0,
        mirroring::journal,
    ),
    part(
        "replica-apply",
        "a new flow of another worker stored and indexed",
        620.0,
        mirroring::apply,
    ),
];

const fn part(name: &'static str, about: &'static str, limit: f64, run: fn() -> usize) -> Part {
    Part { name, about, limit, run }
}
