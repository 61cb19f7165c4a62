//! Every time and limit of the controller.

/// Times in milliseconds and limits; [`ControllerOptions::new`] sets the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerOptions {
    /// Name of this controller, in its events.
    pub name: String,
    /// Random identity for `/meta`, if the cluster has none yet.
    pub new_cluster_id: u128,
    /// Time between two decision rounds. Default 500.
    pub tick_ms: u64,
    /// Time between two rounds while entries change. Default 100.
    pub tick_busy_ms: u64,
    /// Copies and changes of role that may begin in any minute without a failure as their cause.
    /// Default 30.
    pub moves_per_min: usize,
    /// Copies under way at once. Default 256: the streams send large copies one after the other in
    /// any case, and a small copy takes less time than a round trip.
    pub copies_max: usize,
    /// How long an imbalance must last before anything moves. Default one minute.
    pub balance_wait_ms: u64,
    /// Time that a node's key must be gone before the node may be dead. Default 2,000.
    pub dead_after_ms: u64,
    /// Time that a node's report stays valid. Default 5,000.
    pub report_max_ms: u64,
    /// Time after which a worker with a side down, or a registered node that is not heard, is cut
    /// off. Default 3,000.
    pub cut_off_after_ms: u64,
    /// Time without a change in any node's BIRD after which the reported states count. Default
    /// 2,000.
    pub bird_settle_ms: u64,
    /// Time after its registration in which a node need not be heard. Default 10,000.
    pub unreachable_at_first_ms: u64,
    /// Trial of a node that came back twice: it gets no shards for this long; twice as long each
    /// further time. Default 30 s.
    pub trial_first_ms: u64,
    /// Longest trial. Default 15 minutes.
    pub trial_max_ms: u64,
    /// Time without a loss after which a node's losses are forgotten. Default one hour.
    pub calm_ms: u64,
    /// Time after which a shard in doubt continues: longer than a lease, so that a node that cannot
    /// reach this etcd has lost its registration. Default 15,000.
    pub rebase_after_ms: u64,
    /// Time between two ticks above which this process was stalled and may have missed events.
    /// Default 5,000.
    pub pause_max_ms: u64,
}

impl ControllerOptions {
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
            unreachable_at_first_ms: 10_000,
            trial_first_ms: 30_000,
            trial_max_ms: 15 * 60_000,
            calm_ms: 60 * 60_000,
            rebase_after_ms: 15_000,
            pause_max_ms: 5_000,
        }
    }
}
