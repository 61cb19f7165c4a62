//! TCP segments with wrong checksums are forwarded unchanged, and counted: one in 64 SYNs from each
//! side is verified, the first one included.

use weir_engine::Side;
use weir_wire::build;

use crate::world::*;

fn syn(port: u16) -> Vec<u8> {
    build::ipv4(PC, SERVER).tcp(build::tcp(port, 80).syn().mss(1460))
}

/// Returns the packet as a kernel leaves it that expects a network card to complete the checksum.
fn unfinished(mut packet: Vec<u8>) -> Vec<u8> {
    packet[36] ^= 0x55;
    packet
}

fn world() -> World {
    let mut world = World::new(config());
    world.is_input_sound = false;
    world
}

#[test]
fn first_syn_with_a_wrong_checksum_is_counted_and_forwarded() {
    let mut world = world();
    let out = world.up(HOME_A, unfinished(syn(40_000)));
    assert_eq!(out.internet.len(), 1, "the checksum is left to the receiver");
    assert_eq!(world.counters.wrong_checksums(Side::Access), 1);
    assert_eq!(world.counters.wrong_checksums(Side::Internet), 0);
}

#[test]
fn one_in_64_syns_has_its_checksum_verified() {
    let mut world = world();
    for port in 0..640 {
        world.up(HOME_A, unfinished(syn(40_000 + port)));
    }
    assert_eq!(world.counters.wrong_checksums(Side::Access), 10);
}

#[test]
fn wrong_checksums_are_counted_for_the_side_they_come_from() {
    let mut world = world();
    let out = world.up(HOME_A, syn(40_000)).into_internet();
    let (_, port, _, _) = ends(&out);
    let answer =
        build::ipv4(SERVER, dotted(u32::from_be_bytes(out[12..16].try_into().unwrap())).as_str())
            .tcp(build::tcp(80, port).syn().ack());
    world.down(unfinished(answer));
    assert_eq!(world.counters.wrong_checksums(Side::Access), 0);
    assert_eq!(world.counters.wrong_checksums(Side::Internet), 1);
}
