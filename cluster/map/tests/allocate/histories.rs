//! The allocator through random histories: nodes die, pause, come back, are drained, fenced, added;
//! plans are taken while all that happens. `World` checks every step; at the end the map is whole,
//! even and at rest.

use std::collections::BTreeMap;

use bolero::{TypeGenerator, check};
use weir_map::allocate::*;
use weir_map::*;

use crate::fleet::World;

const NODES_MAX: usize = 9;

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Step {
    /// The node looks dead, whether it runs or not; it comes back as another incarnation.
    Lose(u8),
    Suspect(u8),
    Stop(u8),
    Restart(u8),
    Fence(u8),
    Drain(u8),
    Undrain(u8),
    /// The share of a node's first worker: none, or the usual one.
    Weight(u8, bool),
    AddNode(bool),
    CutOff(u8, bool),
    Act(u8),
    Load(u8, u8),
    Replicas(#[generator(0..5_u8)] u8),
    /// Twice as likely as each of the others: plans are taken, and workers may be slow.
    Plan,
    PlanAndWork,
    Work,
}

#[derive(Clone, Debug, TypeGenerator)]
struct History {
    #[generator(1..40_u8)]
    shards: u8,
    #[generator(2..6_u8)]
    nodes: u8,
    #[generator(1..20_u8)]
    moves_max: u8,
    by_load: bool,
    has_racks: bool,
    /// Room of each worker, in shards. None: it takes any number.
    #[generator(bolero::generator::produce::<Option<u8>>())]
    room: Option<u8>,
    steps: Vec<Step>,
}

fn play(history: &History) {
    let options = AllocateOptions {
        moves_max: usize::from(history.moves_max),
        by_load: history.by_load,
        ..AllocateOptions::default()
    };
    let mut world = World::new(u32::from(history.shards), options);
    let add = |world: &mut World, is_big: bool| {
        let rack = history.has_racks.then_some(["r1", "r2", "r3"][world.nodes.len() % 3]);
        let node = world.add_node(if is_big { &[100, 200] } else { &[100] }, rack);
        for worker in &mut world.nodes[node].workers {
            worker.shards_max = history.room.map(|room| u32::from(room % 64));
        }
    };
    (0..history.nodes).for_each(|node| add(&mut world, node % 2 == 0));
    for &step in &history.steps {
        match step {
            Step::AddNode(is_big) if world.nodes.len() < NODES_MAX => add(&mut world, is_big),
            Step::AddNode(_) => {}
            other => happen(&mut world, other),
        }
        check_map(&world);
    }
    // All nodes are back, and drained nodes stay drained, except the first two.
    for node in 0..world.nodes.len() {
        match world.nodes[node].liveness {
            Liveness::Alive => {}
            Liveness::Suspect => world.nodes[node].liveness = Liveness::Alive,
            _ => world.restart(node),
        }
        world.nodes[node].is_drained &= node >= 2;
        world.nodes[node].workers[0].weight = 100;
        cut_off(&mut world, node, false);
    }
    world.settle();
    let is_full = world.plan().notes.iter().any(|note| matches!(note, Note::Full { .. }));
    if !is_full {
        check_end(&world);
    }
}

fn happen(world: &mut World, step: Step) {
    let nodes = world.nodes.len();
    let node = |any: u8| usize::from(any) % nodes;
    match step {
        Step::Lose(any) => set(world, node(any), Liveness::Dead),
        Step::Fence(any) => set(world, node(any), Liveness::Fenced),
        Step::Suspect(any) if world.nodes[node(any)].liveness == Liveness::Alive => {
            world.nodes[node(any)].liveness = Liveness::Suspect;
        }
        Step::Stop(any) if world.nodes[node(any)].liveness == Liveness::Alive => {
            world.nodes[node(any)].liveness = Liveness::Stopping;
        }
        Step::Suspect(_) | Step::Stop(_) | Step::AddNode(_) => {}
        Step::Restart(any) => world.restart(node(any)),
        Step::Drain(any) => world.nodes[node(any)].is_drained = true,
        Step::Undrain(any) => world.nodes[node(any)].is_drained = false,
        Step::Weight(any, has_share) => {
            world.nodes[node(any)].workers[0].weight = if has_share { 100 } else { 0 };
        }
        Step::CutOff(any, is_cut_off) => {
            cut_off(world, node(any), is_cut_off);
        }
        Step::Act(any) => act(world, any),
        Step::Load(any, load) => {
            let shard = usize::from(any) % world.shards.len();
            world.shards[shard].load = u64::from(load);
        }
        Step::Replicas(replicas) => world.options.replicas = replicas,
        Step::Plan => world.apply(&world.plan()),
        Step::PlanAndWork => {
            world.apply(&world.plan());
            world.work();
        }
        Step::Work => {
            world.work();
        }
    }
}

/// Sets a node's liveness, except that a fenced node has ended until it restarts.
fn set(world: &mut World, node: usize, liveness: Liveness) {
    if world.nodes[node].liveness != Liveness::Fenced {
        world.nodes[node].liveness = liveness;
    }
}

fn cut_off(world: &mut World, node: usize, is_cut_off: bool) {
    for worker in &mut world.nodes[node].workers {
        worker.is_cut_off = is_cut_off;
    }
}

fn act(world: &mut World, any: u8) {
    let index = usize::from(any) % world.shards.len();
    let Some(entry) = &world.shards[index].entry else { return };
    let term = entry.term();
    let replica = entry.members().get(1);
    world.shards[index].acting =
        replica.map(|member| Acting { incarnation: member.incarnation.clone(), term });
}

/// Checks what holds at any time: no two members on a node, and never more members than allowed.
fn check_map(world: &World) {
    for entry in world.shards.iter().filter_map(|shard| shard.entry.as_ref()) {
        assert_eq!(entry.check(), Ok(()));
    }
}

fn check_end(world: &World) {
    let open = world.nodes.iter().filter(|node| !node.is_drained).count();
    let wanted = (usize::from(world.options.replicas) + 1).min(open);
    for entry in world.shards.iter().filter_map(|shard| shard.entry.as_ref()) {
        assert!(!entry.is_moving(), "{entry:?}");
        assert_eq!((entry.members().len(), world.synced(entry)), (wanted, wanted), "{entry:?}");
        for member in entry.members() {
            assert!(!member.is_yielding && !member.is_leaving, "{entry:?}");
            let mut nodes = world.nodes.iter();
            let node = nodes.find(|node| node.name == member.incarnation.worker.node);
            assert!(!node.expect("it exists").is_drained, "{entry:?}");
        }
    }
    let notes = world.plan().notes;
    assert!(!notes.iter().any(|note| matches!(note, Note::Stuck(_) | Note::Halted { .. })));
    if !world.options.by_load && wanted > 1 && wanted < 5 {
        check_even(world);
    }
}

/// Primaries lie by weight, within two and a quarter of the fair share, whatever came before, where
/// nodes and racks let copies lie by weight. Where they do not, a worker that holds more than its
/// share of copies would also take over more than its share, and the sum that [`check_best`] takes
/// weighs that against its primaries.
fn check_even(world: &World) {
    let open = || world.nodes.iter().filter(|node| !node.is_drained);
    let weight = |node: &NodeView| node.workers.iter().map(|worker| worker.weight).sum::<u32>();
    let weights: u32 = open().map(weight).sum();
    let shares = world.shares();
    let mut by_site = BTreeMap::new();
    for node in open() {
        let site = node.rack.clone().unwrap_or_else(|| node.name.to_string());
        *by_site.entry(site).or_insert(0) += weight(node);
    }
    let copies = world.options.replicas as u32 + 1;
    let is_free = by_site.values().all(|site| site * copies <= weights);
    for node in open().filter(|_| is_free) {
        for worker in &node.workers {
            let id = WorkerId { node: node.name.clone(), index: worker.index };
            let fair = world.shards.len() as f64 * f64::from(worker.weight) / f64::from(weights);
            let (primaries, _) = shares[&id];
            assert!((primaries as f64 - fair).abs() <= 2.0 + fair / 4.0, "{id}: {shares:?}");
        }
    }
    check_best(world);
}

/// No other choice of one shard's primary makes the map better by as much as one shard too many on
/// a worker. The cost is computed from the whole map: 4 x primaries^2 + copies^2 + (what each lost
/// node would hand over)^2.
fn check_best(world: &World) {
    let weight = |who: &WorkerId| {
        let node = world.nodes.iter().find(|node| node.name == who.node).expect("it exists");
        f64::from(node.workers[usize::from(who.index)].weight)
    };
    let entries = world.shards.iter().map(|shard| shard.entry.as_ref().expect("created"));
    let members = |entry: &ShardEntry| -> Vec<WorkerId> {
        entry.members().iter().map(|member| member.incarnation.worker.clone()).collect()
    };
    let mut shards: Vec<Vec<WorkerId>> = entries.map(members).collect();
    let cost = |shards: &[Vec<WorkerId>]| {
        let mut primaries = BTreeMap::new();
        let mut handed_over = BTreeMap::new();
        for members in shards {
            *primaries.entry(members[0].clone()).or_insert(0.0) += 1.0;
            let heir = (members[0].node.clone(), members[1].clone());
            *handed_over.entry(heir).or_insert(0.0) += 1.0;
        }
        let primaries = primaries.iter().map(|(who, sum)| 4.0 * sum * sum / weight(who));
        let handed_over = handed_over.iter().map(|((_, who), sum)| sum * sum / weight(who));
        primaries.sum::<f64>() + handed_over.sum::<f64>()
    };
    let workers = world.nodes.iter().flat_map(|node| &node.workers);
    let heaviest = f64::from(workers.map(|worker| worker.weight).max().expect("there are some"));
    let now = cost(&shards);
    for index in 0..shards.len() {
        for rank in 1..shards[index].len() {
            shards[index].swap(0, rank);
            let gain = now - cost(&shards);
            assert!(gain < 2.001 / heaviest, "shard {index}, rank {rank}: {gain}");
            shards[index].swap(0, rank);
        }
    }
}

#[test]
fn every_history_ends_in_a_map_that_is_whole_and_at_rest() {
    check!().with_type::<History>().with_max_len(512).with_iterations(600).for_each(play);
}

/// A node was drained, emptied from one worker to the other and opened again: both of its members
/// yield.
#[test]
fn two_yielding_members_on_a_node_count_as_one_copy() {
    use self::Step::*;
    let steps = vec![
        Work,
        Plan,
        Fence(107),
        Act(196),
        Drain(158),
        Load(172, 218),
        Weight(92, false),
        CutOff(246, true),
        Plan,
        Work,
        Drain(226),
        Drain(132),
        Suspect(31),
        Suspect(227),
        PlanAndWork,
        Plan,
        Restart(170),
        AddNode(true),
        Fence(82),
        CutOff(168, true),
        CutOff(188, false),
        Weight(16, false),
        PlanAndWork,
        Plan,
        Replicas(4),
        Work,
        Work,
        Drain(124),
    ];
    let (by_load, has_racks) = (true, true);
    play(&History { shards: 24, nodes: 4, moves_max: 19, by_load, has_racks, room: None, steps });
}

/// Two racks, and one of them has a single small worker: it holds a copy of every shard.
#[test]
fn a_worker_alone_in_its_rack_trades_primaries_for_what_it_would_take_over() {
    use self::Step::*;
    let steps = vec![
        Stop(225),
        Restart(218),
        Undrain(248),
        CutOff(135, true),
        Undrain(93),
        Drain(254),
        AddNode(true),
        CutOff(6, true),
    ];
    let (by_load, has_racks) = (false, true);
    play(&History { shards: 39, nodes: 3, moves_max: 10, by_load, has_racks, room: None, steps });
}

/// The worker that was to be emptied has retired and still has a lane; the other member on its node
/// yields.
#[test]
fn a_member_is_kept_only_when_the_other_one_of_its_node_is_removed() {
    use self::Step::*;
    let steps = vec![
        Load(243, 149),
        Act(78),
        Fence(230),
        Suspect(220),
        Lose(109),
        Plan,
        Plan,
        Restart(241),
        Plan,
        Work,
        Weight(9, false),
        Work,
        Fence(143),
        Plan,
        AddNode(false),
        Load(161, 221),
        Undrain(200),
        Drain(49),
        CutOff(16, true),
        AddNode(true),
    ];
    let (by_load, has_racks) = (true, true);
    play(&History { shards: 37, nodes: 3, moves_max: 14, by_load, has_racks, room: None, steps });
}
