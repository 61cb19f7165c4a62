use bolero::check;
use weir_wire::checksum::Delta;
use weir_wire::icmp::{self, Icmp};

/// 8 bytes are a header; a correct checksum stays correct when the identifier is translated.
#[test]
fn parse() {
    check!().for_each(|bytes: &[u8]| {
        let parsed = icmp::parse(bytes);
        assert_eq!(parsed.is_ok(), bytes.len() >= Icmp::LEN);
        let mut message = bytes.to_vec();
        icmp::set_checksum(&mut message);
        let Ok(header) = icmp::parse_mut(&mut message) else {
            assert_eq!(message, bytes, "a message without a whole header is left alone");
            return;
        };
        let kinds = [icmp::is_error, icmp::is_query_request, icmp::is_query_reply];
        assert!(kinds.into_iter().filter(|is_kind| is_kind(header.kind)).count() <= 1);

        let (old, new) = (header.identifier(), header.sequence());
        header.set_identifier(new);
        assert_eq!((header.identifier(), header.sequence()), (new, new));
        icmp::apply_delta(&mut message, Delta::new().replace16(old, new));
        assert!(icmp::checksum_ok(&message));
        assert_eq!(message[Icmp::LEN..], bytes[Icmp::LEN..]);
    });
}
