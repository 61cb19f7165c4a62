use bolero::check;
use weir_wire::udp::{self, Udp};

/// The datagram ends within the bytes; a computed checksum is correct and never 0 (RFC 768).
#[test]
fn parse() {
    check!().for_each(|bytes: &[u8]| {
        datagram(bytes);
        let mut whole = bytes.to_vec();
        let len = whole.len() as u16;
        if let Some(length) = whole.get_mut(4..6) {
            length.copy_from_slice(&len.to_be_bytes());
        }
        datagram(&whole);
    });
}

fn datagram(bytes: &[u8]) {
    assert_eq!(udp::parse_header(bytes).is_ok(), bytes.len() >= Udp::LEN);
    let parsed = udp::parse(bytes);
    assert_eq!(parsed.is_ok(), udp::parse_mut(&mut bytes.to_vec()).is_ok());
    let Ok(header) = parsed else { return };
    let length = usize::from(header.length.get());
    assert!((Udp::LEN..=bytes.len()).contains(&length));

    let mut datagram = bytes[..length].to_vec();
    let (source, destination) = (0x0a00_0001, 0xc633_6401);
    let checksum = udp::checksum(source, destination, &datagram);
    assert_ne!(checksum, 0);
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    assert!(udp::checksum_ok(source, destination, &datagram));
    datagram[6..8].copy_from_slice(&[0, 0]);
    assert!(udp::checksum_ok(source, destination, &datagram), "0 = the sender computed none");
}
