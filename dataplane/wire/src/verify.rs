//! Verifies a whole packet down to the innermost layer, as strictly as a receiver: for tests and
//! tools.

use crate::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4};
use crate::ipv4::{PROTOCOL_GRE, PROTOCOL_ICMP, PROTOCOL_IPIP, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::{Malformed, arp, gre, icmp, ipv4, tcp, udp};
use core::fmt;

/// A fault and its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub layer: &'static str,
    pub why: Malformed,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.layer, self.why)
    }
}

impl core::error::Error for Wrong {}

fn in_layer(layer: &'static str) -> impl FnOnce(Malformed) -> Wrong {
    move |why| Wrong { layer, why }
}

fn require(ok: bool, layer: &'static str) -> Result<(), Wrong> {
    if ok { Ok(()) } else { Err(Wrong { layer, why: Malformed::Checksum }) }
}

/// Checks an Ethernet frame with at most one tag: every length and every checksum, through GRE and
/// IPIP. Unknown ethertypes and protocols pass.
pub fn frame(bytes: &[u8]) -> Result<(), Wrong> {
    let link = ethernet::parse_link(bytes).map_err(in_layer("ethernet"))?;
    let payload = &bytes[link.len..];
    match link.ethertype {
        ETHERTYPE_IPV4 => packet(payload),
        ETHERTYPE_ARP => arp::parse(payload).map(|_| ()).map_err(in_layer("arp")),
        _ => Ok(()),
    }
}

/// Checks an IPv4 packet in the same way. A fragment has only its IP header checked.
pub fn packet(bytes: &[u8]) -> Result<(), Wrong> {
    let mut rest = bytes;
    // Each round removes at least 20 bytes, so nested tunnels end.
    loop {
        let (header, header_len, total_length) = ipv4::parse(rest).map_err(in_layer("ipv4"))?;
        require(ipv4::header_checksum_ok(rest), "ipv4")?;
        if header.is_fragment() {
            return Ok(());
        }
        let (source, destination) = (header.source.get(), header.destination.get());
        let payload = &rest[header_len..total_length];
        rest = match header.protocol {
            PROTOCOL_IPIP => payload,
            PROTOCOL_GRE => {
                let tunnel = gre::parse(payload).map_err(in_layer("gre"))?;
                if tunnel.protocol != gre::PROTOCOL_IPV4 {
                    return Ok(());
                }
                &payload[tunnel.len..]
            }
            protocol => return transport(protocol, source, destination, payload),
        };
    }
}

fn transport(protocol: u8, source: u32, destination: u32, payload: &[u8]) -> Result<(), Wrong> {
    match protocol {
        PROTOCOL_UDP => {
            let header = udp::parse(payload).map_err(in_layer("udp"))?;
            let datagram = &payload[..usize::from(header.length.get())];
            require(udp::checksum_ok(source, destination, datagram), "udp")
        }
        PROTOCOL_TCP => {
            tcp::parse(payload).map_err(in_layer("tcp"))?;
            require(tcp::checksum_ok(source, destination, payload), "tcp")
        }
        PROTOCOL_ICMP => {
            let header = icmp::parse(payload).map_err(in_layer("icmp"))?;
            require(icmp::checksum_ok(payload), "icmp")?;
            if icmp::is_error(header.kind) { quoted(&payload[icmp::Icmp::LEN..]) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Checks a quoted packet: its header must be whole with a right checksum; the payload is checked
/// only if all of it is present, because a receiver matches by addresses and ports and sees only a
/// part.
fn quoted(bytes: &[u8]) -> Result<(), Wrong> {
    let (header, header_len, total_length) =
        ipv4::parse_quoted(bytes).map_err(in_layer("quoted ipv4"))?;
    require(ipv4::header_checksum_ok(bytes), "quoted ipv4")?;
    let (source, destination) = (header.source.get(), header.destination.get());
    match bytes.get(header_len..total_length) {
        Some(payload) if !header.is_fragment() => match header.protocol {
            PROTOCOL_UDP => require(udp::checksum_ok(source, destination, payload), "quoted udp"),
            PROTOCOL_TCP => require(tcp::checksum_ok(source, destination, payload), "quoted tcp"),
            PROTOCOL_ICMP => require(icmp::checksum_ok(payload), "quoted icmp"),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    fn inner() -> Vec<u8> {
        build::ipv4("192.168.1.10", "198.51.100.1").tcp(build::tcp(4, 5).ack().payload(b"hello"))
    }

    fn wrong(layer: &'static str) -> Result<(), Wrong> {
        Err(Wrong { layer, why: Malformed::Checksum })
    }

    #[test]
    fn fault_is_reported_in_every_layer() {
        let tunnelled = build::ipv4("10.0.0.1", "10.0.0.2").gre(build::gre().key(7), inner());
        let good = build::vlan(5, build::ethernet(build::mac(1), build::mac(2), tunnelled));
        assert_eq!(frame(&good), Ok(()));
        // 18 link, 20 outer IP, 8 GRE, 20 inner IP, 20 TCP, 5 payload.
        for (at, layer) in [(26, "ipv4"), (54, "ipv4"), (66, "tcp"), (90, "tcp")] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert_eq!(frame(&bad), wrong(layer), "byte {at}");
        }
    }

    #[test]
    fn fault_in_a_quoted_packet_is_reported() {
        let error = |quote: &[u8]| build::ipv4("10.9.9.9", "192.168.1.10").time_exceeded(quote);
        assert_eq!(packet(&error(&inner())), Ok(()));
        assert_eq!(packet(&error(&inner()[..28])), Ok(()), "the least a router quotes");
        let mut bad = inner();
        bad[8] ^= 1;
        assert_eq!(packet(&error(&bad)), wrong("quoted ipv4"));
        let mut bad = inner();
        bad[44] ^= 1;
        assert_eq!(packet(&error(&bad)), wrong("quoted tcp"));
    }

    #[test]
    fn udp_without_checksum_passes() {
        assert_eq!(
            packet(&build::ipv4("10.0.0.1", "10.0.0.2").udp_without_checksum(1, 2, b"x")),
            Ok(())
        );
    }
}
