//! The other workers of the cluster with which this one exchanges packets: their addresses, and how
//! they are reached.
//!
//! All are on the access side. A peer on the worker's own subnet is resolved in advance, like a
//! gateway; a peer beyond it is reached through the gateways. The table is bounded; nothing is
//! allocated after the start.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use weir_wire::ethernet::Mac;
use weir_wire::frame::Frame;

use crate::Side;
use crate::engine::Engine;
use crate::link_header::LinkHeader;
use crate::neighbor::{Gateways, Neighbor, NeighborOutcome, RequestPace};

/// How packets without a mapping are redirected to another worker, and are received from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirects {
    /// No redirects: there is no session with it.
    #[default]
    Refused,
    /// In IPIP, in the clear: the peer speaks a version of replication that does not seal packets.
    Plain,
    /// Sealed by the session, as a datagram of replication with so many bytes before and after the
    /// packet.
    Sealed { front: usize, behind: usize },
}

#[derive(Debug)]
struct RedirectPeer {
    address: u32,
    redirects: Redirects,
    /// `None`: the peer is reached through the gateways.
    neighbor: Option<Neighbor>,
}

#[derive(Debug, Default)]
pub(crate) struct RedirectPeers {
    /// Sorted by address.
    all: Vec<RedirectPeer>,
    peers_max: usize,
    /// The worker's own address with its subnet.
    subnet: Ipv4Net,
    /// Header of IPv4 packets without a destination MAC.
    header: LinkHeader,
    /// Time before which no ARP request is due.
    next_request_ms: u64,
}

impl RedirectPeers {
    pub(crate) fn new(peers_max: usize, subnet: Ipv4Net, header: LinkHeader) -> Self {
        let all = Vec::with_capacity(peers_max);
        Self { all, peers_max, subnet, header, next_request_ms: 0 }
    }

    /// True if there can be any peer.
    #[inline]
    pub(crate) fn is_clustered(&self) -> bool {
        self.peers_max > 0
    }

    fn position(&self, address: u32) -> Result<usize, usize> {
        self.all.binary_search_by_key(&address, |peer| peer.address)
    }

    /// Adds a peer; false if there is no room.
    pub(crate) fn add(&mut self, address: Ipv4Addr) -> bool {
        let Err(position) = self.position(address.to_bits()) else { return true };
        if self.all.len() >= self.peers_max {
            return false;
        }
        let is_near = self.subnet.contains(&address);
        let neighbor = is_near.then(|| Neighbor::new(address.to_bits(), RequestPace::REFRESH));
        let (address, redirects) = (address.to_bits(), Redirects::Refused);
        self.all.insert(position, RedirectPeer { address, redirects, neighbor });
        self.next_request_ms = 0;
        true
    }

    pub(crate) fn remove(&mut self, address: Ipv4Addr) {
        if let Ok(position) = self.position(address.to_bits()) {
            self.all.remove(position);
        }
    }

    /// Returns the header that takes a packet to a peer; `None` if the address is no peer's, or if
    /// the peer or every gateway does not answer.
    pub(crate) fn header_to(&self, address: u32, gateways: &Gateways) -> Option<LinkHeader> {
        let peer = &self.all[self.position(address).ok()?];
        match &peer.neighbor {
            Some(neighbor) => neighbor.mac().map(|mac| self.header.to(mac)),
            None => gateways.choose(address).copied(),
        }
    }

    /// Returns how packets are redirected; `None` if the address is no peer's.
    pub(crate) fn redirects(&self, address: u32) -> Option<Redirects> {
        self.position(address).ok().map(|position| self.all[position].redirects)
    }

    pub(crate) fn set_redirects(&mut self, address: Ipv4Addr, redirects: Redirects) {
        if let Ok(position) = self.position(address.to_bits()) {
            self.all[position].redirects = redirects;
        }
    }

    /// Handles a station's ARP message about an address; ignored unless the address is a peer's.
    pub(crate) fn on_arp(
        &mut self,
        address: u32,
        mac: Mac,
        is_answer: bool,
        now_ms: u64,
    ) -> NeighborOutcome {
        let Ok(position) = self.position(address) else { return NeighborOutcome::Nothing };
        let Some(neighbor) = &mut self.all[position].neighbor else {
            return NeighborOutcome::Nothing;
        };
        let outcome = neighbor.on_message(mac, is_answer, now_ms);
        self.next_request_ms = self.next_request_ms.min(neighbor.next_request_ms());
        outcome
    }

    /// Calls `ask` for each address whose request is due.
    pub(crate) fn due(&mut self, now_ms: u64, mut ask: impl FnMut(u32, Option<Mac>)) {
        if now_ms < self.next_request_ms {
            return;
        }
        self.next_request_ms = u64::MAX;
        for RedirectPeer { address, neighbor, .. } in &mut self.all {
            let Some(neighbor) = neighbor else { continue };
            if let Some(to) = neighbor.due(now_ms) {
                ask(*address, to);
            }
            self.next_request_ms = self.next_request_ms.min(neighbor.next_request_ms());
        }
    }

    pub(crate) fn set_header(&mut self, header: LinkHeader) {
        self.header = header;
    }
}

impl<F: Frame> Engine<F> {
    pub(crate) fn header_to_peer(&self, address: u32) -> Option<LinkHeader> {
        self.peers.header_to(address, &self.link(Side::Access).gateways)
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::ethernet::ETHERTYPE_IPV4;

    use super::*;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 9]);
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const NEAR: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 7);
    const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 7);

    fn header() -> LinkHeader {
        LinkHeader::new(Mac::ZERO, OWN, None, ETHERTYPE_IPV4)
    }

    fn peers() -> RedirectPeers {
        RedirectPeers::new(2, "10.1.0.1/24".parse().unwrap(), header())
    }

    fn asked(peers: &mut RedirectPeers, now_ms: u64) -> Vec<u32> {
        let mut asked = Vec::new();
        peers.due(now_ms, |address, _| asked.push(address));
        asked
    }

    #[test]
    fn near_peer_is_resolved_and_far_peer_is_reached_through_the_gateways() {
        let (mut peers, mut gateways) = (peers(), Gateways::new([1].into_iter(), &[], header()));
        assert!(peers.add(FAR) && peers.add(NEAR) && peers.add(NEAR));
        assert!(!peers.add(Ipv4Addr::new(10, 1, 0, 8)), "the table has room for two peers");
        assert_eq!(asked(&mut peers, 5000), [NEAR.to_bits()]);
        assert_eq!(asked(&mut peers, 5999), [0; 0]);
        assert_eq!(asked(&mut peers, 6000), [NEAR.to_bits()]);
        let far =
            |peers: &RedirectPeers, gateways: &Gateways| peers.header_to(FAR.to_bits(), gateways);
        let near = |peers: &RedirectPeers| peers.header_to(NEAR.to_bits(), &Gateways::default());
        assert_eq!((near(&peers), far(&peers, &gateways)), (None, None));
        assert_eq!(peers.on_arp(NEAR.to_bits(), MAC, true, 6100), NeighborOutcome::Found);
        assert_eq!(peers.on_arp(FAR.to_bits(), MAC, true, 6100), NeighborOutcome::Nothing);
        gateways.on_message(1, OWN, true, 6100);
        assert_eq!(near(&peers), Some(header().to(MAC)));
        assert_eq!(far(&peers, &gateways), Some(header().to(OWN)));
        // The peer is asked again in time, also without traffic, and lost when it stays silent.
        assert_eq!(asked(&mut peers, 26_099), [0; 0]);
        for now_ms in [26_100, 27_100, 28_100, 29_100] {
            assert!(near(&peers).is_some());
            assert_eq!(asked(&mut peers, now_ms), [NEAR.to_bits()]);
        }
        assert_eq!(near(&peers), None);
    }

    #[test]
    fn removed_peer_is_unknown_until_it_is_added_and_resolved_again() {
        let mut peers = peers();
        assert!(peers.is_clustered() && peers.add(NEAR));
        peers.on_arp(NEAR.to_bits(), MAC, true, 0);
        peers.remove(NEAR);
        peers.remove(NEAR);
        assert_eq!(peers.redirects(NEAR.to_bits()), None);
        assert_eq!(peers.header_to(NEAR.to_bits(), &Gateways::default()), None);
        assert!(peers.add(NEAR));
        assert_eq!(peers.header_to(NEAR.to_bits(), &Gateways::default()), None, "not resolved");
    }
}
