//! Workers of two nodes stall in turn, a few times a second, for 43 to 150 ms, and nothing else
//! fails: no waiting packet is lost, no shard is without a route, and routes move only a few times.

use weir_sim::fault::{Fault, Timed};
use weir_sim::options::Options;
use weir_sim::play_with;

const SEEDS: u64 = 12;

#[test]
fn workers_that_stall_in_turn_lose_no_packet_and_routes_move_rarely() {
    for seed in 0..SEEDS {
        let options = Options {
            is_one_by_one: true,
            faults: 1,
            commit: None,
            loss_ppm: 0,
            ..Options::of_seed(seed)
        };
        let fault = Fault::StallInTurn { nodes: [0, 1], worker: 0, seed, ms: 10_000 };
        let faults = [Timed { after_us: 1_000, fault }];
        let outcome = play_with(seed, &options, &faults, false);
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.counts.protected > 0, "seed {seed}: no flow had to survive");
    }
}
