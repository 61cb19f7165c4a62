//! Messages that this module builds are valid, and each condition of RFC 4861 sections 7.1.1 and
//! 7.1.2 is checked.

use super::*;
use crate::build;
use crate::ipv6::{ALL_NODES, PROTOCOL_ICMPV6, solicited_node};

const NODE: u128 = 0xfe80_0000_0000_0000_0000_0000_0000_0001;
const TARGET: u128 = 0x2001_0db8_0000_0000_0000_0000_00ab_cdef;

/// Reads a whole packet.
fn read(packet: &[u8]) -> Result<NdpMessage, NdpFault> {
    let (ip, total_length) = ipv6::parse(packet).unwrap();
    assert_eq!(total_length, packet.len());
    let upper = ipv6::walk(packet, total_length).unwrap();
    assert_eq!(upper.protocol, PROTOCOL_ICMPV6);
    parse(ip, &packet[upper.offset..])
}

/// Reads a packet after `edit` of its bytes, with the checksum of the edited message.
fn edited(packet: NdpPacket, edit: impl FnOnce(&mut Vec<u8>)) -> Result<NdpMessage, NdpFault> {
    let mut bytes = packet.as_bytes().to_vec();
    edit(&mut bytes);
    let payload_len = (bytes.len() - Ipv6::LEN) as u16;
    let (ip, _) = ipv6::parse_quoted_mut(&mut bytes).unwrap();
    ip.payload_length.set(payload_len);
    let (source, destination) = (ip.source.get(), ip.destination.get());
    icmp6::set_checksum(source, destination, &mut bytes[Ipv6::LEN..]);
    read(&bytes)
}

fn solicitation() -> NdpPacket {
    NdpPacket::solicitation(NODE, build::mac(1), TARGET)
}

fn advertisement() -> NdpPacket {
    NdpPacket::unsolicited(TARGET, build::mac(2), true)
}

fn solicited(packet: &NdpPacket) -> NeighborSolicitation {
    match read(packet.as_bytes()) {
        Ok(NdpMessage::Solicitation(solicitation)) => solicitation,
        other => panic!("{other:?}"),
    }
}

fn advertised(packet: &NdpPacket) -> NeighborAdvertisement {
    match read(packet.as_bytes()) {
        Ok(NdpMessage::Advertisement(advertisement)) => advertisement,
        other => panic!("{other:?}"),
    }
}

#[test]
fn solicitation_goes_to_the_group_of_its_target() {
    let packet = solicitation();
    let destination = solicited_node(TARGET);
    let source_mac = Some(build::mac(1));
    let expected = NeighborSolicitation { source: NODE, destination, target: TARGET, source_mac };
    assert_eq!(solicited(&packet), expected);
    assert_eq!(packet.destination(), destination);
    assert_eq!(packet.multicast_mac().unwrap().to_string(), "33:33:ff:ab:cd:ef");
    assert_eq!(packet.as_bytes().len(), 72);
}

#[test]
fn probe_goes_to_its_target() {
    let packet = NdpPacket::probe(NODE, build::mac(1), TARGET);
    let source_mac = Some(build::mac(1));
    let expected =
        NeighborSolicitation { source: NODE, destination: TARGET, target: TARGET, source_mac };
    assert_eq!(solicited(&packet), expected);
    assert_eq!(packet.multicast_mac(), None);
}

#[test]
fn duplicate_detection_has_no_source_and_no_option() {
    let packet = NdpPacket::duplicate_detection(TARGET);
    let destination = solicited_node(TARGET);
    let expected =
        NeighborSolicitation { source: 0, destination, target: TARGET, source_mac: None };
    assert_eq!(solicited(&packet), expected);
    assert!(expected.detects_duplicates() && !solicited(&solicitation()).detects_duplicates());
    assert_eq!(packet.as_bytes().len(), 64);
}

#[test]
fn answer_is_solicited_and_goes_to_the_sender() {
    let question = solicited(&solicitation());
    for is_router in [false, true] {
        let answer = NdpPacket::answer(&question, build::mac(2), is_router);
        let expected = NeighborAdvertisement {
            source: TARGET,
            destination: NODE,
            target: TARGET,
            is_router,
            is_solicited: true,
            is_override: true,
            target_mac: Some(build::mac(2)),
        };
        assert_eq!(advertised(&answer), expected);
        assert_eq!(answer.multicast_mac(), None);
    }
}

#[test]
fn answer_to_duplicate_detection_is_not_solicited_and_goes_to_all_nodes() {
    let question = solicited(&NdpPacket::duplicate_detection(TARGET));
    let answer = NdpPacket::answer(&question, build::mac(2), false);
    assert_eq!(answer, NdpPacket::unsolicited(TARGET, build::mac(2), false));
    let advertisement = advertised(&answer);
    assert_eq!(advertisement.destination, ALL_NODES);
    assert!(!advertisement.is_solicited && advertisement.is_override && !advertisement.is_router);
    assert_eq!(answer.multicast_mac(), Some(Mac([0x33, 0x33, 0, 0, 0, 1])));
}

#[test]
fn message_from_another_link_is_refused() {
    for hop_limit in [0, 1, 64, 254] {
        for packet in [solicitation(), advertisement()] {
            let result = edited(packet, |bytes| bytes[7] = hop_limit);
            assert_eq!(result, Err(NdpFault::HopLimit));
        }
    }
}

#[test]
fn wrong_checksum_is_refused_at_every_byte() {
    for at in 40..72 {
        let mut bytes = solicitation().as_bytes().to_vec();
        bytes[at] ^= 0x80;
        let expected = if at == 40 { NdpFault::OtherKind } else { NdpFault::Checksum };
        assert_eq!(read(&bytes), Err(expected), "byte {at}");
    }
}

#[test]
fn code_other_than_0_is_refused() {
    for packet in [solicitation(), advertisement()] {
        assert_eq!(edited(packet, |bytes| bytes[41] = 1), Err(NdpFault::Code));
    }
}

#[test]
fn message_shorter_than_24_bytes_is_truncated() {
    for packet in [solicitation(), advertisement()] {
        for len in 40..64 {
            let result = edited(packet, |bytes| bytes.truncate(len));
            assert_eq!(result, Err(NdpFault::Truncated), "{len} bytes");
        }
        assert!(edited(packet, |bytes| bytes.truncate(64)).is_ok(), "options are optional");
    }
}

#[test]
fn multicast_source_is_refused() {
    for packet in [solicitation(), advertisement()] {
        let result = edited(packet, |bytes| bytes[8] = 0xff);
        assert_eq!(result, Err(NdpFault::SourceMulticast));
    }
}

#[test]
fn multicast_target_is_refused() {
    for packet in [solicitation(), advertisement()] {
        let result = edited(packet, |bytes| bytes[48] = 0xff);
        assert_eq!(result, Err(NdpFault::TargetMulticast));
    }
}

#[test]
fn options_have_to_end_in_the_message() {
    for packet in [solicitation(), advertisement()] {
        for len in 65..72 {
            let result = edited(packet, |bytes| bytes.truncate(len));
            assert_eq!(result, Err(NdpFault::OptionLength), "{len} bytes");
        }
        // Also those of unknown types.
        for (kind, length) in [(1, 0), (2, 0), (14, 0), (14, 2), (14, 255)] {
            let result = edited(packet, |bytes| bytes[64..66].copy_from_slice(&[kind, length]));
            assert_eq!(result, Err(NdpFault::OptionLength), "type {kind}, length {length}");
        }
    }
}

#[test]
fn link_layer_address_of_another_length_is_refused() {
    for (packet, kind) in [(solicitation(), 1), (advertisement(), 2)] {
        let result = edited(packet, |bytes| {
            bytes[64..66].copy_from_slice(&[kind, 2]);
            bytes.extend([0; 8]);
        });
        assert_eq!(result, Err(NdpFault::OptionLength));
    }
}

#[test]
fn options_of_unknown_types_are_skipped_and_the_first_address_counts() {
    let result = edited(solicitation(), |bytes| {
        let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
        let other_target = [TARGET_LINK_LAYER_ADDRESS, 1, 2, 0, 0, 0, 0, 9];
        let second = [SOURCE_LINK_LAYER_ADDRESS, 1, 2, 0, 0, 0, 0, 8];
        bytes.splice(64..64, [nonce, other_target].concat());
        bytes.extend(second);
    });
    assert_eq!(result, Ok(NdpMessage::Solicitation(solicited(&solicitation()))));
}

#[test]
fn nine_options_are_too_many() {
    let with = |count: usize| {
        edited(solicitation(), |bytes| bytes.extend([14, 1, 0, 0, 0, 0, 0, 0].repeat(count - 1)))
    };
    assert!(with(8).is_ok());
    assert_eq!(with(9), Err(NdpFault::TooManyOptions));
}

#[test]
fn duplicate_detection_to_another_address_than_a_solicited_node_group_is_refused() {
    for destination in [TARGET, ALL_NODES] {
        let result = edited(NdpPacket::duplicate_detection(TARGET), |bytes| {
            bytes[24..40].copy_from_slice(&destination.to_be_bytes());
        });
        assert_eq!(result, Err(NdpFault::UnspecifiedToUnicast));
    }
}

#[test]
fn duplicate_detection_with_a_link_layer_address_is_refused() {
    let result = edited(solicitation(), |bytes| bytes[8..24].fill(0));
    assert_eq!(result, Err(NdpFault::UnspecifiedWithAddress));
}

#[test]
fn solicited_advertisement_to_a_group_is_refused() {
    let result = edited(advertisement(), |bytes| bytes[44] |= SOLICITED);
    assert_eq!(result, Err(NdpFault::SolicitedToMulticast));
}

#[test]
fn messages_of_routers_are_recognised_and_not_read() {
    let kinds = [
        (ROUTER_SOLICITATION, NdpKind::RouterSolicitation),
        (ROUTER_ADVERTISEMENT, NdpKind::RouterAdvertisement),
        (REDIRECT, NdpKind::Redirect),
    ];
    for (number, kind) in kinds {
        let result = edited(solicitation(), |bytes| bytes[40] = number);
        assert_eq!(result, Ok(NdpMessage::Other(kind)));
        let forwarded = edited(solicitation(), |bytes| (bytes[40], bytes[7]) = (number, 64));
        assert_eq!(forwarded, Err(NdpFault::HopLimit));
    }
    let known: Vec<u8> = (0..=255).filter(|&number| kind(number).is_some()).collect();
    assert_eq!(known, [133, 134, 135, 136, 137]);
}
