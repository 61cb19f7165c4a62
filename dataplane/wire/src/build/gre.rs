//! GRE encapsulation.

use crate::gre::{GreHeader, PROTOCOL_IPV4};

/// Builder of a GRE header. Defaults: IPv4 inside, no key, no sequence number, no checksum.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct GreBuilder {
    header: GreHeader,
}

/// Starts a header; pass it to [`super::Ipv4Builder::gre`] or
/// [`super::Ipv6Builder::gre`].
pub fn gre() -> GreBuilder {
    GreBuilder { header: GreHeader::new(PROTOCOL_IPV4) }
}

impl GreBuilder {
    /// Sets the ethertype of the payload: [`crate::gre::PROTOCOL_IPV6`] for an IPv6 packet, 0 for a
    /// keepalive.
    pub fn protocol(mut self, protocol: u16) -> Self {
        self.header.protocol = protocol;
        self
    }

    pub fn key(mut self, key: u32) -> Self {
        self.header.key = Some(key);
        self
    }

    /// Sets the key, or none for `None`.
    pub fn maybe_key(mut self, key: Option<u32>) -> Self {
        self.header.key = key;
        self
    }

    pub fn sequence(mut self, sequence: u32) -> Self {
        self.header.sequence = Some(sequence);
        self
    }

    pub fn checksum(mut self) -> Self {
        self.header.has_checksum = true;
        self
    }

    /// Returns header and payload.
    pub fn build(self, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; self.header.emitted_len()];
        packet.extend_from_slice(payload);
        self.header.emit(&mut packet);
        packet
    }
}
