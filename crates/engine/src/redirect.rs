//! Packets without a mapping that another worker may know: they go to it in IPIP (RFC 2003), once.
//!
//! So are served the stragglers of a hand-over, packets that one switch already sends to the new worker and the other still
//! to the old one, flows that replication has not told of yet, and a wrong route on a switch. A tunnel packet of a home gets
//! its tunnel header again; whose address it carries then leads it to the other worker's same step. How a packet that came
//! so ends is in `peer_input.rs`: here it is only known as a stray, which is final.
//!
//! The link is not larger for these packets than for others, and no worker puts fragments together. So a packet that does
//! not fit is cut inside, before it goes into IPIP, and follows its first fragment there as any other; one that may not be
//! cut is dropped, and its sender told the size that fits (RFC 2003 section 5.1).

use weir_nat::{Dependency, Home, Refusal, ShardIndex};
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv4::{self, Ipv4};

use crate::downstream::{self, Downstream};
use crate::engine::{Context, Engine};
use crate::flow_key::Kind;
use crate::fragment_cache::{DatagramKey, Translation};
use crate::ip_error::Complaint;
use crate::ip_fragment::fragment;
use crate::party::Party;
use crate::upstream::{self, Upstream};
use crate::{AccessMode, Direction, DropReason, Side, ecn, fragment_down, fragment_up};

/// The bits of ECN in the traffic class octet. The outer header says "not capable", so nothing it meets is to be
/// carried inside (RFC 6040 section 4.1, compatibility mode).
const ECN: u8 = 0b11;

impl<F: Frame> Engine<F> {
    /// To whom a packet of a home goes that is not known here.
    pub(crate) fn redirect_up_to(&self, packet: &Upstream) -> Option<u32> {
        let is_final = packet.step == upstream::Step::Stray;
        let may_go = !is_final && self.nat.is_subscriber(&packet.home);
        may_go.then(|| self.duties.redirect(packet.home.shard)).flatten()
    }

    /// To whom a packet to a public address of the shard goes that is not known here.
    pub(crate) fn redirect_down_to(&self, packet: &Downstream, shard: ShardIndex) -> Option<u32> {
        let is_final = packet.step == downstream::Step::Stray;
        // Without a tunnel the source tells the other worker which side a packet came from.
        let is_forged = self.mode == AccessMode::Plain && self.is_home(packet.key.source.address);
        let may_go = !is_final && !is_forged;
        may_go.then(|| self.duties.redirect(shard)).flatten()
    }

    /// A packet of a home without a mapping, of a shard in which none is to be made here.
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
            // Each of two workers takes the other for the one that knows: better a flow in a lane of ours than none.
            (None, Some(_)) if self.nat.owned_lanes(shard) != 0 => self.wait(frame, packet),
            _ => Err(DropReason::MissRefused),
        }
    }

    /// A packet of a home that has ports goes elsewhere, and so will the later fragments of its datagram.
    pub(crate) fn redirect_session_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        to: u32,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Upstream { home, key, .. } = packet;
        let datagram = (key.kind == Kind::FirstFragment)
            .then(|| fragment_up::datagram_key(frame.data(), &self.nat.identity(home), key));
        self.redirect_with_held(frame, datagram, Some(home), to, cx)
    }

    /// A packet from the internet that the NAT refused, of a shard in which no mapping is to be made here.
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
        let datagram = (packet.key.kind == Kind::FirstFragment)
            .then(|| fragment_down::datagram_key(frame.data(), &packet.key));
        self.redirect_with_held(frame, datagram, None, to, cx)
    }

    /// `datagram`: of a first fragment.
    fn redirect_with_held<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        datagram: Option<DatagramKey>,
        home: Option<&Home>,
        to: u32,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Some(datagram) = datagram else { return self.redirect(frame, home, to, cx) };
        let (party, nothing) = (datagram.sender(), Dependency::Nothing);
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

    /// A packet to another worker, from its home if it has one; in pieces if it must.
    pub(crate) fn redirect<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        home: Option<&Home>,
        to: u32,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let mtu = self.link(Side::Access).mtu.saturating_sub(self.redirect_room(home));
        if frame.data().len() <= mtu {
            return self.send_redirected(frame, home, to, cx);
        }
        let (ip, header_len, _) = ipv4::parse(frame.data()).map_err(|_| DropReason::IpMalformed)?;
        if ip.dont_fragment() {
            let complaint = Complaint::FragmentationNeeded { mtu: mtu as u16 };
            match home {
                Some(home) => self.complain_to_home(complaint, home, frame.data(), cx),
                None => self.complain_to_internet(complaint, frame.data(), None, cx),
            }
            return Err(DropReason::DontFragment);
        }
        let Context { pool, out, now } = cx;
        let now = *now;
        fragment(frame.data(), header_len, mtu, *pool, |pool, piece| {
            let cx = &mut Context { pool, out, now };
            if let Err(reason) = self.send_redirected(piece, home, to, cx) {
                self.discard(reason);
            }
        })
    }

    /// Bytes in front of a redirected packet, without those of the link.
    fn redirect_room(&self, home: Option<&Home>) -> usize {
        match home {
            Some(home) if self.mode == AccessMode::Gre => {
                2 * Ipv4::LEN + gre::header_len(home.gre_key)
            }
            _ => Ipv4::LEN,
        }
    }

    fn send_redirected<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        home: Option<&Home>,
        to: u32,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let header = self.header_to_peer(to).ok_or(DropReason::PeerUnresolved)?;
        let (tos, source) =
            ipv4::parse(frame.data()).map_or((0, 0), |(ip, ..)| (ip.tos, ip.source.get()));
        let party = home.map_or(Party::Remote(source), |home| Party::Home(self.nat.identity(home)));
        if !self.redirects.admit(&party, cx.now.ms) {
            return Err(DropReason::RedirectLimit);
        }
        let room = self.redirect_room(home);
        let packet = header.push_before(&mut frame, room).ok_or(DropReason::NoBuffer)?;
        let (outer, whole) = packet.split_at_mut(Ipv4::LEN);
        if let Some(home) = home.filter(|_| self.mode == AccessMode::Gre) {
            let endpoint = self.shards.endpoint(home.shard);
            let payload_len = (whole.len() - Ipv4::LEN) as u16;
            let mut tunnel = Ipv4::new(home.outer, endpoint, ipv4::PROTOCOL_GRE, payload_len);
            tunnel.tos = ecn::encapsulate(tos);
            tunnel.set_checksum();
            tunnel.emit(whole);
            gre::emit(&mut whole[Ipv4::LEN..], gre::PROTOCOL_IPV4, home.gre_key);
        }
        let own = self.link(Side::Access).address;
        let mut ip = Ipv4::new(own, to, ipv4::PROTOCOL_IPIP, whole.len() as u16);
        ip.tos = tos & !ECN;
        ip.set_fragment(true, false, 0);
        ip.set_checksum();
        ip.emit(outer);
        self.counters.count_redirected(Direction::Transmit);
        self.emit(Side::Access, frame, cx);
        Ok(())
    }
}
