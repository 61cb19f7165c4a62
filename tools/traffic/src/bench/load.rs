//! The load that the generator offers in a round, and the weir configuration for it. Pure.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::rules::LoadRules;
use crate::attack::Attack;
use crate::families::Families;
use crate::scenario;

/// Flows of a home unless an experiment varies them: a port block of 256 holds twice that many
/// random ports.
pub(super) const FLOWS_PER_SUBSCRIBER: u32 = 64;
/// weir's default size of a shard.
pub(super) const SUBSCRIBERS_PER_SHARD: u32 = 256;
/// Frame bytes with FCS: the smallest of RFC 2544.
pub(super) const SMALLEST: Size = Size::Bytes(64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Access {
    Gre,
    GreOverIpv6,
    Plain,
}

impl Access {
    /// Returns the same mode of the generator.
    pub(super) fn of_scenario(self) -> scenario::Access {
        match self {
            Access::Gre => scenario::Access::Gre,
            Access::GreOverIpv6 => scenario::Access::GreOverIpv6,
            Access::Plain => scenario::Access::Plain,
        }
    }
}

/// Size of the plain Ethernet frame of IPv4, FCS included, as in RFC 2544; a tunnel adds 24 bytes,
/// over IPv6 44, and IPv6 inside 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Size {
    Bytes(u32),
    /// 7 of 64, 4 of 594, 1 of 1518 bytes.
    Imix,
}

/// The rate at which packets are offered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Pace {
    /// As fast as the ports accept them.
    Flood,
    /// Packets per second, both directions together.
    Rate(f64),
}

/// The packets that an attacker sends beside the flows of other homes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Attacked {
    pub(super) attack: Attack,
    /// Packets per second. None: as many as the ports accept.
    pub(super) pps: Option<f64>,
}

/// Packets that all homes beside an attacker send and receive in a second, and flows that they
/// open: a small part of the capacity of a worker.
pub(super) const VICTIMS_PPS: f64 = 1e6;
const VICTIMS_NEW_PER_SEC: f64 = 1e3;
/// `flows_max` beside an attacker: at least the value that the default `[limits]` are made for,
/// whatever the homes need.
pub(super) const ATTACKED_FLOWS_MAX: u32 = 1 << 20;
/// Time limit of the learning phase, seconds: a shard admits a limited number of new homes a
/// second, until all are admitted. Also, with few flows all may have been tried before a busy
/// machine lets weir receive its first packet.
const LEARN_PATIENCE_SEC: u32 = 60;

/// Percentage of packets upstream: half up, half down.
const UP_SHARE: f64 = 50.0;
/// More new flows in a second than a worker opens beside other work.
pub(super) const OPENS_PER_SEC_MAX: f64 = 5e6;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Load {
    pub(super) flows: u32,
    pub(super) flows_per_subscriber: u32,
    pub(super) subscribers_per_shard: u32,
    pub(super) access: Access,
    pub(super) families: Families,
    pub(super) size: Size,
    /// Percentage of upstream packets that open a flow never seen before.
    pub(super) new_share: f64,
    /// Number of flows that may be opened that way.
    pub(super) new_flows: u32,
    /// Whether that number suffices for the whole flood, however long it is.
    pub(super) new_flows_last: bool,
    /// More of them in a second than the device opens.
    pub(super) opens_per_sec_max: f64,
    /// Percentage of the packets that go upstream.
    pub(super) up_share: f64,
    pub(super) pace: Pace,
    pub(super) warm_up: Duration,
    /// Whether the warm-up goes on until each flow has been sent an answer.
    pub(super) settles: bool,
    pub(super) measured: Duration,
    /// Workers of weir, each with its own generator and pair of memif ports.
    pub(super) workers: usize,
    /// Whether the device shares its packet memory with the generator. Not possible with several
    /// workers: DPDK's memif driver closes the file of that memory once a port has connected, and
    /// later ports offer a file that no longer exists.
    pub(super) is_zero_copy: bool,
    /// The attacker. With one, weir has its default `[limits]`.
    pub(super) attacked: Option<Attacked>,
    pub(super) rules: LoadRules,
}

impl Load {
    /// Returns a flood of `flows` established flows through GRE, smallest packets, one worker.
    pub(super) fn new(flows: u32, measured: Duration) -> Self {
        Load {
            flows,
            flows_per_subscriber: FLOWS_PER_SUBSCRIBER,
            subscribers_per_shard: SUBSCRIBERS_PER_SHARD,
            access: Access::Gre,
            families: Families::Ipv4,
            size: SMALLEST,
            new_share: 0.0,
            new_flows: 0,
            new_flows_last: false,
            opens_per_sec_max: OPENS_PER_SEC_MAX,
            up_share: UP_SHARE,
            pace: Pace::Flood,
            warm_up: Duration::from_millis(500),
            settles: false,
            measured,
            workers: 1,
            is_zero_copy: true,
            attacked: None,
            rules: LoadRules::default(),
        }
    }

    /// Returns a paced load of homes beside an attacker.
    pub(super) fn beside(attack: Attack, flows: u32, measured: Duration) -> Self {
        let load = Load {
            attacked: Some(Attacked { attack, pps: None }),
            new_share: 100.0 * VICTIMS_NEW_PER_SEC / (VICTIMS_PPS / 2.0),
            ..Load::new(flows, Duration::ZERO)
        };
        load.at(VICTIMS_PPS).lasting(measured)
    }

    /// Returns a load in which each packet goes up and opens a flow; few flows are open before.
    pub(super) fn opening(measured: Duration) -> Self {
        let load = Load {
            new_share: 100.0,
            new_flows_last: true,
            up_share: 100.0,
            warm_up: Duration::from_millis(200),
            ..Load::new(10_000, Duration::ZERO)
        };
        load.lasting(measured)
    }

    /// Returns the same load with another measured time.
    pub(super) fn lasting(self, measured: Duration) -> Self {
        let opens_per_sec = match (self.attacked, self.pace) {
            // A paced load that makes up for a pause opens a few more.
            (Some(_), _) => 1.1 * VICTIMS_NEW_PER_SEC,
            (None, Pace::Rate(pps)) => 1.1 * pps * self.up_share / 100.0 * self.new_share / 100.0,
            (None, Pace::Flood) => self.opens_per_sec_max,
        };
        let new_flows = match self.attacked.is_some() || self.new_flows_last {
            true => ((self.warm_up + measured).as_secs_f64() * opens_per_sec) as u32,
            false => self.new_flows,
        };
        Load { measured, new_flows, ..self }
    }

    pub(super) fn at(self, pps: f64) -> Self {
        Load { pace: Pace::Rate(pps), ..self }.lasting(self.measured)
    }

    /// True if raw forwarding moves the same packets for both loads: then one raw round serves
    /// both.
    pub(super) fn has_raw_packets_of(&self, other: &Load) -> bool {
        let raw = |load: &Load| (load.flows, load.access, load.size, load.workers, load.measured);
        raw(self) == raw(other)
            && self.families == other.families
            && self.is_zero_copy == other.is_zero_copy
            && self.up_share == other.up_share
    }

    /// Returns the number of flows that weir holds at the end.
    pub(super) fn flows_at_end(&self) -> u32 {
        self.flows.saturating_add(self.new_flows)
    }

    /// Returns the number of homes of a shard: with plain access the IPv6 prefix of a home is one
    /// of its own.
    pub(super) fn homes_of_a_shard(&self) -> u32 {
        let is_two_homes = self.access == Access::Plain && self.families == Families::Both;
        self.subscribers_per_shard * if is_two_homes { 2 } else { 1 }
    }

    /// Whether a side of the device has IPv6: the one to the internet if the flows have it, the
    /// other if homes send it without tunnels or have tunnels over it.
    pub(super) fn has_ipv6(&self, side: &str) -> bool {
        match side {
            "internet" => self.families.has_ipv6(),
            _ => self.access.of_scenario().link_has_ipv6(self.families),
        }
    }

    #[cfg(test)]
    pub(super) fn subscribers(&self) -> u32 {
        self.flows.div_ceil(self.flows_per_subscriber)
    }

    /// Returns the number of shards; flows opened under load may belong to further homes.
    pub(super) fn shards(&self) -> u32 {
        let flows = if self.attacked.is_some() { self.flows } else { self.flows_at_end() };
        let homes = flows.div_ceil(self.flows_per_subscriber);
        homes.div_ceil(self.subscribers_per_shard)
    }

    /// Returns the arguments of `weir-lab traffic flood` that differ from its defaults, except the
    /// ports.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "--flows".to_owned(),
            self.flows.to_string(),
            "--flows-per-subscriber".to_owned(),
            self.flows_per_subscriber.to_string(),
            "--warm-up".to_owned(),
            self.warm_up.as_secs_f64().to_string(),
            "--seconds".to_owned(),
            self.measured.as_secs_f64().to_string(),
        ];
        if self.settles {
            arguments.push("--settle".to_owned());
        }
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        if self.subscribers_per_shard != SUBSCRIBERS_PER_SHARD {
            add("--subscribers-per-shard", self.subscribers_per_shard.to_string());
        }
        match self.access {
            Access::Gre => {}
            Access::GreOverIpv6 => add("--access-mode", "gre-over-ipv6".into()),
            Access::Plain => add("--access-mode", "plain".into()),
        }
        if self.families != Families::Ipv4 {
            add("--families", self.families.to_string());
        }
        if self.size != SMALLEST {
            add("--size", self.size.to_string());
        }
        if self.new_share > 0.0 {
            add("--new-share", self.new_share.to_string());
            add("--new-flows", self.new_flows.to_string());
        }
        if self.up_share != UP_SHARE {
            add("--up-share", self.up_share.to_string());
        }
        if let Pace::Rate(pps) = self.pace {
            add("--rate", format!("{pps:.0}"));
        }
        if self.attacked.is_some() || self.new_flows_last {
            add("--learn-patience", LEARN_PATIENCE_SEC.to_string());
        }
        if let Some(Attacked { attack, pps }) = self.attacked {
            add("--attack", attack.to_string());
            if let Some(pps) = pps {
                add("--attack-rate", format!("{pps:.0}"));
            }
            arguments.push("--new-in-known-homes".into());
        }
        arguments
    }
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(bytes) => write!(out, "{bytes}"),
            Size::Imix => out.write_str("imix"),
        }
    }
}

/// Returns a number as people write it: `1 k`, `16 M`, `1,500`.
pub(super) fn count(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ if number.is_multiple_of(1_000_000) => format!("{} M", number / 1_000_000),
        _ if number.is_multiple_of(1_000) && number < 1_000_000 => format!("{} k", number / 1_000),
        _ => {
            let digits = number.to_string();
            let groups: Vec<&str> = digits
                .as_bytes()
                .rchunks(3)
                .rev()
                .filter_map(|g| std::str::from_utf8(g).ok())
                .collect();
            groups.join(",")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn arguments_are_those_that_differ_from_the_defaults() {
        let plain = Load { access: Access::Plain, size: Size::Imix, ..Load::new(10, SECOND) };
        let arguments = plain.at(1e6).arguments().join(" ");
        assert_eq!(
            arguments,
            "--flows 10 --flows-per-subscriber 64 --warm-up 0.5 --seconds 1 --access-mode plain --size imix --rate 1000000"
        );
        assert!(!Load::new(10, SECOND).arguments().join(" ").contains("mode"));
        let over_ipv6 = Load { access: Access::GreOverIpv6, ..Load::new(10, SECOND) };
        assert!(over_ipv6.arguments().join(" ").ends_with("--access-mode gre-over-ipv6"));
    }

    #[test]
    fn homes_of_both_families_are_two_without_tunnels_and_have_ipv6_on_both_sides() {
        let gre = Load { families: Families::Both, ..Load::new(10, SECOND) };
        let plain = Load { access: Access::Plain, ..gre };
        assert_eq!((gre.homes_of_a_shard(), plain.homes_of_a_shard()), (256, 512));
        assert_eq!(["access", "internet"].map(|side| gre.has_ipv6(side)), [false, true]);
        assert_eq!(["access", "internet"].map(|side| plain.has_ipv6(side)), [true, true]);
        let over_ipv6 = Load { access: Access::GreOverIpv6, ..Load::new(10, SECOND) };
        assert_eq!(["access", "internet"].map(|side| over_ipv6.has_ipv6(side)), [true, false]);
        let settled = Load { settles: true, ..gre };
        let arguments = settled.arguments().join(" ");
        assert!(arguments.ends_with("--settle --families both"), "{arguments}");
    }

    #[test]
    fn homes_beside_an_attacker_open_flows_for_as_long_as_it_lasts() {
        let load = Load::beside(Attack::Syn, 64_000, SECOND);
        let arguments = load.arguments().join(" ");
        assert!(
            arguments.ends_with(
                "--new-share 0.2 --new-flows 1650 --rate 1000000 --learn-patience 60 --attack syn --new-in-known-homes"
            ),
            "{arguments}"
        );
        let minute = load.lasting(60 * SECOND);
        assert_eq!((minute.new_flows, minute.measured), (66_550, 60 * SECOND));
        assert_eq!((load.shards(), minute.shards()), (4, 4));
        assert_eq!(Load::new(10, SECOND).lasting(2 * SECOND).new_flows, 0);
    }

    #[test]
    fn flows_to_open_last_for_the_whole_flood_at_its_pace() {
        let load = Load::opening(SECOND);
        assert_eq!((load.new_flows, load.lasting(2 * SECOND).new_flows), (6_000_000, 11_000_000));
        let paced = load.at(1e6);
        assert_eq!((paced.new_flows, paced.lasting(2 * SECOND).new_flows), (1_320_000, 2_420_000));
        let arguments = paced.arguments().join(" ");
        assert!(
            arguments
                .ends_with("--new-share 100 --new-flows 1320000 --up-share 100 --rate 1000000 --learn-patience 60"),
            "{arguments}"
        );
        assert!(!load.has_raw_packets_of(&Load { up_share: UP_SHARE, ..load }));
    }

    #[test]
    fn new_flows_and_shards_do_not_change_raw_packets_but_sizes_do() {
        let load = Load::new(1000, SECOND);
        let opening = Load { new_share: 50.0, new_flows: 99, subscribers_per_shard: 16, ..load };
        assert!(load.has_raw_packets_of(&opening));
        assert!(!load.has_raw_packets_of(&Load { size: Size::Imix, ..load }));
        assert!(!load.has_raw_packets_of(&Load { is_zero_copy: false, ..load }));
        assert!(!load.has_raw_packets_of(&Load { families: Families::Both, ..load }));
        assert!(!load.has_raw_packets_of(&Load::new(1001, SECOND)));
    }

    #[test]
    fn sixteen_thousand_homes_in_a_thousand_shards() {
        let load = Load {
            flows_per_subscriber: 62,
            subscribers_per_shard: 16,
            ..Load::new(992_000, SECOND)
        };
        assert_eq!((load.subscribers(), load.shards()), (16_000, 1000));
    }

    #[test]
    fn numbers_are_short() {
        let texts = [999, 1_000, 64_000, 1_500, 16_000_000, 1_234_567].map(count);
        assert_eq!(texts, ["999", "1 k", "64 k", "1,500", "16 M", "1,234,567"]);
    }
}
