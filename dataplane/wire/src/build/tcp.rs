//! TCP segments.

use crate::tcp::{self, ACK, FIN, PSH, RST, SYN, Tcp};
use crate::{U16, U32};
use zerocopy::IntoBytes;

/// Builder of a TCP segment. Defaults: no flags, sequence and acknowledgment 0, window 65,535.
#[derive(Clone, Debug)]
#[must_use]
pub struct TcpBuilder {
    header: Tcp,
    options: Vec<u8>,
    payload: Vec<u8>,
}

/// Starts a segment; pass it to [`super::Ipv4Builder::tcp`] or
/// [`super::Ipv6Builder::tcp`].
pub fn tcp(source_port: u16, destination_port: u16) -> TcpBuilder {
    let header = Tcp {
        source_port: U16::new(source_port),
        destination_port: U16::new(destination_port),
        sequence: U32::ZERO,
        acknowledgment: U32::ZERO,
        offset_reserved: 0,
        flags: 0,
        window: U16::new(0xffff),
        checksum: U16::ZERO,
        urgent: U16::ZERO,
    };
    TcpBuilder { header, options: Vec::new(), payload: Vec::new() }
}

impl TcpBuilder {
    /// Sets exactly these flags ([`crate::tcp::SYN`] and so on).
    pub fn flags(mut self, flags: u8) -> Self {
        self.header.flags = flags;
        self
    }

    pub fn syn(self) -> Self {
        self.add_flags(SYN)
    }

    pub fn ack(self) -> Self {
        self.add_flags(ACK)
    }

    pub fn fin(self) -> Self {
        self.add_flags(FIN)
    }

    pub fn rst(self) -> Self {
        self.add_flags(RST)
    }

    pub fn psh(self) -> Self {
        self.add_flags(PSH)
    }

    pub fn sequence(mut self, sequence: u32) -> Self {
        self.header.sequence.set(sequence);
        self
    }

    /// Sets the acknowledgment number, not the flag.
    pub fn acknowledgment(mut self, acknowledgment: u32) -> Self {
        self.header.acknowledgment.set(acknowledgment);
        self
    }

    pub fn window(mut self, window: u16) -> Self {
        self.header.window.set(window);
        self
    }

    /// Appends a maximum segment size option, in bytes.
    pub fn mss(self, mss: u16) -> Self {
        let [high, low] = mss.to_be_bytes();
        self.option(&[2, 4, high, low])
    }

    /// Appends the bytes of options unchanged. All options together are padded with zeros to a
    /// multiple of 4, at most 40 bytes.
    pub fn option(mut self, option: &[u8]) -> Self {
        self.options.extend_from_slice(option);
        assert!(self.options.len() <= 40, "TCP options of {} bytes", self.options.len());
        self
    }

    pub fn payload(mut self, payload: impl AsRef<[u8]>) -> Self {
        self.payload = payload.as_ref().to_vec();
        self
    }

    /// Builds the segment with its checksum, between two addresses in host order.
    pub fn build(self, source: u32, destination: u32) -> Vec<u8> {
        self.with_checksum(|segment| tcp::checksum(source, destination, segment))
    }

    /// Builds the segment with its checksum over IPv6, between two addresses in host order.
    pub fn build6(self, source: u128, destination: u128) -> Vec<u8> {
        self.with_checksum(|segment| tcp::checksum6(source, destination, segment))
    }

    fn with_checksum(mut self, checksum: impl FnOnce(&[u8]) -> u16) -> Vec<u8> {
        self.options.resize(self.options.len().next_multiple_of(4), 0);
        self.header.offset_reserved = ((Tcp::LEN + self.options.len()) as u8 / 4) << 4;
        self.header.checksum.set(0);
        let mut segment = [self.header.as_bytes(), &self.options, &self.payload].concat();
        let checksum = checksum(&segment);
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        segment
    }

    fn add_flags(mut self, flags: u8) -> Self {
        self.header.flags |= flags;
        self
    }
}
