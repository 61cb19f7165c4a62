//! Input from another worker of the cluster: datagrams of replication, and packets that it
//! redirected here.
//!
//! A redirected packet has its original form: a tunnel packet of a home (in plain mode a home's
//! packet), or a packet from the internet to a public address. It is processed as if it had come
//! directly, but not redirected again (a hairpinned one may be, see `redirect.rs`).
//!
//! It comes as a datagram of replication, sealed by the session with the other worker, so no other
//! host can make one and none counts twice; the owner of the sessions opens it and passes it to
//! [`Engine::receive_redirected`]. A worker of an earlier version sends it in IPIP (RFC 2003), in
//! the clear; that form is accepted only while the session with that worker is of the earlier
//! version.

use weir_nat::{Home, LookUp, OutboundKey, ShardIndex};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4;
use weir_wire::ipv6;
use weir_wire::udp;

use crate::datagram::datagram_input;
use crate::downstream;
use crate::engine::{Context, Engine};
use crate::ip_input::{Packet, is_martian};
use crate::peer::Redirects;
use crate::upstream::{Upstream, UpstreamStep};
use crate::{AccessMode, Direction, DropReason, Now, Output, rewrite};

impl<F: Frame> Engine<F> {
    /// Reads a packet to the worker's access address. `Ok(None)`: not a packet of a kind that
    /// workers exchange.
    pub(crate) fn peer_input(
        &self,
        outer: &Packet<'_>,
        packet: &mut Upstream,
    ) -> Result<Option<UpstreamStep>, DropReason> {
        let is_redirected = outer.ip.protocol == ipv4::PROTOCOL_IPIP;
        let is_datagram = self.datagrams.port.is_some_and(|port| is_to_port(outer, port));
        if !self.peers.is_clustered() || !(is_redirected || is_datagram) {
            return Ok(None);
        }
        let redirects = self.peers.redirects(outer.ip.source.get()).ok_or(DropReason::NotPeer)?;
        if !is_redirected {
            return datagram_input(outer, packet).map(Some);
        }
        if redirects != Redirects::Plain {
            return Err(DropReason::RedirectUnsealed);
        }
        // Redirected packets are fragmented inside, if at all.
        if outer.ip.is_fragment() {
            return Err(DropReason::OuterFragment);
        }
        packet.offset += outer.header_len;
        self.stray_input(outer.payload(), packet).map(Some)
    }

    /// Reads a packet that another worker could not serve, without the headers that brought it
    /// here.
    fn stray_input(&self, bytes: &[u8], packet: &mut Upstream) -> Result<UpstreamStep, DropReason> {
        if ipv6::is_version_6(bytes) {
            return stray_step(self.inner4_input(bytes, packet)?);
        }
        let stray = Packet::read(bytes)
            .map_err(|error| error.reason(DropReason::InnerMalformed, DropReason::InnerChecksum))?;
        packet.len = stray.bytes.len();
        let step = match self.mode {
            AccessMode::Gre if stray.ip.protocol == ipv4::PROTOCOL_GRE => {
                let endpoint = stray.ip.destination.get();
                let shard = self.shards.of_endpoint(endpoint).ok_or(DropReason::NotLocal)?;
                if !self.duties.serves(shard) {
                    return Err(DropReason::NotServing);
                }
                self.tunnel_input(&stray, shard, packet)?
            }
            // No packet from the internet with a home's address as source was redirected here.
            AccessMode::Plain if self.is_home(stray.ip.source.get()) => {
                self.home_input(&stray, packet)?
            }
            _ if is_martian(stray.ip) => return Err(DropReason::Martian),
            _ if self.nat.is_public(stray.ip.destination.get()) => {
                return Ok(UpstreamStep::StrayDown);
            }
            _ => return Err(DropReason::NotLocal),
        };
        stray_step(step)
    }

    /// True if this is the address of a home in plain mode, in whichever shard.
    pub(crate) fn is_home(&self, address: u32) -> bool {
        self.nat.is_subscriber(&Home { shard: ShardIndex(0), outer: address, gre_key: None })
    }

    /// Processes a packet that another worker redirected here and sealed, after it was opened:
    /// `frame` is cut to it. It is never redirected again.
    pub fn receive_redirected<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        now: Now,
        pool: &mut P,
        out: &mut Output<F>,
    ) {
        self.slow_path.set_now(now.ms);
        let cx = &mut Context { pool, out, now };
        if self.is_to_endpoint6(frame.data()) {
            // No packet that was read before is in work: strays that begin no flow leave no handle.
            self.nat.release_outers();
            // The home has its handle before the packet is read, which may be its first one here.
            if let Err(reason) = self.intern_source(frame.data()) {
                return self.discard(reason);
            }
        }
        if self.is_redirected6(frame.data()) {
            return self.receive_redirected6(frame, cx);
        }
        let mut packet = Upstream::EMPTY;
        match self.stray_input(frame.data(), &mut packet) {
            Ok(step) => packet.step = step,
            Err(reason) => return self.discard(reason),
        }
        frame.keep(packet.offset, packet.len);
        if packet.step == UpstreamStep::Stray && packet.is_remarked {
            rewrite::traffic_class(frame.data_mut(), packet.tos);
        }
        self.serve_access(frame, &packet, cx);
        self.open_mappings(cx);
    }

    /// Translates a redirected packet of a home, cut to the packet for the internet.
    pub(crate) fn stray_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) {
        self.counters.count_redirected(Direction::Receive);
        let mut packet = *packet;
        // Such packets are few, so each is looked up on its own, and none takes the fast path,
        // which asks nothing.
        packet.fits_fast_path = false;
        let mut look_up = [LookUp { hash: packet.hash, ..LookUp::EMPTY }];
        self.nat.look_up::<OutboundKey, _>(&mut look_up);
        packet.candidate = look_up[0].found();
        self.slow_path_up(frame, &packet, cx);
    }

    /// Translates a redirected packet to a public address.
    pub(crate) fn stray_down<P: Pool<Frame = F>>(&mut self, frame: F, cx: &mut Context<'_, P>) {
        self.counters.count_redirected(Direction::Receive);
        self.translate_down_alone(frame, downstream::DownstreamStep::Stray, cx);
    }
}

/// Returns what is to be done with a packet of a home that another worker redirected here, of which
/// a packet from the home itself has this step.
fn stray_step(step: UpstreamStep) -> Result<UpstreamStep, DropReason> {
    match step {
        UpstreamStep::Translate => Ok(UpstreamStep::Stray),
        UpstreamStep::TimeExceeded => Ok(step),
        // They come as one packet to the worker that receives them from the home.
        UpstreamStep::OuterFragment => Err(DropReason::OuterFragment),
        // Packets that need no mapping are answered by the worker that receives them.
        _ => Err(DropReason::NotLocal),
    }
}

fn is_to_port(outer: &Packet<'_>, port: u16) -> bool {
    outer.ip.protocol == ipv4::PROTOCOL_UDP
        && udp::parse_header(outer.payload())
            .is_ok_and(|header| header.destination_port.get() == port)
}
