//! `KEEP=1`: everything goes on, and each time that something happens a line says what homes saw of it.

use std::time::Duration;

use anyhow::Result;
use weir_lab::cluster::ClusterLab;
use weir_lab::failover::{Observation, Observer};

/// Time watched at once.
const SLICE: Duration = Duration::from_secs(2);
/// A gap that is worth a line, in microseconds.
const GAP: u64 = 20_000;

/// Prints what one can do, then what comes of it, until a signal ends the process and removes the laboratory.
pub(crate) fn watch(lab: &ClusterLab, observer: &mut Observer) -> Result<()> {
    print_commands(lab)?;
    loop {
        let seen = observer.observe("watching", SLICE, false, None, || Ok(()))?;
        if let Some(line) = line(&seen, observer.open_connections()) {
            println!("{line}");
        }
    }
}

fn print_commands(lab: &ClusterLab) -> Result<()> {
    let control = lab.control()?;
    let node = lab.node(1)?;
    let home = lab.network.homes.name();
    println!(
        "\nIt is left running, under load, until Ctrl-C. What homes see appears below. As root:"
    );
    for (what, command) in [
        ("the cluster", control.command_line("cluster status")?),
        ("what happened", control.command_line("events")?),
        ("kill a node", format!("kill -9 {}", node.weir.process()?.id())),
        ("stop it in order", format!("kill {}", node.weir.process()?.id())),
        ("drain it", control.command_line("drain node1 --wait")?),
        ("fill it again", control.command_line("undrain node1")?),
        ("its state", node.command_line("status")?),
        ("its log", format!("tail -f {}", node.weir.process()?.log_path().display())),
        ("a home's way out", format!("ip netns exec {home} ping -I 192.168.1.2 198.51.100.1")),
        ("a switch's routes", format!("ip -n {} route", lab.network.access.name())),
    ] {
        println!("  {what:<20} {command}");
    }
    Ok(())
}

/// Nothing when nothing happened.
fn line(seen: &Observation, open: usize) -> Option<String> {
    let connections = &seen.connections;
    let broken = connections.broken + connections.broken_before + connections.younger_broken;
    let gap = seen.up.gap_max.max(seen.down.gap_max);
    let is_quiet = seen.up.lost + seen.down.lost == 0 && broken == 0 && seen.moves == 0;
    (!is_quiet || gap > GAP).then(|| {
        format!(
            "gap up {:.0} ms, down {:.0} ms; lost {}, {} of {}; {broken} connections broken of {open}; {} shards moved",
            seen.up.gap_max as f64 / 1e3,
            seen.down.gap_max as f64 / 1e3,
            seen.up.lost,
            seen.down.lost,
            seen.up.sent + seen.down.sent,
            seen.moves,
        )
    })
}
