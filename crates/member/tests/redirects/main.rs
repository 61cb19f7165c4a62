//! Redirected packets between two workers, with real sessions over their access network: honest ones are served, and nothing
//! that anybody else makes, changes or repeats reaches a home or the internet.

mod site;

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;

use bolero::check;
use site::{A, B, HOME, Pair, SERVER, inside, up};
use weir_engine::{DropReason, Side};
use weir_wire::{build, ipv4};

/// To the internet, to homes.
fn nothing() -> [Vec<Vec<u8>>; 2] {
    [vec![], vec![]]
}

#[test]
fn a_redirected_packet_is_served_by_the_other_worker_and_so_is_its_answer() {
    let mut pair = Pair::ready();
    pair.a.packet(Side::Access, up(HOME, &inside(5000)));
    let sealed = pair.turn_a();
    assert_eq!(sealed.len(), 1);
    assert!(!sealed[0].windows(5).any(|bytes| bytes == b"hello"), "in the clear");
    let [to_internet, to_homes] = pair.deliver_to_b(sealed);
    assert_eq!((to_internet.len(), to_homes.len()), (1, 0));
    let (ip, at, _) = ipv4::parse(&to_internet[0]).unwrap();
    let (public, port) =
        (ip.source.get(), u16::from_be_bytes([to_internet[0][at], to_internet[0][at + 1]]));
    pair.a.packet(Side::Internet, build::ipv4(SERVER, public).udp(53, port, b"answer"));
    let sealed = pair.turn_a();
    let [to_internet, to_homes] = pair.deliver_to_b(sealed);
    assert_eq!((to_internet.len(), to_homes.len()), (0, 1));
    assert!(to_homes[0].ends_with(b"answer"));
    assert_eq!(pair.b.drops(), 0);
}

#[test]
fn a_large_packet_is_cut_before_it_is_sealed_and_one_that_must_not_be_cut_is_reported() {
    let mut pair = Pair::ready();
    pair.a.packet(
        Side::Access,
        up(HOME, &build::ipv4(site::PC, SERVER).df(false).udp(1, 2, vec![7; 1440])),
    );
    let sealed = pair.turn_a();
    assert_eq!(sealed.len(), 2);
    for frame in &sealed {
        let (ip, ..) = ipv4::parse(&frame[14..]).unwrap();
        assert!(!ip.is_fragment() && frame.len() <= 14 + 1500);
    }
    let [to_internet, _] = pair.deliver_to_b(sealed);
    assert_eq!(to_internet.len(), 2);
    let large = build::ipv4(site::PC, SERVER).df(true).udp(1, 2, vec![7; 1440]);
    pair.a.packet(Side::Access, up(HOME, &large));
    assert!(pair.turn_a().is_empty());
    assert_eq!(pair.a.dropped(DropReason::DontFragment), 1);
}

#[test]
fn without_a_session_nothing_is_redirected_and_nothing_in_the_clear_is_taken() {
    let mut pair = Pair::cut_off();
    pair.a.packet(Side::Access, up(HOME, &inside(5000)));
    assert!(pair.turn_a().is_empty());
    assert_eq!(pair.a.dropped(DropReason::PeerNoSession), 1);
    let forged = pair.b.frame_from(A, build::ipv4(A, B).ipip(up(HOME, &inside(5000))));
    assert_eq!(pair.deliver_to_b(vec![forged]), nothing());
    assert_eq!(pair.b.dropped(DropReason::RedirectUnsealed), 1);
}

#[test]
fn a_packet_in_the_clear_from_the_address_of_a_worker_that_seals_is_dropped() {
    let mut pair = Pair::ready();
    for inner in [up(HOME, &inside(5000)), build::ipv4(SERVER, "203.0.113.1").udp(1, 2, b"x")] {
        let forged = pair.b.frame_from(A, build::ipv4(A, B).ipip(inner));
        assert_eq!(pair.deliver_to_b(vec![forged]), nothing());
    }
    assert_eq!(pair.b.dropped(DropReason::RedirectUnsealed), 2);
}

/// Sealed packets of A to B, none delivered.
fn sealed(pair: &mut Pair, count: u16) -> Vec<Vec<u8>> {
    (0..count).for_each(|n| pair.a.packet(Side::Access, up(HOME, &inside(5000 + n))));
    let sealed = pair.turn_a();
    assert_eq!(sealed.len(), usize::from(count));
    sealed
}

#[test]
fn changed_and_truncated_packets_are_dropped() {
    let mut pair = Pair::ready();
    let good = sealed(&mut pair, 1).remove(0);
    for at in 14 + 28..good.len() {
        for bit in [1, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            assert_eq!(pair.deliver_to_b(vec![bad]), nothing(), "byte {at}");
        }
    }
    for len in 14 + 28..good.len() {
        let cut = pair.b.cut(&good, len);
        assert_eq!(pair.deliver_to_b(vec![cut]), nothing(), "{len} bytes");
    }
    // None of that has spent the number of the good one.
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

/// Whatever a stranger makes of sealed packets that he has seen, nothing of it is served, and good ones are as before.
#[test]
fn forged_redirects_reach_nobody() {
    let mut pair = Pair::ready();
    let good = sealed(&mut pair, 8);
    let [to_internet, _] = pair.deliver_to_b(good[..4].to_vec());
    assert_eq!(to_internet.len(), 4);
    let pair = AssertUnwindSafe(RefCell::new(pair));
    check!().for_each(|bytes: &[u8]| {
        let Some((&choice, bytes)) = bytes.split_first() else { return };
        let mut frame = good[usize::from(choice % 8)].clone();
        match choice / 8 % 3 {
            0 => frame.truncate(14 + 28 + 16),
            1 => frame.truncate(14 + 28),
            _ => {}
        }
        match choice / 64 {
            0 | 1 => frame.extend(bytes),
            _ => {
                for change in bytes.chunks_exact(2) {
                    let at = 14 + 28 + usize::from(change[0]);
                    frame.get_mut(at).into_iter().for_each(|byte| *byte ^= change[1]);
                }
            }
        }
        if good[4..].contains(&frame) {
            return;
        }
        // With headers and checksums that are right.
        let mut pair = pair.borrow_mut();
        let forged = pair.b.cut(&frame, frame.len());
        assert_eq!(pair.deliver_to_b(vec![forged]), nothing());
    });
    let [to_internet, _] = pair.0.into_inner().deliver_to_b(good);
    assert_eq!(to_internet.len(), 4);
}

#[test]
fn packets_of_an_earlier_session_and_of_the_other_direction_are_dropped() {
    let mut pair = Pair::ready();
    let old = sealed(&mut pair, 3);
    // To A itself, as if from B.
    let turned = pair.turned_around(&old[0]);
    pair.a.frame(Side::Access, turned);
    pair.turn_a();
    assert!(pair.a.internet().is_empty());
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
    assert_eq!(pair.b.redirected_out(), 0);
    assert_eq!(pair.b.dropped(DropReason::MissRefused), 2);
}
