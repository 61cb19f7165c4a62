//! Hot. The tunnel packets over IPv6 of a burst: they are taken out of it, parted by the family
//! inside, and go through the steps of other tunnels, compiled for their tunnel header.

use weir_wire::ethernet::ETHERTYPE_IPV6;
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;

use crate::both_families::PacketFamily;
use crate::burst::Burst;
use crate::engine::{Context, Engine};
use crate::ipv6::{Burst6, FastPacket6};
use crate::packet_direction::PacketDirection;
use crate::tunnel6::{GRE6, protocol_over_ipv6};

impl<F: Frame> Engine<F> {
    /// Returns the family inside of a frame with a tunnel packet over IPv6, and prefetches what is
    /// read of its home; `None` for another frame.
    #[inline(never)]
    pub(crate) fn family_over_ipv6<const LINK: usize>(&self, frame: &[u8]) -> Option<PacketFamily> {
        let (link, packet) = frame.split_at_checked(LINK)?;
        if link[LINK - 2..] != ETHERTYPE_IPV6.to_be_bytes() {
            return None;
        }
        let inside = match protocol_over_ipv6(packet)? {
            gre::PROTOCOL_IPV4 => PacketFamily::Ipv4,
            gre::PROTOCOL_IPV6 => PacketFamily::Ipv6,
            _ => return None,
        };
        self.begin_home_of_tunnel6(packet);
        Some(inside)
    }

    /// Processes the frames with tunnel packets over IPv6.
    #[inline(never)]
    pub(crate) fn burst_over_ipv6<D: PacketDirection, const LINK: usize, P: Pool<Frame = F>>(
        &mut self,
        burst: &mut Burst<D>,
        burst6: &mut Burst6<F>,
        cx: &mut Context<'_, P>,
    ) {
        let frames = &mut burst6.over_ipv6[0];
        if !frames.is_empty() {
            let (_, slow_frames) = self.read::<D, LINK, GRE6>(frames, &mut burst.fast);
            self.begin_look_ups::<D>(&mut burst.fast[..frames.len()]);
            self.translate_all::<D, LINK, GRE6, P>(frames, burst, slow_frames, cx);
        }
        if !burst6.over_ipv6[1].is_empty() {
            burst6.frames.append(&mut burst6.over_ipv6[1]);
            let slow = self.read6_over_ipv6::<D, LINK>(&burst6.frames, &mut burst6.fast);
            self.begin6::<D>(burst6, slow);
            self.forward_all6::<D, LINK, GRE6, P>(burst6, slow, cx);
        }
    }

    /// Reads the fast-path packets of a burst of tunnel packets over IPv6 with IPv6 inside. Returns
    /// the frames that are left to the slow path, a bit for each.
    #[inline(never)]
    fn read6_over_ipv6<D: PacketDirection, const LINK: usize>(
        &self,
        frames: &[F],
        slots: &mut [FastPacket6],
    ) -> u64 {
        let mut slow = 0;
        for ((at, packet), frame) in slots.iter_mut().enumerate().zip(frames) {
            if !D::read_fast6::<LINK, GRE6, F>(self, frame, packet) {
                slow |= 1 << at;
            }
        }
        slow
    }
}

#[cfg(test)]
#[path = "over_ipv6_tests.rs"]
mod tests;
