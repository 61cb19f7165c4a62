//! ARP (RFC 826): answers for the worker's own addresses, resolves the gateways, and announces the
//! worker (RFC 5227).

use weir_nat::IpFamily;
use weir_wire::arp::{self, Arp};
use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};

use crate::engine::{Context, Engine};
use crate::ethernet_input::WorkerSide;
use crate::neighbor::NeighborOutcome;
use crate::side6::Side6;
use crate::{DropReason, Side};

impl<F: Frame> Engine<F> {
    /// Handles a received ARP message, without its Ethernet header.
    pub(crate) fn arp_input<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        mut frame: F,
        cx: &mut Context<'_, P>,
    ) {
        let link = self.link_mut(side);
        let message = match arp::parse(frame.data()) {
            Ok(message) if message.is_valid_ipv4_ethernet() => *message,
            _ => return self.discard(DropReason::ArpMalformed),
        };
        // RFC 1812 section 3.3.2: a router must not believe an ARP reply that claims a broadcast or
        // multicast MAC. A neighbour with the worker's own MAC is not believed either.
        if !message.sender_mac.is_unicast() || message.sender_mac == link.mac {
            return self.discard(DropReason::ArpMalformed);
        }
        let sender = message.sender_ip.get();
        let is_answer = !message.is_request() && message.target_ip.get() == link.address;
        let mac = message.sender_mac;
        let outcome = link.gateways.on_message(sender, mac, is_answer, cx.now.ms);
        self.count_gateway_outcome(side, outcome, mac);
        if side == Side::Access {
            let outcome = self.peers.on_arp(sender, mac, is_answer, cx.now.ms);
            self.count_refused_claims(side, outcome);
        }
        let link = self.link(side);
        let is_for_us = message.is_request() && message.target_ip.get() == link.address;
        if is_for_us {
            let reply = Arp::reply(link.mac, link.address, message.sender_mac, sender);
            frame.truncate(0);
            if !link.fill_arp(&mut frame, &reply, message.sender_mac) {
                return self.discard(DropReason::NoBuffer);
            }
            self.emit(side, frame, cx);
        }
        self.publish_links();
    }

    /// Counts what a station's message with this MAC has meant for a gateway.
    pub(crate) fn count_gateway_outcome(&self, side: Side, outcome: NeighborOutcome, mac: Mac) {
        match outcome {
            NeighborOutcome::Moved => self.counters.count_gateway_move(side, mac),
            outcome => self.count_refused_claims(side, outcome),
        }
    }

    fn count_refused_claims(&self, side: Side, outcome: NeighborOutcome) {
        if let NeighborOutcome::Refused(claims, claimant) = outcome {
            self.counters.count_refused_claims(side, u64::from(claims), claimant);
        }
    }

    /// Announces the worker's IPv4 addresses on both networks, so that switches and neighbours
    /// replace the entries of a predecessor.
    pub(crate) fn announce<P: Pool<Frame = F>>(&mut self, cx: &mut Context<'_, P>) {
        for side in Side::ALL {
            let link = self.link(side);
            let message = Arp::gratuitous(link.mac, link.address);
            self.send_arp(side, message, Mac::BROADCAST, cx);
        }
    }

    /// Sends the requests to the gateways and the other workers that are due, and the probes of the
    /// worker's IPv6 addresses.
    pub(crate) fn ask_neighbors<P: Pool<Frame = F>>(&mut self, cx: &mut Context<'_, P>) {
        for side in Side::ALL {
            let mut gateways = std::mem::take(&mut self.link_mut(side).gateways);
            gateways.due(cx.now.ms, |address, mac| self.ask(side, address, mac, cx));
            self.link_mut(side).gateways = gateways;
            self.ask_neighbors6(side, cx);
        }
        let mut peers = std::mem::take(&mut self.peers);
        peers.due(cx.now.ms, |address, mac| self.ask(Side::Access, address, mac, cx));
        self.peers = peers;
        self.publish_links();
    }

    /// Sends a request for `address` to `mac`, or to all stations if `mac` is `None`.
    fn ask<P: Pool<Frame = F>>(
        &self,
        side: Side,
        address: u32,
        mac: Option<Mac>,
        cx: &mut Context<'_, P>,
    ) {
        let link = self.link(side);
        let message = Arp::request(link.mac, link.address, address);
        self.send_arp(side, message, mac.unwrap_or(Mac::BROADCAST), cx);
    }

    fn send_arp<P: Pool<Frame = F>>(
        &self,
        side: Side,
        message: Arp,
        to: Mac,
        cx: &mut Context<'_, P>,
    ) {
        let Some(mut frame) = cx.pool.alloc() else { return self.discard(DropReason::NoBuffer) };
        if !self.link(side).fill_arp(&mut frame, &message, to) {
            return self.discard(DropReason::NoBuffer);
        }
        self.emit(side, frame, cx);
    }

    /// Copies the state of both links to the counters.
    pub(crate) fn publish_links(&self) {
        for side in Side::ALL {
            let WorkerSide { gateways, ipv6, .. } = self.link(side);
            let counters = &self.counters;
            counters.set_gateway_up(side, self.link(side).is_up());
            counters.set_family_up(side, IpFamily::Ipv4, gateways.is_up());
            counters.set_family_up(side, IpFamily::Ipv6, ipv6.as_ref().is_some_and(Side6::is_up));
            let has_duplicate = ipv6.as_ref().is_some_and(Side6::has_duplicate);
            counters.set_address_conflict(side, has_duplicate);
        }
    }
}
