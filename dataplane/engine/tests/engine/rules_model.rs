//! The engine decides on a flow as the plain search through all filters does, and gives it the
//! source pool and the destination of its rule.

use std::collections::HashSet;
use std::sync::Arc;

use fastrand::Rng;
use weir_engine::{AccessMode, DropReason, EngineConfig, Side};
use weir_nat::{ActiveRules, Destination, Filtering, FlowPolicy, SourcePool};
use weir_rules::shapes::{RuleShape, filters, question};
use weir_rules::{FlowKind, FlowOrigin, Prefix, Question, RuleAction, RuleSet, first_match};
use weir_wire::build;

use crate::world::rules::*;
use crate::world::*;

/// A flow, from its home.
#[derive(Clone, Copy, Debug)]
struct Flow {
    protocol: u8,
    subscriber: u32,
    inside: (u32, u16),
    remote: (u32, u16),
}

impl Flow {
    fn packet(&self, from: (u32, u16), to: (u32, u16), is_reply: bool) -> Vec<u8> {
        let packet = build::ipv4(from.0, to.0);
        match self.protocol {
            6 => packet.tcp(build::tcp(from.1, to.1).syn()),
            17 => packet.udp(from.1, to.1, b"x"),
            _ if is_reply => packet.icmp_echo_reply(to.1, 1, b"x"),
            _ => packet.icmp_echo_request(from.1, 1, b"x"),
        }
    }

    fn up(&self, world: &mut World, mode: AccessMode) -> Out {
        let inner = self.packet(self.inside, self.remote, false);
        match mode {
            AccessMode::Gre => world.up(&dotted(self.subscriber), inner),
            AccessMode::Plain => world.packet(Side::Access, &inner),
        }
    }
}

/// Random rules, and a worker in which they are in force.
struct Model {
    mode: AccessMode,
    filtering: Filtering,
    filters: Vec<Filter>,
    actions: Vec<RuleAction>,
    policies: Vec<FlowPolicy>,
    hits: Vec<u64>,
    set: Arc<RuleSet>,
    /// What is not in force at the moment: no rules, or these.
    spare: Option<Box<ActiveRules>>,
    /// Inside endpoints that have a mapping, or had one refused.
    used: HashSet<(u8, u32, u16)>,
    world: World,
}

impl Model {
    fn new(rng: &mut Rng) -> Option<Self> {
        let shape = RuleShape::ALL[rng.usize(0..RuleShape::ALL.len())];
        let count = rng.u32(1..200);
        let filters = filters::<u32>(shape, count, rng);
        let kinds = [RuleAction::Accept, RuleAction::Drop, RuleAction::Reject];
        let actions: Vec<_> = filters.iter().map(|_| kinds[rng.usize(0..3)]).collect();
        let group = |n| (Prefix::new("10.200.0.0".to_bits() + (u32::from(n) << 15), 17), n);
        let groups = (1..16).map(group).collect();
        let policies: Vec<_> = filters.iter().map(|_| policy(rng)).collect();
        let numbered: Vec<_> = (0..).zip(policies.iter().copied()).collect();
        let set = RuleSet::new(&filters, actions.clone(), groups).ok()?.with_policies(&numbered);
        let set = Arc::new(set.with_source_pools(vec![(special_addresses(), special())]));
        let mode = if rng.bool() { AccessMode::Gre } else { AccessMode::Plain };
        let filtering = match rng.bool() {
            true => Filtering::EndpointIndependent,
            false => Filtering::AddressAndPortDependent,
        };
        let spare = Some(Box::new(ActiveRules::new(Arc::clone(&set))));
        let hits = vec![0; actions.len()];
        let world = World::new(wide(mode, filtering));
        let used = HashSet::new();
        Some(Self { mode, filtering, filters, actions, policies, hits, set, spare, used, world })
    }

    fn swap(&mut self) {
        let rules = self.spare.take().unwrap();
        self.spare = Some(self.world.engine.nat_mut().admin_mut().swap_rules(rules));
    }

    /// Returns what the first rule that fits does and gives, and counts it.
    fn expect(&mut self, origin: FlowOrigin, flow: &Flow) -> Option<(RuleAction, FlowPolicy)> {
        let ports = if flow.protocol == 1 { (0, 0) } else { (flow.inside.1, flow.remote.1) };
        let asked = Question {
            kind: kind(origin, flow.protocol),
            group: self.set.group_of(flow.subscriber),
            local: flow.subscriber,
            remote: flow.remote.0,
            local_port: ports.0,
            remote_port: ports.1,
        };
        let rule = first_match(&self.filters, &asked)? as usize;
        self.hits[rule] += 1;
        Some((self.actions[rule], self.policies[rule]))
    }

    /// Plays a packet, and compares what becomes of it with what the rules say.
    fn play(&mut self, origin: FlowOrigin, flow: &Flow, packet: &[u8]) -> Option<RuleAction> {
        let (action, policy) = self.expect(origin, flow).unzip();
        let refused = [DropReason::RuleDrop, DropReason::RuleReject, DropReason::Filtered];
        let before = refused.map(|reason| self.world.dropped(reason));
        let (out, passing, back) = match origin {
            FlowOrigin::Home => {
                let out = flow.up(&mut self.world, self.mode);
                out.internet.iter().for_each(|packet| {
                    self.check_sent(flow, &policy.unwrap_or_default(), packet);
                });
                (out.access.len() + out.internet.len(), out.internet.len(), out.access.len())
            }
            FlowOrigin::Internet => {
                let out = self.world.down(packet);
                (out.access.len() + out.internet.len(), out.access.len(), out.internet.len())
            }
        };
        let dropped = [0, 1, 2].map(|n| self.world.dropped(refused[n]) - before[n]);
        let is_filtered =
            origin == FlowOrigin::Internet && self.filtering == Filtering::AddressAndPortDependent;
        let expected = match action {
            Some(RuleAction::Bypass) => unreachable!("no rule of this test has it"),
            Some(RuleAction::Drop) => ([1, 0, 0], 0, 0),
            Some(RuleAction::Reject) => ([0, 1, 0], 0, 1),
            None if is_filtered => ([0, 0, 1], 0, 0),
            None | Some(RuleAction::Accept) => ([0, 0, 0], 1, 0),
        };
        assert_eq!((dropped, passing, back), expected, "{origin:?} {flow:x?} {action:?} {out}");
        let hits = hits(&self.world);
        assert_eq!(hits, self.hits, "{origin:?} {flow:x?} {action:?}");
        action
    }

    /// Checks the ends of the first packet of a flow, and that an answer to it comes to the home
    /// from the remote that it asked.
    fn check_sent(&mut self, flow: &Flow, policy: &FlowPolicy, sent: &[u8]) {
        let (public, public_port, address, port) = ends(sent);
        let (asked, asked_port) = flow.remote;
        let expected = policy
            .destination
            .map_or((asked, asked_port), |to| (to.address, to.port.unwrap_or(asked_port)));
        let has_ports = flow.protocol != 1;
        assert_eq!((address, port), if has_ports { expected } else { (expected.0, port) });
        assert_eq!(
            special_addresses().contains(public),
            policy.source == special(),
            "{flow:x?} {policy:?}"
        );
        let answer = flow.packet(expected, (public, public_port), true);
        let back = self.world.down(&answer);
        let why: Vec<_> =
            DropReason::ALL.iter().filter(|it| self.world.dropped(**it) > 0).collect();
        assert_eq!(back.access.len(), 1, "{flow:x?} {policy:?} {expected:x?} {why:?}");
        let packet = &back.access[0];
        let inner =
            if self.mode == AccessMode::Gre { decapsulate(packet).2 } else { packet.clone() };
        let (from, from_port, to, _) = ends(&inner);
        assert_eq!((from, to), (asked, flow.inside.0), "{flow:x?} {policy:?}");
        assert!(!has_ports || from_port == asked_port);
    }

    /// Asks about a flow of each origin: the home's first packet, a further remote of it, and a
    /// remote's packet to it.
    fn ask(&mut self, n: u32, rng: &mut Rng) {
        let asked: Question<u32> = question(&self.filters, rng);
        let kinds: Vec<FlowKind> = FlowKind::all().collect();
        let at = kinds.iter().position(|&kind| kind == asked.kind).unwrap();
        let subscriber = "10.200.0.0".to_bits() | asked.local & 0x7_ffff;
        let inside = match self.mode {
            AccessMode::Gre => "192.168.0.0".to_bits() + n,
            AccessMode::Plain => subscriber,
        };
        let flow = Flow {
            protocol: [6, 17, 1][at % 3],
            subscriber,
            inside: (inside, asked.local_port.max(1)),
            remote: (asked.remote, asked.remote_port.max(1)),
        };
        let is_fresh = self.used.insert((flow.protocol, inside, flow.inside.1));
        if !is_fresh || !is_usable(flow.remote.0) {
            return;
        }
        if at < 3 {
            self.play(FlowOrigin::Home, &flow, &[]);
            return;
        }
        // The mapping begins under no rules.
        self.swap();
        let first = Flow { remote: (SERVER.to_bits(), 9), ..flow };
        let public = ends(&first.up(&mut self.world, self.mode).into_internet());
        self.swap();
        let packet = flow.packet(flow.remote, (public.0, public.1), true);
        self.play(FlowOrigin::Internet, &flow, &packet);
        let other: Question<u32> = question(&self.filters, rng);
        let further = Flow { remote: (other.remote, other.remote_port.max(1)), ..flow };
        if is_usable(other.remote) && further.remote != flow.remote {
            self.play(FlowOrigin::Home, &further, &[]);
        }
    }
}

/// Public addresses of the shard that are in a source pool.
fn special_addresses() -> Prefix<u32> {
    Prefix::new("203.0.113.0".to_bits(), 31)
}

fn special() -> SourcePool {
    SourcePool::new(1).unwrap()
}

/// Returns what a rule gives its flows: often nothing.
fn policy(rng: &mut Rng) -> FlowPolicy {
    let source = if rng.u8(..) < 80 { special() } else { SourcePool::COMMON };
    let port = rng.bool().then(|| rng.u16(1..));
    let destination = Destination { address: "198.18.0.0".to_bits() + rng.u32(..4), port };
    let destination = (rng.u8(..) < 80).then_some(destination);
    FlowPolicy { source, destination, ..FlowPolicy::NONE }
}

fn is_usable(remote: u32) -> bool {
    let own = ["10.2.0", "10.1.0", "203.0.113"];
    let is_own = own.iter().any(|net| dotted(remote).starts_with(net));
    !is_own
        && (1..224).contains(&(remote >> 24))
        && remote >> 24 != 127
        && remote != SERVER.to_bits()
}

/// A worker for all homes of the shapes, without limits that a test would reach.
fn wide(mode: AccessMode, filtering: Filtering) -> EngineConfig {
    let mut config = config();
    config.mode = mode;
    config.limits.icmp_errors_per_sec = 1_000_000;
    config.limits.worker_icmp_errors_per_sec = 1_000_000;
    config.nat.filtering = filtering;
    config.nat.subscribers = vec!["10.200.0.0/13".parse().unwrap()];
    config.nat.port_block = 64;
    config.nat.shards[0].subscribers_max = 1024;
    config.shards[0].subscribers = vec!["10.200.0.0/13".parse().unwrap()];
    config
}

#[test]
fn engine_decides_on_flows_as_the_plain_search_does() {
    let mut asked = 0;
    for seed in 0..60 {
        let rng = &mut Rng::with_seed(seed);
        let Some(mut model) = Model::new(rng) else { continue };
        model.swap();
        for n in 1..60 {
            model.ask(n, rng);
        }
        asked += model.hits.iter().sum::<u64>();
    }
    assert!(asked > 1500, "{asked} decisions of rules");
}
