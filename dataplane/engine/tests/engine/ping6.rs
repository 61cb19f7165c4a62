//! Pings of the worker's IPv6 addresses (RFC 4443 section 4).

use weir_engine::{DropReason, Side};
use weir_wire::ethernet::{self, Mac};
use weir_wire::icmp6;
use weir_wire::ipv6::{
    ALL_NODES, Ipv6, PROTOCOL_DESTINATION_OPTIONS, PROTOCOL_FRAGMENT, PROTOCOL_ICMPV6,
    solicited_node,
};

use crate::world::link6::*;
use crate::world::*;

const SIDE: Side = Side::Internet;

fn ping(from: u128, to: u128) -> Vec<u8> {
    let message = [&[icmp6::ECHO_REQUEST, 0, 0, 0, 0, 7, 0, 8][..], b"hello"].concat();
    icmp6_packet(from, to, 3, &message)
}

#[test]
fn ping_of_an_own_address_is_answered_from_it() {
    let mut world = world6();
    for side in Side::ALL {
        for (from, to) in [(station6(), own6(side)), (bits6("fe80::7"), link_local6(side))] {
            let mut request = ping(from, to);
            request[1] = 0xb0;
            // Destination options that are one PadN, which the answer does not repeat.
            let mut extended = request.clone();
            extended.splice(Ipv6::LEN..Ipv6::LEN, [extended[6], 0, 1, 4, 0, 0, 0, 0]);
            (extended[6], extended[5]) = (PROTOCOL_DESTINATION_OPTIONS, extended[5] + 8);
            for request in [request, extended] {
                let out = world.frame6(side, worker_mac(side), STRANGER, &request);
                let [(sent_side, frame)] = &out.other[..] else { panic!("one answer: {out:?}") };
                let link = ethernet::parse_link(frame).unwrap();
                assert_eq!((*sent_side, link.destination), (side, STRANGER));
                let message = [&[icmp6::ECHO_REPLY, 0, 0, 0, 0, 7, 0, 8][..], b"hello"].concat();
                let mut expected = icmp6_packet(to, from, 64, &message);
                expected[1] = 0xb0;
                assert_eq!(frame[link.len..], expected, "addresses, hop limit, checksum, class");
            }
        }
    }
    assert_eq!((world.drops(), world.pool.alive()), (0, 0));
}

#[test]
fn ping_that_may_not_be_answered_is_dropped() {
    let own = own6(SIDE);
    let good = ping(station6(), own);
    let check = check_dropped6;
    for source in ["::", "::1", "ff02::1", "2001:db8:2::1", "::ffff:10.0.0.1"] {
        check(source, DropReason::Martian, STRANGER, &ping(bits6(source), own));
    }
    check("group MAC", DropReason::Martian, Mac::BROADCAST, &good);
    check("checksum", DropReason::IcmpChecksum, STRANGER, &with(good.clone(), 52, 0));
    check("reply", DropReason::LocalProtocol, STRANGER, &with(good.clone(), 40, 129));
    check("UDP", DropReason::LocalProtocol, STRANGER, &with(good.clone(), 6, 17));
    // The first fragment has the header of the message, and 8 of its 13 bytes.
    let mut fragment = good;
    fragment.truncate(Ipv6::LEN + 8);
    fragment.splice(Ipv6::LEN..Ipv6::LEN, [PROTOCOL_ICMPV6, 0, 0, 1, 0, 0, 0, 1]);
    (fragment[5], fragment[6]) = (16, PROTOCOL_FRAGMENT);
    check("fragment", DropReason::LocalProtocol, STRANGER, &fragment);
}

/// RFC 4443 section 4.2 lets a node leave an echo request to a group unanswered.
#[test]
fn ping_of_a_group_is_not_answered() {
    let mut world = world6();
    for group in [ALL_NODES, solicited_node(own6(SIDE))] {
        let packet = ping(station6(), group);
        assert!(world.frame6(SIDE, Mac::of_multicast6(group), STRANGER, &packet).is_nothing());
    }
    assert_eq!(world.drops(), 2);
}
