//! IPv6 of the world: packets in and out beside those of IPv4.

use weir_engine::*;
use weir_nat::Delegation;
use weir_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use weir_wire::ipv6::Ipv6;
use weir_wire::vec_frame::VecFrame;
use weir_wire::{build, gre, icmp6, ipv4, ipv6, ndp, verify};

use super::link6::{ready6, sides6};
use super::{Bits, ENDPOINT, Out, World, config, gateway_mac};

/// Returns the configuration with IPv6 on both sides, and prefixes of both shards.
pub fn with_ipv6(config: EngineConfig) -> EngineConfig {
    let mut config = sides6(config);
    let prefixes = ["2001:db8:1000::/40", "2001:db8:2000::/40"];
    for (shard, prefix) in config.nat.shards.iter_mut().zip(prefixes) {
        shard.public6 = vec![prefix.parse().unwrap()];
    }
    config
}

/// A worker with IPv6 whose homes claim their prefixes.
pub fn dual_stack() -> World {
    let mut config = with_ipv6(config());
    config.nat.delegation = Some(Delegation::Claim { hold_sec: 600 });
    ready6(config)
}

/// Tunnel endpoint of the first shard for homes with tunnels over IPv6.
pub const ENDPOINT6: &str = "2001:db8:64::1";

/// Returns the configuration with IPv6, and homes with tunnels over either family that claim their
/// prefixes.
pub fn over_ipv6() -> EngineConfig {
    let mut config = with_ipv6(config());
    config.nat.delegation = Some(Delegation::Claim { hold_sec: 600 });
    config.nat.subscribers6 = vec!["2001:db8:e::/48".parse().unwrap()];
    config.shards[0].endpoint6 = Some(address6(ENDPOINT6));
    config
}

pub fn address(text: &str) -> u32 {
    Bits::to_bits(text)
}

pub fn address6(text: &str) -> u128 {
    text.parse::<std::net::Ipv6Addr>().unwrap().to_bits()
}

/// Returns the home, the GRE header and the inner packet of a tunnel packet, which must be sound.
pub fn decapsulate6(packet: &[u8]) -> (u32, gre::GreHeader, Vec<u8>) {
    let (home, header, inner) = super::decapsulate(packet);
    let (_, len) = ipv6::parse(&inner).expect("an IPv6 packet");
    assert_eq!((header.protocol, len), (gre::PROTOCOL_IPV6, inner.len()));
    (home, header, inner)
}

fn is_neighbor_discovery(packet: &[u8]) -> bool {
    let upper = ipv6::walk(packet, packet.len()).expect("a sound packet");
    let message = &packet[upper.offset..];
    upper.protocol == ipv6::PROTOCOL_ICMPV6
        && upper.fragment.is_none()
        && icmp6::parse(message).is_ok_and(|it| ndp::kind(it.kind).is_some())
}

impl Out {
    /// Returns the IPv6 packets that went to a side as they are, without neighbor discovery.
    pub fn ipv6_to(&self, side: Side) -> Vec<Vec<u8>> {
        let frames = self
            .other
            .iter()
            .filter(|(to, frame)| *to == side && frame[12..14] == ETHERTYPE_IPV6.to_be_bytes());
        let packets = frames.map(|(_, frame)| frame[14..].to_vec());
        let packets = packets.filter(|packet| !is_neighbor_discovery(packet));
        packets.inspect(|packet| assert_sound6(packet)).collect()
    }

    pub fn internet6(&self) -> Vec<Vec<u8>> {
        self.ipv6_to(Side::Internet)
    }

    /// Returns the only packet, an IPv6 packet to the internet.
    pub fn into_internet6(self) -> Vec<u8> {
        self.only6(Side::Internet)
    }

    /// Returns the only packet, an IPv6 packet to the access network without a tunnel.
    pub fn into_access6(self) -> Vec<u8> {
        self.only6(Side::Access)
    }

    fn only6(self, side: Side) -> Vec<u8> {
        assert_eq!((self.internet.len(), self.access.len()), (0, 0), "no packet of IPv4");
        let [only] = &self.ipv6_to(side)[..] else { panic!("one packet to the {side:?} side") };
        only.clone()
    }

    /// Returns the only packet, which went to a home: (outer destination, GRE header, inner packet
    /// of IPv6).
    pub fn into_home6(self) -> (u32, gre::GreHeader, Vec<u8>) {
        decapsulate6(&self.into_access())
    }

    /// Returns the only packet, which went to a home through a tunnel over IPv6.
    pub fn into_home_over6(self) -> ToHome {
        let packet = self.into_access6();
        let (outer, len) = ipv6::parse(&packet).unwrap();
        assert_eq!((outer.next_header, len), (ipv4::PROTOCOL_GRE, packet.len()));
        assert_eq!((outer.source.get(), outer.hop_limit), (address6(ENDPOINT6), 64));
        let header = gre::parse(&packet[Ipv6::LEN..]).unwrap();
        ToHome { outer: *outer, header, inner: packet[Ipv6::LEN + header.len..].to_vec() }
    }
}

/// A packet to a home, without its tunnel.
pub struct ToHome {
    pub outer: Ipv6,
    pub header: gre::GreHeader,
    pub inner: Vec<u8>,
}

/// Returns the tunnel packet of a home, whose inner packet is of either family.
pub fn tunnelled(home: &str, key: Option<u32>, inner: impl AsRef<[u8]>) -> Vec<u8> {
    build::ipv6(home, ENDPOINT6).gre(gre_header(key, inner.as_ref()), inner)
}

pub fn gre_header(key: Option<u32>, inner: &[u8]) -> build::GreBuilder {
    let protocol = if inner[0] >> 4 == 6 { gre::PROTOCOL_IPV6 } else { gre::PROTOCOL_IPV4 };
    build::gre().protocol(protocol).maybe_key(key)
}

/// Asserts that everything in the packet that can be checked is right.
fn assert_sound6(packet: &[u8]) {
    let (_, len) = ipv6::parse(packet).expect("an IPv6 packet");
    assert_eq!(len, packet.len(), "no padding");
    assert!(packet.len() >= Ipv6::LEN);
    if let Err(error) = verify::packet(packet) {
        panic!("{error}: {packet:02x?}");
    }
}

impl World {
    /// Passes in a packet of a home, in its tunnel.
    pub fn up6(&mut self, home: &str, inner: impl AsRef<[u8]>) -> Out {
        let header = build::gre().protocol(gre::PROTOCOL_IPV6);
        self.packet(Side::Access, &build::ipv4(home, ENDPOINT).gre(header, inner))
    }

    /// Passes in a packet of a home, in its tunnel over IPv6.
    pub fn up_over6(&mut self, home: &str, inner: impl AsRef<[u8]>) -> Out {
        self.packet6(Side::Access, &tunnelled(home, None, inner))
    }

    /// Passes in a packet from the internet.
    pub fn down6(&mut self, packet: impl AsRef<[u8]>) -> Out {
        self.packet6(Side::Internet, packet.as_ref())
    }

    /// Passes in one IPv6 packet, from the gateway of that side.
    pub fn packet6(&mut self, side: Side, packet: &[u8]) -> Out {
        let frame = self.ethernet(side, packet);
        self.frame(side, &frame)
    }

    /// Passes in one burst of IP packets, from the gateway of that side.
    pub fn packets(&mut self, side: Side, packets: &[Vec<u8>]) -> Out {
        let frames = packets.iter().map(|it| VecFrame::new(&self.ethernet(side, it))).collect();
        self.frames(side, frames)
    }

    /// Puts an IP packet of either family into a frame from the gateway of that side.
    pub fn ethernet(&self, side: Side, packet: &[u8]) -> Vec<u8> {
        let ethertype = match packet.first().map(|first| first >> 4) {
            Some(6) => ETHERTYPE_IPV6,
            _ => ETHERTYPE_IPV4,
        };
        build::ethernet_of(ethertype, self.macs[side as usize], gateway_mac(side), packet)
    }
}
