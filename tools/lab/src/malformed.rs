//! Frames that no well-behaved host sends, each with the drop reason under which weir must count
//! it.

use weir_wire::build;
use weir_wire::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV6, Mac};

/// Name, frame, drop reason.
pub type Case = (&'static str, Vec<u8>, &'static str);

const HOME: &str = "10.200.0.77";
const ENDPOINT: &str = "10.100.0.1";
const INSIDE: &str = "192.168.1.2";
const SERVER: &str = "198.51.100.1";
const PUBLIC: &str = "203.0.113.3";

/// Returns a valid inner packet.
fn query() -> Vec<u8> {
    build::ipv4(INSIDE, SERVER).udp(40_000, 53, b"query")
}

fn tunnelled(inner: impl AsRef<[u8]>) -> Vec<u8> {
    build::ipv4(HOME, ENDPOINT).gre(build::gre(), inner)
}

/// Offset of the checksum in an IPv4 header.
const CHECKSUM_AT: usize = 10;

/// Returns `bytes` with the 16-bit field at `at` replaced, and the IPv4 checksum corrected if
/// another field of the header was replaced.
fn with_field(mut bytes: Vec<u8>, at: usize, value: u16) -> Vec<u8> {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    if at < 20 && at != CHECKSUM_AT {
        bytes[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        let sum = weir_wire::checksum::sum(&bytes[..20]);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

fn truncated(mut bytes: Vec<u8>, length: usize) -> Vec<u8> {
    bytes.truncate(length);
    bytes
}

/// Returns frames that a hostile home or access network may send to weir's access port.
pub fn access_cases(weir: Mac, sender: Mac) -> Vec<Case> {
    let packets: Vec<Case> = outer_cases().into_iter().chain(inner_cases()).collect();
    let mut cases: Vec<Case> = packets
        .into_iter()
        .map(|(name, packet, reason)| (name, build::ethernet(weir, sender, packet), reason))
        .collect();
    let honest = || build::ethernet(weir, sender, tunnelled(query()));
    cases.extend([
        ("tagged", build::vlan(7, honest()), "vlan"),
        ("IPv6", build::ethernet_of(ETHERTYPE_IPV6, weir, sender, [0x60; 40]), "ethertype"),
        (
            "ARP of 10 bytes",
            build::ethernet_of(ETHERTYPE_ARP, weir, sender, [0; 10]),
            "arp-malformed",
        ),
        (
            "another MAC",
            build::ethernet(build::mac(0x77), sender, tunnelled(query())),
            "not-our-mac",
        ),
    ]);
    cases
}

/// Returns cases in the outer header and GRE.
fn outer_cases() -> Vec<Case> {
    let whole = tunnelled(query());
    let gre_version = with_field(whole.clone(), 20, 1);
    let gre_routing = with_field(whole.clone(), 20, 0x4000);
    vec![
        ("IP header cut", truncated(whole.clone(), 12), "ip-malformed"),
        ("total length past the frame", with_field(whole.clone(), 2, 1400), "ip-malformed"),
        ("total length below the header", with_field(whole.clone(), 2, 10), "ip-malformed"),
        ("header length 4 words", with_field(whole.clone(), 0, 0x4400), "ip-malformed"),
        ("wrong outer checksum", with_field(whole.clone(), CHECKSUM_AT, 0xdead), "ip-checksum"),
        ("outer fragment", with_field(whole.clone(), 6, 0x2000), "outer-fragment"),
        ("GRE cut", with_field(truncated(whole, 22), 2, 22), "gre-malformed"),
        ("GRE version 1", gre_version, "gre-malformed"),
        ("GRE with routing", gre_routing, "gre-malformed"),
        (
            "GRE with a wrong checksum",
            with_field(
                build::ipv4(HOME, ENDPOINT).gre(build::gre().checksum(), query()),
                24,
                0x1234,
            ),
            "gre-malformed",
        ),
        (
            "IPv6 in GRE",
            build::ipv4(HOME, ENDPOINT).gre(build::gre().protocol(ETHERTYPE_IPV6), [0x60; 40]),
            "gre-protocol",
        ),
        (
            "a stranger's tunnel",
            build::ipv4("10.201.0.1", ENDPOINT).gre(build::gre(), query()),
            "not-subscriber",
        ),
        ("to nobody", build::ipv4(HOME, "10.99.0.1").gre(build::gre(), query()), "not-local"),
        (
            "UDP to the tunnel endpoint",
            build::ipv4(HOME, ENDPOINT).udp(1, 2, b"hello"),
            "outer-protocol",
        ),
    ]
}

/// Returns cases in the packet that a home puts into its tunnel.
fn inner_cases() -> Vec<Case> {
    let land = build::ipv4(SERVER, SERVER).tcp(build::tcp(80, 80).syn());
    let from = |source| tunnelled(build::ipv4(source, SERVER).udp(1, 2, b"x"));
    let to = |destination| tunnelled(build::ipv4(INSIDE, destination).udp(1, 2, b"x"));
    let segment = || build::ipv4(INSIDE, SERVER).tcp(build::tcp(40_000, 80).syn());
    vec![
        ("nothing in GRE", tunnelled([]), "inner-malformed"),
        ("inner header cut", tunnelled(&query()[..19]), "inner-malformed"),
        ("inner total length lies", tunnelled(with_field(query(), 2, 999)), "inner-malformed"),
        (
            "wrong inner checksum",
            tunnelled(with_field(query(), CHECKSUM_AT, 0xdead)),
            "inner-checksum",
        ),
        ("GRE in GRE", tunnelled(tunnelled(query())), "protocol"),
        ("land", tunnelled(land), "martian"),
        ("from loopback", from("127.0.0.1"), "martian"),
        ("from multicast", from("224.0.0.1"), "martian"),
        ("from nowhere", from("0.0.0.0"), "martian"),
        ("to multicast", to("239.1.1.1"), "martian"),
        ("to broadcast", to("255.255.255.255"), "martian"),
        ("UDP length lies", tunnelled(with_field(query(), 24, 2000)), "transport-malformed"),
        ("UDP length 3", tunnelled(with_field(query(), 24, 3)), "transport-malformed"),
        (
            "TCP data offset past the end",
            tunnelled(with_field(segment(), 32, 0xf002)),
            "transport-malformed",
        ),
        ("TCP data offset 0", tunnelled(with_field(segment(), 32, 0x0002)), "transport-malformed"),
        (
            "TCP without a session",
            tunnelled(build::ipv4(INSIDE, SERVER).tcp(build::tcp(40_001, 80).ack())),
            "tcp-not-syn",
        ),
        (
            "IGMP",
            tunnelled(build::ipv4(INSIDE, SERVER).payload(2, [0x16, 0, 0, 0, 0, 0, 0, 0])),
            "protocol",
        ),
        (
            "error about nothing known",
            tunnelled(
                build::ipv4(INSIDE, SERVER)
                    .port_unreachable(build::ipv4(SERVER, INSIDE).udp(53, 40_000, b"answer")),
            ),
            "icmp-error-unmatched",
        ),
    ]
}

/// Returns frames that a hostile host may send to weir's internet port.
pub fn internet_cases(weir: Mac, sender: Mac) -> Vec<Case> {
    let packets = [
        (
            "SYN to a closed port",
            build::ipv4(SERVER, PUBLIC).tcp(build::tcp(80, 5000).syn()),
            "no-mapping",
        ),
        ("UDP to a closed port", build::ipv4(SERVER, PUBLIC).udp(53, 5000, b"x"), "no-mapping"),
        (
            "ping of a public address",
            build::ipv4(SERVER, PUBLIC).icmp_echo_request(1, 1, b"ping"),
            "icmp-unsolicited",
        ),
        (
            "a packet for somebody else",
            build::ipv4(SERVER, "203.0.113.99").udp(1, 2, b"x"),
            "not-local",
        ),
        (
            "error about nothing known",
            build::ipv4("10.9.9.9", PUBLIC)
                .port_unreachable(build::ipv4(PUBLIC, SERVER).udp(5000, 53, b"query")),
            "icmp-error-unmatched",
        ),
        ("land", build::ipv4(PUBLIC, PUBLIC).tcp(build::tcp(80, 80).syn()), "martian"),
        ("cut", truncated(build::ipv4(SERVER, PUBLIC).udp(1, 2, b"x"), 19), "ip-malformed"),
    ];
    packets
        .into_iter()
        .map(|(name, packet, reason)| (name, build::ethernet(weir, sender, packet), reason))
        .collect()
}

/// Returns `count` frames to `weir` of random length, with random bytes after a plausible
/// beginning, the same for the same seed.
pub fn random_frames(weir: Mac, sender: Mac, count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let plausible = build::ethernet(weir, sender, tunnelled(query()));
    (0..count)
        .map(|_| {
            let length = 14 + (next() % 200) as usize;
            let intact = 14 + (next() as usize % (plausible.len() - 13)).min(length - 14);
            let mut frame = plausible.clone();
            frame.truncate(intact);
            frame.extend((intact..length).map(|_| next() as u8));
            frame
        })
        .collect()
}
