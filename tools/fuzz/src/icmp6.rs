use bolero::check;
use weir_wire::build;
use weir_wire::checksum::Delta;
use weir_wire::icmp6::{self, Icmp6, QuotedSession};
use weir_wire::ipv6::{self, Ipv6};

/// 8 bytes are a header; a correct checksum stays correct when the identifier and the addresses are
/// translated.
#[test]
fn parse() {
    check!().for_each(|bytes: &[u8]| {
        let parsed = icmp6::parse(bytes);
        assert_eq!(parsed.is_ok(), bytes.len() >= Icmp6::LEN);
        let (source, destination) = (1_u128 << 100 | 1, 0xff02 << 112 | 1);
        let mut message = bytes.to_vec();
        icmp6::set_checksum(source, destination, &mut message);
        let Ok(header) = icmp6::parse_mut(&mut message) else {
            assert_eq!(message, bytes, "a message without a whole header is left alone");
            return;
        };
        assert!(!icmp6::quotes_a_packet(header.kind) || icmp6::is_error(header.kind));
        let (old, new) = (header.identifier(), header.sequence());
        header.set_identifier(new);
        assert_eq!((header.identifier(), header.sequence()), (new, new));
        let delta = Delta::new().replace16(old, new).replace128(source, !source);
        icmp6::apply_delta(&mut message, delta);
        assert!(icmp6::checksum_ok(!source, destination, &message));
        assert_eq!(message[Icmp6::LEN..], bytes[Icmp6::LEN..]);
    });
}

/// What is read of a quote lies within it, and is the same of a longer one.
#[test]
fn quote() {
    check!().for_each(|bytes: &[u8]| {
        quoted(bytes);
        let mut version_6 = bytes.to_vec();
        let Some(fixed) = version_6.get_mut(..Ipv6::LEN) else { return };
        fixed[0] = 0x60 | fixed[0] & 0x0f;
        let chosen = [6, 17, 58, 60, 44, 43];
        fixed[6] = chosen[usize::from(fixed[6]) % chosen.len()];
        quoted(&version_6);
        // A whole quoted packet of each protocol that has identifiers.
        let payload = &bytes[Ipv6::LEN..bytes.len().min(60_000)];
        for protocol in [6, 17, 58] {
            quoted(&build::ipv6(1, 2).payload(protocol, payload));
            quoted(&build::ipv6(1, 2).fragment(7, 0, false).payload(protocol, payload));
        }
    });
}

fn quoted(bytes: &[u8]) {
    let Some(quote) = icmp6::quote(bytes) else { return };
    let (header, total_length) = ipv6::parse_quoted(bytes).expect("a quote has a whole header");
    assert_eq!((quote.source, quote.destination), (header.source.get(), header.destination.get()));
    assert_eq!(ipv6::walk(bytes, total_length), Ok(quote.upper));
    let upper = &bytes[quote.upper.offset..bytes.len().min(total_length)];
    match quote.session {
        QuotedSession::Ports { source, destination } => {
            assert!(quote.upper.has_header());
            assert_eq!(upper[..2], source.to_be_bytes());
            assert_eq!(upper[2..4], destination.to_be_bytes());
        }
        QuotedSession::Echo { is_request, identifier } => {
            assert!(quote.upper.has_header() && quote.upper.protocol == 58);
            assert_eq!(upper[0], if is_request { 128 } else { 129 });
            assert_eq!(upper[4..6], identifier.to_be_bytes());
        }
        QuotedSession::None => {}
    }
    // Less of the quote says less, but nothing else.
    for len in [bytes.len() / 2, bytes.len() - 1] {
        if let Some(shorter) = icmp6::quote(&bytes[..len]) {
            assert_eq!((shorter.source, shorter.upper), (quote.source, quote.upper));
            assert!([QuotedSession::None, quote.session].contains(&shorter.session));
        }
    }
}
