//! What the generator knows of each flow, and its judgement of received packets. Hot: two records read per packet.
//!
//! The record of flow number `n` lies at place `n`, and the flood visits places in ascending order: the generator streams through
//! its own table, while the device under test, which saw the flows created in another order, jumps through its one.

use crate::ledger::Verdict;
use crate::packet::{Direction, Inner, Outer, Plain, Seen, Tunnel, read_plain, read_tunnel};
use crate::scenario::{Endpoint, Scenario};

/// What the device under test does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Takes them out of the tunnel, translates them, and back.
    Translates,
    /// Hands them through unchanged (raw forwarding).
    PassesThrough,
}

/// One flow, one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Flow {
    outer: Outer,
    /// Inside endpoint to remote.
    upstream: Inner,
    /// Remote to public endpoint; address 0 until learned.
    downstream: Inner,
    /// The last lap seen at the internet side and at the access side.
    laps_seen: [u32; 2],
}

const _: () = assert!(size_of::<Flow>() == 64);

impl Flow {
    fn learn(&mut self, seen: &Seen) -> Lesson {
        let is_plausible = seen.checksums_right && seen.source.address != 0;
        if !is_plausible || seen.destination != self.upstream.destination {
            return Lesson::Wrong;
        }
        let known = self.downstream.destination;
        if known.address != 0 {
            return if known == seen.source { Lesson::Known } else { Lesson::Wrong };
        }
        self.downstream =
            Inner::new(seen.destination, seen.source, seen.flow, Direction::Downstream);
        Lesson::Learned
    }
}

/// A learned public endpoint, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    Learned,
    /// The flow has this endpoint already.
    Known,
    /// Another endpoint than the one learned before, another remote than was sent to, or a bad checksum.
    Wrong,
}

#[derive(Debug)]
pub struct Table {
    device: Device,
    flows: Vec<Flow>,
    creation_order: Vec<u32>,
}

impl Table {
    /// 68 bytes per flow. Where the device passes packets through there is nothing to learn: public endpoints are assumed.
    pub fn new(scenario: &Scenario, device: Device) -> Self {
        let unknown = Endpoint { address: 0, port: 0 };
        let creation_order = scenario.creation_order();
        let nothing = Flow {
            outer: Outer::new(0, 0),
            upstream: Inner::new(unknown, unknown, 0, Direction::Upstream),
            downstream: Inner::new(unknown, unknown, 0, Direction::Downstream),
            laps_seen: [0; 2],
        };
        let mut flows = vec![nothing; creation_order.len()];
        for (created, &number) in creation_order.iter().enumerate() {
            let created = created as u32;
            let addresses = scenario.addresses(created);
            let flow = &mut flows[number as usize];
            flow.outer = Outer::new(addresses.home, addresses.tunnel);
            flow.upstream =
                Inner::new(addresses.inside, addresses.remote, number, Direction::Upstream);
            if device == Device::PassesThrough {
                let public = scenario.assumed_public(created);
                flow.downstream =
                    Inner::new(addresses.remote, public, number, Direction::Downstream);
            }
        }
        Table { device, flows, creation_order }
    }

    pub fn flows(&self) -> u32 {
        self.flows.len() as u32
    }

    /// Flow numbers in the order of creation.
    pub fn creation_order(&self) -> &[u32] {
        &self.creation_order
    }

    pub fn is_learned(&self, number: u32) -> bool {
        self.flows[number as usize].downstream.destination.address != 0
    }

    /// Writes the upstream packet of a flow: 84 bytes.
    #[inline]
    pub fn write_upstream(&self, template: &Tunnel, number: u32, lap: u32, bytes: &mut [u8]) {
        let flow = &self.flows[number as usize];
        template.write(bytes, &flow.outer, &flow.upstream, number, lap);
    }

    /// Writes the downstream packet of a flow: 60 bytes.
    #[inline]
    pub fn write_downstream(&self, template: &Plain, number: u32, lap: u32, bytes: &mut [u8]) {
        template.write(bytes, &self.flows[number as usize].downstream, number, lap);
    }

    /// Takes the public endpoint of a flow from its first packet on the internet side. `None`: not a packet of the generator.
    pub fn learn(&mut self, frame: &[u8]) -> Option<Lesson> {
        let seen = read_plain(frame, Direction::Upstream)?;
        let lesson =
            self.flows.get_mut(seen.flow as usize).map_or(Lesson::Wrong, |flow| flow.learn(&seen));
        Some(lesson)
    }

    /// How many flows share their public endpoint with another one: more than none is a broken translator, since every flow
    /// has its own inside endpoint.
    pub fn shared_endpoints(&self) -> usize {
        let mut endpoints: Vec<Endpoint> =
            self.flows.iter().map(|flow| flow.downstream.destination).collect();
        endpoints.sort_unstable();
        endpoints.windows(2).filter(|pair| pair[0].address != 0 && pair[0] == pair[1]).count()
    }

    /// Judges a packet received on the internet side. `None`: not a packet of the generator, or not recognisable as one any more.
    #[inline]
    pub fn judge_upstream(&mut self, frame: &[u8]) -> Option<Verdict> {
        let seen = match self.device {
            Device::Translates => read_plain(frame, Direction::Upstream),
            Device::PassesThrough => read_tunnel(frame, Direction::Upstream),
        }?;
        let Some(flow) = self.flows.get_mut(seen.flow as usize) else {
            return Some(Verdict::WrongAddress);
        };
        let is_right = match self.device {
            Device::Translates => {
                seen.source == flow.downstream.destination
                    && seen.destination == flow.upstream.destination
            }
            Device::PassesThrough => {
                seen.outer == Some((flow.outer.source, flow.outer.destination))
                    && seen.source == flow.upstream.source
                    && seen.destination == flow.upstream.destination
            }
        };
        Some(verdict(&seen, is_right, &mut flow.laps_seen[0]))
    }

    /// Judges a packet received on the access side; `None` as in [`Table::judge_upstream`].
    #[inline]
    pub fn judge_downstream(&mut self, frame: &[u8]) -> Option<Verdict> {
        let seen = match self.device {
            Device::Translates => read_tunnel(frame, Direction::Downstream),
            Device::PassesThrough => read_plain(frame, Direction::Downstream),
        }?;
        let Some(flow) = self.flows.get_mut(seen.flow as usize) else {
            return Some(Verdict::WrongAddress);
        };
        let is_right = match self.device {
            Device::Translates => {
                seen.outer == Some((flow.outer.destination, flow.outer.source))
                    && seen.source == flow.upstream.destination
                    && seen.destination == flow.upstream.source
            }
            Device::PassesThrough => {
                seen.source == flow.upstream.destination
                    && seen.destination == flow.downstream.destination
            }
        };
        Some(verdict(&seen, is_right, &mut flow.laps_seen[1]))
    }
}

/// Laps of a flow come in ascending order: the device may lose packets but has no reason to reorder two of a flow, which are a
/// whole lap apart.
#[inline]
fn verdict(seen: &Seen, addresses_right: bool, lap_seen: &mut u32) -> Verdict {
    if !seen.checksums_right {
        return Verdict::BadChecksum;
    }
    if !addresses_right {
        return Verdict::WrongAddress;
    }
    if seen.lap <= *lap_seen {
        return Verdict::Duplicate;
    }
    *lap_seen = seen.lap;
    Verdict::Right
}

#[cfg(test)]
mod tests;
