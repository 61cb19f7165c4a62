//! The incremental update gives the same checksum as a full computation, also where ones'
//! complement has two zeros (RFC 1624).

use bolero::generator::*;
use bolero::{TypeGenerator, check};
use weir_wire::checksum::{self, Delta};
use weir_wire::{build, icmp, ipv4, ports, tcp, udp, verify};

/// RFC 1071 section 4.1, word by word.
fn sum_by_definition(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn the_sum_is_the_one_of_rfc_1071() {
    check!().with_iterations(5_000).for_each(|bytes: &[u8]| {
        assert_eq!(checksum::sum(bytes), sum_by_definition(bytes));
    });
}

#[test]
fn update_after_edits_of_any_words_equals_the_full_sum() {
    let edits = produce::<Vec<(u8, u16)>>().with().len(0..20usize);
    let words = produce::<Vec<u16>>().with().len(1..40usize);
    check!().with_iterations(5_000).with_generator((words, edits, produce::<bool>())).for_each(
        |(words, edits, is_long)| {
            let sum = |words: &[u16]| {
                // As in every real header, one word is never zero.
                let constant = [0x45_u8, 0];
                sum_by_definition(
                    &words
                        .iter()
                        .flat_map(|word| word.to_be_bytes())
                        .chain(constant)
                        .collect::<Vec<u8>>(),
                )
            };
            let (mut edited, mut delta) = (words.clone(), Delta::new());
            for &(at, new) in edits {
                let at = usize::from(at) % edited.len();
                match edited.get(at + 1).copied().filter(|_| *is_long) {
                    Some(low) => {
                        let old = u32::from(edited[at]) << 16 | u32::from(low);
                        delta = delta.then(
                            Delta::new().replace32(old, u32::from(new) << 16 | u32::from(!new)),
                        );
                        (edited[at], edited[at + 1]) = (new, !new);
                    }
                    None => {
                        delta = delta.replace16(edited[at], new);
                        edited[at] = new;
                    }
                }
            }
            assert_eq!(delta.apply(sum(words)), sum(&edited));
        },
    );
}

/// The checksum that is made to become zero: that before the edit, or that after it.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Corner {
    None,
    Before,
    After,
    Both,
}

/// The values that a translation replaces, and their replacements.
#[derive(Clone, Debug, TypeGenerator)]
struct Translation {
    before: (u32, u16, u32, u16),
    after: (u32, u16, u32, u16),
    corner: Corner,
    #[generator(produce::<Vec<u8>>().with().len(0..64usize))]
    payload: Vec<u8>,
}

impl Translation {
    /// Returns both packets, made by `build` from (source, source port, destination, destination
    /// port). `checksum_at` = offset of the checksum; a corner is reached by a source port that is
    /// the checksum computed with source port 0: then all words add up to 0xffff.
    fn packets(
        &self,
        checksum_at: usize,
        build: impl Fn((u32, u16, u32, u16)) -> Vec<u8>,
    ) -> [Vec<u8>; 2] {
        let to_zero = |(source, _, destination, port): (u32, u16, u32, u16)| {
            let packet = build((source, 0, destination, port));
            let computed = u16::from_be_bytes([packet[checksum_at], packet[checksum_at + 1]]);
            (source, computed, destination, port)
        };
        let (is_before, is_after) = match self.corner {
            Corner::None => (false, false),
            Corner::Before => (true, false),
            Corner::After => (false, true),
            Corner::Both => (true, true),
        };
        let ends = [(self.before, is_before), (self.after, is_after)];
        ends.map(|(end, is_corner)| build(if is_corner { to_zero(end) } else { end }))
    }
}

/// Rewrites addresses and ports of `packet` to those of `target`, as a NAT does: returns the edits
/// of addresses and of ports.
fn rewrite(packet: &mut [u8], target: &[u8]) -> (Delta, Delta) {
    let (new, header_len, _) = ipv4::parse(target).unwrap();
    let (header, ..) = ipv4::parse_mut(packet).unwrap();
    let addresses = Delta::new()
        .replace32(header.source.get(), new.source.get())
        .replace32(header.destination.get(), new.destination.get());
    (header.source, header.destination) = (new.source, new.destination);
    header.checksum.set(addresses.apply(header.checksum.get()));
    let new = ports::parse(&target[header_len..]).unwrap();
    let old = ports::parse_mut(&mut packet[header_len..]).unwrap();
    let ports = Delta::new()
        .replace16(old.source.get(), new.source.get())
        .replace16(old.destination.get(), new.destination.get());
    *old = *new;
    (addresses, ports)
}

#[test]
fn translated_udp_equals_udp_built_with_the_new_endpoints() {
    check!().with_iterations(5_000).with_type::<Translation>().for_each(|translation| {
        let build = |(source, port, destination, to)| {
            build::ipv4(source, destination).udp(port, to, &translation.payload)
        };
        let [mut packet, target] = translation.packets(26, build);
        let (addresses, ports) = rewrite(&mut packet, &target);
        let header = udp::parse_mut(&mut packet[20..]).unwrap();
        header.checksum.set(udp::apply_delta(header.checksum.get(), addresses.then(ports)));
        assert_eq!(packet, target);
        assert_eq!(verify::packet(&packet), Ok(()));
        if matches!(translation.corner, Corner::After | Corner::Both) {
            assert_eq!(
                udp::parse(&packet[20..]).unwrap().checksum,
                0xffff,
                "the corner was not reached"
            );
        }
    });
}

#[test]
fn translated_udp_without_checksum_keeps_none() {
    check!().with_type::<Translation>().for_each(|translation| {
        let build = |(source, port, destination, to)| {
            build::ipv4(source, destination).udp_without_checksum(port, to, &translation.payload)
        };
        let [mut packet, target] = translation.packets(26, build);
        let (addresses, ports) = rewrite(&mut packet, &target);
        let header = udp::parse_mut(&mut packet[20..]).unwrap();
        header.checksum.set(udp::apply_delta(header.checksum.get(), addresses.then(ports)));
        assert_eq!(packet, target);
    });
}

#[test]
fn translated_tcp_equals_tcp_built_with_the_new_endpoints() {
    check!().with_iterations(5_000).with_type::<Translation>().for_each(|translation| {
        let build = |(source, port, destination, to)| {
            build::ipv4(source, destination)
                .tcp(build::tcp(port, to).ack().payload(&translation.payload))
        };
        let [mut packet, target] = translation.packets(36, build);
        let (addresses, ports) = rewrite(&mut packet, &target);
        let header = tcp::parse_mut(&mut packet[20..]).unwrap();
        header.checksum.set(addresses.then(ports).apply(header.checksum.get()));
        assert_eq!(packet, target);
        if matches!(translation.corner, Corner::After | Corner::Both) {
            assert_eq!(
                tcp::parse(&packet[20..]).unwrap().checksum,
                0,
                "the corner was not reached"
            );
        }
    });
}

#[test]
fn translated_icmp_query_equals_one_built_with_the_new_identifier() {
    check!().with_iterations(5_000).with_type::<(u8, u16, u16, Vec<u8>)>().for_each(
        |(shape, before, after, payload)| {
            // Echo requests and replies, some of them all zeros.
            let kind = if shape & 1 == 0 { icmp::ECHO_REPLY } else { icmp::ECHO_REQUEST };
            let payload = if shape & 2 == 0 { vec![0; payload.len()] } else { payload.clone() };
            let [before, after] = [(before, 4), (after, 8)]
                .map(|(identifier, bit)| if shape & bit == 0 { 0 } else { *identifier });
            let mut message = build::icmp_echo(kind, before, 0, &payload);
            icmp::parse_mut(&mut message).unwrap().set_identifier(after);
            icmp::apply_delta(&mut message, Delta::new().replace16(before, after));
            assert!(icmp::checksum_ok(&message));
            assert_eq!(message, build::icmp_echo(kind, after, 0, &payload));
        },
    );
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    // A NAT must not make a damaged packet look whole.
    check!().with_type::<(Translation, u16)>().for_each(|(translation, damage)| {
        let build = |(source, port, destination, to)| {
            build::ipv4(source, destination)
                .tcp(build::tcp(port, to).ack().payload(&translation.payload))
        };
        let [mut packet, target] = translation.packets(36, build);
        let header = tcp::parse_mut(&mut packet[20..]).unwrap();
        let sent = header.checksum.get();
        let (received, _) = sent.overflowing_add(*damage);
        // 0 and 0xffff are the same number.
        if sent % 0xffff != received % 0xffff {
            header.checksum.set(received);
            let (addresses, ports) = rewrite(&mut packet, &target);
            let header = tcp::parse_mut(&mut packet[20..]).unwrap();
            header.checksum.set(addresses.then(ports).apply(received));
            assert!(verify::packet(&packet).is_err());
        }
    });
}
