//! Routes that die with their owner: guards, BIRD and switches in namespaces.
//!
//! The times are printed, not asserted (`--nocapture`). `WEIR_SILENCE_MS` sets the silence that is
//! allowed to a worker, 50 for figures on a quiet machine; the default is long enough for a machine
//! that runs a build meanwhile.

use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ipnet::Ipv4Net;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weir_lab::steering::{Network, Node, Steering, SwitchKind, Watch};
use weir_lab::wait_for;
use weir_routes::bird::{BirdError, exported};
use weir_routes::watchdog::UNWATCHED_GRACE;
use weir_routes::{KernelRoute, Route, RouteSide};

const PROGRAM: &str = env!("CARGO_BIN_EXE_steering_node");
const DEADLINE: Duration = Duration::from_secs(30);

const ENDPOINT: &str = "10.100.0.1/32";
const PREFIX: &str = "203.0.113.0/28";
/// The shard of the other worker.
const OTHER_ENDPOINT: &str = "10.100.0.2/32";
const OTHER_PREFIX: &str = "203.0.113.16/28";

const ACCESS_TABLE: u32 = 4242;
const INTERNET_TABLE: u32 = 4243;

/// Returns the metric of the primary of a term.
fn primary(term: u32) -> u32 {
    (1 << 31) - 8 * term
}

/// Returns the metric of an acting primary of a rank.
fn acting(term: u32, rank: u32) -> u32 {
    primary(term) - (6 - rank)
}

/// Returns the metric of a synced replica of a rank.
fn replica(rank: u32) -> u32 {
    (1 << 31) + rank
}

fn watch(kill_after: Option<Duration>) -> Watch {
    let silence = std::env::var("WEIR_SILENCE_MS").ok().and_then(|text| text.parse().ok());
    Watch { silence: Duration::from_millis(silence.unwrap_or(300)), kill_after }
}

/// Returns the command that gives worker `worker` of node `node` one shard.
fn set(node: u8, worker: u8, endpoint: &str, prefix: &str, metric: u32) -> String {
    let (access, internet) =
        (Network::Access.worker(node, worker), Network::Internet.worker(node, worker));
    format!(
        "set {worker} access,{endpoint},{access},{metric} internet,{prefix},{internet},{metric}"
    )
}

/// Makes node 1 the primary and node 2 the replica; returns when both switches have the routes.
fn announce(lab: &Steering) -> Result<()> {
    lab.nodes[0].order(&set(1, 0, ENDPOINT, PREFIX, primary(1)))?;
    lab.nodes[1].order(&set(2, 0, ENDPOINT, PREFIX, replica(1)))?;
    wait_node(lab, 1)?;
    // Only BIRD switches are queried; otherwise node 2 is known by its export.
    for (switch, route) in [(&lab.access, ENDPOINT), (&lab.internet, PREFIX)] {
        if switch.bird.is_some() {
            switch.wait_meds(route, &[primary(1), replica(1)])?;
        }
    }
    wait_for("export of the replica", DEADLINE, || {
        exported(lab.nodes[1].bird.socket(), "internet_switch")
            .ok()
            .filter(|routes| !routes.is_empty())
    })?;
    Ok(())
}

/// Waits until both switches send the shard to worker 0 of `node`. Returns the time of each.
fn wait_node(lab: &Steering, node: u8) -> Result<[Duration; 2]> {
    let access = lab.access.wait_route(ENDPOINT, Some(Network::Access.worker(node, 0)))?;
    let internet = lab.internet.wait_route(PREFIX, Some(Network::Internet.worker(node, 0)))?;
    Ok([access, access + internet])
}

fn print_times(what: &str, [access, internet]: [Duration; 2]) {
    println!(
        "{what}: access switch {:.1} ms, internet switch at most {:.1} ms",
        access.as_secs_f64() * 1e3,
        internet.as_secs_f64() * 1e3
    );
}

fn is_empty(node: &Node) -> Result<bool> {
    Ok(node.table(ACCESS_TABLE)?.is_empty() && node.table(INTERNET_TABLE)?.is_empty())
}

fn last_resort(metric: u32) -> u32 {
    let prefix = Ipv4Net::from(Ipv4Addr::LOCALHOST).into();
    let next_hop = Ipv4Addr::UNSPECIFIED.into();
    Route { side: RouteSide::Access, prefix, metric, next_hop }.last_resort().metric
}

/// True if the node has routes, and all have the metric of last resort: no switch uses them while
/// another node announces the same prefix.
fn are_last_resort(node: &Node) -> Result<bool> {
    let routes = [node.table(ACCESS_TABLE)?, node.table(INTERNET_TABLE)?];
    let is_last = |route: &KernelRoute| route.metric == last_resort(route.metric);
    Ok(routes.iter().all(|routes| !routes.is_empty() && routes.iter().all(is_last)))
}

fn wait_empty(node: &Node) -> Result<()> {
    wait_for("empty tables", DEADLINE, || is_empty(node).ok().filter(|is_empty| *is_empty))?;
    Ok(())
}

fn ended(process: i32) -> bool {
    !Path::new(&format!("/proc/{process}")).exists()
}

fn checked(lab: &Steering, result: Result<()>) {
    if let Err(error) = result {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}

#[test]
fn each_switch_learns_its_side_with_the_workers_next_hop_and_the_metric_as_med() {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(None)).unwrap();
    checked(
        &lab,
        (|| {
            announce(&lab)?;
            lab.access.wait_route(PREFIX, None)?;
            lab.internet.wait_route(ENDPOINT, None)?;

            // The wanted route, the route in the kernel and the exported route are the same.
            let node = &lab.nodes[0];
            let kernel = node.table(INTERNET_TABLE)?;
            ensure!(kernel.len() == 1 && kernel[0].metric == primary(1), "{kernel:?}");
            let exports = exported(node.bird.socket(), "internet_switch")?;
            ensure!(exports.len() == 1 && exports[0].prefix == kernel[0].prefix, "{exports:?}");
            ensure!(exports[0].med == Some(primary(1)), "{exports:?}");
            let worker = Network::Internet.worker(1, 0).into();
            ensure!(exports[0].next_hop == Some(worker), "{exports:?}");
            let other = exported(lab.nodes[1].bird.socket(), "access_switch")?;
            ensure!(other[0].med == Some(replica(1)), "{other:?}");

            // Queries that BIRD cannot answer are errors in words.
            let unknown = exported(node.bird.socket(), "nobody").unwrap_err();
            ensure!(matches!(unknown, BirdError::Refused { .. }), "{unknown}");
            let absent = exported(Path::new("/nonexistent/bird.ctl"), "access_switch").unwrap_err();
            ensure!(absent.to_string().starts_with("BIRD does not run here"), "{absent}");
            node.bird.process().stop();
            let gone = exported(node.bird.socket(), "access_switch").unwrap_err();
            ensure!(matches!(gone, BirdError::NotRunning { .. }), "{gone}");
            Ok(())
        })(),
    );
}

#[test]
fn a_killed_owner_takes_its_routes_along() {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(None)).unwrap();
    checked(&lab, killed_owner(&lab));
}

#[test]
fn a_killed_owner_takes_its_routes_along_on_frr() {
    let lab = Steering::open(SwitchKind::Frr, PROGRAM, watch(None)).unwrap();
    checked(&lab, killed_owner(&lab));
}

fn killed_owner(lab: &Steering) -> Result<()> {
    announce(lab)?;
    let guard = lab.nodes[0].guard()?;
    lab.nodes[0].process.signal(Signal::SIGKILL)?;
    print_times("owner killed", wait_node(lab, 2)?);
    wait_empty(&lab.nodes[0])?;
    wait_for("end of the guard", DEADLINE, || ended(guard).then_some(()))?;
    Ok(())
}

#[test]
fn a_silent_node_is_left_by_the_switches() {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(None)).unwrap();
    checked(&lab, silent_node(&lab));
}

#[test]
fn a_silent_node_is_left_by_frr() {
    let lab = Steering::open(SwitchKind::Frr, PROGRAM, watch(None)).unwrap();
    checked(&lab, silent_node(&lab));
}

fn silent_node(lab: &Steering) -> Result<()> {
    announce(lab)?;
    // BFD is slow until its intervals are negotiated (RFC 5880 section 6.8.3).
    for node in &lab.nodes {
        wait_for("fast BFD", DEADLINE, || {
            let sessions = node.bird.ask("show bfd sessions").ok()?;
            (sessions.matches("0.150").count() == 2).then_some(())
        })?;
    }
    // The link stays up and no frame passes: only BFD can detect it.
    for switch in [&lab.access, &lab.internet] {
        let disable = ["link", "set", "dev", "node1", "state", "disabled"];
        switch.namespace.run(DEADLINE, "bridge", &disable)?.success()?;
    }
    print_times("node silent", wait_node(lab, 2)?);
    Ok(())
}

#[test]
fn a_stopped_owner_is_fenced_and_finds_out_when_it_wakes_up() {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(None)).unwrap();
    checked(
        &lab,
        (|| {
            announce(&lab)?;
            let node = &lab.nodes[0];
            node.process.signal(Signal::SIGSTOP)?;
            print_times("owner stopped", wait_node(&lab, 2)?);
            ensure!(are_last_resort(node)?, "fenced, but its routes are as before");
            node.process.signal(Signal::SIGCONT)?;
            node.process.wait_line("worker 0 sees its fence", DEADLINE)?;
            node.process.wait_line("fenced 0", DEADLINE)?;
            // Routes of the previous incarnation are not announced.
            let old = set(1, 0, ENDPOINT, PREFIX, primary(1)).replacen("set", "set-old", 1);
            node.send(&old)?;
            node.process.wait_words("refused: set-old 0", DEADLINE)?;
            ensure!(are_last_resort(node)?, "a fenced worker announced its old routes");
            node.order(&set(1, 0, ENDPOINT, PREFIX, primary(2)))?;
            wait_node(&lab, 1)?;
            Ok(())
        })(),
    );
}

#[test]
fn a_shard_whose_workers_are_all_silent_keeps_its_routes() {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(None)).unwrap();
    checked(
        &lab,
        (|| {
            announce(&lab)?;
            let [one, two] = &lab.nodes;
            two.process.signal(Signal::SIGSTOP)?;
            one.process.signal(Signal::SIGSTOP)?;
            let are_fenced =
                || (are_last_resort(one).ok()? && are_last_resort(two).ok()?).then_some(());
            wait_for("routes of last resort", DEADLINE, are_fenced)?;
            // The better of the two routes of last resort.
            lab.access.wait_meds(ENDPOINT, &[last_resort(primary(1)), last_resort(replica(1))])?;
            wait_node(&lab, 1)?;
            // A process that ends loses its routes nevertheless.
            one.process.signal(Signal::SIGKILL)?;
            wait_empty(one)?;
            print_times("the better one of last resort ended", wait_node(&lab, 2)?);
            two.process.signal(Signal::SIGCONT)?;
            two.process.wait_line("worker 0 sees its fence", DEADLINE)?;
            Ok(())
        })(),
    );
}

#[test]
fn a_worker_that_hangs_is_fenced_alone_and_then_the_process_is_killed() {
    let grace = Duration::from_secs(1);
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(Some(grace))).unwrap();
    checked(
        &lab,
        (|| {
            announce(&lab)?;
            let node = &lab.nodes[0];
            node.order(&set(1, 1, OTHER_ENDPOINT, OTHER_PREFIX, primary(1)))?;
            let other = Some(Network::Access.worker(1, 1));
            lab.access.wait_route(OTHER_ENDPOINT, other)?;

            // A withdrawal affects one worker.
            node.order("withdraw 0")?;
            print_times("worker withdrawn", wait_node(&lab, 2)?);
            lab.access.wait_route(OTHER_ENDPOINT, other)?;
            node.order(&set(1, 0, ENDPOINT, PREFIX, primary(1)))?;
            wait_node(&lab, 1)?;

            // So does a fence. The process is killed a second later only.
            node.order("hang 0")?;
            print_times("worker hangs", wait_node(&lab, 2)?);
            node.process.wait_line("fenced 0", DEADLINE)?;
            ensure!(!node.process.log().contains("fenced 1"), "the other worker was fenced too");
            let status = node.process.wait(DEADLINE)?;
            ensure!(status.signal() == Some(Signal::SIGKILL as i32), "{status}");
            wait_empty(node)?;
            lab.access.wait_route(OTHER_ENDPOINT, None)?;
            Ok(())
        })(),
    );
}

#[test]
fn a_process_that_hangs_without_routes_is_killed_after_half_a_minute() {
    let grace = Duration::from_secs(1);
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(Some(grace))).unwrap();
    checked(
        &lab,
        (|| {
            let node = &lab.nodes[0];
            node.order(&set(1, 0, ENDPOINT, PREFIX, primary(1)))?;
            wait_node(&lab, 1)?;
            node.order("withdraw 0")?;
            node.process.signal(Signal::SIGSTOP)?;
            let stopped = Instant::now();
            let status = node.process.wait(UNWATCHED_GRACE + DEADLINE)?;
            ensure!(status.signal() == Some(Signal::SIGKILL as i32), "{status}");
            // The last looks before the signal and the first ones after it count, too.
            let after = stopped.elapsed() + Duration::from_secs(1);
            ensure!(after >= UNWATCHED_GRACE, "killed after {after:?} already");
            Ok(())
        })(),
    );
}

#[test]
fn a_killed_guard_takes_the_routes_along_and_the_next_one_sets_them_again() {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(None)).unwrap();
    checked(
        &lab,
        (|| {
            announce(&lab)?;
            let node = &lab.nodes[0];
            // The owner cannot react: only the kernel can remove the routes.
            let guard = node.guard()?;
            node.process.signal(Signal::SIGSTOP)?;
            kill(Pid::from_raw(guard), Signal::SIGKILL)?;
            print_times("guard killed", wait_node(&lab, 2)?);
            ensure!(is_empty(node)?, "routes outlived their guard");
            node.process.signal(Signal::SIGCONT)?;
            print_times("guard started anew", wait_node(&lab, 1)?);
            let is_another = || node.guard().ok().filter(|&it| it != guard).map(|_| ());
            wait_for("word of another guard", DEADLINE, is_another)?;
            ensure!(node.process.ended().is_none(), "the owner ended with its guard");

            // A guard that does not answer is replaced.
            let stuck = node.guard()?;
            kill(Pid::from_raw(stuck), Signal::SIGSTOP)?;
            node.order(&set(1, 0, ENDPOINT, PREFIX, primary(2)))?;
            wait_for("end of the stuck guard", DEADLINE, || ended(stuck).then_some(()))?;
            lab.access.wait_meds(ENDPOINT, &[primary(2), replica(1)])?;
            Ok(())
        })(),
    );
}

#[test]
fn a_stopped_guard_is_noticed_without_a_list_and_replaced() {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(None)).unwrap();
    checked(
        &lab,
        (|| {
            announce(&lab)?;
            let node = &lab.nodes[0];
            let guard = node.guard()?;
            kill(Pid::from_raw(guard), Signal::SIGSTOP)?;
            node.process.wait_line("Silent", DEADLINE)?;
            kill(Pid::from_raw(guard), Signal::SIGCONT)?;
            node.process.wait_line("Awake", DEADLINE)?;
            ensure!(!is_empty(node)?, "a guard that went on has lost its routes");

            // The guard gets no requests meanwhile.
            kill(Pid::from_raw(guard), Signal::SIGSTOP)?;
            wait_for("end of the stopped guard", DEADLINE, || ended(guard).then_some(()))?;
            wait_node(&lab, 1)?;
            ensure!(node.guard()? != guard, "there is no other guard");
            Ok(())
        })(),
    );
}

#[test]
fn a_stopped_guard_withdraws_all_when_its_owner_is_killed() {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(None)).unwrap();
    checked(
        &lab,
        (|| {
            announce(&lab)?;
            let node = &lab.nodes[0];
            let guard = node.guard()?;
            kill(Pid::from_raw(guard), Signal::SIGSTOP)?;
            node.process.signal(Signal::SIGKILL)?;
            wait_empty(node)?;
            wait_for("end of the guard", DEADLINE, || ended(guard).then_some(()))?;
            wait_node(&lab, 2)?;
            Ok(())
        })(),
    );
}

#[test]
fn a_newer_term_beats_a_stale_owner_and_a_change_of_metric_leaves_no_gap() {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(None)).unwrap();
    checked(
        &lab,
        (|| {
            announce(&lab)?;
            let [one, two] = &lab.nodes;
            let monitors = [&one.namespace, &lab.access.namespace].map(|namespace| {
                let mut command = namespace.command("ip");
                command.args(["monitor", "route"]);
                lab.lab.start(&format!("monitor-{}", namespace.name()), &mut command)
            });
            let [on_node, on_switch] = monitors;
            let (on_node, on_switch) = (on_node?, on_switch?);
            // A marker route shows that the monitor listens.
            for (namespace, monitor) in
                [(&one.namespace, &on_node), (&lab.access.namespace, &on_switch)]
            {
                wait_for("monitor", DEADLINE, || {
                    namespace.ip("route add 192.0.2.1/32 dev lo table 77").ok()?;
                    namespace.ip("route delete 192.0.2.1/32 dev lo table 77").ok()?;
                    monitor.log().contains("192.0.2.1").then_some(())
                })?;
            }

            // The replica becomes acting primary: the owner still announces, and loses.
            two.order(&set(2, 0, ENDPOINT, PREFIX, acting(1, 1)))?;
            wait_node(&lab, 2)?;
            lab.access.wait_meds(ENDPOINT, &[acting(1, 1), primary(1)])?;
            // Each term beats the previous one, whichever node holds it.
            one.order(&set(1, 0, ENDPOINT, PREFIX, primary(2)))?;
            wait_node(&lab, 1)?;
            lab.access.wait_meds(ENDPOINT, &[primary(2), acting(1, 1)])?;
            // One node steps down after the other has taken over: the metric gets better, then
            // worse, as in a drain.
            two.order(&set(2, 0, ENDPOINT, PREFIX, primary(3)))?;
            one.order(&set(1, 0, ENDPOINT, PREFIX, replica(1)))?;
            wait_node(&lab, 2)?;
            lab.access.wait_meds(ENDPOINT, &[primary(3), replica(1)])?;

            ensure_no_gap(&on_node.log(), "10.100.0.1", 1)?;
            ensure_no_gap(&on_switch.log(), "10.100.0.1", 1)?;
            Ok(())
        })(),
    );
}

/// Counts the routes to `address` through the lines of `ip monitor`, `present` at first, and checks
/// that there is always one.
fn ensure_no_gap(log: &str, address: &str, mut present: i32) -> Result<()> {
    let mut changes = 0;
    for line in log.lines() {
        let deleted = line.strip_prefix("Deleted ");
        if !deleted.unwrap_or(line).trim_start_matches("replace ").starts_with(address) {
            continue;
        }
        changes += 1;
        // The switch replaces its route in place, which the kernel shows as one line.
        let is_replacement = deleted.is_none() && !line.contains("table 4242");
        present += if deleted.is_some() { -1 } else { i32::from(!is_replacement) };
        ensure!(present > 0, "no route after \"{line}\" in\n{log}");
    }
    ensure!(changes > 1, "nothing happened:\n{log}");
    Ok(())
}

#[test]
fn a_flushed_table_is_repaired_by_the_next_list() {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, watch(None)).unwrap();
    checked(
        &lab,
        (|| {
            announce(&lab)?;
            let node = &lab.nodes[0];
            node.namespace.ip("route flush table 4242")?;
            lab.access.wait_route(ENDPOINT, Some(Network::Access.worker(2, 0)))?;
            node.order(&set(1, 0, ENDPOINT, PREFIX, primary(1)))?;
            wait_node(&lab, 1)?;
            // A foreign route is refused by name, and the others are set.
            let foreign = Ipv4Addr::new(10, 100, 0, 2);
            node.namespace
                .ip(&format!("route add {foreign} dev weir0 table 4242 metric {}", primary(1)))?;
            node.send(&set(1, 1, OTHER_ENDPOINT, OTHER_PREFIX, primary(1)))?;
            node.process.wait_words(
                "the kernel refused 1 routes, the first: access: 10.100.0.2/32",
                DEADLINE,
            )?;
            lab.internet.wait_route(OTHER_PREFIX, Some(Network::Internet.worker(1, 1)))?;
            Ok(())
        })(),
    );
}
