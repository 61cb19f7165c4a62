//! What the values must be together: the checks that need more than one key.

mod addresses;
mod cores;
mod devices;
mod flows;
mod interfaces;
mod mtu;
mod overlaps;
mod pools;
mod quota;
mod shards;
mod timeouts;

use crate::findings::Findings;
use crate::types::{AccessMode, Config};

/// Checks a configuration whose single values have been read. Values with an error are left out.
pub(crate) fn config(config: &Config, findings: &mut Findings<'_>) {
    cores::check(config, findings);
    devices::check(config, findings);
    interfaces::check(config, findings);
    addresses::check(config, findings);
    shards::check(config, findings);
    overlaps::check(config, findings);
    if config.nat.enabled {
        let quota_fits = quota::check(&config.nat, findings);
        pools::check(config, quota_fits, findings);
    }
    flows::check(&config.nat, findings);
    mtu::check(config, findings);
    timeouts::check(&config.timeouts, findings);
}

/// Both sides of every worker, with their key paths.
fn interfaces(config: &Config) -> impl Iterator<Item = (String, &crate::types::Interface)> {
    config.workers.iter().enumerate().flat_map(|(index, worker)| {
        [
            (format!("worker[{index}].access"), &worker.access),
            (format!("worker[{index}].internet"), &worker.internet),
        ]
    })
}

fn mode_name(mode: AccessMode) -> &'static str {
    match mode {
        AccessMode::Gre => "gre",
        AccessMode::Plain => "plain",
    }
}

/// Reports each value that an earlier key already has. `named` gives the values to compare with the keys they stand at.
fn refuse_repeats<T: Ord + std::fmt::Display>(
    named: impl IntoIterator<Item = (String, T)>,
    what: &str,
    findings: &mut Findings<'_>,
) {
    let mut seen: std::collections::BTreeMap<T, String> = std::collections::BTreeMap::new();
    for (key, value) in named {
        if !findings.is_good(&key) {
            continue;
        }
        match seen.get(&value) {
            Some(first) => {
                let message = format!("{what} {value} is already at {first}");
                findings.error(&key, message, "each may be used once");
            }
            None => {
                seen.insert(value, key);
            }
        }
    }
}
