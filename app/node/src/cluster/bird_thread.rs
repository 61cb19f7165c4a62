//! The thread that polls BIRD twice a second and reports the state of both sides to the roles
//! thread.
//!
//! ```text
//!   roles thread --snapshot: routes in the kernel--> bird thread <--control socket--> BIRD
//!        ^                                            |
//!        +------------- Inbox::Bird, each look -------+
//! ```
//!
//! No thread waits for it. It ends once its reports have no receiver.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use ipnet::IpNet;
use weir_admin::api::BirdSessions;
use weir_config::Bird;
use weir_routes::RouteSide;
use weir_routes::bird_watch::{
    BirdWatch, LOOK_INTERVAL, SideChange, SideState, SideView, WatchedBird,
};

use super::inbox::InboxSender;
use super::member_snapshot::MemberSnapshot;

/// A side with the state that is in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BirdSide {
    pub side: RouteSide,
    pub view: SideView,
    /// Milliseconds for which this state has been in effect.
    pub lasts_ms: u64,
}

/// Returns the BIRD that is watched, for the status.
pub(super) fn sessions(bird: &Bird) -> BirdSessions {
    let Bird { socket, access, internet } = bird.clone();
    BirdSessions { socket, access, internet }
}

/// # Errors
/// When the system gives no thread.
pub(super) fn start(
    bird: &Bird,
    snapshot: Arc<MemberSnapshot>,
    inbox: InboxSender,
) -> io::Result<()> {
    let watched = WatchedBird {
        socket: bird.socket.clone(),
        protocols: [bird.access.clone(), bird.internet.clone()],
    };
    // The thread ends by itself, within one poll of BIRD.
    thread::Builder::new()
        .name("weir-bird".into())
        .spawn(move || run(BirdWatch::new(watched), &snapshot, &inbox))
        .map(drop)
}

fn run(mut watch: BirdWatch, snapshot: &MemberSnapshot, inbox: &InboxSender) {
    let began = Instant::now();
    loop {
        let seen = watch.look(in_kernel(snapshot));
        let now_ms = began.elapsed().as_millis() as u64;
        for change in watch.observe(now_ms, seen) {
            log(&change);
        }
        let sides = watch.sides().map(|(side, view, since_ms)| BirdSide {
            side,
            view: view.clone(),
            lasts_ms: now_ms.saturating_sub(since_ms),
        });
        if inbox.send_bird(sides.into()).is_err() {
            return;
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Returns the prefixes that the guard has set, by side.
fn in_kernel(snapshot: &MemberSnapshot) -> [BTreeSet<IpNet>; 2] {
    let status = snapshot.status();
    [RouteSide::Access, RouteSide::Internet].map(|side| {
        let name = side.to_string();
        let routes = status.routes.iter().filter(|route| route.is_set && route.side == name);
        routes.filter_map(|route| route.prefix.parse().ok()).collect()
    })
}

fn log(change: &SideChange) {
    let (side, why) = (change.side.to_string(), &change.why);
    match (change.before.cause(), change.now.cause()) {
        (None, Some(cause)) => tracing::warn!(
            event = "bird-down",
            side,
            cause,
            "the routes of a side are not announced: {why}"
        ),
        (Some(_), None) if change.now == SideState::Up => {
            tracing::info!(event = "bird-up", side, "the routes of a side are announced again");
        }
        _ => {}
    }
}

#[cfg(test)]
#[path = "bird_thread_tests.rs"]
mod tests;
