//! The table of faults: one line each, and the medians of many runs. Pure.

use std::fmt::Write;

use super::observation::{Observation, median};
use super::promise::Promise;
use crate::load::{Micros, Pause};

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

/// A line for each observation; what was promised and missed stands below.
pub fn render(rows: &[(Promise, Observation)]) -> String {
    let mut missed = String::new();
    let mut lines: Vec<[String; COLUMNS]> = Vec::new();
    let mut verdicts = vec![String::new()];
    for (promise, seen) in rows {
        let reasons = promise.missed(seen);
        verdicts.push(verdict(*promise, reasons.is_empty()).to_owned());
        for reason in reasons {
            let _ = writeln!(missed, "{}: {reason}", seen.name);
        }
        if *promise == Promise::OpenAgain {
            let after = seen.done_after as f64 / 1e6;
            let _ = writeln!(missed, "{}: every shard had a primary after {after:.1} s", seen.name);
        }
        for (cause, count) in &seen.connections.causes {
            let _ = writeln!(missed, "{}: {count} connections: {cause}", seen.name);
        }
        lines.push(line(seen));
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
    let connections = &seen.connections;
    [
        seen.name.clone(),
        format!("{} / {}", millis(seen.up.gap_median), millis(seen.up.gap_max)),
        format!("{} / {}", millis(seen.down.gap_median), millis(seen.down.gap_max)),
        millis(longest_pause(seen)),
        format!("{}, {} of {}", seen.up.lost, seen.down.lost, seen.up.sent + seen.down.sent),
        format!(
            "{} of {}",
            connections.broken + connections.broken_before,
            connections.established
        ),
        format!(
            "{}, {} of {}",
            connections.younger_broken, connections.unopened, connections.younger
        ),
        seen.moves.to_string(),
        last_route(seen),
        match seen.whole_after {
            Some(time) => format!("{:.1} s", time as f64 / 1e6),
            None if seen.has_waited => "never".into(),
            None => "-".into(),
        },
    ]
}

fn longest_pause(seen: &Observation) -> Micros {
    seen.longest_pause().map(Pause::length).unwrap_or_default()
}

/// Nothing when no route left; with how many did, if not all.
fn last_route(seen: &Observation) -> String {
    let Some((routes, last)) = seen.routes.and_then(|it| Some((it, it.last?))) else {
        return "-".into();
    };
    if routes.left == routes.routes {
        return millis(last);
    }
    format!("{}, {} of {}", millis(last), routes.left, routes.routes)
}

/// Medians of the runs of each event, in the order in which they first appear.
pub fn summary(rows: &[(Promise, Observation)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (_, seen) in rows {
        if !names.contains(&seen.kind) {
            names.push(seen.kind);
        }
    }
    let mut lines = Vec::new();
    let mut verdicts = vec![String::new()];
    for name in names {
        let of: Vec<&(Promise, Observation)> =
            rows.iter().filter(|(_, seen)| seen.kind == name).collect();
        let seen = || of.iter().map(|(_, seen)| seen);
        let spread = |value: &dyn Fn(&Observation) -> Option<Micros>| {
            let mut values: Vec<Micros> = seen().filter_map(value).collect();
            values.sort_unstable();
            let most = values.last().copied();
            most.map_or("-".into(), |most| {
                format!("{} / {}", millis(median(&values)), millis(most))
            })
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
    }
    let mut head = HEAD.map(str::to_owned);
    head[1] = "longest gap up, ms".into();
    head[2] = "longest gap down, ms".into();
    head[9] = "copies after, ms".into();
    aligned(&head, &lines, &verdicts) + "each: median / most of the runs; losses are sums\n"
}

fn verdict(promise: Promise, is_kept: bool) -> &'static str {
    match (promise, is_kept) {
        (Promise::NothingLost, true) => "ok: nothing lost",
        (Promise::NothingBroken, true) => "ok: nothing broken",
        (Promise::NoneBrokenHoweverYoung, true) => "ok: nothing broken, however young",
        (Promise::OpenAgain, true) => "ok: open again",
        (Promise::Broken, true) => "ok: broken, as without copies it must be",
        (_, false) => "MISSED",
    }
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
    let mut text = String::new();
    for (line, verdict) in [head].into_iter().chain(lines).zip(verdicts) {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "{}", format!("{}  {verdict}", cells.join("  ")).trim_end());
    }
    text
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
    fn a_line_says_all_and_what_was_missed_stands_below() {
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
