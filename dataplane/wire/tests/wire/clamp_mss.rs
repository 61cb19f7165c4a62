//! `clamp_mss` changes a segment to what building it with a smaller MSS would have made, and
//! nothing else.

use bolero::generator::*;
use bolero::{TypeGenerator, check};
use weir_wire::build::{TcpBuilder, tcp};
use weir_wire::tcp::{SYN, checksum_ok, checksum6_ok, clamp_mss};

#[derive(Clone, Debug, TypeGenerator)]
enum TcpOption {
    NoOperation,
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    /// Experimental kinds and future kinds.
    Unknown {
        kind: u8,
        #[generator(produce::<Vec<u8>>().with().len(0..8usize))]
        value: Vec<u8>,
    },
}

impl TcpOption {
    fn bytes(&self, mss_max: u16) -> Vec<u8> {
        match self {
            TcpOption::NoOperation => vec![1],
            TcpOption::Mss(mss) => {
                let [high, low] = (*mss).min(mss_max).to_be_bytes();
                vec![2, 4, high, low]
            }
            TcpOption::WindowScale(shift) => vec![3, 3, *shift],
            TcpOption::SackPermitted => vec![4, 2],
            TcpOption::Unknown { kind, value } => {
                [&[(*kind).max(5), value.len() as u8 + 2][..], value].concat()
            }
        }
    }
}

/// Addresses of a segment over IPv6.
const ADDRESSES: (u128, u128) = (0x2001_0db8 << 96 | 1, 0xfd00 << 112 | 2);

fn segment(options: &[TcpOption], flags: u8, payload: &[u8], mss_max: u16) -> TcpBuilder {
    let start = tcp(40_000, 80).flags(flags).payload(payload);
    let mut room = 40;
    let add = |segment: TcpBuilder, option: &TcpOption| {
        let bytes = option.bytes(mss_max);
        if bytes.len() > room {
            return segment;
        }
        room -= bytes.len();
        segment.option(&bytes)
    };
    options.iter().fold(start, add)
}

#[test]
fn clamped_segment_equals_one_built_with_a_smaller_mss() {
    let options = produce::<Vec<TcpOption>>().with().len(0..10usize);
    check!()
        .with_iterations(10_000)
        .with_generator((options, produce::<u8>(), produce::<Vec<u8>>(), produce::<u16>()))
        .for_each(|(options, flags, payload, max)| {
            let max_or_none = if flags & SYN == 0 { u16::MAX } else { *max };
            let [original, expected] =
                [u16::MAX, max_or_none].map(|max| segment(options, *flags, payload, max));
            let (source, destination) = ADDRESSES;
            let over_ipv4 = (original.clone().build(1, 2), expected.clone().build(1, 2));
            let over_ipv6 =
                (original.build6(source, destination), expected.build6(source, destination));
            for (original, expected) in [over_ipv4, over_ipv6] {
                let mut clamped = original.clone();
                let changed = clamp_mss(&mut clamped, *max);
                assert_eq!(clamped, expected);
                assert_eq!(changed, clamped != original);
            }
        });
}

#[test]
fn damaged_options_change_only_an_mss_and_the_checksum() {
    let options = produce::<Vec<u8>>().with().len(0..=40usize);
    check!().with_iterations(10_000).with_generator((options, produce::<u16>())).for_each(
        |(options, max)| {
            // Valid options consist mostly of small numbers.
            let options: Vec<u8> = options
                .iter()
                .map(|byte| if byte & 0x80 == 0 { byte % 6 } else { *byte })
                .collect();
            let original = tcp(40_000, 80).syn().option(&options).payload([2, 4, 0xff, 0xff]);
            let (source, destination) = ADDRESSES;
            let mut over_ipv6 = original.clone().build6(source, destination);
            clamp_mss(&mut over_ipv6, *max);
            assert!(checksum6_ok(source, destination, &over_ipv6));
            let original = original.build(1, 2);
            let mut clamped = original.clone();
            clamp_mss(&mut clamped, *max);
            assert_eq!(clamped.len(), original.len());
            assert!(checksum_ok(1, 2, &clamped));
            let options_end = usize::from(original[12] >> 4) * 4;
            let is_mss_value = |at: usize| {
                (22..options_end).contains(&at)
                    && (original[at - 2..at] == [2, 4]
                        || (at > 22 && original[at - 3..at - 1] == [2, 4]))
            };
            for at in 0..original.len() {
                let is_allowed = (16..18).contains(&at) || is_mss_value(at);
                assert!(original[at] == clamped[at] || is_allowed, "byte {at} was changed");
            }
        },
    );
}
