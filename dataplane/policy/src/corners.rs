//! The corners of filters, groups and prefixes of homes: values at which a verdict may change.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastrand::Rng;
use weir_config::ProtocolSetting;
use weir_rules::{FlowOrigin, IpAddress, PortRange, Prefix, RuleFilter};

use crate::compare::ComparedHomes;
use crate::compile::CompiledPolicy;
use crate::family::FamilyAddress;
use crate::question::{FlowAddresses, FlowQuestion};

/// An address with what corners need of it.
pub(crate) trait CornerAddress: FamilyAddress {
    /// An address of the internet that no rule needs to name.
    const REMOTE: Self;
    /// One of so many flows that may be of any tunnel is of one: others have a local address.
    const TUNNEL_ROUNDS: usize;
    /// An address of a home, for where no prefixes of homes are known.
    const HOME: Option<Self>;

    /// Returns the filters of a policy in this family.
    fn filters(policy: &CompiledPolicy) -> &[RuleFilter<Self>];

    /// Returns the groups of a policy in this family.
    fn groups(policy: &CompiledPolicy) -> &[(Prefix<Self>, u8)];

    /// Returns the prefixes of homes in this family.
    fn homes(homes: &ComparedHomes<'_>) -> Vec<Prefix<Self>>;

    /// Whether flows with these local addresses may be of any home with a tunnel.
    fn has_tunnels(locals: &Prefix<Self>) -> bool;

    /// Returns both ends of a flow. The tunnel of an IPv4 flow, over IPv6, is there in place of the
    /// local address.
    fn ends(local: Self, remote: Self, tunnel: Option<IpAddr>) -> FlowAddresses;
}

impl CornerAddress for u32 {
    const REMOTE: u32 = Ipv4Addr::new(198, 51, 100, 1).to_bits();
    const HOME: Option<u32> = None;
    const TUNNEL_ROUNDS: usize = 2;

    fn filters(policy: &CompiledPolicy) -> &[RuleFilter<u32>] {
        &policy.filters.ipv4
    }

    fn groups(policy: &CompiledPolicy) -> &[(Prefix<u32>, u8)] {
        &policy.groups.ipv4
    }

    fn homes(homes: &ComparedHomes<'_>) -> Vec<Prefix<u32>> {
        homes.ipv4.iter().copied().map(u32::prefix).collect()
    }

    fn has_tunnels(locals: &Prefix<u32>) -> bool {
        locals.is_all()
    }

    fn ends(local: u32, remote: u32, tunnel: Option<IpAddr>) -> FlowAddresses {
        let subscriber = tunnel.unwrap_or(local.to_ip());
        FlowAddresses::Ipv4 { subscriber, remote: remote.into() }
    }
}

impl CornerAddress for u128 {
    // Addresses of documents (RFC 3849).
    const REMOTE: u128 = Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0x100, 0, 0, 0, 1).to_bits();
    const TUNNEL_ROUNDS: usize = 1;
    const HOME: Option<u128> = Some(Ipv6Addr::new(0x2001, 0xdb8, 0x200, 0, 0, 0, 0, 1).to_bits());

    fn filters(policy: &CompiledPolicy) -> &[RuleFilter<u128>] {
        &policy.filters.ipv6
    }

    fn groups(policy: &CompiledPolicy) -> &[(Prefix<u128>, u8)] {
        &policy.groups.ipv6
    }

    fn homes(homes: &ComparedHomes<'_>) -> Vec<Prefix<u128>> {
        match homes.ipv6 {
            [] => vec![Prefix::all()],
            nets => nets.iter().copied().map(u128::prefix).collect(),
        }
    }

    fn has_tunnels(_: &Prefix<u128>) -> bool {
        true
    }

    fn ends(local: u128, remote: u128, tunnel: Option<IpAddr>) -> FlowAddresses {
        FlowAddresses::Ipv6 { inside: local.into(), remote: remote.into(), tunnel }
    }
}

/// The corners of all filters of a family. Sorted.
pub(crate) struct Corners<A> {
    locals: Vec<A>,
    remotes: Vec<A>,
    inside_ports: Vec<u16>,
    remote_ports: Vec<u16>,
    /// Outer addresses of the homes' tunnels that local addresses do not name: in IPv4 those of
    /// IPv6.
    tunnels: Vec<IpAddr>,
}

impl<A: CornerAddress> Corners<A> {
    /// `tunnels`: outer addresses of the homes' tunnels that local addresses do not name.
    pub(crate) fn of(
        policies: [&CompiledPolicy; 2],
        homes: &ComparedHomes<'_>,
        tunnels: Vec<IpAddr>,
    ) -> Self {
        // A flow may be of any home and with any remote, whatever the rules say.
        let mut corners = Self {
            locals: home_corners(policies, homes),
            remotes: vec![A::REMOTE],
            inside_ports: vec![40_000],
            remote_ports: vec![443],
            tunnels,
        };
        for filter in policies.into_iter().flat_map(A::filters) {
            corners.locals.extend(around(&filter.local));
            corners.remotes.extend(around(&filter.remote));
            corners.inside_ports.extend(around_ports(filter.local_ports));
            corners.remote_ports.extend(around_ports(filter.remote_ports));
        }
        keep_homes(&mut corners.locals, homes);
        sort(&mut corners.remotes);
        sort(&mut corners.inside_ports);
        sort(&mut corners.remote_ports);
        corners
    }

    /// Returns a flow that the filter fits, but for its group. `None` if no home is in it.
    pub(crate) fn flow(
        &self,
        filter: &RuleFilter<A>,
        round: usize,
        draw: &mut Rng,
    ) -> Option<FlowQuestion> {
        let kinds = [FlowOrigin::Home, FlowOrigin::Internet].into_iter().flat_map(|from| {
            [ProtocolSetting::Tcp, ProtocolSetting::Udp, ProtocolSetting::Icmp]
                .map(|protocol| (from, protocol))
        });
        let ends = |net: &Prefix<A>| (net.address(), net.last());
        let local = pick(&self.locals, ends(&filter.local), round, draw)?;
        let remote = pick(&self.remotes, ends(&filter.remote), round, draw)?;
        // Packets of port 0 begin no flow.
        let ports = |ports: PortRange| (ports.first.max(1), ports.last);
        let inside_port = pick(&self.inside_ports, ports(filter.local_ports), round, draw)?;
        let remote_port = pick(&self.remote_ports, ports(filter.remote_ports), round, draw)?;
        let tunnel = self.tunnel(draw).filter(|_| A::has_tunnels(&filter.local));
        let addresses = A::ends(local, remote, tunnel);
        let flows = kinds.map(|(from, protocol)| {
            let has_ports = protocol != ProtocolSetting::Icmp;
            FlowQuestion {
                from,
                protocol,
                addresses,
                inside_port: if has_ports { inside_port } else { 0 },
                remote_port: if has_ports { remote_port } else { 0 },
            }
        });
        let flows: Vec<FlowQuestion> = flows.filter(|flow| filter.kinds.has(flow.kind())).collect();
        // Two rounds, with the lowest and the highest corners, for each kind.
        flows.get(round / 2 % flows.len().max(1)).copied()
    }

    fn tunnel(&self, draw: &mut Rng) -> Option<IpAddr> {
        match self.tunnels.len() {
            0 => None,
            count => self.tunnels.get(draw.usize(..A::TUNNEL_ROUNDS * count)).copied(),
        }
    }
}

/// Returns the corners of the homes' prefixes and of the groups.
fn home_corners<A: CornerAddress>(
    policies: [&CompiledPolicy; 2],
    homes: &ComparedHomes<'_>,
) -> Vec<A> {
    let groups = policies.into_iter().flat_map(A::groups).map(|(net, _)| *net);
    let nets = A::homes(homes).into_iter().chain(groups);
    nets.flat_map(|net| around(&net)).chain(A::HOME).collect()
}

/// Returns the outer addresses of the homes' tunnels at which their groups may change.
pub(crate) fn tunnels(policies: [&CompiledPolicy; 2], homes: &ComparedHomes<'_>) -> Vec<IpAddr> {
    let mut tunnels: Vec<u32> = home_corners(policies, homes);
    keep_homes(&mut tunnels, homes);
    let tunnels = tunnels.into_iter().map(u32::to_ip);
    tunnels.chain(tunnels6(policies, homes)).collect()
}

/// Does the same for tunnels over IPv6.
pub(crate) fn tunnels6(policies: [&CompiledPolicy; 2], homes: &ComparedHomes<'_>) -> Vec<IpAddr> {
    let outers = ComparedHomes { ipv6: homes.outer6, ..*homes };
    if outers.ipv6.is_empty() {
        return Vec::new();
    }
    let mut tunnels: Vec<u128> = home_corners(policies, &outers);
    keep_homes(&mut tunnels, &outers);
    tunnels.into_iter().map(u128::to_ip).collect()
}

/// Sorts addresses, and removes those of no home.
fn keep_homes<A: CornerAddress>(addresses: &mut Vec<A>, homes: &ComparedHomes<'_>) {
    let homes = A::homes(homes);
    addresses.retain(|address| homes.iter().any(|net| net.contains(*address)));
    sort(addresses);
}

fn sort<T: Ord>(values: &mut Vec<T>) {
    values.sort_unstable();
    values.dedup();
}

/// Returns the first and the last address, and their neighbours outside; of the prefix of all
/// addresses none.
fn around<A: FamilyAddress>(net: &Prefix<A>) -> impl Iterator<Item = A> + use<A> {
    let (first, last) = (net.address(), net.last());
    let [before, behind] = A::neighbours(first, last);
    (!net.is_all()).then_some([before, first, last, behind]).into_iter().flatten()
}

fn around_ports(ports: PortRange) -> [u16; 4] {
    let PortRange { first, last } = ports;
    [first.saturating_sub(1), first, last, last.saturating_add(1)]
}

/// Returns one of the sorted values from `first` to `last`: the first, the last, then any.
fn pick<T: Copy + Ord>(
    values: &[T],
    (first, last): (T, T),
    round: usize,
    draw: &mut Rng,
) -> Option<T> {
    let begin = values.partition_point(|value| *value < first);
    let end = values.partition_point(|value| *value <= last);
    let values = &values[begin..end];
    match round {
        0 => values.first().copied(),
        1 => values.last().copied(),
        _ if values.is_empty() => None,
        _ => values.get(draw.usize(..values.len())).copied(),
    }
}
