//! The flows through the kernel: their addresses, their frames, and the frames that must come out
//! at the other side.
//!
//! | what | addresses |
//! |---|---|
//! | homes | 10.128.0.0/9, 64 flows each |
//! | remote hosts | 198.19.0.0/20, port 443 |
//! | the public address | 198.18.0.1 |
//!
//! No two flows share the remote host and the source port, so the kernel can keep each port (it
//! does: nf_nat only changes a port that is taken), and the answer to a flow is known without
//! looking.

use weir_wire::build::{self, mac};
use weir_wire::ethernet::Ethernet;
use weir_wire::{ipv4, udp, verify};

pub(super) const HOMES: u32 = u32::from_be_bytes([10, 128, 0, 0]);
pub(super) const REMOTES: u32 = u32::from_be_bytes([198, 19, 0, 0]);
pub(super) const PUBLIC: u32 = u32::from_be_bytes([198, 18, 0, 1]);
pub(super) const REMOTE_PORT: u16 = 443;
pub(super) const FIRST_PORT: u16 = 20_000;
/// A flow number, from the low bits on: 6 bits of port, 12 bits of remote host, the rest again
/// port.
pub(super) const PORT_BITS: u32 = 6;
pub(super) const REMOTE_BITS: u32 = 12;
/// Number of flows that the source ports above [`FIRST_PORT`] can distinguish.
pub(super) const FLOWS_MAX: u32 = 1 << 22;

/// Bytes of a frame in memory: the smallest of Ethernet, without FCS.
pub(super) const FRAME_BYTES: usize = 60;
const PAYLOAD: [u8; FRAME_BYTES - 14 - 20 - 8] = *b"weir linux traffic";

/// Last bytes of the hardware addresses 02:00:00:00:00:xx.
pub(super) const ACCESS_MAC: u8 = 1;
pub(super) const HOMES_MAC: u8 = 2;
pub(super) const INTERNET_MAC: u8 = 3;
pub(super) const HOSTS_MAC: u8 = 4;

/// Direction of a packet through the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From a home to a remote host: the source is translated.
    Up,
    /// The answer: the destination is translated back.
    Down,
}

/// Addresses in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) home: u32,
    pub(super) port: u16,
    pub(super) remote: u32,
}

impl Flow {
    /// Returns the flow of a number below [`FLOWS_MAX`].
    pub(super) fn new(number: u32) -> Flow {
        let port =
            number & ((1 << PORT_BITS) - 1) | number >> (PORT_BITS + REMOTE_BITS) << PORT_BITS;
        Flow {
            home: HOMES + (number >> PORT_BITS),
            port: FIRST_PORT + port as u16,
            remote: REMOTES + (number >> PORT_BITS & ((1 << REMOTE_BITS) - 1)),
        }
    }

    /// Returns the number of the flow that a remote host and a public port belong to.
    fn number(remote: u32, port: u16) -> Option<u32> {
        let host = remote.checked_sub(REMOTES).filter(|host| host >> REMOTE_BITS == 0)?;
        let port = u32::from(port.checked_sub(FIRST_PORT)?);
        let low = port & ((1 << PORT_BITS) - 1);
        Some(port >> PORT_BITS << (PORT_BITS + REMOTE_BITS) | host << PORT_BITS | low)
    }

    /// Returns the frame that enters the kernel.
    pub(super) fn frame(&self, direction: Direction) -> Vec<u8> {
        match direction {
            Direction::Up => build::ethernet(
                mac(ACCESS_MAC),
                mac(HOMES_MAC),
                build::ipv4(self.home, self.remote).udp(self.port, REMOTE_PORT, PAYLOAD),
            ),
            Direction::Down => build::ethernet(
                mac(INTERNET_MAC),
                mac(HOSTS_MAC),
                build::ipv4(self.remote, PUBLIC).udp(REMOTE_PORT, self.port, PAYLOAD),
            ),
        }
    }
}

/// Checks that a frame that left the kernel belongs to one of `flows` and is translated correctly:
/// addresses, ports, TTL, length and both checksums. The error says what is wrong.
pub(super) fn check(frame: &[u8], direction: Direction, flows: u32) -> Result<(), String> {
    verify::frame(frame).map_err(|wrong| wrong.to_string())?;
    let packet = frame.get(Ethernet::LEN..).unwrap_or_default();
    let (ip, header_len, total_len) = ipv4::parse(packet).map_err(|wrong| wrong.to_string())?;
    let datagram = &packet[header_len..total_len];
    let udp = udp::parse(datagram).map_err(|wrong| wrong.to_string())?;
    if udp.checksum.get() == 0 {
        return Err("the UDP checksum was taken away".into());
    }
    let source = (ip.source.get(), udp.source_port.get());
    let destination = (ip.destination.get(), udp.destination_port.get());
    let ((remote, remote_port), (_, port)) = match direction {
        Direction::Up => (destination, source),
        Direction::Down => (source, destination),
    };
    let number = Flow::number(remote, port).filter(|&number| number < flows);
    let flow = number.map(Flow::new).ok_or("it belongs to no flow")?;
    let inner = match direction {
        Direction::Up => (PUBLIC, source),
        Direction::Down => (flow.home, destination),
    };
    if inner.1 != (inner.0, flow.port) || remote_port != REMOTE_PORT {
        return Err(format!("addresses {source:x?} to {destination:x?} are not those of its flow"));
    }
    if ip.ttl != 63 || datagram.get(8..) != Some(&PAYLOAD) {
        return Err("TTL or payload is not what a router leaves".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_remote_host_and_a_port_name_one_flow() {
        for number in [0, 63, 64, 4095, 4096, 262_143, 262_144, FLOWS_MAX - 1] {
            let flow = Flow::new(number);
            assert_eq!(Flow::number(flow.remote, flow.port), Some(number));
        }
        let flows: HashSet<_> =
            (0..300_000).map(Flow::new).map(|flow| (flow.remote, flow.port)).collect();
        assert_eq!(flows.len(), 300_000);
    }

    /// Returns a frame as a router with SNAT sends it.
    fn translated(flow: Flow) -> Vec<u8> {
        let packet = build::ipv4(PUBLIC, flow.remote).ttl(63);
        build::ethernet(
            mac(HOSTS_MAC),
            mac(INTERNET_MAC),
            packet.udp(flow.port, REMOTE_PORT, PAYLOAD),
        )
    }

    #[test]
    fn only_a_correct_translation_passes_the_check() {
        let right = translated(Flow::new(77));
        assert_eq!(right.len(), FRAME_BYTES);
        assert_eq!(check(&right, Direction::Up, 100), Ok(()));
        assert!(check(&right, Direction::Up, 77).is_err(), "a flow that was not sent");
        assert!(check(&right, Direction::Down, 100).is_err(), "the wrong way");
        assert!(check(&Flow::new(77).frame(Direction::Up), Direction::Up, 100).is_err());
        for byte in Ethernet::LEN..FRAME_BYTES {
            let mut wrong = right.clone();
            wrong[byte] ^= 0x10;
            assert!(check(&wrong, Direction::Up, 100).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn an_absent_checksum_is_noticed() {
        let mut frame = translated(Flow::new(5));
        frame[40..42].fill(0);
        assert!(check(&frame, Direction::Up, 100).is_err());
    }
}
