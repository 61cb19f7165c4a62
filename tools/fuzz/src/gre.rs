use bolero::check;
use weir_wire::Malformed;
use weir_wire::gre;

/// The header ends within the packet; emitted again in front of the same payload it parses to the
/// same.
#[test]
fn parse() {
    check!().for_each(|bytes: &[u8]| {
        header(bytes);
        // Only the bits that RFC 2784 and RFC 2890 define: every other random header is refused.
        let mut plausible = bytes.to_vec();
        if let Some(flags) = plausible.get_mut(..2) {
            flags[0] &= 0xb0;
            flags[1] &= 0xf8;
        }
        header(&plausible);
        checksummed(&plausible);
    });
}

fn header(bytes: &[u8]) {
    let Ok(header) = gre::parse(bytes) else { return };
    assert!((4..=16).contains(&header.len) && header.len <= bytes.len());
    assert_eq!(header.len, header.emitted_len());
    assert_eq!(header.protocol.to_be_bytes(), bytes[2..4]);
    let mut copy = bytes.to_vec();
    header.emit(&mut copy);
    assert_eq!(gre::parse(&copy), Ok(header));
    assert_eq!(copy[header.len..], bytes[header.len..]);

    let mut short = vec![0; gre::header_len(header.key)];
    gre::emit(&mut short, header.protocol, header.key);
    let parsed = gre::parse(&short).expect("an emitted header is valid");
    assert_eq!((parsed.protocol, parsed.key), (header.protocol, header.key));
    assert_eq!(parsed.len, short.len());
}

/// With a correct checksum the packet is accepted, with one bit of the payload flipped it is not.
fn checksummed(bytes: &[u8]) {
    let mut without = bytes.to_vec();
    if let Some(flags) = without.first_mut() {
        *flags &= 0x7f;
    }
    let Ok(mut header) = gre::parse(&without) else { return };
    header.has_checksum = true;
    header.len += 4;
    let mut packet = vec![0; 4];
    packet.extend_from_slice(&without);
    header.emit(&mut packet);
    assert_eq!(gre::parse(&packet), Ok(header));
    if packet.len() > header.len {
        packet[header.len] ^= 1;
        assert_eq!(gre::parse(&packet), Err(Malformed::Checksum));
    }
}
