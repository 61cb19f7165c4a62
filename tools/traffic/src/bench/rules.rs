//! The rules that weir has beside a load: an ISP's mix, of which none fits the load's flows. Pure.

use std::fmt::Write;
use std::net::Ipv4Addr;

use serde::Serialize;

use crate::scenario::Scenario;

/// Of so many rules one is about a port alone, these are about prefixes of homes, and the others
/// about prefixes of remotes.
const MIX: u32 = 100;
const OF_HOMES: u32 = 29;
/// Homes and remotes that the load has not: 10.192.0.0/10, 64.0.0.0/5.
const HOMES: u32 = 0x0ac0_0000;
const HOMES_BITS: u32 = 22;
const REMOTES: u32 = 0x4000_0000;
const REMOTES_BITS: u32 = 27;
/// The first port of the rules about ports; all of them are about TCP, which the load is not.
const PORT: u32 = 1000;

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
            let fits = match number % MIX {
                0 => format!("protocol = \"tcp\"\nremote_port = {}", PORT + number / MIX),
                1..=OF_HOMES => format!("subscribers = \"{}\"", prefix(number, HOMES, HOMES_BITS)),
                _ => format!("remote = \"{}\"", prefix(number, REMOTES, REMOTES_BITS)),
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

/// Returns a prefix of 24 to 32 bits among the last `bits` bits of addresses.
fn prefix(number: u32, first: u32, bits: u32) -> String {
    let length = 24 + number % 9;
    // An odd factor spreads neighbouring numbers.
    let within = number.wrapping_mul(2_654_435_761) >> (32 - bits);
    let address = Ipv4Addr::from_bits((first | within) & (u32::MAX << (32 - length)));
    format!("{address}/{length}")
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
