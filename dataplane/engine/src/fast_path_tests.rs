//! Compares the fast path with the slow path: any packet that the first takes, the second must read
//! alike. The input is valid frames of every kind, with bytes changed, cut or padded, and with
//! checksums corrected or not.

use std::sync::Mutex;

use bolero::{TypeGenerator, check};
use weir_engine::{DropReason, EngineConfig};
use weir_wire::describe::describe_packet;
use weir_wire::ethernet::{ETHERTYPE_ARP, Ethernet, Mac, Vlan};
use weir_wire::frame::VecFrame;
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::{build, checksum};

use weir_nat::{Hash, Home, ShardIndex};

use super::*;
use crate::AccessMode;
use crate::flow_key::FlowKey;
use crate::ipv6::carries_ipv6;
use crate::link_header::{TAGGED, UNTAGGED};
use crate::world::*;

const VLAN: u16 = 100;
const HOME_PLAIN: &str = "192.168.1.10";

/// Description of a frame. Most values of an octet mean the usual form and few mean an unusual one;
/// otherwise hardly any packet would be a fast-path packet.
#[derive(Clone, Debug, TypeGenerator)]
struct Shape {
    /// Whether the frame is tagged on an untagged port, or untagged on a tagged one.
    is_tag_wrong: u8,
    is_mac_wrong: u8,
    /// Selects the protocol, and the kind of its packet.
    transport: u8,
    ports: [u8; 2],
    tcp_flags: u8,
    /// Sizes of IP options, of TCP options and of the payload.
    options: [u8; 2],
    payload: u8,
    fragment: u8,
    ttl: u8,
    tos: [u8; 2],
    addresses: [u8; 2],
    /// Outer address, outer protocol, GRE options.
    tunnel: [u8; 3],
    changes: [Change; 4],
    /// Number of changes that are made.
    #[generator(0..=4_u8)]
    changed: u8,
    /// Whether the checksums are corrected after the changes.
    is_repaired: bool,
    /// Bytes appended to the frame, or cut off.
    padding: u8,
    cut: u8,
    cut_at: u8,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Change {
    /// Offset from the first network header.
    #[generator(0..72_u8)]
    at: u8,
    value: u8,
    /// Whether the lowest bits are flipped instead of writing the value.
    is_flip: bool,
}

fn is_rare(octet: u8) -> bool {
    octet < 10
}

/// Returns one of the usual values, or rarely one of the others.
fn choose<T: Copy>(octet: u8, usual: &[T], others: &[T]) -> T {
    let from = if is_rare(octet) { others } else { usual };
    from[usize::from(octet) % from.len()]
}

impl Shape {
    /// Builds an IP packet with a transport header and its payload.
    fn inner(&self, source: &str, destination: &str, ports: [u16; 2]) -> Vec<u8> {
        let payload = vec![0x5a; usize::from(self.payload % 48)];
        let [mut sport, mut dport] = ports;
        if is_rare(self.ports[0]) {
            sport = 0;
        }
        if is_rare(self.ports[1]) {
            dport = 0;
        }
        let mut head = build::ipv4(source, destination)
            .ttl(choose(self.ttl, &[2, 64, 255], &[0, 1]))
            .tos(self.tos[0])
            .df(self.tos[1] & 0x80 != 0)
            .identification(u16::from(self.ttl) + 7);
        if is_rare(self.options[0]) {
            head = head.options(&[1; 4]);
        }
        if is_rare(self.fragment) {
            head = head.fragment(usize::from(self.fragment % 3) * 24, self.fragment & 1 != 0);
        }
        let segment = || {
            let segment = build::tcp(sport, dport).flags(self.tcp_flags).payload(&payload);
            if self.options[1] & 1 != 0 { segment.mss(1460) } else { segment }
        };
        match self.transport {
            0..6 => head.icmp_echo_request(sport, 1, payload),
            6..12 => head.icmp_echo_reply(sport, 1, payload),
            12..18 => head.icmp(
                3,
                4,
                [0, 0, 5, 0],
                build::ipv4(destination, source).udp(dport, sport, ""),
            ),
            18..24 => head.payload(132, payload),
            24..30 => head.payload(choose(self.payload, &[6, 17], &[6]), payload),
            30..36 => head.udp_without_checksum(sport, dport, payload),
            36..140 => head.udp(sport, dport, payload),
            140.. => head.tcp(segment()),
        }
    }

    /// Puts a packet into the tunnel of a home.
    fn tunnelled(&self, inner: &[u8]) -> Vec<u8> {
        let home = choose(self.tunnel[0], &[HOME_A, HOME_B], &["10.9.9.9", "127.0.0.1", "0.0.0.0"]);
        let endpoint =
            choose(self.addresses[1], &[ENDPOINT, ENDPOINT_2], &["10.100.0.3", WORKER_ACCESS]);
        let mut outer = build::ipv4(home, endpoint).tos(self.tos[1] & 0x7f);
        if self.tos[1] & 3 != 0 && self.tos[1] & 4 != 0 {
            outer = outer.ecn(self.tos[0] & 3);
        }
        if is_rare(self.fragment.wrapping_sub(10)) {
            outer = outer.fragment(0, true);
        }
        if is_rare(self.options[0].wrapping_sub(10)) {
            outer = outer.options(&[1; 8]);
        }
        let header = match self.tunnel[2] {
            0..8 => build::gre().key(7),
            8..12 => build::gre().sequence(1),
            12..16 => build::gre().checksum(),
            16..20 => build::gre().protocol(0x86dd),
            20.. => build::gre(),
        };
        match is_rare(self.tunnel[1]) {
            true => outer.payload(choose(self.tunnel[1], &[4], &[4, 17, 1]), header.build(inner)),
            false => outer.gre(header, inner),
        }
    }

    /// Builds the frame around a packet and applies the changes.
    fn frame(&self, side: Side, vlan: Option<u16>, packet: &[u8]) -> Vec<u8> {
        let to = match self.is_mac_wrong {
            0..4 => Mac::BROADCAST,
            4..8 => build::mac(99),
            8.. => worker_mac(side),
        };
        let mut frame = match self.is_mac_wrong {
            8..12 => build::ethernet_of(ETHERTYPE_ARP, to, gateway_mac(side), packet),
            _ => build::ethernet(to, gateway_mac(side), packet),
        };
        let tag = if is_rare(self.is_tag_wrong) {
            [None, Some(VLAN + 1)][usize::from(self.is_tag_wrong) % 2]
        } else {
            vlan
        };
        let mut link_len = Ethernet::LEN;
        if let Some(id) = tag {
            frame = build::vlan(id, frame);
            link_len += Vlan::LEN;
        }
        for change in &self.changes[..usize::from(self.changed)] {
            if let Some(octet) = frame.get_mut(link_len + usize::from(change.at)) {
                *octet = if change.is_flip { *octet ^ (change.value % 8) } else { change.value };
            }
        }
        if self.is_repaired {
            repair(&mut frame, link_len);
            repair(&mut frame, link_len + Ipv4::LEN + 4);
        }
        match is_rare(self.cut) {
            true => frame.truncate(frame.len().saturating_sub(usize::from(self.cut_at % 80))),
            false if self.padding & 1 != 0 => {
                frame.resize(frame.len() + usize::from(self.padding), 0)
            }
            false => {}
        }
        frame
    }
}

/// Corrects the checksum of what may be an IP header.
fn repair(frame: &mut [u8], at: usize) {
    let Some(&first) = frame.get(at) else { return };
    let Some(header) = frame.get_mut(at..at + usize::from(first & 15) * 4) else { return };
    if header.len() >= Ipv4::LEN && first >> 4 == 4 {
        header[10..12].fill(0);
        let sum = checksum::sum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// How often each way was taken.
#[derive(Debug, Default)]
struct Ways {
    common: u32,
    /// Refused by the fast path, but translated.
    general: u32,
    refused: u32,
    foreign: u32,
}

fn configured(mode: AccessMode, vlan: Option<u16>) -> EngineConfig {
    let mut config = config();
    config.mode = mode;
    config.access.vlan = vlan;
    config.internet.vlan = vlan;
    if mode == AccessMode::Plain {
        config.shards[0].subscribers = vec!["192.168.0.0/16".parse().unwrap()];
        config.nat.subscribers = vec!["192.168.0.0/16".parse().unwrap()];
    }
    config
}

/// A worker that translates whatever arrives; its gateways do not answer, which affects only what
/// it sends.
fn world(mode: AccessMode, vlan: Option<u16>) -> World {
    let mut world = World::unstarted(configured(mode, vlan));
    world.is_input_sound = false;
    world.engine.setup().set_serving(ShardIndex(1), false);
    world
}

/// Values that a packet of an earlier burst may have left, different in every field.
fn stale_up(n: u8) -> Upstream {
    let mut packet = Upstream::EMPTY;
    packet.hash = Hash(u64::from(n));
    packet.home =
        Home { shard: ShardIndex(u16::from(n)), outer: n.into(), gre_key: Some(n.into()) };
    packet.key = stale_key(n);
    (packet.header_len, packet.offset, packet.len) = (n.into(), n.into(), n.into());
    (packet.is_remarked, packet.fits_fast_path) = (n & 1 != 0, n & 1 == 0);
    packet
}

fn stale_down(n: u8) -> Downstream {
    let mut packet = Downstream::EMPTY;
    packet.hash = Hash(u64::from(n));
    packet.key = stale_key(n);
    (packet.header_len, packet.offset, packet.len) = (n.into(), n.into(), n.into());
    packet.fits_fast_path = n & 1 == 0;
    packet
}

fn stale_key(n: u8) -> FlowKey {
    FlowKey {
        kind: [PacketKind::LaterFragment, PacketKind::IcmpError][usize::from(n & 1)],
        protocol: Protocol::Icmp,
        source: Endpoint::new(n.into(), n.into()),
        destination: Endpoint::new(n.into(), n.into()),
        tcp_flags: n,
    }
}

/// Sends the frame through the engine and checks that it was dropped once, for `reason`, and that
/// nothing was sent.
fn assert_dropped(world: &mut World, side: Side, bytes: &[u8], reason: DropReason) {
    let before = (world.dropped(reason), world.drops());
    assert!(world.frame(side, bytes).is_nothing(), "dropped as {reason:?}, and yet something left");
    assert_eq!((world.dropped(reason), world.drops()), (before.0 + 1, before.1 + 1), "{reason:?}");
}

/// Reads a frame as the fast path does, into what the slow path reads of it; false if the slow path
/// has to read it.
fn read_up(engine: &Engine<VecFrame>, frame: &VecFrame, packet: &mut Upstream) -> bool {
    let mut fast = FastUpstream::empty();
    let (link, tunnel) = match engine.mode {
        AccessMode::Gre => (engine.link(Side::Access).is_tagged(), GRE),
        AccessMode::Plain => (engine.link(Side::Access).is_tagged(), PLAIN),
    };
    let (is_read, link) = match (link, tunnel) {
        (false, GRE) => (engine.read_fast_up::<UNTAGGED, GRE>(frame, &mut fast), UNTAGGED),
        (true, GRE) => (engine.read_fast_up::<TAGGED, GRE>(frame, &mut fast), TAGGED),
        (false, _) => (engine.read_fast_up::<UNTAGGED, PLAIN>(frame, &mut fast), UNTAGGED),
        (true, _) => (engine.read_fast_up::<TAGGED, PLAIN>(frame, &mut fast), TAGGED),
    };
    let is_fast = is_read && !engine.is_unusual_up(&fast);
    if is_fast {
        fast.look_up.hash = fast.key.hash(&engine.nat);
        fast.fill(&frame.data()[link + tunnel..], link + tunnel, packet);
    }
    is_fast
}

/// As [`read_up`], for a frame from the internet.
fn read_down(engine: &Engine<VecFrame>, frame: &VecFrame, packet: &mut Downstream) -> bool {
    let mut fast = FastDownstream::empty();
    let (is_read, link) = match engine.link(Side::Internet).is_tagged() {
        false => (engine.read_fast_down::<UNTAGGED>(frame, &mut fast), UNTAGGED),
        true => (engine.read_fast_down::<TAGGED>(frame, &mut fast), TAGGED),
    };
    let is_fast = is_read && !engine.is_unusual_down(&fast);
    if is_fast {
        fast.look_up.hash = fast.key.hash(&engine.nat);
        fast.fill(&frame.data()[link..], link, packet);
    }
    is_fast
}

fn compare_up(world: &mut World, bytes: &[u8], ways: &mut Ways) {
    let frame = VecFrame::new(bytes);
    let (mut common, mut general) = (stale_up(0x55), stale_up(0xaa));
    let is_fast = read_up(&world.engine, &frame, &mut common);
    let step = world.engine.access_input(&frame, &mut general);
    if is_fast {
        ways.common += 1;
        assert_eq!(step, Ok(UpstreamStep::Translate));
        let of = |packet: &Upstream| {
            let Upstream { offset, len, home, key, header_len, hash, .. } = *packet;
            let Upstream { is_remarked, fits_fast_path, .. } = *packet;
            (offset, len, home, key, header_len, hash, is_remarked, fits_fast_path)
        };
        assert_eq!(of(&common), of(&general));
    } else if step == Ok(UpstreamStep::Translate) {
        ways.general += 1;
    }
    // IPv6 goes another way.
    if let Err(reason) = step
        && !is_ipv6(world, Side::Access, bytes)
    {
        ways.refused += 1;
        assert_dropped(world, Side::Access, bytes, reason);
    }
}

/// Whether a frame carries an IPv6 packet.
fn is_ipv6(world: &World, side: Side, bytes: &[u8]) -> bool {
    match world.engine.link(side).is_tagged() {
        false => carries_ipv6::<UNTAGGED, GRE>(bytes),
        true => carries_ipv6::<TAGGED, GRE>(bytes),
    }
}

fn compare_down(world: &mut World, bytes: &[u8], ways: &mut Ways) {
    let frame = VecFrame::new(bytes);
    let (mut common, mut general) = (stale_down(0x55), stale_down(0xaa));
    let is_fast = read_down(&world.engine, &frame, &mut common);
    let step = world.engine.internet_input(&frame, &mut general);
    match step {
        // The fast path leaves it to the look-up to find out to whom the destination belongs.
        Err(DropReason::NotLocal) if is_fast => ways.foreign += 1,
        _ if is_fast => {
            ways.common += 1;
            assert_eq!(step, Ok(DownstreamStep::Translate));
            let of = |packet: &Downstream| {
                let Downstream { offset, len, key, header_len, hash, fits_fast_path, .. } = *packet;
                (offset, len, key, header_len, hash, fits_fast_path)
            };
            assert_eq!(of(&common), of(&general));
        }
        Ok(DownstreamStep::Translate) => ways.general += 1,
        _ => {}
    }
    if let Err(reason) = step
        && !is_ipv6(world, Side::Internet, bytes)
    {
        ways.refused += 1;
        assert_dropped(world, Side::Internet, bytes, reason);
    }
}

/// Runs the same property for both modes and both kinds of link.
fn each_way_often(run: impl Fn(&Mutex<(World, Ways)>, AccessMode, Option<u16>)) {
    for mode in [AccessMode::Gre, AccessMode::Plain] {
        for vlan in [None, Some(VLAN)] {
            let played = Mutex::new((world(mode, vlan), Ways::default()));
            run(&played, mode, vlan);
            let (_, ways) = played.into_inner().unwrap();
            println!("{mode:?} {vlan:?}: {ways:?}");
            assert!(
                ways.common > 2_000 && ways.general > 2_000 && ways.refused > 2_000,
                "{ways:?}"
            );
        }
    }
}

#[test]
fn fast_path_packet_from_a_home_is_read_alike_by_the_slow_path() {
    each_way_often(|played, mode, vlan| {
        check!().with_iterations(50_000).with_type::<Shape>().for_each(|shape| {
            let source = match mode {
                AccessMode::Gre => choose(shape.addresses[0], &[PC], &["127.0.0.1", SERVER]),
                AccessMode::Plain => {
                    choose(shape.tunnel[0], &[HOME_PLAIN], &["10.9.9.9", "127.0.0.1", SERVER])
                }
            };
            let destination = choose(
                shape.addresses[0],
                &[SERVER, SERVER_2, "203.0.113.1"],
                &[WORKER_ACCESS, "224.0.0.1", "0.0.0.1", HOME_PLAIN],
            );
            let inner = shape.inner(source, destination, [5000, 53]);
            let packet = match mode {
                AccessMode::Gre => shape.tunnelled(&inner),
                AccessMode::Plain => inner,
            };
            let (world, ways) = &mut *played.lock().unwrap();
            compare_up(world, &shape.frame(Side::Access, vlan, &packet), ways);
        });
    });
}

#[test]
fn fast_path_packet_from_the_internet_is_read_alike_by_the_slow_path() {
    each_way_often(|played, _, vlan| {
        check!().with_iterations(50_000).with_type::<Shape>().for_each(|shape| {
            let source =
                choose(shape.addresses[0], &[SERVER, SERVER_2], &["127.0.0.1", "240.0.0.1"]);
            let destination = match shape.addresses[1] {
                0..40 => ["192.0.2.7", "8.8.8.8"][usize::from(shape.addresses[1] % 2)],
                40..48 => WORKER_INTERNET,
                48..56 => source,
                56.. => ["203.0.113.0", "203.0.113.9"][usize::from(shape.addresses[1] % 2)],
            };
            let packet = shape.inner(source, destination, [53, 5000]);
            let (world, ways) = &mut *played.lock().unwrap();
            compare_down(world, &shape.frame(Side::Internet, vlan, &packet), ways);
        });
        assert!(played.lock().unwrap().1.foreign > 1_000, "to unserved addresses");
    });
}

/// Fast-path packets are no accident of the generated shapes: these are fast-path packets, and none
/// of their close variants is.
#[test]
fn packets_of_a_download_take_the_fast_path() {
    for vlan in [None, Some(VLAN)] {
        let tagged = |frame: Vec<u8>| vlan.map_or(frame.clone(), |id| build::vlan(id, frame));
        let worlds = [AccessMode::Gre, AccessMode::Plain].map(|mode| world(mode, vlan));
        let head = || build::ipv4(HOME_PLAIN, SERVER);
        let segment = |flags| build::tcp(5000, 80).flags(flags).payload([1; 100]);
        let common = [
            head().udp(5000, 53, "query"),
            head().udp(5000, 53, ""),
            head().udp_without_checksum(5000, 53, "query"),
            head().df(true).tos(0xb9).ttl(2).tcp(segment(ACK)),
            head().tcp(segment(SYN).mss(1460)),
        ];
        let other = [
            head().options(&[1; 4]).udp(5000, 53, "query"),
            head().ttl(1).udp(5000, 53, "query"),
            head().udp(0, 53, "query"),
            head().fragment(0, true).udp(5000, 53, "query"),
            head().fragment(1480, false).udp(5000, 53, "query"),
            head().icmp_echo_request(1, 1, "query"),
            head().payload(ipv4::PROTOCOL_UDP, [0; Udp::LEN - 1]),
            head().payload(ipv4::PROTOCOL_TCP, [0x50; 19]),
            build::ipv4(HOME_PLAIN, HOME_PLAIN).udp(5000, 53, "query"),
        ];
        for (packet, is_fast) in
            common.iter().map(|it| (it, true)).chain(other.iter().map(|it| (it, false)))
        {
            let tunnel = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), packet);
            for (world, packet) in worlds.iter().zip([&tunnel, packet]) {
                let frame =
                    tagged(build::ethernet(worker_mac(Side::Access), build::mac(9), packet));
                let found = read_up(&world.engine, &VecFrame::new(&frame), &mut stale_up(0));
                assert_eq!(found, is_fast, "{}", describe_packet(packet));
                let chained = VecFrame::new(&frame).into_chained();
                assert!(!read_up(&world.engine, &chained, &mut stale_up(0)));
            }
            let frame = tagged(build::ethernet(worker_mac(Side::Internet), build::mac(9), packet));
            let found = read_down(&worlds[0].engine, &VecFrame::new(&frame), &mut stale_down(0));
            assert_eq!(found, is_fast, "{}", describe_packet(packet));
        }
        let keyed = build::ipv4(HOME_A, ENDPOINT).gre(build::gre().key(7), &common[0]);
        let marked = build::ipv4(HOME_A, ENDPOINT).ecn(3).gre(build::gre(), &common[3]);
        for packet in [keyed, marked] {
            let frame = tagged(build::ethernet(worker_mac(Side::Access), build::mac(9), packet));
            assert!(!read_up(&worlds[0].engine, &VecFrame::new(&frame), &mut stale_up(0)));
        }
    }
}
