//! Packets that pass as they are, between homes without tunnels and what a rule names (RFC 6888
//! REQ-6: "the CGN may forward packets without modification, thus acting like a plain router").
//!
//! ```text
//!   from a home: no session, and the first rule that fits says bypass    --> to the internet
//!   from the internet, to a home's own address: the same, else dropped   --> to the home
//! ```
//!
//! There is no state: every packet is asked about, in both directions. A datagram in fragments is
//! remembered as any other, translated to what it was; an ICMP error passes if the packet that it
//! quotes would. With tunnels the inside addresses of different homes may be the same, so there is
//! no way back, and the configuration has no such rule.

use weir_nat::{Delivery, Home, Inbound, Outbound, Translated};
use weir_wire::frame::{Frame, Pool};

use crate::downstream::{Downstream, DownstreamStep};
use crate::engine::{Context, Engine};
use crate::flow_key::PacketKind;
use crate::icmp_error::Quote;
use crate::rewrite::{self, PacketEnd};
use crate::slow_path::Way;
use crate::upstream::Upstream;
use crate::{AccessMode, DropReason};

impl<F: Frame> Engine<F> {
    /// Sends a packet of a home that a rule lets pass as it is.
    #[cold]
    pub(crate) fn bypass_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        self.translated_up(frame, packet, Translated::plain(packet.key.source), cx)
    }

    /// Whether the packet that a home's ICMP error quotes, one to the home, would pass as it is.
    #[cold]
    pub(crate) fn bypasses_quoted_by_home(&mut self, home: &Home, quote: &Quote) -> bool {
        let &Quote { source: remote, destination: inside, protocol, .. } = quote;
        let quoted = Inbound { public: inside, remote, protocol, tcp_flags: 0 };
        self.nat.bypasses_inbound(home, &quoted)
    }

    /// Returns the home with this address, if packets may pass to it as they are.
    #[inline]
    pub(crate) fn bypassed_home(&self, destination: u32) -> Option<Home> {
        if !self.nat.has_bypass() || self.mode != AccessMode::Plain {
            return None;
        }
        let shard = self.shards.of_source(destination)?;
        Some(Home { shard, outer: destination, gre_key: None })
    }

    /// Handles a packet whose destination is no public address.
    #[cold]
    pub(crate) fn no_public_address<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Downstream,
        cx: &mut Context<'_, P>,
    ) {
        let is_from_link = packet.step == DownstreamStep::Translate;
        let home = self.bypassed_home(packet.key.destination.address).filter(|_| is_from_link);
        let done = match home {
            Some(home) => self.bypass_down(frame, packet, &home, cx),
            None => Err(DropReason::NotLocal),
        };
        if let Err(reason) = done {
            self.discard(reason);
        }
    }

    /// Delivers a packet to a home's own address, if a rule lets it pass as it is.
    #[cold]
    fn bypass_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Downstream,
        home: &Home,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        if !self.duties.serves(home.shard) {
            return Err(DropReason::NotServing);
        }
        if !self.may_take_slow_path(home, Way::Down) {
            return Err(DropReason::SlowPathLimit);
        }
        let to = Translated::plain(Delivery { home: *home, inside: packet.key.destination });
        match packet.key.kind {
            PacketKind::Session | PacketKind::FirstFragment => {
                if !self.nat.bypasses_inbound(home, &packet.inbound()) {
                    return Err(DropReason::NotLocal);
                }
                self.note_downstream(packet, home.shard);
                self.translated_down(frame, packet, to, cx)
            }
            PacketKind::LaterFragment => self.later_fragment_down(frame, packet, home.shard, cx),
            PacketKind::IcmpError => self.bypass_error_down(frame, packet, home, cx),
            PacketKind::IcmpReply => Err(DropReason::IcmpUnsolicited),
        }
    }

    /// Delivers an ICMP error about a packet of a home, if that packet would pass as it is.
    fn bypass_error_down<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Downstream,
        home: &Home,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let (_, icmp) = frame.data_mut().split_at_mut(packet.header_len);
        let Quote { source: inside, destination: remote, protocol, .. } =
            Quote::read(icmp, PacketEnd::Source)?;
        let quoted = Outbound { home: *home, inside, remote, protocol, tcp_flags: 0 };
        let is_own = inside.address == packet.key.destination.address;
        if !is_own || !self.nat.bypasses_outbound(&quoted) {
            return Err(DropReason::IcmpErrorUnmatched);
        }
        self.note_downstream(packet, home.shard);
        self.check_hop(frame.data(), home, cx)?;
        rewrite::decrement_ttl(frame.data_mut());
        self.deliver(frame, home, packet.hash, cx);
        Ok(())
    }
}
