//! IPv6 fragments: each follows its first fragment, as in IPv4 (`fragment_cache.rs`).
//!
//! RFC 5722: fragments of a datagram must not overlap, and a host drops a datagram whose fragments
//! do. A firewall decides by the first fragment, so a later one must not overlap that.

use weir_nat::{Delivery6, FlowClass, Home, ShardIndex};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv6::{self, FRAGMENT_HEADER_LEN, FragmentHeader};

use crate::DropReason;
use crate::engine::{Context, Engine};
use crate::fragment_cache::{DatagramEnds, DatagramKey, Translation};
use crate::ipv6::output::decrement_hop_limit;
use crate::ipv6::packet::{Packet6State, PacketStep6};

impl<F: Frame> Engine<F> {
    /// Forwards a first fragment of a home and all that waited for it.
    pub(crate) fn first_fragment6_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        home: &Home,
        class: FlowClass,
        cx: &mut Context<'_, P>,
    ) {
        let Some((datagram, end)) = self.datagram6(frame.data(), packet, Some(home)) else {
            return self.discard(DropReason::Ip6Malformed);
        };
        let (party, dependency) = (self.party_of(home), self.nat.dependency());
        let translation = Translation::Up6 { class, end };
        let mut early = self.fragments.learn(datagram, party, translation, dependency, cx.now.ms);
        self.leave6(frame, packet, class, cx);
        while let Some(held) = self.fragments.release(&mut early) {
            self.follow6_up(held, class, end, datagram.flow(), cx);
        }
    }

    pub(crate) fn later_fragment6_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        home: &Home,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let found = self.datagram6(frame.data(), packet, Some(home));
        let (datagram, _) = found.ok_or(DropReason::Ip6Malformed)?;
        let learned = self.fragments.learned(&datagram);
        if let Some((_, dependency)) = learned {
            self.nat.depend_on(dependency);
        }
        match learned.map(|(translation, _)| translation) {
            Some(Translation::Up6 { class, end }) => {
                self.follow6_up(frame, class, end, datagram.flow(), cx);
                Ok(())
            }
            // The home is not checked yet: no flow was found for it.
            _ if !self.nat.is_subscriber(home) => Err(DropReason::NotSubscriber),
            Some(Translation::Away) => match self.elsewhere6_up(packet, home)? {
                Some(to) => self.redirect6(frame, packet, Some(home), to, cx),
                None => Err(DropReason::MissRefused),
            },
            // It would be held for a first fragment that goes to another worker.
            _ if packet.step == PacketStep6::Stray && !self.duties.creates(home.shard) => {
                Err(DropReason::MissRefused)
            }
            _ => self.hold_fragment(datagram, frame, cx.now),
        }
    }

    fn follow6_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        class: FlowClass,
        first_end: u16,
        flow: u32,
        cx: &mut Context<'_, P>,
    ) {
        if overlaps(frame.data(), first_end) {
            return self.discard(DropReason::FragmentOverlap);
        }
        let bytes = frame.data_mut();
        decrement_hop_limit(bytes);
        if class != FlowClass::NONE {
            self.mark6(bytes, class);
        }
        self.send6(crate::Side::Internet, frame, flow, cx);
    }

    /// Delivers a first fragment from the internet and all that waited for it.
    pub(crate) fn first_fragment6_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        delivery: &Delivery6,
        cx: &mut Context<'_, P>,
    ) {
        let Some((datagram, end)) = self.datagram6(frame.data(), packet, None) else {
            return self.discard(DropReason::Ip6Malformed);
        };
        let (party, dependency) = (self.party_of(&delivery.home), self.nat.dependency());
        let translation = Translation::Down6 { delivery: *delivery, end };
        let mut early = self.fragments.learn(datagram, party, translation, dependency, cx.now.ms);
        self.arrive6(frame, packet, delivery, cx);
        while let Some(held) = self.fragments.release(&mut early) {
            if let Err(reason) = self.follow6_down(held, delivery, end, datagram.flow(), cx) {
                self.discard(reason);
            }
        }
    }

    pub(crate) fn later_fragment6_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        shard: ShardIndex,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let found = self.datagram6(frame.data(), packet, None);
        let (datagram, _) = found.ok_or(DropReason::Ip6Malformed)?;
        let learned = self.fragments.learned(&datagram);
        if let Some((_, dependency)) = learned {
            self.nat.depend_on(dependency);
        }
        match learned.map(|(translation, _)| translation) {
            Some(Translation::Down6 { delivery, end }) => {
                if packet.step != PacketStep6::Stray {
                    self.duties.note_traffic(shard);
                }
                self.follow6_down(frame, &delivery, end, datagram.flow(), cx)
            }
            Some(Translation::Away) => match self.elsewhere6_down(frame.data(), packet, shard)? {
                Some(to) => self.redirect6(frame, packet, None, to, cx),
                None => Err(DropReason::MissRefused),
            },
            // It would be held for a first fragment that goes to another worker.
            _ if packet.step == PacketStep6::Stray && !self.duties.creates(shard) => {
                Err(DropReason::MissRefused)
            }
            _ if !self.may_remote_take_slow_path(datagram.sender(0).party) => {
                Err(DropReason::SlowPathLimit)
            }
            _ => self.hold_fragment(datagram, frame, cx.now),
        }
    }

    fn follow6_down<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        delivery: &Delivery6,
        first_end: u16,
        flow: u32,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        if overlaps(frame.data(), first_end) {
            return Err(DropReason::FragmentOverlap);
        }
        self.check_size6(frame.data(), delivery, cx)?;
        let bytes = frame.data_mut();
        decrement_hop_limit(bytes);
        if delivery.class != FlowClass::NONE {
            self.mark6(bytes, delivery.class);
        }
        self.deliver6(frame, &delivery.home, flow, cx);
        Ok(())
    }

    /// Returns the datagram of a fragment, and where the fragment ends in the datagram, bytes.
    pub(crate) fn datagram6(
        &self,
        bytes: &[u8],
        packet: &Packet6State,
        home: Option<&Home>,
    ) -> Option<(DatagramKey, u16)> {
        let (ip, len) = ipv6::parse(bytes).ok()?;
        let fragment = packet.fragment?;
        let ends = DatagramEnds::Ipv6 {
            source: ip.source.get(),
            destination: ip.destination.get(),
            identification: fragment.identification,
        };
        let key = DatagramKey { home: home.map(|home| self.nat.identity(home)), ends };
        Some((key, end_of(&fragment, len)))
    }
}

/// Returns where a fragment, of a packet of `len` bytes, ends in its datagram.
fn end_of(fragment: &FragmentHeader, len: usize) -> u16 {
    let payload = len.saturating_sub(fragment.at + FRAGMENT_HEADER_LEN);
    (usize::from(fragment.offset) + payload).min(usize::from(u16::MAX)) as u16
}

/// Whether a later fragment overlaps the first one, which ends at `first_end` of the datagram.
fn overlaps(bytes: &[u8], first_end: u16) -> bool {
    let fragment = ipv6::walk(bytes, bytes.len()).ok().and_then(|upper| upper.fragment);
    fragment.is_none_or(|fragment| fragment.offset < first_end)
}
