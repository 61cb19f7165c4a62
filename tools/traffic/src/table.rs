//! The state of each flow, and the judgement of received packets. Hot path: two records read per
//! packet.
//!
//! The record of flow number `n` lies at index `n`, and the flood visits the indexes in ascending
//! order: the generator streams through its own table, while the device under test, which saw the
//! flows created in another order, accesses its table at random.

use weir_flow::{OutOfMemory, Region, prefetch};

use crate::ledger::Verdict;
use crate::packet::{Addresses, Direction, Mark, Seen, Segment, Template, read};
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

/// One flow, half a cache line. Addresses and ports are wire words.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
struct Flow {
    /// Public address; 0 until learned.
    public: u32,
    remote: u32,
    inside: u32,
    home: u32,
    tunnel: u32,
    public_port: u16,
    inside_port: u16,
    /// The last lap seen on the internet side and on the access side; 0 for none.
    laps_seen: [u32; 2],
}

const _: () = assert!(size_of::<Flow>() == 32);

/// The port of every remote host, as a wire word.
const REMOTE_PORT: u16 = 443u16.swap_bytes();

impl Flow {
    /// Returns the addresses of an upstream packet as a home sends it.
    #[inline(always)]
    fn sent_by_home(&self) -> Addresses {
        Addresses {
            outer: pair(self.home, self.tunnel),
            inner: pair(self.inside, self.remote),
            ports: ports(self.inside_port, REMOTE_PORT),
        }
    }

    /// Returns the same after translation.
    #[inline(always)]
    fn reaching_remote(&self) -> Addresses {
        Addresses {
            outer: 0,
            inner: pair(self.public, self.remote),
            ports: ports(self.public_port, REMOTE_PORT),
        }
    }

    /// Returns the addresses of a downstream packet as a remote host sends it.
    #[inline(always)]
    fn sent_by_remote(&self) -> Addresses {
        Addresses {
            outer: 0,
            inner: pair(self.remote, self.public),
            ports: ports(REMOTE_PORT, self.public_port),
        }
    }

    /// Returns the same after translation.
    #[inline(always)]
    fn reaching_home(&self) -> Addresses {
        Addresses {
            outer: pair(self.tunnel, self.home),
            inner: pair(self.remote, self.inside),
            ports: ports(REMOTE_PORT, self.inside_port),
        }
    }

    fn learn(&mut self, seen: &Seen) -> Lesson {
        let (public, remote) = (seen.addresses.inner as u32, (seen.addresses.inner >> 32) as u32);
        let (public_port, remote_port) =
            (seen.addresses.ports as u16, (seen.addresses.ports >> 16) as u16);
        let is_plausible = seen.checksums_right && public != 0;
        if !is_plausible || remote != self.remote || remote_port != REMOTE_PORT {
            return Lesson::Wrong;
        }
        if self.public != 0 {
            let is_same = self.public == public && self.public_port == public_port;
            return if is_same { Lesson::Known } else { Lesson::Wrong };
        }
        (self.public, self.public_port) = (public, public_port);
        Lesson::Learned
    }
}

#[inline(always)]
fn pair(source: u32, destination: u32) -> u64 {
    u64::from(source) | u64::from(destination) << 32
}

#[inline(always)]
fn ports(source: u16, destination: u16) -> u32 {
    u32::from(source) | u32::from(destination) << 16
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

#[derive(Debug)]
pub struct Table {
    device: Device,
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
        let nothing = Flow {
            public: 0,
            remote: 0,
            inside: 0,
            home: 0,
            tunnel: 0,
            public_port: 0,
            inside_port: 0,
            laps_seen: [0; 2],
        };
        let mut flows = Region::new(creation_order.len(), nothing)?;
        for (created, &number) in creation_order.iter().enumerate() {
            let created = created as u32;
            let plan = scenario.flow(created);
            let unknown = Endpoint { address: 0, port: 0 };
            let public = match device {
                Device::Translates | Device::TranslatesPerRemote => unknown,
                Device::PassesThrough => scenario.assumed_public(created),
            };
            flows[number as usize] = Flow {
                public: public.address.swap_bytes(),
                remote: plan.remote.address.swap_bytes(),
                inside: plan.inside.address.swap_bytes(),
                home: plan.home.swap_bytes(),
                tunnel: plan.tunnel.swap_bytes(),
                public_port: public.port.swap_bytes(),
                inside_port: plan.inside.port.swap_bytes(),
                laps_seen: [0; 2],
            };
        }
        Ok(Table { device, established: scenario.flows(), flows, creation_order })
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
    pub fn write_upstream<const TUNNEL: bool, const TCP: bool>(
        &self,
        template: &Template,
        mark: Mark,
        bytes: &mut [u8],
    ) {
        let flow = &self.flows[mark.flow as usize];
        let segment = segment::<TCP>(Direction::Upstream, template, mark, flow.laps_seen[1]);
        template.write::<TUNNEL, TCP>(bytes, flow.sent_by_home(), mark, segment);
    }

    /// Writes the packet that a remote host sends.
    #[inline(always)]
    pub fn write_downstream<const TCP: bool>(
        &self,
        template: &Template,
        mark: Mark,
        bytes: &mut [u8],
    ) {
        let flow = &self.flows[mark.flow as usize];
        let segment = segment::<TCP>(Direction::Downstream, template, mark, flow.laps_seen[0]);
        template.write::<false, TCP>(bytes, flow.sent_by_remote(), mark, segment);
    }

    /// Learns the public endpoint of a flow from its first packet on the internet side.
    pub fn learn(&mut self, seen: &Seen) -> Lesson {
        let Some(flow) = self.flows.get_mut(seen.mark.flow as usize) else {
            return Lesson::Wrong;
        };
        let lesson = flow.learn(seen);
        if lesson != Lesson::Wrong {
            flow.laps_seen[0] = flow.laps_seen[0].max(seen.mark.lap);
        }
        lesson
    }

    /// Returns the number of flows that share their public endpoint with another one, of a device
    /// that translates per remote: with another one to the same remote host. More than zero means a
    /// broken translator, since every flow has its own inside endpoint. Takes 8 bytes per learned
    /// flow while it counts.
    pub fn shared_endpoints(&self) -> usize {
        let is_per_remote = self.device == Device::TranslatesPerRemote;
        let endpoint = |flow: &Flow| {
            let endpoint = u64::from(flow.public) << 16 | u64::from(flow.public_port);
            // The remote hosts differ in their low bits alone.
            let remote = if is_per_remote { flow.remote.swap_bytes() as u16 } else { 0 };
            u64::from(remote) << 48 | endpoint
        };
        let learned = self.flows.iter().filter(|flow| flow.public != 0);
        let mut endpoints: Vec<u64> = learned.map(endpoint).collect();
        endpoints.sort_unstable();
        endpoints.windows(2).filter(|pair| pair[0] == pair[1]).count()
    }

    /// Reads and judges a packet received on the internet side. `None`: not a packet of the
    /// generator, or no longer recognisable as one. A flow that is opened by this packet is learned
    /// from it.
    #[inline(always)]
    pub fn judge_upstream<const TUNNEL: bool, const TCP: bool>(
        &mut self,
        frame: &[u8],
    ) -> Option<(Verdict, Seen)> {
        let seen = read::<TUNNEL, TCP>(frame, Direction::Upstream)?;
        let Some(flow) = self.flows.get_mut(seen.mark.flow as usize) else {
            return Some((Verdict::WrongAddress, seen));
        };
        let expected = match self.device {
            Device::PassesThrough if TUNNEL => flow.sent_by_home(),
            Device::PassesThrough => Addresses { outer: 0, ..flow.sent_by_home() },
            Device::Translates | Device::TranslatesPerRemote => flow.reaching_remote(),
        };
        let is_right = seen.addresses == expected
            || (flow.public == 0 && flow.learn(&seen) == Lesson::Learned);
        Some((verdict(&seen, is_right, &mut flow.laps_seen[0]), seen))
    }

    /// Reads and judges a packet received on the access side; `None` as in
    /// [`Table::judge_upstream`].
    #[inline(always)]
    pub fn judge_downstream<const TUNNEL: bool, const TCP: bool>(
        &mut self,
        frame: &[u8],
    ) -> Option<(Verdict, Seen)> {
        let seen = read::<TUNNEL, TCP>(frame, Direction::Downstream)?;
        let Some(flow) = self.flows.get_mut(seen.mark.flow as usize) else {
            return Some((Verdict::WrongAddress, seen));
        };
        let expected = match self.device {
            Device::PassesThrough => flow.sent_by_remote(),
            _ if TUNNEL => flow.reaching_home(),
            _ => Addresses { outer: 0, ..flow.reaching_home() },
        };
        let is_right = seen.addresses == expected;
        Some((verdict(&seen, is_right, &mut flow.laps_seen[1]), seen))
    }
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
fn verdict(seen: &Seen, addresses_right: bool, lap_seen: &mut u32) -> Verdict {
    if !seen.checksums_right {
        return Verdict::BadChecksum;
    }
    if !addresses_right {
        return Verdict::WrongAddress;
    }
    if seen.mark.lap <= *lap_seen {
        return Verdict::Duplicate;
    }
    *lap_seen = seen.mark.lap;
    Verdict::Right
}

#[cfg(test)]
mod tests;
