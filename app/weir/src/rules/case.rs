//! A table of flows with the verdicts that are expected: an operator's regression tests.

use std::fmt;

use serde_json::json;
use weir_policy::{FlowQuestion, RuleVerdict};

use super::policy_file::LoadedPolicy;

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpectedVerdict {
    /// From 1.
    line: usize,
    flow: FlowQuestion,
    verdict: RuleVerdict,
    /// `None`: any rule.
    rule: Option<ExpectedRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpectedRule {
    NoRule,
    Named(String),
}

/// A wrong line. Displays as `3: "allow" is no verdict ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrongLine {
    line: usize,
    message: String,
}

impl fmt::Display for WrongLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.message)
    }
}

/// Reads the words of a flow, or says what is wrong with them.
type ReadFlow<'r> = &'r dyn Fn(&[&str]) -> Result<FlowQuestion, String>;

/// Reads a table, its flows with `read`.
///
/// # Errors
/// All lines that are wrong.
pub(super) fn parse(
    text: &str,
    read: ReadFlow<'_>,
) -> Result<Vec<ExpectedVerdict>, Vec<WrongLine>> {
    let (mut cases, mut errors) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or(line).split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        match case(&words, read) {
            Ok((flow, verdict, rule)) => {
                cases.push(ExpectedVerdict { line: index + 1, flow, verdict, rule });
            }
            Err(message) => errors.push(WrongLine { line: index + 1, message }),
        }
    }
    if errors.is_empty() { Ok(cases) } else { Err(errors) }
}

fn case(
    words: &[&str],
    read: ReadFlow<'_>,
) -> Result<(FlowQuestion, RuleVerdict, Option<ExpectedRule>), String> {
    let (flow, rest) = words.split_at(FlowQuestion::count_words(words));
    let flow = read(flow)?;
    let (verdict, rule) = match rest {
        [verdict] => (verdict, None),
        [verdict, "-"] => (verdict, Some(ExpectedRule::NoRule)),
        [verdict, rule] => (verdict, Some(ExpectedRule::Named((*rule).to_owned()))),
        _ => {
            return Err("write the expected verdict behind the flow, and perhaps the rule".into());
        }
    };
    let known = RuleVerdict::from_name(verdict);
    let verdict = known.ok_or_else(|| {
        format!(
            "{verdict:?} is no verdict: write accept, drop, reject, bypass, redirect or \
             filtering"
        )
    })?;
    Ok((flow, verdict, rule))
}

/// A flow with another verdict or rule than expected. Displays as `12: home ...: expected ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FailedCase {
    line: usize,
    flow: FlowQuestion,
    expected: String,
    found: String,
}

impl FailedCase {
    pub(super) fn json(&self) -> serde_json::Value {
        let Self { line, flow, expected, found } = self;
        json!({ "line": line, "flow": flow.to_string(), "expected": expected, "found": found })
    }
}

impl fmt::Display for FailedCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, flow, expected, found } = self;
        write!(f, "{line}: {flow}: expected {expected}, found {found}")
    }
}

/// Asks the rules. `None` if they decide as expected.
pub(super) fn check(policy: &LoadedPolicy, case: &ExpectedVerdict) -> Option<FailedCase> {
    let deciding = policy.compiled.find(&case.flow);
    let verdict = RuleVerdict::of(case.flow.from, deciding);
    let rule = deciding.map(|it| policy.name(it.rule));
    let is_rule = match &case.rule {
        None => true,
        Some(ExpectedRule::NoRule) => rule.is_none(),
        Some(ExpectedRule::Named(name)) => rule == Some(name.as_str()),
    };
    if verdict == case.verdict && is_rule {
        return None;
    }
    let by = |rule: Option<&str>| rule.map_or("no rule".to_owned(), |name| format!("rule {name}"));
    let expected = match &case.rule {
        None => case.verdict.name().to_owned(),
        Some(ExpectedRule::NoRule) => format!("{} by {}", case.verdict.name(), by(None)),
        Some(ExpectedRule::Named(name)) => format!("{} by {}", case.verdict.name(), by(Some(name))),
    };
    let found = format!("{} by {}", verdict.name(), by(rule));
    Some(FailedCase { line: case.line, flow: case.flow, expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lines_of_a_table_are_all_named() {
        let text = "# flows\n\nhome 10.200.1.5 icmp 1.1.1.1 accept # by default\n\
                    home 10.200.1.5 icmp 1.1.1.1 allow\n\
                    home 10.200.1.5 tcp 1 1.1.1.1:1\n\
                    home 10.200.1.5 tcp 1 1.1.1.1:1 drop a b\n\
                    home 10.200.1.5 sctp 1 1.1.1.1:1 drop\n\
                    home 2001:db8::1 udp 1 2001:db8:9::2 53\n\
                    home 2001:db8::1 udp 1 [2001:db8:9::2]:53 drop\n\
                    home 10.200.1.5 udp 1 2001:db8:9::2 53 drop\n";
        let errors: Vec<String> = parse(text, &FlowQuestion::from_words)
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = [
            "4: \"allow\" is no verdict: write accept, drop, reject, bypass, redirect or filtering",
            "5: write the expected verdict behind the flow, and perhaps the rule",
            "6: write the expected verdict behind the flow, and perhaps the rule",
            "7: \"sctp\" is no protocol: write tcp, udp or icmp",
            "8: write the expected verdict behind the flow, and perhaps the rule",
            "10: 10.200.1.5 and 2001:db8:9::2: a flow has both ends in one family",
        ];
        assert_eq!(errors, expected);
        assert_eq!(
            parse(
                &text.split_inclusive('\n').take(3).collect::<String>(),
                &FlowQuestion::from_words
            )
            .unwrap()
            .len(),
            1
        );
    }
}
