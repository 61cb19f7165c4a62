//! The common baseline: source NAT by the Linux kernel (nftables and conntrack), on one core.
//!
//! No generator runs beside it: an XDP program makes the frames inside the kernel, and BPF_PROG_RUN
//! with BPF_F_TEST_XDP_LIVE_FRAMES (Linux 5.18) passes them to the stack as a driver would, 64 at a
//! time. Another XDP program behind the egress interface counts the arriving frames and drops them.
//!
//! ```text
//!   BPF_PROG_RUN ─▶ feeder ─▶ access ▶ forward, conntrack, SNAT ▶ internet ──veth──▶ sink
//!                             └───────── a network namespace of the thread ────────────┘
//! ```
//!
//! All of it is one thread on one core, softirqs included. First every flow is opened and answered
//! once; then 60-byte frames (64 with FCS) go up, their flows in an order far from that of
//! creation. Only frames with a translated source are counted; a sample of them is checked to the
//! last byte. The host keeps nothing: interfaces, ruleset, sessions and programs end with the
//! thread.

mod assembler;
mod bpf;
mod feeder;
mod flow;
mod namespace;
mod sink;

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_dpdk::tsc;

use feeder::{Feeder, permuting_step};
use flow::{Direction, FLOWS_MAX};
use sink::Sink;

/// Frames of the warm-up run, which shows how many fit a call.
const WARM_UP_FRAMES: u32 = 262_144;
/// Longest run of one system call. Each call sleeps some 20 ms while the kernel sets up and frees
/// its pages, which is no cost of a packet: the fewer calls, the better.
const CALL: Duration = Duration::from_secs(10);

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct LinuxNatPlan {
    /// UDP flows, each established in both directions: 1 to 4,194,304, and at most
    /// `nf_conntrack_max`.
    pub flows: u32,
    /// Approximate length of the flood; from 2 s on the sleeps of the system call are below one
    /// percent.
    pub seconds: Duration,
    /// The core that runs everything.
    pub core: usize,
    pub rules: LinuxRules,
}

/// Rules about flows that begin, behind the one that lets the packets of live flows pass: an ISP's
/// mix, of which none fits the flood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinuxRules {
    pub count: u32,
    /// Whether they are elements of three sets (homes, remotes, ports), not rules of their own.
    pub are_sets: bool,
}

/// The result of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinuxNatResult {
    /// Packets translated and forwarded, in millions a second.
    pub mpps: f64,
    /// Cycles of the time stamp counter, including those for making and counting the frames.
    pub cycles_per_packet: f64,
    /// The same while the flows were opened, each by one packet, and with the set-up of the system
    /// call, some 20 ms in all: that is little from 100,000 flows on.
    pub opening_cycles_per_packet: f64,
    /// Packets translated and forwarded.
    pub packets: u64,
    /// Sessions in conntrack afterwards.
    pub sessions: u64,
}

/// Why the NAT was not measured, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{0}")]
pub struct Skipped(pub String);

impl Skipped {
    fn bpf(errno: nix::Error) -> Skipped {
        match errno {
            nix::Error::EPERM => Skipped("XDP programs need root or CAP_BPF".into()),
            nix::Error::EINVAL | nix::Error::E2BIG => Skipped(format!(
                "the kernel does not run XDP on live frames, Linux 5.18 does: {}",
                errno.desc()
            )),
            _ => Skipped(format!("XDP: {}", errno.desc())),
        }
    }
}

/// Measures the kernel's NAT. Needs root, `ip` and `nft`; a missing one is the reason of
/// [`Skipped`].
pub fn measure(plan: &LinuxNatPlan) -> Result<LinuxNatResult, Skipped> {
    observe(plan).map(|(result, _)| result)
}

/// Like [`measure`], and returns frames that left the kernel in the measured time: up to 64, each
/// 60 bytes from the Ethernet header on, all verified.
pub fn observe(plan: &LinuxNatPlan) -> Result<(LinuxNatResult, Vec<Vec<u8>>), Skipped> {
    if !(1..=FLOWS_MAX).contains(&plan.flows) {
        return Err(Skipped(format!("the address plan has room for 1 to {FLOWS_MAX} flows")));
    }
    // Namespace and core affinity belong to the thread and end with it.
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("linux-nat".into())
            .spawn_scoped(scope, || flood(plan))
            .map_err(|error| Skipped(format!("no thread: {error}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn flood(plan: &LinuxNatPlan) -> Result<(LinuxNatResult, Vec<Vec<u8>>), Skipped> {
    let router = namespace::build(plan)?;
    let up = Feeder::new(Direction::Up, router.access).map_err(Skipped::bpf)?;
    let down = Feeder::new(Direction::Down, router.internet).map_err(Skipped::bpf)?;
    let hosts = Sink::attach(Direction::Up, router.hosts).map_err(Skipped::bpf)?;
    let homes = Sink::attach(Direction::Down, router.homes).map_err(Skipped::bpf)?;

    let opening = establish(plan.flows, &up, &hosts)?;
    establish(plan.flows, &down, &homes)?;
    check(&homes, Direction::Down, plan.flows)?;

    up.start(plan.flows, permuting_step(plan.flows)).map_err(Skipped::bpf)?;
    let start = Instant::now();
    up.send(WARM_UP_FRAMES).map_err(Skipped::bpf)?;
    let rate_pps = f64::from(WARM_UP_FRAMES) / start.elapsed().as_secs_f64();
    let frames = (rate_pps * plan.seconds.min(CALL).as_secs_f64()) as u32;

    let before = hosts.translated().map_err(Skipped::bpf)?;
    let (start, start_cycles) = (Instant::now(), tsc());
    // The machine may have become faster: a call that ends early suffices once most of the time is
    // over.
    while start.elapsed() < plan.seconds * 3 / 4 {
        up.send(frames.max(1)).map_err(Skipped::bpf)?;
    }
    let (elapsed, cycles) = (start.elapsed(), tsc() - start_cycles);
    let packets = hosts.translated().map_err(Skipped::bpf)? - before;
    if packets == 0 {
        return Err(Skipped("no packet left the kernel in the measured time".into()));
    }
    let samples = check(&hosts, Direction::Up, plan.flows)?;
    let result = LinuxNatResult {
        mpps: packets as f64 / elapsed.as_secs_f64() / 1e6,
        cycles_per_packet: cycles as f64 / packets as f64,
        opening_cycles_per_packet: opening as f64 / f64::from(plan.flows),
        packets,
        sessions: namespace::sessions()?,
    };
    Ok((result, samples))
}

/// Sends one packet of each flow; all must come out. Returns the cycles that it took.
fn establish(flows: u32, feeder: &Feeder, sink: &Sink) -> Result<u64, Skipped> {
    feeder.start(flows, u32::from(flows > 1)).map_err(Skipped::bpf)?;
    let start = tsc();
    feeder.send(flows).map_err(Skipped::bpf)?;
    let cycles = tsc() - start;
    let translated = sink.translated().map_err(Skipped::bpf)?;
    if translated < u64::from(flows) {
        return Err(Skipped(format!(
            "of {flows} flows the kernel translated only {translated}: it is no baseline"
        )));
    }
    Ok(cycles)
}

fn check(sink: &Sink, direction: Direction, flows: u32) -> Result<Vec<Vec<u8>>, Skipped> {
    let samples = sink.samples().map_err(Skipped::bpf)?;
    for frame in &samples {
        flow::check(frame, direction, flows)
            .map_err(|why| Skipped(format!("the kernel sent a wrong packet: {why}")))?;
    }
    Ok(samples)
}
