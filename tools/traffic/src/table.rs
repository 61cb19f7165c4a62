//! The state of each flow, and the judgement of received packets. Hot path: two records read per
//! packet.
//!
//! The record of flow number `n` lies at index `n`, and the flood visits the indexes in ascending
//! order: the generator streams through its own table, while the device under test, which saw the
//! flows created in another order, accesses its table at random.

mod flow;

use weir_flow::{OutOfMemory, Region, prefetch};

use self::flow::{Flow, FlowFamily};
use crate::families::{Families, FamilySet};
use crate::ledger::Verdict;
use crate::packet::{
    Addresses, Direction, Family, Ipv4, Ipv6, Mark, PLAIN, Segment, Template, claimed_flow,
    ethertype, read,
};
use crate::scenario::{Endpoint, Scenario};

/// The behaviour of the device under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Decapsulates tunnelled packets and translates, in both directions.
    Translates,
    /// The same, but flows to different remote hosts may share a public endpoint (address- and
    /// port-dependent mapping, RFC 4787 section 4.1).
    TranslatesPerRemote,
    /// Forwards packets unchanged (raw forwarding).
    PassesThrough,
}

/// The outcome of learning a public endpoint from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    Learned,
    /// The flow had this endpoint already.
    Known,
    /// An endpoint other than the one learned before, a remote other than the one that was sent to,
    /// or a bad checksum.
    Wrong,
}

/// A first packet on the internet side, and what it taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub lesson: Lesson,
    pub mark: Mark,
    /// The last lap of the flow that had come through upstream before, 0 for none.
    pub lap_before: u32,
}

#[derive(Debug)]
pub struct Table {
    device: Device,
    families: Families,
    /// Flows established before the flood; the following ones are opened during it.
    established: u32,
    flows: Region<Flow>,
    creation_order: Vec<u32>,
}

impl Table {
    /// Makes the table, with 36 bytes per flow. If the device only forwards there is nothing to
    /// learn: public endpoints are assumed.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn new(scenario: &Scenario, device: Device) -> Result<Self, OutOfMemory> {
        let creation_order = scenario.creation_order();
        let families = scenario.families();
        let mut flows = Region::new(creation_order.len(), Flow::NONE)?;
        for (created, &number) in creation_order.iter().enumerate() {
            let created = created as u32;
            let plan = scenario.flow(created);
            let unknown = Endpoint { address: 0, port: 0 };
            let public = match device {
                Device::Translates | Device::TranslatesPerRemote => unknown,
                Device::PassesThrough => scenario.assumed_public(created),
            };
            flows[number as usize] = match families.is_ipv6(number) {
                true => Flow::new6(&plan),
                false => Flow::new(&plan, public),
            };
        }
        Ok(Table { device, families, established: scenario.flows(), flows, creation_order })
    }

    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the number of flows established before the flood.
    pub fn established(&self) -> u32 {
        self.established
    }

    /// Returns the number of all flows, including those to be opened during the flood.
    pub fn len(&self) -> u32 {
        self.flows.len() as u32
    }

    /// Returns false: a scenario has at least one flow.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Returns the flow numbers in the order of creation.
    pub fn creation_order(&self) -> &[u32] {
        &self.creation_order
    }

    /// Prefetches the record of a flow that will be needed soon.
    #[inline]
    pub fn prefetch(&self, number: u32) {
        prefetch(&self.flows, number as usize);
    }

    pub fn is_learned(&self, number: u32) -> bool {
        self.flows[number as usize].public != 0
    }

    /// Returns the last laps of a flow that came through upstream and downstream, 0 for none.
    pub fn laps_seen(&self, number: u32) -> [u32; 2] {
        self.flows[number as usize].laps_seen
    }

    /// Writes the packet that a home sends.
    #[inline(always)]
    pub fn write_upstream<S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &self,
        template: &Template,
        mark: Mark,
        bytes: &mut [u8],
    ) {
        let flow = &self.flows[mark.flow as usize];
        let segment = segment::<TCP>(Direction::Upstream, template, mark, flow.laps_seen[1]);
        if S::is_ipv6(mark.flow) {
            let addresses = flow.sent_by_home::<Ipv6>();
            template.write::<_, TUNNEL, TCP>(bytes, addresses, mark, segment);
        } else {
            let addresses = flow.sent_by_home::<Ipv4>();
            template.write::<_, TUNNEL, TCP>(bytes, addresses, mark, segment);
        }
    }

    /// Writes the packet that a remote host sends.
    #[inline(always)]
    pub fn write_downstream<S: FamilySet, const TCP: bool>(
        &self,
        template: &Template,
        mark: Mark,
        bytes: &mut [u8],
    ) {
        let flow = &self.flows[mark.flow as usize];
        let segment = segment::<TCP>(Direction::Downstream, template, mark, flow.laps_seen[0]);
        if S::is_ipv6(mark.flow) {
            let addresses = flow.sent_by_remote::<Ipv6>();
            template.write::<_, PLAIN, TCP>(bytes, addresses, mark, segment);
        } else {
            let addresses = flow.sent_by_remote::<Ipv4>();
            template.write::<_, PLAIN, TCP>(bytes, addresses, mark, segment);
        }
    }

    /// Prefetches the record of the flow of a frame received on the internet side.
    #[inline(always)]
    pub fn prefetch_of<S: FamilySet, const TCP: bool>(&self, frame: &[u8]) {
        let is_ipv6 = !S::HAS_IPV4 || (S::HAS_IPV6 && ethertype(frame) == Ipv6::ETHERTYPE);
        let flow = match is_ipv6 {
            true => claimed_flow::<Ipv6, PLAIN, TCP>(frame),
            false => claimed_flow::<Ipv4, PLAIN, TCP>(frame),
        };
        if let Some(flow) = flow {
            self.prefetch(flow);
        }
    }

    /// Learns the public endpoint of a flow from its first packet on the internet side; `None` if
    /// that is not a packet of the generator.
    #[inline(always)]
    pub fn learn<S: FamilySet, const TCP: bool>(&mut self, frame: &[u8]) -> Option<Arrival> {
        let of_ipv4 = if S::HAS_IPV4 { self.learn_as::<Ipv4, S, TCP>(frame) } else { None };
        if !S::HAS_IPV6 || of_ipv4.is_some() {
            return of_ipv4;
        }
        self.learn_as::<Ipv6, S, TCP>(frame)
    }

    #[inline(always)]
    fn learn_as<F: FlowFamily, S: FamilySet, const TCP: bool>(
        &mut self,
        frame: &[u8],
    ) -> Option<Arrival> {
        let seen = read::<F, PLAIN, TCP>(frame, Direction::Upstream)?;
        let mark = seen.mark;
        let flow = self.flows.get_mut(mark.flow as usize).filter(|_| is_of::<F, S>(mark.flow));
        let Some(flow) = flow else {
            return Some(Arrival { lesson: Lesson::Wrong, mark, lap_before: 0 });
        };
        let (lesson, lap_before) = (flow.learn(&seen), flow.laps_seen[0]);
        if lesson != Lesson::Wrong {
            flow.laps_seen[0] = lap_before.max(mark.lap);
        }
        Some(Arrival { lesson, mark, lap_before })
    }

    /// Returns the number of flows that share their public endpoint with another one, of a device
    /// that translates per remote: with another one to the same remote host. More than zero means a
    /// broken translator, since every flow has its own inside endpoint. IPv6 flows have none. Takes
    /// 8 bytes per learned flow while it counts.
    pub fn shared_endpoints(&self) -> usize {
        let is_per_remote = self.device == Device::TranslatesPerRemote;
        let endpoint = |flow: &Flow| {
            let endpoint = u64::from(flow.public) << 16 | u64::from(flow.public_port);
            // The remote hosts differ in their low bits alone.
            let remote = if is_per_remote { flow.remote.swap_bytes() as u16 } else { 0 };
            u64::from(remote) << 48 | endpoint
        };
        let numbered = (0..self.len()).zip(self.flows.iter());
        let learned = numbered.filter(|(_, flow)| flow.public != 0);
        let translated = learned.filter(|(number, _)| !self.families.is_ipv6(*number));
        let mut endpoints: Vec<u64> = translated.map(|(_, flow)| endpoint(flow)).collect();
        endpoints.sort_unstable();
        endpoints.windows(2).filter(|pair| pair[0] == pair[1]).count()
    }

    /// Reads and judges a packet received on the internet side. `None`: not a packet of the
    /// generator, or no longer recognisable as one. A flow that is opened by this packet is learned
    /// from it.
    #[inline(always)]
    pub fn judge_upstream<S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        frame: &[u8],
    ) -> Option<(Verdict, Mark)> {
        let of_ipv4 = if S::HAS_IPV4 { self.judge_up::<Ipv4, S, TUNNEL, TCP>(frame) } else { None };
        if !S::HAS_IPV6 || of_ipv4.is_some() {
            return of_ipv4;
        }
        self.judge_up::<Ipv6, S, TUNNEL, TCP>(frame)
    }

    #[inline(always)]
    fn judge_up<F: FlowFamily, S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        frame: &[u8],
    ) -> Option<(Verdict, Mark)> {
        let seen = read::<F, TUNNEL, TCP>(frame, Direction::Upstream)?;
        let mark = seen.mark;
        let flow = self.flows.get_mut(mark.flow as usize).filter(|_| is_of::<F, S>(mark.flow));
        let Some(flow) = flow else { return Some((Verdict::WrongAddress, mark)) };
        let expected = match self.device {
            Device::PassesThrough if TUNNEL != PLAIN => flow.sent_by_home(),
            Device::PassesThrough => Addresses { outer: 0, ..flow.sent_by_home() },
            Device::Translates | Device::TranslatesPerRemote => flow.reaching_remote(),
        };
        let is_right = seen.addresses == expected
            || (flow.public == 0 && flow.learn(&seen) == Lesson::Learned);
        Some((verdict(mark.lap, seen.checksums_right, is_right, &mut flow.laps_seen[0]), mark))
    }

    /// Reads and judges a packet received on the access side; `None` as in
    /// [`Table::judge_upstream`].
    #[inline(always)]
    pub fn judge_downstream<S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        frame: &[u8],
    ) -> Option<(Verdict, Mark)> {
        let of_ipv4 =
            if S::HAS_IPV4 { self.judge_down::<Ipv4, S, TUNNEL, TCP>(frame) } else { None };
        if !S::HAS_IPV6 || of_ipv4.is_some() {
            return of_ipv4;
        }
        self.judge_down::<Ipv6, S, TUNNEL, TCP>(frame)
    }

    #[inline(always)]
    fn judge_down<F: FlowFamily, S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        frame: &[u8],
    ) -> Option<(Verdict, Mark)> {
        let seen = read::<F, TUNNEL, TCP>(frame, Direction::Downstream)?;
        let mark = seen.mark;
        let flow = self.flows.get_mut(mark.flow as usize).filter(|_| is_of::<F, S>(mark.flow));
        let Some(flow) = flow else { return Some((Verdict::WrongAddress, mark)) };
        let expected = match self.device {
            Device::PassesThrough => flow.sent_by_remote(),
            _ if TUNNEL != PLAIN => flow.reaching_home(),
            _ => Addresses { outer: 0, ..flow.reaching_home() },
        };
        let is_right = seen.addresses == expected;
        Some((verdict(mark.lap, seen.checksums_right, is_right, &mut flow.laps_seen[1]), mark))
    }
}

/// True if a packet of this family may belong to the flow.
#[inline(always)]
fn is_of<F: Family, S: FamilySet>(flow: u32) -> bool {
    S::is_ipv6(flow) == (F::ETHERTYPE == Ipv6::ETHERTYPE)
}

#[inline(always)]
fn segment<const TCP: bool>(
    direction: Direction,
    template: &Template,
    mark: Mark,
    peer_lap: u32,
) -> Segment {
    if TCP {
        Segment::new(direction, mark.flow, mark.lap, peer_lap, template.payload_len())
    } else {
        Segment::default()
    }
}

/// Judges a packet by its lap. Laps of a flow arrive in ascending order: the device may lose
/// packets but has no reason to reorder two packets of a flow, which are a whole lap apart.
#[inline(always)]
fn verdict(lap: u32, checksums_right: bool, addresses_right: bool, lap_seen: &mut u32) -> Verdict {
    if !checksums_right {
        return Verdict::BadChecksum;
    }
    if !addresses_right {
        return Verdict::WrongAddress;
    }
    if lap <= *lap_seen {
        return Verdict::Duplicate;
    }
    *lap_seen = lap;
    Verdict::Right
}

#[cfg(test)]
mod tests;
