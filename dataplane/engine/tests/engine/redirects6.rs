//! IPv6 packets without a flow at one worker are redirected once, sealed, to the worker that has
//! it, and processed there as if they had come directly.

use weir_engine::*;
use weir_nat::{BODY_MAX, Delegation, Tick};
use weir_wire::ipv6::{self as ip6, Ipv6};
use weir_wire::{build, gre, icmp6, ipv4, udp};

use crate::world;
use crate::world::ipv6::{ENDPOINT6, address6, decapsulate6, over_ipv6, with_ipv6};
use crate::world::link6::ready6;
use crate::world::pair::{A, B, Pair, SHARD};
use crate::world::{ENDPOINT, Out, World, config, plain};

const HOME: &str = "10.200.0.1";
const HOST: &str = "2001:db8:1000:1::7";
const OTHER_HOST: &str = "2001:db8:1000:2::7";
const SERVER: &str = "2001:db8:9::1";

/// Bytes of the seal around a packet.
const FRONT: usize = 24;
const BEHIND: usize = 16;

/// Makes two workers with IPv6; A redirects what it does not know to B.
fn pair_of(config: EngineConfig) -> Pair {
    let mut pair = Pair::of_worlds(config, ready6);
    for (world, peer) in [(&mut pair.a, B), (&mut pair.b, A)] {
        let mut setup = world.engine.setup();
        assert!(setup.add_peer(peer));
        setup.set_redirects(peer, Redirects::Sealed { front: FRONT, behind: BEHIND });
    }
    pair.pass_sec(1);
    pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
    pair
}

/// Returns the configuration with IPv6, and homes of this delegation.
fn delegated(config: EngineConfig, delegation: Delegation) -> EngineConfig {
    let mut config = with_ipv6(config);
    config.nat.delegation = Some(delegation);
    config
}

fn pair() -> Pair {
    pair_of(delegated(config(), Delegation::Claim { hold_sec: 600 }))
}

fn plain_pair() -> Pair {
    pair_of(delegated(plain(), Delegation::Prefix { home_length: 64 }))
}

/// Returns the packets that A has redirected, without their seals.
fn redirected_by_a(pair: &mut Pair) -> Vec<Vec<u8>> {
    let out = pair.a.seal(|to, front| assert_eq!((to, front), (B, FRONT)));
    let packets = out.access.iter().map(|datagram| {
        let (ip, header_len, len) = ipv4::parse(datagram).unwrap();
        assert_eq!((ip.source.get(), ip.destination.get()), (A.to_bits(), B.to_bits()));
        assert!(len <= 1500, "{len} bytes");
        datagram[header_len + udp::Udp::LEN + FRONT..len - BEHIND].to_vec()
    });
    packets.collect()
}

/// Delivers to B what A has redirected; returns what B sent because of it.
fn pass_on(pair: &mut Pair) -> Out {
    let mut out = Out::default();
    for packet in redirected_by_a(pair) {
        out.extend(pair.b.redirected(&packet));
    }
    out
}

fn redirected(world: &World) -> [u64; 2] {
    [Direction::Receive, Direction::Transmit].map(|direction| world.counters.redirected(direction))
}

fn traffic(world: &mut World) -> Vec<u16> {
    let mut shards = Vec::new();
    world.engine.take_traffic(|shard| shards.push(shard.0));
    shards
}

fn query() -> Vec<u8> {
    build::ipv6(HOST, SERVER).udp(5000, 53, b"query")
}

fn answer() -> Vec<u8> {
    build::ipv6(SERVER, HOST).udp(53, 5000, b"answer")
}

/// Returns the packet with its hop limit lowered by one.
fn hopped(mut packet: Vec<u8>) -> Vec<u8> {
    packet[7] -= 1;
    packet
}

fn in_tunnel(inner: impl AsRef<[u8]>) -> Vec<u8> {
    let header = build::gre().protocol(gre::PROTOCOL_IPV6).key(77);
    build::ipv4(HOME, ENDPOINT).gre(header, inner)
}

#[test]
fn new_flow_is_redirected_and_made_at_the_other_worker() {
    let mut pair = pair();
    pair.b.engine.nat_mut().replica_mut().set_replicated_lanes(SHARD, 0xff);
    assert!(pair.a.packet(Side::Access, &in_tunnel(query())).is_nothing());
    let [packet] = &redirected_by_a(&mut pair)[..] else { panic!("one packet") };
    let (to, header, inner) = decapsulate6(packet);
    let source = ipv4::parse(packet).unwrap().0.source.get();
    assert_eq!((source, to, header.key), (world::bits(HOME), world::bits(ENDPOINT), Some(77)));
    assert_eq!(inner, query(), "the home's packet is as it was");
    assert_eq!(pair.b.redirected(packet).into_internet6(), hopped(query()), "one hop");
    assert_eq!((redirected(&pair.a), redirected(&pair.b)), ([0, 1], [1, 0]));
    assert_eq!((traffic(&mut pair.a), traffic(&mut pair.b)), (vec![SHARD.0], vec![]));
    // The answer arrives at A.
    assert!(pair.a.down6(answer()).is_nothing());
    let (home, header, inner) = pass_on(&mut pair).into_home6();
    assert_eq!((home, header.key), (world::bits(HOME), Some(77)));
    assert_eq!(inner, hopped(answer()));
    assert!(traffic(&mut pair.b).is_empty(), "no route led it to B");
    // Once A has the changes, it forwards itself.
    let mut body = [0; BODY_MAX];
    let Pair { a, b } = &mut pair;
    while let Some((change, len)) = b.engine.nat_mut().replica_mut().next_change(&mut body) {
        a.engine.nat_mut().replica_mut().apply(&change, &body[..len], Tick(1));
    }
    assert_eq!(pair.a.packet(Side::Access, &in_tunnel(query())).into_internet6(), hopped(query()));
    pair.a.down6(answer()).into_home6();
    assert_eq!((redirected(&pair.a), pair.drops()), ([0, 2], 0));
}

/// In the middle of a connection that only B knows.
#[test]
fn segments_are_redirected_to_the_worker_that_knows_the_connection() {
    let mut pair = pair();
    let segment = || build::tcp(5000, 443);
    pair.b.up6(HOME, build::ipv6(HOST, SERVER).tcp(segment().syn())).into_internet6();
    assert!(pair.a.up6(HOME, build::ipv6(HOST, SERVER).tcp(segment().ack())).is_nothing());
    pass_on(&mut pair).into_internet6();
    let back = build::ipv6(SERVER, HOST).tcp(build::tcp(443, 5000).syn().ack());
    assert!(pair.a.down6(back).is_nothing());
    pass_on(&mut pair).into_home6();
    // No other worker knows this one.
    let unknown = build::ipv6(SERVER, HOST).tcp(build::tcp(443, 6000).ack());
    assert!(pair.a.down6(unknown).is_nothing());
    assert!(pass_on(&mut pair).is_nothing());
    assert_eq!((pair.a.drops(), pair.b.drops()), (0, 1));
}

#[test]
fn pings_are_redirected_and_so_are_their_replies() {
    let mut pair = pair();
    assert!(
        pair.a.up6(HOME, build::ipv6(HOST, SERVER).icmp6_echo_request(7, 1, b"ping")).is_nothing()
    );
    pass_on(&mut pair).into_internet6();
    assert!(pair.a.down6(build::ipv6(SERVER, HOST).icmp6_echo_reply(7, 1, b"ping")).is_nothing());
    pass_on(&mut pair).into_home6();
    assert_eq!(pair.drops(), 0);
}

/// Packets of both families, in tunnels over IPv6: the home's packet gets its tunnel header again.
#[test]
fn packets_in_tunnels_over_ipv6_are_redirected_in_their_tunnels() {
    const HOME6: &str = "2001:db8:e::1";
    let mut pair = pair_of(over_ipv6());
    let query4 = build::ipv4("192.168.1.10", "192.0.2.1").ttl(64).udp(5000, 53, b"query");
    let tunnel = |inner: &[u8]| {
        let protocol = [gre::PROTOCOL_IPV4, gre::PROTOCOL_IPV6][usize::from(inner[0] >> 4 == 6)];
        let header = build::gre().protocol(protocol).key(77);
        build::ipv6(HOME6, ENDPOINT6).hop_limit(64).gre(header, inner)
    };
    let read = |packet: &[u8]| {
        let (ip, len) = ip6::parse(packet).unwrap();
        let header = gre::parse(&packet[Ipv6::LEN..len]).unwrap();
        let ends = [ip.source.get(), ip.destination.get()];
        (ends, header.key, packet[Ipv6::LEN + header.len..len].to_vec())
    };
    let ends = [address6(HOME6), address6(ENDPOINT6)];
    for inner in [&query4, &query()] {
        assert!(pair.a.packet6(Side::Access, &tunnel(inner)).is_nothing());
        let [packet] = &redirected_by_a(&mut pair)[..] else { panic!("one packet") };
        assert_eq!(read(packet), (ends, Some(77), inner.clone()));
        let out = pair.b.redirected(packet);
        let (sent, answer) = match inner[0] >> 4 {
            6 => (out.into_internet6(), answer()),
            _ => {
                let sent = out.into_internet();
                let (public, port, ..) = world::ends(&sent);
                (sent, build::ipv4("192.0.2.1", public).ttl(64).udp(53, port, b"answer"))
            }
        };
        assert_eq!(sent.last_chunk::<5>(), Some(b"query"));
        // The answer arrives at A, too.
        assert!(pair.a.packet6(Side::Internet, &answer).is_nothing());
        let [delivered] = &pass_on(&mut pair).ipv6_to(Side::Access)[..] else {
            panic!("one packet to the home")
        };
        let (back, key, inner) = read(delivered);
        assert_eq!((back, key), ([ends[1], ends[0]], Some(77)));
        assert_eq!(inner.last_chunk::<6>(), Some(b"answer"));
    }
    assert_eq!((redirected(&pair.a), pair.drops()), ([0, 4], 0));
    // A home that is none, and packets that the worker itself answers.
    let stranger = build::ipv6("2001:db8:f::1", ENDPOINT6).gre(build::gre(), &query4);
    let ping = build::ipv6(HOME6, ENDPOINT6).icmp6_echo_request(1, 1, b"");
    let endpoint = build::ipv6(ENDPOINT6, HOME6).gre(build::gre().protocol(0), []);
    let keepalive =
        build::ipv6(HOME6, ENDPOINT6).gre(build::gre().protocol(gre::PROTOCOL_IPV6), endpoint);
    for packet in [stranger, ping, keepalive] {
        assert!(pair.b.redirected(&packet).is_nothing());
    }
    assert_eq!(pair.b.dropped(DropReason::NotSubscriber), 1);
    assert_eq!((pair.b.dropped(DropReason::NotLocal), pair.drops()), (2, 3));
}

/// More homes than there is room for at once.
#[test]
fn redirected_packets_that_begin_no_flow_leave_no_handle_behind() {
    let mut pair = pair_of(over_ipv6());
    let segment = build::ipv4("192.168.1.10", "192.0.2.1").tcp(build::tcp(5000, 80).ack());
    for n in 0..3_000 {
        let home = format!("2001:db8:e::{n:x}");
        let packet = build::ipv6(&*home, ENDPOINT6).gre(build::gre(), &segment);
        assert!(pair.b.redirected(&packet).is_nothing());
    }
    assert_eq!((pair.b.dropped(DropReason::TcpNotSyn), pair.b.drops()), (3_000, 3_000));
}

#[test]
fn packets_without_a_tunnel_are_redirected_as_they_are() {
    let mut pair = plain_pair();
    assert!(pair.a.packet6(Side::Access, &query()).is_nothing());
    let [packet] = &redirected_by_a(&mut pair)[..] else { panic!("one packet") };
    assert_eq!(*packet, query());
    assert_eq!(pair.b.redirected(packet).into_internet6(), hopped(query()));
    assert!(pair.a.down6(answer()).is_nothing());
    assert_eq!(pass_on(&mut pair).into_access6(), hopped(answer()));
    // B would take it for a packet of a home.
    let forged = build::ipv6(OTHER_HOST, HOST).udp(53, 6000, b"forged");
    assert!(pair.a.down6(forged).is_nothing());
    assert!(redirected_by_a(&mut pair).is_empty());
    assert_eq!((pair.a.dropped(DropReason::MissRefused), pair.drops()), (1, 1));
}

#[test]
fn later_fragments_are_redirected_with_their_first_fragment() {
    let pieces = |from: &str, to: &str, ports: (u16, u16)| {
        build::fragments6(build::ipv6(from, to).udp(ports.0, ports.1, vec![9; 3000]), 1280, 77)
    };
    for order in [[0, 1, 2], [2, 0, 1], [2, 1, 0]] {
        let mut pair = pair();
        let up = pieces(HOST, SERVER, (5000, 53));
        let mut sent = Out::default();
        for index in order {
            assert!(pair.a.up6(HOME, &up[index]).is_nothing());
            sent.extend(pass_on(&mut pair));
        }
        assert_eq!((sent.internet6().len(), redirected(&pair.a)), (3, [0, 3]), "{order:?}");
        let down = pieces(SERVER, HOST, (53, 5000));
        let mut sent = Out::default();
        for index in order {
            assert!(pair.a.down6(&down[index]).is_nothing());
            sent.extend(pass_on(&mut pair));
        }
        assert_eq!((sent.access.len(), redirected(&pair.a)), (3, [0, 6]), "{order:?}");
        assert_eq!(pair.drops() + (pair.a.pool.alive() + pair.b.pool.alive()) as u64, 0);
    }
}

#[test]
fn icmp_errors_are_redirected_to_the_worker_with_the_flow() {
    let mut pair = pair();
    let sent = pair.b.up6(HOME, query()).into_internet6();
    let (_, _, received) = pair.b.down6(answer()).into_home6();
    assert!(pair.a.up6(HOME, build::ipv6(HOST, SERVER).port_unreachable(&received)).is_nothing());
    let error = pass_on(&mut pair).into_internet6();
    assert_eq!(error[Ipv6::LEN], icmp6::DESTINATION_UNREACHABLE);
    let error = build::ipv6("2001:db8:9::99", HOST).time_exceeded(&sent);
    assert!(pair.a.down6(error).is_nothing());
    let (_, _, error) = pass_on(&mut pair).into_home6();
    assert_eq!((error[Ipv6::LEN], pair.drops()), (icmp6::TIME_EXCEEDED, 0));
    // Not addressed to the sender of what it quotes.
    let forged = build::ipv6("2001:db8:9::99", OTHER_HOST).time_exceeded(&sent);
    assert!(pair.a.down6(forged).is_nothing());
    assert_eq!(pair.a.dropped(DropReason::IcmpErrorUnmatched), 1);
}

/// RFC 8200 section 5: a router does not fragment.
#[test]
fn redirected_packet_beyond_the_mtu_is_reported_to_its_sender() {
    let mut pair = pair();
    let of_len = |from: &str, to: &str, ports: (u16, u16), len: usize| {
        build::ipv6(from, to).udp(ports.0, ports.1, vec![1; len - 48])
    };
    // 1,500 bytes without the headers and the seal, and without the tunnel of a home's packet.
    let most_down = 1500 - 28 - FRONT - BEHIND;
    let most_up = most_down - 24;
    let up = |len| of_len(HOST, SERVER, (5000, 53), len);
    assert!(pair.a.up6(HOME, up(most_up)).is_nothing());
    pass_on(&mut pair).into_internet6();
    let (_, _, error) = pair.a.up6(HOME, up(most_up + 1)).into_home6();
    let size_of = |error: &[u8]| {
        assert_eq!(error[Ipv6::LEN], icmp6::PACKET_TOO_BIG);
        icmp6::parse(&error[Ipv6::LEN..]).unwrap().mtu() as usize
    };
    assert_eq!(size_of(&error), most_up);
    let down = |len| of_len(SERVER, HOST, (53, 5000), len);
    assert!(pair.a.down6(down(most_down)).is_nothing());
    pass_on(&mut pair).into_home6();
    assert_eq!(size_of(&pair.a.down6(down(most_down + 1)).into_internet6()), most_down);
    assert_eq!((pair.a.dropped(DropReason::DontFragment), pair.drops()), (2, 2));
}

#[test]
fn nothing_is_redirected_twice() {
    let mut pair = pair();
    pair.b.engine.setup().set_misses(SHARD, Misses::Redirect(A));
    // B has a lane of its own and makes the flow in it.
    assert!(pair.a.up6(HOME, query()).is_nothing());
    pass_on(&mut pair).into_internet6();
    // Without a lane it cannot.
    pair.b.engine.nat_mut().replica_mut().set_owned_lanes(SHARD, 0, Tick(1));
    let other = build::ipv6(HOST, SERVER).udp(6000, 53, b"query");
    assert!(pair.a.up6(HOME, other).is_nothing());
    let unknown = build::ipv6(SERVER, HOST).udp(53, 6000, b"x");
    assert!(pair.a.down6(unknown).is_nothing());
    assert!(pass_on(&mut pair).is_nothing());
    assert_eq!((redirected(&pair.b), pair.b.dropped(DropReason::MissRefused)), ([3, 0], 2));
    // Later fragments without their first one, both ways.
    let later =
        |from: &str, to: &str| build::ipv6(from, to).fragment(9, 1480, false).payload(17, [0; 9]);
    for stray in [in_tunnel(later(HOST, SERVER)), later(SERVER, HOST)] {
        assert!(pair.b.redirected(&stray).is_nothing());
    }
    assert_eq!((pair.b.dropped(DropReason::MissRefused), pair.b.pool.alive()), (4, 0));
}

#[test]
fn packets_of_strangers_and_to_strangers_are_not_redirected() {
    let mut pair = pair();
    let header = || build::gre().protocol(gre::PROTOCOL_IPV6);
    let stranger = build::ipv4("10.201.0.1", ENDPOINT).gre(header(), query());
    assert!(pair.a.packet(Side::Access, &stranger).is_nothing());
    assert_eq!(pair.a.dropped(DropReason::NotSubscriber), 1);
    // One that speaks an earlier version knows no IPv6.
    pair.a.engine.setup().set_redirects(B, Redirects::Plain);
    assert!(pair.a.up6(HOME, query()).is_nothing());
    assert_eq!(pair.a.dropped(DropReason::MissRefused), 1);
    pair.a.engine.setup().set_redirects(B, Redirects::Refused);
    assert!(pair.a.up6(HOME, query()).is_nothing());
    assert_eq!((pair.a.dropped(DropReason::PeerNoSession), pair.drops()), (1, 3));
}

#[test]
fn malformed_redirected_packets_are_dropped_for_their_reason() {
    use DropReason::*;
    let cut = |len: usize| query()[..len].to_vec();
    let last = build::ipv6(HOST, SERVER).hop_limit(1).udp(5000, 53, b"x");
    let cases = [
        (Ip6Malformed, cut(39)),
        (Ip6Malformed, cut(47)),
        (Ip6Malformed, in_tunnel(cut(47))),
        (NotLocal, build::ipv4(HOME, "10.100.0.9").gre(build::gre().protocol(0x86dd), query())),
        (NotLocal, build::ipv6(SERVER, "2001:db8:7777::1").udp(1, 2, b"x")),
        (Martian, in_tunnel(build::ipv6("::1", SERVER).udp(1, 2, b"x"))),
        (Martian, build::ipv6("ff02::1", HOST).udp(1, 2, b"x")),
        (Protocol, in_tunnel(build::ipv6(HOST, SERVER).payload(132, [0; 20]))),
        (IcmpKind, build::ipv6(SERVER, HOST).payload(58, [135, 0, 0, 0, 0, 0, 0, 0])),
    ];
    for (reason, packet) in cases {
        let mut pair = pair();
        assert!(pair.b.redirected(&packet).is_nothing(), "{reason:?}");
        assert_eq!((pair.b.dropped(reason), pair.drops()), (1, 1), "{reason:?}");
    }
    // The hop limit ends: the home gets an ICMP error, as it would have got from the first worker.
    let (_, _, error) = pair().b.redirected(&in_tunnel(last)).into_home6();
    let (ip, _) = ip6::parse(&error).unwrap();
    assert_eq!((ip.next_header, error[Ipv6::LEN]), (58, icmp6::TIME_EXCEEDED));
}

/// A remote is the link of its address: its other addresses do not give it more.
#[test]
fn a_remote_that_scans_takes_no_redirects_from_homes_or_other_remotes() {
    let mut config = delegated(config(), Delegation::Claim { hold_sec: 600 });
    config.limits.redirects_per_sec = 50;
    let mut pair = pair_of(config);
    for n in 1..=200_u16 {
        let scan = build::ipv6(&*format!("2001:db8:9::{n:x}"), HOST).udp(9, n, b"x");
        assert!(pair.a.down6(scan).is_nothing());
    }
    assert_eq!(redirected_by_a(&mut pair).len(), 50);
    assert_eq!(pair.a.dropped(DropReason::RedirectLimit), 150);
    pair.a.down6(build::ipv6("2001:db8:a::1", HOST).udp(9, 9, b"x"));
    pair.a.up6(HOME, query());
    assert_eq!(redirected_by_a(&mut pair).len(), 2);
}
