//! Homes with tunnels of GRE over IPv6 (RFC 7676), with both families inside.

use weir_engine::*;
use weir_wire::build;
use weir_wire::gre;
use weir_wire::icmp6;
use weir_wire::ipv4::Ipv4;
use weir_wire::ipv6::{self as ip6, Ipv6};
use weir_wire::tcp;

use crate::world;
use crate::world::ipv6::{ENDPOINT6, address6, gre_header, over_ipv6, tunnelled};
use crate::world::link6::ready6;
use crate::world::{Out, World};

const HOME: &str = "2001:db8:e::1";
const OTHER_HOME: &str = "2001:db8:e::2";
const STRANGER: &str = "2001:db8:f::1";
const INSIDE: &str = "192.168.1.10";
const SERVER: &str = "192.0.2.1";
const HOST6: &str = "2001:db8:1000:1::7";
const SERVER6: &str = "2001:db8:9::1";

fn world() -> World {
    ready6(over_ipv6())
}

impl World {
    /// Passes in a packet of the first home's flow from a port, and returns what leaves.
    fn udp_up(&mut self, home: &str, port: u16) -> Vec<u8> {
        self.up_over6(home, udp(port)).into_internet()
    }

    /// Returns the number of outer addresses that have a handle.
    fn outers(&self) -> u64 {
        let uses = self.engine.nat().admin().table_uses();
        uses.iter().find(|it| it.table == "outer-addresses").unwrap().used
    }
}

fn udp(port: u16) -> Vec<u8> {
    build::ipv4(INSIDE, SERVER).udp(port, 53, b"question")
}

fn udp6() -> Vec<u8> {
    build::ipv6(HOST6, SERVER6).udp(5000, 53, b"question")
}

fn answer6() -> Vec<u8> {
    build::ipv6(SERVER6, HOST6).udp(53, 5000, b"answer")
}

/// Returns the answer to a packet that left.
fn answer(sent: &[u8]) -> Vec<u8> {
    let (public, port, server, server_port) = world::ends(sent);
    build::ipv4(server, public).udp(server_port, port, b"answer")
}

#[test]
fn both_families_pass_both_ways_as_behind_a_tunnel_over_ipv4() {
    let (mut world, mut other) = (world(), world());
    for round in 0..4 {
        let sent = world.udp_up(HOME, 5000);
        let by_ipv4 = other.up("10.200.0.1", udp(5000)).into_internet();
        assert_eq!(sent, by_ipv4, "round {round}: the same port and packet");
        let delivered = world.down(answer(&sent)).into_home_over6();
        let expected = other.down(answer(&sent)).into_home();
        assert_eq!(delivered.inner, expected.2);
        assert_eq!(delivered.outer.destination.get(), address6(HOME));
        assert_eq!((delivered.header.protocol, delivered.header.key), (gre::PROTOCOL_IPV4, None));
        let sent = world.up_over6(HOME, udp6()).into_internet6();
        assert_eq!(sent, other.up6("10.200.0.1", udp6()).into_internet6());
        let delivered = world.down6(answer6()).into_home_over6();
        assert_eq!(delivered.inner, other.down6(answer6()).into_home6().2);
        assert_eq!(delivered.outer.destination.get(), address6(HOME));
        assert_eq!(delivered.header.protocol, gre::PROTOCOL_IPV6);
    }
    assert_eq!((world.drops(), world.outers()), (0, 1));
}

/// Each frame goes through the steps of its own tunnel and family, and none is lost between them.
#[test]
fn burst_with_both_families_in_both_tunnels_is_as_its_packets_one_by_one() {
    let inner6 = |last: u16| {
        build::ipv6(format!("2001:db8:1000:{last}::7").as_str(), SERVER6).udp(5000, 53, b"question")
    };
    let over4 =
        |inner: &[u8]| build::ipv4("10.200.0.1", "10.100.0.1").gre(gre_header(None, inner), inner);
    let up: Vec<Vec<u8>> = (0..48_u16)
        .map(|n| match n * 7 % 9 {
            0 | 4 => over4(&udp(6000 + n)),
            1 | 7 => over4(&inner6(1)),
            2 | 6 => tunnelled(HOME, None, udp(5000 + n)),
            3 => tunnelled(HOME, None, inner6(2)),
            // The fast path takes neither of these.
            5 => tunnelled(HOME, Some(7), udp(7000 + n)),
            _ => tunnelled(HOME, Some(7), inner6(2)),
        })
        .collect();
    let (mut alone, mut together) = (world(), world());
    for round in 0..3 {
        let sent: Vec<_> =
            up.iter().map(|it| alone.packets(Side::Access, std::slice::from_ref(it))).collect();
        let burst = match round {
            // The same flows in the same order, so that both have the same ports.
            0 => up
                .iter()
                .map(|it| together.packets(Side::Access, std::slice::from_ref(it)))
                .collect(),
            _ => vec![together.packets(Side::Access, &up)],
        };
        assert_eq!(sorted(&sent, Side::Internet), sorted(&burst, Side::Internet), "round {round}");
        let down: Vec<Vec<u8>> = sorted(&sent, Side::Internet)
            .iter()
            .map(|sent| match sent[0] >> 4 {
                4 => answer(sent),
                _ => build::ipv6(SERVER6, ip6::parse(sent).unwrap().0.source.get())
                    .udp(53, 5000, b"answer"),
            })
            .collect();
        assert_eq!(down.len(), up.len());
        let delivered: Vec<_> =
            down.iter().map(|it| alone.packets(Side::Internet, std::slice::from_ref(it))).collect();
        let burst = [together.packets(Side::Internet, &down)];
        let [delivered, burst] = [&delivered[..], &burst].map(|out| sorted(out, Side::Access));
        // Identifications of tunnel packets over IPv4 are counted in the order of leaving.
        let without = |packets: Vec<Vec<u8>>| {
            let mut packets: Vec<_> = packets.into_iter().map(without_identification).collect();
            packets.sort();
            packets
        };
        assert_eq!(without(delivered), without(burst), "round {round}");
    }
    assert_eq!((alone.drops(), together.drops()), (0, 0));
}

/// Returns the packets that went to a side, sorted.
fn sorted(out: &[Out], side: Side) -> Vec<Vec<u8>> {
    let frames = out.iter().flat_map(|out| &out.frames).filter(|(to, _)| *to == side);
    let mut packets: Vec<_> = frames.map(|(_, frame)| frame[14..].to_vec()).collect();
    packets.sort();
    packets
}

/// Clears identification and checksum of a packet of IPv4.
fn without_identification(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

#[test]
fn homes_with_the_same_inside_addresses_are_told_apart_by_the_whole_outer_address() {
    let mut world = world();
    let homes = ["2001:db8:e::1", "2001:db8:e:8000::1", "2001:db8:e::8000:0:0:1", "2001:db8:e::2"];
    let sent = homes.map(|home| world.udp_up(home, 5000));
    for (home, sent) in homes.iter().zip(&sent) {
        let delivered = world.down(answer(sent)).into_home_over6();
        assert_eq!(delivered.outer.destination.get(), address6(home));
        assert_eq!(&world.udp_up(home, 5000)[..28], &sent[..28], "a settled flow keeps its port");
    }
    assert_eq!(world.outers(), 4);
}

#[test]
fn first_packets_of_a_burst_share_the_handle_of_their_home() {
    let mut world = world();
    let mut packets: Vec<_> = (0..20).map(|n| tunnelled(HOME, None, udp(5000 + n % 7))).collect();
    packets.push(tunnelled(HOME, None, udp6()));
    let out = world.packets(Side::Access, &packets);
    assert_eq!((out.internet.len(), out.internet6().len()), (20, 1));
    assert_eq!((world.outers(), world.drops()), (1, 0));
    assert_eq!(world.engine.nat().admin().gauges().flows, 8);
}

#[test]
fn packets_of_a_home_keep_their_order_whatever_the_tunnels_of_others() {
    let mut world = world();
    world.udp_up(HOME, 5000);
    world.up("10.200.0.1", udp(5000));
    let over4 = |n: u8| {
        let inner = build::ipv4(INSIDE, SERVER).udp(5000, 53, [n; 9]);
        build::ipv4("10.200.0.1", world::ENDPOINT).gre(build::gre(), inner)
    };
    let over6 = |n: u8| tunnelled(HOME, None, build::ipv4(INSIDE, SERVER).udp(5000, 53, [n; 9]));
    let packets: Vec<_> = (0..40).map(|n| if n % 3 == 0 { over4(n) } else { over6(n) }).collect();
    let out = world.packets(Side::Access, &packets);
    let (over4, over6): (Vec<u8>, Vec<u8>) =
        out.internet.iter().map(|packet| packet[28]).partition(|n| n % 3 == 0);
    assert_eq!((over4.len(), over6.len()), (14, 26));
    assert!(over4.is_sorted() && over6.is_sorted());
}

#[test]
fn key_of_the_tunnel_is_echoed() {
    let mut world = world();
    for key in [Some(7), None, Some(8)] {
        let sent = world.packet6(Side::Access, &tunnelled(HOME, key, udp(5000))).into_internet();
        assert_eq!(world.down(answer(&sent)).into_home_over6().header.key, key);
        world.packet6(Side::Access, &tunnelled(HOME, key, udp6())).into_internet6();
        assert_eq!(world.down6(answer6()).into_home_over6().header.key, key);
    }
}

#[test]
fn keys_tell_the_homes_behind_one_outer_address_apart() {
    let mut config = over_ipv6();
    config.nat.gre_key_identifies_home = true;
    let mut world = ready6(config);
    let sent = [1, 2].map(|key| {
        world.packet6(Side::Access, &tunnelled(HOME, Some(key), udp(5000))).into_internet()
    });
    for (sent, key) in sent.iter().zip([1, 2]) {
        assert_eq!(world.down(answer(sent)).into_home_over6().header.key, Some(key));
    }
    assert_eq!((world.outers(), world.engine.nat().admin().gauges().subscribers), (1, 2));
}

#[test]
fn forged_sources_leave_nothing_behind() {
    let mut world = world();
    let ack = build::ipv4(INSIDE, SERVER).tcp(build::tcp(5000, 443).ack());
    for n in 0..500 {
        let home = format!("2001:db8:e::{n:x}:1");
        world.assert_dropped(DropReason::TcpNotSyn, |world| world.up_over6(&home, &ack));
    }
    world.pass_ms(100);
    assert_eq!((world.outers(), world.engine.nat().admin().gauges().subscribers), (0, 0));
    world.assert_dropped(DropReason::NotSubscriber, |world| world.up_over6(STRANGER, udp(1)));
    world.assert_dropped(DropReason::NotSubscriber, |world| world.up_over6(STRANGER, udp6()));
}

/// A handle is an address of 240.0.0.0/4, so no IPv4 source there may pass for the home.
#[test]
fn ipv4_source_that_equals_a_handle_is_refused() {
    let mut world = world();
    world.udp_up(HOME, 5000);
    world.up_over6(HOME, udp6());
    let outer = address6(HOME).to_be_bytes();
    let halves = [0, 8].map(|at| u64::from_be_bytes(outer[at..at + 8].try_into().unwrap()));
    let handle = world::dotted(world.engine.nat().find_outer(halves).unwrap());
    for _ in 0..3 {
        world.assert_dropped(DropReason::Martian, |world| world.up(&handle, udp(5000)));
        world.assert_dropped(DropReason::Martian, |world| world.up(&handle, udp(5001)));
        world.assert_dropped(DropReason::Martian, |world| world.up6(&handle, udp6()));
        let keyed = build::ipv4(&*handle, world::ENDPOINT).gre(build::gre().key(7), udp(5000));
        world.assert_dropped(DropReason::Martian, |world| world.packet(Side::Access, &keyed));
    }
}

#[test]
fn tunnel_mtu_is_that_of_the_link_less_44_bytes_and_a_key() {
    let mut world = world();
    let sent = world.udp_up(HOME, 5000);
    let (public, port, server, server_port) = world::ends(&sent);
    let of_len = |len: usize, df: bool| {
        let payload = vec![0; len - Ipv4::LEN - 8];
        build::ipv4(server, public).df(df).udp(server_port, port, payload)
    };
    for settled in [false, true] {
        let delivered = world.down(of_len(1456, true)).into_home_over6();
        assert_eq!(delivered.inner.len(), 1456, "settled: {settled}");
        let error = world.down(of_len(1457, true)).into_internet();
        assert_eq!(&error[20..22], [3, 4], "fragmentation needed");
        assert_eq!(u16::from_be_bytes([error[26], error[27]]), 1456);
        let pieces = world.down(of_len(1457, false)).ipv6_to(Side::Access);
        assert_eq!(pieces.len(), 2, "RFC 7676 section 3.3: the inner packet is fragmented");
        world.udp_up(HOME, 5000);
    }
    world.up_over6(HOME, udp6());
    let of_len6 =
        |len: usize| build::ipv6(SERVER6, HOST6).udp(53, 5000, vec![0; len - Ipv6::LEN - 8]);
    for key_len in [0, 4] {
        if key_len > 0 {
            world.packet6(Side::Access, &tunnelled(HOME, Some(1), udp6()));
        }
        let delivered = world.down6(of_len6(1456 - key_len)).into_home_over6();
        assert_eq!(delivered.inner.len(), 1456 - key_len);
        let error = world.down6(of_len6(1457 - key_len)).into_internet6();
        let message = icmp6::parse(&error[Ipv6::LEN..]).unwrap();
        assert_eq!((message.kind, message.mtu()), (icmp6::PACKET_TOO_BIG, 1456 - key_len as u32));
    }
}

#[test]
fn mss_fits_the_tunnel_in_both_families_and_that_of_other_homes_stays() {
    let mut world = world();
    let syn = |segment: build::TcpBuilder| segment.syn().mss(9000);
    let inner = build::ipv4(INSIDE, SERVER).tcp(syn(build::tcp(5000, 443)));
    let sent = world.up_over6(HOME, &inner).into_internet();
    assert_eq!(tcp::mss(&sent[Ipv4::LEN..]), Some(1500 - 44 - 40));
    let (public, port, ..) = world::ends(&sent);
    let back = build::ipv4(SERVER, public).tcp(syn(build::tcp(443, port).ack()));
    let delivered = world.down(back).into_home_over6();
    assert_eq!(tcp::mss(&delivered.inner[Ipv4::LEN..]), Some(1500 - 44 - 40));
    let inner6 = build::ipv6(HOST6, SERVER6).tcp(syn(build::tcp(5000, 443)));
    let sent = world.up_over6(HOME, inner6).into_internet6();
    assert_eq!(tcp::mss(&sent[Ipv6::LEN..]), Some(1500 - 44 - 60));
    let sent = world.up("10.200.0.1", &inner).into_internet();
    assert_eq!(tcp::mss(&sent[Ipv4::LEN..]), Some(1500 - 24 - 40));
}

/// RFC 6040 sections 4.1 and 4.2, RFC 2983 section 3.2.
#[test]
fn congestion_marks_and_code_points_cross_the_tunnel() {
    let mut world = world();
    world.udp_up(HOME, 5000);
    for (outer, inner, left) in [(2, 2, 2), (3, 2, 3), (0, 3, 3), (1, 2, 1), (0xb8, 0x28, 0x28)] {
        let packet = build::ipv4(INSIDE, SERVER).tos(inner).udp(5000, 53, b"question");
        let packet = build::ipv6(HOME, ENDPOINT6).traffic_class(outer).gre(build::gre(), packet);
        let sent = world.packet6(Side::Access, &packet).into_internet();
        assert_eq!(sent[1], left, "outer {outer:#x}, inner {inner:#x}");
        let packet = build::ipv6(HOST6, SERVER6).traffic_class(inner).udp(5000, 53, b"question");
        let header = gre_header(None, &packet);
        let packet = build::ipv6(HOME, ENDPOINT6).traffic_class(outer).gre(header, packet);
        let sent = world.packet6(Side::Access, &packet).into_internet6();
        assert_eq!(ip6::parse(&sent).unwrap().0.traffic_class(), left);
    }
    let marked = build::ipv6(HOME, ENDPOINT6).traffic_class(3).gre(build::gre(), udp(5000));
    world.assert_dropped(DropReason::EcnCongestion, |world| world.packet6(Side::Access, &marked));
    let sent = world.udp_up(HOME, 5000);
    let (public, port, ..) = world::ends(&sent);
    for class in [0, 2, 3, 0xba] {
        let back = build::ipv4(SERVER, public).tos(class).udp(53, port, b"answer");
        assert_eq!(world.down(back).into_home_over6().outer.traffic_class(), class);
        let back = build::ipv6(SERVER6, HOST6).traffic_class(class).udp(53, 5000, b"answer");
        assert_eq!(world.down6(back).into_home_over6().outer.traffic_class(), class);
    }
}

/// RFC 6438: the flow label of a tunnel packet is the same for a flow and differs between flows.
#[test]
fn flow_label_follows_the_flow() {
    let mut world = world();
    let labels: Vec<Vec<u32>> = (0..20)
        .map(|n| {
            let sent = world.udp_up(HOME, 5000 + n);
            (0..3).map(|_| world.down(answer(&sent)).into_home_over6().outer.flow_label()).collect()
        })
        .collect();
    assert!(labels.iter().all(|of_flow| of_flow.iter().all(|label| *label == of_flow[0])));
    let mut firsts: Vec<u32> = labels.iter().map(|of_flow| of_flow[0]).collect();
    firsts.sort_unstable();
    firsts.dedup();
    assert!(firsts.len() > 15, "{firsts:?}");
}

#[test]
fn icmp_errors_reach_the_home_in_its_tunnel() {
    let mut world = world();
    let dying = build::ipv4(INSIDE, SERVER).ttl(1).udp(5000, 53, b"question");
    for _ in 0..2 {
        let error = world.up_over6(HOME, &dying).into_home_over6();
        assert_eq!((error.header.protocol, error.inner[20]), (gre::PROTOCOL_IPV4, 11));
        assert_eq!(error.outer.destination.get(), address6(HOME));
    }
    let dying = build::ipv6(HOST6, SERVER6).hop_limit(1).udp(5000, 53, b"question");
    let error = world.up_over6(HOME, &dying).into_home_over6();
    let message = icmp6::parse(&error.inner[Ipv6::LEN..]).unwrap();
    assert_eq!(message.kind, icmp6::TIME_EXCEEDED);
    let sent = world.udp_up(HOME, 5000);
    let (public, ..) = world::ends(&sent);
    let error = build::ipv4("198.51.100.1", public).port_unreachable(&sent);
    let delivered = world.down(error).into_home_over6();
    assert_eq!((delivered.inner[20], delivered.inner[21]), (3, 3));
}

#[test]
fn endpoint_answers_pings_and_takes_no_other_icmp() {
    let mut world = world();
    let ping = build::ipv6(HOME, ENDPOINT6).icmp6_echo_request(7, 1, b"ping");
    let pong = world.packet6(Side::Access, &ping).into_access6();
    assert_eq!(pong, build::ipv6(ENDPOINT6, HOME).icmp6_echo_reply(7, 1, b"ping"));
    let sent = build::ipv6(ENDPOINT6, HOME).gre(build::gre(), udp(5000));
    let error = build::ipv6("2001:db8:1::9", ENDPOINT6).packet_too_big(1300, sent);
    world.assert_dropped(DropReason::TunnelIcmp, |world| world.packet6(Side::Access, &error));
    let other = build::ipv6(HOME, ENDPOINT6).udp(1, 2, b"no tunnel");
    world.assert_dropped(DropReason::OuterProtocol, |world| world.packet6(Side::Access, &other));
}

#[test]
fn tunnel_packets_that_are_no_good_are_dropped_under_their_reason() {
    let mut world = world();
    let outer = || build::ipv6(HOME, ENDPOINT6);
    let options = [1, 4, 0, 0, 0, 0];
    let sent = world
        .packet6(Side::Access, &outer().destination_options(&options).gre(build::gre(), udp(1)));
    assert_eq!(sent.internet.len(), 1, "extension headers are stepped over");
    let cut = tunnelled(HOME, None, &udp(1)[..20]);
    let mut checksum = udp(1);
    checksum[10] ^= 1;
    for (reason, packet) in [
        (DropReason::OuterFragment, outer().fragment(1, 0, true).payload(47, [0; 0])),
        (DropReason::Ip6Extension, outer().routing(0, 1, &[0; 20]).gre(build::gre(), udp(1))),
        (DropReason::GreProtocol, outer().gre(build::gre().protocol(0x88be), udp(1))),
        (DropReason::GreMalformed, outer().payload(47, [0x40, 0, 8, 0])),
        (DropReason::InnerMalformed, cut),
        (DropReason::InnerChecksum, tunnelled(HOME, None, checksum)),
        (DropReason::Ip6Malformed, tunnelled(HOME, None, &udp6()[..30])),
        (DropReason::NotLocal, build::ipv6(HOME, "2001:db8:64::2").gre(build::gre(), udp(1))),
    ] {
        world.assert_dropped(reason, |world| world.packet6(Side::Access, &packet));
    }
    let shard = weir_nat::ShardIndex(0);
    world.engine.setup().set_serving(shard, false);
    let packet = tunnelled(HOME, None, udp(1));
    world.assert_dropped(DropReason::NotServing, |world| world.packet6(Side::Access, &packet));
}

#[test]
fn keepalive_is_sent_back_as_the_home_made_it() {
    let mut world = world();
    let answer = build::ipv6(ENDPOINT6, HOME).gre(build::gre().protocol(0), []);
    for _ in 0..2 {
        assert_eq!(world.up_over6(HOME, &answer).into_access6(), answer);
    }
    let forged = build::ipv6(ENDPOINT6, OTHER_HOME).gre(build::gre().protocol(0), []);
    world.assert_dropped(DropReason::Protocol, |world| world.up_over6(HOME, forged));
}

#[test]
fn two_homes_behind_the_two_kinds_of_tunnels_reach_each_other() {
    let mut world = world();
    let sent = world.udp_up(HOME, 5000);
    let (public, port, ..) = world::ends(&sent);
    let other = world.up("10.200.0.2", build::ipv4(INSIDE, public).udp(6000, port, b"hello"));
    assert!(other.is_nothing(), "filtered");
    let (other_public, other_port) = {
        let sent = world.up("10.200.0.2", udp(6000)).into_internet();
        let (public, port, ..) = world::ends(&sent);
        (public, port)
    };
    world.up_over6(HOME, build::ipv4(INSIDE, other_public).udp(5000, other_port, b"hello"));
    let hello = build::ipv4(INSIDE, public).udp(6000, port, b"hello");
    let delivered = world.up("10.200.0.2", hello).into_home_over6();
    assert_eq!(delivered.outer.destination.get(), address6(HOME));
}

#[test]
fn shard_loses_its_endpoint_with_its_removal_and_may_get_it_again() {
    let mut config = over_ipv6();
    config.shards[1].endpoint6 = Some(address6(ENDPOINT6));
    let error = Engine::<weir_wire::vec_frame::VecFrame>::new(config).unwrap_err().to_string();
    assert!(error.contains(ENDPOINT6) && error.contains("two shards"), "{error}");
    let mut config = world::config();
    config.shards[0].endpoint6 = Some(address6(ENDPOINT6));
    let error = Engine::<weir_wire::vec_frame::VecFrame>::new(config).unwrap_err().to_string();
    assert!(error.contains("no IPv6 address"), "{error}");
}
