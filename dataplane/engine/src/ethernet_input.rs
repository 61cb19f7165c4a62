//! Hot. Ethernet input, the first step of every frame: checks that it is for this port and finds
//! what it carries.

use weir_wire::arp::Arp;
use weir_wire::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Mac};
use weir_wire::frame::Frame;
use weir_wire::ndp::NdpPacket;

use crate::link_header::LinkHeader;
use crate::neighbor::{Gateways, RequestPace};
use crate::side6::Side6;
use crate::{DropReason, SideConfig};

/// One side of the worker: its addresses on that network, and its next hops.
#[derive(Debug)]
pub(crate) struct WorkerSide {
    pub(crate) mac: Mac,
    pub(crate) address: u32,
    pub(crate) mtu: usize,
    pub(crate) gateways: Gateways,
    pub(crate) ipv6: Option<Side6>,
    pub(crate) vlan: Option<u16>,
}

/// Protocol that follows the Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Ipv4,
    Arp,
    Ipv6,
}

/// Returns the link-layer sender of a frame.
pub(crate) fn sender<F: Frame>(frame: &F) -> Mac {
    ethernet::parse(frame.data()).map_or(Mac::ZERO, |header| header.source)
}

impl WorkerSide {
    pub(crate) fn new(config: &SideConfig) -> Self {
        Self {
            mac: config.mac,
            address: config.address.addr().to_bits(),
            mtu: usize::from(config.mtu),
            gateways: Gateways::new(
                config.gateways.iter().map(|address| address.to_bits()),
                &config.gateway_macs,
                LinkHeader::new(Mac::ZERO, config.mac, config.vlan, ETHERTYPE_IPV4),
            ),
            ipv6: config.ipv6.as_ref().map(|ipv6| Side6::new(ipv6, config.mac, config.vlan)),
            vlan: config.vlan,
        }
    }

    /// Reads the Ethernet header (and VLAN tag) and returns the protocol that follows and the
    /// header's length.
    #[inline(always)]
    pub(crate) fn input<F: Frame>(&self, frame: &F) -> Result<(Network, usize), DropReason> {
        if !frame.is_contiguous() {
            return Err(DropReason::FrameSegmented);
        }
        let header = ethernet::parse_link(frame.data()).map_err(|_| DropReason::FrameTruncated)?;
        if header.vlan != self.vlan {
            return Err(DropReason::Vlan);
        }
        let network = match header.ethertype {
            ETHERTYPE_IPV4 => Network::Ipv4,
            ETHERTYPE_ARP => Network::Arp,
            ETHERTYPE_IPV6 if self.ipv6.is_some() => Network::Ipv6,
            _ => return Err(DropReason::EtherType),
        };
        // RFC 1122 section 3.3.6: an IP packet in a link-layer broadcast is discarded; ARP requests
        // are broadcast, and neighbor discovery is multicast.
        let is_ours = header.destination == self.mac
            || match network {
                Network::Ipv4 => false,
                Network::Arp => header.destination == Mac::BROADCAST,
                Network::Ipv6 => self.is_to_own_group(header.destination, frame, header.len),
            };
        if !is_ours {
            return Err(DropReason::NotOurMac);
        }
        Ok((network, header.len))
    }

    /// Whether an IPv6 packet, at `offset` of its frame, is for a group of the worker.
    #[cold]
    fn is_to_own_group<F: Frame>(&self, mac: Mac, frame: &F, offset: usize) -> bool {
        let packet = frame.data().get(offset..).unwrap_or_default();
        self.ipv6.as_ref().is_some_and(|ipv6| ipv6.is_to_own_group(mac, packet))
    }

    /// Whether the side can forward packets of each family that it has. The families share their
    /// fate: routes lead both to a worker, or neither.
    pub(crate) fn is_up(&self) -> bool {
        self.gateways.is_up() && self.ipv6.as_ref().is_none_or(Side6::is_up)
    }

    /// Whether frames of this link carry a VLAN tag.
    #[inline(always)]
    pub(crate) fn is_tagged(&self) -> bool {
        self.vlan.is_some()
    }

    /// Returns the header of an IPv4 packet to a station of this link.
    pub(crate) fn header_to(&self, to: Mac) -> LinkHeader {
        LinkHeader::new(to, self.mac, self.vlan, ETHERTYPE_IPV4)
    }

    /// Returns the header of an IPv6 packet to a station of this link.
    pub(crate) fn header6_to(&self, to: Mac) -> LinkHeader {
        LinkHeader::new(to, self.mac, self.vlan, ETHERTYPE_IPV6)
    }

    pub(crate) fn set_mac(&mut self, mac: Mac) {
        self.mac = mac;
        self.gateways.set_header(self.header_to(Mac::ZERO));
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.set_mac(mac, self.vlan);
        }
    }

    pub(crate) fn set_pace(&mut self, pace: RequestPace) {
        self.gateways.set_pace(pace);
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.gateways.set_pace(pace);
        }
    }

    /// Turns `frame`, which must be empty, into an ARP message ready to send; false if it has no
    /// room.
    pub(crate) fn fill_arp<F: Frame>(&self, frame: &mut F, message: &Arp, to: Mac) -> bool {
        if !frame.extend(Arp::LEN) {
            return false;
        }
        message.emit(frame.data_mut());
        LinkHeader::new(to, self.mac, self.vlan, ETHERTYPE_ARP).push(frame)
    }

    /// Turns `frame`, which must be empty, into a message of neighbor discovery ready to send;
    /// false if it has no room.
    pub(crate) fn fill_ndp<F: Frame>(&self, frame: &mut F, packet: &NdpPacket, to: Mac) -> bool {
        let bytes = packet.as_bytes();
        if !frame.extend(bytes.len()) {
            return false;
        }
        frame.data_mut().copy_from_slice(bytes);
        self.header6_to(to).push(frame)
    }
}
