//! The fixed packets of each part: 1,000 flows of 100 homes in four shards, in an order that is not
//! that of their creation.

use weir_engine::{AccessMode, DropReason, Side};
use weir_rules::RuleAction;
use weir_wire::build;
use weir_wire::ipv4;
use weir_wire::tcp::{ACK, SYN};

use crate::world::{SHARDS, World, endpoint, home};

pub(crate) const FLOWS: u32 = 1000;
pub(crate) const HOMES_PER_SHARD: u32 = 25;
/// Packets of each established flow.
const ROUNDS: u32 = 4;
pub(crate) const PAYLOAD: [u8; 18] = [7; 18];
pub(crate) const SERVER_PORT: u16 = 443;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    Udp,
    /// A segment with these flags.
    Tcp(u8),
}

/// A flow: home, remote and ports.
#[derive(Clone, Copy)]
struct Flow {
    shard: u32,
    home: u32,
    inside: u32,
    port: u16,
    server: u32,
}

fn flow(mode: AccessMode, number: u32) -> Flow {
    let shard = number % SHARDS;
    let home = home(shard, number / SHARDS % HOMES_PER_SHARD);
    let inside = match mode {
        AccessMode::Gre => u32::from_be_bytes([192, 168, 1, 10]),
        AccessMode::Plain => home,
    };
    let server = u32::from_be_bytes([198, 51, 100, 1]) + number % 7;
    Flow { shard, home, inside, port: 10_000 + number as u16, server }
}

/// Returns flow numbers. 613 is coprime to 1,000: each flow comes once a round, and neighbours lie
/// far apart.
pub(crate) fn permuted() -> impl Iterator<Item = u32> {
    (0..ROUNDS * FLOWS).map(|step| step * 613 % FLOWS)
}

fn segment(transport: Transport, source: (u32, u16), destination: (u32, u16)) -> Vec<u8> {
    let packet = build::ipv4(source.0, destination.0).ttl(64);
    match transport {
        Transport::Udp => packet.udp(source.1, destination.1, PAYLOAD),
        Transport::Tcp(flags) => {
            let segment = build::tcp(source.1, destination.1).flags(flags);
            packet.tcp(if flags & SYN == 0 { segment.payload(PAYLOAD) } else { segment.mss(1460) })
        }
    }
}

pub(crate) fn up(mode: AccessMode, transport: Transport, number: u32) -> Vec<u8> {
    let flow = flow(mode, number);
    let inner = segment(transport, (flow.inside, flow.port), (flow.server, SERVER_PORT));
    match mode {
        AccessMode::Gre => build::ipv4(flow.home, endpoint(flow.shard)).gre(build::gre(), inner),
        AccessMode::Plain => inner,
    }
}

/// Opens every flow and returns the public endpoint of each.
fn open(world: &mut World, mode: AccessMode, transport: Transport) -> Vec<(u32, u16)> {
    let opening: Vec<_> = (0..FLOWS).map(|number| up(mode, transport, number)).collect();
    let sent = world.pass(Side::Access, &opening);
    sent.iter().map(|packet| source_of(packet)).collect()
}

/// Opens every flow from inside, then sends its server's answer.
pub(crate) fn establish(
    world: &mut World,
    mode: AccessMode,
    first: Transport,
    answer: Transport,
) -> Vec<(u32, u16)> {
    let public = open(world, mode, first);
    let answers: Vec<_> = (0..FLOWS).map(|number| down(mode, answer, &public, number)).collect();
    world.pass(Side::Internet, &answers);
    public
}

pub(crate) fn down(
    mode: AccessMode,
    transport: Transport,
    public: &[(u32, u16)],
    number: u32,
) -> Vec<u8> {
    segment(transport, (flow(mode, number).server, SERVER_PORT), public[number as usize])
}

pub(crate) fn source_of(packet: &[u8]) -> (u32, u16) {
    let (header, at, _) = ipv4::parse(packet).expect("an IPv4 packet");
    (header.source.get(), u16::from_be_bytes([packet[at], packet[at + 1]]))
}

fn established_up(mode: AccessMode, steps: [Transport; 3]) -> usize {
    established_up_with(mode, steps, |_| {})
}

/// Changes the worker before the packets that are counted.
fn established_up_with(
    mode: AccessMode,
    [first, answer, later]: [Transport; 3],
    change: impl FnOnce(&mut World),
) -> usize {
    let mut world = World::new(mode);
    establish(&mut world, mode, first, answer);
    change(&mut world);
    let packets: Vec<_> = permuted().map(|number| up(mode, later, number)).collect();
    world.measure(Side::Access, &packets, None)
}

fn established_down(mode: AccessMode, steps: [Transport; 3]) -> usize {
    let [first, answer, later] = steps;
    let mut world = World::new(mode);
    let public = establish(&mut world, mode, first, answer);
    if let Transport::Tcp(_) = later {
        let acknowledged: Vec<_> = (0..FLOWS).map(|number| up(mode, later, number)).collect();
        world.pass(Side::Access, &acknowledged);
    }
    let packets: Vec<_> = permuted().map(|number| down(mode, later, &public, number)).collect();
    world.measure(Side::Internet, &packets, None)
}

fn opening(mut world: World, transport: Transport) -> usize {
    world.measure(Side::Access, &first_packets(transport), None)
}

fn first_packets(transport: Transport) -> Vec<Vec<u8>> {
    let order = permuted().take(FLOWS as usize);
    order.map(|number| up(AccessMode::Gre, transport, number)).collect()
}

/// Flows of the parts in which homes open many.
const LARGE_HOMES_FLOWS: u32 = 12_000;

/// Opens flows of homes that come to have `per_home` each, in an order in which neighbours are of
/// different homes.
fn opening_of_homes(per_home: u32) -> usize {
    let homes = LARGE_HOMES_FLOWS / per_home;
    let order = (0..LARGE_HOMES_FLOWS).map(|step| step * 7919 % LARGE_HOMES_FLOWS);
    let server = (u32::from_be_bytes([198, 51, 100, 1]), SERVER_PORT);
    let packets: Vec<_> = order
        .map(|number| {
            let (home_number, port) = (number % homes, 10_000 + number / homes);
            let (shard, n) = (home_number % SHARDS, home_number / SHARDS);
            let inner = segment(Transport::Udp, (FLOODING, port as u16), server);
            build::ipv4(home(shard, n), endpoint(shard)).gre(build::gre(), inner)
        })
        .collect();
    World::with_room(LARGE_HOMES_FLOWS).measure(Side::Access, &packets, None)
}

pub(crate) fn open_homes_100() -> usize {
    opening_of_homes(100)
}

pub(crate) fn open_homes_1000() -> usize {
    opening_of_homes(1000)
}

pub(crate) fn open_homes_3000() -> usize {
    opening_of_homes(3000)
}

pub(crate) const UDP: [Transport; 3] = [Transport::Udp; 3];
const TCP: [Transport; 3] = [Transport::Tcp(SYN), Transport::Tcp(SYN | ACK), Transport::Tcp(ACK)];

pub(crate) fn gre_udp_up() -> usize {
    established_up(AccessMode::Gre, UDP)
}

pub(crate) fn gre_udp_down() -> usize {
    established_down(AccessMode::Gre, UDP)
}

pub(crate) fn gre_tcp_up() -> usize {
    established_up(AccessMode::Gre, TCP)
}

pub(crate) fn gre_tcp_down() -> usize {
    established_down(AccessMode::Gre, TCP)
}

pub(crate) fn gre_udp_open() -> usize {
    opening(World::new(AccessMode::Gre), Transport::Udp)
}

/// Rules cost packets of live flows nothing, however many there are.
pub(crate) fn rules_up() -> usize {
    established_up_with(AccessMode::Gre, UDP, |world| {
        world.load_rules(100_000, RuleAction::Accept);
    })
}

pub(crate) fn rules_open() -> usize {
    let mut world = World::new(AccessMode::Gre);
    world.load_rules(1000, RuleAction::Accept);
    opening(world, Transport::Udp)
}

pub(crate) fn rules_refused() -> usize {
    let mut world = World::new(AccessMode::Gre);
    world.load_rules(1000, RuleAction::Drop);
    world.measure(Side::Access, &first_packets(Transport::Udp), Some(DropReason::RuleDrop))
}

pub(crate) fn gre_tcp_open() -> usize {
    opening(World::new(AccessMode::Gre), Transport::Tcp(SYN))
}

/// Like `gre_udp_open`, on a worker that owns seven lanes of each shard and marks changes for
/// replicas.
pub(crate) fn replica_open() -> usize {
    opening(World::replicated(), Transport::Udp)
}

pub(crate) fn plain_udp_up() -> usize {
    established_up(AccessMode::Plain, UDP)
}

pub(crate) fn plain_udp_down() -> usize {
    established_down(AccessMode::Plain, UDP)
}

/// A scan of the public addresses while no home holds a port.
pub(crate) fn no_mapping() -> usize {
    let mut world = World::new(AccessMode::Gre);
    let scan = (0..ROUNDS * FLOWS).map(|step| {
        let public = u32::from_be_bytes([203, 0, 113, 0]) + step % (8 * SHARDS);
        let port = 1024 + (step * 613 % 60_000) as u16;
        segment(Transport::Udp, (u32::from_be_bytes([198, 51, 100, 1]), 53), (public, port))
    });
    let packets: Vec<_> = scan.collect();
    world.measure(Side::Internet, &packets, Some(DropReason::NoMapping))
}

/// Packets of a flooding home before the counted ones; after them it is over its slow-path limit.
const BEFORE: u32 = 1024;

/// Returns a packet of a flooding home: `transport` from `port` of one host to `remote`.
fn of_flood(transport: Transport, port: u16, remote: (u32, u16)) -> Vec<u8> {
    tunnelled(segment(transport, (FLOODING, port), remote))
}

const FLOODING: u32 = u32::from_be_bytes([192, 168, 1, 10]);

fn tunnelled(inner: Vec<u8>) -> Vec<u8> {
    build::ipv4(home(0, 0), endpoint(0)).gre(build::gre(), inner)
}

/// Measures a home that floods with the packets that `packet` makes of the numbers from 0 on.
fn flood(packet: impl Fn(u32) -> Vec<u8>) -> usize {
    let mut world = World::with_slow_path(1000);
    let before: Vec<_> = (0..BEFORE).map(&packet).collect();
    world.offer(Side::Access, &before);
    let packets: Vec<_> = (BEFORE..BEFORE + ROUNDS * FLOWS).map(packet).collect();
    world.measure(Side::Access, &packets, Some(DropReason::SlowPathLimit))
}

pub(crate) fn flood_syn() -> usize {
    let server = u32::from_be_bytes([198, 51, 100, 1]);
    flood(|n| of_flood(Transport::Tcp(SYN), 1024 + n as u16, (server, SERVER_PORT)))
}

pub(crate) fn flood_remotes() -> usize {
    let net = u32::from_be_bytes([198, 51, 0, 0]);
    flood(|n| of_flood(Transport::Udp, 5000, (net + 1 + n, SERVER_PORT)))
}

/// First fragments of one flow, each of a new datagram.
pub(crate) fn flood_fragments() -> usize {
    let server = u32::from_be_bytes([198, 51, 100, 1]);
    flood(|n| {
        let datagram = build::ipv4(FLOODING, server).ttl(64).identification(n as u16);
        let datagram = datagram.udp(5000, SERVER_PORT, [7; 40]);
        tunnelled(build::fragments(datagram, 44).swap_remove(0))
    })
}
