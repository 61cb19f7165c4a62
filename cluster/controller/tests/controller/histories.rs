//! The controller through random histories: nodes die, stall, return, are cut off from etcd,
//! drained, fenced; mirrors lag, leaders change, answers are lost. `World` checks every write; at
//! the end the map is whole and at rest, and drained nodes are empty.

use bolero::{TypeGenerator, check};
use weir_controller::records::{Control, ControllerState, OrderAuthor};
use weir_controller::state::{BirdDown, ControllerEvent, ControllerOptions};

use crate::fleet::{Fate, World};

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Step {
    Kill(u8),
    Expire(u8),
    Stop(u8),
    /// A stopping node ends: it states its own end, and its key goes at once or with its lease.
    End(u8, bool),
    Start(u8),
    Cut(u8),
    Mend(u8),
    /// No node hears its streams, or one of its workers has a side down; or the fault ends.
    Unreachable(u8, bool),
    Broken(u8, bool),
    /// Its BIRD stops or resumes announcing one side, or both.
    Bird(u8, bool, bool),
    Fence(u8),
    Drain(u8, bool),
    Undrain(u8),
    Freeze(bool),
    Rebalance,
    AddNode,
    /// The next write of a controller is lost, or its answer is.
    Fail(#[generator(0..3_u8)] u8),
    /// Another controller is elected; the former leader may not know it yet.
    Elect(bool, bool),
    Deliver(bool, u8),
    Report(bool),
    Tick(bool, u8),
    Answer(bool),
    Work,
    /// Makes turns more likely than each of the other steps.
    Turn,
    Turns(u8),
    Time(u16),
}

#[derive(Clone, Debug, TypeGenerator)]
struct History {
    #[generator(1..20_u8)]
    shards: u8,
    #[generator(2..6_u8)]
    nodes: u8,
    #[generator(1..4_u8)]
    copies: u8,
    #[generator(1..12_u8)]
    moves_per_min: u8,
    steps: Vec<Step>,
}

const NODES_MAX: usize = 7;

fn play(history: &History) {
    let mut options = ControllerOptions::new("c", 1);
    options.moves_per_min = usize::from(history.moves_per_min);
    options.balance_wait_ms = 5_000;
    options.tick_ms = 2_000;
    (options.trial_first_ms, options.trial_max_ms) = (5_000, 30_000);
    let (nodes, shards) = (usize::from(history.nodes), u32::from(history.shards));
    let mut world = World::new(nodes, shards, history.copies - 1, options);
    world.elect(0);
    for &step in &history.steps {
        happen(&mut world, step);
    }
    end(&mut world, usize::from(history.copies));
}

fn happen(world: &mut World, step: Step) {
    let nodes = world.nodes.len();
    let node = |any: u8| usize::from(any) % nodes;
    match step {
        Step::Kill(any) => world.kill(node(any)),
        Step::Expire(any) => world.expire(node(any)),
        Step::Stop(any) => world.stop(node(any)),
        Step::End(any, leaves) if world.nodes[node(any)].is_stopping => {
            world.declare_ended(node(any));
            world.kill(node(any));
            if leaves {
                world.expire(node(any));
            }
        }
        Step::End(..) => {}
        // A second process of the same name is refused while the first one's key exists.
        Step::Start(any) if !world.nodes[node(any)].is_up => {
            world.expire(node(any));
            world.start(node(any));
        }
        Step::Start(_) => {}
        Step::Cut(any) => world.nodes[node(any)].is_cut = true,
        Step::Mend(any) => mend(world, node(any)),
        Step::Unreachable(any, is) => world.nodes[node(any)].is_unreachable = is,
        Step::Broken(any, is) => {
            world.nodes[node(any)].broken = if is { vec![0] } else { Vec::new() };
        }
        Step::Bird(any, has_access, has_internet) => {
            let side = |side: &str, has: bool| BirdDown::new(side, "no-session").filter(|_| !has);
            let sides = [side("access", has_access), side("internet", has_internet)];
            world.nodes[node(any)].bird_down = sides.into_iter().flatten().collect();
        }
        Step::Fence(any) => world.fence(node(any)),
        Step::Drain(any, force) => world.drain(node(any), force),
        Step::Undrain(any) => world.undrain(node(any)),
        Step::Freeze(is_frozen) => world.freeze(is_frozen),
        Step::Rebalance => {
            let order = OrderAuthor { by: "ann".into(), at_ms: 0 };
            world.set_control(&Control { rebalance: Some(order), ..world.control() });
        }
        Step::AddNode if nodes < NODES_MAX => world.add_node(),
        Step::AddNode => {}
        Step::Fail(how) => {
            world.fate = [Fate::WrittenUnanswered, Fate::LostUnanswered, Fate::Unavailable]
                [usize::from(how)];
        }
        Step::Elect(to, is_notified) => {
            if is_notified {
                world.depose(usize::from(!to));
            }
            world.elect(usize::from(to));
        }
        Step::Deliver(to, count) => world.deliver(usize::from(to), usize::from(count)),
        Step::Report(to) => world.send_reports(usize::from(to)),
        Step::Tick(to, ms) => {
            world.ms += u64::from(ms) * 10;
            world.handle(usize::from(to), ControllerEvent::Tick);
        }
        Step::Answer(to) => {
            world.answer(usize::from(to));
        }
        Step::Work => {
            world.work();
        }
        Step::Turn => world.turn(),
        Step::Turns(count) => (0..count % 64).for_each(|_| world.turn()),
        Step::Time(ms) => world.ms += u64::from(ms),
    }
}

/// Lets the node reach etcd again, and register if its key is gone.
fn mend(world: &mut World, node: usize) {
    if world.nodes[node].is_up && std::mem::take(&mut world.nodes[node].is_cut) {
        world.register(node);
    }
}

/// Ends all faults: every node is back, one controller leads, nothing is frozen, and at least two
/// nodes are not drained.
fn end(world: &mut World, copies: usize) {
    for node in 0..world.nodes.len() {
        mend(world, node);
        world.nodes[node].is_unreachable = false;
        world.nodes[node].broken.clear();
        world.nodes[node].bird_down.clear();
        if world.nodes[node].is_stopping {
            world.kill(node);
        }
        if !world.nodes[node].is_up {
            world.expire(node);
            world.start(node);
        }
        if node < copies {
            world.undrain(node);
        }
    }
    world.freeze(false);
    world.fate = Fate::Answered;
    world.depose(1);
    world.elect(0);
    world.settle();
    let drained: Vec<usize> =
        (0..world.nodes.len()).filter(|&node| world.intent(node).drain.is_some()).collect();
    let open = world.nodes.len() - drained.len();
    let wanted = copies.min(open);
    for (shard, entry) in world.entries() {
        assert!(!entry.is_moving(), "{shard}: {entry:?}");
        assert_eq!(entry.members().len(), wanted, "{shard}: {entry:?} {:?}", world.report());
        assert!(entry.members().iter().all(|member| world.runs(&member.incarnation)));
    }
    for node in drained {
        assert_eq!(world.held(node), 0, "n{node} is not empty: {:?}", world.report());
    }
    let report = world.report();
    assert_eq!((report.state, report.whole), (ControllerState::Resting, world.entries().len()));
    assert_eq!(world.control().rebalance, None);
    let numbers: Vec<u64> = world.events().iter().map(|event| event.number).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "no event is missing");
}

#[test]
fn every_history_ends_in_a_map_that_is_whole_and_at_rest() {
    check!().with_type::<History>().with_max_len(400).with_iterations(400).for_each(play);
}
