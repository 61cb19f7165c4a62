//! Verifies a whole packet down to the innermost layer, as strictly as a receiver: for tests and
//! tools.

use crate::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use crate::ipv4::{Ipv4, PROTOCOL_GRE, PROTOCOL_ICMP, PROTOCOL_IPIP, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::{ExtensionFault, PROTOCOL_IPV6};
use crate::ndp::NdpFault;
use crate::{Malformed, arp, gre, icmp, ipv4, tcp, udp};
use core::fmt;
use ipv6::ipv6_packet;

mod ipv6;

/// A fault and its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub layer: &'static str,
    pub why: WrongCause,
}

/// The fault of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongCause {
    Header(Malformed),
    Extension(ExtensionFault),
    Ndp(NdpFault),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.layer)?;
        match self.why {
            WrongCause::Header(why) => fmt::Display::fmt(&why, f),
            WrongCause::Extension(why) => fmt::Display::fmt(&why, f),
            WrongCause::Ndp(why) => fmt::Display::fmt(&why, f),
        }
    }
}

impl core::error::Error for Wrong {}

fn in_layer(layer: &'static str) -> impl FnOnce(Malformed) -> Wrong {
    move |why| Wrong { layer, why: WrongCause::Header(why) }
}

fn require(ok: bool, layer: &'static str) -> Result<(), Wrong> {
    if ok { Ok(()) } else { Err(in_layer(layer)(Malformed::Checksum)) }
}

/// Checks an Ethernet frame with at most one tag: every length and every checksum, through GRE,
/// and IPv4 or IPv6 in IP. Unknown ethertypes and protocols pass.
pub fn frame(bytes: &[u8]) -> Result<(), Wrong> {
    let link = ethernet::parse_link(bytes).map_err(in_layer("ethernet"))?;
    let payload = &bytes[link.len..];
    match link.ethertype {
        ETHERTYPE_IPV4 => nested(Unchecked::Ipv4(payload)),
        ETHERTYPE_IPV6 => nested(Unchecked::Ipv6(payload)),
        ETHERTYPE_ARP => arp::parse(payload).map(|_| ()).map_err(in_layer("arp")),
        _ => Ok(()),
    }
}

/// Checks an IPv6 packet, or an IPv4 packet if the version is not 6, in the same way. A fragment
/// has only its IP header checked.
pub fn packet(bytes: &[u8]) -> Result<(), Wrong> {
    match bytes.first() {
        Some(first) if first >> 4 == 6 => nested(Unchecked::Ipv6(bytes)),
        _ => nested(Unchecked::Ipv4(bytes)),
    }
}

/// What is left to check behind a header.
enum Unchecked<'a> {
    Ipv4(&'a [u8]),
    Ipv6(&'a [u8]),
    Nothing,
}

fn nested(mut rest: Unchecked<'_>) -> Result<(), Wrong> {
    // Each round removes at least 20 bytes, so nested tunnels end.
    loop {
        rest = match rest {
            Unchecked::Ipv4(bytes) => ipv4_packet(bytes)?,
            Unchecked::Ipv6(bytes) => ipv6_packet(bytes)?,
            Unchecked::Nothing => return Ok(()),
        }
    }
}

fn ipv4_packet(bytes: &[u8]) -> Result<Unchecked<'_>, Wrong> {
    let (header, header_len, total_length) = ipv4::parse(bytes).map_err(in_layer("ipv4"))?;
    require(ipv4::header_checksum_ok(bytes), "ipv4")?;
    if header.is_fragment() {
        return Ok(Unchecked::Nothing);
    }
    let payload = &bytes[header_len..total_length];
    match header.protocol {
        PROTOCOL_ICMP => icmp(payload).map(|()| Unchecked::Nothing),
        protocol => transport(protocol, ChecksumAddresses::of(header), payload),
    }
}

fn transport(
    protocol: u8,
    addresses: ChecksumAddresses,
    payload: &[u8],
) -> Result<Unchecked<'_>, Wrong> {
    match protocol {
        PROTOCOL_IPIP => return Ok(Unchecked::Ipv4(payload)),
        PROTOCOL_IPV6 => return Ok(Unchecked::Ipv6(payload)),
        PROTOCOL_GRE => return gre(payload),
        PROTOCOL_UDP => {
            let header = udp::parse(payload).map_err(in_layer("udp"))?;
            let datagram = &payload[..usize::from(header.length.get())];
            require(addresses.udp_ok(datagram), "udp")?;
        }
        PROTOCOL_TCP => {
            tcp::parse(payload).map_err(in_layer("tcp"))?;
            require(addresses.tcp_ok(payload), "tcp")?;
        }
        _ => {}
    }
    Ok(Unchecked::Nothing)
}

fn gre(payload: &[u8]) -> Result<Unchecked<'_>, Wrong> {
    let tunnel = gre::parse(payload).map_err(in_layer("gre"))?;
    let inner = &payload[tunnel.len..];
    Ok(match tunnel.protocol {
        gre::PROTOCOL_IPV4 => Unchecked::Ipv4(inner),
        gre::PROTOCOL_IPV6 => Unchecked::Ipv6(inner),
        _ => Unchecked::Nothing,
    })
}

fn icmp(payload: &[u8]) -> Result<(), Wrong> {
    let header = icmp::parse(payload).map_err(in_layer("icmp"))?;
    require(icmp::checksum_ok(payload), "icmp")?;
    if icmp::is_error(header.kind) { quoted(&payload[icmp::Icmp::LEN..]) } else { Ok(()) }
}

/// Checks a quoted packet: its header must be whole with a right checksum; the payload is checked
/// only if all of it is present, because a receiver matches by addresses and ports and sees only a
/// part.
fn quoted(bytes: &[u8]) -> Result<(), Wrong> {
    let (header, header_len, total_length) =
        ipv4::parse_quoted(bytes).map_err(in_layer("quoted ipv4"))?;
    require(ipv4::header_checksum_ok(bytes), "quoted ipv4")?;
    let addresses = ChecksumAddresses::of(header);
    match bytes.get(header_len..total_length) {
        Some(payload) if !header.is_fragment() => match header.protocol {
            PROTOCOL_UDP => require(addresses.udp_ok(payload), "quoted udp"),
            PROTOCOL_TCP => require(addresses.tcp_ok(payload), "quoted tcp"),
            PROTOCOL_ICMP => require(icmp::checksum_ok(payload), "quoted icmp"),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Source and destination, host order, as the checksums of TCP and UDP cover them.
#[derive(Clone, Copy)]
enum ChecksumAddresses {
    V4(u32, u32),
    V6(u128, u128),
}

impl ChecksumAddresses {
    fn of(header: &Ipv4) -> ChecksumAddresses {
        ChecksumAddresses::V4(header.source.get(), header.destination.get())
    }

    fn udp_ok(self, datagram: &[u8]) -> bool {
        match self {
            ChecksumAddresses::V4(source, destination) => {
                udp::checksum_ok(source, destination, datagram)
            }
            ChecksumAddresses::V6(source, destination) => {
                udp::checksum6_ok(source, destination, datagram)
            }
        }
    }

    fn tcp_ok(self, segment: &[u8]) -> bool {
        match self {
            ChecksumAddresses::V4(source, destination) => {
                tcp::checksum_ok(source, destination, segment)
            }
            ChecksumAddresses::V6(source, destination) => {
                tcp::checksum6_ok(source, destination, segment)
            }
        }
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
        Err(in_layer(layer)(Malformed::Checksum))
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
