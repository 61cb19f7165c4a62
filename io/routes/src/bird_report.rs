//! What BIRD reports of its sessions at one look, and the verdict on a side that follows from it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ipnet::IpNet;

use crate::bird::{BirdError, Conversation, is_protocol_name, parse};
use crate::bird_watch::{LOOK_DEADLINE, SideState, SideView, WatchedBird};

/// BIRD's answer at one look.
#[derive(Debug)]
pub(crate) enum LookAnswer {
    Report(BirdReport),
    /// This process may not ask BIRD.
    NotAllowed(String),
    Nothing(String),
}

/// What BIRD reports of the watched protocols.
#[derive(Debug, Default)]
pub(crate) struct BirdReport {
    /// State of each BGP session by protocol name, the error being BIRD's words if it is not
    /// established. Protocols that BIRD does not have are missing.
    pub(crate) sessions: BTreeMap<String, Result<(), String>>,
    /// Prefixes that each established session exports, or BIRD's refusal to list them.
    pub(crate) exported: BTreeMap<String, Result<BTreeSet<IpNet>, String>>,
    /// When BIRD was started and configured, and which of its protocols are up since when: exports
    /// change only together with these. A session that tries to connect again changes nothing.
    pub(crate) setting: Vec<String>,
}

/// Prefixes that the sessions export, as of one reading of all lists.
#[derive(Debug)]
pub(crate) struct ListedExports {
    pub(crate) at: Instant,
    pub(crate) setting: Vec<String>,
    pub(crate) exported: BTreeMap<String, Result<BTreeSet<IpNet>, String>>,
}

/// Asks BIRD about the watched protocols, within [`LOOK_DEADLINE`]. `listed`: lists that need not
/// be read again if nothing has changed since.
pub(crate) fn ask(watched: &WatchedBird, listed: Option<&ListedExports>) -> LookAnswer {
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
    report.setting.extend(lines.into_iter().filter(|line| is_up(line)));
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
pub(crate) fn sessions(lines: &[String]) -> BTreeMap<String, Result<(), String>> {
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

/// Whether a line of `show protocols` is that of a protocol that is up.
fn is_up(line: &str) -> bool {
    line.split_whitespace().nth(3) == Some("up")
}

pub(crate) fn prefixes(lines: &[String]) -> BTreeSet<IpNet> {
    parse(lines).into_iter().map(|route| route.prefix).collect()
}

/// Judges a side by an answer; returns also the prefixes that it does not export. `due` holds the
/// prefixes that it has to export.
pub(crate) fn judge(
    names: &[String],
    answer: &LookAnswer,
    due: &BTreeSet<IpNet>,
) -> (SideView, BTreeSet<IpNet>) {
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
        let parts = names.iter().map(|name| not_established(name, report.sessions.get(name)));
        let why = parts.collect::<Vec<_>>().join(", ");
        return view(SideState::NoSession, 0, format!("no BGP session is established ({why})"));
    }
    let (due4, due6) = due.iter().partition(|prefix| matches!(prefix, IpNet::V4(_)));
    let faults = [due4, due6].map(|due: BTreeSet<IpNet>| {
        let sessions = names.iter().filter(is_established);
        let faults = sessions.map(|name| not_exported(name, report, &due));
        // One session that exports all of a family is enough; of the others the best is named.
        let faults = faults.collect::<Option<Vec<_>>>()?;
        faults.into_iter().min_by_key(|(_, missing)| missing.len())
    });
    let faults: Vec<(String, BTreeSet<IpNet>)> = faults.into_iter().flatten().collect();
    if faults.is_empty() {
        return view(SideState::Up, established, String::new());
    }
    let (mut parts, missing): (Vec<String>, Vec<_>) = faults.into_iter().unzip();
    parts.extend(names.iter().filter_map(|name| match report.sessions.get(name) {
        Some(Ok(())) => None,
        other => Some(not_established(name, other)),
    }));
    let view = view(SideState::NotExporting, established, parts.join(", ")).0;
    (view, missing.into_iter().flatten().collect())
}

/// Words the state of a session that is not established, for people.
fn not_established(name: &str, session: Option<&Result<(), String>>) -> String {
    match session {
        Some(Err(how)) => format!("{name}: {how}"),
        _ => format!("{name}: BIRD has no such protocol"),
    }
}

/// Returns the due prefixes that an established session does not export, with a sentence about
/// them; `None` if it exports all.
fn not_exported(
    name: &str,
    report: &BirdReport,
    due: &BTreeSet<IpNet>,
) -> Option<(String, BTreeSet<IpNet>)> {
    let none = BTreeSet::new();
    let (exported, refusal) = match report.exported.get(name) {
        Some(Ok(exported)) => (exported, String::new()),
        Some(Err(refusal)) => (&none, format!(" ({refusal})")),
        None => (&none, String::new()),
    };
    let missing: BTreeSet<IpNet> = due.difference(exported).copied().collect();
    let first = missing.first()?;
    let (count, all) = (missing.len(), due.len());
    let why =
        format!("{name} does not export {count} of {all} prefixes, {first} among them{refusal}");
    Some((why, missing))
}
