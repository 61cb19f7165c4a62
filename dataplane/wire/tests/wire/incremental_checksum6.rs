//! The incremental update over IPv6 gives the same checksum as a full computation: for addresses
//! that are replaced by others, and by those of IPv4 as a translator does (RFC 7915).

use bolero::generator::*;
use bolero::{TypeGenerator, check};
use weir_wire::build::{self, TcpBuilder};
use weir_wire::checksum::{self, Delta, partial128};
use weir_wire::ipv6::PROTOCOL_ICMPV6;
use weir_wire::{icmp, icmp6, ipv6, tcp, udp};

/// What a translation replaces, and the replacements; `is_corner` = the payload makes the checksum
/// before it zero.
#[derive(Clone, Debug, TypeGenerator)]
struct Translation {
    before: (u128, u128),
    after: (u128, u128),
    ports: (u16, u16),
    new_port: u16,
    is_corner: bool,
    #[generator(produce::<Vec<u8>>().with().len(0..64usize))]
    payload: Vec<u8>,
}

impl Translation {
    /// Returns the delta of both addresses.
    fn addresses(&self) -> Delta {
        Delta::new().replace128(self.before.0, self.after.0).replace128(self.before.1, self.after.1)
    }

    /// Returns the IPv4 addresses of a translator, and the delta to them.
    fn to_ipv4(&self) -> ((u32, u32), Delta) {
        let addresses = (self.after.0 as u32, self.after.1 as u32);
        let delta = Delta::new()
            .replace32(partial128(self.before.0), addresses.0)
            .replace32(partial128(self.before.1), addresses.1);
        (addresses, delta)
    }

    /// Returns the datagram before the translation. Its source port makes the checksum zero in a
    /// corner case: the one computed with source port 0.
    fn datagram(&self) -> Vec<u8> {
        let of = |source_port| {
            let packet = build::ipv6(self.before.0, self.before.1);
            packet.udp(source_port, self.ports.1, &self.payload)[40..].to_vec()
        };
        if !self.is_corner {
            return of(self.ports.0);
        }
        let zero = of(0);
        of(u16::from_be_bytes([zero[6], zero[7]]))
    }

    fn segment(&self, source_port: u16) -> TcpBuilder {
        build::tcp(source_port, self.ports.1).ack().payload(&self.payload)
    }
}

fn field(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns `bytes` with the field at `at` replaced.
fn with_field(bytes: &[u8], at: usize, value: u16) -> Vec<u8> {
    let mut edited = bytes.to_vec();
    edited[at..at + 2].copy_from_slice(&value.to_be_bytes());
    edited
}

#[test]
fn translated_udp_has_the_checksum_of_its_new_addresses() {
    check!().with_iterations(10_000).with_type::<Translation>().for_each(|translation| {
        let datagram = translation.datagram();
        let ports = Delta::new().replace16(field(&datagram, 0), translation.new_port);
        let edited = with_field(&datagram, 0, translation.new_port);
        let of = |delta: Delta| udp::apply_delta(field(&datagram, 6), delta.then(ports));
        let (source, destination) = translation.after;
        let updated = of(translation.addresses());
        assert_eq!(updated, udp::checksum6(source, destination, &edited));
        assert!(udp::checksum6_ok(source, destination, &with_field(&edited, 6, updated)));
        let ((source, destination), delta) = translation.to_ipv4();
        assert_eq!(of(delta), udp::checksum(source, destination, &edited));
    });
}

#[test]
fn translated_tcp_has_the_checksum_of_its_new_addresses() {
    check!().with_iterations(10_000).with_type::<Translation>().for_each(|translation| {
        let (source, destination) = translation.before;
        let segment = translation.segment(translation.ports.0).build6(source, destination);
        let edited = translation.segment(translation.new_port);
        let ports = Delta::new().replace16(translation.ports.0, translation.new_port);
        let of = |delta: Delta| {
            let updated = delta.then(ports).apply(field(&segment, 16));
            with_field(&with_field(&segment, 0, translation.new_port), 16, updated)
        };
        let (source, destination) = translation.after;
        let expected = edited.clone().build6(source, destination);
        assert_eq!(of(translation.addresses()), expected);
        assert!(tcp::checksum6_ok(source, destination, &expected));
        let ((source, destination), delta) = translation.to_ipv4();
        assert_eq!(of(delta), edited.build(source, destination));
    });
}

#[test]
fn translated_echo_has_the_checksum_of_its_new_addresses() {
    check!().with_iterations(10_000).with_type::<Translation>().for_each(|translation| {
        let echo = |(source, destination), identifier| {
            let packet = build::ipv6(source, destination);
            packet.icmp6_echo_request(identifier, 7, &translation.payload)[40..].to_vec()
        };
        let (before, after) = (translation.before, translation.after);
        let mut message = echo(before, translation.ports.0);
        icmp6::parse_mut(&mut message).unwrap().set_identifier(translation.new_port);
        let identifier = Delta::new().replace16(translation.ports.0, translation.new_port);
        icmp6::apply_delta(&mut message, translation.addresses().then(identifier));
        assert_eq!(message, echo(after, translation.new_port));

        // ICMP of IPv4 has no pseudo header, and other kinds.
        let len = message.len() as u32;
        let pseudo = checksum::pseudo_header6(after.0, after.1, PROTOCOL_ICMPV6, len);
        let kinds = [icmp6::ECHO_REQUEST, icmp::ECHO_REQUEST].map(|kind| u16::from(kind) << 8);
        let delta = Delta::new().replace32(pseudo, 0).replace16(kinds[0], kinds[1]);
        message[0] = icmp::ECHO_REQUEST;
        icmp::apply_delta(&mut message, delta);
        let expected =
            build::icmp_echo(icmp::ECHO_REQUEST, translation.new_port, 7, &translation.payload);
        assert_eq!(message, expected);
    });
}

#[test]
fn quoted_address_that_is_translated_keeps_the_checksum_of_the_error_right() {
    check!().with_iterations(5_000).with_type::<Translation>().for_each(|translation| {
        let (source, destination) = translation.before;
        let lost = build::ipv6(source, destination).udp(1, 2, &translation.payload);
        let mut error = build::ipv6(3, 4).packet_too_big(1280, &lost)[40..].to_vec();
        let (quoted, _) = ipv6::parse_quoted_mut(&mut error[8..]).unwrap();
        quoted.source.set(translation.after.0);
        icmp6::apply_delta(&mut error, Delta::new().replace128(source, translation.after.0));
        assert!(icmp6::checksum_ok(3, 4, &error));
        assert_eq!(icmp6::quote(&error[8..]).map(|quote| quote.source), Some(translation.after.0));
    });
}
