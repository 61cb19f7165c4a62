//! Hot. Link-layer header of an outgoing packet, precomputed: the Ethernet header and possibly a
//! VLAN tag.

use weir_wire::ethernet::{ETHERTYPE_VLAN, Ethernet, Mac, Vlan};
use weir_wire::frame::Frame;
use zerocopy::IntoBytes;

/// Header lengths in bytes without and with a VLAN tag. They are constants, so that all that
/// follows is at fixed offsets from one pointer.
pub(crate) const UNTAGGED: usize = Ethernet::LEN;
pub(crate) const TAGGED: usize = Ethernet::LEN + Vlan::LEN;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkHeader {
    is_tagged: bool,
    /// The header: the first [`UNTAGGED`] or all [`TAGGED`] bytes.
    bytes: [u8; TAGGED],
}

impl LinkHeader {
    pub(crate) fn new(to: Mac, from: Mac, vlan: Option<u16>, ethertype: u16) -> Self {
        let mut bytes = [0; TAGGED];
        let (ethernet, tag) = bytes.split_at_mut(Ethernet::LEN);
        match vlan {
            None => Ethernet::new(to, from, ethertype).emit(ethernet),
            Some(id) => {
                Ethernet::new(to, from, ETHERTYPE_VLAN).emit(ethernet);
                Vlan::new(id, ethertype).emit(tag);
            }
        }
        Self { is_tagged: vlan.is_some(), bytes }
    }

    /// Returns the same header for another station.
    pub(crate) fn to(mut self, mac: Mac) -> Self {
        self.bytes[..mac.as_bytes().len()].copy_from_slice(mac.as_bytes());
        self
    }

    /// Prepends the header to a packet; false if there is no headroom.
    #[inline(always)]
    pub(crate) fn push<F: Frame>(&self, frame: &mut F) -> bool {
        self.push_before(frame, 0).is_some()
    }

    /// Prepends the header and `room` bytes, whose content is unspecified, to a packet; returns
    /// those bytes and the packet. `None` if there is no headroom.
    #[inline(always)]
    pub(crate) fn push_before<'a, F: Frame>(
        &self,
        frame: &'a mut F,
        room: usize,
    ) -> Option<&'a mut [u8]> {
        match self.is_tagged {
            false => self.push_bytes::<UNTAGGED, F>(frame, room),
            true => self.push_bytes::<TAGGED, F>(frame, room),
        }
    }

    /// Replaces the first `pull` bytes of a frame by the header and `room` bytes, whose content is
    /// unspecified, and keeps `len` bytes behind them; returns the room and what follows. `None` if
    /// there is no headroom. The header has `LEN` bytes.
    #[inline(always)]
    pub(crate) fn replace<'a, const LEN: usize, F: Frame>(
        &self,
        frame: &'a mut F,
        pull: usize,
        room: usize,
        len: usize,
    ) -> Option<&'a mut [u8]> {
        if !frame.reframe(pull, LEN + room, len) {
            return None;
        }
        let (front, rest) = frame.data_mut().split_first_chunk_mut::<LEN>()?;
        // Whole words, of which the last overlaps the one before.
        *front.first_chunk_mut::<8>()? = *self.bytes.first_chunk()?;
        if LEN == TAGGED {
            *front[8..].first_chunk_mut::<8>()? = *self.bytes[8..].first_chunk()?;
        }
        *front.last_chunk_mut::<8>()? = *self.bytes[LEN - 8..].first_chunk()?;
        Some(rest)
    }

    #[inline(always)]
    fn push_bytes<'a, const LEN: usize, F: Frame>(
        &self,
        frame: &'a mut F,
        room: usize,
    ) -> Option<&'a mut [u8]> {
        if !frame.push(LEN + room) {
            return None;
        }
        let (front, rest) = frame.data_mut().split_first_chunk_mut::<LEN>()?;
        *front = *self.bytes.first_chunk()?;
        Some(rest)
    }
}
