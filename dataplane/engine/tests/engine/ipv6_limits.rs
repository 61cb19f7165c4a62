//! What a home that sends too much, or wrong checksums, does to its IPv6 and to that of others.

use weir_engine::{DropReason, Side};
use weir_wire::{build, gre};

use crate::world;
use crate::world::ipv6::{dual_stack, with_ipv6};
use crate::world::link6::ready6;
use crate::world::{ENDPOINT, World};

const HOME: &str = "10.200.0.1";
const OTHER_HOME: &str = "10.200.0.2";
const HOST: &str = "2001:db8:1000:1::7";
const OTHER_HOST: &str = "2001:db8:1000:2::7";
const SERVER: &str = "2001:db8:9::1";

fn limited() -> World {
    let mut config = with_ipv6(world::config());
    config.nat.delegation = Some(weir_nat::Delegation::Claim { hold_sec: 600 });
    config.limits.slow_path_packets_per_sec = 1000;
    ready6(config)
}

fn udp(source: &str, port: u16) -> Vec<u8> {
    build::ipv6(source, SERVER).udp(port, 53, b"data")
}

#[test]
fn home_over_its_limit_of_the_slow_path_keeps_its_established_flows() {
    let mut world = limited();
    for (home, host) in [(HOME, HOST), (OTHER_HOME, OTHER_HOST)] {
        world.up6(home, udp(host, 5000)).into_internet6();
        world.down6(build::ipv6(SERVER, host).udp(53, 5000, b"data")).into_home6();
    }
    // An unsolicited reply is refused on the slow path, and begins nothing.
    let stray = build::ipv6(HOST, SERVER).icmp6_echo_reply(1, 1, b"data");
    for _ in 0..10_000 {
        assert!(world.up6(HOME, &stray).is_nothing());
    }
    assert!(world.dropped(DropReason::SlowPathLimit) > 9_000);
    world.up6(HOME, udp(HOST, 5000)).into_internet6();
    assert!(world.up6(HOME, udp(HOST, 5001)).is_nothing(), "a new flow of the home counts");
    world.up6(OTHER_HOME, udp(OTHER_HOST, 5001)).into_internet6();
}

/// Its packets do not count as ones of the slow path, in either direction.
#[test]
fn established_flow_of_a_home_with_a_gre_key_has_no_limit() {
    let mut world = limited();
    let header = build::gre().protocol(gre::PROTOCOL_IPV6).key(7);
    let up = build::ipv4(HOME, ENDPOINT).gre(header, udp(HOST, 5000));
    for _ in 0..5_000 {
        world.packet(Side::Access, &up).into_internet6();
        let answer = build::ipv6(SERVER, HOST).udp(53, 5000, b"data");
        assert_eq!(world.down6(answer).into_home6().1.key, Some(7));
    }
}

#[test]
fn syn_with_a_wrong_checksum_over_ipv6_is_counted_and_forwarded() {
    let mut world = dual_stack();
    world.is_input_sound = false;
    let mut syn = build::ipv6(HOST, SERVER).tcp(build::tcp(5000, 443).syn().mss(1400));
    // As a kernel leaves it that expects a network card to complete the checksum.
    syn[56] ^= 0x55;
    let out = world.up6(HOME, &syn);
    assert_eq!(out.other.len(), 1, "the checksum is left to the receiver");
    let [access, internet] =
        [Side::Access, Side::Internet].map(|side| world.counters.wrong_checksums(side));
    assert_eq!((access, internet), (1, 0));
}
