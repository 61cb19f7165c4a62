//! Turns the configuration into a generation of one worker's live settings: the only place that
//! builds one.

use weir_config::{Config, MssClampSetting};
use weir_engine::{
    FragmentLimits, GroupLimits, LiveEngineSettings, LiveSettings, MssClamp, ResourceLimits,
};
use weir_nat::{ActiveRules, GROUPS, HomePrefixes, LiveNatSettings, NatError, home_addresses};

use crate::flow_settings::{FlowSettings, out_of_service};
use crate::nat_setup::{ClusterRoom, nat_config};

/// Returns generation `number` for worker `worker`. `flows` is shared with the other workers of the
/// node.
///
/// # Errors
/// When the settings cannot work with the worker's room.
pub fn live_settings(
    config: &Config,
    worker: usize,
    room: Option<&ClusterRoom>,
    number: u64,
    flows: &FlowSettings,
) -> Result<LiveSettings, NatError> {
    Ok(LiveSettings {
        number,
        engine: live_engine_settings(config),
        nat: live_nat_settings(config, worker, room)?,
        homes: home_addresses(&config.access.subscribers),
        homes6: HomePrefixes::new(&config.access.subscribers6),
        rules: Box::new(ActiveRules::new(flows.rules.clone())),
        statics: flows.statics.clone(),
        delegations: flows.delegations.clone(),
        out_of_service: out_of_service(config),
    })
}

/// Returns the NAT's part of a generation.
///
/// # Errors
/// As [`live_settings`].
pub fn live_nat_settings(
    config: &Config,
    worker: usize,
    room: Option<&ClusterRoom>,
) -> Result<LiveNatSettings, NatError> {
    // The seed is for the tables.
    LiveNatSettings::of(&nat_config(config, worker, room, [0; 4]))
}

/// Returns the part of a generation that the steps around the NAT use.
pub fn live_engine_settings(config: &Config) -> LiveEngineSettings {
    let FragmentLimits { timeout_ms, percent, .. } = fragment_limits(config);
    LiveEngineSettings {
        mss_clamp: match config.nat.mss_clamp {
            MssClampSetting::Off => MssClamp::Off,
            MssClampSetting::Auto => MssClamp::Auto,
            MssClampSetting::Max(bytes) => MssClamp::Max(bytes),
        },
        forward_source_routes: config.nat.forward_source_routes,
        fragments_timeout_ms: timeout_ms,
        fragments_percent: percent,
        limits: ResourceLimits {
            icmp_errors_per_sec: config.limits.icmp_errors_per_sec,
            icmp_errors_to_homes: config.limits.icmp_errors_to_homes,
            icmp_errors_to_internet: config.limits.icmp_errors_to_internet,
            worker_icmp_errors_per_sec: config.limits.worker_icmp_errors_per_sec,
            redirects_per_sec: config.limits.redirects_per_sec,
            slow_path_packets_per_sec: config.limits.slow_path_packets_per_sec,
            groups: group_limits(config),
        },
    }
}

/// Returns the limits of each group, by the numbers that the rules have for them.
fn group_limits(config: &Config) -> [GroupLimits; GROUPS as usize] {
    let mut limits = [GroupLimits::default(); GROUPS as usize];
    for (limits, group) in limits.iter_mut().skip(1).zip(&config.policy.groups) {
        *limits = GroupLimits {
            icmp_errors_per_sec: group.limits.icmp_errors_per_sec,
            slow_path_packets_per_sec: group.limits.slow_path_packets_per_sec,
            fragments_percent: group.limits.fragments_percent,
        };
    }
    limits
}

/// Returns the limits of inner fragments, with the sizes of their tables.
pub fn fragment_limits(config: &Config) -> FragmentLimits {
    FragmentLimits {
        datagrams_max: config.fragments.datagrams_max as usize,
        held_max: config.fragments.held_max as usize,
        held_per_datagram_max: config.fragments.held_per_datagram_max as usize,
        timeout_ms: u64::from(config.fragments.timeout_sec) * 1000,
        percent: config.limits.fragments_percent,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_etcd::{Key, MirrorEvent, Revision};

    use super::*;
    use crate::nat_setup::tests::config;
    use crate::recording::tests::start;
    use crate::{Core, CoreAction, CoreEvent};

    #[test]
    fn generation_has_the_values_of_the_file() {
        let text = "[nat]\nmss_clamp = 1300\nforward_source_routes = true\n[fragments]\ntimeout_sec = 7\n\
                    [limits]\nfragments_percent = 9\nredirects_per_sec = 77\n";
        let live = live_settings(&config(text), 0, None, 4, &FlowSettings::none()).unwrap();
        let engine = live.engine;
        assert_eq!((live.number, engine.mss_clamp), (4, MssClamp::Max(1300)));
        assert!(engine.forward_source_routes);
        assert_eq!((engine.fragments_timeout_ms, engine.fragments_percent), (7000, 9));
        assert_eq!(engine.limits.redirects_per_sec, 77);
        assert!(live.homes.contains(0x0ac8_0001) && !live.homes.contains(0x0ac9_0001));
        assert_eq!(live.nat, live_nat_settings(&config(text), 0, None).unwrap());
        assert_ne!(
            live.nat,
            live_nat_settings(&config("[nat]\nquarantine_sec = 9\n"), 0, None).unwrap()
        );
    }

    #[test]
    fn applied_settings_are_taken_with_their_revision_and_unreadable_ones_are_not() {
        let mut desired = start().desired;
        desired.nat.quarantine_sec += 1;
        let mut core = Core::new(Duration::ZERO, start());
        let mut taken = |value: Vec<u8>, revision| {
            let (key, mod_revision) = (Key::Desired, Revision(revision));
            core.step(
                Duration::ZERO,
                CoreEvent::Mirror(MirrorEvent::Put { key, value, mod_revision }),
            );
            core.turn(Duration::ZERO);
            let actions = std::iter::from_fn(|| core.next_action());
            let settings = actions.filter_map(|action| match action {
                CoreAction::TakeSettings { number, desired } => Some((number, *desired)),
                _ => None,
            });
            settings.collect::<Vec<_>>()
        };
        let value = serde_json::to_vec(&desired).unwrap();
        assert_eq!(taken(value, 9), [(9, desired)]);
        assert_eq!(taken(b"{}".to_vec(), 10), []);
    }
}
