//! The table of faults: one line each, with one for each address family below it, and the medians
//! of many runs. Pure.

use std::fmt::Write;

use super::observation::{Observation, OfVersion, Side, median};
use super::promise::Promise;
use crate::load::{ConnectionReport, IpVersion, Micros, Pause};

const COLUMNS: usize = 10;
const HEAD: [&str; COLUMNS] = [
    "event",
    "gap up, ms",
    "gap down, ms",
    "pause, ms",
    "lost up, down",
    "broken",
    "young",
    "moves",
    "last route, ms",
    "copies after",
];

/// Usual widths of the columns of rows that are printed one by one. A wider cell shifts the rest of
/// its row.
const WIDTHS: [usize; COLUMNS] = [30, 11, 12, 9, 20, 10, 12, 5, 14, 12];

/// Returns the head of rows that are printed one by one.
pub fn head() -> String {
    aligned_to(&WIDTHS, &HEAD.map(str::to_owned), "")
}

/// Returns one row of the table, and below it one for each address family if homes have both.
pub fn row(promise: Promise, seen: &Observation) -> String {
    let mut rows = vec![aligned_to(&WIDTHS, &line(seen), &verdict(promise, seen))];
    rows.extend(seen.versions.iter().map(|of| aligned_to(&WIDTHS, &line_of_version(of), "")));
    rows.join("\n")
}

/// Returns a line for each observation, and one for each address family below it; missed promises
/// stand below all.
pub fn render(rows: &[(Promise, Observation)]) -> String {
    let mut missed = String::new();
    let mut lines: Vec<[String; COLUMNS]> = Vec::new();
    let mut verdicts = vec![String::new()];
    for (promise, seen) in rows {
        verdicts.push(verdict(*promise, seen));
        let name = if seen.is_repeated { "repeated: " } else { "" }.to_owned() + &seen.name;
        for reason in promise.complaints(seen) {
            let _ = writeln!(missed, "{name}: {reason}");
        }
        if *promise == Promise::OpenAgain {
            let after = seen.done_after as f64 / 1e6;
            let _ = writeln!(missed, "{}: every shard had a primary after {after:.1} s", seen.name);
        }
        for (cause, count) in &seen.connections.causes {
            let _ = writeln!(missed, "{}: {count} connections: {cause}", seen.name);
        }
        lines.push(line(seen));
        for of in &seen.versions {
            lines.push(line_of_version(of));
            verdicts.push(String::new());
        }
    }
    let mut text = aligned(&HEAD.map(str::to_owned), &lines, &verdicts);
    text.push_str(
        "gap: longest silence of a home's flow, median / most of all homes; pause: longest time in which a core, a worker, a \
         routing daemon or a sender wanted to run and could not; broken: of those open at the fault; \
         young: broken or unopened of those younger than 0.1 s; last route: until both switches sent all prefixes of the \
         node elsewhere\n",
    );
    if !missed.is_empty() {
        let _ = write!(text, "\n{missed}");
    }
    text
}

fn line(seen: &Observation) -> [String; COLUMNS] {
    let [gap_up, gap_down, lost, broken, young] = traffic(&seen.up, &seen.down, &seen.connections);
    [
        seen.name.clone(),
        gap_up,
        gap_down,
        millis(longest_pause(seen)),
        lost,
        broken,
        young,
        seen.moves.to_string(),
        last_route(seen),
        match seen.whole_after {
            Some(time) => format!("{:.1} s", time as f64 / 1e6),
            None if seen.has_waited => "never".into(),
            None => "-".into(),
        },
    ]
}

fn line_of_version(of: &OfVersion) -> [String; COLUMNS] {
    let [gap_up, gap_down, lost, broken, young] = traffic(&of.up, &of.down, &of.connections);
    let nothing = String::new;
    let name = format!("  {}", of.version);
    [name, gap_up, gap_down, nothing(), lost, broken, young, nothing(), nothing(), nothing()]
}

/// Returns the cells about packets and connections: gaps up and down, lost, broken, young.
fn traffic(up: &Side, down: &Side, connections: &ConnectionReport) -> [String; 5] {
    let gap = |side: &Side| format!("{} / {}", millis(side.gap_median), millis(side.gap_max));
    [
        gap(up),
        gap(down),
        format!("{}, {} of {}", up.lost, down.lost, up.sent + down.sent),
        format!(
            "{} of {}",
            connections.broken + connections.broken_before,
            connections.established
        ),
        format!(
            "{}, {} of {}",
            connections.younger_broken, connections.unopened, connections.younger
        ),
    ]
}

fn longest_pause(seen: &Observation) -> Micros {
    seen.longest_pause().map(Pause::length).unwrap_or_default()
}

/// Returns the time of the last route that left; with the number of routes that left, if not all
/// did. "-" if none did.
fn last_route(seen: &Observation) -> String {
    let Some((routes, last)) = seen.routes.and_then(|it| Some((it, it.last?))) else {
        return "-".into();
    };
    if routes.left == routes.routes {
        return millis(last);
    }
    format!("{}, {} of {}", millis(last), routes.left, routes.routes)
}

/// Returns the medians of the runs of each event, in the order of their first appearance, with a
/// line for each address family below them.
pub fn summary(rows: &[(Promise, Observation)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    let counts = |(_, seen): &&(Promise, Observation)| !seen.is_repeated;
    for (_, seen) in rows.iter().filter(counts) {
        if !names.contains(&seen.kind) {
            names.push(seen.kind);
        }
    }
    let mut lines = Vec::new();
    let mut verdicts = vec![String::new()];
    for name in names {
        let of: Vec<&(Promise, Observation)> =
            rows.iter().filter(counts).filter(|(_, seen)| seen.kind == name).collect();
        let seen = || of.iter().map(|(_, seen)| seen);
        let spread = |value: &dyn Fn(&Observation) -> Option<Micros>| {
            spread(seen().filter_map(value).collect())
        };
        let sum = |value: fn(&Observation) -> u64| seen().map(value).sum::<u64>();
        let kept = of.iter().filter(|(promise, seen)| promise.missed(seen).is_empty()).count();
        lines.push([
            format!("{} ({} runs)", name.replace("{}", "a node"), of.len()),
            spread(&|it| Some(it.up.gap_max)),
            spread(&|it| Some(it.down.gap_max)),
            spread(&|it| Some(longest_pause(it))),
            format!("{}, {}", sum(|it| it.up.lost), sum(|it| it.down.lost)),
            sum(|it| it.connections.broken as u64).to_string(),
            sum(|it| (it.connections.younger_broken + it.connections.unopened) as u64).to_string(),
            sum(|it| it.moves as u64).to_string(),
            spread(&|it| it.routes.and_then(|routes| routes.last)),
            spread(&|it| it.whole_after.or(it.has_waited.then_some(Micros::MAX))),
        ]);
        verdicts.push(format!("{kept} of {} kept", of.len()));
        for version in IpVersion::ALL {
            let versions = seen().flat_map(|seen| &seen.versions);
            let of_version: Vec<&OfVersion> = versions.filter(|it| it.version == version).collect();
            if !of_version.is_empty() {
                lines.push(summary_of_version(version, &of_version));
                verdicts.push(String::new());
            }
        }
    }
    let mut head = HEAD.map(str::to_owned);
    head[1] = "longest gap up, ms".into();
    head[2] = "longest gap down, ms".into();
    head[9] = "copies after, ms".into();
    aligned(&head, &lines, &verdicts) + "each: median / most of the runs; losses are sums\n"
}

fn summary_of_version(version: IpVersion, runs: &[&OfVersion]) -> [String; COLUMNS] {
    let gap =
        |side: fn(&OfVersion) -> &Side| spread(runs.iter().map(|run| side(run).gap_max).collect());
    let sum = |value: fn(&OfVersion) -> u64| runs.iter().map(|run| value(run)).sum::<u64>();
    let young =
        sum(|it| (it.connections.younger_broken + it.connections.unopened) as u64).to_string();
    let nothing = String::new;
    [
        format!("  {version}"),
        gap(|it| &it.up),
        gap(|it| &it.down),
        nothing(),
        format!("{}, {}", sum(|it| it.up.lost), sum(|it| it.down.lost)),
        sum(|it| it.connections.broken as u64).to_string(),
        young,
        nothing(),
        nothing(),
        nothing(),
    ]
}

/// Returns the median of values and the greatest; "-" if there are none.
fn spread(mut values: Vec<Micros>) -> String {
    values.sort_unstable();
    let most = values.last().copied();
    most.map_or("-".into(), |most| format!("{} / {}", millis(median(&values)), millis(most)))
}

/// Returns whether the promise was kept or missed, and whether the row counts.
pub(super) fn verdict(promise: Promise, seen: &Observation) -> String {
    let is_kept = promise.missed(seen).is_empty();
    let words = match promise {
        _ if !is_kept => "MISSED",
        Promise::NothingLost => "ok: nothing lost",
        Promise::NothingBroken => "ok: nothing broken",
        Promise::NoneBrokenHoweverYoung => "ok: nothing broken, however young",
        Promise::OpenAgain => "ok: open again",
        Promise::Broken => "ok: broken, as without copies it must be",
    };
    if seen.is_repeated { format!("repeated, does not count: {words}") } else { words.into() }
}

fn millis(time: Micros) -> String {
    if time == Micros::MAX { "never".into() } else { format!("{:.0}", time as f64 / 1e3) }
}

fn aligned(head: &[String; COLUMNS], lines: &[[String; COLUMNS]], verdicts: &[String]) -> String {
    let width = |column: usize| {
        let cells = lines.iter().chain([head]).map(|line| line[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let rows = [head].into_iter().chain(lines).zip(verdicts);
    rows.map(|(line, verdict)| aligned_to(&widths, line, verdict) + "\n").collect()
}

fn aligned_to(widths: &[usize], line: &[String; COLUMNS], verdict: &str) -> String {
    let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, &width))| {
        if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    });
    let cells: Vec<String> = cells.collect();
    format!("{}  {verdict}", cells.join("  ")).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::{Departures, Side};
    use crate::load::{ConnectionReport, Window};

    fn seen(lost: u64, gap_max: Micros) -> (Promise, Observation) {
        let side = Side { sent: 1_000, lost, gap_median: 1_000, gap_max, ..Side::default() };
        let connections = ConnectionReport { established: 900, ..ConnectionReport::default() };
        let observation = Observation {
            name: "kill -9 node1".into(),
            kind: "kill -9 {}",
            up: side,
            down: side,
            connections,
            is_answered: true,
            whole_after: Some(2_300_000),
            has_waited: true,
            routes: Some(Departures { routes: 6, left: 6, last: Some(41_000) }),
            moves: 3,
            pauses: vec![Pause { window: Window { start: 10, end: 12_010 }, of: "core 0".into() }],
            ..Observation::default()
        };
        (Promise::NothingBroken, observation)
    }

    #[test]
    fn table_line_shows_all_figures_and_missed_promises_stand_below() {
        let mut rows = vec![seen(4, 35_000)];
        let text = render(&rows);
        let line = text.lines().nth(1).unwrap();
        for words in [
            "kill -9 node1",
            "1 / 35",
            " 12 ",
            "4, 4 of 2000",
            "0 of 900",
            " 41 ",
            "2.3 s",
            "ok: nothing broken",
        ] {
            assert!(line.contains(words), "{words}: {line}");
        }
        rows[0].1.routes = Some(Departures { routes: 6, left: 5, last: Some(41_000) });
        assert!(render(&rows).contains("41, 5 of 6"));
        rows[0].1.connections.broken = 2;
        rows[0].1.connections.causes.insert("reset".into(), 2);
        let text = render(&rows);
        assert!(text.contains("2 of 900") && text.contains("MISSED"), "{text}");
        assert!(text.contains("kill -9 node1: 2 connections broken"), "{text}");
        assert!(text.contains("2 connections: reset"), "{text}");
    }

    #[test]
    fn a_row_by_itself_stands_below_its_head_and_cuts_nothing() {
        let (promise, mut it) = seen(4, 35_000);
        let text = row(promise, &it);
        let end = |text: &str, words: &str| text.find(words).map(|at| at + words.len());
        assert_eq!(end(&head(), "gap up, ms"), end(&text, "1 / 35"), "{}\n{text}", head());
        assert!(text.ends_with("2.3 s  ok: nothing broken"), "{text}");
        it.up.sent = 123_456_789_012;
        it.name = "an event with a name that is longer than its column".into();
        let text = row(promise, &it);
        assert!(text.contains(&it.name) && text.contains("4, 4 of 123456790012"), "{text}");
    }

    #[test]
    fn a_repeated_row_is_shown_with_the_pause_of_the_sender_and_does_not_count() {
        let mut rows = vec![seen(4, 35_000), seen(4, 35_000)];
        rows[0].1.connections.broken = 1;
        rows[0].1.is_repeated = true;
        rows[0].1.up.pause = 83_000;
        let text = render(&rows);
        let line = text.lines().nth(1).unwrap();
        assert!(line.ends_with("repeated, does not count: MISSED"), "{line}");
        let reason = "repeated: kill -9 node1: the sender itself paused for up to 83 ms";
        assert!(text.contains(reason), "{text}");
        assert!(summary(&rows).contains("1 of 1 kept"));
    }

    /// Returns an observation of which all losses are of IPv6.
    fn seen_of_both() -> (Promise, Observation) {
        let (promise, mut seen) = seen(4, 35_000);
        let of = |version, lost, gap_max| OfVersion {
            version,
            up: Side { sent: 500, lost, gap_max, ..Side::default() },
            ..OfVersion::default()
        };
        seen.versions = vec![of(IpVersion::V4, 0, 7_000), of(IpVersion::V6, 4, 35_000)];
        (promise, seen)
    }

    #[test]
    fn each_family_has_a_line_below_that_of_both() {
        let rows = [seen_of_both(), seen_of_both()];
        let text = render(&rows);
        let lines: Vec<&str> = text.lines().collect();
        for (line, words) in
            [(2, ["  IPv4", "0 / 7", "0, 0 of 500"]), (6, ["  IPv6", "0 / 35", "4, 0 of 500"])]
        {
            for word in words {
                assert!(lines[line].contains(word), "{word}: {text}");
            }
        }
        assert!(row(rows[0].0, &rows[0].1).lines().nth(2).unwrap().contains("4, 0 of 500"));
        let text = summary(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].contains("  IPv4") && lines[2].contains("7 / 7"), "{text}");
        assert!(lines[3].contains("  IPv6") && lines[3].contains("8, 0"), "{text}");
    }

    #[test]
    fn runs_of_an_event_are_one_line_of_medians() {
        let rows = [seen(4, 35_000), seen(5, 90_000), seen(3, 20_000)];
        let text = summary(&rows);
        assert_eq!(text.lines().count(), 3);
        let line = text.lines().nth(1).unwrap();
        for words in ["(3 runs)", "35 / 90", "12, 12", "41 / 41", "2300 / 2300", "3 of 3 kept"] {
            assert!(line.contains(words), "{words}: {line}");
        }
    }
}
