//! Sums, the check of a header, and deltas, against their definitions.

use super::*;

#[test]
fn words_in_memory_order_give_the_same_checksum() {
    let mut header =
        *b"\x45\x00\x00\x54\x12\x34\x40\x00\x40\x11\x00\x00\x0a\x01\x02\x03\xcb\x00\x71\x01";
    let words = |bytes: &[u8; 20]| -> [u64; 3] {
        let [last, first @ ..]: [u32; 5] = zerocopy::transmute!(*bytes);
        let [first, second]: [u64; 2] = zerocopy::transmute!(first);
        [first, second, u64::from(last)]
    };
    let sum = of_words(words(&header));
    assert_eq!(u16::from_be(sum), super::sum(&header));
    assert!(!is_right(header));
    header[10..12].copy_from_slice(&sum.to_ne_bytes());
    assert!(is_right(header));
    // Every flipped bit is noticed.
    for bit in 0..160 {
        let mut other = header;
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_right(other), "bit {bit}");
    }
    assert!(!is_right([0; 20]), "a sum of 0 is not that of a header");
}

/// Carries between the words, and values next to the right one.
#[test]
fn check_of_a_header_equals_its_sum() {
    let mut random = 1_u64;
    for round in 0..100_000_u64 {
        let mut header = [0; 20];
        for octet in &mut header {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            // Mostly extreme octets.
            *octet = [0, 0xff, 0xff, (random >> 56) as u8][(random >> 40) as usize % 4];
        }
        header[10..12].fill(0);
        let right = sum(&header);
        for wrong in [0, 1, 0xff, 0x100, 0xfffe, 0xffff] {
            let field = right.wrapping_add(if round % 2 == 0 { wrong } else { 0 });
            header[10..12].copy_from_slice(&field.to_be_bytes());
            let is_sound = sum(&header) == 0;
            assert_eq!(is_right(header), is_sound, "{header:02x?}");
        }
    }
    assert!(is_right([0xff; 20]));
}

#[test]
fn decrement_of_an_octet_is_the_same_in_memory_order() {
    for first in 1..=u8::MAX {
        for second in [0, 1, 17, 255] {
            let (old, new) = ([first, second], [first - 1, second]);
            let checksum = !u16::from_be_bytes(old);
            let swapped = u16::from_ne_bytes(checksum.to_be_bytes());
            let after = Delta::new().decrement_first().apply(swapped);
            let expected = Delta::new()
                .replace16(u16::from_be_bytes(old), u16::from_be_bytes(new))
                .apply(checksum);
            assert_eq!(u16::from_be_bytes(after.to_ne_bytes()), expected, "{old:?}");
        }
    }
}

#[test]
fn checksum_of_the_example_in_rfc_1071_is_right() {
    // Section 3: the sum of these bytes is 0xddf2.
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(partial(&bytes), 0xddf2);
    assert_eq!(sum(&bytes), !0xddf2);
}

#[test]
fn odd_last_byte_is_padded_with_zero() {
    assert_eq!(sum(&[0x12, 0x34, 0x56]), sum(&[0x12, 0x34, 0x56, 0x00]));
    assert_eq!(sum(&[0xab]), !0xab00);
    assert_eq!(sum(&[]), 0xffff);
}

#[test]
fn sums_of_even_parts_add_up_to_the_whole() {
    let bytes: Vec<u8> = (0..=255).collect();
    let parts = partial(&bytes[..2]) + partial(&bytes[2..100]) + partial(&bytes[100..]);
    assert_eq!(finish(parts), sum(&bytes));
}

#[test]
fn accumulator_holds_the_largest_packet() {
    assert_eq!(sum(&[0xff; 65_535]), 0x00ff);
    assert_eq!(sum(&[0xff; 65_536]), 0);
}

#[test]
fn update_of_the_example_in_rfc_1624_is_right() {
    // Section 4: HC = 0xdd2f, m = 0x5555, m' = 0x3285 must give 0x0000, where RFC 1141 gave
    // 0xffff.
    assert_eq!(Delta::new().replace16(0x5555, 0x3285).apply(0xdd2f), 0x0000);
}

/// Both directions, for sums of every kind.
#[test]
fn folded_delta_does_what_the_delta_does() {
    let edges = [0, 1, 0xfe, 0xff, 0x100, 0x7fff, 0x8000, 0xfffe, 0xffff];
    for (old, new) in edges.iter().flat_map(|&old| edges.map(|new| (old, new))) {
        // No address and no port changes from all ones to 0.
        if [(0, 0xffff), (0xffff, 0)].contains(&(old, new)) {
            continue;
        }
        let there = Delta::new().replace16(old, new);
        let back = Delta::new().replace16(new, old);
        let folded = fold(!old as u64 + new as u64);
        for checksum in 0..=u16::MAX {
            assert_eq!(FoldedDelta(folded).apply(checksum), there.apply(checksum));
            assert_eq!(FoldedDelta(!folded).apply(checksum), back.apply(checksum));
            let hop = there.decrement_first().apply(checksum);
            assert_eq!(FoldedDelta(folded).apply_with_hop(checksum), hop);
            let hop = back.decrement_first().apply(checksum);
            assert_eq!(FoldedDelta(!folded).apply_with_hop(checksum), hop);
        }
    }
}

#[test]
fn no_edit_changes_no_checksum() {
    for checksum in [0, 1, 0x1234, 0xfffe, 0xffff] {
        assert_eq!(Delta::new().apply(checksum), checksum);
    }
}

/// Folding keeps a sum modulo 0xffff and gives 0 for 0 alone.
#[test]
fn folding_gives_the_remainder_modulo_ffff() {
    let near_powers = (0..64).flat_map(|bit| {
        let power = 1u64 << bit;
        [power - 1, power, power.wrapping_add(0xffff), power.wrapping_mul(0xffff)]
    });
    for sum in near_powers.chain([u64::MAX, 0x7fff_ffff_8000, 0x1_7fff_ffff]) {
        let expected = match (sum, sum % 0xffff) {
            (0, _) => 0,
            (_, 0) => 0xffff,
            (_, remainder) => remainder as u16,
        };
        assert_eq!(fold(sum), expected, "{sum:#x}");
    }
}

#[test]
fn a_decrement_is_a_16_bit_edit() {
    for upper in 1..=0xff_u16 {
        let (old, new) = (upper << 8 | 6, (upper - 1) << 8 | 6);
        assert_eq!(Delta::new().decrement_upper(), Delta::new().replace16(old, new));
    }
}

#[test]
fn a_32_bit_edit_is_two_16_bit_edits() {
    let whole = Delta::new().replace32(0xc0a8_010a, 0xcb00_7105);
    let halves =
        Delta::new().replace16(0xc0a8, 0xcb00).then(Delta::new().replace16(0x010a, 0x7105));
    for checksum in 0..=0xffff {
        assert_eq!(whole.apply(checksum), halves.apply(checksum));
    }
}

#[test]
fn a_128_bit_edit_is_eight_16_bit_edits() {
    let (old, new) = (0x2001_0db8_ffff_0000_1234_5678_9abc_def0_u128, u128::MAX << 3);
    let halves = |number: u128| [0, 1, 2, 3, 4, 5, 6, 7].map(|at| (number >> (16 * at)) as u16);
    let by_halves = halves(old)
        .into_iter()
        .zip(halves(new))
        .fold(Delta::new(), |delta, (old, new)| delta.replace16(old, new));
    let at_once = Delta::new().replace128(old, new);
    for checksum in 0..=0xffff {
        assert_eq!(at_once.apply(checksum), by_halves.apply(checksum));
    }
}

#[test]
fn partial_sum_of_an_address_is_that_of_its_bytes() {
    for address in [0, 1, u128::MAX, u128::MAX << 64, 0x2001_0db8 << 96 | 0xff_abcd] {
        assert_eq!(partial128(address), partial(&address.to_be_bytes()), "{address:#x}");
    }
}

#[test]
fn pseudo_header_of_ipv6_is_the_sum_of_its_40_bytes() {
    let (source, destination) = (u128::MAX << 1, 0x2001_0db8_u128 << 96 | 2);
    for (protocol, len) in [(6, 20), (17, 65_535), (58, 0x12_3456)] {
        // RFC 8200 section 8.1.
        let header = [
            &source.to_be_bytes()[..],
            &destination.to_be_bytes(),
            &u32::to_be_bytes(len),
            &[0, 0, 0, protocol],
        ]
        .concat();
        let sum = pseudo_header6(source, destination, protocol, len);
        assert_eq!(finish(sum), finish(partial(&header)));
    }
}
