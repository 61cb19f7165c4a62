//! What a packet is, read of its frame before it is processed: for a trace, changes nothing.
//!
//! A packet is read by the function by which the slow path reads it. Those of IPv6 cut the frame to
//! the packet: they get a view of it.

use std::net::{Ipv6Addr, SocketAddr};

use weir_nat::{Home, HomeSelector, HomeView, Packet6, PacketKey, Protocol};
use weir_wire::ethernet::ETHERTYPE_IPV6;
use weir_wire::frame::Frame;
use weir_wire::{gre, ipv6};

use crate::downstream::{Downstream, DownstreamStep};
use crate::engine::Engine;
use crate::fast_path::{GRE, PLAIN};
use crate::flow_key::{FlowKey, PacketKind};
use crate::ip_input::Packet;
use crate::ipv6::{Packet6State, PacketStep6, Way6, carries_ipv6, transit_input6};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::packet_trace::{TracedFlow, TracedKind, TracedStep};
use crate::tunnel6::{ToEndpoint6, Tunnel6, outer_address, protocol_over_ipv6};
use crate::upstream::{Upstream, UpstreamStep};
use crate::{AccessMode, DropReason, Side};

/// What is read of a frame before it is processed.
#[derive(Clone, Copy)]
pub(crate) struct Preview {
    pub(crate) step: TracedStep,
    /// The home that has sent the packet.
    pub(crate) home: Option<Home>,
    /// The outer source of a tunnel packet over IPv6 whose home is not known.
    pub(crate) unknown: Option<UnknownHome>,
    /// The key, as it is shown; `None` if the headers were not read as far.
    pub(crate) flow: Option<TracedFlow>,
    /// The same, as it is looked up.
    pub(crate) key: Option<PreviewKey>,
}

/// The sender of a tunnel packet over IPv6.
#[derive(Clone, Copy)]
pub(crate) struct UnknownHome {
    pub(crate) outer: [u64; 2],
    gre_key: Option<u32>,
}

/// The key of a packet, in its family.
#[derive(Clone, Copy)]
pub(crate) enum PreviewKey {
    Ipv4(FlowKey),
    Ipv6(Packet6),
}

/// A frame that is read and not changed: a cut moves the view, an edit has no effect.
struct FrameView<'a> {
    bytes: &'a [u8],
    is_contiguous: bool,
}

impl Frame for FrameView<'_> {
    fn data(&self) -> &[u8] {
        self.bytes
    }

    fn data_mut(&mut self) -> &mut [u8] {
        &mut []
    }

    fn push(&mut self, _: usize) -> bool {
        false
    }

    fn pull(&mut self, n: usize) {
        self.bytes = self.bytes.get(n..).unwrap_or_default();
    }

    fn truncate(&mut self, len: usize) {
        self.bytes = &self.bytes[..self.bytes.len().min(len)];
    }

    fn extend(&mut self, _: usize) -> bool {
        false
    }

    fn prefetch(&self, _: usize) {}

    fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }
}

impl Preview {
    fn of_step(step: TracedStep) -> Self {
        Self { step, home: None, unknown: None, flow: None, key: None }
    }

    fn of_up(step: UpstreamStep, packet: &Upstream) -> Self {
        let step = up_step(step);
        let has_home = packet.home != Upstream::EMPTY.home;
        let read = (packet.key, packet.hash.0, packet.fits_fast_path);
        Self { home: has_home.then_some(packet.home), ..Self::of_step(step).with_key(read) }
    }

    /// Adds the key of an IPv4 packet to be translated, its hash, and whether it fits the fast
    /// path.
    fn with_key(self, (key, hash, fits_fast_path): (FlowKey, u64, bool)) -> Self {
        if self.step != TracedStep::Translate {
            return self;
        }
        let flow = TracedFlow {
            kind: traced_kind(key.kind),
            protocol: Some(key.protocol),
            source: key.source.into(),
            destination: key.destination.into(),
            tcp_flags: key.tcp_flags,
            hash,
            fits_fast_path,
        };
        Self { flow: Some(flow), key: Some(PreviewKey::Ipv4(key)), ..self }
    }
}

impl<F: Frame> Engine<F> {
    /// Reads the headers of a frame.
    pub(crate) fn preview(&self, side: Side, frame: &F) -> Preview {
        match (side, self.is_ipv6_input(side, frame)) {
            (_, true) => self.preview6(side, frame),
            (Side::Access, false) => self.preview_up(frame),
            (Side::Internet, false) => self.preview_down(frame),
        }
    }

    /// Whether a frame goes the way of IPv6 packets: as a burst is parted.
    fn is_ipv6_input(&self, side: Side, frame: &F) -> bool {
        let data = frame.data();
        let is_tagged = self.link(side).is_tagged();
        let carries_ipv6 = match (self.mode, is_tagged) {
            (AccessMode::Gre, false) => carries_ipv6::<UNTAGGED, GRE>(data),
            (AccessMode::Gre, true) => carries_ipv6::<TAGGED, GRE>(data),
            (AccessMode::Plain, false) => carries_ipv6::<UNTAGGED, PLAIN>(data),
            (AccessMode::Plain, true) => carries_ipv6::<TAGGED, PLAIN>(data),
        };
        let may_have_tunnels = side == Side::Access && self.mode == AccessMode::Gre;
        let has_ipv4_inside = may_have_tunnels
            && self.nat.has_outer_ipv6()
            && data.split_at_checked(if is_tagged { TAGGED } else { UNTAGGED }).is_some_and(
                |(link, packet)| {
                    link.ends_with(&ETHERTYPE_IPV6.to_be_bytes())
                        && protocol_over_ipv6(packet) == Some(gre::PROTOCOL_IPV4)
                },
            );
        self.burst6.is_some() && carries_ipv6 && !has_ipv4_inside
    }

    fn preview_up(&self, frame: &F) -> Preview {
        let mut packet = Upstream::EMPTY;
        match self.access_input(frame, &mut packet).unwrap_or_else(UpstreamStep::Discard) {
            UpstreamStep::UnknownHome => self.preview_unknown(frame),
            step => Preview::of_up(step, &packet),
        }
    }

    fn preview_down(&self, frame: &F) -> Preview {
        let mut packet = Downstream::EMPTY;
        let step = self.internet_input(frame, &mut packet);
        let step = down_step(step.unwrap_or_else(DownstreamStep::Discard));
        let read = (packet.key, packet.hash.0, packet.fits_fast_path);
        Preview::of_step(step).with_key(read)
    }

    fn preview6(&self, side: Side, frame: &F) -> Preview {
        let mut view = FrameView { bytes: frame.data(), is_contiguous: frame.is_contiguous() };
        let mut packet = Packet6State::EMPTY;
        let (read, way) = match side {
            Side::Access => (self.access_input6(&mut view, &mut packet), Way6::Up),
            Side::Internet => (self.internet_input6(&mut view, &mut packet), Way6::Down),
        };
        let step = read.unwrap_or_else(PacketStep6::Discard);
        if step == PacketStep6::UnknownHome {
            return self.preview_unknown(frame);
        }
        let mut preview = self.preview_of6(step, &packet, view.bytes, way);
        if let (PacketStep6::OuterFragment, Ok((outer, _))) = (step, ipv6::parse(view.bytes)) {
            preview.unknown = Some(UnknownHome { outer: outer_address(outer), gre_key: None });
        }
        if self.mode == AccessMode::Plain && side == Side::Access && preview.key.is_some() {
            match self.home6(view.bytes, &packet) {
                Ok(home) => preview.home = Some(home),
                Err(reason) => preview.step = TracedStep::Drop(reason),
            }
        }
        preview
    }

    /// Reads a tunnel packet over IPv6 of a home that is not known, as it will be read once the
    /// home has a handle.
    fn preview_unknown(&self, frame: &F) -> Preview {
        let refused = Preview::of_step(TracedStep::Drop(DropReason::NotSubscriber));
        let Ok((_, offset)) = self.link(Side::Access).input(frame) else { return refused };
        let bytes = frame.data().get(offset..).unwrap_or_default();
        let Ok(Some(ToEndpoint6::Tunnel(tunnel))) = self.endpoint6_input(bytes) else {
            return refused;
        };
        let inner = tunnel.inner(bytes);
        let preview = match tunnel.protocol {
            gre::PROTOCOL_IPV4 => self.preview_unknown4(inner, &tunnel),
            _ => self.preview_unknown6(inner),
        };
        let unknown = UnknownHome { outer: tunnel.source, gre_key: tunnel.key };
        Preview { home: None, unknown: Some(unknown), ..preview }
    }

    fn preview_unknown4(&self, inner: &[u8], tunnel: &Tunnel6) -> Preview {
        let mut packet = Upstream::EMPTY;
        packet.home.shard = tunnel.shard;
        let read = Packet::read(inner)
            .map_err(|error| error.reason(DropReason::InnerMalformed, DropReason::InnerChecksum))
            .and_then(|inner| {
                packet.len = inner.bytes.len();
                self.inner_input(&inner, &mut packet)
            });
        Preview::of_up(read.unwrap_or_else(UpstreamStep::Discard), &packet)
    }

    fn preview_unknown6(&self, inner: &[u8]) -> Preview {
        let Ok((_, len)) = ipv6::parse(inner) else {
            return Preview::of_step(TracedStep::Drop(DropReason::Ip6Malformed));
        };
        let mut packet = Packet6State::EMPTY;
        let step = transit_input6(&inner[..len], Way6::Up, &mut packet);
        let step = step.unwrap_or_else(PacketStep6::Discard);
        self.preview_of6(step, &packet, &inner[..len], Way6::Up)
    }

    /// Makes a preview of what was read of an IPv6 packet, to which `bytes` is cut.
    fn preview_of6(
        &self,
        step: PacketStep6,
        packet: &Packet6State,
        bytes: &[u8],
        way: Way6,
    ) -> Preview {
        let has_home = packet.home != Packet6State::EMPTY.home;
        let home = has_home.then_some(packet.home);
        let preview = Preview { home, ..Preview::of_step(step6(step)) };
        if !matches!(step, PacketStep6::Forward | PacketStep6::TimeExceeded) {
            return preview;
        }
        let ends: [SocketAddr; 2] = [packet.key.inside().into(), packet.key.remote().into()];
        let ([source, destination], room) = match way {
            Way6::Up => (ends, self.link(Side::Internet).mtu),
            Way6::Down => ([ends[1], ends[0]], self.tunnel_mtu_least),
        };
        let flow = TracedFlow {
            kind: traced_kind(packet.kind),
            protocol: match packet.kind {
                PacketKind::LaterFragment => protocol_of_fragment(bytes),
                _ => Some(packet.protocol),
            },
            source,
            destination,
            tcp_flags: packet.tcp_flags,
            hash: packet.key.hash(&self.nat).0,
            fits_fast_path: packet.kind == PacketKind::Session
                && packet.protocol != Protocol::Icmp
                && bytes.len() <= room,
        };
        let key = PreviewKey::Ipv6(packet.flow_packet());
        Preview { flow: Some(flow), key: Some(key), ..preview }
    }

    /// Returns the home of a packet: of one from a home as its tunnel or its address says, of
    /// another as its record says or, in IPv6, its inside address.
    pub(crate) fn home_of(&self, side: Side, preview: &Preview) -> Option<Home> {
        match (side, preview.key) {
            (Side::Access, _) => preview.home,
            (Side::Internet, None) => None,
            (Side::Internet, Some(PreviewKey::Ipv4(key))) => {
                self.nat.admin().home_behind(key.destination, key.protocol)
            }
            (Side::Internet, Some(PreviewKey::Ipv6(packet))) => {
                self.nat.admin().home_behind6(&packet.key)
            }
        }
    }

    /// Returns the home of a packet as it is shown.
    pub(crate) fn home_shown(&self, preview: &Preview, home: Option<Home>) -> Option<HomeView> {
        let unknown = |UnknownHome { outer: [upper, lower], gre_key }| HomeView::TunnelIpv6 {
            outer: Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower)),
            gre_key,
        };
        let known = home.map(|home| self.nat.admin().view_of(&home));
        known.or_else(|| preview.unknown.map(unknown))
    }

    /// Whether a packet is of the home with this name, or of an inside IPv6 address that the name
    /// has.
    pub(crate) fn is_of_subscriber(
        &self,
        side: Side,
        preview: &Preview,
        name: HomeSelector,
    ) -> bool {
        let home = self.home_of(side, preview);
        if self.home_shown(preview, home).is_some_and(|shown| shown.is_named(name)) {
            return true;
        }
        let HomeSelector::Ipv6(net) = name else { return false };
        let admin = self.nat.admin();
        let named = home.zip(admin.home_with(net));
        let is_its = named.is_some_and(|(home, named)| admin.is_same_home(&home, &named));
        let has_inside =
            |packet: Packet6| net.contains(&Ipv6Addr::from_bits(packet.key.inside().address));
        is_its || matches!(preview.key, Some(PreviewKey::Ipv6(packet)) if has_inside(packet))
    }
}

/// Returns the protocol of a later fragment; `None` if extension headers follow its first
/// fragment's, or for a protocol that no flow has.
fn protocol_of_fragment(packet: &[u8]) -> Option<Protocol> {
    match ipv6::walk(packet, packet.len()).ok()?.protocol {
        ipv6::PROTOCOL_ICMPV6 => Some(Protocol::Icmp),
        number => Protocol::from_number(number).filter(|&it| it != Protocol::Icmp),
    }
}

fn traced_kind(kind: PacketKind) -> TracedKind {
    match kind {
        PacketKind::Session => TracedKind::Whole,
        PacketKind::FirstFragment => TracedKind::FirstFragment,
        PacketKind::LaterFragment => TracedKind::LaterFragment,
        PacketKind::IcmpError => TracedKind::IcmpError,
        PacketKind::IcmpReply => TracedKind::IcmpReply,
    }
}

fn up_step(step: UpstreamStep) -> TracedStep {
    match step {
        UpstreamStep::Translate => TracedStep::Translate,
        UpstreamStep::Stray | UpstreamStep::StrayDown => TracedStep::Redirected,
        UpstreamStep::Arp
        | UpstreamStep::Pong
        | UpstreamStep::KeepaliveBack
        | UpstreamStep::Datagram => TracedStep::Local,
        UpstreamStep::UnknownHome => TracedStep::Drop(DropReason::NotSubscriber),
        UpstreamStep::OuterFragment => TracedStep::Hold,
        UpstreamStep::TimeExceeded => TracedStep::TimeExceeded,
        UpstreamStep::Discard(reason) => TracedStep::Drop(reason),
    }
}

fn down_step(step: DownstreamStep) -> TracedStep {
    match step {
        DownstreamStep::Translate => TracedStep::Translate,
        DownstreamStep::Stray | DownstreamStep::Hairpin => TracedStep::Redirected,
        DownstreamStep::Arp | DownstreamStep::Pong => TracedStep::Local,
        DownstreamStep::Discard(reason) => TracedStep::Drop(reason),
    }
}

fn step6(step: PacketStep6) -> TracedStep {
    match step {
        PacketStep6::Forward => TracedStep::Translate,
        PacketStep6::Stray => TracedStep::Redirected,
        PacketStep6::Local | PacketStep6::ToEndpoint | PacketStep6::KeepaliveBack => {
            TracedStep::Local
        }
        PacketStep6::UnknownHome => TracedStep::Drop(DropReason::NotSubscriber),
        PacketStep6::OuterFragment => TracedStep::Hold,
        PacketStep6::TimeExceeded => TracedStep::TimeExceeded,
        PacketStep6::Discard(reason) => TracedStep::Drop(reason),
    }
}
