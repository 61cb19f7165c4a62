//! New flows of one burst: all prepared before the first is opened, as the engine does it.

use std::collections::HashSet;

use weir_nat::*;

use crate::audit::audit;
use crate::model_tests::world::*;

/// The n-th new UDP flow of a home.
fn flow(home: Home, n: u16) -> Outbound {
    let (inside, remote) = (inside(n), server(0));
    Outbound { home, inside, remote, protocol: Protocol::Udp, tcp_flags: 0 }
}

/// Takes steps 1 to 3.
fn look_up_home(world: &mut World, packet: &Outbound) -> LikelySubscriber {
    let home = world.nat.prefetch_home(&packet.home);
    let mut candidate = world.nat.prefetch_subscriber(home);
    world.nat.prefetch_block(&mut candidate, packet.protocol);
    candidate
}

fn prepare(world: &mut World, packet: &Outbound) -> Result<Opening, Refusal> {
    let candidate = look_up_home(world, packet);
    prepare_likely(world, packet, candidate)
}

/// Takes step 4.
fn prepare_likely(
    world: &mut World,
    packet: &Outbound,
    candidate: LikelySubscriber,
) -> Result<Opening, Refusal> {
    let World { nat, now, .. } = world;
    let (flow, mut opening) = (NewFlow::from(packet), Opening::NONE);
    if !(nat.has_room(1) && nat.prepare_likely(&flow, candidate, *now, &mut opening)) {
        nat.prepare_mapping(&flow, &FlowPolicy::NONE, *now, &mut opening)?;
    }
    Ok(opening)
}

/// Looks up all homes, prepares all flows, then opens those that could be prepared.
fn burst(world: &mut World, packets: &[Outbound]) -> Vec<Result<Endpoint, Refusal>> {
    let candidates: Vec<_> = packets.iter().map(|packet| look_up_home(world, packet)).collect();
    let prepared = packets.iter().zip(candidates);
    let prepared: Vec<_> =
        prepared.map(|(packet, candidate)| prepare_likely(world, packet, candidate)).collect();
    for (packet, opening) in packets.iter().zip(&prepared) {
        if let Ok(opening) = opening {
            let hash = world.nat.outbound_hash(&packet.home, packet.inside, packet.protocol);
            world.nat.prefetch_opening(hash, opening);
        }
    }
    let opened = packets.iter().zip(prepared).map(|(packet, opening)| {
        let hash = world.nat.outbound_hash(&packet.home, packet.inside, packet.protocol);
        let opened =
            world.nat.open_mapping(hash, &packet.into(), &opening?, &FlowPolicy::NONE, world.now);
        opened.map(|translated| translated.to)
    });
    opened.collect()
}

fn is_ok(results: &[Result<Endpoint, Refusal>]) -> Vec<bool> {
    results.iter().map(Result::is_ok).collect()
}

/// Returns every block that homes hold, as (home, public address, first port).
fn held(world: &World, homes: impl Iterator<Item = Home>) -> HashSet<(OuterAddress, u32, u16)> {
    let views = homes.flat_map(|home| world.nat.admin().subscriber(home.outer));
    views
        .flat_map(|view| {
            let outer = OuterAddress::from(view.home.ipv4().unwrap());
            view.blocks
                .into_iter()
                .map(move |block| (outer, block.public_address, block.port_first))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Reads the log and updates `open`: an allocated block was free, a released block was allocated.
fn follow(world: &mut World, open: &mut HashSet<(OuterAddress, u32, u16)>) {
    for event in world.events() {
        let name = |block: HomeBlock| (block.subscriber, block.public_address, block.port_first);
        match event.kind {
            BlockEventKind::Allocated(block) => {
                assert!(open.insert(name(block)), "allocated twice: {event:?}");
            }
            BlockEventKind::Released(block) => {
                assert!(open.remove(&name(block)), "never allocated: {event:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn flows_prepared_in_a_burst_work_like_flows_opened_one_by_one() {
    let mut world = World::new(config());
    let mut packets = Vec::new();
    for n in 0..16 {
        for home in [home(1), home(2), Home { shard: ShardIndex(1), ..home(1) }] {
            for protocol in Protocol::ALL {
                let tcp_flags = if protocol == Protocol::Tcp { SYN } else { 0 };
                packets.push(Outbound { protocol, tcp_flags, ..flow(home, n) });
            }
        }
    }
    let publics = burst(&mut world, &packets);
    audit(&world.nat);
    let distinct: HashSet<_> = packets
        .iter()
        .zip(&publics)
        .map(|(packet, public)| (public.expect("there is room"), packet.protocol))
        .collect();
    assert_eq!(distinct.len(), packets.len(), "no two flows share a public endpoint");
    for (packet, public) in packets.iter().zip(&publics) {
        let public = public.unwrap();
        let again = world.out(packet.home, packet.inside, packet.remote, packet.protocol, ACK);
        assert_eq!(again, Ok(public), "the mapping is found");
        let delivery = world.back(public, packet.remote, packet.protocol, SYN_ACK).unwrap();
        assert_eq!((delivery.home, delivery.inside), (packet.home, packet.inside));
    }
    let events = world.events();
    assert_eq!(events.len(), 3, "a home opens one block, all three protocols share it");
    assert!(events.iter().all(|event| matches!(event.kind, BlockEventKind::Allocated(_))));
    assert_eq!(world.nat.admin().gauges().flow_creates_total, packets.len() as u64);
}

/// Step 2 names only a candidate: the slot may hold another subscriber by then.
#[test]
fn a_candidate_slot_that_was_given_to_another_home_is_not_used() {
    let mut world = World::new(config());
    let (old, new) = (flow(home(1), 0), flow(home(2), 0));
    world.udp_out(home(1), inside(0), server(0)).unwrap();
    let candidate = look_up_home(&mut world, &old);
    assert_ne!(candidate, LikelySubscriber::NONE);
    world.wait_and_collect(300);
    world.wait_and_collect(120);
    world.assert_empty();
    burst(&mut world, &[new])[0].expect("there is room");
    let found = look_up_home(&mut world, &new);
    assert_eq!(found.slot, candidate.slot, "the new home has that slot");
    let opening = prepare_likely(&mut world, &old, candidate).unwrap();
    let hash = world.nat.outbound_hash(&old.home, old.inside, old.protocol);
    let opened =
        world.nat.open_mapping(hash, &(&old).into(), &opening, &FlowPolicy::NONE, world.now);
    assert_eq!(world.nat.admin().gauges().subscribers, 2);
    assert_eq!(world.udp_back(opened.unwrap().to, server(0)).unwrap().home, home(1));
    audit(&world.nat);
}

#[test]
fn a_prepared_flow_counts_in_flows_max() {
    let mut world = World::new(NatConfig { flows_max: 4, ..config() });
    let packets: Vec<_> = (0..6).map(|n| flow(home(u32::from(n)), n)).collect();
    let results = burst(&mut world, &packets);
    assert_eq!(is_ok(&results), [true, true, true, true, false, false]);
    assert_eq!(results[4], Err(Refusal::TableFull));
    assert_eq!((world.flows(), world.nat.admin().gauges().subscribers), (4, 4));
    assert_eq!(world.events().len(), 4, "a refused home gets no block");
    audit(&world.nat);
}

#[test]
fn a_prepared_flow_counts_in_flows_per_subscriber() {
    let mut world = World::new(NatConfig { flows_per_subscriber: 3, ..config() });
    let packets: Vec<_> = (0..5).map(|n| flow(home(1), n)).chain([flow(home(2), 0)]).collect();
    let results = burst(&mut world, &packets);
    assert_eq!(is_ok(&results), [true, true, true, false, false, true]);
    assert_eq!(results[3], Err(Refusal::FlowsPerSubscriber));
    audit(&world.nat);
}

#[test]
fn a_prepared_flow_counts_in_the_quota() {
    let mut world = World::new(NatConfig { port_block: 64, ports_per_subscriber: 64, ..config() });
    let packets: Vec<_> = (0..66).map(|n| flow(home(1), n)).chain([flow(home(2), 0)]).collect();
    let results = burst(&mut world, &packets);
    assert!(results[..64].iter().all(Result::is_ok));
    assert_eq!(results[64..66], [Err(Refusal::PortsExhausted); 2]);
    assert!(results[66].is_ok(), "another home has a quota of its own");
    assert_eq!(world.nat.admin().shard_gauges(SHARD).ports_used, 65);
    audit(&world.nat);
}

#[test]
fn a_prepared_flow_counts_in_subscribers_max() {
    let mut config = config();
    config.shards[0].subscribers_max = 2;
    let mut world = World::new(config);
    let packets: Vec<_> = (0..3).chain([0]).map(|n| flow(home(n), 7)).collect();
    let packets = [packets[0], packets[1], packets[2], flow(home(0), 8)];
    let results = burst(&mut world, &packets);
    assert_eq!(is_ok(&results), [true, true, false, true]);
    assert_eq!(results[2], Err(Refusal::SubscribersMax));
    audit(&world.nat);
}

/// A table with one free record, and otherwise full of ports in quarantine.
fn nearly_full(flows_max: u32) -> World {
    let mut world = World::new(NatConfig { flows_max, ..config() });
    for n in 0..flows_max as u16 - 1 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
    }
    world.wait_and_collect(300);
    let gauges = world.nat.admin().gauges();
    assert_eq!((gauges.flows, gauges.quarantined), (0, flows_max - 1));
    world.events();
    world
}

#[test]
fn the_first_flow_gets_the_last_record_and_refused_ones_leave_no_trace() {
    let mut world = nearly_full(8);
    let before = world.nat.admin().shard_gauges(SHARD);
    // The last two are of one home, which needs a block: the second finds it opened by the first.
    let packets =
        [flow(home(2), 0), flow(home(3), 0), flow(home(4), 0), flow(home(4), 1), flow(home(1), 99)];
    let results = burst(&mut world, &packets);
    assert_eq!(is_ok(&results), [true, false, false, false, false]);
    assert!(results[1..].iter().all(|result| *result == Err(Refusal::TableFull)));
    audit(&world.nat);
    let after = world.nat.admin().shard_gauges(SHARD);
    assert_eq!(after.ports_used, before.ports_used + 1);
    assert_eq!(after.blocks_free, before.blocks_free - 1);
    assert_eq!(after.subscribers, before.subscribers + 1);
    assert_eq!((world.flows(), world.nat.admin().gauges().flow_creates_total), (1, 8));
    let events = world.events();
    assert_eq!(events.len(), 1, "no event for a block that was never used: {events:?}");
    let BlockEventKind::Allocated(block) = events[0].kind else { panic!("{events:?}") };
    assert_eq!(block.subscriber, home(2).outer.into());
    world.wait_and_collect(300);
    world.wait_and_collect(120);
    world.assert_empty();
}

/// Equal hashes overflow their two buckets of an index long before the table is full.
#[test]
fn a_block_is_logged_with_the_first_mapping_that_stands() {
    let mut world = World::new(config());
    let crowded = Hash(0x0123_4567_89ab_cdef);
    let refusal = (0..64).find_map(|n| {
        let packet = flow(home(1), n);
        let opening = prepare(&mut world, &packet).unwrap();
        world
            .nat
            .open_mapping(crowded, &(&packet).into(), &opening, &FlowPolicy::NONE, world.now)
            .err()
    });
    assert_eq!(refusal, Some(Refusal::TableFull), "the buckets are full");
    audit(&world.nat);
    world.events();

    let (first, second) = (flow(home(2), 0), flow(home(2), 1));
    let [opening, other] = [first, second].map(|packet| prepare(&mut world, &packet).unwrap());
    let refused =
        world.nat.open_mapping(crowded, &(&first).into(), &opening, &FlowPolicy::NONE, world.now);
    assert_eq!(refused, Err(Refusal::TableFull));
    assert_eq!(world.events(), [], "no mapping uses the block yet");
    let hash = world.nat.outbound_hash(&second.home, second.inside, second.protocol);
    let opened =
        world.nat.open_mapping(hash, &(&second).into(), &other, &FlowPolicy::NONE, world.now);
    let public = opened.unwrap().to;
    audit(&world.nat);
    let events = world.events();
    assert_eq!(events.len(), 1, "{events:?}");
    let BlockEventKind::Allocated(block) = events[0].kind else { panic!("{events:?}") };
    assert_eq!((block.subscriber, block.public_address), (home(2).outer.into(), public.address));
    assert!((block.port_first..=block.port_last).contains(&public.port));
}

#[test]
fn without_translation_one_of_two_homes_gets_the_address() {
    let mut world = World::new(NatConfig {
        enabled: false,
        shards: vec![shard(11, "192.168.1.0/24"), shard(12, "198.51.100.0/30")],
        ..config()
    });
    let foreign = Outbound { inside: at("192.0.2.9:1"), ..flow(home(3), 0) };
    let packets = [flow(home(1), 0), flow(home(2), 0), foreign, flow(home(2), 1), flow(home(1), 1)];
    let results = burst(&mut world, &packets);
    let (conflict, not_ours) = (Err(Refusal::AddressConflict), Err(Refusal::InsideNotPublic));
    assert_eq!(results, [Ok(inside(0)), conflict, not_ours, conflict, Ok(inside(1))]);
    assert_eq!((world.flows(), world.nat.admin().gauges().subscribers), (2, 1));
    assert_eq!(world.udp_back(inside(0), server(0)).unwrap().home, home(1));
    audit(&world.nat);
    world.wait_and_collect(300);
    world.assert_empty();
}

/// xorshift64*
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % u64::from(bound)) as u32
    }
}

/// The same new flows in bursts and one by one: the same flows stand, nothing is lost, and the log
/// is complete.
#[test]
fn bursts_admit_what_single_packets_admit() {
    let (mut stood, mut refused) = (0, HashSet::new());
    for seed in 0..12 {
        println!("seed {seed}");
        let config = NatConfig {
            flows_max: 90,
            flows_per_subscriber: 15,
            port_block: 64,
            ports_per_subscriber: 64,
            shards: vec![shard(11, "203.0.113.0/32"), shard(12, "198.51.100.0/32")],
            seed: [seed, 2, 3, 4],
            ..config()
        };
        let (mut bursts, mut singles) = (World::new(config.clone()), World::new(config));
        let (mut logged, mut dice) = (HashSet::new(), Dice(seed + 1));
        let mut fresh = 0;
        for _ in 0..200 {
            let packets: Vec<_> = (0..=dice.below(20))
                .map(|_| {
                    fresh += 1;
                    flow(home(dice.below(4)), fresh)
                })
                .collect();
            let together = burst(&mut bursts, &packets);
            let alone: Vec<_> = packets
                .iter()
                .map(|packet| singles.udp_out(packet.home, packet.inside, packet.remote))
                .collect();
            assert_eq!(is_ok(&together), is_ok(&alone));
            stood += together.iter().filter(|result| result.is_ok()).count();
            refused.extend(together.iter().filter_map(|result| result.err()));
            audit(&bursts.nat);
            let of_both = [&bursts, &singles].map(|world| {
                let gauges = world.nat.admin().gauges();
                let shard = world.nat.admin().shard_gauges(SHARD);
                let of_table = (gauges.flows, gauges.quarantined, gauges.flow_creates_total);
                (of_table, gauges.subscribers, shard.ports_used, shard.blocks_free)
            });
            assert_eq!(of_both[0], of_both[1]);
            follow(&mut bursts, &mut logged);
            assert_eq!(logged, held(&bursts, (0..4).map(home)), "the log names all holders");
            let pause = dice.below(60);
            bursts.wait_and_collect(pause);
            singles.wait_and_collect(pause);
        }
        bursts.wait_and_collect(300);
        bursts.wait_and_collect(120);
        bursts.assert_empty();
        follow(&mut bursts, &mut logged);
        assert!(logged.is_empty());
    }
    assert!(stood > 1000, "{stood} flows stood");
    assert!(refused.contains(&Refusal::TableFull), "{refused:?}");
    assert!(refused.contains(&Refusal::FlowsPerSubscriber), "{refused:?}");
}
