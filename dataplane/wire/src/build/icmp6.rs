//! ICMPv6 messages, without their IPv6 header.

use crate::icmp6::{self, Icmp6};
use zerocopy::IntoBytes;

/// Builds a message of any kind with its checksum between two addresses in host order; `rest` =
/// bytes 4 to 8 of the header.
pub fn icmp6_message(
    (source, destination): (u128, u128),
    kind: u8,
    code: u8,
    rest: [u8; 4],
    payload: impl AsRef<[u8]>,
) -> Vec<u8> {
    let header = Icmp6::new(kind, code, rest);
    let mut message = [header.as_bytes(), payload.as_ref()].concat();
    icmp6::set_checksum(source, destination, &mut message);
    message
}
