//! The image of an IPv6 flow: what replicas get of its record, and whose it is.
//!
//! ```text
//!    0 inside address [u8; 16]   32 inside port u16   36 protocol u8      38 state u16
//!   16 remote address [u8; 16]   34 remote port u16   37 flags u8         40 age u32, seconds
//!                                                                         44 home, see below
//!   flags: 1 a flow of the home was answered, 2 the home's GRE key is known, 4 it is a prefix
//!   home:  outer address u32 | GRE key u32;  of a prefix its first 64 bits
//!   52 paired public address u32 of the home; 0 if it has none
//! ```
//!
//! Big-endian. A change names shard, lane, slot and version beside the image.

use crate::endpoint::Protocol;
use crate::ipv6::flow_key::Endpoint6;
use crate::sessions::session_state::SessionState;

const ANSWERED: u8 = 1;
const KEYED: u8 = 2;
const OF_PREFIX: u8 = 4;

/// An IPv6 flow as a replica keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowImage {
    pub(crate) inside: Endpoint6,
    pub(crate) remote: Endpoint6,
    pub(crate) protocol: Protocol,
    pub(crate) state: SessionState,
    pub(crate) age_sec: u32,
    pub(crate) is_answered: bool,
    /// Whether the home is a prefix and not an outer address.
    pub(crate) is_of_prefix: bool,
    pub(crate) outer: u32,
    pub(crate) gre_key: Option<u32>,
    pub(crate) paired_address: Option<u32>,
}

impl FlowImage {
    /// Bytes of an image.
    pub(crate) const LEN: usize = 56;

    pub(crate) fn bytes(&self) -> [u8; Self::LEN] {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.is_answered, ANSWERED)
            | flag(self.gre_key.is_some(), KEYED)
            | flag(self.is_of_prefix, OF_PREFIX);
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.inside.address.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.remote.address.to_be_bytes());
        bytes[32..34].copy_from_slice(&self.inside.port.to_be_bytes());
        bytes[34..36].copy_from_slice(&self.remote.port.to_be_bytes());
        (bytes[36], bytes[37]) = (self.protocol as u8, flags);
        bytes[38..40].copy_from_slice(&self.state.bits().to_be_bytes());
        bytes[40..44].copy_from_slice(&self.age_sec.to_be_bytes());
        bytes[44..48].copy_from_slice(&self.outer.to_be_bytes());
        bytes[48..52].copy_from_slice(&self.gre_key.unwrap_or(0).to_be_bytes());
        bytes[52..56].copy_from_slice(&self.paired_address.unwrap_or(0).to_be_bytes());
        bytes
    }

    /// Reads an image. None if it has a protocol that no flow has, or is of a prefix without its
    /// lower half.
    pub(crate) fn read(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let flags = bytes[37];
        let is_of_prefix = flags & OF_PREFIX != 0;
        let gre_key = (flags & KEYED != 0).then(|| word(bytes, 48));
        if is_of_prefix && gre_key.is_none() {
            return None;
        }
        let paired_address = word(bytes, 52);
        Some(Self {
            inside: Endpoint6::new(address(bytes, 0), half(bytes, 32)),
            remote: Endpoint6::new(address(bytes, 16), half(bytes, 34)),
            protocol: Protocol::from_number(bytes[36])?,
            state: SessionState::known(half(bytes, 38)),
            age_sec: word(bytes, 40),
            is_answered: flags & ANSWERED != 0,
            is_of_prefix,
            outer: word(bytes, 44),
            gre_key,
            paired_address: (paired_address != 0).then_some(paired_address),
        })
    }
}

fn array<const N: usize>(bytes: &[u8; FlowImage::LEN], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn address(bytes: &[u8; FlowImage::LEN], at: usize) -> u128 {
    u128::from_be_bytes(array(bytes, at))
}

fn word(bytes: &[u8; FlowImage::LEN], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

fn half(bytes: &[u8; FlowImage::LEN], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_reads_back_the_same() {
        bolero::check!()
            .with_type::<([u128; 2], [u16; 3], u8, [u32; 4], [bool; 3])>()
            .cloned()
            .for_each(|(addresses, halves, protocol, words, [answered, keyed, of_prefix])| {
                let image = FlowImage {
                    inside: Endpoint6::new(addresses[0], halves[0]),
                    remote: Endpoint6::new(addresses[1], halves[1]),
                    protocol: Protocol::ALL[usize::from(protocol % 3)],
                    state: SessionState::known(halves[2]),
                    age_sec: words[0],
                    is_answered: answered,
                    is_of_prefix: of_prefix,
                    outer: words[1],
                    gre_key: (keyed || of_prefix).then_some(words[2]),
                    paired_address: (words[3] != 0).then_some(words[3]),
                };
                assert_eq!(FlowImage::read(&image.bytes()), Some(image));
                let mut other = image.bytes();
                other[36] = 47;
                assert_eq!(FlowImage::read(&other), None, "no flow has this protocol");
            });
    }
}
