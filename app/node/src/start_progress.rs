//! The start of a node: what it waits for, and since when.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use weir_node_core::first_look::{Awaited, Wait};

use weir_admin::api::{Status, Verdict, WaitingStatus};

/// Label of a node that waits for nothing but its own start: tables, devices, threads.
const START: &str = "start";

/// The start of a node, as its admin API shows it.
#[derive(Clone, Debug)]
pub(crate) struct StartProgress(Arc<StartShared>);

#[derive(Debug)]
struct StartShared {
    node: String,
    began: Instant,
    wait: Mutex<Option<StartWait>>,
}

/// A wait on this machine's clock.
#[derive(Clone, Debug)]
struct StartWait {
    awaited: &'static str,
    since: Instant,
    why: String,
}

impl StartProgress {
    /// Begins the start of a node.
    pub(crate) fn begin(node: &str) -> Self {
        let (began, wait) = (Instant::now(), Mutex::default());
        Self(Arc::new(StartShared { node: node.to_owned(), began, wait }))
    }

    /// Notes that the node waits. `began`: the zero of the wait's own time.
    pub(crate) fn waits(&self, wait: &Wait, began: Instant) {
        let (awaited, since, why) = (wait.awaited.name(), began + wait.since, wait.why.clone());
        *self.wait() = Some(StartWait { awaited, since, why });
    }

    /// Notes that the wait is over; the start goes on.
    pub(crate) fn goes_on(&self) {
        *self.wait() = None;
    }

    /// Returns the node's present status; the node forwards nothing.
    pub(crate) fn status(&self) -> Status {
        let waiting = self.waiting();
        Status {
            verdict: Verdict::Down,
            reasons: vec![wait_text(&waiting)],
            node: self.0.node.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            has_been_ready: false,
            uptime_sec: self.0.began.elapsed().as_secs(),
            has_huge_pages: false,
            block_log: None,
            workers: Vec::new(),
            threads: Vec::new(),
            membership: None,
            generation: None,
            waiting: Some(waiting),
        }
    }

    /// Returns the reason why requests other than for the status are refused.
    pub(crate) fn problem(&self) -> String {
        format!("the node {}", wait_text(&self.waiting()))
    }

    /// Returns the values of `weir_waiting_seconds`.
    pub(crate) fn waiting_seconds(&self) -> Vec<(&'static str, f64)> {
        let waiting = self.waiting();
        let seconds = |name: &'static str| {
            let is_awaited = name == waiting.awaited;
            (name, if is_awaited { waiting.waited_ms as f64 / 1e3 } else { 0.0 })
        };
        awaited_names().map(seconds).collect()
    }

    fn waiting(&self) -> WaitingStatus {
        let wait = self.wait().clone();
        let StartWait { awaited, since, why } = wait.unwrap_or_else(|| StartWait {
            awaited: START,
            since: self.0.began,
            why: "it builds its tables and starts its devices".to_owned(),
        });
        let waited = since.elapsed();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WaitingStatus {
            awaited: awaited.to_owned(),
            why,
            waited_ms: waited.as_millis() as u64,
            since_unix_sec: unix.saturating_sub(waited).as_secs(),
        }
    }

    fn wait(&self) -> MutexGuard<'_, Option<StartWait>> {
        self.0.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the values of the label `for` of `weir_waiting_seconds`.
pub(crate) fn awaited_names() -> impl Iterator<Item = &'static str> {
    Awaited::ALL.map(Awaited::name).into_iter().chain([START])
}

fn wait_text(waiting: &WaitingStatus) -> String {
    let WaitingStatus { awaited, why, waited_ms, .. } = waiting;
    let seconds = waited_ms / 1000;
    match awaited.as_str() {
        START => format!("has been starting for {seconds} s: {why}"),
        awaited => {
            let awaited = awaited.replace('-', " ");
            let article = if awaited == "etcd" { "" } else { "the " };
            format!("has waited for {article}{awaited} for {seconds} s: {why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_node_that_waits_says_for_what_and_since_when() {
        let progress = StartProgress::begin("n1");
        let began = Instant::now().checked_sub(Duration::from_secs(40)).unwrap();
        let why = "no cluster file has been applied yet".to_owned();
        let since = Duration::from_secs(10);
        progress.waits(&Wait { awaited: Awaited::ClusterFile, since, why }, began);
        let status = progress.status();
        assert_eq!(status.verdict, Verdict::Down);
        let reason = &status.reasons[0];
        let words = "has waited for the cluster file for ";
        assert!(reason.starts_with(words), "{reason}");
        assert!(reason.ends_with(" s: no cluster file has been applied yet"), "{reason}");
        let waiting = status.waiting.unwrap();
        assert_eq!(waiting.awaited, "cluster-file");
        assert!(waiting.waited_ms >= 30_000, "{waiting:?}");
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let ago = unix.as_secs() - waiting.since_unix_sec;
        assert!(ago >= 30, "{ago}");
        assert!(progress.problem().starts_with("the node has waited for the cluster file"));
        let seconds = progress.waiting_seconds();
        assert!(seconds.iter().all(|(name, value)| (*name == "cluster-file") == (*value > 0.0)));

        progress.goes_on();
        let status = progress.status();
        assert!(status.reasons[0].starts_with("has been starting for "), "{status:?}");
        assert_eq!(status.waiting.unwrap().awaited, "start");
    }
}
