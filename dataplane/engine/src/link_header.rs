//! Hot. What stands in front of a packet on its link: the Ethernet header and perhaps a VLAN tag, ready made.

use weir_wire::ethernet::{ETHERTYPE_VLAN, Ethernet, Mac, Vlan};
use weir_wire::frame::Frame;
use zerocopy::IntoBytes;

/// Bytes without and with a VLAN tag. Constants, so that what follows lies at fixed places from one pointer.
pub(crate) const UNTAGGED: usize = Ethernet::LEN;
pub(crate) const TAGGED: usize = Ethernet::LEN + Vlan::LEN;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkHeader {
    is_tagged: bool,
    /// The first [`UNTAGGED`] or all [`TAGGED`] count.
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

    /// The same header to another station.
    pub(crate) fn to(mut self, mac: Mac) -> Self {
        self.bytes[..mac.as_bytes().len()].copy_from_slice(mac.as_bytes());
        self
    }

    /// Puts the header in front of a packet; false when there is no headroom.
    #[inline(always)]
    pub(crate) fn push<F: Frame>(&self, frame: &mut F) -> bool {
        self.push_before(frame, 0).is_some()
    }

    /// Puts the header and `room` bytes, whose content is unspecified, in front of a packet; returns those and the packet.
    /// None when there is no headroom.
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
