//! A node that is started while etcd does not answer.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use weir_lab::cluster::{ClusterLab, ClusterOptions};
use weir_lab::wait_for;

/// Longer than as shipped: a machine that runs tests has something else to do for a tenth of a second now and then.
const BFD: Duration = Duration::from_millis(300);
const DEADLINE: Duration = Duration::from_secs(120);

fn it_runs_says_why_it_serves_nothing_and_joins(lab: &ClusterLab) -> Result<()> {
    let (control, node) = (lab.control()?, lab.node(1)?);
    lab.wait_ok()?;
    control.kill_store()?;
    node.weir.signal(Signal::SIGKILL)?;
    node.wait_ready(1)?;
    wait_for("status of a node outside", DEADLINE, || {
        let status = node.cli(&["status"]).ok()?;
        let says_why = status.stdout.contains("started without etcd: it does not serve shard");
        (says_why && status.status.code() == Some(1)).then_some(())
    })?;
    control.restart_store()?;
    // The map names its former life until then: it is whole before and after.
    wait_for("status of a node that takes part", DEADLINE, || {
        let status = node.cli(&["status"]).ok()?;
        status.status.success().then_some(())
    })?;
    lab.wait_whole()?;
    lab.wait_ok()?;
    ensure!(node.weir.starts() == 2, "it was started {} times", node.weir.starts());
    Ok(())
}

#[test]
fn a_node_started_without_etcd_runs_and_joins_when_etcd_is_back() {
    let options = ClusterOptions { nodes: 2, bfd: BFD, ..ClusterOptions::default() };
    let lab = ClusterLab::start(options, |what| println!("{what}")).unwrap();
    if let Err(error) = it_runs_says_why_it_serves_nothing_and_joins(&lab) {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}
