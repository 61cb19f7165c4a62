//! Malformed and hostile IPv6 packets of a home in its tunnel: each is dropped under its reason,
//! and weir goes on.

use std::net::Ipv6Addr;

use anyhow::{Context, ensure};
use weir_lab::injector::{Injector, mac_of};
use weir_lab::one_node::ENDPOINT;
use weir_lab::one_node::ipv6::address_in_home;
use weir_lab::services::SERVER6;
use weir_lab::{Echo, OneNode, wait_for};
use weir_wire::ipv6::EXTENSIONS_MAX;
use weir_wire::{build, gre};

use crate::names::{EXTENSION, HOP_LIMIT, MALFORMED, MARTIAN};
use crate::worlds::{DROP_DEADLINE, ECHO, drops, dual_stack_behind_gre, still_works};

/// Copies of each packet.
const COPIES: u64 = 10;

/// Name, inner packet, drop reason.
type Case = (&'static str, Vec<u8>, &'static str);

#[test]
fn malformed_ipv6_packets_of_a_home_are_dropped_each_under_its_reason() {
    OneNode::test(&dual_stack_behind_gre(), |net| {
        let _echo = Echo::udp(&net.internet, ECHO)?;
        let injector = Injector::new(&net.lab, &net.access, "weir0");
        let (weir, sender) = (mac_of(&net.node, "acc0")?, injector.mac()?);
        let outer = net.homes[2].outer.to_string();
        for (name, inner, reason) in cases() {
            let header = build::gre().protocol(gre::PROTOCOL_IPV6);
            let packet = build::ipv4(&*outer, &*ENDPOINT.to_string()).gre(header, inner);
            let frame = build::ethernet(weir, sender, packet);
            let before = drops(net, &[reason])?;
            injector.send(&vec![frame; COPIES as usize])?;
            wait_for(name, DROP_DEADLINE, || {
                (drops(net, &[reason]).ok()? >= before + COPIES).then_some(())
            })
            .with_context(|| format!("{reason} expected"))?;
            ensure!(drops(net, &[reason])? == before + COPIES, "{name}: counted twice");
        }
        still_works(net)
    });
}

fn cases() -> Vec<Case> {
    // The third home, which sends nothing else.
    let home = address_in_home(3, 2);
    let from = |source: Ipv6Addr| build::ipv6(source, SERVER6);
    let whole = from(home).udp(1, 2, b"query");
    let mut version = whole.clone();
    version[0] = 0x50;
    let mut length = whole.clone();
    length[4..6].copy_from_slice(&1400u16.to_be_bytes());
    let mut chain = from(home);
    for _ in 0..=EXTENSIONS_MAX {
        chain = chain.destination_options(&[]);
    }
    vec![
        ("header cut", whole[..39].to_vec(), MALFORMED),
        ("version 5", version, MALFORMED),
        ("payload length past the packet", length, MALFORMED),
        ("too many extension headers", chain.udp(1, 2, b"query"), EXTENSION),
        ("routing header of type 0", from(home).routing(0, 1, &[0; 20]).udp(1, 2, b""), EXTENSION),
        ("hop limit 1", from(home).hop_limit(1).udp(1, 2, b"query"), HOP_LIMIT),
        ("loopback as source", from(Ipv6Addr::LOCALHOST).udp(1, 2, b"query"), MARTIAN),
        ("multicast as source", from("ff02::1".parse().unwrap()).udp(1, 2, b"query"), MARTIAN),
    ]
}
