//! The text of a packet's way.

use std::net::{Ipv4Addr, SocketAddrV4};

use weir_admin::{TraceStep, TracedPacket};
use weir_engine::{FrameCopy, PacketTrace, Side, TracedFlow, TracedKind, TracedStep};
use weir_nat::{
    BucketHit, Destination, Endpoint, FlowClass, FlowPolicy, Home, OuterAddress, RedirectedFlow,
    RuleAction, SourcePool, TracedLookUp, TracedMapping, TracedSession,
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
        let home = trace
            .home
            .zip(trace.outer)
            .map_or_else(|| "no home is known".to_owned(), |(it, outer)| home(&it, outer));
        let text = match (trace.step, &trace.flow) {
            (TracedStep::Translate, Some(flow)) => format!("{home}; {}", key(flow)),
            (TracedStep::Translate, None) => home,
            (TracedStep::Redirected, _) => "another worker has redirected it here".to_owned(),
            (TracedStep::Local, _) => "for the worker itself".to_owned(),
            (TracedStep::Hold, _) => {
                format!("{home}; a fragment of a tunnel packet, which waits for the others")
            }
            (TracedStep::TimeExceeded, _) => format!("{home}; its TTL ends here"),
            (TracedStep::Drop(reason), _) => format!("{home}; headers: {}", reason.name()),
        };
        self.add("key", text);
    }

    fn look_up(&mut self, trace: &PacketTrace) {
        let Some(before) = &trace.before else {
            if let Some(flow) = &trace.flow {
                let text = match flow.kind {
                    TracedKind::LaterFragment => "not asked: its first fragment decides",
                    _ => "not asked for the packet's own key, but for what it quotes or answers",
                };
                self.add("index", text.to_owned());
            }
            return;
        };
        let index = if trace.side == Side::Access { "outbound" } else { "inbound" };
        let hit = match before.bucket {
            BucketHit::Primary => "hit in the primary bucket",
            BucketHit::Alternate => "hit in the alternate bucket",
            BucketHit::None => "miss",
        };
        let hash = trace.flow.map_or(0, |flow| flow.hash);
        self.add("index", format!("{index}, hash {hash:016x}: {hit}"));
        self.add("record", record(before));
        if let Some(is_let_in) = before.is_let_in {
            let verdict = if is_let_in { "lets the remote in" } else { "keeps the remote out" };
            self.add("filter", format!("nat.filtering {verdict}"));
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
        match (&before.mapping, &after.mapping) {
            (None, Some(mapping)) => self.add("mapping", format!("opened: {}", words(mapping))),
            (Some(_), None) => self.add("mapping", "ended".to_owned()),
            _ => {}
        }
        let session = |look_up: &TracedLookUp| look_up.mapping.and_then(|it| it.session);
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

fn home(home: &Home, outer: OuterAddress) -> String {
    let key = home.gre_key.map(|key| format!(" key {key}")).unwrap_or_default();
    format!("home {outer}{key}")
}

fn key(flow: &TracedFlow) -> String {
    let kind = match flow.kind {
        TracedKind::Whole => "",
        TracedKind::FirstFragment => ", first fragment",
        TracedKind::LaterFragment => ", later fragment",
        TracedKind::IcmpError => ", ICMP error",
        TracedKind::IcmpReply => ", ICMP reply",
    };
    let path = if flow.fits_fast_path { "" } else { "; slow path" };
    let (source, destination) = (endpoint(flow.source), endpoint(flow.destination));
    format!("{} {source} > {destination}{kind}{path}", flow.protocol.name())
}

fn record(look_up: &TracedLookUp) -> String {
    let Some(mapping) = &look_up.mapping else { return "none".to_owned() };
    let session = match &mapping.session {
        None => "no session with this remote".to_owned(),
        Some(session) => {
            let TracedSession { is_first, state, idle_sec, timeout_sec, .. } = session;
            let (class, idle) =
                (class(session.class), format!("idle {idle_sec} of {timeout_sec} s"));
            let place = if *is_first { "first session" } else { "further session" };
            format!("{place}, {state}, {idle}{class}")
        }
    };
    format!("number {}, {}; {session}", mapping.record, words(mapping))
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

fn words(mapping: &TracedMapping) -> String {
    let block = mapping.block.map(|it| format!(", block {}-{}", it.port_first, it.port_last));
    let (inside, public) = (endpoint(mapping.inside), endpoint(mapping.public));
    let redirected = mapping.redirected.map(|RedirectedFlow { asked, destination }| {
        format!(", {} is {}", endpoint(asked), endpoint(destination))
    });
    format!("{inside} is {public}{}{}", block.unwrap_or_default(), redirected.unwrap_or_default())
}

fn endpoint(endpoint: Endpoint) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(endpoint.address), endpoint.port)
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
