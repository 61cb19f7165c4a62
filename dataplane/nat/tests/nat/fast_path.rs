//! The fast path does to every packet what the slow path does: two NATs get the same packets, one
//! of them tries the fast path first.

use std::sync::atomic::{AtomicU64, Ordering};

use bolero::{TypeGenerator, check};
use weir_nat::*;

use crate::world::*;

/// A packet, after a pause.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Event {
    #[generator(0..2_u8)]
    home: u8,
    #[generator(0..2_u8)]
    port: u8,
    /// Selects the server, mostly the first.
    server: u8,
    is_tcp: bool,
    is_inbound: bool,
    /// Selects the TCP flags: most segments carry data.
    flags: u8,
    /// Whether the home sends a GRE key, mostly not.
    key: u8,
    /// Seconds before the packet, mostly none.
    pause: u8,
}

impl Event {
    fn flags(self) -> u8 {
        match (self.is_tcp, self.flags) {
            (false, _) => 0,
            (_, 0..40) => SYN,
            (_, 40..80) => SYN_ACK,
            (_, 80..90) => FIN_ACK,
            (_, 90..95) => RST,
            (_, 95..100) => 0,
            (_, 100..) => ACK,
        }
    }

    fn pause_sec(self) -> u32 {
        match self.pause {
            0..200 => 0,
            200..240 => u32::from(self.pause % 3),
            240.. => 20 * u32::from(self.pause),
        }
    }

    fn server(self) -> Endpoint {
        server(u32::from(self.server > 220))
    }

    fn protocol(self) -> Protocol {
        if self.is_tcp { Protocol::Tcp } else { Protocol::Udp }
    }

    fn home(self) -> Home {
        let gre_key = (self.key < 10).then(|| u32::from(self.key % 2));
        Home { gre_key, ..home(self.home.into()) }
    }
}

/// An ordinary packet, as the engine recognises it.
fn is_ordinary(event: Event) -> bool {
    !event.is_tcp || event.flags() & (SYN | RST | ACK | 1) == ACK
}

fn look_up<K: PacketKey>(world: &World, key: &K) -> RecordId {
    let hash = key.hash(&world.nat);
    let mut burst = [LookUp { hash, ..LookUp::EMPTY }];
    world.nat.look_up::<K, _>(&mut burst);
    burst[0].candidate
}

/// Checks that the deltas are those of a change from one endpoint to another.
fn check_deltas(deltas: ChecksumDeltas, from: Endpoint, to: Endpoint) {
    // Ones' complement arithmetic is that of remainders modulo 0xffff, for octets in any order.
    let sum = |parts: &[u16]| parts.iter().map(|&part| u64::from(part.to_be())).sum::<u64>();
    let address = |of: Endpoint| sum(&[(of.address >> 16) as u16, of.address as u16]);
    let change = |delta: u16, from: u64, to: u64| {
        assert_eq!((from + u64::from(delta)) % 0xffff, to % 0xffff);
    };
    change(deltas.address, address(from), address(to));
    change(deltas.endpoint, address(from) + sum(&[from.port]), address(to) + sum(&[to.port]));
}

fn fast_out(world: &mut World, event: Event, inside: Endpoint) -> Option<Endpoint> {
    let (home, protocol) = (event.home(), event.protocol());
    if home.gre_key.is_some() {
        return None;
    }
    let remote = event.server();
    let key = OutboundKey::new(&home, protocol as u8, inside, remote, is_ordinary(event));
    assert_eq!(key.hash(&world.nat), world.nat.outbound_hash(&home, inside, protocol));
    let candidate = look_up(world, &key);
    let settled = world.nat.outbound_settled(candidate, &key, world.now)?;
    check_deltas(settled.deltas, inside, settled.to);
    Some(settled.to)
}

fn fast_back(world: &mut World, event: Event, public: Endpoint) -> Option<Delivery> {
    let (protocol, remote) = (event.protocol(), event.server());
    let key = InboundKey::new(protocol as u8, public, remote, is_ordinary(event));
    assert_eq!(key.hash(&world.nat), world.nat.inbound_hash(public, protocol));
    let candidate = look_up(world, &key);
    let settled = world.nat.inbound_settled(candidate, &key, world.now)?;
    check_deltas(settled.deltas, public, settled.to.inside);
    Some(settled.to)
}

fn run(config: &NatConfig, events: &[Event], taken: &AtomicU64) {
    let mut worlds = [World::new(config.clone()), World::new(config.clone())];
    if config.replicas > 0 {
        for world in &mut worlds {
            let mut replica = world.nat.replica_mut();
            replica.set_owned_lanes(SHARD, 0xff, world.now);
            replica.set_replicated_lanes(SHARD, 0xff);
        }
    }
    let mut publics = [[None; 2]; 2];
    for &event in events {
        let (home, inside) = (event.home(), inside(event.port.into()));
        let (protocol, remote) = (event.protocol(), event.server());
        let public = &mut publics[usize::from(event.home)][usize::from(event.port)];
        let [fast, slow] = &mut worlds;
        fast.wait(event.pause_sec());
        slow.wait(event.pause_sec());
        if event.is_inbound {
            let Some(to) = *public else { continue };
            let found = fast_back(fast, event, to);
            taken.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
            let found = match found {
                Some(delivery) => Ok(delivery),
                None => fast.back(to, remote, protocol, event.flags()),
            };
            assert_eq!(found, slow.back(to, remote, protocol, event.flags()), "{event:?}");
        } else {
            let found = fast_out(fast, event, inside);
            taken.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
            let found = match found {
                Some(public) => Ok(public),
                None => fast.out(home, inside, remote, protocol, event.flags()),
            };
            assert_eq!(found, slow.out(home, inside, remote, protocol, event.flags()), "{event:?}");
            *public = found.ok().or(*public);
        }
        let all = SessionFilter::default();
        assert_eq!(fast.list(&all), slow.list(&all), "{event:?}");
        assert_eq!(journal(fast), journal(slow), "{event:?}");
    }
}

/// Returns the changes that replicas would get.
fn journal(world: &mut World) -> Vec<Vec<u8>> {
    let mut changes = Vec::new();
    let mut body = [0; BODY_MAX];
    while let Some((_, len)) = world.nat.replica_mut().next_change(&mut body) {
        changes.push(body[..len].to_vec());
    }
    changes
}

#[test]
fn fast_path_does_to_a_session_what_the_slow_path_does() {
    let config = || NatConfig { flows_max: 256, ..config() };
    let variants = [
        config(),
        NatConfig { udp_inbound_refresh: true, ..config() },
        NatConfig { gre_key_identifies_home: true, ..config() },
        NatConfig { replicas: 1, ..config() },
    ];
    for config in variants {
        let taken = AtomicU64::new(0);
        check!()
            .with_iterations(1_000)
            .with_type::<Vec<Event>>()
            .for_each(|events| run(&config, events, &taken));
        let taken = taken.into_inner();
        assert!(taken > 1_000, "only {taken} packets took the fast path");
    }
}

#[test]
fn settled_session_runs_out_as_any_other() {
    let mut world = World::new(NatConfig { udp_inbound_refresh: true, ..config() });
    let event = Event {
        home: 1,
        port: 0,
        server: 0,
        is_tcp: false,
        is_inbound: false,
        flags: 0,
        key: 255,
        pause: 0,
    };
    let inside = inside(0);
    let public = world.udp_out(event.home(), inside, server(0)).unwrap();
    assert_eq!(fast_out(&mut world, event, inside), None, "no answer yet");
    world.udp_back(public, server(0)).unwrap();
    assert_eq!(fast_out(&mut world, event, inside), Some(public));
    world.wait(299);
    assert_eq!(fast_back(&mut world, event, public).map(|found| found.inside), Some(inside));
    world.wait(299);
    assert_eq!(fast_out(&mut world, event, inside), Some(public));
    world.wait(300);
    assert_eq!(fast_out(&mut world, event, inside), None);
    assert_eq!(fast_back(&mut world, event, public), None);
}
