//! `weir-lab traffic`: the generator and the benchmark.

mod bench;
mod flood;
mod linux;
mod search;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::bail;
use serde::Serialize;
use weir_traffic::families::Families;
use weir_traffic::gateway::Gateway6;
use weir_traffic::generator::Size;
use weir_traffic::run::{self as generator, Event, RunPlan, SidePlan, Task};
use weir_traffic::scenario::{Access, Protocol, SUBSCRIBERS_PER_SHARD, Scenario};
use weir_traffic::table::Device;

/// Seed of the order in which flows are flooded: an arbitrary but constant number, so that rounds
/// are alike.
const SEED: u64 = 1;

/// Generate traffic and measure a NAT with it.
///
///   weir-lab traffic bench --short
///   weir-lab traffic flood --access net_memif0,socket=a.sock --internet net_memif1,socket=b.sock
///   weir-lab traffic search --metric throughput --access 0000:01:00.0 --internet 0000:02:00.0
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: TrafficCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TrafficCommand {
    Bench(bench::Bench),
    Flood(flood::Args),
    Linux(linux::Args),
    Search(search::Args),
}

/// What flood and search share: the ports, the device, and who talks to whom in what packets.
#[derive(Debug, clap::Args)]
struct TrafficArgs {
    /// Port of the access side: DPDK device arguments or a PCI address.
    #[arg(long, value_name = "DEVICE")]
    access: String,

    /// Port of the internet side.
    #[arg(long, value_name = "DEVICE")]
    internet: String,

    /// The device's address on the access side.
    #[arg(long, value_name = "A", default_value = "10.1.0.1")]
    access_address: Ipv4Addr,

    /// The gateway played on the access side.
    #[arg(long, value_name = "A", default_value = "10.1.0.2")]
    access_gateway: Ipv4Addr,

    /// The device's address on the internet side.
    #[arg(long, value_name = "A", default_value = "10.2.0.1")]
    internet_address: Ipv4Addr,

    /// The gateway played on the internet side.
    #[arg(long, value_name = "A", default_value = "10.2.0.2")]
    internet_gateway: Ipv4Addr,

    /// The same addresses of IPv6: on the internet side where the flows have it, on the access side
    /// where they have it with plain access, and where homes have tunnels over IPv6.
    #[arg(long, value_name = "A", default_value = "fd00:1::1")]
    access_address6: Ipv6Addr,

    #[arg(long, value_name = "A", default_value = "fd00:1::2")]
    access_gateway6: Ipv6Addr,

    #[arg(long, value_name = "A", default_value = "fd00:2::1")]
    internet_address6: Ipv6Addr,

    #[arg(long, value_name = "A", default_value = "fd00:2::2")]
    internet_gateway6: Ipv6Addr,

    /// How homes reach the device: through a GRE tunnel each, over IPv4 or over IPv6, or by plain
    /// IP.
    #[arg(long, value_name = "MODE", default_value = "gre")]
    access_mode: TrafficAccess,

    /// IP version of the flows, within the tunnel if there is one: ipv4, ipv6, or both, half of the
    /// flows each.
    #[arg(long, value_name = "FAMILIES", default_value = "ipv4")]
    families: FamiliesName,

    /// Flows of each home.
    #[arg(long, value_name = "N", default_value_t = 64)]
    flows_per_subscriber: u32,

    /// Homes of each shard.
    #[arg(long, value_name = "N", default_value_t = SUBSCRIBERS_PER_SHARD)]
    subscribers_per_shard: u32,

    /// Where in the address plan the shards begin: generators beside each other have no home,
    /// tunnel endpoint or public prefix in common when each begins behind the shards of the one
    /// before.
    #[arg(long, value_name = "N", default_value_t = 0)]
    first_shard: u32,

    /// Size of the plain Ethernet frame with its 4 bytes of FCS, 64 to 1518, or `imix`: 64, 594 and
    /// 1518 as 7:4:1. Through a tunnel a packet has 24 bytes more, over IPv6 44, and one of IPv6
    /// has 20 more, up to 1518.
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = size)]
    size: Size,

    /// Share of the packets that go upstream.
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = percent)]
    up_share: f64,

    /// What the flows are. TCP flows are opened by a handshake; their packets need 76 bytes at
    /// least.
    #[arg(long, value_name = "PROTOCOL", default_value = "udp")]
    protocol: ProtocolName,

    /// Core of the generator.
    #[arg(long, default_value_t = 0)]
    core: usize,

    /// The device hands packets through unchanged, as testpmd does.
    #[arg(long)]
    pass_through: bool,

    /// The device may give flows to different remote hosts the same public endpoint (address- and
    /// port-dependent mapping, RFC 4787 section 4.1).
    #[arg(long, conflicts_with = "pass_through")]
    translates_per_remote: bool,

    /// One JSON object per event, the result last; the ports stay up until standard input ends.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TrafficAccess {
    Gre,
    GreOverIpv6,
    Plain,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FamiliesName {
    Ipv4,
    Ipv6,
    Both,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ProtocolName {
    Udp,
    Tcp,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        TrafficCommand::Linux(linux) => linux::run(&linux),
        TrafficCommand::Bench(bench) => bench::run(&bench),
        TrafficCommand::Flood(flood) => flood::run(flood),
        TrafficCommand::Search(search) => search::run(search),
    }
}

impl TrafficArgs {
    /// Returns a scenario with `flows` established before the flood, and `new_flows` opened later.
    fn scenario(&self, flows: u32, new_flows: u32) -> anyhow::Result<Scenario> {
        let access = match self.access_mode {
            TrafficAccess::Gre => Access::Gre,
            TrafficAccess::GreOverIpv6 => Access::GreOverIpv6,
            TrafficAccess::Plain => Access::Plain,
        };
        let families = match self.families {
            FamiliesName::Ipv4 => Families::Ipv4,
            FamiliesName::Ipv6 => Families::Ipv6,
            FamiliesName::Both => Families::Both,
        };
        let scenario = Scenario::new(flows, self.flows_per_subscriber, SEED)?
            .with_subscribers_per_shard(self.subscribers_per_shard)?
            .with_first_shard(self.first_shard)?
            .with_new_flows(new_flows)?
            .with_access(access)?
            .with_families(families)?;
        Ok(scenario)
    }

    /// Runs the task and shows its events: as JSON, or as `text` says.
    fn run(
        self,
        scenario: Scenario,
        task: Task,
        learn_patience: Duration,
        text: impl Fn(&Event) -> Option<String>,
    ) -> anyhow::Result<()> {
        let side = |device, gateway: Ipv4Addr, address: Ipv4Addr, gateway6| SidePlan {
            device,
            gateway: gateway.to_bits(),
            device_address: address.to_bits(),
            gateway6,
        };
        let internet6 = scenario.families().has_ipv6();
        let access6 = scenario.access().link_has_ipv6(scenario.families());
        let gateway6 = |is_there: bool, gateway: Ipv6Addr, address: Ipv6Addr| {
            is_there.then(|| Gateway6::new(gateway.to_bits(), address.to_bits()))
        };
        let access6 = gateway6(access6, self.access_gateway6, self.access_address6);
        let internet6 = gateway6(internet6, self.internet_gateway6, self.internet_address6);
        let plan = RunPlan {
            access: side(self.access, self.access_gateway, self.access_address, access6),
            internet: side(self.internet, self.internet_gateway, self.internet_address, internet6),
            scenario,
            device: match (self.pass_through, self.translates_per_remote) {
                (true, _) => Device::PassesThrough,
                (false, true) => Device::TranslatesPerRemote,
                (false, false) => Device::Translates,
            },
            protocol: match self.protocol {
                ProtocolName::Udp => Protocol::Udp,
                ProtocolName::Tcp => Protocol::Tcp,
            },
            size: self.size,
            task,
            learn_patience,
            core: self.core,
            file_prefix: format!("weir-traffic-{}", std::process::id()),
        };
        let mut shown = Ok(());
        generator::run(&plan, |event| {
            if shown.is_ok() {
                shown = if self.json { show_json(&event) } else { show_text(&event, &text) };
            }
        })?;
        Ok(shown?)
    }
}

fn show_json(event: &Event) -> io::Result<()> {
    print_json(event)?;
    if matches!(event, Event::Finished(_) | Event::Found(_)) {
        io::stdin().lock().read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, value)?;
    writeln!(output)?;
    output.flush()
}

/// Shows events that flood and search have in common; `special` formats the others.
fn show_text(event: &Event, special: impl Fn(&Event) -> Option<String>) -> io::Result<()> {
    let text = match event {
        Event::Started { huge_pages: true } => "ports up, huge pages\n".into(),
        Event::Started { huge_pages: false } => "ports up, no huge pages\n".into(),
        Event::Learned { sent, wrong, rate, .. } => {
            format!(
                "all flows established, {sent} packets sent, {wrong} wrong, {:.2} M flows/s\n",
                rate / 1e6
            )
        }
        Event::Progress(progress) => progress_line(progress),
        other => special(other).unwrap_or_default(),
    };
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

fn progress_line(progress: &weir_traffic::generator::Progress) -> String {
    use weir_traffic::generator::Progress;
    match progress {
        Progress::Learn { learned, of } => format!("{learned} of {of} flows established\n"),
        Progress::Settled => "all flows were sent an answer\n".into(),
        Progress::Flood { seconds, of_seconds, rate_mpps, lost, wrong } => format!(
            "{seconds:5.0} of {of_seconds:.0} s  {rate_mpps:6.2} Mpps right, {lost} lost or under way, {wrong} wrong\n"
        ),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("not within a day".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses a percentage as a share from 0 to 1.
fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=100.0).contains(&percent) {
        return Err("not between 0 and 100".into());
    }
    Ok(percent / 100.0)
}

/// Parses a rate per second.
fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(1.0..=1e9).contains(&rate) {
        return Err("not between 1 and 1,000,000,000 per second".into());
    }
    Ok(rate)
}

fn size(text: &str) -> Result<Size, String> {
    if text == "imix" {
        return Ok(Size::Imix);
    }
    match text.parse() {
        Ok(size @ 64..=1518) => Ok(Size::Fixed(size)),
        _ => Err("neither a size of 64 to 1518 bytes nor `imix`".into()),
    }
}

/// Refuses a number of flows that no table of this program holds.
fn checked_flows(flows: u64) -> anyhow::Result<u32> {
    match u32::try_from(flows) {
        Ok(flows) => Ok(flows),
        Err(_) => bail!("{flows} flows are more than the generator can tell apart"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_checked_where_they_are_typed() {
        assert_eq!(size("imix"), Ok(Size::Imix));
        assert_eq!(size("1518"), Ok(Size::Fixed(1518)));
        assert!(size("63").is_err() && size("1519").is_err() && size("big").is_err());
        assert_eq!(percent("25"), Ok(0.25));
        assert!(percent("101").is_err() && percent("NaN").is_err());
        assert_eq!(rate("1e6"), Ok(1e6));
        assert!(rate("0").is_err() && rate("-1").is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("86401").is_err());
    }
}
