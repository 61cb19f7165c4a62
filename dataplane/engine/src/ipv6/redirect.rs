//! IPv6 packets without a flow here that another worker may know: they are redirected to it as
//! those of IPv4 are (`redirect.rs`), and handled there by [`Engine::receive_redirected6`].

use weir_nat::{FlowKey6, Home, PacketKey, ShardIndex};
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv6::{self, Ipv6};
use zerocopy::FromBytes;

use crate::engine::{Context, Engine};
use crate::flow_key::PacketKind;
use crate::ipv6::error::Icmp6ErrorCause;
use crate::ipv6::input::{is_tunnel_of_ipv6, transit_input6};
use crate::ipv6::packet::{Packet6State, PacketStep6, Way6};
use crate::tunnel6::protocol_over_ipv6;
use crate::{AccessMode, Direction, DropReason, Side};

impl<F: Frame> Engine<F> {
    /// Returns the worker to which a packet of a home without a flow here is redirected. `None`:
    /// its flow may be made here.
    ///
    /// # Errors
    /// The packet goes nowhere.
    pub(crate) fn elsewhere6_up(
        &self,
        packet: &Packet6State,
        home: &Home,
    ) -> Result<Option<u32>, DropReason> {
        if self.duties.creates(home.shard) {
            return Ok(None);
        }
        if !self.nat.is_subscriber(home) {
            return Err(DropReason::NotSubscriber);
        }
        match self.duties.redirect(home.shard) {
            Some(to) if packet.step != PacketStep6::Stray => Ok(Some(to)),
            // Each of two workers believes that the other knows the flow: a flow in a lane of this
            // worker is better than none.
            Some(_) if self.nat.replica().owned_lanes(home.shard) != 0 => Ok(None),
            _ => Err(DropReason::MissRefused),
        }
    }

    /// As [`elsewhere6_up`](Self::elsewhere6_up), for a packet to a prefix of the shard.
    pub(crate) fn elsewhere6_down(
        &self,
        bytes: &[u8],
        packet: &Packet6State,
        shard: ShardIndex,
    ) -> Result<Option<u32>, DropReason> {
        if self.duties.creates(shard) {
            return Ok(None);
        }
        let may_go = packet.step != PacketStep6::Stray && !self.is_of_home6(bytes);
        match self.duties.redirect(shard).filter(|_| may_go) {
            Some(to) => Ok(Some(to)),
            None => Err(DropReason::MissRefused),
        }
    }

    /// Whether another worker would take a packet for one of a home: without a tunnel the source
    /// address shows from which side a packet came.
    fn is_of_home6(&self, bytes: &[u8]) -> bool {
        let source = Ipv6::ref_from_prefix(bytes).map(|(ip, _)| ip.source.get());
        self.mode == AccessMode::Plain
            && source.is_ok_and(|source| self.nat.shard_of_inside6(source).is_some())
    }

    /// Redirects a packet, and with a first fragment those that wait for it. `home` is its sender
    /// if that is a home.
    pub(crate) fn redirect6<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        home: Option<&Home>,
        to: u32,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let is_first = packet.kind == PacketKind::FirstFragment;
        let datagram = is_first.then(|| self.datagram6(frame.data(), packet, home)).flatten();
        self.redirect_with_held(frame, datagram.map(|(key, _)| key), home, to, cx)
    }

    /// Reports to the sender of a packet which size fits on the way to another worker (RFC 4443
    /// section 3.2); returns the reason of the drop.
    pub(crate) fn report_size6<P: Pool<Frame = F>>(
        &mut self,
        mtu: usize,
        home: Option<&Home>,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) -> DropReason {
        let cause = Icmp6ErrorCause::PacketTooBig { mtu: mtu as u32 };
        match home {
            Some(home) => self.send_icmp6_error_to_home(cause, home, original, cx),
            None => self.send_icmp6_error_to_internet(cause, original, None, cx),
        }
        DropReason::DontFragment
    }

    /// Whether a packet that another worker redirected here is of IPv6, or a tunnel packet with
    /// one.
    pub(crate) fn is_redirected6(&self, bytes: &[u8]) -> bool {
        match (ipv6::is_version_6(bytes), self.mode) {
            (true, AccessMode::Gre) => {
                protocol_over_ipv6(bytes) != Some(gre::PROTOCOL_IPV4)
                    || !self.is_to_endpoint6(bytes)
            }
            (true, AccessMode::Plain) => true,
            (false, mode) => mode == AccessMode::Gre && is_tunnel_of_ipv6(bytes),
        }
    }

    /// Processes a packet that another worker redirected here, after it was opened.
    pub(crate) fn receive_redirected6<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        cx: &mut Context<'_, P>,
    ) {
        let mut packet = Packet6State::EMPTY;
        match self.stray_input6(&mut frame, &mut packet) {
            Ok((side, step)) => {
                packet.step = step;
                self.serve_stray6(side, frame, packet, cx);
            }
            Err(reason) => self.discard(reason),
        }
    }

    /// Carries out the step of a packet that another worker redirected here.
    pub(crate) fn serve_stray6<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        frame: F,
        mut packet: Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        self.counters.count_redirected(Direction::Receive);
        if packet.step == PacketStep6::Forward {
            packet.step = PacketStep6::Stray;
        }
        packet.look_up.hash = packet.key.hash(&self.nat);
        self.nat.look_up::<FlowKey6, _>(std::slice::from_mut(&mut packet));
        self.serve_other6(side, frame, &packet, cx);
    }

    /// Reads a packet that another worker could not serve, and cuts the frame to it. Returns the
    /// side from which it came there, and its step.
    fn stray_input6(
        &self,
        frame: &mut F,
        packet: &mut Packet6State,
    ) -> Result<(Side, PacketStep6), DropReason> {
        if !ipv6::is_version_6(frame.data()) {
            return Ok((Side::Access, self.tunnel_input6(frame, 0, packet)?));
        }
        if self.mode == AccessMode::Gre
            && let Some(to) = self.endpoint6_input(frame.data())?
        {
            return match self.endpoint6_step(frame, 0, &to, packet)? {
                step @ (PacketStep6::Forward | PacketStep6::TimeExceeded) => {
                    Ok((Side::Access, step))
                }
                // Packets that need no flow are answered by the worker that receives them.
                _ => Err(DropReason::NotLocal),
            };
        }
        let (_, len) = ipv6::parse(frame.data()).map_err(|_| DropReason::Ip6Malformed)?;
        frame.truncate(len);
        // No packet from the internet with a home's address as source was redirected here.
        let (side, way) = match self.is_of_home6(frame.data()) {
            true => (Side::Access, Way6::Up),
            false => (Side::Internet, Way6::Down),
        };
        Ok((side, transit_input6(frame.data(), way, packet)?))
    }
}
