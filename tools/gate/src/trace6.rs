//! The parts with IPv6: 1,000 flows of 100 homes, as `trace.rs` has them of IPv4.

use weir_engine::{AccessMode, Side};
use weir_wire::build;
use weir_wire::gre;

use crate::trace::{self, FLOWS, HOMES_PER_SHARD, PAYLOAD, SERVER_PORT, UDP, permuted};
use crate::world::{SHARDS, World, endpoint, home, home6};

fn ends(number: u32) -> ((u128, u16), (u128, u16)) {
    let inside = home6(number % SHARDS, number / SHARDS % HOMES_PER_SHARD);
    let server = 0x2001_0db8_9000_0000_0000_0000_0000_0001 + u128::from(number % 7);
    ((inside, 10_000 + number as u16), (server, SERVER_PORT))
}

fn datagram(source: (u128, u16), destination: (u128, u16)) -> Vec<u8> {
    build::ipv6(source.0, destination.0).udp(source.1, destination.1, PAYLOAD)
}

pub(crate) fn up(mode: AccessMode, number: u32) -> Vec<u8> {
    let (inside, server) = ends(number);
    let inner = datagram(inside, server);
    match mode {
        AccessMode::Plain => inner,
        AccessMode::Gre => {
            let shard = number % SHARDS;
            let home = home(shard, number / SHARDS % HOMES_PER_SHARD);
            let header = build::gre().protocol(gre::PROTOCOL_IPV6);
            build::ipv4(home, endpoint(shard)).gre(header, inner)
        }
    }
}

pub(crate) fn down(number: u32) -> Vec<u8> {
    let (inside, server) = ends(number);
    datagram(server, inside)
}

/// Opens every flow from inside, then sends its server's answer.
fn establish(world: &mut World, mode: AccessMode) {
    let packets: Vec<_> = (0..FLOWS).map(|number| up(mode, number)).collect();
    world.pass(Side::Access, &packets);
    let answers: Vec<_> = (0..FLOWS).map(down).collect();
    world.pass(Side::Internet, &answers);
}

fn established_up(mode: AccessMode) -> usize {
    let mut world = World::dual_stack(mode);
    establish(&mut world, mode);
    let packets: Vec<_> = permuted().map(|number| up(mode, number)).collect();
    world.measure(Side::Access, &packets, None)
}

fn established_down(mode: AccessMode) -> usize {
    let mut world = World::dual_stack(mode);
    establish(&mut world, mode);
    let packets: Vec<_> = permuted().map(down).collect();
    world.measure(Side::Internet, &packets, None)
}

fn opening(mode: AccessMode) -> usize {
    let order = permuted().take(FLOWS as usize);
    let packets: Vec<_> = order.map(|number| up(mode, number)).collect();
    World::dual_stack(mode).measure(Side::Access, &packets, None)
}

pub(crate) fn gre_up() -> usize {
    established_up(AccessMode::Gre)
}

pub(crate) fn gre_down() -> usize {
    established_down(AccessMode::Gre)
}

pub(crate) fn gre_open() -> usize {
    opening(AccessMode::Gre)
}

pub(crate) fn plain_up() -> usize {
    established_up(AccessMode::Plain)
}

pub(crate) fn plain_down() -> usize {
    established_down(AccessMode::Plain)
}

pub(crate) fn plain_open() -> usize {
    opening(AccessMode::Plain)
}

/// Packets of both families in turn.
fn mixed(ipv4: impl Iterator<Item = Vec<u8>>, ipv6: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    ipv4.zip(ipv6).flat_map(|(one, other)| [one, other]).collect()
}

pub(crate) fn mixed_up() -> usize {
    let mode = AccessMode::Gre;
    let mut world = World::dual_stack(mode);
    trace::establish(&mut world, mode, UDP[0], UDP[1]);
    establish(&mut world, mode);
    let ipv4 = permuted().map(|number| trace::up(mode, UDP[2], number));
    let packets = mixed(ipv4, permuted().map(|number| up(mode, number)));
    world.measure(Side::Access, &packets, None)
}

pub(crate) fn mixed_down() -> usize {
    let mode = AccessMode::Gre;
    let mut world = World::dual_stack(mode);
    let public = trace::establish(&mut world, mode, UDP[0], UDP[1]);
    establish(&mut world, mode);
    let ipv4 = permuted().map(|number| trace::down(mode, UDP[2], &public, number));
    let packets = mixed(ipv4, permuted().map(down));
    world.measure(Side::Internet, &packets, None)
}
