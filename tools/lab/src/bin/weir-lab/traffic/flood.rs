//! `weir-lab traffic flood`: one flood, and what came back.

use std::time::Duration;

use anyhow::{Context, ensure};
use weir_traffic::attack::Attack;
use weir_traffic::generator::{AttackLoad, Flood, FloodPlan, Load};
use weir_traffic::ledger::Account;
use weir_traffic::run::{Event, Task};

use super::{TrafficArgs, percent, rate, seconds};

/// Flood a device through two ports and say what came back: right, wrong, lost.
///
/// Plays the homes behind the gateway of the access side and the hosts behind the gateway of the
/// internet side. First every flow is opened from its home, and what comes out tells its public
/// endpoint; then both directions are flooded, or loaded at a rate, which also measures latency.
/// The device must serve the homes 10.128.0.0/9; in gre mode through the tunnel endpoints
/// 10.64.0.1, 10.64.0.2, ... (--subscribers-per-shard homes each, from --first-shard on). With
/// tunnels over IPv6, home 10.128.0.5 is 3fff:0:a80:5::1, and 10.64.0.1 is 3fff:0:a40:1::1. It is
/// waited for two minutes, ten seconds with --pass-through.
///
///   weir-lab traffic flood --access 0000:01:00.0 --internet 0000:02:00.0 --flows 100000
///   weir-lab traffic flood ... --rate 5e6 --size imix
///   weir-lab traffic flood ... --new-share 10 --new-flows 1000000
///   weir-lab traffic flood ... --rate 1e6 --attack syn --attack-rate 3e6
///   weir-lab traffic flood ... --access-mode gre-over-ipv6
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    traffic: TrafficArgs,

    /// Number of flows established before the flood.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    flows: u32,

    /// Packets per second of both directions together [default: as many as the ports take].
    #[arg(long, value_name = "PPS", value_parser = rate)]
    rate: Option<f64>,

    /// Share of the upstream packets that open a flow never seen before, until --new-flows are used
    /// up.
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = percent, requires = "new_flows")]
    new_share: f64,

    /// Number of flows to open during the flood.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "new_share")]
    new_flows: u32,

    /// Flows opened during the flood belong to the homes that have flows before it, not to further
    /// ones.
    #[arg(long, requires = "new_flows")]
    new_in_known_homes: bool,

    /// Send beside the flows what an attacker sends, from a home or a station of its own: harmless,
    /// syn, remotes, fragments, ttl, forged, arp, hello or garbage.
    #[arg(long, value_name = "KIND", requires = "rate", conflicts_with = "pass_through")]
    attack: Option<Attack>,

    /// Packets per second of the attacker [default: as many as the ports take].
    #[arg(long, value_name = "PPS", value_parser = rate, requires = "attack")]
    attack_rate: Option<f64>,

    /// Seconds for which flows are tried again that the device refuses before the flood: it may
    /// have limits.
    #[arg(long, value_name = "S", default_value = "0", value_parser = seconds)]
    learn_patience: Duration,

    /// Seconds of the flood that are measured.
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    seconds: Duration,

    /// Seconds of flood before that.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    warm_up: Duration,

    /// Let the flood before that go on until each flow has been sent an answer.
    #[arg(long)]
    settle: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    ensure!(!args.seconds.is_zero(), "--seconds 0 measures nothing");
    let mut scenario = args.traffic.scenario(args.flows, args.new_flows)?;
    if args.new_in_known_homes {
        scenario = scenario.with_new_flows_in_known_homes()?;
    }
    let attack = match args.attack {
        None => None,
        Some(attack) => {
            let home = scenario.spare_home().context(
                "the shards have no home left for the attacker: another number of --flows is needed",
            )?;
            Some(AttackLoad { attack, rate: args.attack_rate, home })
        }
    };
    let plan = FloodPlan { warm_up: args.warm_up, measured: args.seconds, settles: args.settle };
    let (up_share, new_share) = (args.traffic.up_share, args.new_share);
    let load = Load { rate: args.rate, up_share, new_share, attack };
    args.traffic.run(scenario, Task::Flood(plan, load), args.learn_patience, |event| match event {
        Event::Finished(flood) => Some(table(flood)),
        _ => None,
    })
}

fn table(flood: &Flood) -> String {
    let line = |name, account: &Account, right_in_window: u64| {
        format!(
            "{name:<11} {:>8.2} {:>12} {:>12} {:>10} {:>13} {:>12} {:>10}\n",
            right_in_window as f64 / flood.seconds / 1e6,
            account.sent,
            account.right,
            account.lost(),
            account.wrong_address,
            account.bad_checksum,
            account.duplicate,
        )
    };
    let mut text = format!(
        "{:<11} {:>8} {:>12} {:>12} {:>10} {:>13} {:>12} {:>10}\n",
        "", "Mpps", "sent", "right", "lost", "wrong address", "bad checksum", "duplicate"
    );
    text.push_str(&line("upstream", &flood.upstream, flood.right_upstream));
    text.push_str(&line("downstream", &flood.downstream, flood.right_downstream));
    text.push_str(&format!(
        "both        {:>8.2} Mpps right, {} foreign frames\n",
        flood.rate_mpps(),
        flood.foreign
    ));
    if let Some(offered) = flood.offered_pps {
        text.push_str(&format!("offered     {:>8.2} Mpps\n", offered / 1e6));
    }
    if flood.opened > 0 {
        let rate = flood.opened_per_second / 1e6;
        text.push_str(&format!("opened      {rate:>8.2} M flows/s, {} flows\n", flood.opened));
    }
    if let Some(attack) = flood.attack {
        text.push_str(&format!(
            "attack      {:>8.2} Mpps, {} packets; {} of {} new flows of the others did not come through\n",
            attack.sent_per_second / 1e6,
            attack.sent,
            attack.refused,
            attack.opening,
        ));
    }
    if let Some(latency) = flood.latency {
        text.push_str(&format!(
            "latency     min {:.1} us, median {:.1}, 90 % {:.1}, 99 % {:.1}, 99.9 % {:.1}, max {:.1}\n",
            latency.min_us,
            latency.p50_us,
            latency.p90_us,
            latency.p99_us,
            latency.p99_9_us,
            latency.max_us,
        ));
    }
    text
}
