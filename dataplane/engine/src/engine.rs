//! The engine of one worker: its links, its shards, its NAT, and the order of the processing steps.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_nat::{AddressRanges, Nat, Tick};
use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};

use crate::access_input::Up;
use crate::burst::Burst;
use crate::config::{EngineConfig, EngineError};
use crate::counters::Direction;
use crate::datagram::Datagrams;
use crate::duty::DutyTable;
use crate::ethernet_input::WorkerSide;
use crate::fragment_cache::FragmentCache;
use crate::frame_pattern::Patterns;
use crate::held::HeldFrames;
use crate::identification::Identifications;
use crate::internet_input::Down;
use crate::ip_error::ErrorLimiter;
use crate::ipv6::Burst6;
use crate::live::{LiveEngineSettings, mss_max, tunnel_mtu};
use crate::new_flows::NewFlows;
use crate::outer_fragment::OuterFragments;
use crate::peer::RedirectPeers;
use crate::rate_limit::PartyLimit;
use crate::redirect::{UNSEALED_MAX, Unsealed};
use crate::shards::Shards;
use crate::slow_path::SlowPathLimit;
use crate::{AccessMode, DropReason, EngineCounters, Output, Side};

/// Largest number of frames that one call of [`Engine::receive`] takes.
pub const BURST_MAX: usize = 64;

/// Number of frames whose headers are prefetched before the first is read: the sender's core has
/// them in its cache.
pub(crate) const PREFETCH_AHEAD: usize = 8;

/// Time in which the whole table is swept, milliseconds: an expired flow is removed at most about
/// this much late.
const SWEEP_MS: u64 = 4_000;
/// Largest number of slots that one call of [`Engine::tick`] looks at.
const SWEEP_SLOTS_MAX: u64 = 16_384;
/// Approximate limit on the flows that one call ends: an end costs as much as many look-ups, and
/// packets must not wait when all flows end at once.
const SWEEP_ENDS_MAX: usize = 256;
/// Largest number of fragmented datagrams that one call forgets.
const FRAGMENT_SWEEP_MAX: usize = 64;

/// Limit on the packets redirected to other workers a second; the burst is as large. Each costs its
/// receiver a look-up, and a worker with wrong information must not overload another.
const REDIRECTS_PER_SEC: u32 = 100_000;
/// Number of homes and remotes whose redirected packets are counted at once.
const REDIRECT_PARTIES: usize = 4096;

/// Time of a burst: milliseconds of a monotonic clock with an arbitrary zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    pub ms: u64,
}

impl Now {
    pub(crate) fn tick(self) -> Tick {
        Tick((self.ms / 1000) as u32)
    }
}

/// Arguments of every step besides the engine: the buffers, the output, the time.
pub(crate) struct Context<'a, P: Pool> {
    pub(crate) pool: &'a mut P,
    pub(crate) out: &'a mut Output<P::Frame>,
    pub(crate) now: Now,
}

/// The data path of one worker. `F` is the type of its packet buffers.
#[derive(Debug)]
pub struct Engine<F: Frame> {
    pub(crate) mode: AccessMode,
    /// Number of the generation, and its settings, of which what packets need is kept apart.
    pub(crate) generation: u64,
    pub(crate) live: LiveEngineSettings,
    /// Largest segment that SYNs may announce, bytes; `None`: unchanged. The second value applies
    /// once a home has sent a GRE key. First of homes with tunnels over IPv4, then over IPv6.
    pub(crate) mss_max: [[Option<u16>; 2]; 2],
    /// Whether packets with a source route pass.
    pub(crate) forwards_source_routes: bool,
    pub(crate) shards: Shards,
    pub(crate) nat: Nat,
    pub(crate) fragments: FragmentCache<F>,
    pub(crate) outer_fragments: OuterFragments<F>,
    pub(crate) errors: ErrorLimiter,
    pub(crate) duties: DutyTable,
    pub(crate) peers: RedirectPeers,
    pub(crate) redirects: PartyLimit,
    pub(crate) slow_path: SlowPathLimit,
    pub(crate) datagrams: Datagrams<F>,
    /// Packets for other workers that wait to be sealed.
    pub(crate) unsealed: VecDeque<Unsealed<F>>,
    pub(crate) counters: Arc<EngineCounters>,
    pub(crate) identifications: Identifications,
    /// Identification of the last tunnel packet.
    pub(crate) outer_identification: u16,
    pub(crate) up: Burst<Up>,
    pub(crate) down: Burst<Down>,
    /// The IPv6 packets of a burst; `None` on a worker without IPv6, which looks for none.
    pub(crate) burst6: Option<Box<Burst6<F>>>,
    pub(crate) new_flows: NewFlows<F>,
    pub(crate) held: HeldFrames<F>,
    /// Largest packet that fits the tunnel of every known home, bytes.
    pub(crate) tunnel_mtu_least: usize,
    /// Value of `tunnel_mtu_least` once a home has sent a GRE key.
    pub(crate) tunnel_mtu_keyed: usize,
    pub(crate) links: [WorkerSide; 2],
    pub(crate) patterns: Patterns,
    flows_max: u64,
    swept_ms: u64,
    /// Slots that the sweep still has to look at.
    sweep_due: u64,
    /// Public addresses of all shards, whichever worker serves them.
    pub(crate) all_public: Arc<AddressRanges>,
}

impl<F: Frame> Engine<F> {
    /// Builds the tables. No other function allocates.
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        if config.shards.len() != config.nat.shards.len() {
            let (engine, nat) = (config.shards.len(), config.nat.shards.len());
            return Err(EngineError::ShardCount { engine, nat });
        }
        for (side, link) in [("access", &config.access), ("internet", &config.internet)] {
            if link.gateways.is_empty() {
                return Err(EngineError::NoGateway(side));
            }
            if link.ipv6.as_ref().is_some_and(|ipv6| ipv6.gateways.is_empty()) {
                return Err(EngineError::NoGateway6(side));
            }
        }
        let [access, internet] = [&config.access, &config.internet].map(WorkerSide::new);
        let has_ipv6 = access.ipv6.is_some() || internet.ipv6.is_some();
        let patterns = Patterns::new([&access, &internet], config.mode);
        let live = LiveEngineSettings::of(&config);
        let limits = config.limits;
        let [tunnel_mtu_least, tunnel_mtu_keyed] = tunnel_mtu(config.mode, access.mtu);
        let [first, second, third, fourth] = config.nat.seed;
        let party_seed = [first ^ third, second ^ fourth];
        let redirect_parties = if config.peers_max > 0 { REDIRECT_PARTIES } else { 0 };
        Ok(Self {
            mode: config.mode,
            generation: 0,
            live,
            mss_max: mss_max(live.mss_clamp, config.mode, [access.mtu, internet.mtu]),
            forwards_source_routes: config.forward_source_routes,
            shards: Shards::new(&config)?,
            flows_max: u64::from(config.nat.flows_max),
            identifications: Identifications::new(config.nat.seed[0] as u16),
            outer_identification: config.nat.seed[1] as u16,
            tunnel_mtu_least,
            tunnel_mtu_keyed,
            nat: Nat::new(config.nat)?,
            fragments: FragmentCache::new(config.fragments, party_seed),
            outer_fragments: OuterFragments::new(config.fragments, config.mode, party_seed),
            errors: ErrorLimiter::new(&limits, party_seed),
            duties: DutyTable::new(config.shards.len()),
            peers: RedirectPeers::new(
                config.peers_max,
                config.access.address,
                access.header_to(Mac::ZERO),
            ),
            links: [access, internet],
            patterns,
            redirects: PartyLimit::new(
                redirect_parties,
                limits.redirects_per_sec,
                REDIRECTS_PER_SEC,
                party_seed,
            ),
            slow_path: SlowPathLimit::new(limits.slow_path_packets_per_sec, party_seed),
            datagrams: Datagrams::new(config.replication_port),
            unsealed: VecDeque::with_capacity(if config.peers_max > 0 { UNSEALED_MAX } else { 0 }),
            counters: Arc::default(),
            up: Burst::new(),
            down: Burst::new(),
            burst6: has_ipv6.then(|| Box::new(Burst6::new())),
            new_flows: NewFlows::new(),
            held: HeldFrames::none(),
            swept_ms: 0,
            sweep_due: 0,
            all_public: Arc::new(AddressRanges::new([])),
        })
    }

    /// Whether a home has this public address, on this worker or another.
    pub(crate) fn is_public_of_any(&self, address: u32) -> bool {
        self.nat.is_public(address) || self.all_public.contains(address)
    }

    /// Announces the worker on both sides, asks for its gateways, and probes its IPv6 addresses,
    /// which it announces a second later. To be called once, when the
    /// ports are up.
    pub fn start<P: Pool<Frame = F>>(&mut self, now: Now, pool: &mut P, out: &mut Output<F>) {
        self.swept_ms = now.ms;
        let cx = &mut Context { pool, out, now };
        self.announce(cx);
        self.ask_neighbors(cx);
    }

    /// Processes one burst from one side: at most [`BURST_MAX`] frames, which are taken out of
    /// `frames`.
    pub fn receive<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        now: Now,
        frames: &mut Vec<F>,
        pool: &mut P,
        out: &mut Output<F>,
    ) {
        // There is one slot for each frame; a frame without a slot would vanish uncounted.
        assert!(frames.len() <= BURST_MAX, "a burst is at most {BURST_MAX} frames");
        self.slow_path.set_now(now.ms);
        let count = frames.len() as u64;
        let cx = &mut Context { pool, out, now };
        let bytes = match side {
            Side::Access => {
                let bytes = self.receive_burst::<Up, P>(frames, cx);
                self.receive_whole(cx);
                bytes
            }
            Side::Internet => {
                // The first mapping of a home with a key may have been made since the last burst.
                if self.nat.has_keyed_homes() {
                    self.tunnel_mtu_least = self.tunnel_mtu_keyed;
                }
                self.receive_burst::<Down, P>(frames, cx)
            }
        };
        self.counters.count(side, Direction::Receive, count, bytes);
    }

    /// Does a bounded piece of housekeeping: expiry, gateways, fragments. To be called once per
    /// loop, also when idle.
    pub fn tick<P: Pool<Frame = F>>(&mut self, now: Now, pool: &mut P, out: &mut Output<F>) {
        let elapsed_ms = now.ms.saturating_sub(self.swept_ms);
        if self.sweep_due > 0 || elapsed_ms > 0 {
            self.sweep(now, elapsed_ms);
        }
        if elapsed_ms == 0 {
            return;
        }
        self.swept_ms = now.ms;
        let fallen = self.fragments.expire(now.ms, FRAGMENT_SWEEP_MAX);
        self.counters.count_drops(DropReason::FragmentTimeout, fallen);
        self.nat.release_outers();
        let fallen = self.outer_fragments.cache.expire(now.ms, FRAGMENT_SWEEP_MAX);
        self.counters.count_drops(DropReason::OuterFragment, fallen);
        self.ask_neighbors(&mut Context { pool, out, now });
    }

    /// Sweeps a piece of the table and ends the expired flows.
    fn sweep(&mut self, now: Now, elapsed_ms: u64) {
        // A small table makes progress too, but only as time passes: otherwise the debt would never
        // be paid.
        let least = if elapsed_ms > 0 { 64 } else { 0 };
        let due = self.sweep_due + self.flows_max * elapsed_ms / SWEEP_MS + least;
        // After a long pause of the worker one full sweep is due, not all that it missed.
        self.sweep_due = due.min(self.flows_max.max(SWEEP_SLOTS_MAX));
        let budget = self.sweep_due.min(SWEEP_SLOTS_MAX);
        let seen = self.nat.expire(now.tick(), budget as usize, SWEEP_ENDS_MAX);
        self.sweep_due -= (seen as u64).min(budget);
    }

    /// Returns the NAT for reading: [`Nat::admin`], [`Nat::replica`].
    pub fn nat(&self) -> &Nat {
        &self.nat
    }

    /// Returns the NAT for changes: [`Nat::admin_mut`], [`Nat::replica_mut`].
    pub fn nat_mut(&mut self) -> &mut Nat {
        &mut self.nat
    }

    #[inline]
    pub(crate) fn link(&self, side: Side) -> &WorkerSide {
        &self.links[side as usize]
    }

    #[inline]
    pub(crate) fn link_mut(&mut self, side: Side) -> &mut WorkerSide {
        &mut self.links[side as usize]
    }

    /// Counts a dropped packet. Its frame is freed when the caller returns.
    #[inline]
    pub(crate) fn discard(&self, reason: DropReason) {
        self.counters.count_drops(reason, 1);
    }

    /// Sends a finished frame.
    #[inline]
    pub(crate) fn emit<P: Pool<Frame = F>>(&self, side: Side, frame: F, cx: &mut Context<'_, P>) {
        if !cx.out.push(side, frame) {
            self.discard(DropReason::NoBuffer);
        }
    }
}
