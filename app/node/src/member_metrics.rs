//! The metrics of a node's membership in its cluster.

use std::fmt::Error;

use weir_admin::api::{BirdSideStatus, MemberStatus};
use weir_engine::{Direction, DropReason, EarlyRelease};
use weir_process::metrics::{Family, Labels, NO_LABEL};

use crate::member_verdict::is_unprotected;
use crate::metrics::Numbered;
use crate::node::Node;
use crate::worker_stats::WorkerStats;

const ROLES: [&str; 6] = ["syncing", "out-of-sync", "synced", "acting", "primary", "leaving"];

/// Writes the metrics of a member; none on a standalone node.
pub(crate) fn member(
    family: &mut Family<'_, '_>,
    node: &Node,
    workers: &[Numbered<'_>],
) -> Result<(), Error> {
    let Some(snapshot) = node.member.get() else { return Ok(()) };
    let status = snapshot.status();
    roles(family, &status, workers)?;
    replication(family, &status)?;
    copies(family, &status, workers)?;
    commits(family, &status, workers)?;
    routes(family, &status, workers)?;
    bird(family, &status)?;
    store(family, &status)
}

fn roles(
    family: &mut Family<'_, '_>,
    status: &MemberStatus,
    workers: &[Numbered<'_>],
) -> Result<(), Error> {
    let numbers = || workers.iter().map(|(label, worker)| (label.as_str(), worker.worker));
    let of = |worker: usize| status.shards.iter().filter(move |shard| shard.worker == worker);
    let shards = numbers().flat_map(|(label, worker)| {
        ROLES.map(|role| {
            let count = of(worker).filter(|shard| shard.role == role).count();
            (Labels([("worker", label), ("role", role), NO_LABEL]), count as f64)
        })
    });
    family.gauge("weir_shards", "Shards by the worker's role for them.", shards)?;
    let unprotected = numbers().map(|(label, worker)| {
        let count = of(worker).filter(|shard| is_unprotected(status, shard)).count();
        (Labels([("worker", label), NO_LABEL, NO_LABEL]), count as f64)
    });
    let help = "Shards served here of which no other member has a full copy.";
    family.gauge("weir_shards_unprotected", help, unprotected)?;
    let misdirected = numbers().map(|(label, worker)| {
        let count = of(worker).filter(|shard| shard.is_misdirected).count();
        (Labels([("worker", label), NO_LABEL, NO_LABEL]), count as f64)
    });
    let help = "Shards whose packets come to a replica while the primary is heard.";
    family.gauge("weir_misdirected", help, misdirected)?;
    let failovers = status
        .failovers_total
        .iter()
        .map(|(cause, count)| (Labels([("cause", cause.as_str()), NO_LABEL, NO_LABEL]), *count));
    family.counter("weir_failovers", "Shards that a worker here took over.", failovers)
}

fn replication(family: &mut Family<'_, '_>, status: &MemberStatus) -> Result<(), Error> {
    let numbers: Vec<String> = status.peers.iter().map(|peer| peer.worker.to_string()).collect();
    let peers = || status.peers.iter().zip(&numbers);
    let labels = |number, peer| Labels([("worker", number), ("peer", peer), NO_LABEL]);
    let gauge = |value: fn(&weir_admin::api::PeerStatus) -> f64| {
        peers()
            .map(move |(peer, number)| (labels(number.as_str(), peer.peer.as_str()), value(peer)))
    };
    let silent = gauge(|peer| peer.silent_ms as f64 / 1e3);
    family.gauge("weir_replication_silent_seconds", "Since the peer was heard.", silent)?;
    let versions = gauge(|peer| f64::from(peer.version.unwrap_or_default()));
    let help =
        "Version of the replication protocol spoken with the peer; 0: none, there is no session.";
    family.gauge("weir_replication_version", help, versions)?;
    let lag = gauge(|peer| peer.lag_ms as f64 / 1e3);
    let help = "Age of the oldest change that the peer has not acknowledged.";
    family.gauge("weir_replication_lag_seconds", help, lag)?;
    let records = gauge(|peer| peer.lag_records as f64);
    let help = "Changes that the peer has not acknowledged.";
    family.gauge("weir_replication_lag_records", help, records)?;
    let counter = |value: fn(&weir_admin::api::PeerStatus) -> u64| {
        peers()
            .map(move |(peer, number)| (labels(number.as_str(), peer.peer.as_str()), value(peer)))
    };
    let resyncs = counter(|peer| peer.resyncs_total);
    let help = "Streams to the peer that started over.";
    family.counter("weir_replication_resyncs", help, resyncs)?;
    let gaps = counter(|peer| peer.gaps_total);
    let help = "Datagrams of the peer that were missing when the next came.";
    family.counter("weir_replication_gaps", help, gaps)?;
    let bytes = counter(|peer| peer.sent_bytes_total);
    let help = "Bytes of datagrams sent to the peer.";
    family.counter("weir_replication_sent_bytes", help, bytes)
}

fn copies(
    family: &mut Family<'_, '_>,
    status: &MemberStatus,
    workers: &[Numbered<'_>],
) -> Result<(), Error> {
    let numbers: Vec<String> =
        status.replication.iter().map(|copies| copies.worker.to_string()).collect();
    let of = || status.replication.iter().zip(&numbers);
    let copies = of().flat_map(|(copies, number)| {
        let states = ["waiting", "copying", "synced"].into_iter().zip(copies.copies);
        states.map(move |(state, count)| {
            (Labels([("worker", number.as_str()), ("state", state), NO_LABEL]), count as f64)
        })
    });
    family.gauge("weir_copies", "Lanes of shards that are copied to other workers.", copies)?;
    let full = of().map(|(copies, number)| {
        (Labels([("worker", number.as_str()), NO_LABEL, NO_LABEL]), copies.lanes_full as f64)
    });
    let help = "Lanes whose copy here lacks flows for want of room.";
    family.gauge("weir_copy_full", help, full)?;
    let refusals = of().flat_map(|(copies, number)| {
        copies.refusals_total.iter().map(move |(reason, count)| {
            (Labels([("worker", number.as_str()), ("reason", reason.as_str()), NO_LABEL]), *count)
        })
    });
    let help = "Datagrams of replication that were not used.";
    family.counter("weir_replication_refusals", help, refusals)?;
    let redirects = workers.iter().flat_map(|(label, worker)| {
        let engine = &worker.stats.engine;
        let of = |dir| Labels([("worker", label.as_str()), ("dir", dir), NO_LABEL]);
        [
            (of("out"), engine.redirected(Direction::Transmit)),
            (of("in"), engine.redirected(Direction::Receive)),
            (of("limited"), engine.dropped(DropReason::RedirectLimit)),
        ]
    });
    family.counter("weir_redirects", "Packets handed to the worker that knows them.", redirects)
}

/// Writes the metrics of packets that wait until copies have the changes they depend on.
fn commits(
    family: &mut Family<'_, '_>,
    status: &MemberStatus,
    workers: &[Numbered<'_>],
) -> Result<(), Error> {
    let label = |label| Labels([("worker", label), NO_LABEL, NO_LABEL]);
    let stats = || workers.iter().map(|(number, worker)| (number.as_str(), &worker.stats));
    let held = stats().map(|(number, stats)| (label(number), stats.held.get() as f64));
    family.gauge("weir_commit_held", "Packets that wait for copies.", held)?;
    let waited = stats().map(|(number, stats)| (label(number), stats.engine.held()));
    family.counter("weir_commit_waits", "Packets that have waited for copies.", waited)?;
    let early = stats().flat_map(|(number, stats)| {
        EarlyRelease::ALL.map(|why| {
            let labels = Labels([("worker", number), ("cause", why.name()), NO_LABEL]);
            (labels, stats.engine.early(why))
        })
    });
    let help = "Packets that left before copies had what they depend on: too late, or too many.";
    family.counter("weir_commit_early", help, early)?;
    let of = |worker: usize| status.replication.iter().filter(move |it| it.worker == worker);
    let degraded = workers.iter().map(|(number, worker)| {
        let few: u64 = of(worker.worker).map(|it| it.changes_degraded_total).sum();
        (label(number.as_str()), few + worker.stats.commits_alone.get())
    });
    let help = "Changes that fewer copies than wanted had when packets that depend on them left.";
    family.counter("weir_commit_degraded", help, degraded)?;
    let short = workers.iter().map(|(number, worker)| {
        let shards: usize = of(worker.worker).map(|it| it.shards_short.len()).sum();
        (label(number.as_str()), shards as f64)
    });
    let help = "Shards served here that have fewer copies than packets are to wait for.";
    family.gauge("weir_commit_shards_short", help, short)
}

fn routes(
    family: &mut Family<'_, '_>,
    status: &MemberStatus,
    workers: &[Numbered<'_>],
) -> Result<(), Error> {
    let routes = workers.iter().flat_map(|(label, worker)| {
        let of = || status.routes.iter().filter(|route| route.worker == worker.worker);
        let set = of().filter(|route| route.is_set).count();
        [("wanted", of().count()), ("set", set)].map(|(state, count)| {
            (Labels([("worker", label.as_str()), ("state", state), NO_LABEL]), count as f64)
        })
    });
    family.gauge("weir_routes", "Routes for the switches.", routes)?;
    let none = || Labels([NO_LABEL, NO_LABEL, NO_LABEL]);
    let trips = [(none(), status.watchdog_trips_total)];
    let help = "Workers that the guard took for dead.";
    family.counter("weir_watchdog_trips", help, trips)?;
    let held_off = workers.iter().map(|(label, worker)| {
        let of = status.held_off.iter().find(|it| it.worker == worker.worker);
        let seconds = of.map_or(0.0, |it| it.left_ms as f64 / 1000.0);
        (Labels([("worker", label.as_str()), NO_LABEL, NO_LABEL]), seconds)
    });
    let help =
        "Seconds for which the routes of a worker that was fenced again and again are held off.";
    family.gauge("weir_routes_held_off_seconds", help, held_off)?;
    let help = "Times that the routes of a worker that was fenced again and again were held off.";
    family.counter("weir_route_hold_offs", help, [(none(), status.hold_offs_total)])?;
    let late = |count: fn(&WorkerStats) -> u64| {
        workers.iter().map(move |(label, worker)| {
            (Labels([("worker", label.as_str()), NO_LABEL, NO_LABEL]), count(&worker.stats))
        })
    };
    let help = "Packets that had waited for a worker that stood still.";
    family.counter("weir_late_packets", help, late(|stats| stats.late_packets.get()))?;
    let help = "Packets that a worker that stood still for a second or longer threw away.";
    family.counter("weir_late_discarded", help, late(|stats| stats.late_discarded.get()))?;
    let restarts = [(none(), status.guard_restarts_total)];
    family.counter("weir_guard_restarts", "Guards that were restarted.", restarts)?;
    let help = "Events of the guard and the workers that the thread of the roles was too late for.";
    family.counter("weir_roles_events_lost", help, [(none(), status.events_lost_total)])
}

/// Writes the state of each side; none of a side that is not watched, or not known yet.
fn bird(family: &mut Family<'_, '_>, status: &MemberStatus) -> Result<(), Error> {
    let sides = || {
        let is_known = |side: &&BirdSideStatus| match side.state.as_str() {
            "not-watched" => false,
            "unknown" => !side.why.is_empty(),
            _ => true,
        };
        status.bird.iter().filter(is_known)
    };
    let up = sides().map(|side| {
        let is_up = f64::from(u8::from(side.state == "up"));
        (Labels([("side", side.side.as_str()), NO_LABEL, NO_LABEL]), is_up)
    });
    let help = "1 while a session of BIRD to a switch of the side is established and exports all its routes.";
    family.gauge("weir_bird_up", help, up)?;
    let sessions = sides().flat_map(|side| {
        [("established", side.sessions_established), ("watched", side.sessions)].map(
            |(state, count)| {
                (Labels([("side", side.side.as_str()), ("state", state), NO_LABEL]), count as f64)
            },
        )
    });
    family.gauge(
        "weir_bird_sessions",
        "BGP sessions of BIRD to the switches of the side.",
        sessions,
    )
}

fn store(family: &mut Family<'_, '_>, status: &MemberStatus) -> Result<(), Error> {
    let none = || Labels([NO_LABEL, NO_LABEL, NO_LABEL]);
    let flag = |is: bool| f64::from(u8::from(is));
    let up = [(none(), flag(status.etcd_error.is_none()))];
    family.gauge("weir_etcd_up", "1 while etcd answers.", up)?;
    let errors = [(none(), status.etcd_errors_total)];
    family.counter("weir_etcd_errors", "Requests to etcd that failed.", errors)?;
    let registered = [(none(), flag(status.is_registered))];
    family.gauge("weir_registered", "1 while the cluster knows this node.", registered)?;
    let guard = [(none(), flag(status.guard_trouble.is_none()))];
    family.gauge("weir_guard_up", "1 while the guard of the routes works.", guard)?;
    let unsaved = [(none(), status.epochs_unsaved_ms as f64 / 1e3)];
    let help = "Since the oldest epoch that is not on disk was seen.";
    family.gauge("weir_epochs_unsaved_seconds", help, unsaved)?;
    let epoch = [(none(), status.map_epoch_max as f64)];
    family.gauge("weir_map_epoch_max", "Highest epoch of the shards served here.", epoch)?;
    let rejected = [(none(), status.map_rejected_total)];
    let help = "Entries of the map that were older than what was seen.";
    family.counter("weir_map_rejected", help, rejected)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_admin::api::RoleStatus;

    use super::*;
    use crate::cluster::MemberSnapshot;
    use crate::sample_node::sample_node;

    fn served_alone() -> RoleStatus {
        RoleStatus {
            shard: 7,
            worker: 0,
            role: "primary".into(),
            term: 1,
            epoch: 1,
            members: Vec::new(),
            others_synced: 0,
            metric: Some(1),
            since_ms: 0,
            is_route_out: true,
            is_misdirected: false,
            is_set_back: false,
            trouble: None,
        }
    }

    fn has_line(status: MemberStatus, line: &str) -> bool {
        let (node, _mailbox) = sample_node();
        node.workers[0].stats.late_packets.add(12);
        node.workers[0].stats.late_discarded.add(13);
        let snapshot = Arc::<MemberSnapshot>::default();
        snapshot.show(status, weir_controller::records::NodeAnswer::default());
        node.member.set(snapshot).unwrap();
        crate::metrics::text(&node).lines().any(|found| found == line)
    }

    #[test]
    fn a_shard_without_wanted_copies_is_not_unprotected() {
        let of = |replicas: u64| MemberStatus {
            replicas,
            shards: vec![served_alone()],
            ..MemberStatus::default()
        };
        assert!(has_line(of(1), "weir_shards_unprotected{worker=\"0\"} 1.0"));
        assert!(has_line(of(0), "weir_shards_unprotected{worker=\"0\"} 0.0"));
    }

    #[test]
    fn packets_that_waited_for_a_worker_are_counted() {
        for (name, count) in [("packets", 12), ("discarded", 13)] {
            let line = format!("weir_late_{name}_total{{worker=\"0\"}} {count}");
            assert!(has_line(MemberStatus::default(), &line));
        }
    }

    #[test]
    fn a_side_that_bird_does_not_announce_is_0_and_an_unwatched_one_is_absent() {
        let of = |state: &str, why: &str| MemberStatus {
            bird: vec![BirdSideStatus {
                side: "access".into(),
                state: state.into(),
                sessions_established: 1,
                sessions: 2,
                why: why.into(),
                since_ms: 0,
            }],
            ..MemberStatus::default()
        };
        let up = |value: &str| format!("weir_bird_up{{side=\"access\"}} {value}");
        assert!(has_line(of("up", ""), &up("1.0")));
        for state in ["down", "not-exporting", "unknown"] {
            assert!(has_line(of(state, "x"), &up("0.0")));
        }
        let sessions = "weir_bird_sessions{side=\"access\",state=\"established\"} 1.0";
        assert!(has_line(of("up", ""), sessions));
        for state in ["not-watched", "unknown"] {
            assert!(!has_line(of(state, ""), &up("1.0")) && !has_line(of(state, ""), &up("0.0")));
        }
    }
}
