//! Wrong checksums of TCP are passed on as they are, and seen: of the SYNs from each side one in 64 is looked at, the first
//! one included.

mod world;

use weir_engine::Side;
use weir_wire::build;
use world::*;

fn syn(port: u16) -> Vec<u8> {
    build::ipv4(PC, SERVER).tcp(build::tcp(port, 80).syn().mss(1460))
}

/// As a kernel leaves it that expects a network card to finish it.
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
fn the_first_syn_with_a_wrong_checksum_is_seen_and_passed_on() {
    let mut world = world();
    let out = world.up(HOME_A, unfinished(syn(40_000)));
    assert_eq!(out.internet.len(), 1, "the receiver judges it");
    assert_eq!(world.counters.wrong_checksums(Side::Access), 1);
    assert_eq!(world.counters.wrong_checksums(Side::Internet), 0);
}

#[test]
fn of_many_syns_one_in_sixty_four_is_looked_at() {
    let mut world = world();
    for port in 0..640 {
        world.up(HOME_A, unfinished(syn(40_000 + port)));
    }
    assert_eq!(world.counters.wrong_checksums(Side::Access), 10);
}

#[test]
fn right_ones_and_answers_are_told_apart_by_side() {
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
