//! `KEEP=1`: the cluster runs on, and a line reports what homes saw each time that something
//! happens.

use std::time::Duration;

use anyhow::{Context, Result};
use weir_lab::cluster::{ClusterLab, ClusterNode};
use weir_lab::failover::{Observation, Observer, Pace};
use weir_lab::services::{SERVER, SERVER6};

/// Time watched at once.
const SLICE: Duration = Duration::from_secs(2);
/// The shortest gap that is reported, in microseconds.
const GAP: u64 = 20_000;

/// Returns the load of a cluster that is only kept: no observation waits until connections have
/// been idle, so a line comes within seconds.
pub(crate) fn pace(of: Pace) -> Pace {
    Pace { before: Duration::ZERO, idle: Duration::ZERO, ..of }
}

/// Prints commands to try, then reports what they cause, until a signal ends the process and
/// removes the laboratory.
pub(crate) fn watch(lab: &ClusterLab, observer: &mut Observer) -> Result<()> {
    print_commands(lab)?;
    let mut known = processes(lab);
    loop {
        let seen = observer.observe("watching", SLICE, false, None, || Ok(()))?;
        if let Some(line) = line(&seen, observer.open_connections()) {
            println!("{line}");
        }
        observer.forget_timeline();
        let now = processes(lab);
        let new = now.iter().filter(|process| !known.contains(process));
        new.for_each(|(node, id, log)| {
            println!("{node} was started again: process {id}, log {log}")
        });
        known = now;
    }
}

/// Returns name, process id and log of each running node.
fn processes(lab: &ClusterLab) -> Vec<(String, i32, String)> {
    let process = |node: &ClusterNode| {
        let process = node.weir.process().ok()?;
        Some((node.name(), process.id(), process.log_path().display().to_string()))
    };
    lab.nodes.iter().filter_map(process).collect()
}

fn print_commands(lab: &ClusterLab) -> Result<()> {
    let control = lab.control()?;
    println!(
        "\nIt is left running, under load, until Ctrl-C, which removes it. What homes see appears below. As root, in another \
         terminal:"
    );
    let mut groups = Vec::new();
    for node in &lab.nodes {
        let process = node.weir.process()?;
        let inside = lab.network.nodes.get(usize::from(node.number) - 1).context("no namespace")?;
        groups.push((
            node.name(),
            vec![
                ("its state", node.command_line("status")?),
                ("its sessions", node.command_line("sessions --limit 12")?),
                ("its log", format!("tail -f {}", process.log_path().display())),
                ("a shell there", format!("ip netns exec {} bash", inside.name())),
                ("kill it; it restarts", format!("kill -9 {}", process.id())),
                ("restart it in order", format!("kill {}", process.id())),
            ],
        ));
    }
    groups.push((
        "the cluster".into(),
        vec![
            ("its state", control.command_line("cluster status")?),
            ("who serves what", control.command_line("shards")?),
            ("what happened", control.command_line("events")?),
            ("drain a node", control.command_line("drain node1 --wait")?),
            ("fill it again", control.command_line("undrain node1")?),
            ("balance the shards", control.command_line("rebalance")?),
        ],
    ));
    let (home, access) = (lab.network.homes.name(), lab.network.access.name());
    let address6 = lab.homes.inside6.first().context("no home with IPv6")?;
    groups.push((
        "homes, switch".into(),
        vec![
            ("a home's way out", format!("ip netns exec {home} ping -I 192.168.1.2 {SERVER}")),
            ("over IPv6", format!("ip netns exec {home} ping -I {address6} {SERVER6}")),
            ("a switch's routes", format!("ip -n {access} route")),
        ],
    ));
    print!("{}", menu(&groups));
    println!(
        "\nTry: kill a node, and look at the lines below, its log and the state of the cluster.\n"
    );
    Ok(())
}

/// Returns commands with their purpose, below the names of their groups.
fn menu(groups: &[(String, Vec<(&str, String)>)]) -> String {
    let words = groups.iter().flat_map(|(_, commands)| commands).map(|(what, _)| what.len());
    let width = words.max().unwrap_or_default();
    let mut text = String::new();
    for (name, commands) in groups {
        text.push_str(&format!("\n {name}\n"));
        for (what, command) in commands {
            text.push_str(&format!("  {what:<width$}  {command}\n"));
        }
    }
    text
}

/// Returns the report of an observation. None if nothing happened.
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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::failover::Side;

    #[test]
    fn commands_stand_in_one_column_below_the_names_of_their_groups() {
        let groups = [
            ("node1".to_owned(), vec![("its state", "weir status".to_owned())]),
            ("homes".to_owned(), vec![("a home's way out", "ping".to_owned())]),
        ];
        let text = menu(&groups);
        assert_eq!(
            text,
            "\n node1\n  its state         weir status\n\n homes\n  a home's way out  ping\n"
        );
    }

    #[test]
    fn quiet_slice_has_no_line_and_lossy_slice_has_one() {
        let mut seen =
            Observation { up: Side { sent: 10, ..Side::default() }, ..Observation::default() };
        assert_eq!(line(&seen, 1_000), None);
        (seen.up.lost, seen.up.gap_max) = (3, 12_000);
        let line = line(&seen, 1_000).unwrap();
        assert!(line.starts_with("gap up 12 ms") && line.contains("lost 3, 0 of 10"), "{line}");
    }
}
