//! The packets of a run without the fields of a flow: one template per size and direction.

use weir_wire::ethernet::Mac;

use crate::families::{Families, FamilySet};
use crate::packet::{Direction, FCS_LEN, Family, GRE, GRE6, Ipv4, Ipv6, Kind, PLAIN, Template};
use crate::scenario::{Access, Protocol};

/// The sizes of a run's packets: those of the plain Ethernet frame with its FCS, as in RFC 2544. In
/// a tunnel a packet has 24 bytes more, over IPv6 44; an IPv6 packet, whose header is longer than
/// that of IPv4, has 20 bytes more as far as the largest size goes, so that its payload is the
/// same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Fixed(u16),
    /// 64, 594 and 1518 bytes in the proportion 7:4:1. A flow always has the same size.
    Imix,
}

/// The sizes that RFC 2544 section 9.1 lists for Ethernet.
pub const SIZES: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
const IMIX: [u16; 3] = [64, 594, 1518];
const SIZE_MAX: u16 = 1518;
const IPV6_MORE: u16 = (Ipv6::HEADER_LEN - Ipv4::HEADER_LEN) as u16;
/// Size of each of twelve neighbouring flows, as an index into [`IMIX`].
const IMIX_PATTERN: [u8; 12] = [0, 1, 0, 1, 0, 0, 2, 0, 1, 0, 1, 0];

/// The form of a run's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    pub access: Access,
    pub protocol: Protocol,
    pub families: Families,
    pub size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrafficError {
    #[error("frames have 64 to 1518 bytes")]
    Size,
    #[error("a TCP packet with its mark needs 76 bytes: 64 and imix are for UDP")]
    TcpSize,
}

impl Traffic {
    /// Refuses sizes that cannot hold the required content of every packet.
    pub fn check(&self) -> Result<(), TrafficError> {
        let smallest = match self.size {
            Size::Fixed(size) if !(64..=SIZE_MAX).contains(&size) => {
                return Err(TrafficError::Size);
            }
            Size::Fixed(size) => size,
            Size::Imix => IMIX[0],
        };
        let needed = Kind::<Ipv4, PLAIN, true>::HEAD + FCS_LEN;
        if self.protocol == Protocol::Tcp && usize::from(smallest) < needed {
            return Err(TrafficError::TcpSize);
        }
        Ok(())
    }
}

/// The templates of one direction.
#[derive(Clone, Debug)]
pub(super) struct Templates {
    /// By size; empty in a run without the family.
    ipv4: Vec<Template>,
    ipv6: Vec<Template>,
}

impl Templates {
    /// Makes the templates. `source` and `destination` are MAC addresses.
    pub(super) fn new(
        traffic: Traffic,
        source: Mac,
        destination: Mac,
        direction: Direction,
    ) -> Self {
        let sizes = match traffic.size {
            Size::Fixed(size) => vec![size],
            Size::Imix => IMIX.to_vec(),
        };
        let link = (source, destination, direction);
        let ipv4 = sizes.iter().map(|&size| template::<Ipv4>(traffic, link, size));
        let longer = sizes.iter().map(|&size| (size + IPV6_MORE).min(SIZE_MAX));
        let ipv6 = longer.map(|size| template::<Ipv6>(traffic, link, size));
        Templates {
            ipv4: ipv4.filter(|_| traffic.families.has_ipv4()).collect(),
            ipv6: ipv6.filter(|_| traffic.families.has_ipv6()).collect(),
        }
    }

    /// Returns the template for a flow.
    #[inline(always)]
    pub(super) fn of<S: FamilySet>(&self, flow: u32) -> &Template {
        let of_size = if S::is_ipv6(flow) { &self.ipv6 } else { &self.ipv4 };
        match of_size.as_slice() {
            [only] => only,
            several => &several[usize::from(IMIX_PATTERN[flow as usize % IMIX_PATTERN.len()])],
        }
    }
}

/// Makes a template of a size, with FCS, between two stations.
fn template<F: Family>(
    traffic: Traffic,
    (source, destination, direction): (Mac, Mac, Direction),
    size: u16,
) -> Template {
    let (from, to, way, len) = (source, destination, direction, usize::from(size) - FCS_LEN);
    let access = match direction {
        Direction::Upstream => traffic.access,
        Direction::Downstream => Access::Plain,
    };
    let len = len + access.tunnel_len();
    match (access, traffic.protocol) {
        (Access::Gre, Protocol::Udp) => Template::new::<F, GRE, false>(from, to, way, len),
        (Access::Gre, Protocol::Tcp) => Template::new::<F, GRE, true>(from, to, way, len),
        (Access::GreOverIpv6, Protocol::Udp) => Template::new::<F, GRE6, false>(from, to, way, len),
        (Access::GreOverIpv6, Protocol::Tcp) => Template::new::<F, GRE6, true>(from, to, way, len),
        (Access::Plain, Protocol::Udp) => Template::new::<F, PLAIN, false>(from, to, way, len),
        (Access::Plain, Protocol::Tcp) => Template::new::<F, PLAIN, true>(from, to, way, len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::{BothFamilies, OnlyIpv4};

    const ANY: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn traffic(size: Size) -> Traffic {
        Traffic { access: Access::Gre, protocol: Protocol::Udp, families: Families::Ipv4, size }
    }

    #[test]
    fn imix_is_seven_four_one() {
        let templates = Templates::new(traffic(Size::Imix), ANY, ANY, Direction::Downstream);
        let mut counts = [0; 3];
        for flow in 0..1200 {
            let len = templates.of::<OnlyIpv4>(flow).len() as u16 + 4;
            counts[IMIX.iter().position(|&size| size == len).unwrap()] += 1;
        }
        assert_eq!(counts, [700, 400, 100]);
    }

    #[test]
    fn upstream_is_longer_by_the_tunnel() {
        let modes = [(Access::Gre, 24), (Access::GreOverIpv6, 44), (Access::Plain, 0)];
        for ((access, tunnel), protocol) in
            modes.into_iter().flat_map(|mode| [(mode, Protocol::Udp), (mode, Protocol::Tcp)])
        {
            for size in SIZES.into_iter().filter(|size| *size > 64) {
                let traffic = traffic(Size::Fixed(size));
                let traffic = Traffic { access, protocol, families: Families::Both, ..traffic };
                let up = Templates::new(traffic, ANY, ANY, Direction::Upstream);
                let down = Templates::new(traffic, ANY, ANY, Direction::Downstream);
                let without_fcs = usize::from(size) - 4;
                let ipv6 = usize::from((size + 20).min(SIZE_MAX)) - 4;
                assert_eq!(
                    (up.ipv4[0].len(), up.ipv6[0].len()),
                    (without_fcs + tunnel, ipv6 + tunnel)
                );
                assert_eq!((down.ipv4[0].len(), down.ipv6[0].len()), (without_fcs, ipv6));
            }
        }
    }

    #[test]
    fn packets_of_both_families_have_the_same_payload_but_for_the_largest() {
        for size in SIZES {
            let traffic = Traffic { families: Families::Both, ..traffic(Size::Fixed(size)) };
            let templates = Templates::new(traffic, ANY, ANY, Direction::Downstream);
            let of = |is_ipv6| (0..100).find(|&flow| BothFamilies::is_ipv6(flow) == is_ipv6);
            let payload =
                |is_ipv6| templates.of::<BothFamilies>(of(is_ipv6).unwrap()).payload_len();
            let less = if size == SIZE_MAX { 20 } else { 0 };
            assert_eq!(payload(false) - payload(true), less, "{size}");
        }
    }

    #[test]
    fn sizes_that_hold_no_packet_are_refused() {
        assert_eq!(traffic(Size::Fixed(63)).check(), Err(TrafficError::Size));
        assert_eq!(traffic(Size::Fixed(1519)).check(), Err(TrafficError::Size));
        assert_eq!(traffic(Size::Imix).check(), Ok(()));
        let tcp = Traffic { protocol: Protocol::Tcp, ..traffic(Size::Fixed(64)) };
        assert_eq!(tcp.check(), Err(TrafficError::TcpSize));
        assert_eq!(Traffic { size: Size::Fixed(128), ..tcp }.check(), Ok(()));
    }
}
