use bolero::check;
use weir_wire::ethernet::Mac;
use weir_wire::icmp6::{self, Icmp6};
use weir_wire::ipv6::{self, Ipv6};
use weir_wire::ndp::{self, NdpFault, NdpMessage, NdpPacket};

/// A message that is accepted fulfils the conditions of RFC 4861 sections 7.1.1 and 7.1.2, and its
/// answer is accepted too.
#[test]
fn parse() {
    check!().for_each(|bytes: &[u8]| {
        let source = [0, 0xfe80 << 112 | 1, 0xff02 << 112 | 1, 2][bytes.len() % 4];
        let destination = if bytes.len().is_multiple_of(3) { 2 } else { ipv6::solicited_node(2) };
        message(source, destination, bytes);
        // Random bytes have no right checksum, and their options seldom lengths that fit.
        let mut valid = bytes.to_vec();
        if let Some(fixed) = valid.get_mut(..9) {
            (fixed[0], fixed[1], fixed[8]) = (133 + fixed[0] % 6, fixed[1] & fixed[8] & 1, 0x20);
        }
        icmp6::set_checksum(source, destination, &mut valid);
        message(source, destination, &valid);
        let mut at = 24;
        while let Some([kind, length, ..]) = valid.get_mut(at..) {
            (*kind, *length) = (*kind % 4, 1 + *length / 254);
            at += usize::from(*length) * 8;
        }
        icmp6::set_checksum(source, destination, &mut valid);
        message(source, destination, &valid);
    });
}

fn message(source: u128, destination: u128, bytes: &[u8]) {
    let mut ip = Ipv6::new(source, destination, ipv6::PROTOCOL_ICMPV6, bytes.len() as u16);
    assert!(ndp::parse(&ip, bytes).is_err(), "a forwarded message");
    ip.hop_limit = ndp::HOP_LIMIT;
    let parsed = ndp::parse(&ip, bytes);
    if parsed == Err(NdpFault::Truncated) {
        assert!(bytes.len() < 24);
    }
    let Ok(message) = parsed else { return };
    assert!(bytes.len() >= Icmp6::LEN && bytes[1] == 0);
    assert!(icmp6::checksum_ok(source, destination, bytes));
    match message {
        NdpMessage::Solicitation(question) => {
            assert!(!ipv6::is_multicast(question.source));
            assert!(bytes.len() >= 24 && (bytes.len() - 24).is_multiple_of(8));
            assert_eq!(question.target.to_be_bytes(), bytes[8..24]);
            assert!(!ipv6::is_multicast(question.target));
            assert_eq!(question.detects_duplicates(), source == 0);
            assert!(source != 0 || question.source_mac.is_none());
            assert!(source != 0 || ipv6::is_solicited_node(destination));
            let answer = NdpPacket::answer(&question, Mac([2; 6]), true);
            let (ip, _) = ipv6::parse(answer.as_bytes()).expect("a built packet");
            let read = ndp::parse(ip, &answer.as_bytes()[Ipv6::LEN..]);
            let Ok(NdpMessage::Advertisement(read)) = read else { panic!("{read:?}") };
            assert_eq!((read.target, read.is_solicited), (question.target, source != 0));
        }
        NdpMessage::Advertisement(answer) => {
            assert!(bytes.len() >= 24 && (bytes.len() - 24).is_multiple_of(8));
            assert_eq!(answer.target.to_be_bytes(), bytes[8..24]);
            assert!(!ipv6::is_multicast(answer.target));
            assert!(!answer.is_solicited || !ipv6::is_multicast(destination));
        }
        NdpMessage::Other(_) => assert!([133, 134, 137].contains(&bytes[0])),
    }
}
