use bolero::check;
use weir_wire::arp::{self, Arp};

/// 28 bytes are a packet, fewer are not; emitting it again gives the same bytes.
#[test]
fn parse() {
    check!().for_each(|bytes: &[u8]| {
        let parsed = arp::parse(bytes);
        assert_eq!(parsed.is_ok(), bytes.len() >= Arp::LEN);
        let Ok(packet) = parsed else { return };
        let mut copy = [0; Arp::LEN];
        packet.emit(&mut copy);
        assert_eq!(copy, bytes[..Arp::LEN]);
        assert!(!(packet.is_request() && packet.is_reply()));
        assert_eq!(packet.is_valid_ipv4_ethernet(), bytes.starts_with(&[0, 1, 8, 0, 6, 4]));
        assert_eq!(packet.is_gratuitous(), bytes[14..18] == bytes[24..28]);
    });
}
