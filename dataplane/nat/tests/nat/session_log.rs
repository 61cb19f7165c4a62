//! The events of sessions and refusals for collectors: each session begins once and ends once, with
//! its remote only if that is configured.

use std::collections::BTreeSet;

use weir_nat::*;

use crate::world::pair::*;
use crate::world::*;

type SessionKey = (OuterAddress, Option<u32>, Endpoint, Endpoint, Option<Endpoint>, Protocol);

/// The sessions that have begun and not ended.
#[derive(Default)]
struct Open {
    sessions: BTreeSet<String>,
    begun: usize,
}

impl Open {
    fn read(&mut self, world: &mut World) {
        while let Some(event) = world.nat.admin_mut().next_session_event() {
            let SessionEvent { subscriber, inside, public, remote, protocol, .. } = event;
            let LoggedSubscriber::Address { address, gre_key } = subscriber else {
                panic!("{event:?} is of IPv4")
            };
            let logged: SessionKey = (address, gre_key, inside, public, remote, protocol);
            let logged = format!("{logged:?}");
            if event.is_begin {
                self.begun += 1;
                assert!(self.sessions.insert(logged), "begun twice: {event:?}");
            } else {
                assert!(self.sessions.remove(&logged), "ended and not begun: {event:?}");
            }
        }
        assert_eq!(world.nat.admin().session_events_lost(), 0);
    }
}

fn world(session_log: SessionLog) -> World {
    World::new(NatConfig {
        session_log,
        filtering: Filtering::EndpointIndependent,
        quarantine_sec: 10,
        ..config()
    })
}

fn name(home: Home, inside: Endpoint, public: Endpoint, remote: Option<Endpoint>) -> String {
    let logged: SessionKey = (home.outer.into(), None, inside, public, remote, Protocol::Udp);
    format!("{logged:?}")
}

#[test]
fn without_a_session_log_no_event_is_logged() {
    let mut world = world(SessionLog::None);
    world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.udp_out(home(1), inside(0), server(1)).unwrap();
    world.wait_and_collect(10_000);
    assert_eq!(world.nat.admin_mut().next_session_event(), None);
}

#[test]
fn mappings_are_logged_without_their_remotes() {
    let mut world = world(SessionLog::Mappings);
    let mut open = Open::default();
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    let other = world.udp_out(home(2), inside(0), server(0)).unwrap();
    for n in 1..5 {
        world.udp_out(home(1), inside(0), server(n)).unwrap();
    }
    open.read(&mut world);
    let expected = [name(home(1), inside(0), public, None), name(home(2), inside(0), other, None)];
    assert_eq!(open.sessions, BTreeSet::from(expected));
    world.wait_and_collect(10_000);
    open.read(&mut world);
    assert!(open.sessions.is_empty(), "{:?}", open.sessions);
    assert_eq!(open.begun, 2);
}

#[test]
fn every_session_is_logged_with_its_remote() {
    let mut world = world(SessionLog::Destinations);
    let mut open = Open::default();
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.udp_out(home(1), inside(0), server(1)).unwrap();
    // Packets of known sessions log nothing.
    world.udp_out(home(1), inside(0), server(1)).unwrap();
    world.udp_back(public, server(0)).unwrap();
    open.read(&mut world);
    let of = |n| name(home(1), inside(0), public, Some(server(n)));
    assert_eq!(open.sessions, BTreeSet::from([of(0), of(1)]));
    // The first session ends, another takes its position and goes on.
    let udp_sec = Timeouts::default().udp_stream.max(Timeouts::default().udp);
    for _ in 0..4 {
        world.wait_and_collect(udp_sec / 2);
        world.udp_out(home(1), inside(0), server(1)).unwrap();
    }
    open.read(&mut world);
    assert_eq!(open.sessions, BTreeSet::from([of(1)]));
    // A packet replaces a first session that has run out and was not collected.
    world.wait(udp_sec + 1);
    world.udp_out(home(1), inside(0), server(3)).unwrap();
    open.read(&mut world);
    assert_eq!(open.sessions, BTreeSet::from([of(3)]));
    world.wait_and_collect(10_000);
    open.read(&mut world);
    assert!(open.sessions.is_empty(), "{:?}", open.sessions);
    assert_eq!(open.begun, 3);
}

#[test]
fn every_session_ends_once_whatever_the_traffic() {
    let mut world = world(SessionLog::Destinations);
    let (mut open, mut random) = (Open::default(), 7_u64);
    let mut below = |bound: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    for _ in 0..4_000 {
        let (home, inside) = (home(1 + below(4) as u32), inside(below(8) as u16));
        let server = server(below(6) as u32);
        let flags = [SYN, ACK, FIN_ACK, RST][below(4) as usize];
        match below(8) {
            0 => world.wait_and_collect(below(120) as u32),
            1 => world.wait(below(400) as u32),
            2..5 => _ = world.udp_out(home, inside, server),
            5 => {
                if let Some(view) = world.list(&SessionFilter::default()).first() {
                    let _ = world.back(view.ipv4().unwrap().public, server, view.protocol, flags);
                }
            }
            6 => _ = world.tcp_out(home, inside, server, flags),
            _ => _ = world.tcp_out(home, inside, server, SYN),
        }
        open.read(&mut world);
    }
    assert!(open.begun > 500, "{}", open.begun);
    let mut listed: Vec<_> = Vec::new();
    for view in world.list(&SessionFilter::default()) {
        let ends = view.ipv4().unwrap();
        listed.push((ends.public, ends.remote));
    }
    assert_eq!(listed.len(), open.sessions.len(), "all open sessions are listed");
    world.wait_and_collect(100_000);
    world.wait_and_collect(100_000);
    open.read(&mut world);
    assert!(open.sessions.is_empty(), "{:?}", open.sessions);
}

#[test]
fn refusals_name_the_limit_that_the_home_has_reached() {
    let refused = |config: NatConfig, packets: u32| {
        let mut world = World::new(config);
        for n in 0..packets {
            let (home, inside, remote) =
                (home(1 + n / 1_000), inside((n % 1_000) as u16), server(n));
            if let Err(refusal) = world.udp_out(home, inside, remote) {
                world.nat.note_refused(refusal, &home, Protocol::Udp);
            }
        }
        std::iter::from_fn(|| world.nat.admin_mut().next_refusal())
            .map(|it| it.why)
            .collect::<Vec<_>>()
    };
    let small = || NatConfig { port_block: 64, ports_per_subscriber: 128, ..config() };
    assert_eq!(refused(small(), 130), [HomeLimit::Ports { limit: 128 }; 2]);
    let flows = NatConfig { flows_per_subscriber: 5, ..config() };
    assert_eq!(refused(flows, 6), [HomeLimit::Sessions { limit: 5 }]);
    // One address, all of whose ports a home may have.
    let public_address = address("198.51.100.7");
    let one = NatConfig {
        ports_per_subscriber: 65_536,
        port_block: 8_192,
        shards: vec![shard(1, "198.51.100.7/32")],
        ..config()
    };
    let logged = refused(one, 65_536);
    assert!(
        !logged.is_empty() && logged.len() <= 256,
        "a flood is logged in part: {}",
        logged.len()
    );
    let is_it = |why: &HomeLimit| match why {
        HomeLimit::AddressPorts { public_address: it } => *it == public_address,
        HomeLimit::Addresses => true,
        _ => false,
    };
    assert!(logged.iter().all(is_it), "{logged:?}");
    // A refusal that is not for lack of room is not logged as a limit of the home.
    let mut world = World::new(config());
    world.nat.note_refused(Refusal::TcpNotSyn, &home(1), Protocol::Tcp);
    assert_eq!(world.nat.admin_mut().next_refusal(), None);
}

#[test]
fn the_owner_logs_a_mapping_and_another_worker_its_own_session() {
    let config = NatConfig {
        session_log: SessionLog::Destinations,
        filtering: Filtering::EndpointIndependent,
        ..pair_config()
    };
    let (mut owner, mut other) = pair(&config);
    let public = owner.udp_out(home(1), inside(0), server(0)).unwrap();
    replicate(&mut owner, &mut other);
    // Packets of the same mapping arrive at the other worker.
    assert_eq!(other.udp_out(home(1), inside(0), server(1)), Ok(public));
    let mut logged = [Open::default(), Open::default()];
    let read = |logged: &mut [Open; 2], owner: &mut World, other: &mut World| {
        logged[0].read(owner);
        logged[1].read(other);
        logged.each_ref().map(|open| open.sessions.iter().cloned().collect::<Vec<_>>())
    };
    let of = |n| vec![name(home(1), inside(0), public, Some(server(n)))];
    assert_eq!(read(&mut logged, &mut owner, &mut other), [of(0), of(1)]);
    // The owner ends the mapping; the other worker's session goes with its copy of the mapping.
    owner.wait_and_collect(10_000);
    replicate(&mut owner, &mut other);
    assert_eq!(read(&mut logged, &mut owner, &mut other), [const { Vec::<String>::new() }; 2]);
    assert_eq!(logged.map(|open| open.begun), [1, 1]);
}
