//! parse(emit(x)) = x for every header.

use bolero::check;
use weir_wire::arp::{self, Arp};
use weir_wire::ethernet::{self, Ethernet, Mac, Vlan};
use weir_wire::icmp::{self, Icmp};
use weir_wire::icmp6::{self, Icmp6};
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::ipv6::{self, Ipv6};
use weir_wire::ndp::{self, NdpMessage, NdpPacket, NeighborAdvertisement, NeighborSolicitation};
use weir_wire::tcp::{self, Tcp};
use weir_wire::udp::{self, Udp};
use weir_wire::{U16, U32, gre};

/// Longer than any header, filled with a value that must not remain in a field.
const BUFFER: [u8; 64] = [0xa5; 64];

#[test]
fn mac() {
    check!().with_type::<[u8; 6]>().cloned().for_each(|bytes| {
        assert_eq!(Mac(bytes).to_string().parse(), Ok(Mac(bytes)));
    });
}

#[test]
fn ethernet() {
    check!().with_type::<([u8; 6], [u8; 6], u16, u16)>().cloned().for_each(
        |(to, from, ethertype, id)| {
            let mut buffer = BUFFER;
            let header = Ethernet::new(Mac(to), Mac(from), ethertype);
            header.emit(&mut buffer);
            assert_eq!(ethernet::parse(&buffer), Ok(&header));
            let tag = Vlan::new(id & 0xfff, ethertype);
            tag.emit(&mut buffer);
            assert_eq!(ethernet::parse_vlan(&buffer), Ok(&tag));
            assert_eq!((tag.id(), tag.priority()), (id & 0xfff, 0));
        },
    );
}

#[test]
fn arp() {
    check!().with_type::<([u8; 6], u32, [u8; 6], u32)>().cloned().for_each(
        |(from, from_ip, to, to_ip)| {
            let packets = [
                Arp::request(Mac(from), from_ip, to_ip),
                Arp::reply(Mac(from), from_ip, Mac(to), to_ip),
                Arp::gratuitous(Mac(from), from_ip),
            ];
            for packet in packets {
                let mut buffer = BUFFER;
                packet.emit(&mut buffer);
                assert_eq!(arp::parse(&buffer), Ok(&packet));
                assert!(packet.is_valid_ipv4_ethernet());
            }
        },
    );
}

#[test]
fn ipv4() {
    check!().with_type::<(u32, u32, u8, u8, u8, u16, u16)>().cloned().for_each(
        |(source, destination, protocol, tos, ttl, identification, fragment)| {
            let mut buffer = BUFFER;
            let mut header = Ipv4::new(source, destination, protocol, 44);
            (header.tos, header.ttl, header.identification) = (tos, ttl, U16::new(identification));
            let (dont, more, offset) = (
                fragment & 0x8000 != 0,
                fragment & 0x4000 != 0,
                usize::from(fragment & 0x1fff) * 8,
            );
            header.set_fragment(dont, more, offset);
            header.set_checksum();
            header.emit(&mut buffer);
            assert_eq!(ipv4::parse(&buffer), Ok((&header, 20, 64)));
            assert!(ipv4::header_checksum_ok(&buffer));
            assert_eq!((header.dscp() << 2) | header.ecn(), tos);
            assert_eq!(
                (header.dont_fragment(), header.more_fragments(), header.fragment_offset()),
                (dont, more, offset)
            );
            assert_eq!(header.is_fragment(), more || offset > 0);
        },
    );
}

#[test]
fn ipv6() {
    check!().with_type::<(u128, u128, u8, u8, u8, u32)>().cloned().for_each(
        |(source, destination, next_header, class, hop_limit, label)| {
            let mut buffer = BUFFER;
            let mut header = Ipv6::new(source, destination, next_header, 24);
            header.set_traffic_class(class);
            header.set_flow_label(label);
            header.hop_limit = hop_limit;
            header.emit(&mut buffer);
            assert_eq!(ipv6::parse(&buffer), Ok((&header, 64)));
            assert_eq!((header.traffic_class(), header.version()), (class, 6));
            assert_eq!((header.dscp() << 2) | header.ecn(), class);
            assert_eq!(header.flow_label(), label & 0xf_ffff);
            assert_eq!((header.source.get(), header.destination.get()), (source, destination));
        },
    );
}

#[test]
fn icmp6() {
    check!().with_type::<(u8, u8, u16, u32)>().cloned().for_each(|(kind, code, id, mtu)| {
        let mut buffer = BUFFER;
        let mut header = Icmp6::new(kind, code, [0; 4]);
        header.set_mtu(mtu);
        assert_eq!((header.mtu(), header.pointer()), (mtu, mtu));
        header.set_identifier(id);
        header.emit(&mut buffer);
        assert_eq!(icmp6::parse(&buffer), Ok(&header));
        assert_eq!((header.identifier(), header.sequence()), (id, mtu as u16));
    });
}

#[test]
fn ndp() {
    check!().with_type::<(u128, u128, [u8; 6], bool)>().cloned().for_each(
        |(source, target, mac, is_router)| {
            // A source is not `::`, and neither it nor a target is multicast.
            let (source, target, mac) = (source >> 1 | 2, target >> 1, Mac(mac));
            let group = ipv6::solicited_node(target);
            let read = |packet: &NdpPacket| {
                let (ip, total_length) = ipv6::parse(packet.as_bytes()).unwrap();
                assert_eq!(total_length, packet.as_bytes().len());
                assert_eq!(ip.destination.get(), packet.destination());
                ndp::parse(ip, &packet.as_bytes()[Ipv6::LEN..])
            };
            let question =
                NeighborSolicitation { source, destination: group, target, source_mac: Some(mac) };
            let packet = NdpPacket::solicitation(source, mac, target);
            assert_eq!(read(&packet), Ok(NdpMessage::Solicitation(question)));
            let probe = NeighborSolicitation { destination: target, ..question };
            let packet = NdpPacket::probe(source, mac, target);
            assert_eq!(read(&packet), Ok(NdpMessage::Solicitation(probe)));
            let detection = NeighborSolicitation { source: 0, source_mac: None, ..question };
            let packet = NdpPacket::duplicate_detection(target);
            assert_eq!(read(&packet), Ok(NdpMessage::Solicitation(detection)));
            let advertisement = NeighborAdvertisement {
                source: target,
                destination: ipv6::ALL_NODES,
                target,
                is_router,
                is_solicited: false,
                is_override: true,
                target_mac: Some(mac),
            };
            let packet = NdpPacket::unsolicited(target, mac, is_router);
            assert_eq!(read(&packet), Ok(NdpMessage::Advertisement(advertisement)));
            let answer =
                NeighborAdvertisement { destination: source, is_solicited: true, ..advertisement };
            let packet = NdpPacket::answer(&question, mac, is_router);
            assert_eq!(read(&packet), Ok(NdpMessage::Advertisement(answer)));
        },
    );
}

#[test]
fn udp() {
    check!().with_type::<(u16, u16, u8, u16)>().cloned().for_each(
        |(source, destination, len, checksum)| {
            let mut buffer = BUFFER;
            let len = u16::from(len) % 57;
            let header = Udp { checksum: U16::new(checksum), ..Udp::new(source, destination, len) };
            header.emit(&mut buffer);
            assert_eq!(udp::parse(&buffer), Ok(&header));
            assert_eq!(header.length.get(), len + 8);
        },
    );
}

#[test]
fn tcp() {
    check!().with_type::<(u16, u16, u32, u32, u8, u8, u16, u16)>().cloned().for_each(
        |(
            source_port,
            destination_port,
            sequence,
            acknowledgment,
            offset,
            flags,
            window,
            urgent,
        )| {
            let mut buffer = BUFFER;
            let words = 5 + offset % 11;
            let header = Tcp {
                source_port: U16::new(source_port),
                destination_port: U16::new(destination_port),
                sequence: U32::new(sequence),
                acknowledgment: U32::new(acknowledgment),
                offset_reserved: words << 4 | offset & 0x0f,
                flags,
                window: U16::new(window),
                checksum: U16::new(!window),
                urgent: U16::new(urgent),
            };
            header.emit(&mut buffer);
            assert_eq!(tcp::parse(&buffer), Ok(&header));
            assert_eq!(header.header_len(), usize::from(words) * 4);
        },
    );
}

#[test]
fn icmp() {
    check!().with_type::<(u8, u8, u16, u16)>().cloned().for_each(
        |(kind, code, identifier, low)| {
            let mut buffer = BUFFER;
            let mut header = Icmp::new(kind, code, [0; 4]);
            header.set_identifier(identifier);
            header.set_next_hop_mtu(low);
            header.emit(&mut buffer);
            assert_eq!(icmp::parse(&buffer), Ok(&header));
            assert_eq!(
                (header.identifier(), header.sequence(), header.next_hop_mtu()),
                (identifier, low, low)
            );
        },
    );
}

#[test]
fn gre() {
    check!().with_type::<(u16, Option<u32>, Option<u32>, bool, Vec<u8>)>().for_each(
        |(protocol, key, sequence, has_checksum, payload)| {
            let mut header = gre::GreHeader::new(*protocol);
            (header.key, header.sequence, header.has_checksum) = (*key, *sequence, *has_checksum);
            header.len = header.emitted_len();
            let mut packet = vec![0xa5; header.len];
            packet.extend_from_slice(payload);
            header.emit(&mut packet);
            assert_eq!(gre::parse(&packet), Ok(header));
            assert_eq!(&packet[header.len..], payload);
        },
    );
}
