//! Random rules, and questions about them. The shapes differ in what real lists differ in: how many
//! rules agree on which field, how they nest, and how often they repeat each other.

use fastrand::Rng;

use crate::address::{IpAddress, Prefix};
use crate::filter::{PortRange, Question, RuleFilter};
use crate::flow_kind::{FlowKind, FlowKinds};

/// How the rules of a list are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleShape {
    /// Of an ISP: most rules are entries of block lists and rules of single homes, some hundreds
    /// are about services. The last accepts all.
    Provider,
    /// Access lists between networks: both addresses specific, one port or none. As acl1 of
    /// ClassBench (Taylor, Turner: "ClassBench", INFOCOM 2005).
    AccessLists,
    /// Firewalls: many rules wide on one address, ranges of ports. As fw1 of ClassBench.
    Firewall,
    /// Chains of hosts: both addresses and both ports. As ipc1 of ClassBench.
    Chains,
    /// Prefixes inside prefixes, to any depth, with ranges of ports that overlap.
    Nests,
    /// Few different filters, drawn again and again.
    Duplicates,
}

impl RuleShape {
    pub const ALL: [Self; 6] = [
        Self::Provider,
        Self::AccessLists,
        Self::Firewall,
        Self::Chains,
        Self::Nests,
        Self::Duplicates,
    ];
}

/// An address of the shapes: IPv4 and IPv6 addresses of random bits below a common prefix.
pub trait ShapeAddress: IpAddress {
    /// Returns an address of the homes' networks.
    fn home(rng: &mut Rng) -> Self;
    /// Returns an address of the internet.
    fn remote(rng: &mut Rng) -> Self;
    /// Returns an address that has the first `len` bits in common with this one.
    #[must_use]
    fn near(self, len: u8, rng: &mut Rng) -> Self;
    /// Returns the prefix length of an IPv4 prefix of `len` bits, or one like it of IPv6.
    fn len_like(len: u8) -> u8;
}

impl ShapeAddress for u32 {
    fn home(rng: &mut Rng) -> Self {
        0x0ac8_0000 | rng.u32(..) & 0x7_ffff
    }

    fn remote(rng: &mut Rng) -> Self {
        rng.u32(0x0100_0000..0xe000_0000)
    }

    fn near(self, len: u8, rng: &mut Rng) -> Self {
        self.network(len) | (u64::from(rng.u32(..)) & (u64::from(u32::MAX) >> len)) as u32
    }

    fn len_like(len: u8) -> u8 {
        len
    }
}

impl ShapeAddress for u128 {
    fn home(rng: &mut Rng) -> Self {
        0x2001_0db8_u128 << 96 | (rng.u128(..) >> 40 & !0 << 64)
    }

    fn remote(rng: &mut Rng) -> Self {
        1 << 125 | rng.u128(..) >> 3
    }

    fn near(self, len: u8, rng: &mut Rng) -> Self {
        self.network(len) | rng.u128(..).checked_shr(u32::from(len)).unwrap_or(0)
    }

    fn len_like(len: u8) -> u8 {
        (len * 2).min(64) + if len > 32 { 64 } else { 0 }
    }
}

/// Ports of services that rules are often about.
const SERVICES: [u16; 12] = [20, 22, 25, 53, 80, 110, 123, 137, 443, 445, 465, 3389];

/// Returns `count` filters, or one more, each a rule of its own, from rule 0 on.
pub fn filters<A: ShapeAddress>(shape: RuleShape, count: u32, rng: &mut Rng) -> Vec<RuleFilter<A>> {
    let mut drawn: Vec<RuleFilter<A>> = Vec::with_capacity(count as usize + 1);
    for rule in 0..count {
        let mut filter = RuleFilter { kinds: kinds(rng), ..RuleFilter::all(rule) };
        match shape {
            RuleShape::Provider => provider(&mut filter, rule, rng),
            RuleShape::AccessLists => {
                filter.remote = Prefix::new(A::remote(rng), A::len_like(rng.u8(16..=32)));
                filter.local = Prefix::new(A::home(rng), A::len_like(rng.u8(16..=32)));
                if rng.bool() {
                    filter.remote_ports = port(rng);
                }
            }
            RuleShape::Firewall => {
                match rng.u8(0..4) {
                    0 => filter.remote = Prefix::new(A::remote(rng), A::len_like(rng.u8(8..=32))),
                    1 => filter.local = Prefix::new(A::home(rng), A::len_like(rng.u8(20..=32))),
                    _ => {
                        filter.remote = Prefix::new(A::remote(rng), A::len_like(32));
                        filter.local = Prefix::new(A::home(rng), A::len_like(rng.u8(16..=32)));
                    }
                }
                filter.remote_ports = ports(rng);
            }
            RuleShape::Chains => {
                filter.remote = Prefix::new(A::remote(rng), A::len_like(32));
                filter.local = Prefix::new(A::home(rng), A::len_like(32));
                (filter.remote_ports, filter.local_ports) = (port(rng), ports(rng));
            }
            RuleShape::Nests => {
                if let Some(outer) = (!drawn.is_empty()).then(|| drawn[rng.usize(0..drawn.len())]) {
                    filter.remote = nested(&outer.remote, A::remote(rng), rng);
                    filter.local = nested(&outer.local, A::home(rng), rng);
                }
                filter.remote_ports = ports(rng);
                filter.local_ports = ports(rng);
            }
            RuleShape::Duplicates => match rule < 8 {
                true => provider(&mut filter, rule, rng),
                false => filter = RuleFilter { rule, ..drawn[rng.usize(0..8)] },
            },
        }
        drawn.push(filter);
    }
    if shape == RuleShape::Provider {
        drawn.push(RuleFilter::all(count));
    }
    drawn
}

/// Seven of ten rules are about remotes, nearly three about homes, and at most some hundreds about
/// services.
fn provider<A: ShapeAddress>(filter: &mut RuleFilter<A>, rule: u32, rng: &mut Rng) {
    match rng.u32(0..1000) {
        0..700 => filter.remote = Prefix::new(A::remote(rng), A::len_like(rng.u8(22..=32))),
        700..990 => {
            filter.local = Prefix::new(A::home(rng), A::len_like(32));
            filter.local_ports = port(rng);
        }
        _ => {
            filter.groups = rng.u16(..) | 1;
            match rule < 40_000 {
                true => filter.remote_ports = port(rng),
                false => filter.remote = Prefix::new(A::remote(rng), A::len_like(24)),
            }
        }
    }
}

fn nested<A: ShapeAddress>(outer: &Prefix<A>, fresh: A, rng: &mut Rng) -> Prefix<A> {
    match outer.is_all() && rng.bool() {
        true => Prefix::new(fresh, rng.u8(1..=8)),
        false => {
            let len = (outer.bits() + rng.u8(0..4)).min(A::BITS as u8);
            Prefix::new(outer.address().near(outer.bits(), rng), len)
        }
    }
}

fn kinds(rng: &mut Rng) -> FlowKinds {
    let chosen = rng.u8(1..1 << FlowKind::COUNT);
    FlowKind::all().zip(0..).filter(|(_, at)| chosen >> at & 1 != 0).map(|(kind, _)| kind).collect()
}

fn port(rng: &mut Rng) -> PortRange {
    let port = if rng.bool() { SERVICES[rng.usize(0..SERVICES.len())] } else { rng.u16(..) };
    PortRange { first: port, last: port }
}

fn ports(rng: &mut Rng) -> PortRange {
    match rng.u8(0..4) {
        0 => PortRange::ALL,
        1 => PortRange { first: 1024, last: u16::MAX },
        2 => {
            let (a, b) = (rng.u16(..), rng.u16(..));
            PortRange { first: a.min(b), last: a.max(b) }
        }
        _ => port(rng),
    }
}

/// Returns a question: mostly of a flow that a filter fits, or that lies just outside of it.
pub fn question<A: ShapeAddress>(filters: &[RuleFilter<A>], rng: &mut Rng) -> Question<A> {
    let kinds: Vec<FlowKind> = FlowKind::all().collect();
    let mut question = Question {
        kind: kinds[rng.usize(0..kinds.len())],
        group: rng.u8(0..16),
        local: A::home(rng),
        remote: A::remote(rng),
        local_port: rng.u16(..),
        remote_port: rng.u16(..),
    };
    // Each field of another filter, so that filters meet that agree on some fields only.
    let mut filter = || filters.get(rng.usize(0..filters.len().max(1))).copied();
    let chosen = [filter(), filter()];
    let mut filter = || if rng.u8(0..8) == 0 { chosen[1] } else { chosen[0] };
    let (remote, local) = (filter(), filter());
    let (remote_port, local_port, kind) = (filter(), filter(), filter());
    if let Some(filter) = remote {
        question.remote = filter.remote.address().near(filter.remote.bits(), rng);
    }
    if let Some(filter) = local {
        question.local = filter.local.address().near(filter.local.bits(), rng);
    }
    if let Some(filter) = remote_port {
        question.remote_port = edge(filter.remote_ports, rng);
    }
    if let Some(filter) = local_port {
        question.local_port = edge(filter.local_ports, rng);
    }
    if let Some(filter) = kind
        && let Some(&kind) = kinds.iter().find(|&&kind| filter.kinds.has(kind))
    {
        question.kind = kind;
    }
    question
}

/// A port within a range, at one of its ends, or just outside.
fn edge(range: PortRange, rng: &mut Rng) -> u16 {
    match rng.u8(0..5) {
        0 => range.first,
        1 => range.last,
        2 => range.first.wrapping_sub(1),
        3 => range.last.wrapping_add(1),
        _ => rng.u16(range.first..=range.last),
    }
}
