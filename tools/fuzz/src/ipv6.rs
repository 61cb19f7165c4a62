use bolero::check;
use weir_wire::ipv6::{self, ExtensionFault, Ipv6, UpperLayer};

/// Header and packet end within the bytes; only a quoted packet may extend beyond them.
#[test]
fn parse() {
    check!().for_each(|bytes: &[u8]| {
        header(bytes);
        let mut version_6 = bytes.to_vec();
        if let Some(first) = version_6.first_mut() {
            *first = 0x60 | (*first & 0x0f);
        }
        header(&version_6);
        // A packet that ends with the bytes, one byte before their end and one byte after it.
        let payload_len = bytes.len().wrapping_sub(Ipv6::LEN);
        for payload_len in [payload_len, payload_len.wrapping_sub(1), payload_len.wrapping_add(1)] {
            if let Some(field) = version_6.get_mut(4..6) {
                field.copy_from_slice(&(payload_len as u16).to_be_bytes());
            }
            header(&version_6);
        }
    });
}

fn header(bytes: &[u8]) {
    let quoted = ipv6::parse_quoted(bytes);
    if let Ok((header, total_length)) = quoted {
        assert!(header.version() == 6 && bytes.len() >= Ipv6::LEN);
        assert_eq!(total_length, Ipv6::LEN + usize::from(header.payload_length.get()));
        let mut written = [0; Ipv6::LEN];
        header.emit(&mut written);
        assert_eq!(written, bytes[..Ipv6::LEN]);
        let mut copy = *header;
        copy.set_traffic_class(header.traffic_class());
        copy.set_flow_label(header.flow_label());
        assert_eq!(copy, *header);
    }
    let parsed = ipv6::parse(bytes);
    match (quoted, parsed) {
        (Ok((_, total_length)), Err(_)) => assert!(total_length > bytes.len()),
        (Ok((_, total_length)), Ok(packet)) => {
            assert!(total_length <= bytes.len());
            assert_eq!(quoted, Ok(packet));
        }
        (Err(_), parsed) => assert_eq!(parsed, quoted),
    }
    let edited = ipv6::parse_mut(&mut bytes.to_vec()).map(|(header, total)| (*header, total));
    assert_eq!(edited, parsed.map(|(header, total)| (*header, total)));
    // The short way reads what the general way reads.
    if let Some(plain) = ipv6::parse_plain(bytes) {
        assert_eq!(Ok(plain), parsed);
        let upper = ipv6::walk(bytes, plain.1).expect("no extension headers");
        assert_eq!((upper.protocol, upper.offset), (plain.0.next_header, Ipv6::LEN));
        assert!(upper.fragment.is_none());
    }
}

/// The walk ends within the packet and its limits, does not depend on the bytes behind the packet,
/// and finds in a cut packet what it finds in a whole one, or that it is cut.
#[test]
fn walk() {
    check!().for_each(|bytes: &[u8]| {
        chain(bytes);
        // The first byte chooses the first header, the rest are the headers.
        let Some((&choice, headers)) = bytes.split_first() else { return };
        let kinds = [0, 43, 44, 51, 60];
        let first = kinds[usize::from(choice) % kinds.len()];
        let payload_len = headers.len().min(65_535);
        let header = Ipv6::new(1, 2, first, payload_len as u16);
        let mut packet = vec![0; Ipv6::LEN];
        header.emit(&mut packet);
        packet.extend_from_slice(&headers[..payload_len]);
        chain(&packet);
        // Random headers are seldom short, and seldom followed by another one.
        let mut at = Ipv6::LEN;
        while let Some([next_header, length, ..]) = packet.get_mut(at..) {
            *next_header = [0, 6, 17, 43, 44, 51, 58, 60][usize::from(*next_header % 8)];
            *length %= 5;
            at += (usize::from(*length) + 1) * 8;
        }
        chain(&packet);
    });
}

fn chain(bytes: &[u8]) {
    let Ok((_, total_length)) = ipv6::parse_quoted(bytes) else { return };
    let walked = ipv6::walk(bytes, total_length);
    let packet = &bytes[..bytes.len().min(total_length)];
    assert_eq!(ipv6::walk(packet, total_length), walked);
    if let Ok(upper) = walked {
        upper_layer(&upper, packet, total_length);
    }
    for len in [Ipv6::LEN, packet.len() / 2, packet.len() - 1] {
        let cut = ipv6::walk(&packet[..len.min(packet.len())], total_length);
        assert!(cut == walked || cut == Err(ExtensionFault::Truncated));
    }
}

fn upper_layer(upper: &UpperLayer, packet: &[u8], total_length: usize) {
    let offsets = Ipv6::LEN..=packet.len().min(Ipv6::LEN + ipv6::EXTENSIONS_MAX_BYTES);
    assert!(offsets.contains(&upper.offset));
    assert!(upper.segments_left_at.is_none_or(|at| at < upper.offset && packet[at] > 0));
    let is_extension = [0, 43, 44, 51, 60].contains(&upper.protocol);
    assert!(!is_extension || !upper.has_header());
    let Some(fragment) = upper.fragment else { return };
    let end = fragment.at + ipv6::FRAGMENT_HEADER_LEN;
    assert!(fragment.at >= Ipv6::LEN && end <= upper.offset);
    assert!(fragment.offset.is_multiple_of(8));
    assert_eq!(upper.has_header(), fragment.is_first());
    assert!(fragment.is_first() || end == upper.offset);
    assert!(!fragment.is_atomic() || fragment.is_first() && !fragment.more_fragments);
    let payload_len = total_length - end;
    assert!(!fragment.more_fragments || payload_len.is_multiple_of(8));
    assert!(usize::from(fragment.offset) + payload_len <= 65_535);
}
