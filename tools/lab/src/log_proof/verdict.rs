//! Judges whether an answer of `weir where` is right. Pure.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::load::Use;

/// Subject of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// The home that had the port.
    Port,
    /// The homes that had ports of the address.
    Address,
    /// The ports that the home had.
    Home,
}

/// Judgement of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer names the home that sent the datagram, as it should.
    Right,
    /// The logs cannot say, for these reasons.
    CannotSay(BTreeSet<String>),
    /// The answer is false.
    Wrong,
}

/// The reason if no log is missing, and more than one home is possible.
const HOMES: &str = "several-homes";

/// Judges an answer by its exit code and its JSON.
///
/// # Errors
/// When the command failed, or exit code and JSON contradict each other.
pub(super) fn judge(about: About, used: &Use, code: Option<i32>, output: &str) -> Result<Outcome> {
    if !matches!(code, Some(0 | 1 | 3)) {
        bail!("it ended with {code:?}");
    }
    let output: Value = serde_json::from_str(output).context("what it says is not JSON")?;
    let list = |key: &str| output[key].as_array().with_context(|| format!("no \"{key}\""));
    let outcome = match (code, output["verdict"].as_str()) {
        (Some(0), Some("held")) => match names_it(about, used, list("holders")?) {
            true => Outcome::Right,
            false => Outcome::Wrong,
        },
        // Some home had the port: a datagram came from it.
        (Some(1), Some("nobody")) => Outcome::Wrong,
        (Some(3), Some("cannot-say")) => {
            let reasons = list("missing")?.iter().filter_map(|it| it["reason"].as_str());
            let mut reasons: BTreeSet<String> = reasons.map(str::to_owned).collect();
            if reasons.is_empty() {
                reasons.insert(HOMES.to_owned());
            }
            Outcome::CannotSay(reasons)
        }
        (code, verdict) => bail!("exit code {code:?} and verdict {verdict:?} do not go together"),
    };
    Ok(outcome)
}

/// True if the home is among the holders with the endpoint; for a port or a home, it must be the
/// only home.
fn names_it(about: About, used: &Use, holders: &[Value]) -> bool {
    let home = used.home.to_string();
    let is_home = |holder: &Value| holder["subscriber"].as_str() == Some(&home);
    let has_port = |holder: &Value| {
        let port = Some(u64::from(used.public.port()));
        let is_address = holder["public"].as_str() == Some(&used.public.ip().to_string());
        is_address && holder["port_first"].as_u64() <= port && port <= holder["port_last"].as_u64()
    };
    let is_alone = about == About::Address || holders.iter().all(is_home);
    is_alone && holders.iter().any(|holder| is_home(holder) && has_port(holder))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use super::*;

    const USED: Use = Use {
        at_us: 1_000_000,
        public: SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 1030),
        home: Ipv4Addr::new(10, 200, 1, 7),
    };

    fn answer(verdict: &str, holders: &[(&str, u16)], missing: &[&str]) -> String {
        let holder = |(home, first): &(&str, u16)| {
            serde_json::json!({
                "subscriber": home, "public": "198.18.0.1", "port_first": first, "port_last": first + 63,
            })
        };
        let holders: Vec<_> = holders.iter().map(holder).collect();
        let missing: Vec<_> =
            missing.iter().map(|it| serde_json::json!({ "reason": it })).collect();
        serde_json::json!({ "verdict": verdict, "holders": holders, "missing": missing })
            .to_string()
    }

    fn held(about: About, holders: &[(&str, u16)]) -> Outcome {
        judge(about, &USED, Some(0), &answer("held", holders, &[])).unwrap()
    }

    #[test]
    fn port_answer_is_right_only_with_its_home_alone() {
        let (own, other) = (("10.200.1.7", 1024), ("10.200.1.8", 1024));
        assert_eq!(held(About::Port, &[own]), Outcome::Right);
        assert_eq!(held(About::Port, &[own, own]), Outcome::Right, "the home held the block twice");
        assert_eq!(held(About::Port, &[other]), Outcome::Wrong);
        assert_eq!(held(About::Port, &[own, other]), Outcome::Wrong);
        assert_eq!(held(About::Port, &[]), Outcome::Wrong);
        let nobody = judge(About::Port, &USED, Some(1), &answer("nobody", &[], &[])).unwrap();
        assert_eq!(nobody, Outcome::Wrong);
    }

    #[test]
    fn address_and_home_answers_must_contain_the_block() {
        let (own, further, other) =
            (("10.200.1.7", 1024), ("10.200.1.7", 4096), ("10.200.1.8", 2048));
        assert_eq!(held(About::Address, &[other, own]), Outcome::Right);
        assert_eq!(held(About::Address, &[other, further]), Outcome::Wrong);
        assert_eq!(held(About::Home, &[further, own]), Outcome::Right);
        assert_eq!(held(About::Home, &[further]), Outcome::Wrong);
        assert_eq!(held(About::Home, &[own, other]), Outcome::Wrong);
    }

    #[test]
    fn answer_without_a_home_gives_reasons() {
        let judge = |answer: &str| judge(About::Port, &USED, Some(3), answer).unwrap();
        let known = [("10.200.1.8", 1024)];
        let why = |reasons: &[&str]| {
            Outcome::CannotSay(reasons.iter().map(|it| (*it).to_owned()).collect())
        };
        let cut = judge(&answer("cannot-say", &known, &["log-cut-off", "log-cut-off"]));
        assert_eq!(cut, why(&["log-cut-off"]));
        assert_eq!(judge(&answer("cannot-say", &known, &[])), why(&["several-homes"]));
    }

    #[test]
    fn failed_command_is_an_error_and_no_answer() {
        let answer = answer("held", &[("10.200.1.7", 1024)], &[]);
        let error = |code, answer: &str| judge(About::Port, &USED, code, answer).unwrap_err();
        assert!(error(Some(2), "").to_string().contains("ended with Some(2)"));
        assert!(error(None, &answer).to_string().contains("ended with None"));
        assert!(error(Some(3), &answer).to_string().contains("do not go together"));
        assert!(error(Some(0), "held").to_string().contains("not JSON"));
    }
}
