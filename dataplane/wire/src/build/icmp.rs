//! ICMP messages, without their IP header.

use crate::icmp::{self, Icmp};
use zerocopy::IntoBytes;

/// Builds a message of any kind with checksum; `rest` = bytes 4 to 8 of the header.
pub fn icmp_message(kind: u8, code: u8, rest: [u8; 4], payload: impl AsRef<[u8]>) -> Vec<u8> {
    let header = Icmp::new(kind, code, rest);
    let mut message = [header.as_bytes(), payload.as_ref()].concat();
    icmp::set_checksum(&mut message);
    message
}

/// Builds an echo request or reply, as `kind` says.
pub fn icmp_echo(kind: u8, identifier: u16, sequence: u16, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let [[a, b], [c, d]] = [identifier, sequence].map(u16::to_be_bytes);
    icmp_message(kind, 0, [a, b, c, d], payload)
}

/// Builds an error of at most `room` bytes that quotes the beginning of `offending`, an IPv4
/// packet. `room` = 36 quotes the IP header and 8 bytes (RFC 792).
pub fn icmp_error(
    kind: u8,
    code: u8,
    rest: [u8; 4],
    offending: impl AsRef<[u8]>,
    room: usize,
) -> Vec<u8> {
    let offending = offending.as_ref();
    let quoted = offending.len().min(room.saturating_sub(Icmp::LEN));
    icmp_message(kind, code, rest, &offending[..quoted])
}
