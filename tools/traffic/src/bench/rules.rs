//! The rules that weir has beside a load: an ISP's mix, of which none fits the load's flows. Pure.

use std::fmt::Write;

use serde::Serialize;

use crate::rule_mix::{MixedRule, mixed_rule};
use crate::scenario::Scenario;

/// The rules beside a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct LoadRules {
    pub(super) count: u32,
    /// Whether one more refuses the flows that the flood opens: those of all homes but the first
    /// shard's, which has the homes of the flows that are open before.
    pub(super) refuses_new: bool,
}

impl LoadRules {
    /// Returns the rules as text of weir's configuration.
    pub(super) fn text(&self, scenario: &Scenario) -> String {
        let mut text = String::new();
        for number in 0..self.count {
            let fits = match mixed_rule(number) {
                MixedRule::TcpPort(port) => format!("protocol = \"tcp\"\nremote_port = {port}"),
                MixedRule::Homes(net) => format!("subscribers = \"{net}\""),
                MixedRule::Remotes(net) => format!("remote = \"{net}\""),
            };
            let _ = write!(text, "\n[[rule]]\nname = \"r{number}\"\n{fits}\naction = \"drop\"\n");
        }
        if self.refuses_new {
            let homes = (1..scenario.shards()).map(|shard| {
                let (homes, length) = scenario.source_prefix(shard);
                format!("\"{homes}/{length}\"")
            });
            let homes = homes.collect::<Vec<_>>().join(", ");
            let _ = write!(
                text,
                "\n[[rule]]\nname = \"new\"\nsubscribers = [{homes}]\naction = \"drop\"\n"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::load::Load;

    #[test]
    fn rules_are_as_many_as_wanted_and_the_last_is_about_further_homes() {
        let load = Load { flows: 16_384, ..Load::opening(Duration::from_secs(1)) };
        let scenario = load.scenario(0).unwrap();
        let text = LoadRules { count: 1000, refuses_new: true }.text(&scenario);
        assert_eq!(text.matches("[[rule]]").count(), 1001);
        assert_eq!(text.matches("remote_port").count(), 10);
        assert_eq!(text.matches("subscribers").count(), 291);
        let last = text.lines().rev().nth(1).unwrap();
        assert!(last.starts_with("subscribers = [\"10.128.1.0/24\", \"10.128.2.0/24\""), "{last}");
        assert_eq!(LoadRules::default().text(&scenario), "");
    }
}
