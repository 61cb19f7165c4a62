//! Packets without a mapping here that another worker may know: they are redirected to it, once.
//!
//! They go as datagrams of replication, sealed by the session with the other worker. This step only
//! makes room and queues them; the owner of the sessions seals them at the end of its turn
//! ([`Engine::send_redirects`]). A worker of an earlier version gets them in IPIP (RFC 2003), in
//! the clear; a worker without a session gets none.
//!
//! This serves late packets of a hand-over, packets while one switch sends to the new worker
//! already and another still to the old one, flows that replication has not reported yet, and a
//! wrong route on a switch. A home's packet gets its tunnel header again; its address then leads it
//! to the same step of the other worker. `peer_input.rs` handles a packet that was redirected here:
//! in this module it is only known as a stray, which is not redirected again. Only a home's stray
//! that turns around to another home of ours (hairpinning) may go once more, as a packet to a
//! public address; that leg is final.
//!
//! The link's MTU is no larger for these packets than for others, and no worker reassembles the
//! datagrams of another one. So a packet that does not fit is fragmented inside, before it is
//! sealed or put into IPIP, and each fragment follows its first fragment there like any other. A
//! packet that may not be fragmented, as none of IPv6, is dropped, and an ICMP error reports the
//! size that fits to its sender (RFC 2003 section 5.1).

use std::net::Ipv4Addr;

use weir_nat::{Dependency, Home, Refusal, ShardIndex};
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::ipv6;
use weir_wire::udp::Udp;

use crate::downstream::{self, Downstream};
use crate::engine::{Context, Engine};
use crate::flow_key::PacketKind;
use crate::fragment_cache::{DatagramKey, Translation};
use crate::ip_error::IcmpErrorCause;
use crate::ip_fragment::fragment;
use crate::party::{LimitedParty, Party};
use crate::peer::Redirects;
use crate::upstream::{self, Upstream};
use crate::{
    AccessMode, BURST_MAX, Direction, DropReason, Output, Side, ecn, fragment_down, fragment_up,
};

/// The ECN bits of the traffic class octet. The outer header says "not capable", so no congestion
/// mark that it gets is carried inside (RFC 6040 section 4.1, compatibility mode).
const ECN: u8 = 0b11;

/// Length of the headers in front of a sealed packet, without the link header, bytes.
const SEALED_HEADERS: usize = Ipv4::LEN + Udp::LEN;

/// Largest number of packets that wait to be sealed, including the fragments made and released in a
/// burst.
pub(crate) const UNSEALED_MAX: usize = 8 * BURST_MAX;

/// A packet for another worker, complete except for the seal and the headers before it.
#[derive(Debug)]
pub(crate) struct Unsealed<F> {
    to: u32,
    /// Traffic class octet of the outer header.
    tos: u8,
    frame: F,
}

impl<F: Frame> Engine<F> {
    /// Returns the worker to which a packet of a home without a mapping here is redirected.
    pub(crate) fn redirect_up_to(&self, packet: &Upstream) -> Option<u32> {
        let is_final = packet.step == upstream::UpstreamStep::Stray;
        let may_go = !is_final && self.nat.is_subscriber(&packet.home);
        may_go.then(|| self.duties.redirect(packet.home.shard)).flatten()
    }

    /// Returns the worker to which a packet to a public address of the shard is redirected that has
    /// no mapping here.
    pub(crate) fn redirect_down_to(&self, packet: &Downstream, shard: ShardIndex) -> Option<u32> {
        let is_final = packet.step == downstream::DownstreamStep::Stray;
        // Without a tunnel the source address shows the other worker from which side a packet came.
        let is_forged = self.mode == AccessMode::Plain && self.is_home(packet.key.source.address);
        let may_go = !is_final && !is_forged;
        may_go.then(|| self.duties.redirect(shard)).flatten()
    }

    /// Redirects a packet of a home of which nothing is known here.
    ///
    /// # Errors
    /// `unknown`, if no other worker can know of it.
    pub(crate) fn redirect_unknown_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        unknown: DropReason,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let to = self.redirect_up_to(packet).ok_or(unknown)?;
        self.redirect(frame, Some(&packet.home), to, cx)
    }

    /// As [`redirect_unknown_up`](Self::redirect_unknown_up), for a packet to a public address of
    /// the shard.
    pub(crate) fn redirect_unknown_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Downstream,
        shard: ShardIndex,
        unknown: DropReason,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let to = self.redirect_down_to(packet, shard).ok_or(unknown)?;
        self.redirect(frame, None, to, cx)
    }

    /// Handles a packet of a home without a mapping, in a shard in which none is to be made here.
    #[cold]
    pub(crate) fn miss_elsewhere_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        if !self.nat.is_subscriber(&packet.home) {
            return Err(DropReason::NotSubscriber);
        }
        let shard = packet.home.shard;
        match (self.redirect_up_to(packet), self.duties.redirect(shard)) {
            (Some(to), _) => self.redirect_session_up(frame, packet, to, cx),
            // Each of two workers believes that the other knows the flow: a flow in a lane of this
            // worker is better than none.
            (None, Some(_)) if self.nat.replica().owned_lanes(shard) != 0 => {
                self.wait(frame, packet)
            }
            _ => Err(DropReason::MissRefused),
        }
    }

    /// Redirects a packet of a home that has ports, and with it the later fragments of its
    /// datagram.
    pub(crate) fn redirect_session_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        to: u32,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Upstream { home, key, .. } = packet;
        let datagram = (key.kind == PacketKind::FirstFragment)
            .then(|| fragment_up::datagram_key(frame.data(), &self.nat.identity(home), key));
        self.redirect_with_held(frame, datagram, Some(home), to, cx)
    }

    /// Handles a packet from the internet that the NAT refused, in a shard in which no mapping is
    /// to be made here.
    #[cold]
    pub(crate) fn miss_elsewhere_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Downstream,
        shard: ShardIndex,
        refusal: Refusal,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let is_unknown = matches!(refusal, Refusal::NoMapping | Refusal::TcpNotSyn);
        let to = self.redirect_down_to(packet, shard).filter(|_| is_unknown);
        let Some(to) = to else { return Err(refusal.into()) };
        let datagram = (packet.key.kind == PacketKind::FirstFragment)
            .then(|| fragment_down::datagram_key(frame.data(), &packet.key));
        self.redirect_with_held(frame, datagram, None, to, cx)
    }

    /// Redirects a packet; `datagram` is the key of a first fragment, whose held fragments follow
    /// it.
    pub(crate) fn redirect_with_held<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        datagram: Option<DatagramKey>,
        home: Option<&Home>,
        to: u32,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Some(datagram) = datagram else { return self.redirect(frame, home, to, cx) };
        let group = datagram.home.map_or(0, |home| self.nat.group_of(&home));
        let (party, nothing) = (datagram.sender(group), Dependency::Nothing);
        let mut early =
            self.fragments.learn(datagram, party, Translation::Away, nothing, cx.now.ms);
        let done = self.redirect(frame, home, to, cx);
        while let Some(held) = self.fragments.release(&mut early) {
            if let Err(reason) = self.redirect(held, home, to, cx) {
                self.discard(reason);
            }
        }
        done
    }

    /// Redirects a packet to another worker; `home` is its sender if that is a home. The packet is
    /// fragmented if necessary.
    pub(crate) fn redirect<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        home: Option<&Home>,
        to: u32,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let redirects = self.peers.redirects(to).ok_or(DropReason::PeerUnresolved)?;
        let is_ipv6 = ipv6::is_version_6(frame.data());
        let is_tunnel6 = home.is_some_and(|home| self.has_tunnel6(home));
        let room = match redirects {
            Redirects::Refused => return Err(DropReason::PeerNoSession),
            // A version that does not seal packets knows no IPv6.
            Redirects::Plain if is_ipv6 || is_tunnel6 => return Err(DropReason::MissRefused),
            Redirects::Plain => Ipv4::LEN,
            Redirects::Sealed { front, behind } => SEALED_HEADERS + front + behind,
        } + home.map_or(0, |home| self.tunnel_len(home));
        let mtu = self.link(Side::Access).mtu.saturating_sub(room);
        let is_sealed = redirects != Redirects::Plain;
        if frame.data().len() <= mtu {
            return self.send_redirected(frame, home, to, is_sealed, cx);
        }
        if is_ipv6 {
            return Err(self.report_size6(mtu, home, frame.data(), cx));
        }
        let (ip, header_len, _) = ipv4::parse(frame.data()).map_err(|_| DropReason::IpMalformed)?;
        if ip.dont_fragment() {
            let cause = IcmpErrorCause::FragmentationNeeded { mtu: mtu as u16 };
            match home {
                Some(home) => self.send_icmp_error_to_home(cause, home, frame.data(), cx),
                None => self.send_icmp_error_to_internet(cause, frame.data(), None, cx),
            }
            return Err(DropReason::DontFragment);
        }
        let Context { pool, out, now } = cx;
        let now = *now;
        fragment(frame.data(), header_len, mtu, *pool, |pool, piece| {
            let cx = &mut Context { pool, out, now };
            if let Err(reason) = self.send_redirected(piece, home, to, is_sealed, cx) {
                self.discard(reason);
            }
        })
    }

    fn send_redirected<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        home: Option<&Home>,
        to: u32,
        is_sealed: bool,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let header = self.header_to_peer(to).ok_or(DropReason::PeerUnresolved)?;
        let (tos, source, protocol) = sent_by(frame.data());
        let remote = LimitedParty { party: source, group: 0 };
        let party = home.map_or(remote, |home| self.party_of(home));
        if !self.redirects.admit(&party, cx.now.ms) {
            return Err(DropReason::RedirectLimit);
        }
        if !frame.push(home.map_or(0, |home| self.tunnel_len(home))) {
            return Err(DropReason::NoBuffer);
        }
        let whole = frame.data_mut();
        if let Some(home) = home.filter(|home| self.has_tunnel6(home)) {
            self.restore_tunnel6(whole, home, protocol)?;
        } else if let Some(home) = home.filter(|_| self.mode == AccessMode::Gre) {
            let endpoint = self.shards.endpoint(home.shard);
            let payload_len = (whole.len() - Ipv4::LEN) as u16;
            let mut tunnel = Ipv4::new(home.outer, endpoint, ipv4::PROTOCOL_GRE, payload_len);
            tunnel.tos = ecn::encapsulate(tos);
            tunnel.set_checksum();
            tunnel.emit(whole);
            gre::emit(&mut whole[Ipv4::LEN..], protocol, home.gre_key);
        }
        if is_sealed {
            return match self.unsealed.len() < UNSEALED_MAX {
                true => {
                    self.unsealed.push_back(Unsealed { to, tos: tos & !ECN, frame });
                    Ok(())
                }
                false => Err(DropReason::RedirectLimit),
            };
        }
        let payload_len = whole.len() as u16;
        let outer = header.push_before(&mut frame, Ipv4::LEN).ok_or(DropReason::NoBuffer)?;
        self.emit_outer(outer, to, ipv4::PROTOCOL_IPIP, tos & !ECN, payload_len);
        self.counters.count_redirected(Direction::Transmit);
        self.emit(Side::Access, frame, cx);
        Ok(())
    }

    fn emit_outer(&self, buffer: &mut [u8], to: u32, protocol: u8, tos: u8, payload_len: u16) {
        let own = self.link(Side::Access).address;
        let mut ip = Ipv4::new(own, to, protocol, payload_len);
        ip.tos = tos;
        ip.set_fragment(true, false, 0);
        ip.set_checksum();
        ip.emit(buffer);
    }

    /// Sends the packets that wait to be sealed for other workers. `seal` gets the worker's
    /// address, the number of bytes in front of the packet, and all of them with the room behind
    /// it. If it returns false there is no session, and the packet is dropped. To be called after
    /// the bursts of a turn were received: little more than a burst waits.
    pub fn send_redirects(
        &mut self,
        out: &mut Output<F>,
        mut seal: impl FnMut(Ipv4Addr, usize, &mut [u8]) -> bool,
    ) {
        while let Some(unsealed) = self.unsealed.pop_front() {
            let is_sent = |frame| match out.push(Side::Access, frame) {
                true => Ok(()),
                false => Err(DropReason::NoBuffer),
            };
            match self.seal_redirect(unsealed, &mut seal).and_then(is_sent) {
                Ok(()) => self.counters.count_redirected(Direction::Transmit),
                Err(reason) => self.discard(reason),
            }
        }
    }

    fn seal_redirect(
        &self,
        unsealed: Unsealed<F>,
        seal: &mut impl FnMut(Ipv4Addr, usize, &mut [u8]) -> bool,
    ) -> Result<F, DropReason> {
        let Unsealed { to, tos, mut frame } = unsealed;
        // It may have changed since the packet was queued.
        let redirects = self.peers.redirects(to);
        let (Some(Redirects::Sealed { front, behind }), Some(port)) =
            (redirects, self.datagrams.port)
        else {
            return Err(DropReason::PeerNoSession);
        };
        let header = self.header_to_peer(to).ok_or(DropReason::PeerUnresolved)?;
        if !frame.push(front) || !frame.extend(behind) {
            return Err(DropReason::NoBuffer);
        }
        if !seal(Ipv4Addr::from_bits(to), front, frame.data_mut()) {
            return Err(DropReason::PeerNoSession);
        }
        let payload_len = frame.data().len() as u16;
        let outer = header.push_before(&mut frame, SEALED_HEADERS).ok_or(DropReason::NoBuffer)?;
        let udp_len = payload_len + Udp::LEN as u16;
        self.emit_outer(outer, to, ipv4::PROTOCOL_UDP, tos, udp_len);
        // No UDP checksum (RFC 768): the seal is stronger.
        Udp::new(port, port, payload_len).emit(&mut outer[Ipv4::LEN..]);
        Ok(frame)
    }
}

/// Returns the traffic class octet of a packet, its source, and the GRE protocol of its family.
fn sent_by(packet: &[u8]) -> (u8, Party, u16) {
    if let Ok((ip, _)) = ipv6::parse(packet) {
        return (ip.traffic_class(), Party::remote6(ip.source.get()), gre::PROTOCOL_IPV6);
    }
    let (tos, source) = ipv4::parse(packet).map_or((0, 0), |(ip, ..)| (ip.tos, ip.source.get()));
    (tos, Party::Remote(source), gre::PROTOCOL_IPV4)
}
