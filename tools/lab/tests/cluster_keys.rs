//! A cluster under load: its nodes get new replication keys while they run, and a node whose log
//! has no reader dies and ends as any other node.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use weir_lab::cluster::{ClusterLab, ClusterNode, ClusterOptions};
use weir_lab::failover::{Event, Observation, Observer, Pace, Promise, render};
use weir_lab::wait_for;

/// Longer than the shipped value: a machine that runs tests may not run a thread for a tenth of a
/// second now and then.
const BFD: Duration = Duration::from_millis(300);
const DEADLINE: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_secs(3);
/// How often a change is tried, as long as pauses of the machine explain the losses.
const TRIES_MAX: usize = 3;

fn key_file(lab: &ClusterLab) -> PathBuf {
    lab.lab.directory().join("cluster.key")
}

/// Returns a node's keys: their names, and why the file was refused.
fn keys_of(node: &ClusterNode) -> Result<(Vec<String>, Option<String>)> {
    let member = node.get("/member")?;
    let names = member["cluster_keys"].as_array().with_context(|| format!("no keys: {member}"))?;
    let names = names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    Ok((names, member["key_file_error"].as_str().map(str::to_owned)))
}

/// Writes the key file and makes every node read it, one after the other.
fn roll(lab: &ClusterLab, keys: &[&str]) -> Result<()> {
    fs::write(key_file(lab), keys.iter().map(|key| format!("{key}\n")).collect::<String>())?;
    let mut agreed: Option<Vec<String>> = None;
    for node in &lab.nodes {
        let (former, _) = keys_of(node)?;
        node.weir.signal(Signal::SIGHUP)?;
        let name = format!("new keys of {}", node.name());
        let names = wait_for(&name, DEADLINE, || {
            let (names, error) = keys_of(node).ok()?;
            (error.is_none() && names != former && names.len() == keys.len()).then_some(names)
        })?;
        let is_same = agreed.as_ref().is_none_or(|agreed| *agreed == names);
        ensure!(is_same, "{} has {names:?}, others {agreed:?}", node.name());
        agreed = Some(names);
    }
    Ok(())
}

/// Runs an act under load that must lose no packet and change no primary.
fn lose_nothing(
    lab: &ClusterLab,
    observer: &mut Observer,
    what: &str,
    act: impl FnOnce() -> Result<()>,
) -> Result<Observation> {
    println!("{what}");
    let seen = observer.observe(what, SETTLE, true, None, act).with_context(|| what.to_owned())?;
    ensure!(lab.lab.is_open(), "interrupted");
    Ok(Observation { moves_max: Some(0), ..seen })
}

fn is_kept(seen: &Observation) -> bool {
    Promise::NothingLost.missed(seen).is_empty()
}

/// Changes the keys as `docs/security.md` describes it: the new key second, then first, then alone.
fn keys_change_under_load(lab: &ClusterLab, observer: &mut Observer) -> Result<()> {
    for round in 1..=TRIES_MAX {
        let old = fs::read_to_string(key_file(lab))?.trim().to_owned();
        let new = format!("{round}").repeat(64);
        let steps = [[&*old, &new].to_vec(), [&*new, &old].to_vec(), [&*new].to_vec()];
        let mut rows = Vec::new();
        for (step, keys) in steps.iter().enumerate() {
            let what = format!("change of keys, step {}", step + 1);
            let seen = lose_nothing(lab, observer, &what, || roll(lab, keys))?;
            rows.push((Promise::NothingLost, seen));
        }
        println!("{}", render(&rows));
        let missed: Vec<_> = rows.iter().filter(|(_, seen)| !is_kept(seen)).collect();
        if missed.is_empty() {
            return Ok(());
        }
        let is_explained = missed.iter().all(|(promise, seen)| promise.is_explained(seen));
        ensure!(is_explained && round < TRIES_MAX, "{}", render(&rows));
    }
    Ok(())
}

/// Checks that the old keys stay in use, and that the node reports the reason until a file is
/// accepted.
fn a_refused_key_file_changes_nothing(lab: &ClusterLab, observer: &mut Observer) -> Result<()> {
    let node = lab.node(1)?;
    let path = key_file(lab);
    let mode = |mode| fs::set_permissions(&path, PermissionsExt::from_mode(mode));
    let before = keys_of(node)?;
    let key = fs::read_to_string(&path)?;
    for (text, bits, reason) in [("f".repeat(64), 0o644, "chmod 600"), ("5a".into(), 0o600, "")] {
        fs::write(&path, &text)?;
        mode(bits)?;
        node.weir.signal(Signal::SIGHUP)?;
        let refused = wait_for("the reason of the refusal", DEADLINE, || {
            let (names, error) = keys_of(node).ok()?;
            let error = error.filter(|error| error.contains(reason))?;
            // The previous reason was the one of the mode.
            (reason == "chmod 600" || !error.contains("chmod 600")).then_some((names, error))
        })?;
        ensure!(refused.0 == before.0, "{refused:?}, before {before:?}");
        let status = node.cli(&["status"])?.stdout;
        ensure!(status.contains("the cluster keys are those of before: "), "{status}");
    }
    node.weir.process()?.wait_words("cluster-keys-refused", DEADLINE)?;
    lab.wait_whole()?;
    let seen = lose_nothing(lab, observer, "the file is right again", || {
        fs::write(&path, &key)?;
        node.weir.signal(Signal::SIGHUP)?;
        wait_for("the end of the refusal", DEADLINE, || {
            keys_of(node).ok().filter(|(_, error)| error.is_none())
        })?;
        Ok(())
    })?;
    let is_well = is_kept(&seen) || Promise::NothingLost.is_explained(&seen);
    ensure!(is_well, "{}", render(&[(Promise::NothingLost, seen)]));
    ensure!(keys_of(node)? == before, "other keys");
    lab.wait_ok()
}

fn unread_log_of_a_node_changes_no_promise(
    lab: &mut ClusterLab,
    observer: &mut Observer,
) -> Result<()> {
    let seen = Event::named("stalled-log")?.run(lab, observer, |what| println!("{what}"))?;
    println!("{}", render(&seen));
    let are_kept = seen.iter().all(|(promise, seen)| promise.missed(seen).is_empty());
    ensure!(are_kept, "{}", render(&seen));
    Ok(())
}

#[test]
fn new_keys_by_sighup_and_an_unread_log_break_no_promise() {
    let options = ClusterOptions { bfd: BFD, ..ClusterOptions::default() };
    let mut lab = ClusterLab::start(options, |what| println!("{what}")).unwrap();
    let result = Observer::start(&lab, Pace::short()).and_then(|mut observer| {
        keys_change_under_load(&lab, &mut observer)?;
        a_refused_key_file_changes_nothing(&lab, &mut observer)?;
        unread_log_of_a_node_changes_no_promise(&mut lab, &mut observer)
    });
    if let Err(error) = result {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}
