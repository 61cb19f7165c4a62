//! A cluster under load: what homes see when a node is drained, killed and stopped. `make demo` shows the other faults.

use std::time::Duration;

use anyhow::{Result, ensure};
use weir_lab::cluster::{ClusterLab, ClusterOptions};
use weir_lab::failover::{Event, Observer, Pace, render};

/// Longer than as shipped: a machine that runs tests has something else to do for a tenth of a second now and then.
const BFD: Duration = Duration::from_millis(300);
const EVENTS: [&str; 4] = ["nothing", "drain", "kill", "term"];

fn promises_are_kept(lab: &mut ClusterLab) -> Result<()> {
    let mut observer = Observer::start(lab, Pace::short())?;
    let mut rows = Vec::new();
    for name in EVENTS {
        rows.extend(Event::named(name)?.run(lab, &mut observer, |what| println!("{what}"))?);
    }
    let table = render(&rows);
    println!("{table}");
    let are_kept = rows.iter().all(|(promise, seen)| promise.missed(seen).is_empty());
    ensure!(are_kept, "{table}");
    Ok(())
}

#[test]
fn drained_killed_and_stopped_nodes_break_no_connection() {
    let options = ClusterOptions { bfd: BFD, ..ClusterOptions::default() };
    let mut lab = ClusterLab::start(options, |what| println!("{what}")).unwrap();
    if let Err(error) = promises_are_kept(&mut lab) {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}
