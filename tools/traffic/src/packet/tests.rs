use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use weir_wire::ipv4::PROTOCOL_GRE;

use super::*;
use crate::scenario::outer6;

const MACS: (Mac, Mac) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));

fn wire(address: [u8; 4]) -> u32 {
    u32::from_le_bytes(address)
}

fn pair(source: [u8; 4], destination: [u8; 4]) -> u64 {
    u64::from(wire(source)) | u64::from(wire(destination)) << 32
}

/// A family with addresses for the tests, and its header as another parser reads it.
trait Tested: Family {
    const PAIR: fn() -> Self::Pair;

    /// Checks the header of a packet that `net` is, and returns the right checksum of its payload.
    fn check(net: &NetSlice<'_>, len: usize, transport: &TransportSlice<'_>) -> u16;
}

impl Tested for Ipv4 {
    const PAIR: fn() -> u64 = || pair([192, 168, 1, 10], [198, 19, 0, 1]);

    fn check(net: &NetSlice<'_>, len: usize, transport: &TransportSlice<'_>) -> u16 {
        let NetSlice::Ipv4(v4) = net else { panic!("not IPv4") };
        let header = v4.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(usize::from(header.total_len), len);
        match transport {
            TransportSlice::Udp(udp) => udp.to_header().calc_checksum_ipv4(&header, udp.payload()),
            TransportSlice::Tcp(tcp) => tcp.to_header().calc_checksum_ipv4(&header, tcp.payload()),
            other => panic!("{other:?}"),
        }
        .unwrap()
    }
}

impl Tested for Ipv6 {
    const PAIR: fn() -> [u64; 4] = || {
        let halves = |text: &str| {
            let octets = text.parse::<std::net::Ipv6Addr>().unwrap().octets();
            [word64(&octets, 0), word64(&octets, 8)]
        };
        let ([a, b], [c, d]) = (halves("2001:db8:0:100::12"), halves("2001:db8:8000::1"));
        [a, b, c, d]
    };

    fn check(net: &NetSlice<'_>, len: usize, transport: &TransportSlice<'_>) -> u16 {
        let NetSlice::Ipv6(v6) = net else { panic!("not IPv6") };
        let header = v6.header().to_header();
        assert_eq!(usize::from(header.payload_length) + Self::HEADER_LEN, len);
        match transport {
            TransportSlice::Udp(udp) => udp.to_header().calc_checksum_ipv6(&header, udp.payload()),
            TransportSlice::Tcp(tcp) => tcp.to_header().calc_checksum_ipv6(&header, tcp.payload()),
            other => panic!("{other:?}"),
        }
        .unwrap()
    }
}

fn addresses<F: Tested>() -> Addresses<F> {
    Addresses {
        outer: pair([10, 128, 0, 1], [10, 64, 0, 1]),
        inner: F::PAIR(),
        ports: u32::from(20_000u16.swap_bytes()) | u32::from(443u16.swap_bytes()) << 16,
    }
}

fn packet<F: Tested, const TUNNEL: usize, const TCP: bool>(len: usize, mark: Mark) -> Vec<u8> {
    let way = Direction::Upstream;
    let template = Template::new::<F, TUNNEL, TCP>(MACS.0, MACS.1, way, len);
    // A buffer with old content.
    let mut bytes = vec![0xa5; template.len()];
    let segment = match TCP {
        true => Segment::new(way, mark.flow, mark.lap, mark.lap - 1, template.payload_len()),
        false => Segment::default(),
    };
    template.write::<F, TUNNEL, TCP>(&mut bytes, addresses(), mark, segment);
    bytes
}

fn mark(flow: u32, lap: u32) -> Mark {
    Mark { flow, lap, stamp: flow ^ lap }
}

/// Checks that every header parses with another parser, and that its checksums are correct.
fn assert_valid<F: Tested, const TCP: bool>(ip: &[u8]) {
    let sliced = SlicedPacket::from_ip(ip).unwrap();
    let (net, transport) = (sliced.net.unwrap(), sliced.transport.unwrap());
    let right = F::check(&net, ip.len(), &transport);
    match transport {
        TransportSlice::Udp(udp) if !TCP => {
            assert_eq!(udp.checksum(), right);
            assert_ne!(udp.checksum(), 0);
        }
        TransportSlice::Tcp(tcp) if TCP => assert_eq!(tcp.checksum(), right),
        other => panic!("{other:?}"),
    }
}

/// Checks the EtherType, the tunnel header with another parser, and the GRE header.
fn assert_tunnel_valid<F: Tested, const TUNNEL: usize>(bytes: &[u8]) {
    let [a, b] = F::ETHERTYPE.to_be_bytes();
    let outer = SlicedPacket::from_ethernet(bytes).unwrap().net.unwrap();
    match (TUNNEL, &outer) {
        (PLAIN, _) => assert_eq!(bytes[12..14], [a, b]),
        (GRE, NetSlice::Ipv4(v4)) => {
            let header = v4.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert_eq!(usize::from(header.total_len), bytes.len() - 14);
            assert_eq!((header.protocol.0, header.time_to_live), (PROTOCOL_GRE, 64));
            assert_eq!((header.source, header.destination), ([10, 128, 0, 1], [10, 64, 0, 1]));
            assert_eq!(bytes[34..38], [0, 0, a, b]);
        }
        (GRE6, NetSlice::Ipv6(v6)) => {
            let header = v6.header().to_header();
            assert_eq!(usize::from(header.payload_length), bytes.len() - 14 - 40);
            assert_eq!((header.next_header.0, header.hop_limit), (PROTOCOL_GRE, 64));
            assert_eq!(header.source, outer6(0x0a80_0001).octets());
            assert_eq!(header.destination, outer6(0x0a40_0001).octets());
            assert_eq!(bytes[54..58], [0, 0, a, b]);
        }
        other => panic!("{other:?}"),
    }
}

fn check_kind<F: Tested, const TUNNEL: usize, const TCP: bool>() {
    let head = Kind::<F, TUNNEL, TCP>::HEAD;
    for len in [head, head + 1, head + 2, head + 63, 590, 1514] {
        for mark in [mark(0, 1), mark(1, 65_535), mark(999_999, 65_536), mark(u32::MAX, u32::MAX)] {
            let bytes = packet::<F, TUNNEL, TCP>(len, mark);
            assert_eq!(bytes.len(), len);
            assert_tunnel_valid::<F, TUNNEL>(&bytes);
            assert_valid::<F, TCP>(&bytes[14 + TUNNEL..]);
            let outer = if TUNNEL == PLAIN { 0 } else { addresses::<F>().outer };
            let expected =
                Seen { addresses: Addresses { outer, ..addresses() }, mark, checksums_right: true };
            assert_eq!(read::<F, TUNNEL, TCP>(&bytes, Direction::Upstream), Some(expected));
            assert_eq!(claimed_flow::<F, TUNNEL, TCP>(&bytes), Some(mark.flow));
        }
    }
}

#[test]
fn packets_of_every_kind_and_size_are_valid_and_read_as_written() {
    check_family::<Ipv4>();
    check_family::<Ipv6>();
}

fn check_family<F: Tested>() {
    check_kind::<F, PLAIN, false>();
    check_kind::<F, GRE, false>();
    check_kind::<F, PLAIN, true>();
    check_kind::<F, GRE, true>();
    check_kind::<F, GRE6, false>();
    check_kind::<F, GRE6, true>();
}

#[test]
fn rfc_2544s_smallest_frame_has_60_bytes_in_the_buffer() {
    assert_eq!((Kind::<Ipv4, PLAIN, false>::HEAD, Kind::<Ipv4, GRE, false>::HEAD), (60, 84));
    assert_eq!((Kind::<Ipv6, PLAIN, false>::HEAD, Kind::<Ipv4, GRE6, false>::HEAD), (80, 104));
}

#[test]
fn no_lap_sends_a_udp_checksum_of_zero() {
    // Among 65,536 consecutive laps every checksum value occurs.
    for lap in 1..=65_536 {
        let bytes = packet::<Ipv4, PLAIN, false>(60, Mark { flow: 3, lap, stamp: 0 });
        assert_ne!(&bytes[40..42], [0, 0], "lap {lap}");
        assert!(read::<Ipv4, PLAIN, false>(&bytes, Direction::Upstream).unwrap().checksums_right);
    }
}

#[test]
fn other_directions_and_shapes_are_not_packets_of_the_generator() {
    let tunnel = packet::<Ipv4, GRE, false>(84, mark(5, 9));
    let plain = packet::<Ipv4, PLAIN, false>(60, mark(5, 9));
    assert_eq!(read::<Ipv4, GRE, false>(&tunnel, Direction::Downstream), None);
    assert_eq!(read::<Ipv4, PLAIN, false>(&tunnel, Direction::Upstream), None);
    assert_eq!(read::<Ipv4, PLAIN, true>(&plain, Direction::Upstream), None);
    assert_eq!(read::<Ipv4, PLAIN, false>(&plain[..59], Direction::Upstream), None);
    let over_ipv6 = packet::<Ipv4, GRE6, false>(104, mark(5, 9));
    assert_eq!(read::<Ipv4, GRE, false>(&over_ipv6, Direction::Upstream), None);
    assert_eq!(read::<Ipv4, GRE6, false>(&tunnel, Direction::Upstream), None);
    assert_eq!(read::<Ipv6, GRE6, false>(&over_ipv6, Direction::Upstream), None);
    assert_eq!(read::<Ipv4, PLAIN, false>(&over_ipv6, Direction::Upstream), None);
    assert_eq!(read::<Ipv4, GRE6, false>(&over_ipv6[..103], Direction::Upstream), None);
    assert_eq!(read::<Ipv4, PLAIN, false>(&[], Direction::Upstream), None);
}

/// True if no checksum covers the byte and a device may change it: the hop limit of IPv6, and the
/// flow label of a tunnel over it.
fn is_free(byte: usize, bit: usize, tunnel: usize, is_ipv6: bool) -> bool {
    let is_outer = tunnel == GRE6;
    let is_flow_label = byte == 16 || byte == 17 || byte == 15 && bit < 4;
    is_outer && (byte == 14 + 7 || is_flow_label) || is_ipv6 && byte == 14 + tunnel + 7
}

/// Fields that a device may change are accepted with a corrected checksum; any other flipped bit is
/// detected. IPv6 has no checksum of its header: outer addresses are read as others.
fn check_flips<F: Tested, const TUNNEL: usize, const TCP: bool>(len: usize) {
    let sent = packet::<F, TUNNEL, TCP>(len, mark(5, 9));
    let right = read::<F, TUNNEL, TCP>(&sent, Direction::Upstream).unwrap();
    let is_ipv6 = F::ETHERTYPE == Ipv6::ETHERTYPE;
    for bit in 14 * 8..sent.len() * 8 {
        let mut bytes = sent.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let seen = read::<F, TUNNEL, TCP>(&bytes, Direction::Upstream);
        let is_wrong = |seen: Seen<F>| !seen.checksums_right || TUNNEL == GRE6 && seen != right;
        let noticed = seen.is_none_or(is_wrong);
        let is_free = is_free(bit / 8, bit % 8, TUNNEL, is_ipv6);
        assert_eq!(noticed, !is_free, "bit {bit}: {seen:?}, right {right:?}");
    }
}

#[test]
fn every_flipped_bit_behind_the_ethernet_header_is_noticed() {
    check_flips::<Ipv4, GRE, false>(84);
    check_flips::<Ipv4, PLAIN, true>(72);
    check_flips::<Ipv4, GRE, true>(151);
    check_flips::<Ipv4, PLAIN, false>(1514);
    check_flips::<Ipv6, GRE, false>(104);
    check_flips::<Ipv6, PLAIN, true>(92);
    check_flips::<Ipv6, GRE, true>(171);
    check_flips::<Ipv4, GRE6, false>(104);
    check_flips::<Ipv4, GRE6, true>(171);
    check_flips::<Ipv6, GRE6, false>(124);
    check_flips::<Ipv6, GRE6, true>(191);
    check_flips::<Ipv6, PLAIN, false>(1514);
}

#[test]
fn a_shorter_ttl_with_its_checksum_is_no_damage() {
    let mut bytes = packet::<Ipv4, PLAIN, false>(60, mark(1, 1));
    bytes[22] -= 1;
    bytes[24..26].fill(0);
    let checksum = checksum::sum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    assert!(read::<Ipv4, PLAIN, false>(&bytes, Direction::Upstream).unwrap().checksums_right);
}

#[test]
fn segments_open_acknowledge_and_grow() {
    let up = |lap, peer| Segment::new(Direction::Upstream, 7, lap, peer, 100);
    let down = |lap, peer| Segment::new(Direction::Downstream, 7, lap, peer, 100);
    assert_eq!((up(1, 0).flags, up(1, 0).acknowledgement), (TCP_SYN, 0));
    assert_eq!(down(1, 1).flags, TCP_SYN | TCP_ACK);
    // The SYN and its 100 bytes.
    assert_eq!(down(1, 1).acknowledgement, up(1, 0).sequence.wrapping_add(101));
    assert_eq!(up(2, 1).sequence, down(1, 1).acknowledgement);
    assert_eq!(up(2, 1).acknowledgement, down(2, 1).sequence);
    assert_eq!(up(2, 1).flags, TCP_ACK | TCP_PSH);
    assert_eq!(up(3, 1).sequence, up(2, 1).sequence.wrapping_add(100));
}
