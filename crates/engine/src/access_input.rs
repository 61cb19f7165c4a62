//! Hot. From the access side: out of the tunnel (or not), whose packet is it, and what does it want?

use weir_nat::Home;
use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv4::{self, Ipv4};

use crate::engine::{Context, Engine};
use crate::ethernet_input::Network;
use crate::flow_key::{FlowKey, Toward};
use crate::ip_error::Complaint;
use crate::ip_input::{ip_header, is_martian};
use crate::local::check_ping;
use crate::upstream::Upstream;
use crate::{AccessMode, DropReason, Side, ecn, rewrite};

/// What is to be done with a frame from the access side, which now starts at the packet meant.
enum Step {
    Arp,
    /// A ping of the worker or of a tunnel endpoint.
    Ping(Mac),
    /// A GRE keepalive: the packet inside is the answer, ready made by the home.
    Keepalive,
    Translate {
        home: Home,
        key: FlowKey,
        header_len: usize,
    },
    TimeExceeded {
        home: Home,
    },
}

impl<F: Frame> Engine<F> {
    pub(crate) fn receive_access<P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) {
        let mut burst = std::mem::take(&mut self.upstream);
        for mut frame in frames.drain(..) {
            match self.access_input(&mut frame) {
                Ok(Step::Translate { home, key, header_len }) => {
                    let hash = self.nat.outbound_hash(&home, key.source, key.protocol);
                    self.nat.prefetch_outbound(hash);
                    burst.push(Upstream { frame, home, key, header_len, hash });
                }
                Ok(Step::Arp) => self.arp_input(Side::Access, frame, cx),
                Ok(Step::Ping(from)) => self.answer_ping(Side::Access, frame, from, cx),
                Ok(Step::Keepalive) => self.send(Side::Access, frame, 0, cx),
                Ok(Step::TimeExceeded { home }) => {
                    self.complain_to_home(Complaint::TimeExceeded, &home, frame.data(), cx);
                    self.discard(DropReason::TtlExceeded);
                }
                Err(reason) => self.discard(reason),
            }
        }
        for packet in &burst {
            self.nat.prefetch_outbound_record(packet.hash);
        }
        for packet in burst.drain(..) {
            self.translate_up(packet, cx);
        }
        self.upstream = burst;
    }

    #[inline]
    fn access_input(&self, frame: &mut F) -> Result<Step, DropReason> {
        let (network, from) = self.link(Side::Access).input(frame)?;
        if network == Network::Arp {
            return Ok(Step::Arp);
        }
        let (header_len, total_length) = ip_header(frame.data())
            .map_err(|error| error.reason(DropReason::IpMalformed, DropReason::IpChecksum))?;
        frame.truncate(total_length);
        match self.mode {
            AccessMode::Gre => self.gre_input(frame, header_len, from),
            AccessMode::Plain => self.plain_input(frame, header_len, from),
        }
    }

    /// An IPv4 packet that should be a tunnel packet: outer destination = endpoint, outer source = home.
    #[inline]
    fn gre_input(&self, frame: &mut F, header_len: usize, from: Mac) -> Result<Step, DropReason> {
        let (outer, _, _) = ipv4::parse(frame.data()).map_err(|_| DropReason::IpMalformed)?;
        let (source, endpoint, tos) = (outer.source.get(), outer.destination.get(), outer.tos);
        let payload = &frame.data()[header_len..];
        let Some(shard) = self.shards.of_endpoint(endpoint) else {
            return self.local_input(outer, payload, from);
        };
        if outer.protocol != ipv4::PROTOCOL_GRE {
            return endpoint_input(outer, payload, from);
        }
        if outer.is_fragment() {
            return Err(DropReason::OuterFragment);
        }
        let header = gre::parse(payload).map_err(|_| DropReason::GreMalformed)?;
        if header.protocol != gre::PROTOCOL_IPV4 {
            return Err(DropReason::GreProtocol);
        }
        frame.pull(header_len + header.len);
        let (header_len, total_length) = ip_header(frame.data())
            .map_err(|error| error.reason(DropReason::InnerMalformed, DropReason::InnerChecksum))?;
        frame.truncate(total_length);
        let home = Home { shard, outer: source, gre_key: header.key };
        if is_keepalive(frame.data(), header_len, endpoint, source) {
            return match self.nat.is_subscriber(&home) {
                true => Ok(Step::Keepalive),
                false => Err(DropReason::NotSubscriber),
            };
        }
        leave_tunnel(frame, tos)?;
        self.inner_input(frame, header_len, home)
    }

    /// An IPv4 packet of a home itself: its source says which shard.
    fn plain_input(&self, frame: &mut F, header_len: usize, from: Mac) -> Result<Step, DropReason> {
        let (ip, _, _) = ipv4::parse(frame.data()).map_err(|_| DropReason::IpMalformed)?;
        let source = ip.source.get();
        let Some(shard) = self.shards.of_source(source) else {
            // A ping from the access network itself, or nobody's packet.
            return match self.local_input(ip, &frame.data()[header_len..], from) {
                Err(DropReason::NotLocal) => Err(DropReason::NotSubscriber),
                other => other,
            };
        };
        if ip.destination.get() == self.link(Side::Access).address {
            return self.local_input(ip, &frame.data()[header_len..], from);
        }
        self.inner_input(frame, header_len, Home { shard, outer: source, gre_key: None })
    }

    /// The home's own packet, toward the internet.
    #[inline]
    fn inner_input(&self, frame: &F, header_len: usize, home: Home) -> Result<Step, DropReason> {
        let packet = frame.data();
        let (ip, _, _) = ipv4::parse(packet).map_err(|_| DropReason::InnerMalformed)?;
        if is_martian(ip) {
            return Err(DropReason::Martian);
        }
        if ip.ttl <= 1 {
            return Ok(Step::TimeExceeded { home });
        }
        let key = FlowKey::read(packet, header_len, Toward::Internet)?;
        Ok(Step::Translate { home, key, header_len })
    }

    /// A packet that is for the worker's access address, or for nobody.
    fn local_input(&self, ip: &Ipv4, transport: &[u8], from: Mac) -> Result<Step, DropReason> {
        if ip.destination.get() != self.link(Side::Access).address {
            return Err(DropReason::NotLocal);
        }
        check_ping(ip, transport).map(|()| Step::Ping(from))
    }
}

/// A packet to a tunnel endpoint that is not GRE.
fn endpoint_input(ip: &Ipv4, transport: &[u8], from: Mac) -> Result<Step, DropReason> {
    if ip.protocol != ipv4::PROTOCOL_ICMP {
        return Err(DropReason::OuterProtocol);
    }
    match check_ping(ip, transport) {
        Err(DropReason::LocalProtocol) => Err(DropReason::TunnelIcmp),
        other => other.map(|()| Step::Ping(from)),
    }
}

/// Congestion met inside the tunnel goes on with the inner packet (RFC 6040).
#[inline]
fn leave_tunnel<F: Frame>(frame: &mut F, outer_tos: u8) -> Result<(), DropReason> {
    let inner_tos = frame.data()[1];
    let tos = ecn::decapsulate(outer_tos, inner_tos).ok_or(DropReason::EcnCongestion)?;
    if tos != inner_tos {
        rewrite::traffic_class(frame.data_mut(), tos);
    }
    Ok(())
}

/// A GRE keepalive is a tunnel packet whose inside is a GRE packet from the endpoint back to the home.
fn is_keepalive(packet: &[u8], header_len: usize, endpoint: u32, home: u32) -> bool {
    let Ok((ip, _, _)) = ipv4::parse(packet) else { return false };
    ip.protocol == ipv4::PROTOCOL_GRE
        && ip.source.get() == endpoint
        && ip.destination.get() == home
        && gre::parse(&packet[header_len..])
            .is_ok_and(|header| header.protocol == gre::PROTOCOL_KEEPALIVE)
}
