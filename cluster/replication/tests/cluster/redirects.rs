//! Redirected packets between two workers, with real sessions over their access network: honest
//! ones are served, and no packet that a stranger makes, changes or repeats reaches a home or the
//! internet.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;

use bolero::check;
use weir_engine::{DropReason, Side};
use weir_wire::build;
use weir_wire::ipv4::Ipv4;
use weir_wire::udp::Udp;

use crate::cluster::read;
use crate::member::{ENDPOINT, HOMES, INSIDE, SERVERS, address};
use crate::pair::Pair;

fn inside(port: u16) -> Vec<u8> {
    build::ipv4(INSIDE, SERVERS).udp(port, 53, b"hello")
}

fn up(packet: &[u8]) -> Vec<u8> {
    build::ipv4(HOMES, ENDPOINT).gre(build::gre(), packet)
}

/// Returns a packet in the clear, in the name of A.
fn in_the_clear(inner: Vec<u8>) -> Vec<u8> {
    build::ipv4(address(0).ip().to_bits(), address(1).ip().to_bits()).ipip(inner)
}

/// No packet to the internet, none to homes.
fn nothing() -> [Vec<Vec<u8>>; 2] {
    [vec![], vec![]]
}

#[test]
fn a_redirected_packet_is_served_by_the_other_worker_and_so_is_its_answer() {
    let mut pair = Pair::ready();
    pair.a().packets(Side::Access, vec![up(&inside(5000))]);
    let sealed = pair.turn_a();
    assert_eq!(sealed.len(), 1);
    assert!(!sealed[0].windows(5).any(|bytes| bytes == b"hello"), "the packet is encrypted");
    let [to_internet, to_homes] = pair.deliver_to_b(sealed);
    assert_eq!((to_internet.len(), to_homes.len()), (1, 0));
    let (public, ..) = read(&to_internet[0]);
    let answer = build::ipv4(SERVERS, public.address).udp(53, public.port, b"answer");
    pair.a().packets(Side::Internet, vec![answer]);
    let sealed = pair.turn_a();
    let [to_internet, to_homes] = pair.deliver_to_b(sealed);
    assert_eq!((to_internet.len(), to_homes.len()), (0, 1));
    assert!(to_homes[0].ends_with(b"answer"));
    assert_eq!(pair.b().drops(), 0);
}

#[test]
fn a_large_packet_is_cut_before_it_is_sealed_and_one_that_must_not_be_cut_is_reported() {
    let mut pair = Pair::ready();
    let large = build::ipv4(INSIDE, SERVERS).df(false).udp(1, 2, vec![7; 1440]);
    pair.a().packets(Side::Access, vec![up(&large)]);
    let sealed = pair.turn_a();
    assert_eq!(sealed.len(), 2);
    assert!(sealed.iter().all(|datagram| Ipv4::LEN + Udp::LEN + datagram.len() <= 1500));
    let [to_internet, _] = pair.deliver_to_b(sealed);
    assert_eq!(to_internet.len(), 2);
    let large = build::ipv4(INSIDE, SERVERS).df(true).udp(1, 2, vec![7; 1440]);
    pair.a().packets(Side::Access, vec![up(&large)]);
    assert!(pair.turn_a().is_empty());
    assert_eq!(pair.a().dropped(DropReason::DontFragment), 1);
}

#[test]
fn without_a_session_nothing_is_redirected_and_nothing_in_the_clear_is_taken() {
    let mut pair = Pair::cut_off();
    pair.a().packets(Side::Access, vec![up(&inside(5000))]);
    assert!(pair.turn_a().is_empty());
    assert_eq!(pair.a().dropped(DropReason::PeerNoSession), 1);
    assert_eq!(pair.forge_to_b(&in_the_clear(up(&inside(5000)))), nothing());
    assert_eq!(pair.b().dropped(DropReason::RedirectUnsealed), 1);
}

#[test]
fn a_packet_in_the_clear_from_the_address_of_a_worker_that_seals_is_dropped() {
    let mut pair = Pair::ready();
    for inner in [up(&inside(5000)), build::ipv4(SERVERS, "203.0.113.49").udp(1, 2, b"x")] {
        assert_eq!(pair.forge_to_b(&in_the_clear(inner)), nothing());
    }
    assert_eq!(pair.b().dropped(DropReason::RedirectUnsealed), 2);
}

/// Returns sealed packets of A to B, none delivered.
fn sealed(pair: &mut Pair, count: u16) -> Vec<Vec<u8>> {
    (0..count).for_each(|n| pair.a().packets(Side::Access, vec![up(&inside(5000 + n))]));
    let sealed = pair.turn_a();
    assert_eq!(sealed.len(), usize::from(count));
    sealed
}

#[test]
fn changed_and_truncated_packets_are_dropped() {
    let mut pair = Pair::ready();
    let good = sealed(&mut pair, 1).remove(0);
    for at in 0..good.len() {
        for bit in [1, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            assert_eq!(pair.deliver_to_b(vec![bad]), nothing(), "byte {at}");
        }
    }
    for len in 0..good.len() {
        assert_eq!(pair.deliver_to_b(vec![good[..len].to_vec()]), nothing(), "{len} bytes");
    }
    // None of these has used up the number of the good one.
    let [to_internet, _] = pair.deliver_to_b(vec![good]);
    assert_eq!(to_internet.len(), 1);
}

#[test]
fn a_repeated_packet_is_dropped_and_reordered_ones_are_served_once_each() {
    let mut pair = Pair::ready();
    let mut sent = sealed(&mut pair, 40);
    sent.reverse();
    let again = sent.clone();
    let [to_internet, _] = pair.deliver_to_b(sent);
    assert_eq!(to_internet.len(), 40);
    for _ in 0..3 {
        assert_eq!(pair.deliver_to_b(again.clone()), nothing());
    }
}

/// Packets that a stranger makes from recorded sealed packets are not served, and good ones are
/// served as before.
#[test]
fn forged_redirects_reach_nobody() {
    let mut pair = Pair::ready();
    let good = sealed(&mut pair, 8);
    let [to_internet, _] = pair.deliver_to_b(good[..4].to_vec());
    assert_eq!(to_internet.len(), 4);
    let pair = AssertUnwindSafe(RefCell::new(pair));
    check!().for_each(|bytes: &[u8]| {
        let Some((&choice, bytes)) = bytes.split_first() else { return };
        let mut datagram = good[usize::from(choice % 8)].clone();
        match choice / 8 % 3 {
            0 => datagram.truncate(16),
            1 => datagram.clear(),
            _ => {}
        }
        match choice / 64 {
            0 | 1 => datagram.extend(bytes),
            _ => {
                for change in bytes.chunks_exact(2) {
                    let byte = datagram.get_mut(usize::from(change[0]));
                    byte.into_iter().for_each(|byte| *byte ^= change[1]);
                }
            }
        }
        if good[4..].contains(&datagram) {
            return;
        }
        // With correct headers and checksums.
        assert_eq!(pair.borrow_mut().deliver_to_b(vec![datagram]), nothing());
    });
    let [to_internet, _] = pair.0.into_inner().deliver_to_b(good);
    assert_eq!(to_internet.len(), 4);
}

#[test]
fn packets_of_an_earlier_session_and_of_the_other_direction_are_dropped() {
    let mut pair = Pair::ready();
    let old = sealed(&mut pair, 3);
    // Delivered to A itself, as if from B.
    assert!(!pair.passes_a(&old[0]));
    pair.restart_a();
    assert_eq!(pair.deliver_to_b(old), nothing());
    let new = sealed(&mut pair, 1);
    let [to_internet, _] = pair.deliver_to_b(new);
    assert_eq!(to_internet.len(), 1);
}

#[test]
fn a_redirected_packet_is_not_redirected_again() {
    let mut pair = Pair::ready();
    pair.b_redirects_to_a();
    let sealed = sealed(&mut pair, 2);
    assert_eq!(pair.deliver_to_b(sealed), nothing());
    assert_eq!(pair.b().redirected_out(), 0);
    assert_eq!(pair.b().dropped(DropReason::MissRefused), 2);
}
