//! The fault model: the size of the cluster, the properties of its links and clocks, and which
//! faults occur how often.

use crate::dice::Dice;

/// Longer than most faults last.
const IDLE_SEC: u32 = 12;

/// How packets wait for copies, as the cluster file defines it, and how much may wait.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// Number of copies that packets wait for.
    pub replicas: u8,
    /// True if packets that cannot be committed are dropped; otherwise they leave.
    pub is_strict: bool,
    pub timeout_ms: u32,
    pub held_max: usize,
    pub changes_max: usize,
}

/// The parameters of a history. A seed draws them; any field may be replaced before the history
/// begins.
#[derive(Clone, Debug)]
pub struct Options {
    pub nodes: usize,
    pub workers_per_node: usize,
    pub shards: u32,
    /// Copies of each shard beside its primary.
    pub replicas: u8,
    /// If and how packets wait for copies.
    pub commit: Option<Commit>,
    pub homes_per_shard: u32,
    /// Lasting flows of each home, and the time between two packets of one.
    pub lasting_flows: u32,
    pub packet_interval_us: u64,
    /// Time between two short flows of a home.
    pub short_flow_interval_us: u64,
    /// Time between two unsolicited packets.
    pub probe_interval_us: u64,
    /// Sessions end after so long without a packet, and their ports rest for a third of that.
    /// `None`: the default times, which are longer than a history.
    pub idle_sec: Option<u32>,
    /// Whether all settings have the source pool. Then flows to one server leave from its
    /// addresses and no others do, and some inside endpoints have flows of both kinds.
    pub has_pool: bool,
    /// Whether every second home speaks IPv6 beside IPv4.
    pub has_ipv6: bool,
    /// Whether the IPv6 prefixes of homes are listed in the cluster's file; otherwise homes claim
    /// them.
    pub is_delegated: bool,

    /// Time from the first start until faults may occur.
    pub start_us: u64,
    /// Number of faults, and the time in which they occur.
    pub faults: usize,
    pub faults_us: u64,
    /// True if faults occur one by one, each when the cluster is whole again; otherwise at any
    /// time.
    pub is_one_by_one: bool,
    /// Longest time in which the cluster must become whole after the last fault is mended.
    pub heal_max_us: u64,

    /// Delay of a frame on a link: the least, and the most that is added.
    pub link_us: u64,
    pub link_jitter_us: u64,
    pub loss_ppm: u64,
    pub duplicate_ppm: u64,
    /// Longest delay of a frame that is overtaken.
    pub reorder_ppm: u64,
    pub reorder_us: u64,
    /// Interval between the turns of a worker without packets.
    pub idle_turn_us: u64,
    /// Longest delay of a message between two threads of a node.
    pub message_us: u64,
    /// Delay from a kernel's route to a switch's, drawn for each switch.
    pub switch_min_us: u64,
    pub switch_max_us: u64,
    /// Time after which a switch detects a dead link (BFD), and after which it trusts the link
    /// again.
    pub detect_us: u64,
    pub trust_us: u64,
    /// Largest error of the clocks, parts per million.
    pub skew_ppm: u64,

    /// Relative frequencies of the kinds of faults.
    pub weights: Weights,
}

/// Relative frequency of each kind of fault.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    pub crash: u64,
    pub kill: u64,
    pub stop: u64,
    pub freeze: u64,
    pub stall: u64,
    pub slow: u64,
    pub unplug: u64,
    pub deafen: u64,
    pub isolate: u64,
    pub cut_off: u64,
    pub noise: u64,
    pub slow_switch: u64,
    pub restart: u64,
    pub cut_store: u64,
    pub stall_watch: u64,
    pub store_down: u64,
    pub store_leaderless: u64,
    pub store_paused: u64,
    pub store_slow: u64,
    pub store_full: u64,
    pub stop_controller: u64,
    pub cut_controller: u64,
    pub no_controller: u64,
    pub drain: u64,
    pub compact: u64,
    pub restore: u64,
    pub power_loss: u64,
    pub stall_core: u64,
    pub bird_down: u64,
    pub site: u64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            crash: 3,
            kill: 3,
            stop: 3,
            freeze: 3,
            stall: 3,
            slow: 2,
            unplug: 3,
            deafen: 3,
            isolate: 2,
            cut_off: 1,
            noise: 3,
            slow_switch: 2,
            restart: 3,
            cut_store: 2,
            stall_watch: 1,
            store_down: 1,
            store_leaderless: 1,
            store_paused: 1,
            store_slow: 1,
            store_full: 1,
            stop_controller: 1,
            cut_controller: 1,
            no_controller: 2,
            drain: 2,
            compact: 1,
            restore: 1,
            power_loss: 0,
            stall_core: 2,
            bird_down: 2,
            site: 0,
        }
    }
}

impl Options {
    /// Draws the options of a seed: one history in ten is calm, four have their failures one by
    /// one, the rest have them at any time. In one of three, packets wait for copies; then one more
    /// fault ends as many copies at once as are waited for.
    pub fn of_seed(seed: u64) -> Self {
        let dice = &mut Dice::stream(seed, 1);
        let kind = seed % 10;
        let is_calm = kind == 0;
        let is_one_by_one = kind < 5;
        let nodes = dice.between((2, 5)) as usize;
        let faults = match (is_calm, is_one_by_one) {
            (true, _) => 0,
            (false, true) => dice.between((1, 3)) as usize,
            (false, false) => dice.between((3, 12)) as usize,
        };
        let is_noisy = !is_calm && dice.below(3) == 0;
        let noise = |ppm: u64| if is_noisy { ppm } else { 0 };
        let options = Self {
            nodes,
            workers_per_node: 1 + dice.below(4) as usize / 3,
            shards: dice.between((1, 3)) as u32,
            replicas: if nodes > 2 { dice.between((1, 2)) as u8 } else { 1 },
            commit: None,
            homes_per_shard: 3,
            lasting_flows: 3,
            packet_interval_us: 30_000,
            short_flow_interval_us: 200_000,
            probe_interval_us: 20_000,
            idle_sec: None,
            has_pool: Dice::stream(seed, 15).one_in(4),
            has_ipv6: Dice::stream(seed, 17).one_in(2),
            is_delegated: Dice::stream(seed, 16).one_in(4),
            start_us: 3_500_000,
            faults,
            faults_us: 8_000_000,
            is_one_by_one,
            heal_max_us: 90_000_000,
            link_us: 20,
            link_jitter_us: if is_calm { 0 } else { dice.below(200) },
            loss_ppm: noise(dice.below(20_000)),
            duplicate_ppm: noise(dice.below(5_000)),
            reorder_ppm: noise(dice.below(20_000)),
            reorder_us: 2_000,
            idle_turn_us: 2_000,
            message_us: 300,
            switch_min_us: 1_000,
            switch_max_us: dice.between((2_000, 40_000)),
            detect_us: dice.between((150_000, 300_000)),
            trust_us: 1_000_000,
            skew_ppm: if is_calm { 0 } else { dice.below(2_000) },
            weights: Weights::default(),
        };
        options
            .with_commit(&mut Dice::stream(seed, 8))
            .with_short_timers(&mut Dice::stream(seed, 9))
    }

    /// In one of four histories, and in every second calm one, sessions end and their ports are
    /// assigned again, beginning before the faults.
    fn with_short_timers(mut self, dice: &mut Dice) -> Self {
        if dice.one_in(if self.faults == 0 { 2 } else { 4 }) {
            self.idle_sec = Some(IDLE_SEC);
            // If ports rested for longer, a site would take too long to serve again.
            self.weights.site = 2;
            self.start_us += 1_000_000 * u64::from(IDLE_SEC);
        }
        self
    }

    fn with_commit(mut self, dice: &mut Dice) -> Self {
        if !dice.one_in(3) {
            return self;
        }
        self.commit = Some(Commit {
            replicas: dice.between((1, self.replicas.into())) as u8,
            is_strict: dice.one_in(2),
            timeout_ms: *dice.pick(&[20, 100, 500]),
            // The low limits are exceeded when a copy is silent.
            held_max: *dice.pick(&[16, 4096]),
            changes_max: *dice.pick(&[160, 16_384]),
        });
        self.weights.power_loss = 3;
        // One fault more: the last one of the history is a power loss.
        self.faults += usize::from(self.faults > 0);
        self
    }
}
