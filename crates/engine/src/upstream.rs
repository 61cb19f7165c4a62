//! Hot. A home's packet on its way to the internet.

use weir_flow::Hash;
use weir_nat::{Endpoint, Home, Outbound, Refusal};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4;
use weir_wire::tcp;

use crate::downstream::Downstream;
use crate::engine::{Context, Engine};
use crate::ethernet_input::Network;
use crate::flow_key::{FlowKey, Kind, Toward};
use crate::fragment_cache::{DatagramKey, Translation};
use crate::icmp_error::Quote;
use crate::ip_error::Complaint;
use crate::ip_fragment::fragment;
use crate::rewrite::{self, End};
use crate::{DropReason, Side};

/// A packet between look-up and edit; its frame starts at the home's IP header.
#[derive(Debug)]
pub(crate) struct Upstream<F> {
    pub(crate) frame: F,
    pub(crate) home: Home,
    pub(crate) key: FlowKey,
    pub(crate) header_len: usize,
    pub(crate) hash: Hash,
}

impl<F: Frame> Engine<F> {
    #[inline]
    pub(crate) fn translate_up<P: Pool<Frame = F>>(
        &mut self,
        packet: Upstream<F>,
        cx: &mut Context<'_, P>,
    ) {
        let done = match packet.key.kind {
            Kind::Session | Kind::FirstFragment => self.session_up(packet, cx),
            Kind::LaterFragment => self.later_fragment_up(packet, cx),
            Kind::IcmpError => self.icmp_error_up(packet, cx),
        };
        if let Err(reason) = done {
            self.discard(reason);
        }
    }

    #[inline]
    fn session_up<P: Pool<Frame = F>>(
        &mut self,
        packet: Upstream<F>,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Upstream { mut frame, home, key, header_len, hash } = packet;
        let mtu = self.link(Side::Internet).mtu;
        if frame.data().len() > mtu && dont_fragment(frame.data()) {
            let complaint = Complaint::FragmentationNeeded { mtu: mtu as u16 };
            self.complain_to_home(complaint, &home, frame.data(), cx);
            return Err(DropReason::DontFragment);
        }
        let outbound = Outbound {
            home,
            inside: key.source,
            remote: key.destination,
            protocol: key.protocol,
            tcp_flags: key.tcp_flags,
        };
        let public = match self.nat.outbound(hash, &outbound, cx.now.tick()) {
            Ok(public) => public,
            Err(refusal) => {
                self.refuse(refusal, &home, frame.data(), cx);
                return Err(refusal.into());
            }
        };
        self.clamp_mss(&mut frame, header_len, &key);
        let bytes = frame.data_mut();
        rewrite::endpoint(bytes, header_len, key.protocol, End::Source, public);
        rewrite::decrement_ttl(bytes);
        if key.kind == Kind::FirstFragment {
            return self.first_fragment_up(frame, &home, &key, public, cx);
        }
        self.forward_up(frame, hash, cx);
        Ok(())
    }

    /// RFC 5508 REQ-8, RFC 6888 REQ-11: a home that gets no session for want of room is told so.
    fn refuse<P: Pool<Frame = F>>(
        &mut self,
        refusal: Refusal,
        home: &Home,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) {
        let is_want_of_room = matches!(
            refusal,
            Refusal::PortsExhausted | Refusal::TableFull | Refusal::FlowsPerSubscriber
        );
        if is_want_of_room {
            self.complain_to_home(Complaint::Prohibited, home, original, cx);
        }
    }

    fn first_fragment_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        home: &Home,
        key: &FlowKey,
        public: Endpoint,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let datagram = datagram_key(frame.data(), &self.nat.identity(home), key);
        // A first fragment that comes twice must not part the later ones between two identifications.
        let identification = match self.fragments.translation(&datagram) {
            Some(Translation::Up { public: known, identification }) if known == public.address => {
                identification
            }
            _ => self.next_identification(),
        };
        let translation = Translation::Up { public: public.address, identification };
        if !self.fragments.learn(datagram, translation, cx.now.ms) {
            return Err(DropReason::FragmentLimit);
        }
        rewrite::identification(frame.data_mut(), identification);
        let hash = Hash(u64::from(identification) << 32);
        self.forward_up(frame, hash, cx);
        while let Some(held) = self.fragments.release(&datagram) {
            self.follow_up(held, public.address, identification, cx);
        }
        Ok(())
    }

    fn later_fragment_up<P: Pool<Frame = F>>(
        &mut self,
        packet: Upstream<F>,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let home = self.nat.identity(&packet.home);
        let datagram = datagram_key(packet.frame.data(), &home, &packet.key);
        match self.fragments.translation(&datagram) {
            Some(Translation::Up { public, identification }) => {
                self.follow_up(packet.frame, public, identification, cx);
                Ok(())
            }
            // No mapping has vouched for the home yet.
            _ if !self.nat.is_subscriber(&home) => Err(DropReason::NotSubscriber),
            _ => self
                .fragments
                .hold(datagram, packet.frame, cx.now.ms)
                .map_err(|_| DropReason::FragmentLimit),
        }
    }

    /// A later fragment goes the way of its first.
    fn follow_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        public: u32,
        identification: u16,
        cx: &mut Context<'_, P>,
    ) {
        let bytes = frame.data_mut();
        rewrite::address(bytes, End::Source, public);
        rewrite::identification(bytes, identification);
        rewrite::decrement_ttl(bytes);
        self.forward_up(frame, Hash(u64::from(identification) << 32), cx);
    }

    /// An error from a home about a packet that it got: the quoted destination becomes the public endpoint again.
    fn icmp_error_up<P: Pool<Frame = F>>(
        &mut self,
        packet: Upstream<F>,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Upstream { mut frame, home, header_len, .. } = packet;
        let (_, icmp) = frame.data_mut().split_at_mut(header_len);
        let quote = Quote::read(icmp, End::Destination)?;
        let public = self
            .nat
            .peek_outbound(&home, quote.destination, quote.source, quote.protocol)
            .ok_or(DropReason::IcmpErrorUnmatched)?;
        quote.rewrite(icmp, End::Destination, public).ok_or(DropReason::TransportMalformed)?;
        // RFC 5508 REQ-5: whichever inside host or router speaks, the NAT's public address is its source.
        rewrite::address(frame.data_mut(), End::Source, public.address);
        rewrite::decrement_ttl(frame.data_mut());
        self.forward_up(frame, Hash(u64::from(public.port) << 32), cx);
        Ok(())
    }

    /// A translated packet leaves toward the internet, in pieces if it must; or turns around (hairpinning,
    /// RFC 4787 REQ-9) when its destination is one of our own public addresses.
    #[inline]
    fn forward_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        flow: Hash,
        cx: &mut Context<'_, P>,
    ) {
        let Ok((ip, header_len, _)) = ipv4::parse(frame.data()) else {
            return self.discard(DropReason::InnerMalformed);
        };
        if self.nat.is_public(ip.destination.get()) {
            return self.hairpin(frame, header_len, cx);
        }
        let mtu = self.link(Side::Internet).mtu;
        if frame.data().len() <= mtu {
            return self.send(Side::Internet, frame, (flow.0 >> 32) as u32, cx);
        }
        // Sessions were asked for DF before they made state. Here it is a later fragment or an ICMP error, about
        // which no error may be sent (RFC 1812 section 4.3.2.7).
        if ip.dont_fragment() {
            return self.discard(DropReason::DontFragment);
        }
        // A fragment has its new identification already; what becomes fragments here needs one too.
        if !ip.is_fragment() {
            let identification = self.next_identification();
            rewrite::identification(frame.data_mut(), identification);
        }
        let Context { pool, out, now } = cx;
        let now = *now;
        let cut = fragment(frame.data(), header_len, mtu, *pool, |pool, piece| {
            let cx = &mut Context { pool, out, now };
            self.send(Side::Internet, piece, (flow.0 >> 32) as u32, cx);
        });
        if let Err(reason) = cut {
            self.discard(reason);
        }
    }

    /// Of a fragmented datagram that leaves. Its counter is not the tunnel headers', which would carry it round
    /// many times while a datagram lives (RFC 6864 section 5.3.1).
    fn next_identification(&mut self) -> u16 {
        self.identification = self.identification.wrapping_add(1);
        self.identification
    }

    /// Toward the home that holds the public address a packet is sent to.
    pub(crate) fn hairpin<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        header_len: usize,
        cx: &mut Context<'_, P>,
    ) {
        match FlowKey::read(frame.data(), header_len, Toward::Home) {
            Ok(key) => {
                let hash = self.nat.inbound_hash(key.destination, key.protocol);
                self.translate_down(Downstream { frame, key, header_len, hash }, cx);
            }
            Err(reason) => self.discard(reason),
        }
    }

    /// Puts the next hop in front and emits.
    #[inline]
    pub(crate) fn send<P: Pool<Frame = F>>(
        &self,
        side: Side,
        mut frame: F,
        flow: u32,
        cx: &mut Context<'_, P>,
    ) {
        let link = self.link(side);
        let Some(to) = link.gateways.choose(flow) else {
            return self.discard(DropReason::GatewayUnresolved);
        };
        if !link.push_header(&mut frame, to, Network::Ipv4) {
            return self.discard(DropReason::NoBuffer);
        }
        self.emit(side, frame, cx);
    }

    /// SYN segments announce no more than both sides carry.
    #[inline]
    pub(crate) fn clamp_mss(&self, frame: &mut F, header_len: usize, key: &FlowKey) {
        if key.tcp_flags & tcp::SYN == 0 {
            return;
        }
        if let Some(max) = self.mss_max {
            tcp::clamp_mss(&mut frame.data_mut()[header_len..], max);
        }
    }
}

#[inline]
pub(crate) fn dont_fragment(packet: &[u8]) -> bool {
    ipv4::parse(packet).is_ok_and(|(ip, _, _)| ip.dont_fragment())
}

/// Read before the edits, or with the identification as the home sent it; `home` is its identity.
fn datagram_key(packet: &[u8], home: &Home, key: &FlowKey) -> DatagramKey {
    let identification = ipv4::parse(packet).map_or(0, |(ip, _, _)| ip.identification.get());
    DatagramKey {
        home: Some(*home),
        source: key.source.address,
        destination: key.destination.address,
        identification,
        protocol: key.protocol as u8,
    }
}
