//! Frames on their way: from homes, servers and workers over links and switches.

use std::net::{IpAddr, Ipv4Addr};

use weir_engine::Side;
use weir_wire::arp::{self, Arp};
use weir_wire::build;
use weir_wire::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Mac};
use weir_wire::frame::{Frame, VecFrame};
use weir_wire::ndp::{NdpMessage, NdpPacket};
use weir_wire::{ipv4, ipv6, ndp};

use super::{Event, World};
use crate::fault::{Fault, Way};
use crate::site::{self, Station, WorkerPosition};

/// Delay of a packet over a network outside the cluster.
const OUTSIDE_US: u64 = 300;

impl World {
    /// Whether no frame passes a node's cable in this direction.
    pub(super) fn is_unplugged(&self, node: usize, side: Side, way: Way) -> bool {
        self.active.values().any(|fault| match *fault {
            Fault::Unplug { node: of, side: on, way: cut, .. } => {
                of == node && on == side && cut.includes(way)
            }
            _ => false,
        })
    }

    /// Whether workers of one node do not reach those of the other, though both reach the switch.
    fn is_apart(&self, from: usize, to: usize) -> bool {
        from != to
            && self.active.values().any(|fault| match *fault {
                Fault::Deafen { from: mute, to: deaf, .. } => mute == from && deaf == to,
                Fault::Isolate { node, .. } | Fault::CutOff { node, .. } => {
                    node == from || node == to
                }
                _ => false,
            })
    }

    fn passes(&mut self, from: Station, to: Station, side: Side) -> bool {
        let is_out = |world: &Self| match from {
            Station::Worker(position) => {
                world.is_running_machine(position.node)
                    && !world.is_unplugged(position.node, side, Way::Out)
            }
            Station::Switch => true,
        };
        let is_in = |world: &Self| match to {
            Station::Worker(position) => {
                world.nodes[position.node].is_up
                    && !world.is_unplugged(position.node, side, Way::In)
            }
            Station::Switch => true,
        };
        if self.active.is_empty() {
            return is_in(self);
        }
        let is_apart = match (from, to) {
            (Station::Worker(one), Station::Worker(other)) => self.is_apart(one.node, other.node),
            _ => false,
        };
        is_out(self) && is_in(self) && !is_apart
    }

    /// Returns the present rates of loss, duplication and lateness per million, and the longest
    /// lateness in microseconds.
    fn noise(&self) -> (u64, u64, u64, u64) {
        let options = &self.options;
        let calm =
            (options.loss_ppm, options.duplicate_ppm, options.reorder_ppm, options.reorder_us);
        self.active.values().fold(calm, |(loss, twice, late, late_us), fault| match *fault {
            Fault::Noise { loss_ppm, duplicate_ppm, reorder_us, .. } => {
                (loss + loss_ppm, twice + duplicate_ppm, 500_000, late_us.max(reorder_us))
            }
            _ => (loss, twice, late, late_us),
        })
    }

    /// Puts a frame on a link, after a wait of `after_us`.
    pub(super) fn put(
        &mut self,
        from: Station,
        to: Station,
        side: Side,
        frame: VecFrame,
        after_us: u64,
    ) {
        if !self.passes(from, to, side) {
            return;
        }
        let (loss_ppm, duplicate_ppm, reorder_ppm, reorder_us) = self.noise();
        let dice = &mut self.network_dice;
        if dice.happens(loss_ppm) {
            return;
        }
        let copies = 1 + usize::from(dice.happens(duplicate_ppm));
        let mut frame = Some(frame);
        for copy in (0..copies).rev() {
            let dice = &mut self.network_dice;
            let late_us = if dice.happens(reorder_ppm) { dice.below(reorder_us + 1) } else { 0 };
            let jitter_us = if self.options.link_jitter_us > 0 {
                dice.below(self.options.link_jitter_us)
            } else {
                0
            };
            let at_us = self.now_us + after_us + self.options.link_us + jitter_us + late_us;
            let sent = if copy == 0 { frame.take() } else { frame.clone() };
            let frame = sent.expect("the last copy is the frame itself");
            self.queue.push(at_us, Event::Frame { to, side, frame });
        }
    }

    /// Sends a worker's frame to the station of its destination MAC.
    pub(super) fn send(
        &mut self,
        from: WorkerPosition,
        side: Side,
        frame: VecFrame,
        after_us: u64,
    ) {
        let to = match ethernet::parse(frame.data()) {
            Ok(header) if header.destination == Mac::BROADCAST => self.asked(side, frame.data()),
            Ok(header) if header.destination.is_multicast() => Some(Station::Switch),
            Ok(header) => Some(site::station(header.destination)),
            Err(_) => None,
        };
        if let Some(to) = to {
            self.put(Station::Worker(from), to, side, frame, after_us);
        }
    }

    /// Returns the station that a broadcast ARP request is for: no other one would answer.
    fn asked(&self, side: Side, bytes: &[u8]) -> Option<Station> {
        let request = arp::parse(&bytes[Ethernet::LEN..]).ok()?;
        let target = Ipv4Addr::from_bits(request.target_ip.get());
        if target == site::gateway(side) {
            return Some(Station::Switch);
        }
        let position = site::worker_at(target)?;
        (position.node < self.nodes.len()).then_some(Station::Worker(position))
    }

    pub(super) fn arrive(&mut self, to: Station, side: Side, frame: VecFrame) {
        match to {
            Station::Worker(position) => self.arrive_at_worker(position, side, frame),
            Station::Switch => self.arrive_at_switch(side, &frame),
        }
    }

    fn arrive_at_worker(&mut self, position: WorkerPosition, side: Side, frame: VecFrame) {
        let is_up = self.nodes[position.node].is_up;
        let Some(process) = self.nodes[position.node].process.as_mut().filter(|_| is_up) else {
            return;
        };
        let Some(worker) = process.workers.get_mut(position.worker) else { return };
        worker.arrive(side, frame);
        self.wake(position, 15);
    }

    fn arrive_at_switch(&mut self, side: Side, frame: &VecFrame) {
        let bytes = frame.data();
        let Ok(link) = ethernet::parse_link(bytes) else {
            return self.fail("a frame without a header leaves a worker".into());
        };
        let payload = &bytes[link.len..];
        match link.ethertype {
            ETHERTYPE_ARP => self.answer_arp(side, payload),
            ETHERTYPE_IPV6 if side == Side::Internet && is_ndp(payload) => {
                self.answer_ndp(side, payload);
            }
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 if side == Side::Internet => self.at_server(payload),
            ETHERTYPE_IPV4 => self.at_access(payload),
            other => self.fail(format!("a frame of type {other:#x} leaves a worker")),
        }
    }

    fn answer_arp(&mut self, side: Side, payload: &[u8]) {
        let Ok(request) = arp::parse(payload).copied() else { return };
        let gateway = site::gateway(side);
        if !request.is_request() || request.target_ip.get() != gateway.to_bits() {
            return;
        }
        let to = request.sender_mac;
        let mac = site::mac(Station::Switch, side);
        let reply = Arp::reply(mac, gateway.to_bits(), to, request.sender_ip.get());
        let frame = self.pool.frame(&build::arp(reply)).expect("the pool has no limit");
        self.put(Station::Switch, site::station(to), side, frame, 0);
    }

    /// Answers the question for the switch's IPv6 address. No worker asks for another one's.
    fn answer_ndp(&mut self, side: Side, payload: &[u8]) {
        let (ip, total) = ipv6::parse(payload).expect("it was parsed before");
        let message = match ndp::parse(ip, &payload[ipv6::Ipv6::LEN..total]) {
            Ok(NdpMessage::Solicitation(message)) => message,
            Ok(_) => return,
            Err(fault) => return self.fail(format!("neighbor discovery of a worker: {fault:?}")),
        };
        let (true, Some(to)) = (message.target == site::gateway6().to_bits(), message.source_mac)
        else {
            return;
        };
        let mac = site::mac(Station::Switch, side);
        let answer = NdpPacket::answer(&message, mac, true);
        let frame = self.pool.frame(&build::ethernet6(to, mac, answer.as_bytes()));
        let frame = frame.expect("the pool has no limit");
        self.put(Station::Switch, site::station(to), side, frame, 0);
    }

    fn at_server(&mut self, packet: &[u8]) {
        match self.traffic.at_server(self.now_us, packet) {
            Err(why) => self.fail(why),
            Ok(arrived) => {
                let (public, home) = arrived.used;
                if public.is_ipv4() || !self.options.is_delegated {
                    self.block_logs.note_use(self.now_us, public, home);
                }
                if arrived.has_moved || arrived.is_shared {
                    self.checks.is_suspicious = true;
                }
                if let Some((to, reply)) = arrived.reply {
                    self.route(Side::Internet, to, &reply, OUTSIDE_US);
                }
            }
        }
    }

    /// Takes a packet that a worker sends into the access network.
    fn at_access(&mut self, packet: &[u8]) {
        let Ok((ip, ..)) = ipv4::parse(packet) else {
            return self.fail("no IPv4 packet leaves to the access side".into());
        };
        let to = Ipv4Addr::from_bits(ip.destination.get());
        if !site::is_home(to) {
            return self.fail(format!("a packet to {to} leaves to the access side"));
        }
        if let Err(why) = self.traffic.at_home(self.now_us, packet) {
            self.fail(why);
        }
    }

    /// Sends a packet from outside to the worker of the switch's best route.
    pub(super) fn route(&mut self, side: Side, to: IpAddr, packet: &[u8], after_us: u64) {
        let Some(position) = self.switches[side as usize].next_hop(to) else { return };
        let worker = Station::Worker(position);
        let (worker_mac, mac) = (site::mac(worker, side), site::mac(Station::Switch, side));
        let is_ipv6 = side == Side::Internet && to.is_ipv6();
        let bytes = match is_ipv6 {
            false => build::ethernet(worker_mac, mac, packet),
            true => build::ethernet6(worker_mac, mac, packet),
        };
        let frame = self.pool.frame(&bytes).expect("the pool has no limit");
        self.put(Station::Switch, worker, side, frame, after_us);
    }

    pub(super) fn flow(&mut self, flow: usize) {
        if !self.is_traffic_on {
            return;
        }
        if let Some((packet, next_us)) = self.traffic.next_packet(self.now_us, flow) {
            let shard = self.traffic.shard_of(flow);
            self.route(Side::Access, site::endpoint(shard).into(), &packet, OUTSIDE_US);
            self.queue.push(self.now_us + next_us, Event::Flow(flow));
        } else if let Some(next) = self.traffic.follow(flow) {
            self.queue.push(self.now_us, Event::Flow(next));
        }
    }

    pub(super) fn short_flow(&mut self, shard: u32, home: u32) {
        if self.is_traffic_on {
            let flow = self.traffic.open_short(shard, home);
            self.queue.push(self.now_us, Event::Flow(flow));
            if let Some(flow) = self.traffic.open_short6(&self.options, shard, home) {
                self.queue.push(self.now_us, Event::Flow(flow));
            }
            let interval_us = self.options.short_flow_interval_us;
            let next_us = interval_us / 2 + self.network_dice.below(interval_us);
            self.queue.push(self.now_us + next_us, Event::ShortFlow { shard, home });
        }
    }

    pub(super) fn probe(&mut self) {
        if self.is_traffic_on {
            let traffic = &mut self.traffic;
            let unwanted = [
                traffic.probe(false),
                Some(traffic.call()),
                traffic.forbidden(false),
                traffic.unwanted6(&self.options),
            ];
            for (side, to, packet) in unwanted.into_iter().flatten() {
                self.route(side, to, &packet, OUTSIDE_US);
            }
            self.queue.push(self.now_us + self.options.probe_interval_us, Event::Probe);
        }
    }
}

/// Whether an IPv6 packet is a message of neighbor discovery.
fn is_ndp(packet: &[u8]) -> bool {
    ipv6::parse(packet).is_ok_and(|(ip, _)| {
        let kind = packet.get(ipv6::Ipv6::LEN).copied().and_then(ndp::kind);
        ip.next_header == ipv6::PROTOCOL_ICMPV6 && kind.is_some()
    })
}
