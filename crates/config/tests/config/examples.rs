//! The files in `examples/` are valid.

use std::path::Path;

use weir_config::{AccessMode, Config};

fn example(name: &str) -> (Config, Vec<weir_config::Diagnostic>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let text = std::fs::read_to_string(&path).expect("the example is there");
    weir_config::parse(&text, name).unwrap_or_else(|errors| {
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"))
    })
}

#[test]
fn every_example_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(folder).expect("examples/ is there");
    let names = files.map(|file| file.expect("readable").file_name().into_string().expect("UTF-8"));
    let names: Vec<_> = names.filter(|name| name.ends_with(".toml")).collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        let (config, _) = example(&name);
        let flows = config.workers.len() as u64 * u64::from(config.nat.flows_max);
        assert!(flows <= 10_000_000, "{name} runs on a small machine");
    }
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
    assert_eq!((config.access.mode, warnings), (AccessMode::Plain, vec![]));
}
