//! Measures a fault on a stand-alone node: a measurement that cannot fail shows nothing.

use anyhow::{Result, ensure};
use weir_lab::cluster::ClusterLab;
use weir_lab::failover::{CONTROL, Event, Observer, Pace, Promise, render};

/// Least percentage of open connections that must break when a node without copies ends.
const BROKEN_LEAST: usize = 90;

fn quiet_then_killed(lab: &mut ClusterLab) -> Result<()> {
    let mut observer = Observer::start(lab, Pace::short())?;
    let quiet = Event::named("nothing")?.run(lab, &mut observer, |_| ())?;
    let missed = quiet[0].0.missed(&quiet[0].1);
    ensure!(missed.is_empty(), "{}", render(&quiet));

    let killed = CONTROL.run(lab, &mut observer, |_| ())?;
    let (promise, seen) = &killed[0];
    println!("{}", render(&killed));
    ensure!(promise.missed(seen).is_empty(), "{}", render(&killed));
    ensure!(!Promise::NothingBroken.missed(seen).is_empty(), "a kill that nobody noticed");
    let connections = &seen.connections;
    ensure!(
        100 * connections.broken >= BROKEN_LEAST * connections.established,
        "{}",
        render(&killed)
    );
    ensure!(connections.idle > 0 && connections.causes.len() < 4, "{connections:?}");
    for side in [&seen.up, &seen.down] {
        ensure!(side.lost > 0 && side.gap_max > side.pause, "{side:?}");
        // The lost packets were sent within the gaps, one every five milliseconds.
        ensure!(side.lost * 5_000 <= 8 * (side.gap_max + 1_000_000), "{side:?}");
    }
    ensure!(!seen.moved_endpoints.is_empty(), "the node came back with the mappings it had lost");
    Ok(())
}

#[test]
fn kill_without_copies_is_measured_and_a_quiet_node_misses_no_promise() {
    let mut lab = ClusterLab::start_alone().unwrap();
    if let Err(error) = quiet_then_killed(&mut lab) {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}
