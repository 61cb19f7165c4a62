//! Hot. The tunnel packets over IPv6 of a burst: they are taken out of it, parted by the family
//! inside, and go through the steps of other tunnels, compiled for their tunnel header.

use weir_wire::ethernet::ETHERTYPE_IPV6;
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;

use crate::burst::{Burst, ones};
use crate::engine::{BURST_MAX, Context, Engine};
use crate::ipv6::Burst6;
use crate::packet_direction::PacketDirection;
use crate::tunnel6::{GRE6, protocol_over_ipv6};

/// Which frames of a burst have tunnel packets over IPv6, a bit for each, by the family inside.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OverIpv6 {
    pub(crate) ipv4: u64,
    pub(crate) ipv6: u64,
}

impl OverIpv6 {
    #[inline(always)]
    pub(crate) fn all(&self) -> u64 {
        self.ipv4 | self.ipv6
    }
}

impl<F: Frame> Engine<F> {
    /// Finds the tunnel packets over IPv6 among the frames that the fast path over IPv4 has left, a
    /// bit for each, and prefetches what is read of their homes.
    #[inline(never)]
    pub(crate) fn find_over_ipv6<const LINK: usize>(&self, frames: &[F], left: u64) -> OverIpv6 {
        let mut found = OverIpv6::default();
        for at in ones(left) {
            let Some((link, packet)) = frames[at].data().split_at_checked(LINK) else { continue };
            if link[LINK - 2..] != ETHERTYPE_IPV6.to_be_bytes() {
                continue;
            }
            match protocol_over_ipv6(packet) {
                Some(gre::PROTOCOL_IPV4) => found.ipv4 |= 1 << at,
                Some(gre::PROTOCOL_IPV6) => found.ipv6 |= 1 << at,
                _ => continue,
            }
            self.begin_home_of_tunnel6(packet);
        }
        found
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
            let all = u64::MAX >> (BURST_MAX - burst6.frames.len());
            let slow = self.read6::<D, LINK, GRE6>(&burst6.frames, all, &mut burst6.fast).slow;
            self.begin6::<D>(burst6, slow);
            self.forward_all6::<D, LINK, GRE6, P>(burst6, slow, cx);
        }
    }
}

#[cfg(test)]
#[path = "over_ipv6_tests.rs"]
mod tests;
