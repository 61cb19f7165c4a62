//! The files in `examples/` are valid.

use std::path::Path;

use weir_config::{AccessSetting, Checked, Config, ConfigFile, Desired, Diagnostic, MemberFile};

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    std::fs::read_to_string(&path).expect("the example exists")
}

fn file(name: &str) -> (ConfigFile, Vec<Diagnostic>) {
    weir_config::parse_file(&text(name), name).unwrap_or_else(|errors| {
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"))
    })
}

fn example(name: &str) -> (Config, Vec<Diagnostic>) {
    match file(name) {
        (ConfigFile::Single(config), warnings) => (*config, warnings),
        (other, _) => panic!("{name} is no single node: {other:?}"),
    }
}

fn cluster(name: &str) -> (Desired, Vec<Diagnostic>) {
    match file(name) {
        (ConfigFile::Cluster(desired), warnings) => (*desired, warnings),
        (other, _) => panic!("{name} is no cluster file: {other:?}"),
    }
}

/// Returns the nodes of a cluster, which must fit its file and each other without a warning.
fn members(cluster: &str, desired: &Desired, names: &[&str]) -> Vec<(String, MemberFile)> {
    let mut members: Vec<(String, MemberFile)> = Vec::new();
    for name in names {
        let (member, warnings) =
            weir_config::parse_member(&text(name), name, desired, &members).expect("they fit");
        assert_eq!(warnings, []);
        members.push(((*name).to_owned(), member));
    }
    let texts: Vec<String> = names.iter().map(|name| text(name)).collect();
    let nodes = members.iter().zip(&texts);
    let nodes = nodes.map(|((name, value), text)| Checked { name, text, value });
    let file = Checked { name: cluster, text: &text(cluster), value: desired };
    assert_eq!(weir_config::check_nodes(file, &nodes.collect::<Vec<_>>()), []);
    members
}

#[test]
fn every_example_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(folder).expect("examples/ exists");
    let names = files.map(|file| file.expect("readable").file_name().into_string().expect("UTF-8"));
    let names: Vec<_> = names.filter(|name| name.ends_with(".toml")).collect();
    assert!(names.len() >= 15, "{names:?}");
    for name in names {
        if let (ConfigFile::Single(config), _) = file(&name) {
            let flows = config.workers.len() as u64 * u64::from(config.nat.flows_max);
            assert!(flows <= 10_000_000, "{name} runs on a small machine");
        }
    }
}

#[test]
fn the_nodes_of_the_cluster_fit_its_file_and_each_other() {
    let (desired, warnings) = cluster("cluster.toml");
    assert_eq!(warnings, []);
    assert_eq!((desired.shards.len(), desired.public_addresses()), (257, 256 * 16 + 32));
    let names = ["node-1.toml", "node-2.toml", "node-3.toml"];
    let members = members("cluster.toml", &desired, &names);
    let again = weir_config::parse_member(&text("node-2.toml"), "again", &desired, &members);
    assert_eq!(again.expect_err("a node twice").len(), 1 + 4, "its name and its addresses");
}

#[test]
fn the_nodes_of_the_plain_cluster_fit_its_file_and_each_other() {
    let (desired, warnings) = cluster("plain-cluster.toml");
    assert_eq!(warnings, []);
    assert_eq!((desired.access.mode, desired.shards.len()), (AccessSetting::Plain, 32));
    assert_eq!(desired.homes(), 1 << 15, "every address of the homes is served");
    let last = desired.shard(32).expect("the shard exists");
    assert_eq!(last.steer, Some([10, 100, 0, 32].into()));
    assert_eq!(last.subscribers, ["100.64.124.0/22".parse().expect("a prefix")]);
    members("plain-cluster.toml", &desired, &["plain-node-1.toml", "plain-node-2.toml"]);
}

#[test]
fn the_nodes_of_the_cluster_with_ipv6_fit_its_file_and_each_other() {
    let (desired, warnings) = cluster("ipv6-cluster.toml");
    assert_eq!(warnings, []);
    let last = desired.shard(32).expect("the shard exists");
    assert_eq!(last.public6, ["2001:db8:101f::/48".parse().expect("a prefix")]);
    assert_eq!(last.steer6, Some("2001:db8:2:1::20".parse().expect("an address")));
    assert_eq!((desired.access_routes(), desired.internet_routes()), (64, 64));
    members("ipv6-cluster.toml", &desired, &["ipv6-node-1.toml", "ipv6-node-2.toml"]);
}

#[test]
fn single_node_with_ipv6_gives_no_warning() {
    let (config, warnings) = example("ipv6.toml");
    assert_eq!((config.ipv6.delegations.len(), warnings), (2, vec![]));
}

#[test]
fn physical_nics_give_homes_a_full_line_and_no_warning() {
    let (config, warnings) = example("nic-vf.toml");
    assert_eq!(warnings, []);
    assert_eq!(config.shards.iter().map(|shard| shard.worker).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(config.workers[1].access.gateways.len(), 2);
}

#[test]
fn pcap_is_plain() {
    let (config, warnings) = example("pcap.toml");
    assert_eq!((config.access.mode, warnings), (AccessSetting::Plain, vec![]));
}

#[test]
fn homes_with_tunnels_over_ipv6_may_share_a_shard_with_others() {
    let (config, warnings) = example("ipv6-tunnels.toml");
    assert!(warnings.is_empty(), "{warnings:#?}");
    assert!(config.shards[0].endpoint.is_some() && config.shards[0].endpoint6.is_some());
}
