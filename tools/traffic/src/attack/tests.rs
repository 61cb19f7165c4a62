use std::collections::HashSet;

use weir_wire::describe::describe;
use weir_wire::{arp, verify};

use super::*;
use crate::packet::read;
use crate::scenario::Scenario;

const DEVICE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const GATEWAY: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn link(network: u8) -> Link {
    Link {
        device_mac: DEVICE,
        device_address: u32::from_be_bytes([10, network, 0, 1]),
        gateway_mac: GATEWAY,
        gateway_address: u32::from_be_bytes([10, network, 0, 2]),
    }
}

fn scenario(access: Access) -> Scenario {
    Scenario::new(64 * 300, 64, 1).unwrap().with_access(access).unwrap()
}

/// Returns the first packets of an attack, written into buffers with old content.
fn packets(attack: Attack, access: Access, count: usize) -> Vec<(Side, Vec<u8>)> {
    let home = scenario(access).spare_home().unwrap();
    let mut attacker = Attacker::new(attack, access, home, link(1), link(2));
    let next = |_| {
        let next = attacker.step();
        let mut bytes = vec![0xa5; next.len];
        attacker.write(&next, &mut bytes);
        (next.side, bytes)
    };
    (0..count).map(next).collect()
}

fn lines(attack: Attack, access: Access, count: usize) -> Vec<String> {
    packets(attack, access, count).iter().map(|(_, frame)| describe(frame)).collect()
}

fn distinct<T: Eq + std::hash::Hash>(of: impl IntoIterator<Item = T>) -> usize {
    of.into_iter().collect::<HashSet<_>>().len()
}

#[test]
fn every_attack_but_garbage_is_valid_and_never_part_of_a_flow() {
    for access in [Access::Gre, Access::GreOverIpv6, Access::Plain] {
        for attack in Attack::ALL {
            for (_, frame) in packets(attack, access, 500) {
                if attack != Attack::Garbage {
                    assert_eq!(verify::frame(&frame), Ok(()), "{attack}: {}", describe(&frame));
                }
                let way = Direction::Upstream;
                let ours = [
                    read::<Ipv4, GRE, true>(&frame, way),
                    read::<Ipv4, GRE, false>(&frame, way),
                    read::<Ipv4, PLAIN, true>(&frame, way),
                    read::<Ipv4, PLAIN, false>(&frame, way),
                    read::<Ipv4, GRE6, true>(&frame, way),
                    read::<Ipv4, GRE6, false>(&frame, way),
                ];
                assert_eq!(ours, [None; 6], "{attack}");
            }
        }
    }
}

#[test]
fn harmless_packets_are_those_of_64_flows_of_one_home() {
    for (access, home) in [
        (Access::Gre, "10.128.1.44 > 10.64.0.2 ttl 64 df gre | 192.168.1.10:20"),
        (Access::GreOverIpv6, "3fff:0:a80:12c::1 > 3fff:0:a40:2::1 hlim 64 gre | 192.168.1.10:20"),
        (Access::Plain, "10.128.1.44:20"),
    ] {
        let lines = lines(Attack::Harmless, access, 640);
        assert_eq!(distinct(&lines), 64);
        assert!(lines.iter().all(|line| line.contains(home)), "{}", lines[0]);
    }
}

#[test]
fn every_syn_opens_another_connection_of_one_home() {
    let lines = lines(Attack::Syn, Access::Gre, 1000);
    assert!(distinct(&lines) > 990, "{}", distinct(&lines));
    for line in lines {
        assert!(line.contains("10.128.1.44 > 10.64.0.2") && line.contains(" S"), "{line}");
    }
}

#[test]
fn remotes_attack_sends_from_one_port_to_many_remotes() {
    let lines = lines(Attack::Remotes, Access::Gre, 1000);
    assert!(distinct(&lines) > 990);
    assert!(lines.iter().all(|line| line.contains("192.168.1.10:20000 > 198.19.")), "{}", lines[0]);
}

#[test]
fn first_fragments_have_ever_other_identifications_and_no_rest() {
    for (access, ip) in [(Access::Gre, 38), (Access::GreOverIpv6, 58), (Access::Plain, 14)] {
        let packets = packets(Attack::Fragments, access, 500);
        let identification = |frame: &[u8]| u16::from_be_bytes([frame[ip + 4], frame[ip + 5]]);
        assert_eq!(distinct(packets.iter().map(|(_, frame)| identification(frame))), 500);
        for (_, frame) in packets {
            // More fragments follow, at offset 0; the length is a multiple of eight bytes.
            assert_eq!(frame[ip + 6..ip + 8], [0x20, 0]);
            assert!((frame.len() - ip - 20).is_multiple_of(8));
        }
    }
}

#[test]
fn ttl_attack_limits_the_inner_time_to_live_only() {
    for line in lines(Attack::Ttl, Access::Gre, 10) {
        assert_eq!(line.matches("ttl 64 df gre").count(), 1, "{line}");
        assert!(line.contains("ttl 1 df udp"), "{line}");
    }
}

#[test]
fn forged_homes_do_not_exist_and_reach_every_shard() {
    let scenario = scenario(Access::Gre);
    let homes: HashSet<u32> = (0..scenario.flows()).map(|flow| scenario.flow(flow).home).collect();
    let packets = packets(Attack::Forged, Access::Gre, 1000);
    let word = |frame: &[u8], at: usize| {
        u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
    };
    let sources: HashSet<u32> = packets.iter().map(|(_, frame)| word(frame, 26)).collect();
    assert!(sources.len() > 990 && sources.is_disjoint(&homes));
    assert!(sources.iter().all(|source| source >> 23 == HOMES >> 23));
    let tunnels: HashSet<u32> = packets.iter().map(|(_, frame)| word(frame, 30)).collect();
    let endpoints: HashSet<u32> =
        (0..scenario.shards()).map(|shard| scenario.tunnel_endpoint(shard).to_bits()).collect();
    assert_eq!(tunnels, endpoints);
}

#[test]
fn the_gateways_are_claimed_on_both_links_for_a_mac_that_they_do_not_have() {
    let packets = packets(Attack::Arp, Access::Gre, 4);
    let mut seen = HashSet::new();
    for (side, frame) in packets {
        let message = arp::parse(&frame[14..]).unwrap();
        let link = link(if side == Side::Access { 1 } else { 2 });
        assert_eq!(message.sender_ip.get(), link.gateway_address);
        assert!(message.sender_mac.is_unicast() && message.sender_mac != GATEWAY);
        seen.insert((side == Side::Access, message.is_reply(), message.is_gratuitous()));
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn hellos_reach_the_workers_port_of_replication_from_several_stations() {
    let lines = lines(Attack::Hello, Access::Gre, 64);
    assert!(lines.iter().all(|line| line.contains("> 10.1.0.1:7473 ")), "{}", lines[0]);
    let stations = lines.iter().map(|line| line.split(' ').nth(3).unwrap_or_default().to_owned());
    assert_eq!(distinct(stations), 16);
}

#[test]
fn garbage_reaches_endpoints_public_addresses_and_the_worker_on_both_links() {
    let packets = packets(Attack::Garbage, Access::Gre, 2000);
    assert!(distinct(packets.iter().map(|(_, frame)| frame)) > 1900);
    for (side, to) in [
        (Side::Access, "10.64.0.2"),
        (Side::Access, "10.1.0.1"),
        (Side::Internet, "10.2.0.1"),
        (Side::Internet, "198.18.0.8"),
    ] {
        let reaches = |(at, frame): &&(Side, Vec<u8>)| *at == side && describe(frame).contains(to);
        assert!(packets.iter().filter(reaches).count() > 40, "{to}");
    }
}

#[test]
fn attacks_are_known_by_their_names() {
    for attack in Attack::ALL {
        assert_eq!(attack.name().parse(), Ok(attack));
    }
    assert!("smurf".parse::<Attack>().unwrap_err().contains("harmless, syn"));
}
