//! The maximum segment size option (RFC 9293 section 3.7.1): read it, lower it.

use super::{SYN, Tcp, parse};
use crate::checksum::Delta;
use core::ops::Range;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;
const MAXIMUM_SEGMENT_SIZE_LEN: u8 = 4;
const CHECKSUM: Range<usize> = 16..18;

/// Returns the first MSS option of a segment, in bytes; `None` if there is none that can be read.
pub fn mss(segment: &[u8]) -> Option<u16> {
    let options_end = parse(segment).ok()?.header_len();
    let value = next_mss(segment, Tcp::LEN, options_end)?;
    Some(u16::from_be_bytes([segment[value.start], segment[value.start + 1]]))
}

/// Lowers every MSS option of a SYN segment that is above `max` to `max` and updates the checksum;
/// never raises one, never adds one, and changes nothing else. Returns whether something changed. A
/// segment that is not a SYN, cannot be parsed or has no MSS option is left unchanged; options
/// behind a malformed one are not reached.
#[inline]
pub fn clamp_mss(segment: &mut [u8], max: u16) -> bool {
    match parse(segment) {
        Ok(header) if header.has(SYN) && header.header_len() > Tcp::LEN => {
            let options_end = header.header_len();
            clamp_options(segment, options_end, max)
        }
        _ => false,
    }
}

fn clamp_options(segment: &mut [u8], options_end: usize, max: u16) -> bool {
    let mut delta = Delta::new();
    let mut at = Tcp::LEN;
    let mut changed = false;
    while let Some(value) = next_mss(segment, at, options_end) {
        at = value.end;
        let old = u16::from_be_bytes([segment[value.start], segment[value.start + 1]]);
        if old > max {
            segment[value.clone()].copy_from_slice(&max.to_be_bytes());
            delta = replace_at(delta, value.start, old, max);
            changed = true;
        }
    }
    if changed {
        let old = u16::from_be_bytes([segment[CHECKSUM.start], segment[CHECKSUM.start + 1]]);
        segment[CHECKSUM].copy_from_slice(&delta.apply(old).to_be_bytes());
    }
    changed
}

/// Adds the replacement of a field. A field at an odd offset is spread over two words of the sum:
/// its bytes count swapped (RFC 1071 section 2(B)).
fn replace_at(delta: Delta, offset: usize, old: u16, new: u16) -> Delta {
    if offset.is_multiple_of(2) {
        delta.replace16(old, new)
    } else {
        delta.replace16(old.swap_bytes(), new.swap_bytes())
    }
}

/// Returns the range of the value of the next MSS option from `at` on, which must be the start of
/// an option. `options_end` is within the segment.
fn next_mss(segment: &[u8], mut at: usize, options_end: usize) -> Option<Range<usize>> {
    let mut options = segment.get(at..options_end)?;
    loop {
        let len = match *options {
            [] | [END, ..] => return None,
            [NO_OPERATION, ..] => 1,
            [MAXIMUM_SEGMENT_SIZE, MAXIMUM_SEGMENT_SIZE_LEN, _, _, ..] => {
                return Some(at + 2..at + usize::from(MAXIMUM_SEGMENT_SIZE_LEN));
            }
            [_, len, ..] if len >= 2 => usize::from(len),
            _ => return None,
        };
        options = options.get(len..)?;
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{TcpBuilder, tcp};
    use crate::tcp::checksum_ok;

    fn clamped(segment: TcpBuilder, max: u16) -> (bool, Vec<u8>) {
        let mut segment = segment.build(1, 2);
        let changed = clamp_mss(&mut segment, max);
        assert!(checksum_ok(1, 2, &segment));
        (changed, segment)
    }

    #[test]
    fn mss_above_the_maximum_is_lowered() {
        let (changed, segment) = clamped(tcp(1, 2).syn().mss(1460), 1380);
        assert!(changed);
        assert_eq!(mss(&segment), Some(1380));
        let (changed, _) = clamped(tcp(1, 2).syn().ack().mss(1460), 1380);
        assert!(changed, "the answer to a SYN carries the other side's MSS");
    }

    #[test]
    fn mss_is_never_raised_and_never_added() {
        assert!(!clamped(tcp(1, 2).syn().mss(1380), 1380).0);
        assert!(!clamped(tcp(1, 2).syn().mss(536), 1380).0);
        assert!(!clamped(tcp(1, 2).syn(), 1380).0);
        assert!(!clamped(tcp(1, 2).ack().mss(1460), 1380).0, "only a SYN negotiates");
    }

    #[test]
    fn mss_behind_other_options_is_found_also_at_an_odd_offset() {
        let timestamps = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let (changed, segment) =
            clamped(tcp(1, 2).syn().option(&timestamps).option(&[1]).mss(9000), 1380);
        assert!(changed);
        assert_eq!(mss(&segment), Some(1380));
    }

    #[test]
    fn each_of_several_mss_options_is_lowered() {
        // It is not defined which of them a receiver uses.
        let (_, segment) = clamped(tcp(1, 2).syn().mss(1400).mss(9000).mss(500), 1380);
        assert_eq!(segment[20..32], [2, 4, 5, 100, 2, 4, 5, 100, 2, 4, 1, 244]);
    }

    #[test]
    fn mss_behind_the_end_of_the_options_is_not_read() {
        assert!(
            !clamped(tcp(1, 2).syn().option(&[0]).mss(9000), 1380).0,
            "behind the end of options"
        );
        for broken in [&[8, 0][..], &[8, 1], &[8, 40], &[8], &[2, 3, 0], &[1, 1, 2, 4]] {
            let segment = tcp(1, 2).syn().option(broken);
            assert!(!clamped(segment, 0).0, "{broken:?}");
        }
        assert!(
            !clamped(tcp(1, 2).syn().payload([2, 4, 0xff, 0xff]), 1380).0,
            "payload is not options"
        );
    }
}
