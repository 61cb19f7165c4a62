//! `weir rules diff`: what changes from one file, or from what a node has in force, to another
//! file, and on which flows they differ.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use weir_admin::HomeName;
use weir_admin::api::Session;
use weir_admin::client::Client;
use weir_config::{ProtocolSetting, SettingChange, policy_difference};
use weir_policy::{
    ComparedHomes, FlowAddresses, FlowQuestion, PolicyDecision, RuleVerdict, compare,
};
use weir_rules::{FlowOrigin, RuleAction};

use super::given::GivenWords;
use super::policy_file::LoadedPolicy;
use super::stdout;
use crate::json_lines::read_lines;
use crate::node_socket::NodeSocket;

/// Flows that are shown of each kind of change.
const EXAMPLES_MAX: usize = 3;

/// Compare the rules of two files: what is added, removed, moved and changed, and which flows are
/// decided otherwise. One file alone is compared with what a node has in force; the node's live
/// flows are then counted on which the file would decide otherwise.
///
/// Flows at the borders of both files' rules are asked of both, up to 400,000, first those of rules
/// that differ; flows of IPv6 if a rule or group of either file has a prefix of IPv6. So what is
/// shown does change; a change without a flow here is possible. Live flows are asked as flows from
/// their homes. They go on, whatever the new rules say, but for those that a rule with rematch
/// refuses: these are counted.
///
///   weir rules diff new.toml
///   weir rules diff old.toml new.toml --json
///
/// Exit codes: 0 no difference, 1 differences, 2 an error.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The file with the present rules, unless a node has them, and the one with the new rules.
    #[arg(value_name = "FILE", num_args = 1..=2, required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    node: NodeSocket,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// A verdict, the name of the rule that gives it, and what else it gives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Decision<'p> {
    verdict: RuleVerdict,
    rule: Option<&'p str>,
    given: GivenWords<'p>,
}

impl<'p> Decision<'p> {
    fn named(policy: &'p LoadedPolicy, decision: &PolicyDecision<'p>) -> Self {
        Self {
            verdict: decision.verdict,
            rule: decision.rule.map(|rule| policy.name(rule)),
            given: GivenWords::new(
                policy.compiled.class_name(decision.class),
                decision.source_pool,
                decision.destination,
            ),
        }
    }
}

/// The flows of each kind of change: from one decision to another.
type Kinds<'p> = BTreeMap<(Decision<'p>, Decision<'p>), ChangedFlows>;

/// Flows that are decided otherwise.
#[derive(Default)]
struct ChangedFlows {
    /// Of the questions, and of those the first.
    asked: usize,
    examples: Vec<FlowQuestion>,
    live: u64,
}

/// All differences.
struct RulesDifference<'p> {
    changes: Vec<SettingChange>,
    questions: usize,
    kinds: Kinds<'p>,
    /// Number of live flows; none if no node was asked.
    live: Option<u64>,
    /// Number of them that new rules with rematch end.
    ended: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = if args.files.len() == 1 { Some(args.node.client()?) } else { None };
    let old = match &client {
        Some(client) => LoadedPolicy::running(client)?,
        None => LoadedPolicy::read(&args.files[0])?,
    };
    let new = LoadedPolicy::read(&args.files[args.files.len() - 1])?;
    let entries = |policy: &LoadedPolicy| policy.settings.clone().with_entries(&policy.sets);
    let changes = policy_difference(&entries(&old), &entries(&new));
    let ipv4 = ipnet::Ipv4Net::aggregate(&[&old.homes[..], &new.homes[..]].concat());
    let outer6 = ipnet::Ipv6Net::aggregate(&[&old.homes6[..], &new.homes6[..]].concat());
    let homes = ComparedHomes {
        ipv4: &ipv4,
        ipv6: &[],
        outer6: &outer6,
        are_in_tunnels: new.are_in_tunnels,
    };
    let comparison = compare(&old.compiled, &new.compiled, &homes);
    let mut difference = RulesDifference {
        changes,
        questions: comparison.asked,
        kinds: Kinds::new(),
        live: None,
        ended: 0,
    };
    for change in &comparison.changes {
        let kind = (Decision::named(&old, &change.old), Decision::named(&new, &change.new));
        let changed = difference.kinds.entry(kind).or_default();
        changed.asked += 1;
        if changed.examples.len() < EXAMPLES_MAX {
            changed.examples.push(change.flow);
        }
    }
    if let Some(client) = &client {
        difference.count_live(client, &old, &new)?;
    }
    match args.json {
        true => print_json(&difference)?,
        false => print(&difference)?,
    }
    let is_same = difference.changes.is_empty() && difference.kinds.is_empty();
    Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a live flow ends under the policy.
fn is_ended(policy: &LoadedPolicy, flow: &FlowQuestion) -> bool {
    let rules = &policy.compiled.rules;
    let deciding = policy.compiled.find(flow);
    deciding.is_some_and(|it| it.action != RuleAction::Accept && rules.is_rematch(it.rule))
}

impl<'p> RulesDifference<'p> {
    /// Counts the live flows of a node that would be decided otherwise.
    fn count_live(
        &mut self,
        client: &Client,
        old: &'p LoadedPolicy,
        new: &'p LoadedPolicy,
    ) -> anyhow::Result<()> {
        let mut count = 0;
        read_lines(client, "/sessions", |session: Session, _| {
            // A copy is another worker's flow.
            let is_here = matches!(session.role.as_deref(), None | Some("primary" | "acting"));
            let Some(flow) = question(&session).filter(|_| is_here) else { return Ok(()) };
            count += 1;
            let [before, after] = [old, new].map(|policy| policy.compiled.decide(&flow));
            if !before.is_like(&after) {
                let kind = (Decision::named(old, &before), Decision::named(new, &after));
                self.kinds.entry(kind).or_default().live += 1;
            }
            self.ended += u64::from(is_ended(new, &flow));
            Ok(())
        })?;
        self.live = Some(count);
        Ok(())
    }

    fn live_changed(&self) -> u64 {
        self.kinds.values().map(|flows| flows.live).sum()
    }
}

/// Returns the question about a live flow.
fn question(session: &Session) -> Option<FlowQuestion> {
    let protocol = match session.protocol.as_str() {
        "tcp" => ProtocolSetting::Tcp,
        "udp" => ProtocolSetting::Udp,
        "icmp" => ProtocolSetting::Icmp,
        _ => return None,
    };
    let has_ports = protocol != ProtocolSetting::Icmp;
    // A rule is about the destination that the home asks.
    let remote = session.asked.map_or(session.remote, SocketAddr::V4);
    let outer = match session.subscriber {
        HomeName::Ipv4(outer) => Some(IpAddr::from(outer)),
        // A shorter prefix is a home without a tunnel.
        HomeName::Ipv6(net) => (net.prefix_len() == 128).then(|| net.addr().into()),
    };
    let addresses = match (outer, session.inside.ip(), remote.ip()) {
        (Some(subscriber), _, IpAddr::V4(remote)) => FlowAddresses::Ipv4 { subscriber, remote },
        (tunnel, IpAddr::V6(inside), IpAddr::V6(remote)) => {
            FlowAddresses::Ipv6 { inside, remote, tunnel }
        }
        _ => return None,
    };
    Some(FlowQuestion {
        from: FlowOrigin::Home,
        protocol,
        addresses,
        inside_port: if has_ports { session.inside.port() } else { 0 },
        remote_port: if has_ports { remote.port() } else { 0 },
    })
}

fn words(decision: &Decision<'_>) -> String {
    let verdict = decision.verdict.name();
    match decision.rule {
        Some(rule) => format!("{verdict}{} by {rule}", decision.given.phrase()),
        None => format!("{verdict} without a rule"),
    }
}

fn print(difference: &RulesDifference<'_>) -> anyhow::Result<()> {
    let mut out = stdout();
    for change in &difference.changes {
        writeln!(out, "{}: {}", change.subject, change.what)?;
    }
    for ((before, after), flows) in &difference.kinds {
        writeln!(out, "{} -> {}:", words(before), words(after))?;
        for flow in &flows.examples {
            writeln!(out, "  {flow}")?;
        }
        if difference.live.is_some() {
            writeln!(out, "  live flows: {}", flows.live)?;
        }
    }
    let differ: usize = difference.kinds.values().map(|flows| flows.asked).sum();
    let (changes, asked) = (difference.changes.len(), difference.questions);
    writeln!(out, "changes: {changes}; questions: {asked}, flows decided otherwise: {differ}")?;
    if let Some(live) = difference.live {
        let (changed, ended) = (difference.live_changed(), difference.ended);
        writeln!(out, "live flows: {live}, decided otherwise: {changed}, that will end: {ended}")?;
    }
    Ok(out.flush()?)
}

fn print_json(difference: &RulesDifference<'_>) -> anyhow::Result<()> {
    let change = |change: &SettingChange| json!({ "subject": change.subject, "what": change.what });
    let changes: Vec<_> = difference.changes.iter().map(change).collect();
    let side = |it: &Decision<'_>| {
        json!({
            "verdict": it.verdict.name(),
            "class": it.given.class,
            "source_pool": it.given.source_pool,
            "to": it.given.destination(),
            "rule": it.rule,
        })
    };
    let decisions = difference.kinds.iter().map(|((before, after), flows)| {
        json!({
            "old": side(before),
            "new": side(after),
            "flows": flows.asked,
            "live": difference.live.map(|_| flows.live),
            "examples": flows.examples.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    });
    let answer = json!({
        "changes": changes,
        "questions": difference.questions,
        "live": difference.live,
        "live_ended": difference.live.map(|_| difference.ended),
        "decisions": decisions.collect::<Vec<_>>(),
    });
    let mut out = stdout();
    writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    Ok(out.flush()?)
}
