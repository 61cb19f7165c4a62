//! Checks again and again whether BIRD announces what the guard has put into the kernel tables.
//!
//! ```text
//!   show protocols ----------> sessions of a side --+
//!   show route export PROTO -> prefixes exported ---+--> Seen --> Damping --> state of the side,
//!   routes in the kernel ----> prefixes due --------+                         changes
//! ```
//!
//! - A side is up while one of its sessions is established and exports every prefix that is due. A
//!   prefix is due if the kernel had it at this look and at the previous one: BIRD needs a moment
//!   to learn it.
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

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ipnet::Ipv4Net;

use crate::bird::{BirdError, Conversation, is_protocol_name, parse};
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
    known: [BTreeSet<Ipv4Net>; 2],
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
    pub fn look(&mut self, in_kernel: [BTreeSet<Ipv4Net>; 2]) -> [SideView; 2] {
        let is_same = self.known == in_kernel;
        let listed = self.listed.take().filter(|it| is_same && it.at.elapsed() < LIST_INTERVAL);
        let answer = ask(&self.watched, listed.as_ref());
        let before = std::mem::replace(&mut self.known, in_kernel);
        let views = [0, 1].map(|at| {
            let due: BTreeSet<Ipv4Net> =
                self.known[at].intersection(&before[at]).copied().collect();
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

/// Prefixes that the sessions export, as of one reading of all lists.
#[derive(Debug)]
struct ListedExports {
    at: Instant,
    setting: Vec<String>,
    exported: BTreeMap<String, Result<BTreeSet<Ipv4Net>, String>>,
}

/// Prefixes that were due and not exported, and BIRD's setting at that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lack {
    setting: Vec<String>,
    missing: BTreeSet<Ipv4Net>,
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

/// BIRD's answer at one look.
#[derive(Debug)]
enum LookAnswer {
    Report(BirdReport),
    /// This process may not ask BIRD.
    NotAllowed(String),
    Nothing(String),
}

/// What BIRD reports of the watched protocols.
#[derive(Debug, Default)]
struct BirdReport {
    /// State of each BGP session by protocol name, the error being BIRD's words if it is not
    /// established. Protocols that BIRD does not have are missing.
    sessions: BTreeMap<String, Result<(), String>>,
    /// Prefixes that each established session exports, or BIRD's refusal to list them.
    exported: BTreeMap<String, Result<BTreeSet<Ipv4Net>, String>>,
    /// When BIRD was started and configured, and the states of its protocols with their times:
    /// exports change only together with these.
    setting: Vec<String>,
}

fn ask(watched: &WatchedBird, listed: Option<&ListedExports>) -> LookAnswer {
    match read_report(watched, listed) {
        Ok(report) => LookAnswer::Report(report),
        Err(error @ BirdError::NotAllowed { .. }) => LookAnswer::NotAllowed(error.to_string()),
        Err(error) => LookAnswer::Nothing(error.to_string()),
    }
}

fn read_report(
    watched: &WatchedBird,
    listed: Option<&ListedExports>,
) -> Result<BirdReport, BirdError> {
    let mut bird = Conversation::begin(&watched.socket, LOOK_DEADLINE)?;
    let lines = bird.ask("show protocols")?.map_err(std::io::Error::other)?;
    let mut report = BirdReport { sessions: sessions(&lines), ..BirdReport::default() };
    let status = bird.ask("show status")?.map_err(std::io::Error::other)?;
    report.setting = status.into_iter().filter(|line| line.starts_with("Last ")).collect();
    report.setting.extend(lines);
    if let Some(listed) = listed.filter(|listed| listed.setting == report.setting) {
        report.exported.clone_from(&listed.exported);
        return Ok(report);
    }
    let names = watched.protocols.iter().flatten();
    for name in names.filter(|name| is_protocol_name(name)) {
        if report.sessions.get(name) == Some(&Ok(())) && !report.exported.contains_key(name) {
            let answer = bird.ask(&format!("show route export {name}"))?;
            report.exported.insert(name.clone(), answer.map(|lines| prefixes(&lines)));
        }
    }
    Ok(report)
}

/// Parses the lines of `show protocols`: name, type, table, state, since, information.
fn sessions(lines: &[String]) -> BTreeMap<String, Result<(), String>> {
    let fields = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = fields.filter_map(|fields| {
        let (name, state) = (*fields.first()?, *fields.get(3)?);
        if fields[1] != "BGP" {
            return Some((name.to_owned(), Err("it is no BGP protocol".to_owned())));
        }
        let state = if state == "up" { Ok(()) } else { Err(fields[3..].join(" ")) };
        Some((name.to_owned(), state))
    });
    found.collect()
}

fn prefixes(lines: &[String]) -> BTreeSet<Ipv4Net> {
    parse(lines).into_iter().map(|route| route.prefix).collect()
}

/// Judges a side by an answer; returns also the prefixes that it does not export. `due` holds the
/// prefixes that it has to export.
fn judge(
    names: &[String],
    answer: &LookAnswer,
    due: &BTreeSet<Ipv4Net>,
) -> (SideView, BTreeSet<Ipv4Net>) {
    let view = |state, established, why| {
        (SideView { state, established, protocols: names.len(), why }, BTreeSet::new())
    };
    if names.is_empty() {
        return view(SideState::NotWatched, 0, String::new());
    }
    let report = match answer {
        LookAnswer::Report(report) => report,
        LookAnswer::NotAllowed(why) => return view(SideState::Unknown, 0, why.clone()),
        LookAnswer::Nothing(why) => return view(SideState::NoAnswer, 0, why.clone()),
    };
    let is_established = |name: &&String| report.sessions.get(*name) == Some(&Ok(()));
    let established = names.iter().filter(is_established).count();
    if established == 0 {
        let parts = names.iter().map(|name| match report.sessions.get(name) {
            Some(Err(how)) => format!("{name}: {how}"),
            _ => format!("{name}: BIRD has no such protocol"),
        });
        let why = parts.collect::<Vec<_>>().join(", ");
        return view(SideState::NoSession, 0, format!("no BGP session is established ({why})"));
    }
    let faults = names.iter().filter(is_established).map(|name| not_exported(name, report, due));
    // One session that exports everything is enough.
    let Some(faults) = faults.collect::<Option<Vec<_>>>() else {
        return view(SideState::Up, established, String::new());
    };
    let (why, missing) = faults.into_iter().next().unwrap_or_default();
    (view(SideState::NotExporting, established, why).0, missing)
}

/// Returns the due prefixes that an established session does not export, with a sentence about
/// them; `None` if it exports all.
fn not_exported(
    name: &str,
    report: &BirdReport,
    due: &BTreeSet<Ipv4Net>,
) -> Option<(String, BTreeSet<Ipv4Net>)> {
    let none = BTreeSet::new();
    let (exported, refusal) = match report.exported.get(name) {
        Some(Ok(exported)) => (exported, String::new()),
        Some(Err(refusal)) => (&none, format!(" ({refusal})")),
        None => (&none, String::new()),
    };
    let missing: BTreeSet<Ipv4Net> = due.difference(exported).copied().collect();
    let first = missing.first()?;
    let (count, all) = (missing.len(), due.len());
    let why =
        format!("{name} does not export {count} of {all} prefixes, {first} among them{refusal}");
    Some((why, missing))
}

#[cfg(test)]
#[path = "bird_watch_tests.rs"]
mod tests;
