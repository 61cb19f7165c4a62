//! UDP datagrams.

use crate::udp::Udp;
use zerocopy::IntoBytes;

/// Builds a datagram without checksum.
pub(super) fn udp_datagram(source_port: u16, destination_port: u16, payload: &[u8]) -> Vec<u8> {
    let payload_len = u16::try_from(payload.len()).expect("a UDP payload has at most 65,507 bytes");
    let header = Udp::new(source_port, destination_port, payload_len);
    [header.as_bytes(), payload].concat()
}
