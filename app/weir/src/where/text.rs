//! Formats an answer for people.

use std::io::{self, Write};
use std::time::SystemTime;

use jiff::Timestamp;
use weir_nat_log::{
    About, Begin, BlockHolder, Holding, LogAnswer, LogQuestion, LogVerdict, Missing, TenancyEnd,
};

/// Most gaps that are printed; `--json` has all.
const MISSING_MAX: usize = 20;

pub(super) fn print(
    out: &mut impl Write,
    question: &LogQuestion,
    answer: &LogAnswer,
) -> io::Result<()> {
    let when = when(question, answer);
    let homes = distinct(answer);
    match (answer.verdict, question.about) {
        (LogVerdict::Nobody, About::Home(..)) => {
            writeln!(out, "{} held nothing {when}", subject(question))?
        }
        (LogVerdict::Nobody, _) => writeln!(out, "nobody held {} {when}", subject(question))?,
        (LogVerdict::CannotSay, _) => {
            writeln!(out, "the logs cannot say {} {when}", asked(question))?;
            if answer.missing.is_empty() && homes > 1 {
                let why = match question.about {
                    About::Ipv6(_) => "within the error of the clocks, or at once",
                    _ => "within the error of the clocks",
                };
                writeln!(out, "  {homes} homes held it {why}")?;
            }
            for missing in answer.missing.iter().take(MISSING_MAX) {
                writeln!(out, "  {}: {missing}", span(missing))?;
            }
            if let Some(more @ 1..) = answer.missing.len().checked_sub(MISSING_MAX) {
                writeln!(out, "  and {more} more")?;
            }
        }
        (LogVerdict::Held, About::Port(..) | About::Ipv6(_)) => {}
        (LogVerdict::Held, _) => writeln!(out, "{} {when}:", asked(question))?,
    }
    if answer.verdict == LogVerdict::CannotSay && !answer.holders.is_empty() {
        writeln!(out, "known:")?;
    }
    for holder in &answer.holders {
        print_holder(out, question, answer, holder, &when)?;
    }
    Ok(())
}

fn print_holder(
    out: &mut impl Write,
    question: &LogQuestion,
    answer: &LogAnswer,
    holder: &BlockHolder,
    when: &str,
) -> io::Result<()> {
    let key = holder.gre_key.map(|key| format!(" (GRE key {key})")).unwrap_or_default();
    let home = format!("subscriber {}{key}", holder.subscriber);
    match (question.about, holder.holding) {
        (About::Port(..) | About::Ipv6(_), _) => {
            writeln!(out, "{} {when}: {home}", subject(question))?
        }
        (About::Address(_) | About::Home(..), Holding::Ports { public, .. }) => {
            writeln!(out, "{public}: {home}")?
        }
        (About::Address(_) | About::Home(..), Holding::Prefix(prefix)) => {
            writeln!(out, "{prefix}: {home}")?
        }
    }
    let nodes = holder.nodes.join(", then ");
    writeln!(out, "  shard  {} on node {nodes}", holder.shard)?;
    match holder.holding {
        Holding::Ports { first, last, .. } => writeln!(out, "  block  ports {first}-{last}")?,
        Holding::Prefix(prefix) => writeln!(out, "  prefix {prefix}")?,
    }
    writeln!(out, "  from   {}", begin(holder))?;
    writeln!(out, "  until  {}", end(holder, answer))
}

fn begin(holder: &BlockHolder) -> String {
    let from = holder.from.map_or_else(|| "before these logs".into(), time);
    match holder.begin {
        Begin::Allocated => from,
        Begin::Listed => format!("{from} or before (listed)"),
        Begin::Unknown => format!("{from} or before (the allocation is not in these logs)"),
    }
}

fn end(holder: &BlockHolder, answer: &LogAnswer) -> String {
    let end = holder.until.map_or_else(|| "still held at the end of these logs".into(), time);
    match holder.end {
        TenancyEnd::Released => end,
        TenancyEnd::Open if answer.files_skipped == 0 => end,
        TenancyEnd::Open => "later (files of later times were not read)".into(),
        TenancyEnd::NodeStopped => format!("{end} (the node stopped)"),
        TenancyEnd::NodeRestarted => format!("{end} or before (the node started again)"),
        TenancyEnd::NotListed => {
            format!("{end} or before (the next owner of the lane did not find it)")
        }
        TenancyEnd::GivenToAnother => {
            format!("{end} or before (given to another; the release is missing)")
        }
        TenancyEnd::Unknown => format!("{end} or later (then records are missing)"),
    }
}

fn distinct(answer: &LogAnswer) -> usize {
    let homes = answer.holders.iter().map(|holder| (holder.subscriber, holder.gre_key));
    homes.collect::<std::collections::BTreeSet<_>>().len()
}

fn subject(question: &LogQuestion) -> String {
    match question.about {
        About::Port(address, port) => format!("{address}:{port}"),
        About::Address(address) => format!("{address}"),
        About::Ipv6(address) => format!("{address}"),
        About::Home(home, None) => format!("subscriber {home}"),
        About::Home(home, Some(key)) => format!("subscriber {home} (GRE key {key})"),
    }
}

fn asked(question: &LogQuestion) -> String {
    match question.about {
        About::Home(..) => format!("what {} held", subject(question)),
        About::Port(..) | About::Address(_) | About::Ipv6(_) => {
            format!("who held {}", subject(question))
        }
    }
}

fn when(question: &LogQuestion, answer: &LogAnswer) -> String {
    match (question.time, answer.asked) {
        (Some((from, to)), _) if from == to => format!("at {}", time(from)),
        (Some((from, to)), _) => format!("from {} to {}", time(from), time(to)),
        (None, Some((at, _))) => format!("at {} (the end of the logs)", time(at)),
        (None, None) => "at the end of the logs".into(),
    }
}

fn span(missing: &Missing) -> String {
    match (missing.from, missing.until) {
        (Some(from), Some(until)) => format!("from {} to {}", time(from), time(until)),
        (Some(from), None) => format!("from {}", time(from)),
        (None, Some(until)) => format!("until {}", time(until)),
        (None, None) => "at any time".into(),
    }
}

pub(super) fn time(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| format!("{time:?}"), |time| format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use weir_nat_log::{Reason, search_logs};

    use super::*;

    fn answer_text(log: &str, about: About, at_sec: u64) -> (String, LogAnswer) {
        let at = UNIX_EPOCH + Duration::from_secs(at_sec);
        let time = Some((at, at));
        let question = LogQuestion { about, time, clock_error: Duration::from_secs(1) };
        let answer = search_logs(&[log.as_bytes()], &question).expect("the log is readable");
        let mut out = Vec::new();
        print(&mut out, &question, &answer).expect("memory takes all");
        (String::from_utf8(out).expect("UTF-8"), answer)
    }

    fn log() -> String {
        let mut log = String::new();
        let mut line = |sec: u32, event: &str, fields: &str, sequence: u32| {
            log.push_str(&format!(
                "{{\"time\":\"1970-01-01T00:00:{sec:02}.000Z\",\"event\":\"{event}\",{fields}\"node\":\"n1\",\
                 \"boot\":\"{:032x}\",\"sequence\":{sequence}}}\n",
                7
            ));
        };
        let lane = "\"shard\":1,\"lane\":4,\"epoch\":3,\"index\":";
        let block =
            "\"subscriber\":\"10.200.0.1\",\"public\":\"203.0.113.1\",\"ports\":\"1024-1279\",";
        line(1, "log-opened", "\"clustered\":true,", 1);
        line(1, "lane-taken", &format!("{lane}1,"), 2);
        line(
            1,
            "lane-listed",
            &format!("{lane}2,\"blocks\":0,\"from\":1,\"claims_by_lane\":true,"),
            3,
        );
        line(10, "block-allocated", &format!("{lane}3,{block}"), 4);
        line(30, "log-mark", "", 5);
        log
    }

    #[test]
    fn an_answer_about_an_ipv6_address_names_its_prefix() {
        let of_lane = |lane: u32, sec: u32, event: &str, index: u32, fields: &str| {
            format!(
                "{{\"time\":\"1970-01-01T00:00:{sec:02}.000Z\",\"event\":\"{event}\",\"shard\":1,\"lane\":{lane},\
                 \"epoch\":3,\"index\":{index},{fields}\"node\":\"n1\",\"boot\":\"{lane:032x}\",\
                 \"sequence\":{index}}}\n"
            )
        };
        let listed = "\"blocks\":0,\"from\":1,\"claims_by_lane\":true,";
        let begin = |lane: u32| {
            of_lane(lane, 1, "lane-taken", 1, "") + &of_lane(lane, 1, "lane-listed", 2, listed)
        };
        let others = (1..8).map(|lane| begin(lane) + &of_lane(lane, 45, "lane-left", 3, ""));
        let line = |sec, event, index, fields: &str| of_lane(0, sec, event, index, fields);
        let claim = |home: u32| {
            format!("\"subscriber\":\"10.200.0.{home}\",\"prefix\":\"2001:db8:1000:1::/64\",")
        };
        let log = others.collect::<String>()
            + &begin(0)
            + &line(10, "prefix-claimed", 3, &claim(1))
            + &line(20, "prefix-claimed", 4, &claim(2))
            + &line(40, "prefix-released", 5, &claim(1));
        let about = About::Ipv6("2001:db8:1000:1::7".parse().expect("an address"));
        let (text, answer) = answer_text(&log, about, 15);
        let expected = "2001:db8:1000:1::7 at 1970-01-01T00:00:15.000Z: subscriber 10.200.0.1\n  \
                        shard  1 on node n1\n  \
                        prefix 2001:db8:1000:1::/64\n  \
                        from   1970-01-01T00:00:10.000Z\n  \
                        until  1970-01-01T00:00:40.000Z\n";
        assert_eq!(text, expected);
        let holder = &super::super::json::of(&answer)["holders"][0];
        assert_eq!(holder["prefix"], "2001:db8:1000:1::/64");
        assert!(holder["public"].is_null() && holder["port_first"].is_null());
        let (text, _) = answer_text(&log, about, 30);
        let begin = "the logs cannot say who held 2001:db8:1000:1::7 at 1970-01-01T00:00:30.000Z\n  \
                     2 homes held it within the error of the clocks, or at once\nknown:\n";
        assert!(text.starts_with(begin), "{text}");
        let (text, _) = answer_text(&log, About::Home([10, 200, 0, 1].into(), None), 15);
        assert!(text.contains("2001:db8:1000:1::/64: subscriber 10.200.0.1\n"), "{text}");
        let (text, _) = answer_text(&log, about, 5);
        assert_eq!(text, "nobody held 2001:db8:1000:1::7 at 1970-01-01T00:00:05.000Z\n");
    }

    #[test]
    fn an_answer_reads_as_documented() {
        let port = About::Port([203, 0, 113, 1].into(), 1100);
        let (text, _) = answer_text(&log(), port, 20);
        let expected = "203.0.113.1:1100 at 1970-01-01T00:00:20.000Z: subscriber 10.200.0.1\n  \
                        shard  1 on node n1\n  \
                        block  ports 1024-1279\n  \
                        from   1970-01-01T00:00:10.000Z\n  \
                        until  still held at the end of these logs\n";
        assert_eq!(text, expected);
        let (text, _) = answer_text(&log(), port, 5);
        assert_eq!(text, "nobody held 203.0.113.1:1100 at 1970-01-01T00:00:05.000Z\n");
        let (text, answer) = answer_text(&log(), port, 40);
        assert_eq!(answer.missing[0].reason, Reason::EndOfLog);
        let begin = "the logs cannot say who held 203.0.113.1:1100 at 1970-01-01T00:00:40.000Z\n  \
                     from 1970-01-01T00:00:30.000Z: shard 1 lane 4: \
                     the log of n1 (owner since epoch 3) ends\n\
                     known:\n203.0.113.1:1100 at";
        assert!(text.starts_with(begin), "{text}");
        let (text, _) = answer_text(&log(), About::Home([10, 200, 0, 9].into(), None), 20);
        let none = "the logs cannot say what subscriber 10.200.0.9 held at \
                    1970-01-01T00:00:20.000Z\n  at any time: no record names it";
        assert!(text.starts_with(none), "{text}");
        let (text, _) = answer_text(&log(), About::Address([203, 0, 113, 1].into()), 20);
        assert!(text.contains("lane 5: these logs have no record of the lane"), "{text}");
        assert!(text.contains("203.0.113.1: subscriber 10.200.0.1\n"), "{text}");
    }
}
