//! The image of a further session: what replicas get of its record, at the places that it has
//! there.
//!
//! ```text
//!            0                     4                  16               20      22
//!   record   version               mapping            remote address   state   port
//!   image    version of mapping    slot of mapping    remote address   state   port
//!            0                     4                  8                12      14
//! ```
//!
//! A change names slot and version of the session beside the image, so the image has those of its
//! mapping: a mapping's id is another one on each worker, its slot in the lane is not.
//!
//! Bits 12 and 15 of the state are 0: another value is a record that this version does not know.

use crate::endpoint::Endpoint;
use crate::replication::change::{RecordTable, table_slot};
use crate::sessions::session_state::SessionState;

/// A further session as a replica keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionImage {
    /// The lane's slot of the session's mapping, and the mapping's version.
    pub(crate) mapping_slot: u32,
    pub(crate) mapping_version: u32,
    pub(crate) remote: Endpoint,
    pub(crate) state: SessionState,
}

impl SessionImage {
    pub(crate) const LEN: usize = 16;

    /// Returns the words, each as it lies in memory of a little-endian machine.
    pub(crate) fn bytes(&self) -> [u8; Self::LEN] {
        let Self { mapping_slot, mapping_version, remote, state } = *self;
        let words = [
            u64::from(mapping_version) | u64::from(mapping_slot) << 32,
            u64::from(remote.address)
                | u64::from(state.bits()) << 32
                | u64::from(remote.port) << 48,
        ];
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&words[0].to_le_bytes());
        bytes[8..].copy_from_slice(&words[1].to_le_bytes());
        bytes
    }

    /// Reads an image. None if it is no session's, or if its mapping's slot or version is none.
    pub(crate) fn read(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let (state, port) = (word(12) as u16, (word(12) >> 16) as u16);
        let image = Self {
            mapping_slot: word(4),
            mapping_version: word(0),
            remote: Endpoint::new(word(8), port),
            state: SessionState::known(state),
        };
        (state & !SessionState::KNOWN == 0).then_some(image)?.checked()
    }

    /// Returns the image if its mapping can be in the table of mappings. A flow with another
    /// destination has no further sessions.
    pub(crate) fn checked(self) -> Option<Self> {
        let (table, _) = table_slot(self.mapping_slot);
        let is_further = !self.state.has(SessionState::REDIRECTED);
        (table == RecordTable::Mappings && self.mapping_version != 0 && is_further).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn any_bytes_are_refused_or_are_what_the_image_writes() {
        check!().with_type::<[u8; SessionImage::LEN]>().for_each(|bytes| {
            if let Some(image) = SessionImage::read(bytes) {
                assert_eq!(image.bytes(), *bytes);
            }
        });
    }

    #[test]
    fn an_image_has_its_fields_where_they_are_drawn() {
        let image = SessionImage {
            mapping_slot: 0x0102_0304,
            mapping_version: 0x0506_0708,
            remote: Endpoint::new(0xc000_0201, 443),
            state: SessionState::known(0x4a11),
        };
        let bytes = [8, 7, 6, 5, 4, 3, 2, 1, 1, 2, 0, 0xc0, 0x11, 0x4a, 0xbb, 1];
        assert_eq!(image.bytes(), bytes);
        assert_eq!(SessionImage::read(&bytes), Some(image));
    }

    #[test]
    fn images_of_other_records_and_of_no_mapping_are_refused() {
        let image = SessionImage {
            mapping_slot: 5,
            mapping_version: 1,
            remote: Endpoint::new(1, 2),
            state: SessionState::NONE,
        };
        assert_eq!(SessionImage::read(&image.bytes()), Some(image));
        for bit in [4, 7] {
            let mut bytes = image.bytes();
            bytes[13] |= 1 << bit;
            assert_eq!(SessionImage::read(&bytes), None, "bit {bit} of octet 13");
        }
        for other in [
            SessionImage { mapping_slot: 1024 + 5, ..image },
            SessionImage { mapping_version: 0, ..image },
        ] {
            assert_eq!(SessionImage::read(&other.bytes()), None, "{other:?}");
        }
    }
}
