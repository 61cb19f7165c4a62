//! The engine under hostile input: raw frames, good packets with bytes changed, redirected packets,
//! answers to packets that it sent, changes of its rules, and time.
//!
//! Whatever comes in, it must not panic, must emit correct IP headers only, must hold no more
//! frames than its limit, and must serve a good packet afterwards.

#[path = "../../../dataplane/engine/tests/engine/world/mod.rs"]
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use bolero::{check, produce};
use weir_engine::{Misses, Redirects, Side};
use weir_nat::{Destination, FlowClass, FlowPolicy, ShardIndex, SourcePool, Timeouts};
use weir_rules::{FlowOrigin, Prefix, RuleAction};
use weir_wire::arp::Arp;
use weir_wire::build;
use weir_wire::frame::Frame;
use world::pair::{A, B, PORT, clustered};
use world::rules::{Rules, host, port};
use world::*;

/// Longest script in bytes: some hundred packets.
const SCRIPT_MAX: usize = 2048;

/// Number of packets, commands and pauses played: what counts as an input.
static INPUTS: AtomicU64 = AtomicU64::new(0);

/// A script read from bytes; bytes beyond the end read as zero.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// Returns a valid packet of any kind, shaped by the script. `public` is an endpoint that the
/// engine has assigned.
fn inner(script: &mut Script<'_>, source: &str, destination: &str, port: u16) -> Vec<u8> {
    let kind = script.byte();
    let len = usize::from(script.word() % 3000);
    let (sport, dport) = (port, script.word() % 4 + 50);
    let flags = script.byte();
    let head = build::ipv4(source, destination)
        .ttl(script.byte())
        .tos(script.byte())
        .df(flags & 1 != 0)
        .identification(u16::from(script.byte() % 8));
    match kind % 8 {
        0 | 1 => head.udp(sport, dport, vec![kind; len]),
        2 | 3 => {
            head.tcp(build::tcp(sport, dport).flags(flags & 0x3f).mss(1460).payload(vec![1; len]))
        }
        4 => head.icmp_echo_request(sport, 1, vec![2; len]),
        5 => head.icmp_echo_reply(sport, 1, vec![2; len]),
        6 => {
            let quoted = build::ipv4(destination, source).udp(dport, sport, b"quoted");
            head.icmp(script.byte() % 16, script.byte() % 16, [0, 0, 5, 0], quoted)
        }
        _ => {
            let offset = usize::from(script.byte() % 4) * 1480;
            head.fragment(offset, flags & 2 != 0)
                .payload([1, 6, 17, 47][usize::from(flags >> 6)], vec![3; len])
        }
    }
}

/// Changes or cuts a frame. Most frames stay whole: otherwise none would get past the first checks.
fn mutate(script: &mut Script<'_>, frame: &mut Vec<u8>) {
    let choice = script.byte();
    if choice >= 64 {
        return;
    }
    for _ in 0..choice % 4 {
        let (at, value) = (usize::from(script.word()), script.byte());
        if let Some(byte) = frame.get_mut(at) {
            *byte = value;
        }
    }
    if choice < 8 {
        frame.truncate(usize::from(script.word()));
    }
}

fn short_timers() -> Timeouts {
    Timeouts {
        tcp_syn_sent: 4,
        tcp_syn_received: 4,
        tcp_established: 20,
        tcp_fin_wait: 4,
        tcp_close_wait: 4,
        tcp_last_ack: 4,
        tcp_time_wait: 4,
        tcp_close: 4,
        tcp_reset: 6,
        udp: 3,
        udp_stream: 5,
        icmp: 3,
    }
}

/// Returns a frame from another worker, or from a sender that claims to be one: a redirected
/// packet, or a datagram.
fn from_worker(script: &mut Script<'_>, public: &(String, u16)) -> Vec<u8> {
    let from = ["10.1.0.3", "10.9.0.1", "10.1.0.4"][usize::from(script.byte() % 3)];
    let head = build::ipv4(from, WORKER_ACCESS).df(script.byte() & 1 != 0);
    let port = script.word() % 4 + 5000;
    match script.byte() % 4 {
        0 => {
            let inner = inner(script, PC, SERVER, port);
            head.ipip(build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), inner))
        }
        1 => head.ipip(inner(script, SERVER, &public.0, 53)),
        2 => {
            let len = usize::from(script.byte());
            head.ipip(script.bytes(len))
        }
        _ => {
            let ports = [PORT, PORT, PORT, 1];
            let mut port = || ports[usize::from(script.byte() % 4)];
            head.udp(port(), port(), vec![5; 40])
        }
    }
}

/// Returns the decrypted content of another worker's redirect: the worker may have any bug, and the
/// packet that it redirects any content.
fn redirected(script: &mut Script<'_>, public: &(String, u16)) -> Vec<u8> {
    let port = script.word() % 4 + 5000;
    let home = [HOME_A, HOME_B, "10.9.9.9"][usize::from(script.byte() % 3)];
    match script.byte() % 4 {
        0 | 1 => {
            let target = [SERVER, public.0.as_str()][usize::from(script.byte() % 2)];
            build::ipv4(home, ENDPOINT).gre(build::gre(), inner(script, PC, target, port))
        }
        2 => inner(script, SERVER, &public.0, 53),
        _ => {
            let len = usize::from(script.byte());
            script.bytes(len).to_vec()
        }
    }
}

/// Runs a command or a query of the cluster's control plane.
fn order(script: &mut Script<'_>, world: &mut World) {
    let shard = ShardIndex(u16::from(script.byte() % 2));
    let address = [B, "10.9.0.1".parse().unwrap()][usize::from(script.byte() % 2)];
    match script.byte() % 8 {
        0 => world.engine.setup().remove_peer(address),
        1 | 2 => _ = world.engine.setup().add_peer(address),
        3 => world.engine.setup().set_serving(shard, script.byte() > 63),
        4 => world.engine.setup().set_misses(shard, Misses::Create),
        5 => world.engine.setup().set_misses(shard, Misses::Refuse),
        6 => world.engine.setup().set_misses(shard, Misses::Redirect(address)),
        _ => world.engine.take_traffic(|shard| assert!(shard.0 < 2)),
    }
}

/// Returns some rules about the packets that the script makes. They give flows classes, addresses
/// of source pools, and other destinations: one where a server is, one that no packet should have,
/// and the homes' own public addresses.
fn rules(script: &mut Script<'_>) -> Rules {
    const ACTIONS: [RuleAction; 8] = [
        RuleAction::Accept,
        RuleAction::Accept,
        RuleAction::Accept,
        RuleAction::Accept,
        RuleAction::Accept,
        RuleAction::Drop,
        RuleAction::Reject,
        RuleAction::Bypass,
    ];
    let first = u32::from(script.byte() % 16);
    let pool = |offset: u32, number| {
        let address = "203.0.113.0".to_bits() + (first + offset) % 16;
        (Prefix::new(address, 32), SourcePool::new(number).expect("a pool"))
    };
    let mut rules = Rules::default();
    for (prefix, pool) in [pool(0, 1), pool(5, 1), pool(7, 2)] {
        rules = rules.pool(prefix, pool);
    }
    for _ in 0..script.byte() % 6 {
        let origin = [FlowOrigin::Home, FlowOrigin::Internet][usize::from(script.byte() % 4 / 3)];
        let [action, narrow, class, source, destination] = [(); 5].map(|()| script.byte());
        let action = ACTIONS[usize::from(action % 8)];
        rules = rules.rule(origin, action, |filter| match narrow % 4 {
            0 => filter.remote_ports = port(50 + u16::from(narrow / 4 % 4)),
            1 => filter.local_ports = port(5000 + u16::from(narrow / 4 % 4)),
            2 => filter.remote = host(SERVER),
            _ => {}
        });
        if action == RuleAction::Accept {
            let to = ["198.18.0.53", "255.255.255.255", "203.0.113.1"];
            let to_port = (destination & 1 != 0).then(|| 50 + u16::from(destination / 32));
            let address = to.get(usize::from(destination / 2 % 8)).map(|to| to.to_bits());
            rules = rules.policy(FlowPolicy {
                class: FlowClass::new(class % 4).expect("a class"),
                source: SourcePool::new(source % 4).expect("a pool"),
                destination: address.map(|address| Destination { address, port: to_port }),
            });
        }
    }
    rules
}

fn run(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut config = config();
    config.nat.enabled = script.byte() % 8 != 0;
    config.nat.timeouts = short_timers();
    config.nat.quarantine_sec = 2;
    config.nat.flows_max = 64;
    let held_max = config.fragments.held_max;
    let mut world = World::new(clustered(config));
    assert!(world.engine.setup().add_peer(B));
    world.engine.setup().set_redirects(B, Redirects::Plain);
    let own = worker_mac(Side::Access);
    world
        .frame(Side::Access, &build::arp(Arp::reply(build::mac(3), B.to_bits(), own, A.to_bits())));
    world.is_input_sound = false;
    let mut public = ("203.0.113.1".to_owned(), 2000);
    while !script.0.is_empty() {
        INPUTS.fetch_add(1, Ordering::Relaxed);
        let out = match script.byte() % 14 {
            0 => {
                let side = Side::ALL[usize::from(script.byte() % 2)];
                let len = usize::from(script.byte());
                let frame = script.bytes(len).to_vec();
                world.frame(side, &frame)
            }
            1..=3 => {
                let home = [HOME_A, HOME_B, "10.9.9.9"][usize::from(script.byte() % 3)];
                let port = script.word() % 4 + 5000;
                let target =
                    [SERVER.to_owned(), public.0.clone()][usize::from(script.byte() % 2)].clone();
                let inner = inner(&mut script, PC, &target, port);
                let packet = build::ipv4(home, ENDPOINT).gre(build::gre(), inner);
                let mut frame =
                    build::ethernet(worker_mac(Side::Access), gateway_mac(Side::Access), packet);
                mutate(&mut script, &mut frame);
                world.frame(Side::Access, &frame)
            }
            4..=6 => {
                let port = script.word() % 4 + 50;
                let (address, public_port) = public.clone();
                let mut packet = inner(&mut script, SERVER, &address, port);
                if packet.len() > 24 {
                    packet[22..24].copy_from_slice(&u16::to_be_bytes(public_port));
                }
                let mut frame = build::ethernet(
                    worker_mac(Side::Internet),
                    gateway_mac(Side::Internet),
                    packet,
                );
                mutate(&mut script, &mut frame);
                world.frame(Side::Internet, &frame)
            }
            7 | 8 => {
                let packet = from_worker(&mut script, &public);
                let mut frame = build::ethernet(worker_mac(Side::Access), build::mac(3), packet);
                mutate(&mut script, &mut frame);
                world.frame(Side::Access, &frame)
            }
            9 => {
                let mut packet = redirected(&mut script, &public);
                mutate(&mut script, &mut packet);
                world.redirected(&packet)
            }
            10 | 11 => {
                order(&mut script, &mut world);
                Out::default()
            }
            12 => {
                rules(&mut script).load(&mut world);
                Out::default()
            }
            _ => world.pass_sec(u64::from(script.byte() % 8)),
        };
        while let Some((from, frame)) = world.engine.take_datagram() {
            assert_eq!(from.port(), PORT);
            world.send_datagram(&from.to_string(), frame.data());
        }
        if let Some(packet) = out.internet.first().filter(|packet| packet.len() >= 28) {
            let (address, port, _, _) = ends(packet);
            public = (dotted(address), port);
        }
        assert!(world.pool.alive() <= held_max, "frames leak");
    }
    // Everything ends by its timers, and then the engine is as good as new.
    world.pass_sec(60);
    assert_eq!(world.pool.alive(), 0);
    assert_eq!(world.engine.nat().admin().gauges().flows, 0);
}

#[test]
fn engine() {
    check!()
        .with_generator(produce::<Vec<u8>>().with().len(64..SCRIPT_MAX))
        .for_each(|bytes: &Vec<u8>| run(bytes));
    println!("inputs: {}", INPUTS.load(Ordering::Relaxed));
}
