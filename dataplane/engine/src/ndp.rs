//! Neighbor discovery of IPv6 (RFC 4861): answers for the worker's own addresses, resolves the
//! gateways, probes the worker's addresses for duplicates (RFC 4862), and announces them.
//!
//! The neighbours are the configured gateways and no others: a message about another station is
//! read and forgotten, so that no flood can evict or create an entry. The worker is a router that
//! is configured by hand: it follows no router advertisement and no redirect, and sends none.

use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv6;
use weir_wire::ndp::{self, NdpMessage, NdpPacket, NeighborAdvertisement, NeighborSolicitation};

use crate::duplicate_detection::{ClaimOutcome, DetectionStep};
use crate::engine::{Context, Engine};
use crate::ethernet_input::WorkerSide;
use crate::side6::Side6;
use crate::{DropReason, Side};

/// The flag in the worker's advertisements (RFC 4861 section 4.4).
const IS_ROUTER: bool = true;

impl<F: Frame> Engine<F> {
    /// Handles a received message of neighbor discovery: an IPv6 packet, which the frame ends with;
    /// `from`: its link-layer sender.
    pub(crate) fn ndp_input<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        frame: F,
        from: Mac,
        cx: &mut Context<'_, P>,
    ) {
        match read(self.link(side), frame.data(), from) {
            Ok(NdpMessage::Solicitation(message)) => {
                self.solicitation_input(side, frame, &message, from, cx);
            }
            Ok(NdpMessage::Advertisement(message)) => {
                self.advertisement_input(side, &message, from, cx);
            }
            Ok(NdpMessage::Other(_)) => self.discard(DropReason::NdpIgnored),
            Err(reason) => self.discard(reason),
        }
        self.publish_links();
    }

    fn solicitation_input<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        mut frame: F,
        message: &NeighborSolicitation,
        from: Mac,
        cx: &mut Context<'_, P>,
    ) {
        let (source, target) = (message.source, message.target);
        let Some(own) = &mut self.link_mut(side).ipv6 else { return };
        if own.is_own(source) {
            return self.claim_input(side, source, from, cx);
        }
        // A station without an address asks whether it may have the target: a claim as long as the
        // worker does not have it either (RFC 4862 section 5.4.3).
        if message.detects_duplicates() && own.is_own(target) && !own.is_assigned(target) {
            return self.claim_input(side, target, from, cx);
        }
        if let Some(mac) = message.source_mac {
            let outcome = own.gateways.on_message(source, mac, false, cx.now.ms);
            self.count_gateway_outcome(side, outcome, mac);
        }
        let link = self.link(side);
        let Some(own) = link.ipv6.as_ref().filter(|own| own.is_own(target)) else { return };
        if !own.is_assigned(target) {
            return self.discard(DropReason::AddressUnusable);
        }
        let answer = NdpPacket::answer(message, link.mac, IS_ROUTER);
        let to = answer.multicast_mac().or(message.source_mac).unwrap_or(from);
        frame.truncate(0);
        if !link.fill_ndp(&mut frame, &answer, to) {
            return self.discard(DropReason::NoBuffer);
        }
        self.emit(side, frame, cx);
    }

    fn advertisement_input<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        message: &NeighborAdvertisement,
        from: Mac,
        cx: &mut Context<'_, P>,
    ) {
        let target = message.target;
        let Some(own) = &mut self.link_mut(side).ipv6 else { return };
        if own.is_own(target) {
            return self.claim_input(side, target, message.target_mac.unwrap_or(from), cx);
        }
        // An answer to a unicast solicitation may omit the MAC (RFC 4861 section 7.2.4). It
        // confirms the one to which the solicitation went, and cannot name another.
        let mac = message.target_mac.or(Some(from).filter(|&mac| own.gateways.has(target, mac)));
        let Some(mac) = mac else { return };
        let is_answer = message.is_solicited && own.is_own(message.destination);
        let outcome = own.gateways.on_message(target, mac, is_answer, cx.now.ms);
        self.count_gateway_outcome(side, outcome, mac);
    }

    /// Handles the claim of the station at `mac` that it has one of the worker's addresses.
    fn claim_input<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        address: u128,
        mac: Mac,
        cx: &mut Context<'_, P>,
    ) {
        let Some(own) = &mut self.link_mut(side).ipv6 else { return };
        let outcome = own.on_claim(address, cx.now.ms);
        if outcome != ClaimOutcome::Nothing {
            self.counters.count_address_conflict(side, mac);
        }
        if outcome == ClaimOutcome::Defend {
            self.announce6(side, address, cx);
        }
    }

    /// Sends what is due on a side: probes and announcements of the worker's addresses, and
    /// solicitations of the gateways, once the worker has an address to ask from.
    pub(crate) fn ask_neighbors6<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        cx: &mut Context<'_, P>,
    ) {
        let link = self.link_mut(side);
        let mac = link.mac;
        let Some(mut own) = link.ipv6.take() else { return };
        own.due(cx.now.ms, |address, step| match step {
            DetectionStep::Probe => {
                self.send_ndp(side, &NdpPacket::duplicate_detection(address), None, cx);
            }
            DetectionStep::Announce => self.announce6(side, address, cx),
        });
        if own.may_send() {
            let Side6 { address, link_local, gateways, .. } = &mut own;
            gateways.due(cx.now.ms, |gateway, to| {
                // The source has the scope of the gateway, which so learns the address to which its
                // own packets go.
                let source = if ipv6::is_link_local(gateway) { *link_local } else { *address };
                let packet = match to {
                    Some(_) => NdpPacket::probe(source, mac, gateway),
                    None => NdpPacket::solicitation(source, mac, gateway),
                };
                self.send_ndp(side, &packet, to, cx);
            });
        }
        self.link_mut(side).ipv6 = Some(own);
    }

    /// Sends the unsolicited advertisement of an own address, so that switches and neighbours
    /// replace the entries of another station.
    fn announce6<P: Pool<Frame = F>>(&self, side: Side, address: u128, cx: &mut Context<'_, P>) {
        let packet = NdpPacket::unsolicited(address, self.link(side).mac, IS_ROUTER);
        self.send_ndp(side, &packet, None, cx);
    }

    /// Sends a message; `to`: the MAC of its destination unless that is a multicast group.
    fn send_ndp<P: Pool<Frame = F>>(
        &self,
        side: Side,
        packet: &NdpPacket,
        to: Option<Mac>,
        cx: &mut Context<'_, P>,
    ) {
        let Some(to) = packet.multicast_mac().or(to) else { return };
        let Some(mut frame) = cx.pool.alloc() else { return self.discard(DropReason::NoBuffer) };
        if !self.link(side).fill_ndp(&mut frame, packet, to) {
            return self.discard(DropReason::NoBuffer);
        }
        self.emit(side, frame, cx);
    }
}

/// Reads a message and checks what RFC 4861 section 7.1 obliges a receiver to, and that the sender
/// can be a neighbour.
fn read(link: &WorkerSide, packet: &[u8], from: Mac) -> Result<NdpMessage, DropReason> {
    const MALFORMED: DropReason = DropReason::NdpMalformed;
    let own = link.ipv6.as_ref().ok_or(DropReason::EtherType)?;
    let (ip, len) = ipv6::parse(packet).map_err(|_| MALFORMED)?;
    let upper = ipv6::walk(packet, len).map_err(|_| MALFORMED)?;
    // RFC 6980 section 5: no message comes in fragments, not even in an atomic one.
    if upper.protocol != ipv6::PROTOCOL_ICMPV6 || upper.fragment.is_some() {
        return Err(MALFORMED);
    }
    let message = packet.get(upper.offset..len).unwrap_or_default();
    let message = ndp::parse(ip, message).map_err(|_| MALFORMED)?;
    let destination = ip.destination.get();
    if !own.is_own(destination) && !own.is_own_group(destination) {
        return Err(DropReason::NotLocal);
    }
    let (has_sender, mac) = match &message {
        NdpMessage::Solicitation(it) => {
            (it.detects_duplicates() || ipv6::is_unicast(it.source), it.source_mac)
        }
        NdpMessage::Advertisement(it) => (ipv6::is_unicast(it.source), it.target_mac),
        NdpMessage::Other(_) => (true, None),
    };
    // A group MAC would multiply what is sent there. The worker's own MAC is that of a message of
    // the worker itself, which the network has sent back.
    let is_station = |mac: Mac| mac.is_unicast() && mac != link.mac;
    match has_sender && is_station(from) && mac.is_none_or(is_station) {
        true => Ok(message),
        false => Err(MALFORMED),
    }
}
