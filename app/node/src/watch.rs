//! Notices changes on a node: gateways, links, workers, readiness. Pure: statuses in, notices out.

use weir_admin::api::{SideStatus, WorkerStatus};

use crate::status::{HUNG_MS, is_side_up};

/// A gateway that has not answered for this long since start is reported, and again after each such
/// time.
const SILENT_REPORT_MS: u64 = 5000;

/// A change worth a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatusChange {
    /// Everything is up for the first time.
    Ready,
    WorkerHung {
        worker: usize,
        silent_ms: u64,
    },
    WorkerResumed {
        worker: usize,
    },
    LinkUp(WatchedSide),
    LinkDown(WatchedSide),
    GatewayUp(WatchedSide),
    /// A side can forward no more, with the reason.
    GatewayDown(WatchedSide, String),
    /// A side could never forward, with the reason; the worker keeps asking.
    GatewaySilent(WatchedSide, String),
    /// The number of messages of other stations that have an IPv6 address of the side, and the MAC
    /// of the last one.
    AddressConflict(WatchedSide, u64, String),
    /// The gateway is reached at another MAC than before.
    GatewayMoved(WatchedSide, String),
    /// The number of ARP messages that claimed a gateway's or another worker's address for a MAC
    /// that it does not have, and the last such MAC.
    ClaimRefused(WatchedSide, u64, String),
    /// TCP comes from this side with wrong checksums; reported once.
    ChecksumsWrong(WatchedSide),
}

/// A side of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchedSide {
    pub worker: usize,
    pub side: &'static str,
    pub device: String,
    pub gateways: String,
}

/// The state at the last call.
#[derive(Debug, Default)]
pub(crate) struct StatusWatch {
    workers: Vec<SeenWorker>,
    is_ready: bool,
}

#[derive(Clone, Debug, Default)]
struct SeenWorker {
    is_hung: bool,
    sides: [SeenSide; 2],
}

#[derive(Clone, Debug, Default)]
struct SeenSide {
    /// `None` before the first call.
    is_link_up: Option<bool>,
    is_gateway_up: bool,
    has_answered: bool,
    reported_ms: u64,
    claims: u64,
    conflicts: u64,
    moves: u64,
    are_checksums_wrong: bool,
}

impl StatusWatch {
    /// Returns the changes since the last call. `now_ms`: monotonic, since start. Must be called a
    /// few times a second.
    pub(crate) fn observe(&mut self, now_ms: u64, workers: &[WorkerStatus]) -> Vec<StatusChange> {
        self.workers.resize(workers.len(), SeenWorker::default());
        let mut notices = Vec::new();
        for (seen, worker) in self.workers.iter_mut().zip(workers) {
            seen.observe(now_ms, worker, &mut notices);
        }
        let is_up = |worker: &WorkerStatus| {
            worker.silent_ms < HUNG_MS && is_side_up(&worker.access) && is_side_up(&worker.internet)
        };
        if !self.is_ready && !workers.is_empty() && workers.iter().all(is_up) {
            self.is_ready = true;
            notices.push(StatusChange::Ready);
        }
        notices
    }
}

impl SeenWorker {
    fn observe(&mut self, now_ms: u64, status: &WorkerStatus, notices: &mut Vec<StatusChange>) {
        let worker = status.worker;
        let is_hung = status.silent_ms >= HUNG_MS;
        match (self.is_hung, is_hung) {
            (false, true) => {
                notices.push(StatusChange::WorkerHung { worker, silent_ms: status.silent_ms });
            }
            (true, false) => notices.push(StatusChange::WorkerResumed { worker }),
            _ => {}
        }
        self.is_hung = is_hung;
        let sides = [("access", &status.access), ("internet", &status.internet)];
        for (seen, (name, side)) in self.sides.iter_mut().zip(sides) {
            seen.observe(now_ms, worker, name, side, notices);
        }
    }
}

impl SeenSide {
    fn observe(
        &mut self,
        now_ms: u64,
        worker: usize,
        name: &'static str,
        side: &SideStatus,
        notices: &mut Vec<StatusChange>,
    ) {
        let watched_side = || WatchedSide {
            worker,
            side: name,
            device: side.device.clone(),
            gateways: side.gateways.join(","),
        };
        match (self.is_link_up, side.is_link_up) {
            (None | Some(true), false) => notices.push(StatusChange::LinkDown(watched_side())),
            (Some(false), true) => notices.push(StatusChange::LinkUp(watched_side())),
            _ => {}
        }
        self.is_link_up = Some(side.is_link_up);
        match (self.is_gateway_up, side.is_gateway_up) {
            (false, true) => notices.push(StatusChange::GatewayUp(watched_side())),
            (true, false) => {
                notices.push(StatusChange::GatewayDown(watched_side(), side.fault.clone()));
            }
            _ => {}
        }
        let claims = side.arp_claims_refused_total.saturating_sub(self.claims);
        if claims > 0 {
            notices.push(StatusChange::ClaimRefused(
                watched_side(),
                claims,
                side.arp_claimant.clone(),
            ));
        }
        let conflicts = side.address_conflicts_total.saturating_sub(self.conflicts);
        if conflicts > 0 {
            let station = side.address_conflict_mac.clone();
            notices.push(StatusChange::AddressConflict(watched_side(), conflicts, station));
        }
        if side.gateway_moves_total > self.moves {
            notices.push(StatusChange::GatewayMoved(watched_side(), side.gateway_moved_to.clone()));
        }
        let are_wrong = side.checksums_wrong_total > 0;
        if are_wrong && !std::mem::replace(&mut self.are_checksums_wrong, are_wrong) {
            notices.push(StatusChange::ChecksumsWrong(watched_side()));
        }
        (self.claims, self.moves) = (side.arp_claims_refused_total, side.gateway_moves_total);
        self.conflicts = side.address_conflicts_total;
        self.is_gateway_up = side.is_gateway_up;
        self.has_answered |= side.is_gateway_up;
        if !self.has_answered && now_ms >= self.reported_ms + SILENT_REPORT_MS {
            self.reported_ms = now_ms;
            notices.push(StatusChange::GatewaySilent(watched_side(), side.fault.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::worker;

    const SILENT: &str = "gateway 10.1.0.2 does not answer ARP";

    fn watched_side() -> WatchedSide {
        WatchedSide {
            worker: 0,
            side: "access",
            device: "net_null0".into(),
            gateways: "10.1.0.2".into(),
        }
    }

    #[test]
    fn ready_is_said_once_when_everything_is_up() {
        let mut watch = StatusWatch::default();
        let mut status = worker(0);
        status.access.is_gateway_up = false;
        assert!(!watch.observe(100, &[status.clone()]).contains(&StatusChange::Ready));
        status.access.is_gateway_up = true;
        let notices = watch.observe(200, &[status.clone()]);
        assert_eq!(notices, [StatusChange::GatewayUp(watched_side()), StatusChange::Ready]);
        assert!(watch.observe(300, &[status]).is_empty());
    }

    #[test]
    fn a_gateway_that_never_answers_is_reported_again_and_again() {
        let mut watch = StatusWatch::default();
        let mut status = worker(0);
        status.access.is_gateway_up = false;
        status.access.fault = SILENT.into();
        let silent = (0..200)
            .flat_map(|tick| watch.observe(tick * 100, &[status.clone()]))
            .filter(|notice| *notice == StatusChange::GatewaySilent(watched_side(), SILENT.into()))
            .count();
        assert_eq!(silent, 3);
    }

    #[test]
    fn refused_claims_and_moves_of_a_gateway_are_reported_once_each() {
        let mut watch = StatusWatch::default();
        let mut status = worker(0);
        watch.observe(0, &[status.clone()]);
        status.access.arp_claims_refused_total = 7;
        status.access.arp_claimant = "02:00:00:00:00:66".into();
        let refused =
            |claims| StatusChange::ClaimRefused(watched_side(), claims, "02:00:00:00:00:66".into());
        assert_eq!(watch.observe(100, &[status.clone()]), [refused(7)]);
        assert!(watch.observe(200, &[status.clone()]).is_empty());
        status.access.arp_claims_refused_total = 9;
        status.access.gateway_moves_total = 1;
        status.access.gateway_moved_to = "02:00:00:00:00:67".into();
        let moved = StatusChange::GatewayMoved(watched_side(), "02:00:00:00:00:67".into());
        assert_eq!(watch.observe(300, &[status.clone()]), [refused(2), moved]);
        assert!(watch.observe(400, &[status]).is_empty());
    }

    #[test]
    fn each_further_message_of_a_station_with_the_same_address_is_reported() {
        let mut watch = StatusWatch::default();
        let mut status = worker(0);
        watch.observe(0, &[status.clone()]);
        let station = "02:00:00:00:00:66";
        status.access.address_conflict_mac = station.into();
        let conflict = |count| StatusChange::AddressConflict(watched_side(), count, station.into());
        for (total, further) in [(1, 1), (4, 3)] {
            status.access.address_conflicts_total = total;
            assert_eq!(watch.observe(total * 100, &[status.clone()]), [conflict(further)]);
            assert!(watch.observe(total * 100 + 50, &[status.clone()]).is_empty());
        }
    }

    #[test]
    fn wrong_checksums_are_reported_once() {
        let mut watch = StatusWatch::default();
        let mut status = worker(0);
        watch.observe(0, &[status.clone()]);
        for count in 1..3 {
            status.access.checksums_wrong_total = count;
            let expected = [StatusChange::ChecksumsWrong(watched_side())];
            let expected = if count == 1 { &expected[..] } else { &[] };
            assert_eq!(watch.observe(100 * count, &[status.clone()]), expected);
        }
    }

    #[test]
    fn changes_are_reported_once_each_way() {
        let mut watch = StatusWatch::default();
        watch.observe(0, &[worker(0)]);
        let mut broken = worker(0);
        broken.silent_ms = 1500;
        broken.access.is_link_up = false;
        broken.access.is_gateway_up = false;
        broken.access.fault = SILENT.into();
        let notices = watch.observe(100, &[broken.clone()]);
        assert_eq!(
            notices,
            [
                StatusChange::WorkerHung { worker: 0, silent_ms: 1500 },
                StatusChange::LinkDown(watched_side()),
                StatusChange::GatewayDown(watched_side(), SILENT.into())
            ]
        );
        assert!(watch.observe(200, &[broken]).is_empty());
        let notices = watch.observe(300, &[worker(0)]);
        assert_eq!(
            notices,
            [
                StatusChange::WorkerResumed { worker: 0 },
                StatusChange::LinkUp(watched_side()),
                StatusChange::GatewayUp(watched_side())
            ]
        );
    }
}
