//! The checks of IPv6 and ICMPv6.

use super::{ChecksumAddresses, Unchecked, Wrong, WrongCause, in_layer, require, transport};
use crate::icmp6::{self, Icmp6};
use crate::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::{self, ExtensionFault, Ipv6, PROTOCOL_ICMPV6, UpperLayer};
use crate::ndp;

fn of_extension(layer: &'static str) -> impl FnOnce(ExtensionFault) -> Wrong {
    move |why| Wrong { layer, why: WrongCause::Extension(why) }
}

pub(super) fn ipv6_packet(bytes: &[u8]) -> Result<Unchecked<'_>, Wrong> {
    let (header, total_length) = ipv6::parse(bytes).map_err(in_layer("ipv6"))?;
    let upper = ipv6::walk(bytes, total_length).map_err(of_extension("ipv6"))?;
    if !is_checkable(&upper) {
        return Ok(Unchecked::Nothing);
    }
    let payload = &bytes[upper.offset..total_length];
    match upper.protocol {
        PROTOCOL_ICMPV6 => icmp6(header, &upper, payload).map(|()| Unchecked::Nothing),
        protocol => transport(protocol, addresses(header), payload),
    }
}

/// True if the packet has all that the checksum of its payload covers: the payload of a fragment is
/// a part, and a routing header has the last destination.
fn is_checkable(upper: &UpperLayer) -> bool {
    upper.fragment.is_none_or(|fragment| fragment.is_atomic()) && upper.segments_left_at.is_none()
}

fn addresses(header: &Ipv6) -> ChecksumAddresses {
    ChecksumAddresses::V6(header.source.get(), header.destination.get())
}

fn icmp6_ok(header: &Ipv6, message: &[u8]) -> bool {
    icmp6::checksum_ok(header.source.get(), header.destination.get(), message)
}

fn icmp6(header: &Ipv6, upper: &UpperLayer, message: &[u8]) -> Result<(), Wrong> {
    let kind = icmp6::parse(message).map_err(in_layer("icmp6"))?.kind;
    require(icmp6_ok(header, message), "icmp6")?;
    if icmp6::quotes_a_packet(kind) {
        return quoted(&message[Icmp6::LEN..]);
    }
    // A receiver ignores neighbor discovery with a fragment header (RFC 6980 section 5).
    if ndp::kind(kind).is_some() && upper.fragment.is_none() {
        let of_ndp = |why| Wrong { layer: "ndp", why: WrongCause::Ndp(why) };
        ndp::parse(header, message).map_err(of_ndp)?;
    }
    Ok(())
}

/// Checks a quoted packet: its headers up to the upper layer must be whole; the payload is checked
/// only if all of it is present.
fn quoted(bytes: &[u8]) -> Result<(), Wrong> {
    let (header, total_length) = ipv6::parse_quoted(bytes).map_err(in_layer("quoted ipv6"))?;
    let upper = ipv6::walk(bytes, total_length).map_err(of_extension("quoted ipv6"))?;
    match bytes.get(upper.offset..total_length) {
        Some(payload) if is_checkable(&upper) => match upper.protocol {
            PROTOCOL_UDP => require(addresses(header).udp_ok(payload), "quoted udp"),
            PROTOCOL_TCP => require(addresses(header).tcp_ok(payload), "quoted tcp"),
            PROTOCOL_ICMPV6 => require(icmp6_ok(header, payload), "quoted icmp6"),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::build::{self, ipv6};
    use crate::ipv6::ExtensionFault;
    use crate::ndp::{NdpFault, NdpPacket};
    use crate::verify::{Wrong, WrongCause, frame, packet};
    use crate::{Malformed, gre, icmp6};

    fn inner() -> build::Ipv6Builder {
        ipv6("2001:db8::1", "2001:db8:1::2")
    }

    fn wrong(layer: &'static str) -> Result<(), Wrong> {
        Err(Wrong { layer, why: WrongCause::Header(Malformed::Checksum) })
    }

    fn damaged(packet: &[u8], at: usize) -> Vec<u8> {
        let mut bad = packet.to_vec();
        bad[at] ^= 0x40;
        bad
    }

    #[test]
    fn fault_is_reported_in_every_layer_and_tunnel() {
        let udp = inner().udp(4, 5, b"hello");
        let tcp = inner().tcp(build::tcp(4, 5).ack().payload(b"hello"));
        let echo = inner().icmp6_echo_request(1, 2, b"hello");
        for (packet, layer) in [(udp, "udp"), (tcp, "tcp"), (echo, "icmp6")] {
            let header = build::gre().key(7).protocol(gre::PROTOCOL_IPV6);
            let in_gre = build::ipv4("10.0.0.1", "10.0.0.2").gre(header, &packet);
            let frames = [
                build::ethernet6(build::mac(1), build::mac(2), &packet),
                build::vlan(5, build::ethernet(build::mac(1), build::mac(2), &in_gre)),
                build::ethernet6(build::mac(1), build::mac(2), inner().gre(header, &packet)),
                build::ethernet6(build::mac(1), build::mac(2), inner().ipv6(&packet)),
            ];
            for good in frames {
                assert_eq!(frame(&good), Ok(()));
                assert_eq!(frame(&damaged(&good, good.len() - 1)), wrong(layer));
            }
        }
        let dslite = inner().ipip(build::ipv4("10.0.0.1", "10.0.0.2").udp(4, 5, b"x"));
        assert_eq!(packet(&dslite), Ok(()));
        assert_eq!(packet(&damaged(&dslite, 48)), wrong("ipv4"));
    }

    #[test]
    fn udp_without_checksum_is_wrong() {
        assert_eq!(packet(&inner().udp_without_checksum(1, 2, b"x")), wrong("udp"));
    }

    #[test]
    fn checksum_behind_extension_headers_is_checked_unless_it_covers_other_bytes() {
        let chain = || inner().hop_by_hop(&[5, 2, 0, 0]).authentication(12);
        let atomic = chain().fragment(7, 0, false).destination_options(&[]).udp(4, 5, b"hello");
        assert_eq!(packet(&atomic), Ok(()));
        assert_eq!(packet(&damaged(&atomic, atomic.len() - 1)), wrong("udp"));
        let first = chain().fragment(7, 0, true).payload(17, [0; 16]);
        assert_eq!(packet(&first), Ok(()));
        let routed = inner().routing(4, 1, &[0; 20]).payload(17, [0; 16]);
        assert_eq!(packet(&routed), Ok(()));
        let arrived = inner().routing(4, 0, &[0; 20]).udp(4, 5, b"hello");
        assert_eq!(packet(&damaged(&arrived, arrived.len() - 1)), wrong("udp"));
    }

    #[test]
    fn refused_extension_headers_are_reported() {
        let why = WrongCause::Extension(ExtensionFault::RoutingType0);
        let refused = inner().routing(0, 0, &[0; 20]).udp(4, 5, b"hello");
        assert_eq!(packet(&refused), Err(Wrong { layer: "ipv6", why }));
        let error = inner().time_exceeded(&refused);
        assert_eq!(packet(&error), Err(Wrong { layer: "quoted ipv6", why }));
        let text = Wrong { layer: "ipv6", why }.to_string();
        assert_eq!(text, "ipv6: routing header of type 0");
    }

    #[test]
    fn fault_in_a_quoted_packet_is_reported_if_all_of_it_is_there() {
        let udp = inner().udp(4, 5, b"hello");
        let tcp = inner().tcp(build::tcp(4, 5).ack().payload(b"hello"));
        let echo = inner().icmp6_echo_request(1, 2, b"hello");
        let quotes = [(udp, "quoted udp"), (tcp, "quoted tcp"), (echo, "quoted icmp6")];
        for (quote, layer) in quotes {
            let last = quote.len() - 1;
            assert_eq!(packet(&inner().time_exceeded(&quote)), Ok(()));
            assert_eq!(packet(&inner().time_exceeded(damaged(&quote, last))), wrong(layer));
            assert_eq!(packet(&inner().time_exceeded(&quote[..last])), Ok(()));
        }
        let why = WrongCause::Header(Malformed::Truncated);
        let error = inner().time_exceeded([0x60; 39]);
        assert_eq!(packet(&error), Err(Wrong { layer: "quoted ipv6", why }));
    }

    #[test]
    fn neighbor_discovery_is_checked() {
        let good = NdpPacket::solicitation(0xfe80 << 112 | 1, build::mac(1), 2);
        assert_eq!(packet(good.as_bytes()), Ok(()));
        let far = inner().icmp6(icmp6::NEIGHBOR_SOLICITATION, 0, [0; 4], [0; 16]);
        let why = WrongCause::Ndp(NdpFault::HopLimit);
        assert_eq!(packet(&far), Err(Wrong { layer: "ndp", why }));
    }
}
