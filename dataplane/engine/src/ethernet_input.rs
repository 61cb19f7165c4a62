//! Hot. Ethernet input, the first step of every frame: checks that it is for this port and finds
//! what it carries.

use weir_wire::arp::Arp;
use weir_wire::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4, Mac};
use weir_wire::frame::Frame;

use crate::link_header::LinkHeader;
use crate::neighbor::Gateways;
use crate::{DropReason, SideConfig};

/// One side of the worker: its addresses on that network, and its next hops.
#[derive(Debug)]
pub(crate) struct WorkerSide {
    pub(crate) mac: Mac,
    pub(crate) address: u32,
    pub(crate) mtu: usize,
    pub(crate) gateways: Gateways,
    pub(crate) vlan: Option<u16>,
}

/// Protocol that follows the Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Ipv4,
    Arp,
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
            _ => return Err(DropReason::EtherType),
        };
        // RFC 1122 section 3.3.6: an IP packet in a link-layer broadcast is discarded; ARP requests
        // are broadcast.
        let is_ours = header.destination == self.mac
            || (network == Network::Arp && header.destination == Mac::BROADCAST);
        if !is_ours {
            return Err(DropReason::NotOurMac);
        }
        Ok((network, header.len))
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

    pub(crate) fn set_mac(&mut self, mac: Mac) {
        self.mac = mac;
        self.gateways.set_header(self.header_to(Mac::ZERO));
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
}
