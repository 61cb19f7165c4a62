//! Every time and limit of the controller.

/// [`Options::new`] gives the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Name of this controller, in its events.
    pub name: String,
    /// Identity for `/meta`, if the cluster has none yet: drawn at random.
    pub new_cluster_id: u128,
    /// Time between two looks at everything. Default 500.
    pub tick_ms: u64,
    /// And while entries change. Default 100.
    pub tick_busy_ms: u64,
    /// Copies and changes of role begun in any minute that answer no failure. Default 30.
    pub moves_per_min: usize,
    /// Copies under way at once. Default 256: the streams carry large ones one after the other in any case, and small
    /// ones take less time than the way to here and back.
    pub copies_max: usize,
    /// How long an imbalance must last before anything moves. Default one minute.
    pub balance_wait_ms: u64,
    /// A node's key must be gone for so long before it may be dead. Default 2,000.
    pub dead_after_ms: u64,
    /// A node's report is believed for so long. Default 5,000.
    pub report_max_ms: u64,
    /// A worker with a side down, or a registered node that nobody hears, is cut off after so long. Default 3,000.
    pub cut_off_after_ms: u64,
    /// What nodes say of their BIRDs counts when none has said anything new for so long. Default 2,000.
    pub bird_settle_ms: u64,
    /// A node that has come need not be heard for so long. Default 10,000.
    pub unheard_at_first_ms: u64,
    /// A node that came back twice gets nothing for so long; twice as long each further time.
    /// Default 30 s.
    pub trial_first_ms: u64,
    /// And no longer than that. Default 15 minutes.
    pub trial_max_ms: u64,
    /// Losses are forgotten after so long without one. Default one hour.
    pub calm_ms: u64,
    /// A shard of which etcd has forgotten what nodes have seen goes on after so long: longer than a lease, so that who
    /// does not reach this etcd is not registered any more. Default 15,000.
    pub rebase_after_ms: u64,
    /// Ticks further apart mean that this process stood still: what it did not see, it may have
    /// missed. Default 5,000.
    pub pause_max_ms: u64,
}

impl Options {
    pub fn new(name: &str, new_cluster_id: u128) -> Self {
        Self {
            name: name.to_owned(),
            new_cluster_id,
            tick_ms: 500,
            tick_busy_ms: 100,
            moves_per_min: 30,
            copies_max: 256,
            balance_wait_ms: 60_000,
            dead_after_ms: 2_000,
            report_max_ms: 5_000,
            cut_off_after_ms: 3_000,
            bird_settle_ms: 2_000,
            unheard_at_first_ms: 10_000,
            trial_first_ms: 30_000,
            trial_max_ms: 15 * 60_000,
            calm_ms: 60 * 60_000,
            rebase_after_ms: 15_000,
            pause_max_ms: 5_000,
        }
    }
}
