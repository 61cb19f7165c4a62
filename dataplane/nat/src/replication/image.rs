//! Hot. The image of a mapping: the first half of its record, which replicas get.
//!
//! ```text
//!            0         4                 8       12
//!   record   version   public address    outer   inside address
//!   image    age       public address    outer   inside address
//!
//!            16            18      20         21     22            24               28      30
//!   record   inside port   shard   protocol   kind   public port   remote address   state   port
//!   image    inside port   flags   protocol   kind   public port   remote address   state   port
//! ```
//!
//! A change names shard, lane, slot and version beside the image, so there is room for two more
//! things: the age in seconds in place of the version, and flags in place of the shard, whose
//! number is another one on each worker.

use crate::endpoint::{Endpoint, Protocol, ShardIndex};
use crate::fast_path::LIVE;
use crate::sessions::mapping::{Mapping, MappingKind};
use crate::sessions::session_state::SessionState;

const LOWER_HALF: u64 = 0xffff_ffff;
const FLAGS_SHIFT: u32 = 16;
const SHARD: u64 = 0xffff << FLAGS_SHIFT;
const PROTOCOL_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = 40;
const STATE_SHIFT: u32 = 32;
const INSIDE_PORT: u64 = 0xffff;
const PROTOCOL: u64 = 0xff << PROTOCOL_SHIFT;
const PUBLIC_PORT: u64 = 0xffff << 48;
/// The bits of a state that mean nothing to another worker.
const OWN_STATE: u64 = (0xffff & !SessionState::KNOWN as u64) << STATE_SHIFT;

/// A mapping as a replica keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappingImage {
    words: [u64; 4],
    /// Valid with [`Mapping::KEYED`]; else 0.
    gre_key: u32,
    /// As in the words.
    protocol: Protocol,
    /// As in the words: `Live` or `Quarantined`.
    kind: MappingKind,
}

impl MappingImage {
    /// Bytes of the image without the GRE key.
    pub(crate) const LEN: usize = 32;
    /// Bytes of the GRE key behind it.
    pub(crate) const KEY_LEN: usize = 4;
    /// The flags that replicas get.
    const FLAGS: u16 = Mapping::KEYED | Mapping::UNCLEAN | Mapping::ANSWERED | Mapping::STATIC;

    /// Returns the image of a mapping that is in use or in quarantine. A replica does not
    /// learn whether the mapping is committed.
    #[inline]
    pub(crate) fn of(mapping: &Mapping, age_sec: u32) -> Self {
        let [public, home, inside, remote, ..] = *mapping.words();
        // In use: 1 or 3, which becomes 1.
        let in_use = inside >> KIND_SHIFT & MappingKind::Live as u64;
        let uncommitted = in_use << (KIND_SHIFT + 1);
        let flags = u64::from(mapping.flags & Self::FLAGS) << FLAGS_SHIFT;
        Self {
            words: [
                public & !LOWER_HALF | u64::from(age_sec),
                home,
                inside & !SHARD & !uncommitted | flags,
                remote & !OWN_STATE,
            ],
            gre_key: mapping.gre_key().unwrap_or(0),
            protocol: mapping.protocol,
            kind: match mapping.kind {
                MappingKind::Quarantined => MappingKind::Quarantined,
                _ => MappingKind::Live,
            },
        }
    }

    /// No mapping.
    pub(crate) const EMPTY: Self =
        Self { words: [0; 4], gre_key: 0, protocol: Protocol::Udp, kind: MappingKind::Live };

    /// Fills the record of a copy, but for its times and what only this worker knows.
    #[inline(always)]
    pub(crate) fn fill(&self, mapping: &mut Mapping, shard: ShardIndex) {
        let (inside, public, remote) = (self.inside(), self.public(), self.remote());
        mapping.public_address = public.address;
        mapping.outer = self.outer();
        mapping.inside_address = inside.address;
        mapping.inside_port = inside.port;
        mapping.shard = shard;
        mapping.protocol = self.protocol;
        mapping.kind = self.kind;
        mapping.public_port = public.port;
        mapping.first.address = remote.address;
        mapping.first.state = self.state();
        mapping.first.port = remote.port;
        mapping.gre_key = self.gre_key;
        mapping.flags = self.flags();
    }

    /// Returns the hashed words of the mapping's outbound key, without the GRE key.
    #[inline(always)]
    pub(crate) fn outbound_words(&self, shard: ShardIndex) -> [u64; 2] {
        let inside = self.words[2] & (INSIDE_PORT | PROTOCOL);
        [self.words[1], inside | LIVE | u64::from(shard.0) << FLAGS_SHIFT]
    }

    /// Returns the hashed word of the mapping's inbound key.
    #[inline(always)]
    pub(crate) fn inbound_word(&self) -> u64 {
        self.words[0] >> 32 | LIVE | self.words[2] & (PROTOCOL | PUBLIC_PORT)
    }

    /// Makes an image of what an earlier version of the protocol tells of a mapping.
    pub(crate) fn of_parts(
        (is_quarantined, protocol, flags): (bool, Protocol, u16),
        (outer, gre_key): (u32, u32),
        [inside, public, remote]: [Endpoint; 3],
        state: SessionState,
        age_sec: u32,
    ) -> Self {
        let kind = if is_quarantined { MappingKind::Quarantined } else { MappingKind::Live };
        Self {
            words: [
                u64::from(age_sec) | u64::from(public.address) << 32,
                u64::from(outer) | u64::from(inside.address) << 32,
                u64::from(inside.port)
                    | u64::from(flags & Self::FLAGS) << FLAGS_SHIFT
                    | (protocol as u64) << PROTOCOL_SHIFT
                    | (kind as u64) << KIND_SHIFT
                    | u64::from(public.port) << 48,
                u64::from(remote.address)
                    | u64::from(state.bits()) << STATE_SHIFT
                    | u64::from(remote.port) << 48,
            ],
            gre_key: if flags & Mapping::KEYED != 0 { gre_key } else { 0 },
            protocol,
            kind,
        }
    }

    /// Returns the image with another outer address: the handle that this worker has for it.
    pub(crate) fn with_outer(mut self, outer: u32) -> Self {
        self.words[1] = self.words[1] & !LOWER_HALF | u64::from(outer);
        self
    }

    /// Returns the words, each as it lies in memory of a little-endian machine.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads an image. None if it has a protocol or a kind that no mapping has, or lacks its key.
    #[inline(always)]
    pub(crate) fn read(bytes: &[u8; Self::LEN], gre_key: Option<u32>) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let words = [word(0), word(8), word(16), word(24)];
        let protocol = Protocol::from_number((words[2] >> PROTOCOL_SHIFT) as u8)?;
        let kind = match (words[2] >> KIND_SHIFT) as u8 {
            kind if kind == MappingKind::Live as u8 => MappingKind::Live,
            kind if kind == MappingKind::Quarantined as u8 => MappingKind::Quarantined,
            _ => return None,
        };
        let is_keyed = words[2] >> FLAGS_SHIFT & u64::from(Mapping::KEYED) != 0;
        let gre_key = if is_keyed { gre_key? } else { 0 };
        Some(Self { words, gre_key, protocol, kind })
    }

    /// As [`is_redirected`](Self::is_redirected), of the bytes of an image.
    #[inline(always)]
    pub(crate) fn is_of_redirected(bytes: &[u8]) -> bool {
        /// The upper octet of the state.
        const AT: usize = 29;
        bytes.get(AT).is_some_and(|octet| octet & (SessionState::REDIRECTED >> 8) as u8 != 0)
    }

    /// Whether the mapping's flow has another destination than its home asked.
    #[inline(always)]
    pub(crate) fn is_redirected(&self) -> bool {
        self.words[3] & u64::from(SessionState::REDIRECTED) << STATE_SHIFT != 0
    }

    #[inline(always)]
    pub(crate) fn age_sec(&self) -> u32 {
        self.words[0] as u32
    }

    #[inline(always)]
    pub(crate) fn outer(&self) -> u32 {
        self.words[1] as u32
    }

    #[inline(always)]
    pub(crate) fn inside(&self) -> Endpoint {
        Endpoint::new((self.words[1] >> 32) as u32, self.words[2] as u16)
    }

    #[inline(always)]
    pub(crate) fn public(&self) -> Endpoint {
        Endpoint::new((self.words[0] >> 32) as u32, (self.words[2] >> 48) as u16)
    }

    #[inline(always)]
    pub(crate) fn remote(&self) -> Endpoint {
        Endpoint::new(self.words[3] as u32, (self.words[3] >> 48) as u16)
    }

    /// Returns the state without the bits that mean nothing here.
    #[inline(always)]
    pub(crate) fn state(&self) -> SessionState {
        SessionState::known((self.words[3] >> STATE_SHIFT) as u16)
    }

    #[inline(always)]
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    #[inline(always)]
    pub(crate) fn is_quarantined(&self) -> bool {
        self.kind == MappingKind::Quarantined
    }

    /// Returns those of [`Mapping`]'s flags that replicas get.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u16 {
        (self.words[2] >> FLAGS_SHIFT) as u16 & Self::FLAGS
    }

    #[inline(always)]
    pub(crate) fn is_static(&self) -> bool {
        self.words[2] & u64::from(Mapping::STATIC) << FLAGS_SHIFT != 0
    }

    #[inline(always)]
    pub(crate) fn gre_key(&self) -> Option<u32> {
        (self.flags() & Mapping::KEYED != 0).then_some(self.gre_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast_path::{inbound_word, outbound_words};
    use bolero::{TypeGenerator, check};

    #[derive(Clone, Copy, Debug, TypeGenerator)]
    struct Fields {
        is_quarantined: bool,
        protocol: u8,
        flags: u16,
        words: [u32; 6],
        halves: [u16; 4],
    }

    impl Fields {
        fn image(self) -> MappingImage {
            let Self { is_quarantined, protocol, flags, words, halves } = self;
            let endpoint = |at: usize| Endpoint::new(words[at], halves[at]);
            MappingImage::of_parts(
                (is_quarantined, Protocol::ALL[usize::from(protocol % 3)], flags),
                (words[3], words[4]),
                [endpoint(0), endpoint(1), endpoint(2)],
                SessionState::known(halves[3]),
                words[5],
            )
        }
    }

    #[test]
    fn an_image_of_parts_returns_them_and_reads_back_the_same() {
        check!().with_type::<Fields>().cloned().for_each(|fields| {
            let image = fields.image();
            let Fields { words, halves, .. } = fields;
            let endpoint = |at: usize| Endpoint::new(words[at], halves[at]);
            let ends = [image.inside(), image.public(), image.remote()];
            assert_eq!(ends, [endpoint(0), endpoint(1), endpoint(2)]);
            assert_eq!((image.outer(), image.age_sec()), (words[3], words[5]));
            let is_keyed = fields.flags & Mapping::KEYED != 0;
            assert_eq!(image.gre_key(), is_keyed.then_some(words[4]));
            assert_eq!(image.is_quarantined(), fields.is_quarantined);
            assert_eq!(image.protocol(), Protocol::ALL[usize::from(fields.protocol % 3)]);
            assert_eq!(image.flags(), fields.flags & MappingImage::FLAGS);
            assert_eq!(image.state(), SessionState::known(halves[3]));
            assert_eq!(MappingImage::read(&image.bytes(), Some(words[4])), Some(image));
            assert_eq!(MappingImage::is_of_redirected(&image.bytes()), image.is_redirected());
            let unkeyed = MappingImage::read(&image.bytes(), None);
            assert_eq!(unkeyed, (!is_keyed).then_some(image));
        });
    }

    /// The image of a record equals the one made of its fields, whatever else the record holds.
    #[test]
    fn an_image_of_a_record_holds_its_fields() {
        check!().with_type::<(Fields, [u16; 3], bool)>().cloned().for_each(
            |(fields, [shard, extra, window], is_uncommitted)| {
                let expected = fields.image();
                let mut mapping = <Mapping as weir_flow::Record>::EMPTY;
                weir_flow::Record::set_version(&mut mapping, u32::from(window) + 1);
                expected.fill(&mut mapping, ShardIndex(shard));
                assert_eq!(mapping.is_redirected(), expected.is_redirected());
                if is_uncommitted && !fields.is_quarantined {
                    mapping.kind = MappingKind::Uncommitted;
                }
                mapping.flags |= extra & !MappingImage::FLAGS;
                assert_eq!(MappingImage::of(&mapping, fields.words[5]), expected);
                assert_eq!(mapping.shard, ShardIndex(shard));
                let outbound = outbound_words(&mapping.home(), mapping.inside(), mapping.protocol);
                assert_eq!(expected.outbound_words(mapping.shard), outbound);
                let inbound = inbound_word(mapping.public(), mapping.protocol);
                assert_eq!(expected.inbound_word(), inbound);
            },
        );
    }

    #[test]
    fn unknown_protocols_and_kinds_are_refused() {
        let fields =
            Fields { is_quarantined: false, protocol: 0, flags: 0, words: [1; 6], halves: [2; 4] };
        let bytes = fields.image().bytes();
        for (at, byte) in [(20, 47), (20, 0), (21, 0), (21, 3), (21, 5), (21, 17)] {
            let mut other = bytes;
            other[at] = byte;
            assert_eq!(MappingImage::read(&other, None), None, "octet {at} = {byte}");
        }
    }
}
