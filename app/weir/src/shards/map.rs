//! All shards of a cluster, once or as they change.

use std::collections::BTreeMap;
use std::io::{self, Write};

use jiff::{Timestamp, Unit};
use serde_json::{Value, json};
use weir_controller::operate::{MapUpdate, MapWatch, MemberLine, ShardLine, ShardState};
use weir_etcd::EtcdCluster;

use crate::etcd::EtcdArgs;
use crate::table::{Align, Table};

pub(super) fn list(etcd: &EtcdArgs, is_json: bool) -> anyhow::Result<()> {
    let lines = etcd.operate(async |it| it.shards().await)?;
    let mut out = io::stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::to_string_pretty(&lines)?)?;
        return Ok(());
    }
    Ok(print(&lines, &mut out)?)
}

/// Prints changes until the reader has seen enough, or a signal ends the process.
pub(super) fn watch(etcd: &EtcdArgs, is_json: bool) -> anyhow::Result<()> {
    let cluster: EtcdCluster = etcd.connect()?;
    let mut watch = MapWatch::open(&cluster);
    cluster.handle().block_on(async {
        while let Some(update) = watch.next().await {
            // The lock is not held while waiting.
            let mut out = io::stdout().lock();
            match &update {
                MapUpdate::All(lines) if !is_json => print(lines, &mut out)?,
                _ if is_json => {
                    for object in objects(&update) {
                        writeln!(out, "{object}")?;
                    }
                }
                _ => writeln!(out, "{}  {}", now(), words(&update))?,
            }
            out.flush()?;
        }
        Ok(())
    })
}

fn print(lines: &[ShardLine], out: &mut impl Write) -> io::Result<()> {
    let mut sums: BTreeMap<ShardState, usize> = BTreeMap::new();
    lines.iter().for_each(|line| *sums.entry(line.state).or_default() += 1);
    let sums: Vec<String> =
        sums.iter().map(|(state, count)| format!("{count} {}", state.name())).collect();
    let colon = if sums.is_empty() { "" } else { ": " };
    writeln!(out, "{} shards{colon}{}\n", lines.len(), sums.join(", "))?;
    let mut table = Table::new(&[
        ("shard", Align::Right),
        ("state", Align::Left),
        ("primary", Align::Left),
        ("replicas", Align::Left),
        ("term", Align::Right),
        ("epoch", Align::Right),
        ("", Align::Left),
    ]);
    for line in lines {
        let wanted = if line.is_wanted { "" } else { "not in the cluster file" };
        table.row(vec![
            line.shard.to_string(),
            line.state.name().to_owned(),
            line.members.first().map_or_else(|| "-".to_owned(), member),
            replicas(line),
            line.term.to_string(),
            line.epoch.to_string(),
            wanted.to_owned(),
        ]);
    }
    table.print(out)
}

fn replicas(line: &ShardLine) -> String {
    let replicas: Vec<String> = line.members.iter().skip(1).map(member).collect();
    if replicas.is_empty() { "-".to_owned() } else { replicas.join(", ") }
}

/// Returns the worker's name, with marks for what is unusual.
fn member(member: &MemberLine) -> String {
    let marks = member.marks();
    if marks.is_empty() {
        member.worker.clone()
    } else {
        format!("{} ({})", member.worker, marks.join(", "))
    }
}

fn words(update: &MapUpdate) -> String {
    match update {
        MapUpdate::All(lines) => format!("{} shards", lines.len()),
        MapUpdate::Shard(line, what) => {
            let (shard, state) = (line.shard, line.state.name());
            format!("shard {shard}: {}; it is {state}, epoch {}", what.join(", "), line.epoch)
        }
        MapUpdate::Retired(shard) => format!("shard {shard}: it is retired"),
        MapUpdate::Node(node, update) => format!("node {node}: {}", update.words()),
        MapUpdate::Silent => "etcd gives no news: what changes now is shown later".to_owned(),
        MapUpdate::Again => "etcd gives news again".to_owned(),
        MapUpdate::Restored => {
            "etcd was restored from a backup: everything is read again".to_owned()
        }
    }
}

/// Returns one object for each line of the table, or one for a change.
fn objects(update: &MapUpdate) -> Vec<Value> {
    let of_line = |line: &ShardLine, what: &[String]| {
        let mut object = json!(line);
        object["what"] = json!(what);
        object
    };
    let mut objects = match update {
        MapUpdate::All(lines) => lines.iter().map(|line| of_line(line, &[])).collect(),
        MapUpdate::Shard(line, what) => vec![of_line(line, what)],
        MapUpdate::Retired(shard) => vec![json!({"shard": shard, "what": ["it is retired"]})],
        MapUpdate::Node(node, update) => vec![json!({"node": node, "what": [update.words()]})],
        other => vec![json!({"what": [words(other)]})],
    };
    for object in &mut objects {
        object["at"] = json!(now());
    }
    objects
}

/// Returns the time to the millisecond, as the order of changes within a second matters.
fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Millisecond).unwrap_or(now).to_string()
}
