//! The text of a packet's way.

use std::net::Ipv4Addr;

use weir_admin::{HomeName, TraceStep, TracedPacket};
use weir_engine::{FrameCopy, PacketTrace, Side, TracedFlow, TracedKind, TracedStep};
use weir_nat::{
    BucketHit, Destination, FlowClass, FlowPolicy, HomeView, Protocol, RedirectedFlow, RuleAction,
    SourcePool, TracedFlow6, TracedLookUp, TracedMapping, TracedRecord, TracedSession,
};
use weir_wire::describe::describe;

use crate::trace::edits::edits;

/// Returns a packet's way in words.
pub(crate) fn traced_packet(worker: usize, trace: &PacketTrace) -> TracedPacket {
    let mut steps = Steps::default();
    steps.input(trace);
    steps.look_up(trace);
    steps.changes(trace);
    steps.end(trace);
    TracedPacket {
        worker,
        side: trace.side.name().to_owned(),
        outcome: outcome(trace).to_owned(),
        drop_reason: trace.dropped.map(|reason| reason.name().to_owned()),
        steps: steps.0,
    }
}

fn outcome(trace: &PacketTrace) -> &'static str {
    match trace {
        PacketTrace { dropped: Some(_), .. } => "dropped",
        PacketTrace { is_held: true, outputs_total: 0, .. } => "held",
        PacketTrace { outputs_total: 0, .. } => "taken",
        _ => "sent",
    }
}

#[derive(Default)]
struct Steps(Vec<TraceStep>);

impl Steps {
    fn add(&mut self, step: &str, text: String) {
        self.0.push(TraceStep { step: step.to_owned(), text });
    }

    fn input(&mut self, trace: &PacketTrace) {
        self.add("input", frame(trace.side, &trace.frame));
        let home = trace.home.map_or_else(|| "no home is known".to_owned(), home);
        let read = match &trace.flow {
            Some(flow) => format!("{home}; {}", key(flow)),
            None => home,
        };
        let text = match trace.step {
            TracedStep::Translate => read,
            TracedStep::Redirected => "another worker has redirected it here".to_owned(),
            TracedStep::Local => "for the worker itself".to_owned(),
            TracedStep::Hold => {
                format!("{read}; a fragment of a tunnel packet, which waits for the others")
            }
            TracedStep::TimeExceeded => match trace.flow.is_some_and(is_ipv6) {
                true => format!("{read}; its hop limit ends here"),
                false => format!("{read}; its TTL ends here"),
            },
            TracedStep::Drop(reason) => format!("{read}; headers: {}", reason.name()),
        };
        self.add("key", text);
    }

    fn look_up(&mut self, trace: &PacketTrace) {
        let Some(before) = &trace.before else {
            if let Some(flow) = trace.flow.filter(|_| trace.step == TracedStep::Translate) {
                let text = match flow.kind {
                    TracedKind::LaterFragment => "not asked: its first fragment decides",
                    _ => "not asked for the packet's own key, but for what it quotes or answers",
                };
                self.add("index", text.to_owned());
            }
            return;
        };
        let is_ipv6 = trace.flow.is_some_and(is_ipv6);
        let index = match trace.side {
            _ if is_ipv6 => "IPv6",
            Side::Access => "outbound",
            Side::Internet => "inbound",
        };
        let hit = match before.bucket {
            BucketHit::Primary => "hit in the primary bucket",
            BucketHit::Alternate => "hit in the alternate bucket",
            BucketHit::None => "miss",
        };
        let hash = trace.flow.map_or(0, |flow| flow.hash);
        self.add("index", format!("{index}, hash {hash:016x}: {hit}"));
        let owner = before.other_home.map(|it| format!("; the address is of {}", home(it)));
        self.add("record", record(before) + &owner.unwrap_or_default());
        match before.is_let_in {
            // The lines of the rule, and of the key if no home has the address, say it already.
            Some(false) if is_ipv6 && before.rule.is_none() && trace.home.is_some() => {
                self.add("filter", "no rule lets the remote in".to_owned());
            }
            Some(is_let_in) if !is_ipv6 => {
                let verdict = if is_let_in { "lets the remote in" } else { "keeps the remote out" };
                self.add("filter", format!("nat.filtering {verdict}"));
            }
            _ => {}
        }
        if let Some(rule) = before.rule {
            let action = match rule.action {
                RuleAction::Accept => "accept",
                RuleAction::Drop => "drop",
                RuleAction::Reject => "reject",
                RuleAction::Bypass => "bypass",
            };
            let counted = if trace.is_rule_counted { ", and has counted it" } else { "" };
            let given = given(&rule.policy);
            self.add("rule", format!("number {} fits: {action}{given}{counted}", rule.rule));
        }
    }

    fn changes(&mut self, trace: &PacketTrace) {
        let (Some(before), Some(after)) = (&trace.before, &trace.after) else { return };
        match (&before.record, &after.record) {
            (None, Some(record)) => self.add(kind(record), format!("opened: {}", words(record))),
            (Some(record), None) => self.add(kind(record), "ended".to_owned()),
            _ => {}
        }
        let session = |look_up: &TracedLookUp| look_up.record.and_then(|it| it.session());
        let state = |look_up| session(look_up).map(|session: TracedSession| session.state);
        match (state(before), state(after)) {
            (Some(old), Some(new)) if old == new => self.add("session", format!("stays {old}")),
            (Some(old), Some(new)) => self.add("session", format!("{old} becomes {new}")),
            (None, Some(new)) => self.add("session", format!("begun: {new}")),
            (Some(old), None) => self.add("session", format!("ended: {old}")),
            (None, None) => {}
        }
    }

    fn end(&mut self, trace: &PacketTrace) {
        for output in trace.outputs.iter().flatten() {
            // What leaves for a packet that was dropped, or for none of a flow, is an answer.
            let is_passed_on = trace.flow.is_some() && trace.dropped.is_none();
            if is_passed_on && let Some(edits) = edits(&trace.frame, &output.frame) {
                self.add("edit", edits);
            }
            self.add("output", frame(output.side, &output.frame));
        }
        let shown = trace.outputs.iter().flatten().count() as u64;
        if trace.outputs_total > shown {
            self.add("output", format!("{} frames more", trace.outputs_total - shown));
        }
        if trace.is_held {
            self.add("wait", "for replicas, or for other fragments".to_owned());
        }
        if let Some(reason) = trace.dropped {
            self.add("drop", format!("{}: {}", reason.name(), reason.help()));
        }
    }
}

fn frame(side: Side, frame: &FrameCopy) -> String {
    format!("{}, {} bytes: {}", side.name(), frame.len, describe(frame.bytes()))
}

fn home(home: HomeView) -> String {
    let key = home.gre_key().map(|key| format!(" key {key}")).unwrap_or_default();
    format!("home {}{key}", HomeName::from(home))
}

fn is_ipv6(flow: TracedFlow) -> bool {
    flow.source.is_ipv6()
}

fn key(flow: &TracedFlow) -> String {
    let kind = match flow.kind {
        TracedKind::Whole => "",
        TracedKind::FirstFragment => ", first fragment",
        TracedKind::LaterFragment => ", later fragment",
        TracedKind::IcmpError if flow.source.is_ipv6() => ", ICMPv6 error",
        TracedKind::IcmpError => ", ICMP error",
        TracedKind::IcmpReply => ", ICMP reply",
    };
    let path = if flow.fits_fast_path { "" } else { "; slow path" };
    let protocol = flow.protocol.map_or("protocol of its first fragment,", Protocol::name);
    let TracedFlow { source, destination, .. } = flow;
    format!("{protocol} {source} > {destination}{kind}{path}")
}

fn record(look_up: &TracedLookUp) -> String {
    let Some(record) = &look_up.record else { return "none".to_owned() };
    let timer = |TracedSession { state, idle_sec, timeout_sec, class: of, .. }| {
        format!("{state}, idle {idle_sec} of {timeout_sec} s{}", class(of))
    };
    match record {
        TracedRecord::Mapping(mapping) => {
            let session = match mapping.session {
                None => "no session with this remote".to_owned(),
                Some(session) if session.is_first => format!("first session, {}", timer(session)),
                Some(session) => format!("further session, {}", timer(session)),
            };
            format!("number {}, {}; {session}", mapping.record, words(record))
        }
        TracedRecord::Flow6(flow) => {
            let session = flow.session.map_or_else(|| "it has run out".to_owned(), timer);
            format!("number {}, {}; {session}", flow.record, words(record))
        }
    }
}

fn class(class: FlowClass) -> String {
    if class == FlowClass::NONE { String::new() } else { format!(", class {}", class.number()) }
}

/// Returns what a rule gives the flows that it accepts.
fn given(policy: &FlowPolicy) -> String {
    let mut words = class(policy.class);
    if policy.source != SourcePool::COMMON {
        words.push_str(&format!(", source pool {}", policy.source.number()));
    }
    if let Some(Destination { address, port }) = policy.destination {
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        words.push_str(&format!(", destination {}{port}", Ipv4Addr::from(address)));
    }
    words
}

/// Returns the step that says of a record that it was made or ended.
fn kind(record: &TracedRecord) -> &'static str {
    match record {
        TracedRecord::Mapping(_) => "mapping",
        TracedRecord::Flow6(_) => "flow",
    }
}

fn words(record: &TracedRecord) -> String {
    match record {
        TracedRecord::Mapping(mapping) => mapping_words(mapping),
        TracedRecord::Flow6(TracedFlow6 { inside, remote, .. }) => format!("{inside} and {remote}"),
    }
}

fn mapping_words(mapping: &TracedMapping) -> String {
    let TracedMapping { inside, public, .. } = mapping;
    let block = mapping.block.map(|it| format!(", block {}-{}", it.port_first, it.port_last));
    let redirected = mapping
        .redirected
        .map(|RedirectedFlow { asked, destination }| format!(", {asked} is {destination}"));
    format!("{inside} is {public}{}{}", block.unwrap_or_default(), redirected.unwrap_or_default())
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
