//! The map becomes whole again after every history, and no dead node stays in it.

use weir_cluster::Key;
use weir_controller::records::{Control, ControllerState, Report};
use weir_sim::dice::Dice;

use crate::fault::{Fault, draw};
use crate::world::{Size, World};

/// Until the first map is whole.
const START_MS: u64 = 15_000;
const FAULTS_MS: u64 = 40_000;
/// From the last fault until the map is whole at the latest.
const HEAL_MS: u64 = 240_000;

/// What was done in a history.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    events: u64,
    entries: u64,
    leaders: u64,
    heal_ms: u64,
}

fn size(dice: &mut Dice) -> Size {
    let nodes = dice.between((2, 4)) as usize;
    Size {
        nodes,
        workers: dice.between((1, 2)) as usize,
        shards: dice.between((1, 4)) as u32,
        replicas: dice.between((1, nodes as u64 - 1)) as u8,
        controllers: dice.between((1, 3)) as usize,
    }
}

fn play(seed: u64, with_restore: bool) -> Seen {
    let mut dice = Dice::stream(seed, 1);
    let size = size(&mut dice);
    let skew_ppm = dice.below(2) * dice.below(20_000);
    let mut world = World::new(size, seed, skew_ppm);
    let count = dice.below(20);
    let when = (START_MS, START_MS + FAULTS_MS);
    let faults = draw(&mut dice, count, when, (size.nodes, size.controllers), with_restore);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        live(&mut world, &faults.iter().map(|it| (it.at_ms, it.fault)).collect::<Vec<_>>())
    }));
    result.unwrap_or_else(|panic| {
        eprintln!("seed {seed}: {size:?}, clocks wrong by {skew_ppm} ppm at most");
        world.said.iter().for_each(|said| eprintln!("{said}"));
        std::panic::resume_unwind(panic)
    })
}

fn live(world: &mut World, faults: &[(u64, Fault)]) -> Seen {
    for &(at_ms, fault) in faults {
        while world.now_ms < at_ms {
            world.step();
        }
        world.strike(fault);
    }
    world.run(1_000);
    world.mend_all();
    let healed_ms = world.now_ms;
    let mut whole_ms = 0;
    while whole_ms < 3_000 {
        world.step();
        let waited_ms = world.now_ms - healed_ms;
        if waited_ms.is_multiple_of(10_000) {
            // Orders that a restored etcd has again, and the freeze that follows from its restore.
            world.take_orders_back();
        }
        if waited_ms == 60_000 {
            // Shards whose newest holder is gone for ever.
            world.rebase();
        }
        whole_ms = if why_not_whole(world).is_none() { whole_ms + 10 } else { 0 };
        assert!(
            waited_ms < HEAL_MS,
            "{}\n{}",
            why_not_whole(world).unwrap_or_default(),
            show(world)
        );
    }
    let watching = &world.watching;
    Seen {
        events: watching.events,
        entries: watching.entries_written,
        leaders: watching.leaders,
        heal_ms: world.now_ms - healed_ms,
    }
}

fn why_not_whole(world: &World) -> Option<String> {
    let entries = world.entries();
    let copies = usize::from(world.size.replicas) + 1;
    if entries.len() != world.size.shards as usize {
        return Some(format!("{} shards have entries", entries.len()));
    }
    for (id, entry) in &entries {
        if let Some(gone) = entry.members().iter().find(|it| !world.runs(&it.incarnation)) {
            return Some(format!("shard {id} names {}, which has ended", gone.incarnation));
        }
        let is_synced = |it: &&weir_shard::Member| it.state == weir_shard::MemberState::Synced;
        let synced = entry.members().iter().filter(is_synced).count();
        if entry.is_moving() || synced != copies || entry.members().len() != copies {
            return Some(format!("shard {id} is not whole: {entry:?}"));
        }
    }
    let report: Option<Report> = world.plane.operator.read(&world.plane.etcd, &Key::Report);
    match report {
        Some(report) if report.state == ControllerState::Resting => None,
        report => Some(format!("no controller rests: {report:?}")),
    }
}

fn show(world: &World) -> String {
    let control: Option<Control> = world.plane.operator.read(&world.plane.etcd, &Key::Control);
    let report: Option<Report> = world.plane.operator.read(&world.plane.etcd, &Key::Report);
    let leaders = world.plane.leaders(world.now_ms * 1000);
    format!("{control:?}\n{report:?}\nleaders {leaders:?}")
}

fn seeds(range: std::ops::Range<u64>, with_restore: bool) -> Seen {
    // By hand: SEED=17 or SEED=5000..9000 cargo test -p weir-sim --test control
    let range = std::env::var("SEED").map_or(range, |text| {
        let number = |text: &str| text.parse().expect("a number");
        let (from, to) = text.split_once("..").unwrap_or((&text, ""));
        number(from)..if to.is_empty() { number(from) + 1 } else { number(to) }
    });
    let mut sum = Seen::default();
    for seed in range {
        let seen = play(seed, with_restore);
        sum.events += seen.events;
        sum.entries += seen.entries;
        sum.leaders += seen.leaders;
        sum.heal_ms = sum.heal_ms.max(seen.heal_ms);
    }
    sum
}

#[test]
fn the_map_becomes_whole_after_every_history() {
    let sum = seeds(0..60, false);
    eprintln!("{sum:?}");
}

#[test]
fn the_map_becomes_whole_after_etcd_was_set_back() {
    let sum = seeds(1_000..1_040, true);
    eprintln!("{sum:?}");
}
