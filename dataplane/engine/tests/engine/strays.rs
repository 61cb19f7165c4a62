//! Redirected packets at their receiver: a stray is never redirected again, whichever worker sent
//! it and whatever its kind.

use weir_engine::{Direction, DropReason, Misses, Side};
use weir_nat::Tick;
use weir_wire::build;
use weir_wire::icmp;

use crate::world::pair::{A, B, Pair, SHARD};
use crate::world::*;

fn udp() -> Vec<u8> {
    build::ipv4(PC, SERVER).ttl(64).udp(5000, 53, b"query")
}

fn reply(to: (u32, u16)) -> Vec<u8> {
    build::ipv4(SERVER, to.0).ttl(64).udp(53, to.1, b"answer")
}

fn redirected(world: &World) -> [u64; 2] {
    [Direction::Receive, Direction::Transmit].map(|direction| world.counters.redirected(direction))
}

#[test]
fn nothing_is_redirected_twice() {
    let mut pair = Pair::redirecting();
    pair.b.engine.setup().set_misses(SHARD, Misses::Redirect(A));
    // B has a lane of its own and makes the flow in it.
    let out = pair.a.up(HOME_A, udp());
    pair.deliver(&out).into_internet();
    // Without a lane it cannot.
    pair.b.engine.nat_mut().replica_mut().set_owned_lanes(SHARD, 0, Tick(1));
    let out = pair.a.up(HOME_B, udp());
    assert!(pair.deliver(&out).is_nothing());
    assert_eq!(pair.b.dropped(DropReason::MissRefused), 1);
    let out = pair.a.down(reply(("203.0.113.1".to_bits(), 65_000)));
    assert!(pair.deliver(&out).is_nothing());
    assert_eq!(pair.b.dropped(DropReason::NoMapping), 1);
    let error = build::ipv4(PC, SERVER).port_unreachable(build::ipv4(SERVER, PC).udp(53, 7, b"y"));
    let out = pair.a.up(HOME_A, error);
    assert!(pair.deliver(&out).is_nothing());
    assert_eq!(pair.b.dropped(DropReason::IcmpErrorUnmatched), 1);
    assert_eq!((redirected(&pair.b), pair.drops()), ([4, 0], 3));
    // Later fragments without their first one, both ways.
    let up = build::ipv4(PC, SERVER).fragment(1480, false).payload(17, [0; 9]);
    let down = build::ipv4(SERVER, "203.0.113.1").fragment(1480, false).payload(17, [0; 9]);
    let up = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), up);
    for stray in [up, down] {
        let stray = build::ipv4(A.to_bits(), B.to_bits()).ipip(stray);
        assert!(pair.b.packet(Side::Access, &stray).is_nothing());
    }
    assert_eq!((pair.b.dropped(DropReason::MissRefused), pair.b.pool.alive()), (3, 0));
}

#[test]
fn packets_of_unknown_homes_are_not_redirected() {
    let mut pair = Pair::redirecting();
    for inner in [
        udp(),
        build::ipv4(PC, SERVER).fragment(0, true).udp(5000, 53, [0; 1400]),
        build::ipv4(PC, SERVER).fragment(1480, false).payload(17, [0; 9]),
    ] {
        assert!(pair.a.up("10.201.0.1", inner).is_nothing());
    }
    assert_eq!((pair.a.dropped(DropReason::NotSubscriber), pair.drops()), (3, 3));
    // An unknown sender cannot redirect either.
    let stray = build::ipv4(HOME_A, B.to_bits())
        .ipip(build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), udp()));
    assert!(pair.b.packet(Side::Access, &stray).is_nothing());
    assert_eq!(pair.b.dropped(DropReason::NotPeer), 1);
}

#[test]
fn malformed_redirected_packets_are_dropped_for_their_reason() {
    use DropReason::*;
    let tunnel = |inner: &[u8]| build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), inner);
    let mut wrong = tunnel(&udp());
    wrong[10] ^= 1;
    let answer = build::ipv4(ENDPOINT, HOME_A).gre(build::gre().protocol(0), []);
    let nested = build::ipv4(A.to_bits(), B.to_bits()).ipip(tunnel(&udp()));
    let cases = [
        (InnerMalformed, vec![0x45; 10]),
        (InnerChecksum, wrong),
        (NotLocal, build::ipv4(HOME_A, "10.100.0.9").gre(build::gre(), udp())),
        (NotLocal, build::ipv4(SERVER, "192.0.2.1").udp(1, 2, b"x")),
        (NotLocal, nested),
        (NotLocal, tunnel(&answer)),
        (NotLocal, build::ipv4(HOME_A, ENDPOINT).icmp_echo_request(1, 2, b"x")),
        (GreMalformed, build::ipv4(HOME_A, ENDPOINT).payload(47, [0; 3])),
        (Martian, build::ipv4("127.0.0.1", "203.0.113.1").udp(1, 2, b"x")),
        (Protocol, build::ipv4(SERVER, "203.0.113.1").payload(132, [0; 20])),
        (OuterFragment, vec![]),
    ];
    for (reason, packet) in cases {
        let mut pair = Pair::new(config());
        let head = build::ipv4(A.to_bits(), B.to_bits());
        let stray = match reason {
            OuterFragment => head.fragment(0, true).payload(4, [0; 64]),
            _ => head.ipip(packet),
        };
        assert!(pair.b.packet(Side::Access, &stray).is_nothing(), "{reason:?}");
        assert_eq!((pair.b.dropped(reason), pair.drops()), (1, 1), "{reason:?}");
    }
    // The TTL has expired: the home gets an ICMP error, as it would have got from the first worker.
    let mut pair = Pair::new(config());
    let last = build::ipv4(PC, SERVER).ttl(1).udp(1, 2, b"x");
    let stray = build::ipv4(A.to_bits(), B.to_bits()).ipip(tunnel(&last));
    let (_, _, error) = pair.b.packet(Side::Access, &stray).into_home();
    assert_eq!(error[20], icmp::TIME_EXCEEDED);
}

#[test]
fn redirected_and_direct_packets_of_a_burst_keep_their_order() {
    let mut pair = Pair::new(config());
    let packet = |n: u8| build::ipv4(PC, SERVER).udp(5000, 53, [n]);
    let frames = (0..20_u8).map(|n| {
        let tunnel = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), packet(n));
        let packet = match n % 3 {
            0 => tunnel,
            _ => build::ipv4(B.to_bits(), A.to_bits()).ipip(tunnel),
        };
        let frame = build::ethernet(worker_mac(Side::Access), gateway_mac(Side::Access), packet);
        weir_wire::frame::VecFrame::new(&frame)
    });
    let sent = pair.a.frames(Side::Access, frames.collect()).internet;
    let order: Vec<_> = sent.iter().map(|packet| packet[28]).collect();
    assert_eq!(order, (0..20).collect::<Vec<_>>());
    assert_eq!(pair.a.engine.nat().admin().gauges().flows, 1, "one mapping for all");
}
