//! The packets of [`trace`](crate::trace) and [`trace6`](crate::trace6), of homes with tunnels over
//! IPv6.

use weir_engine::{AccessMode, Side};
use weir_wire::{build, gre};

use crate::trace::{self, FLOWS, HOMES_PER_SHARD, Transport, permuted};
use crate::trace6;
use crate::world::{SHARDS, World, endpoint6, outer6};

/// Puts an inner packet into the tunnel of the home of a flow.
fn tunnelled(number: u32, protocol: u16, inner: Vec<u8>) -> Vec<u8> {
    let shard = number % SHARDS;
    let home = outer6(shard, number / SHARDS % HOMES_PER_SHARD);
    build::ipv6(home, endpoint6(shard)).gre(build::gre().protocol(protocol), inner)
}

fn up(number: u32) -> Vec<u8> {
    /// Length of a tunnel header over IPv4.
    const TUNNEL: usize = 24;
    let over_ipv4 = trace::up(AccessMode::Gre, Transport::Udp, number);
    tunnelled(number, gre::PROTOCOL_IPV4, over_ipv4[TUNNEL..].to_vec())
}

fn world() -> World {
    World::over_ipv6()
}

/// Opens every flow from inside, then sends its server's answer.
fn establish(world: &mut World) -> Vec<(u32, u16)> {
    let opening: Vec<_> = (0..FLOWS).map(up).collect();
    let sent = world.pass(Side::Access, &opening);
    let public: Vec<_> = sent.iter().map(|packet| trace::source_of(packet)).collect();
    let answer = |number| trace::down(AccessMode::Gre, Transport::Udp, &public, number);
    let answers: Vec<_> = (0..FLOWS).map(answer).collect();
    world.pass(Side::Internet, &answers);
    public
}

pub(crate) fn udp_up() -> usize {
    let mut world = world();
    establish(&mut world);
    let packets: Vec<_> = permuted().map(up).collect();
    world.measure(Side::Access, &packets, None)
}

pub(crate) fn udp_down() -> usize {
    let mut world = world();
    let public = establish(&mut world);
    let down = |number| trace::down(AccessMode::Gre, Transport::Udp, &public, number);
    let packets: Vec<_> = permuted().map(down).collect();
    world.measure(Side::Internet, &packets, None)
}

pub(crate) fn udp_open() -> usize {
    let packets: Vec<_> = permuted().take(FLOWS as usize).map(up).collect();
    world().measure(Side::Access, &packets, None)
}

fn up6(number: u32) -> Vec<u8> {
    tunnelled(number, gre::PROTOCOL_IPV6, trace6::up(AccessMode::Plain, number))
}

fn establish6(world: &mut World) {
    let opening: Vec<_> = (0..FLOWS).map(up6).collect();
    world.pass(Side::Access, &opening);
    let answers: Vec<_> = (0..FLOWS).map(trace6::down).collect();
    world.pass(Side::Internet, &answers);
}

pub(crate) fn ipv6_up() -> usize {
    let mut world = world();
    establish6(&mut world);
    let packets: Vec<_> = permuted().map(up6).collect();
    world.measure(Side::Access, &packets, None)
}

pub(crate) fn ipv6_down() -> usize {
    let mut world = world();
    establish6(&mut world);
    let packets: Vec<_> = permuted().map(trace6::down).collect();
    world.measure(Side::Internet, &packets, None)
}
