//! Hot. From the access side: out of the tunnel (or not), whose packet is it, and what does it want?

use weir_nat::Home;
use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv4;

use crate::engine::{Context, Engine, PREFETCH_AHEAD};
use crate::ethernet_input::Network;
use crate::flow_key::{FlowKey, Toward};
use crate::ip_error::Complaint;
use crate::ip_input::{Packet, is_martian};
use crate::local::check_ping;
use crate::upstream::Upstream;
use crate::{AccessMode, DropReason, Side, ecn, rewrite};

/// What is to be done with a frame from the access side.
#[derive(Debug)]
pub(crate) enum AccessStep {
    Translate(Upstream),
    Arp,
    /// A ping of the worker or of a tunnel endpoint.
    Ping(Mac),
    /// A GRE keepalive: the packet inside is the answer, ready made by the home.
    Keepalive,
    TimeExceeded {
        home: Home,
    },
    Discard(DropReason),
}

/// The part of a frame that a step is about: `offset` bytes into it, `len` bytes long.
type Part = (usize, usize);

impl<F: Frame> Engine<F> {
    pub(crate) fn receive_access<P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) {
        let mut steps = std::mem::take(&mut self.access_steps);
        frames.iter().take(PREFETCH_AHEAD).for_each(|frame| frame.prefetch(0));
        for at in 0..frames.len() {
            if let Some(ahead) = frames.get(at + PREFETCH_AHEAD) {
                ahead.prefetch(0);
            }
            steps.push(self.access_step(&mut frames[at]));
        }
        for step in &mut steps {
            if let AccessStep::Translate(packet) = step {
                packet.candidate = self.nat.prefetch_outbound_record(packet.hash);
            }
        }
        for (frame, step) in frames.drain(..).zip(&steps) {
            match step {
                AccessStep::Translate(packet) => self.translate_up(frame, packet, cx),
                AccessStep::Arp => self.arp_input(Side::Access, frame, cx),
                AccessStep::Ping(from) => self.answer_ping(Side::Access, frame, *from, cx),
                AccessStep::Keepalive => self.send(Side::Access, frame, 0, cx),
                AccessStep::TimeExceeded { home } => {
                    self.complain_to_home(Complaint::TimeExceeded, home, frame.data(), cx);
                    self.discard(DropReason::TtlExceeded);
                }
                AccessStep::Discard(reason) => self.discard(*reason),
            }
        }
        self.open_mappings(cx);
        steps.clear();
        self.access_steps = steps;
    }

    /// Finds out what a frame wants, cuts it to the part that this is about, and asks for its index line.
    #[inline]
    fn access_step(&self, frame: &mut F) -> AccessStep {
        let (step, (offset, len)) = match self.access_input(frame) {
            Ok(found) => found,
            Err(reason) => return AccessStep::Discard(reason),
        };
        frame.pull(offset);
        frame.truncate(len);
        if let AccessStep::Translate(packet) = &step {
            self.nat.prefetch_outbound(packet.hash);
            if let Some(tos) = packet.tos {
                rewrite::traffic_class(frame.data_mut(), tos);
            }
        }
        step
    }

    #[inline]
    fn access_input(&self, frame: &F) -> Result<(AccessStep, Part), DropReason> {
        let (network, from, offset) = self.link(Side::Access).input(frame)?;
        let bytes = &frame.data()[offset..];
        if network == Network::Arp {
            return Ok((AccessStep::Arp, (offset, bytes.len())));
        }
        let packet = Packet::read(bytes)
            .map_err(|error| error.reason(DropReason::IpMalformed, DropReason::IpChecksum))?;
        match self.mode {
            AccessMode::Gre => self.gre_input(&packet, offset, from),
            AccessMode::Plain => self.plain_input(&packet, offset, from),
        }
    }

    /// An IPv4 packet that should be a tunnel packet: outer destination = endpoint, outer source = home.
    #[inline]
    fn gre_input(
        &self,
        outer: &Packet<'_>,
        offset: usize,
        from: Mac,
    ) -> Result<(AccessStep, Part), DropReason> {
        let (source, endpoint) = (outer.ip.source.get(), outer.ip.destination.get());
        let Some(shard) = self.shards.of_endpoint(endpoint) else {
            return self.local_input(outer, offset, from);
        };
        if outer.ip.protocol != ipv4::PROTOCOL_GRE {
            return endpoint_input(outer, offset, from);
        }
        if outer.ip.is_fragment() {
            return Err(DropReason::OuterFragment);
        }
        let header = gre::parse(outer.payload()).map_err(|_| DropReason::GreMalformed)?;
        if header.protocol != gre::PROTOCOL_IPV4 {
            return Err(DropReason::GreProtocol);
        }
        let tunnel_len = outer.header_len + header.len;
        let inner = Packet::read(outer.bytes.get(tunnel_len..).unwrap_or_default())
            .map_err(|error| error.reason(DropReason::InnerMalformed, DropReason::InnerChecksum))?;
        let (offset, home) =
            (offset + tunnel_len, Home { shard, outer: source, gre_key: header.key });
        if is_keepalive(&inner, endpoint, source) {
            return match self.nat.is_subscriber(&home) {
                true => Ok((AccessStep::Keepalive, (offset, inner.bytes.len()))),
                false => Err(DropReason::NotSubscriber),
            };
        }
        // Congestion met inside the tunnel goes on with the inner packet (RFC 6040).
        let tos = ecn::decapsulate(outer.ip.tos, inner.ip.tos).ok_or(DropReason::EcnCongestion)?;
        let step = self.inner_input(&inner, home, (tos != inner.ip.tos).then_some(tos))?;
        Ok((step, (offset, inner.bytes.len())))
    }

    /// An IPv4 packet of a home itself: its source says which shard.
    #[inline]
    fn plain_input(
        &self,
        packet: &Packet<'_>,
        offset: usize,
        from: Mac,
    ) -> Result<(AccessStep, Part), DropReason> {
        let source = packet.ip.source.get();
        let Some(shard) = self.shards.of_source(source) else {
            // A ping from the access network itself, or nobody's packet.
            return match self.local_input(packet, offset, from) {
                Err(DropReason::NotLocal) => Err(DropReason::NotSubscriber),
                other => other,
            };
        };
        if packet.ip.destination.get() == self.link(Side::Access).address {
            return self.local_input(packet, offset, from);
        }
        let home = Home { shard, outer: source, gre_key: None };
        let step = self.inner_input(packet, home, None)?;
        Ok((step, (offset, packet.bytes.len())))
    }

    /// The home's own packet, toward the internet. `tos`: its new traffic class octet, if it gets one.
    #[inline]
    fn inner_input(
        &self,
        packet: &Packet<'_>,
        home: Home,
        tos: Option<u8>,
    ) -> Result<AccessStep, DropReason> {
        if is_martian(packet.ip) {
            return Err(DropReason::Martian);
        }
        if packet.ip.ttl <= 1 {
            return Ok(AccessStep::TimeExceeded { home });
        }
        let key = FlowKey::read(packet, Toward::Internet)?;
        let hash = self.nat.outbound_hash(&home, key.source, key.protocol);
        let header_len = packet.header_len;
        Ok(AccessStep::Translate(Upstream { hash, home, key, header_len, tos, candidate: None }))
    }

    /// A packet that is for the worker's access address, or for nobody.
    #[cold]
    fn local_input(
        &self,
        packet: &Packet<'_>,
        offset: usize,
        from: Mac,
    ) -> Result<(AccessStep, Part), DropReason> {
        if packet.ip.destination.get() != self.link(Side::Access).address {
            return Err(DropReason::NotLocal);
        }
        check_ping(packet.ip, packet.payload())?;
        Ok((AccessStep::Ping(from), (offset, packet.bytes.len())))
    }
}

/// A packet to a tunnel endpoint that is not GRE.
#[cold]
fn endpoint_input(
    packet: &Packet<'_>,
    offset: usize,
    from: Mac,
) -> Result<(AccessStep, Part), DropReason> {
    if packet.ip.protocol != ipv4::PROTOCOL_ICMP {
        return Err(DropReason::OuterProtocol);
    }
    match check_ping(packet.ip, packet.payload()) {
        Ok(()) => Ok((AccessStep::Ping(from), (offset, packet.bytes.len()))),
        Err(DropReason::LocalProtocol) => Err(DropReason::TunnelIcmp),
        Err(reason) => Err(reason),
    }
}

/// A GRE keepalive is a tunnel packet whose inside is a GRE packet from the endpoint back to the home.
#[inline]
fn is_keepalive(inner: &Packet<'_>, endpoint: u32, home: u32) -> bool {
    inner.ip.protocol == ipv4::PROTOCOL_GRE
        && inner.ip.source.get() == endpoint
        && inner.ip.destination.get() == home
        && gre::parse(inner.payload())
            .is_ok_and(|header| header.protocol == gre::PROTOCOL_KEEPALIVE)
}
