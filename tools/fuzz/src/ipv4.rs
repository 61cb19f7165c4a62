use bolero::check;
use weir_wire::ipv4::{self, Ipv4};

/// Header and packet end within the bytes; only a quoted packet may extend beyond them.
#[test]
fn parse() {
    check!().for_each(|bytes: &[u8]| {
        lengths(bytes);
        let mut version_4 = bytes.to_vec();
        if let Some(first) = version_4.first_mut() {
            *first = 0x40 | (*first & 0x0f);
        }
        lengths(&version_4);
        without_options(&version_4);
        // A packet that ends with the bytes, one byte before their end and one byte after it.
        for total_length in [bytes.len(), bytes.len().wrapping_sub(1), bytes.len() + 1] {
            if let Some(field) = version_4.get_mut(2..4) {
                field.copy_from_slice(&(total_length as u16).to_be_bytes());
            }
            lengths(&version_4);
        }
    });
}

fn lengths(bytes: &[u8]) {
    let quoted = ipv4::parse_quoted(bytes);
    if let Ok((header, header_len, total_length)) = quoted {
        assert_eq!(header.version(), 4);
        assert!(header_len >= Ipv4::LEN && header_len % 4 == 0);
        assert!(header_len <= bytes.len() && header_len <= total_length);
        assert_eq!(header_len, header.header_len());
        assert_eq!(header.is_fragment(), header.more_fragments() || header.fragment_offset() > 0);
        assert!(header.fragment_offset() <= 65_528);
    }
    let parsed = ipv4::parse(bytes);
    match (quoted, parsed) {
        (Ok((_, _, total_length)), Err(_)) => assert!(total_length > bytes.len()),
        (Ok((_, _, total_length)), Ok(packet)) => {
            assert!(total_length <= bytes.len());
            assert_eq!(quoted, Ok(packet));
        }
        (Err(_), parsed) => assert_eq!(parsed, quoted),
    }
    assert_eq!(
        parsed.map(|(_, header_len, total_length)| (header_len, total_length)),
        ipv4::parse_mut(&mut bytes.to_vec())
            .map(|(_, header_len, total_length)| (header_len, total_length))
    );
    if ipv4::header_checksum_ok(bytes) {
        assert!(bytes.len() >= Ipv4::LEN);
    }
}

/// A correct checksum stays correct when the header is edited.
fn without_options(bytes: &[u8]) {
    let Ok((header, Ipv4::LEN, _)) = ipv4::parse_quoted(bytes) else { return };
    let mut header = *header;
    let mut written = [0; Ipv4::LEN];
    header.emit(&mut written);
    assert_eq!(written, bytes[..Ipv4::LEN]);
    header.set_checksum();
    header.emit(&mut written);
    assert!(ipv4::header_checksum_ok(&written));
    if header.ttl > 0 {
        let ttl = header.ttl;
        header.decrement_ttl();
        assert_eq!(header.ttl, ttl - 1);
        header.emit(&mut written);
        assert!(ipv4::header_checksum_ok(&written));
    }
    let (offset, more_fragments) = (header.fragment_offset(), header.more_fragments());
    header.set_fragment(header.dont_fragment(), more_fragments, offset);
    assert_eq!((header.fragment_offset(), header.more_fragments()), (offset, more_fragments));
}
