//! Shards that are spread by load, and workers that state how much they can carry.

use weir_config::ConfigFile;
use weir_etcd::Key;

use super::options;
use crate::fleet::{World, id};

/// Returns a cluster file of 16 shards.
fn cluster(balance: &str) -> Vec<u8> {
    let text = format!(
        "[cluster]\nname = \"edge\"\nbalance = \"{balance}\"\n\
         [access]\nsubscribers = [\"10.200.0.0/16\"]\n\
         [[pool]]\nfirst_id = 1\nendpoints = \"10.100.0.0/24\"\npublic = \"203.0.113.0/24\"\nper_shard = 28\n"
    );
    let (desired, _) = weir_config::parse_cluster(&text, "cluster.toml").expect("a cluster file");
    assert_eq!(desired.shards.len(), 16);
    desired.to_json().into_bytes()
}

/// Returns the `load_max` of a worker in a node file with this line.
fn load_max(line: &str) -> Option<u64> {
    let text = format!(
        "[node]\nname = \"n0\"\n[cluster]\nname = \"edge\"\netcd = [\"http://e1:2379\"]\n\
         key_file = \"/etc/weir/cluster.key\"\n[[worker]]\ncore = 1\n{line}\n\
         access = {{ device = \"net_af_xdp0,iface=a\", address = \"10.1.0.1/24\", gateway = \"10.1.0.2\", mtu = 1524 }}\n\
         internet = {{ device = \"net_af_xdp1,iface=b\", address = \"10.2.0.1/24\", gateway = \"10.2.0.2\" }}\n"
    );
    match weir_config::parse_file(&text, "weir.toml") {
        Ok((ConfigFile::Member(member), _)) => member.workers[0].load_max,
        other => panic!("{other:#?}"),
    }
}

/// Creates three nodes whose shards are spread by number; all busy shards are on the first one.
fn lopsided() -> World {
    let mut world = World::new(3, 16, 1, options());
    world.etcd.put(Key::Desired, cluster("shards"));
    world.elect(0);
    world.settle();
    for (shard, entry) in world.entries() {
        let is_busy = entry.primary().incarnation.worker.node == id(0);
        world.loads.insert(shard, if is_busy { 100_000 } else { 100 });
    }
    world.settle();
    world
}

/// Returns the load of the shards that each node is primary of.
fn carried(world: &World) -> [u64; 3] {
    let mut carried = [0; 3];
    for (shard, entry) in world.entries() {
        let node = &entry.primary().incarnation.worker.node;
        let node = (0..3).find(|&number| id(number) == *node).expect("one of three");
        carried[node] += world.loads[&shard];
    }
    carried
}

fn whys(world: &World) -> Vec<String> {
    world.events().into_iter().map(|event| event.why).collect()
}

#[test]
fn busy_shards_are_spread_when_the_cluster_file_balances_by_load() {
    let mut world = lopsided();
    let before = carried(&world);
    let total: u64 = before.iter().sum();
    assert!(before[0] > total - 2_000, "by number nothing is to be moved: {before:?}");
    assert!(!world.report().is_by_load);
    world.etcd.put(Key::Desired, cluster("load"));
    world.settle();
    let after = carried(&world);
    assert!(after.iter().all(|&load| load <= total / 2), "{before:?} -> {after:?}");
    assert!(whys(&world).contains(&"the load lies unevenly".to_owned()), "{:?}", whys(&world));
    let report = world.report();
    assert!(report.is_by_load);
    for (node, load) in report.nodes.iter().zip(after) {
        let shown: u64 = node.workers.iter().map(|worker| worker.load).sum();
        assert!(shown.abs_diff(load) <= load / 4 + 1_000, "{node:?} carries {load}");
    }
}

#[test]
fn a_worker_that_could_not_carry_a_lost_node_is_named() {
    let mut world = lopsided();
    let notes = |world: &World| world.report().notes.join("; ");
    assert_eq!(notes(&world), "");
    for (line, is_enough) in [("load_max = 100_000", false), ("load_max = 900_000", true)] {
        world.load_max = load_max(line);
        (0..3).for_each(|node| world.register(node));
        world.settle();
        assert!(
            world
                .report()
                .nodes
                .iter()
                .flat_map(|it| &it.workers)
                .all(|worker| { worker.load_max == world.load_max })
        );
        let notes = notes(&world);
        assert_eq!(notes.is_empty(), is_enough, "{notes}");
        let names_it = notes.contains(" % of its `load_max` of 100000: add a node");
        assert_eq!(names_it, !is_enough, "{notes}");
    }
}

#[test]
fn a_small_change_of_a_load_is_not_reported() {
    let mut world = lopsided();
    let waver = |world: &mut World, turns: u64| {
        for turn in 0..turns {
            for load in world.loads.values_mut() {
                *load = if turn % 2 == 0 { *load + *load / 50 } else { *load - *load / 51 };
            }
            world.turn();
        }
    };
    // The remaining difference may be just below the reported minimum.
    waver(&mut world, 40);
    let revision = |world: &World| world.etcd.keys[&Key::Report].mod_revision;
    let before = revision(&world);
    waver(&mut world, 200);
    assert_eq!(revision(&world), before);
    world.loads.values_mut().for_each(|load| *load *= 3);
    world.turns(60_000);
    assert!(revision(&world) > before);
}
