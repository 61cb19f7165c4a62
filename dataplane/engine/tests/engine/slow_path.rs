//! The slow path is shared: no home uses more of it than its limit, either way, and packets of the
//! fast path do not count.

use weir_engine::{AccessMode, DropReason, EngineConfig, Side};
use weir_wire::build;

use crate::world::*;

/// A home may have 100 packets at once, and one a millisecond; one in 32 is charged.
const PER_SEC: u32 = 1000;
const AT_ONCE_MAX: usize = 200;

fn limited() -> EngineConfig {
    let mut config = config();
    config.limits.slow_path_packets_per_sec = PER_SEC;
    config
}

fn established() -> Vec<u8> {
    build::ipv4(PC, SERVER).udp(5000, 53, b"x")
}

/// Returns the first fragment of the n-th datagram of the established flow.
fn first_fragment(n: u16) -> Vec<u8> {
    let datagram = build::ipv4(PC, SERVER).identification(n).udp(5000, 53, [7; 100]);
    build::fragments(datagram, 60).swap_remove(0)
}

#[test]
fn home_over_its_limit_loses_slow_path_packets_only() {
    let mut world = World::new(limited());
    world.up(HOME_A, established()).into_internet();
    world.up(HOME_B, established()).into_internet();
    let passed: usize =
        (0..10_000).map(|n| world.up(HOME_A, first_fragment(n)).internet.len()).sum();
    assert!((100..AT_ONCE_MAX).contains(&passed), "{passed}");
    assert_eq!(world.dropped(DropReason::SlowPathLimit), 10_000 - passed as u64);
    world.up(HOME_A, established()).into_internet();
    // New flows and further remotes of the home count; those of other homes count for these.
    assert!(world.up(HOME_A, build::ipv4(PC, SERVER).udp(5001, 53, b"x")).is_nothing());
    assert!(world.up(HOME_A, build::ipv4(PC, SERVER_2).udp(5000, 53, b"x")).is_nothing());
    world.up(HOME_B, build::ipv4(PC, SERVER).udp(5001, 53, b"x")).into_internet();
    world.up(HOME_B, first_fragment(1)).into_internet();
    world.pass_ms(100);
    world.up(HOME_A, first_fragment(1)).into_internet();
}

#[test]
fn a_remote_that_floods_a_home_takes_nothing_of_what_the_home_sends() {
    let mut world = World::new(limited());
    let public = ends(&world.up(HOME_A, established()).into_internet());
    let first = |n| {
        let datagram = build::ipv4(SERVER, public.0).identification(n);
        build::fragments(datagram.udp(53, public.1, [7; 100]), 60).swap_remove(0)
    };
    let passed: usize = (0..10_000).map(|n| world.down(first(n)).access.len()).sum();
    assert!((100..AT_ONCE_MAX).contains(&passed), "{passed}");
    assert_eq!(world.dropped(DropReason::SlowPathLimit), 10_000 - passed as u64);
    world.down(build::ipv4(SERVER, public.0).udp(53, public.1, b"y")).into_home();
    for port in 5001..5050 {
        world.up(HOME_A, build::ipv4(PC, SERVER).udp(port, 53, b"x")).into_internet();
    }
}

/// The home to which the fragments go is not known, so the remote is charged.
#[test]
fn remote_that_floods_early_fragments_does_not_limit_other_remotes() {
    let mut world = World::new(limited());
    let public = ends(&world.up(HOME_A, established()).into_internet());
    let pieces = |from: &str, n| {
        let datagram = build::ipv4(from, public.0).identification(n);
        build::fragments(datagram.udp(53, public.1, [7; 100]), 60)
    };
    for n in 0..10_000 {
        assert!(world.down(&pieces(SERVER_2, n)[1]).is_nothing());
    }
    let beyond = world.dropped(DropReason::SlowPathLimit);
    assert!((10_000 - AT_ONCE_MAX as u64..9_900).contains(&beyond), "{beyond}");
    let whole = pieces(SERVER, 1);
    assert!(world.down(&whole[1]).is_nothing());
    let sent = world.down(&whole[0]).access.len();
    assert_eq!(sent, 2, "the first, and the second that waited for it");
}

#[test]
fn homes_without_tunnels_are_limited_alike() {
    let mut config = limited();
    config.mode = AccessMode::Plain;
    config.shards.iter_mut().zip(["10.200.0.0/24", "10.200.1.0/24"]).for_each(|(shard, net)| {
        shard.endpoint = None;
        shard.subscribers = vec![net.parse().unwrap()];
    });
    let mut world = World::new(config);
    let packet = |home: &str, port| build::ipv4(home, SERVER).udp(port, 53, b"x");
    world.packet(Side::Access, &packet(HOME_A, 5000)).into_internet();
    let passed: usize = (1..10_000)
        .map(|port| world.packet(Side::Access, &packet(HOME_A, port)).internet.len())
        .sum();
    assert!((100..AT_ONCE_MAX).contains(&passed), "{passed}");
    world.packet(Side::Access, &packet(HOME_A, 5000)).into_internet();
    world.packet(Side::Access, &packet(HOME_B, 5000)).into_internet();
}

/// Homes behind one address that are distinguished by their keys do not share a limit.
#[test]
fn a_home_of_another_key_has_a_limit_of_its_own() {
    let mut config = limited();
    config.nat.gre_key_identifies_home = true;
    let mut world = World::new(config);
    let up = |world: &mut World, key, port| {
        let inner = build::ipv4(PC, SERVER).udp(port, 53, b"x");
        let packet = build::ipv4(HOME_A, ENDPOINT).gre(build::gre().key(key), inner);
        world.packet(Side::Access, &packet)
    };
    up(&mut world, 1, 5000).into_internet();
    let passed: usize = (1..5000).map(|port| up(&mut world, 1, port).internet.len()).sum();
    assert!((100..AT_ONCE_MAX).contains(&passed), "{passed}");
    up(&mut world, 2, 5000).into_internet();
    up(&mut world, 1, 5000).into_internet();
}
