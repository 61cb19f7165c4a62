//! Compares bursts of IPv6 with single packets: the same packets go through two engines, one of
//! which gets each packet alone. What is sent and dropped, and what the tables hold, is the same.

use weir_engine::{DropReason, EngineConfig, Side};
use weir_nat::Delegation;
use weir_wire::build;

use crate::world::ipv6::{gre_header, over_ipv6, tunnelled, with_ipv6};
use crate::world::link6::ready6;
use crate::world::*;

/// A packet of a home, of a few flows, so that many packets of a burst are of one flow.
#[derive(Clone, Copy, Debug)]
struct Packet {
    home: u8,
    port: u8,
    kind: u8,
    is_down: bool,
}

impl Packet {
    /// Addresses of homes, of which the last two have tunnels over IPv6.
    fn inside(self) -> &'static str {
        ["2001:db8:1000:1::7", "2001:db8:1000:2::7", "2001:db8:1000:3::7", "2001:db8:1000:4::7"]
            [usize::from(self.home)]
    }

    fn inner(self) -> Vec<u8> {
        const SERVER: &str = "2001:db8:9::1";
        let port = 5000 + u16::from(self.port);
        let head = match self.is_down {
            true => build::ipv6(SERVER, self.inside()),
            false => build::ipv6(self.inside(), SERVER),
        };
        let (from, to) = if self.is_down { (443, port) } else { (port, 443) };
        match self.kind {
            0..96 => head.udp(from, to, "data"),
            96..144 => head.tcp(build::tcp(from, to).syn().mss(1440)),
            144..176 => head.tcp(build::tcp(from, to).flags(0x10).payload([1; 9])),
            176..192 => head.tcp(build::tcp(from, to).flags(0x11)),
            192..208 if !self.is_down => head.icmp6_echo_request(port, 1, "ping"),
            208..224 => head.fragment(port.into(), 0, true).payload(
                17,
                [from.to_be_bytes(), to.to_be_bytes(), [0, 24], [1, 2]].concat().repeat(1),
            ),
            224..240 => head.hop_limit(1).udp(from, to, "data"),
            _ => head.udp(from, 0, "data"),
        }
    }

    fn built(self, has_tunnels: bool) -> Vec<u8> {
        let inner = self.inner();
        if self.is_down || !has_tunnels {
            return inner;
        }
        match self.home {
            0 => build::ipv4(HOME_A, ENDPOINT).gre(gre_header(None, &inner), inner),
            1 => build::ipv4(HOME_B, ENDPOINT).gre(gre_header(None, &inner), inner),
            2 => tunnelled("2001:db8:e::1", None, inner),
            _ => tunnelled("2001:db8:e::2", None, inner),
        }
    }
}

/// Returns what left to a side, without what counts packets of IPv4, in the order of its octets.
fn left(out: &Out, to: Side) -> Vec<Vec<u8>> {
    let frames = out.frames.iter().filter(|(side, _)| *side == to);
    let mut frames: Vec<_> = frames.map(|(_, frame)| frame.clone()).collect();
    for frame in &mut frames {
        if frame[14] >> 4 == 4 {
            frame[18..20].fill(0);
            frame[24..26].fill(0);
        }
    }
    frames.sort();
    frames
}

/// Plays the same histories, with all that leaves in the same order of octets. Errors are left out:
/// all homes share their rate, and one that another home's error uses up is not sent.
fn bursts_are_as_single_packets(config: fn() -> EngineConfig, has_tunnels: bool) {
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % below
    };
    let (mut sent, mut dropped) = (0, 0);
    for _ in 0..10 {
        let [mut alone, mut together] = [ready6(config()), ready6(config())];
        (alone.is_input_sound, together.is_input_sound) = (false, false);
        for burst in 0..40 {
            // Most bursts begin flows of few ports, so that many packets of a burst are of one.
            let (is_down, ports) = (burst % 3 == 2, 1 + burst);
            let packets: Vec<_> = (0..next(64))
                .map(|_| Packet {
                    home: next(4) as u8,
                    port: next(ports) as u8,
                    kind: next(256) as u8,
                    is_down,
                })
                .map(|packet| packet.built(has_tunnels))
                .collect();
            let side = if is_down { Side::Internet } else { Side::Access };
            let mut one_by_one = Out::default();
            for packet in &packets {
                one_by_one.extend(alone.packets(side, std::slice::from_ref(packet)));
            }
            let at_once = together.packets(side, &packets);
            let to = if is_down { Side::Access } else { Side::Internet };
            assert_eq!(left(&one_by_one, to), left(&at_once, to), "burst {burst}");
            sent += left(&at_once, to).len();
        }
        for &reason in DropReason::ALL {
            assert_eq!(alone.dropped(reason), together.dropped(reason), "{reason:?}");
        }
        let uses = |world: &World| world.engine.nat().admin().table_uses().map(|it| it.used);
        assert_eq!(uses(&alone), uses(&together));
        together.engine.nat().admin().audit();
        dropped += together.drops();
    }
    assert!(sent > 1_000 && dropped > 1_000, "{sent} packets passed, {dropped} did not");
}

#[test]
fn bursts_of_homes_with_tunnels_are_as_single_packets() {
    bursts_are_as_single_packets(over_ipv6, true);
}

#[test]
fn bursts_of_homes_at_their_limit_are_as_single_packets() {
    let configured = || {
        let mut config = over_ipv6();
        config.nat.flows_per_subscriber = 2;
        config
    };
    bursts_are_as_single_packets(configured, true);
}

#[test]
fn bursts_of_homes_without_tunnels_are_as_single_packets() {
    let configured = || {
        let mut config = with_ipv6(plain());
        config.nat.delegation = Some(Delegation::Prefix { home_length: 64 });
        config
    };
    bursts_are_as_single_packets(configured, false);
}
