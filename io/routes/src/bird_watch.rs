//! Checks again and again whether BIRD announces what the guard has put into the kernel tables.
//!
//! ```text
//!   show protocols ----------> sessions of a side --+
//!   show route export PROTO -> prefixes exported ---+--> Seen --> Damping --> state of the side,
//!   routes in the kernel ----> prefixes due --------+                         changes
//! ```
//!
//! - A side is up while one of its sessions is established and exports every IPv4 prefix that is
//!   due, and one, the same or another, every IPv6 prefix. A prefix is due if the kernel had it at
//!   this look and at the previous one: BIRD needs a moment to learn it.
//! - A prefix that was not exported for [`LASTS_MS`] counts as missing until it is due again and
//!   exported, or until BIRD has another configuration or other protocols, or leaves a look without
//!   an answer: a node that is drained because of the missing export has no routes left that could
//!   prove the opposite. A shorter lack proves nothing: a BIRD that starts or takes another
//!   configuration exports a moment later.
//! - A look ends within [`LOOK_DEADLINE`]. No answer, half an answer and nonsense all count as no
//!   answer.
//! - An observation counts once it has lasted for [`LASTS_MS`]; only a side of which nothing is
//!   known yet is up at once. Looks that are further apart than [`GAP_MAX_MS`] prove nothing about
//!   the time between them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::bird_report::{BirdReport, ListedExports, LookAnswer, ask, judge};
use crate::route::RouteSide;

/// Longest duration of a look.
pub const LOOK_DEADLINE: Duration = Duration::from_secs(1);
/// Time between two looks.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which the long lists of exported routes are read while nothing has changed and
/// nothing was missing.
pub const LIST_INTERVAL: Duration = Duration::from_secs(2);
/// An observation counts after it has lasted this long.
pub const LASTS_MS: u64 = 3_000;
/// Longest gap between looks; in a longer one anything may have happened.
pub const GAP_MAX_MS: u64 = 2_500;

const SIDES: [RouteSide; 2] = [RouteSide::Access, RouteSide::Internet];

/// The BIRD and the protocols that are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedBird {
    /// BIRD's control socket.
    pub socket: PathBuf,
    /// Names of the BGP protocols by side: access, internet. A side without a protocol is not
    /// watched.
    pub protocols: [Vec<String>; 2],
}

/// Whether a side is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideState {
    /// There are no protocols to watch.
    NotWatched,
    /// No observation has lasted yet, or this process may not ask BIRD.
    Unknown,
    /// A session is established and exports every due prefix.
    Up,
    /// BIRD does not answer.
    NoAnswer,
    /// No session is established.
    NoSession,
    /// Sessions are established, but routes of the kernel are not exported.
    NotExporting,
}

impl SideState {
    /// Returns one word for people and metrics: `down` for a side without an answer and for one
    /// without a session.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotWatched => "not-watched",
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::NoAnswer | Self::NoSession => "down",
            Self::NotExporting => "not-exporting",
        }
    }

    /// Returns why the side is down, as nodes report it to controllers; `None` if it is not known
    /// to be down.
    pub fn cause(self) -> Option<&'static str> {
        match self {
            Self::NotWatched | Self::Unknown | Self::Up => None,
            Self::NoAnswer => Some("no-answer"),
            Self::NoSession => Some("no-session"),
            Self::NotExporting => Some("not-exporting"),
        }
    }
}

/// A side as one look sees it, or as it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideView {
    /// Whether it is announced.
    pub state: SideState,
    /// Number of established sessions.
    pub established: usize,
    /// Number of watched protocols.
    pub protocols: usize,
    /// The fault, for people; empty if there is none.
    pub why: String,
}

/// A change of a side's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideChange {
    /// The side.
    pub side: RouteSide,
    /// The state before.
    pub before: SideState,
    /// The state after.
    pub now: SideState,
    /// The fault, for people; empty if there is none.
    pub why: String,
}

/// Looks at BIRD, and remembers for how long each observation has lasted.
#[derive(Debug)]
pub struct BirdWatch {
    watched: WatchedBird,
    /// Prefixes in the kernel at the last look, by side.
    known: [BTreeSet<IpNet>; 2],
    /// Prefixes that each side did not export when it last lacked one.
    lacks: [Lack; 2],
    /// The newest lists of exported prefixes, while they need not be read again.
    listed: Option<ListedExports>,
    damping: [Damping; 2],
}

impl BirdWatch {
    /// Creates a watch that has seen nothing yet.
    pub fn new(watched: WatchedBird) -> Self {
        let damping = [0, 1].map(|at| Damping::new(watched.protocols[at].len()));
        Self {
            watched,
            known: Default::default(),
            lacks: Default::default(),
            listed: None,
            damping,
        }
    }

    /// Asks BIRD, within [`LOOK_DEADLINE`]. `in_kernel` holds the prefixes that the guard has set,
    /// by side.
    pub fn look(&mut self, in_kernel: [BTreeSet<IpNet>; 2]) -> [SideView; 2] {
        let is_same = self.known == in_kernel;
        let listed = self.listed.take().filter(|it| is_same && it.at.elapsed() < LIST_INTERVAL);
        let answer = ask(&self.watched, listed.as_ref());
        let before = std::mem::replace(&mut self.known, in_kernel);
        let views = [0, 1].map(|at| {
            let due: BTreeSet<IpNet> = self.known[at].intersection(&before[at]).copied().collect();
            let (view, missing) = judge(&self.watched.protocols[at], &answer, &due);
            let (lack, damping) = (&mut self.lacks[at], &mut self.damping[at]);
            let LookAnswer::Report(report) = &answer else { return view };
            let is_other = report.setting != lack.setting;
            let is_proven = is_other || !lack.missing.is_disjoint(&due);
            match view.state {
                SideState::NotExporting => {
                    if is_other {
                        damping.lack_begins();
                    }
                    *lack = Lack { setting: report.setting.clone(), missing };
                    view
                }
                SideState::Up if damping.has_lacked && !is_proven => damping.shown.clone(),
                _ => view,
            }
        });
        let is_complete = is_same && views.iter().all(|it| it.state != SideState::NotExporting);
        if let (LookAnswer::Report(report), true) = (answer, is_complete) {
            let BirdReport { exported, setting, .. } = report;
            let at = listed.map_or_else(Instant::now, |it| it.at);
            self.listed = Some(ListedExports { at, setting, exported });
        }
        views
    }

    /// Records the result of a look; returns the sides whose state it changed.
    pub fn observe(&mut self, now_ms: u64, seen: [SideView; 2]) -> Vec<SideChange> {
        let sides = SIDES.into_iter().zip(&mut self.damping).zip(seen);
        let changes = sides.filter_map(|((side, damping), seen)| {
            let before = damping.shown.state;
            damping.observe(now_ms, seen);
            let SideView { state: now, why, .. } = damping.shown.clone();
            (now != before).then_some(SideChange { side, before, now, why })
        });
        changes.collect()
    }

    /// Returns the sides as they count, each with the time in milliseconds since which it is in its
    /// state.
    pub fn sides(&self) -> [(RouteSide, &SideView, u64); 2] {
        [0, 1].map(|at| (SIDES[at], &self.damping[at].shown, self.damping[at].shown_since_ms))
    }
}

/// Prefixes that were due and not exported, and BIRD's setting at that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lack {
    setting: Vec<String>,
    missing: BTreeSet<IpNet>,
}

/// Turns the observations of a side into the state that counts: one that has lasted.
#[derive(Debug)]
struct Damping {
    shown: SideView,
    shown_since_ms: u64,
    /// The kind of state in the latest looks without a break (up, down or neither), and since when.
    run: Option<(OutageKind, u64)>,
    /// Start of the uninterrupted series of looks that saw a prefix not exported.
    lacks_since_ms: Option<u64>,
    /// True if the side is shown as not exporting, and that observation by itself has lasted.
    has_lacked: bool,
    looked_ms: u64,
}

/// The kind of state that has to last: a side that is down for one reason and then for another is
/// down all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutageKind {
    Up,
    Down,
    Unknown,
}

impl OutageKind {
    fn of(state: SideState) -> Self {
        match state {
            SideState::Up => Self::Up,
            SideState::NotWatched | SideState::Unknown => Self::Unknown,
            SideState::NoAnswer | SideState::NoSession | SideState::NotExporting => Self::Down,
        }
    }
}

impl Damping {
    fn new(protocols: usize) -> Self {
        let state = if protocols == 0 { SideState::NotWatched } else { SideState::Unknown };
        let shown = SideView { state, established: 0, protocols, why: String::new() };
        Self {
            shown,
            shown_since_ms: 0,
            run: None,
            lacks_since_ms: None,
            has_lacked: false,
            looked_ms: 0,
        }
    }

    /// Starts the time of a lack from zero: an older lack does not count for this one.
    fn lack_begins(&mut self) {
        self.lacks_since_ms = None;
        self.has_lacked = false;
    }

    fn observe(&mut self, now_ms: u64, seen: SideView) {
        let kind = OutageKind::of(seen.state);
        let is_gap = now_ms.saturating_sub(self.looked_ms) > GAP_MAX_MS;
        self.looked_ms = now_ms;
        let since_ms = match self.run {
            Some((before, since_ms)) if before == kind && !is_gap => since_ms,
            _ => now_ms,
        };
        self.run = Some((kind, since_ms));
        self.lacks_since_ms = match self.lacks_since_ms {
            _ if seen.state != SideState::NotExporting => None,
            Some(since_ms) if !is_gap => Some(since_ms),
            _ => Some(now_ms),
        };
        let is_first_word = self.shown.state == SideState::Unknown && self.shown.why.is_empty();
        let counts = kind == OutageKind::of(self.shown.state)
            || now_ms - since_ms >= LASTS_MS
            || is_first_word && kind == OutageKind::Up;
        if !counts {
            return;
        }
        if is_first_word && kind == OutageKind::Unknown && now_ms - since_ms < LASTS_MS {
            // An observation that BIRD may not be asked has to last, too, before it counts.
            return;
        }
        if seen.state != self.shown.state {
            self.shown_since_ms = now_ms;
        }
        self.shown = seen;
        let lacks_long = self.lacks_since_ms.is_some_and(|since_ms| now_ms - since_ms >= LASTS_MS);
        self.has_lacked =
            self.shown.state == SideState::NotExporting && (self.has_lacked || lacks_long);
    }
}

#[cfg(test)]
#[path = "bird_watch_tests.rs"]
mod tests;
