use weir_wire::{gre, ipv4, udp};

use super::*;

const HOST: Endpoint = Endpoint { address: 0xc0a8_010a, port: 20_000 };
const REMOTE: Endpoint = Endpoint { address: 0xc613_0001, port: 443 };
const HOME: u32 = 0x0a80_0001;
const ENDPOINT: u32 = 0x0a40_0001;
const ANY: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn tunnel(flow: u32, lap: u32) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<Tunnel>()];
    let inner = Inner::new(HOST, REMOTE, flow, Direction::Upstream);
    Tunnel::template(ANY, ANY, Direction::Upstream).write(
        &mut bytes,
        &Outer::new(HOME, ENDPOINT),
        &inner,
        flow,
        lap,
    );
    bytes
}

fn plain(flow: u32, lap: u32) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<Plain>()];
    let inner = Inner::new(REMOTE, HOST, flow, Direction::Downstream);
    Plain::template(ANY, ANY, Direction::Downstream).write(&mut bytes, &inner, flow, lap);
    bytes
}

/// Every header parses with the parsers of the data path, every checksum verifies from scratch.
fn assert_valid_udp_packet(packet: &[u8]) {
    assert!(ipv4::header_checksum_ok(packet));
    let (ip, header_len, total_len) = ipv4::parse(packet).unwrap();
    assert_eq!((ip.protocol, total_len), (PROTOCOL_UDP, packet.len()));
    let datagram = &packet[header_len..];
    assert_eq!(usize::from(udp::parse(datagram).unwrap().length.get()), datagram.len());
    let pseudo = checksum::pseudo_header(
        ip.source.get(),
        ip.destination.get(),
        ip.protocol,
        datagram.len() as u16,
    );
    assert_eq!(checksum::finish(pseudo + checksum::partial(datagram)), 0);
}

#[test]
fn packets_are_valid_in_every_lap() {
    for (flow, lap) in [(0, 0), (0, 1), (1, 65_535), (999_999, 65_536), (u32::MAX, u32::MAX)] {
        assert_valid_udp_packet(&plain(flow, lap)[14..]);
        let bytes = tunnel(flow, lap);
        assert!(ipv4::header_checksum_ok(&bytes[14..]));
        let header = gre::parse(&bytes[34..]).unwrap();
        assert_eq!((header.protocol, header.len), (PROTOCOL_IPV4, 4));
        assert_valid_udp_packet(&bytes[38..]);
    }
}

#[test]
fn no_lap_sends_a_udp_checksum_of_zero() {
    // Among 65,536 consecutive laps every checksum value comes up.
    for lap in 0..65_536 {
        let bytes = plain(3, lap);
        assert_ne!(&bytes[40..42], [0, 0], "lap {lap}");
        assert!(read_plain(&bytes, Direction::Downstream).unwrap().checksums_right, "lap {lap}");
    }
}

#[test]
fn what_is_written_is_read() {
    let seen = read_tunnel(&tunnel(5, 9), Direction::Upstream).unwrap();
    let expected = Seen {
        outer: Some((HOME, ENDPOINT)),
        source: HOST,
        destination: REMOTE,
        flow: 5,
        lap: 9,
        checksums_right: true,
    };
    assert_eq!(seen, expected);
    let seen = read_plain(&plain(6, 1), Direction::Downstream).unwrap();
    assert_eq!(
        seen,
        Seen {
            outer: None,
            source: REMOTE,
            destination: HOST,
            flow: 6,
            lap: 1,
            checksums_right: true
        }
    );
}

#[test]
fn the_other_direction_and_other_shapes_are_not_ours() {
    assert_eq!(read_tunnel(&tunnel(5, 9), Direction::Downstream), None);
    assert_eq!(read_plain(&tunnel(5, 9), Direction::Upstream), None);
    assert_eq!(read_plain(&plain(5, 9)[..59], Direction::Downstream), None);
    assert_eq!(read_plain(&[], Direction::Downstream), None);
}

#[test]
fn every_flipped_bit_behind_the_ethernet_header_is_noticed() {
    let sent = tunnel(5, 9);
    let right = read_tunnel(&sent, Direction::Upstream).unwrap();
    for bit in 14 * 8..sent.len() * 8 {
        let mut bytes = sent.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let seen = read_tunnel(&bytes, Direction::Upstream);
        assert!(
            seen.is_none_or(|seen| !seen.checksums_right),
            "bit {bit}: {seen:?}, right {right:?}"
        );
    }
}
