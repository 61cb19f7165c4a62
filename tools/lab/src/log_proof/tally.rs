//! Counts and judges all answers. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::ask::{Asked, Logs};
use super::verdict::{About, Outcome};

/// At least one in this many questions of a class must be answered: the first number is for
/// questions about a port that are asked of all logs, the second for all others, since an address
/// or a home lies in many lanes, and the end of any owner leaves a doubt.
const ANSWERED_EACH: usize = 2;
const OTHERS_ANSWERED_EACH: usize = 10;

/// Counts of one class of questions.
#[derive(Debug, Default)]
struct Count {
    right: usize,
    wrong: usize,
    cannot_say: usize,
    /// Number of times that each reason was given.
    reasons: BTreeMap<String, usize>,
}

impl Count {
    fn asked(&self) -> usize {
        self.right + self.wrong + self.cannot_say
    }
}

/// Class of a question: its subject, for a port whether it is near a takeover, and the logs asked.
type Class = (About, Option<Time>, Logs);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Time {
    NearTakeover,
    Other,
}

fn class(asked: &Asked) -> Class {
    let time = if asked.question.is_near_takeover { Time::NearTakeover } else { Time::Other };
    (asked.about, (asked.about == About::Port).then_some(time), asked.logs)
}

fn is_of_all(class: &Class) -> bool {
    (class.0, class.2) == (About::Port, Logs::All)
}

/// The counted answers.
#[derive(Debug, Default)]
pub struct Tally {
    classes: BTreeMap<Class, Count>,
    complaints: Vec<String>,
}

impl Tally {
    /// Counts answers. `is_excused` returns whether all logs together may leave a question without
    /// an answer.
    pub fn of(answers: &[Asked], is_excused: impl Fn(&Asked) -> bool) -> Self {
        let mut tally = Self::default();
        for asked in answers {
            let class = class(asked);
            let count = tally.classes.entry(class).or_default();
            match &asked.outcome {
                Outcome::Right => count.right += 1,
                Outcome::Wrong => {
                    count.wrong += 1;
                    tally.complaints.push(format!("WRONG: {asked}"));
                }
                Outcome::CannotSay(reasons) => {
                    count.cannot_say += 1;
                    for reason in reasons {
                        *count.reasons.entry(reason.clone()).or_default() += 1;
                    }
                    if is_of_all(&class) && !is_excused(asked) {
                        let line = format!("NO ANSWER, and no node had ended: {asked}");
                        tally.complaints.push(line);
                    }
                }
            }
        }
        for (class, count) in &tally.classes {
            let each = if is_of_all(class) { ANSWERED_EACH } else { OTHERS_ANSWERED_EACH };
            if (count.right + count.wrong) * each < count.asked() {
                let line = format!(
                    "TOO FEW ANSWERS: {}: {} of {}, one of {each} is the least",
                    name(class),
                    count.right + count.wrong,
                    count.asked()
                );
                tally.complaints.push(line);
            }
        }
        if tally.classes.is_empty() {
            tally.complaints.push("NOTHING WAS ASKED: no datagram arrived".to_owned());
        }
        tally
    }

    /// Returns the failures, each with question and answer.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Returns the table, a row for each class.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<52} {:>6} {:>6} {:>10} {:>6}  {}\n",
            "asked", "asked", "right", "cannot say", "wrong", "reasons"
        );
        for (class, count) in &self.classes {
            let reasons = count.reasons.iter().map(|(reason, times)| format!("{reason} {times}"));
            let reasons: Vec<_> = reasons.collect();
            let _ = writeln!(
                text,
                "{:<52} {:>6} {:>6} {:>10} {:>6}  {}",
                name(class),
                count.asked(),
                count.right,
                count.cannot_say,
                count.wrong,
                reasons.join(", ")
            );
        }
        text
    }
}

fn name((about, time, logs): &Class) -> String {
    let about = match about {
        About::Port => "port",
        About::Address => "address",
        About::Home => "home",
    };
    let time = match time {
        Some(Time::NearTakeover) => ", near a takeover",
        Some(Time::Other) => ", any other time",
        None => "",
    };
    let logs = match logs {
        Logs::All => "all logs",
        Logs::Remaining => "without the lost node's",
        Logs::Part => "a part of them",
    };
    format!("{about}{time}, {logs}")
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use super::*;
    use crate::load::Use;
    use crate::log_proof::Question;

    fn asked(about: About, logs: Logs, outcome: Outcome) -> Asked {
        let public = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 1030);
        let used = Use { at_us: 1_000_000, public, home: Ipv4Addr::new(10, 200, 1, 7) };
        let question = Question { used, is_near_takeover: true };
        let (command, output) = ("weir where".to_owned(), "{}".to_owned());
        Asked { question, about, logs, outcome, command, output }
    }

    fn inconclusive() -> Outcome {
        Outcome::CannotSay(["log-cut-off".to_owned()].into())
    }

    #[test]
    fn a_wrong_answer_of_any_logs_is_a_complaint_with_what_was_asked() {
        let answers = [Outcome::Right, Outcome::Wrong].map(|it| asked(About::Home, Logs::Part, it));
        let tally = Tally::of(&answers, |_| true);
        let [complaint] = tally.complaints() else { panic!("{:?}", tally.complaints()) };
        let words =
            ["WRONG", "10.200.1.7", "198.18.0.1:1030", "1970-01-01T00:00:01Z", "weir where"];
        assert!(words.iter().all(|word| complaint.contains(word)), "{complaint}");
        assert!(tally.table().contains("home, a part of them"));
        let port = asked(About::Port, Logs::All, Outcome::Right);
        let table = Tally::of(&[port], |_| true).table();
        assert!(table.contains("port, near a takeover, all logs"), "{table}");
    }

    #[test]
    fn all_logs_answer_unless_a_node_had_ended() {
        let answers = [Outcome::Right, inconclusive()].map(|it| asked(About::Port, Logs::All, it));
        assert!(Tally::of(&answers, |_| true).complaints().is_empty());
        let tally = Tally::of(&answers, |_| false);
        assert!(tally.complaints()[0].starts_with("NO ANSWER"), "{:?}", tally.complaints());
        let parts = answers.map(|it| Asked { logs: Logs::Part, ..it });
        assert!(Tally::of(&parts, |_| false).complaints().is_empty());
    }

    #[test]
    fn a_class_with_too_few_answers_is_a_complaint() {
        let of = |right: usize, inconclusive_times: usize, logs| {
            let right = std::iter::repeat_n(Outcome::Right, right);
            let inconclusive = std::iter::repeat_n(inconclusive(), inconclusive_times);
            let all: Vec<_> =
                right.chain(inconclusive).map(|it| asked(About::Port, logs, it)).collect();
            Tally::of(&all, |_| true).complaints().len()
        };
        assert_eq!((of(5, 5, Logs::All), of(4, 6, Logs::All)), (0, 1));
        assert_eq!((of(1, 9, Logs::Part), of(1, 10, Logs::Part)), (0, 1));
        assert_eq!(Tally::of(&[], |_| true).complaints().len(), 1);
    }
}
