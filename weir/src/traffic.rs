//! `weir traffic`: the generator and the benchmark.

mod bench;

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

use weir_traffic::generator::{Flood, FloodPlan};
use weir_traffic::ledger::Account;
use weir_traffic::run::{self as generator, Event, RunPlan, SidePlan};
use weir_traffic::scenario::Scenario;
use weir_traffic::table::Device;

/// Draws the order in which flows are flooded: any number, but always the same one, so that rounds are alike.
const SEED: u64 = 1;
/// Generate traffic and measure a NAT with it.
///
///   weir traffic bench --short
///   weir traffic flood --access net_memif0,socket=/run/a.sock --internet net_memif1,socket=/run/b.sock
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Bench(bench::Bench),
    Flood(FloodArgs),
}

/// Flood a device through two ports and say what came back: right, wrong, lost.
///
/// Plays the homes behind the gateway of the access side and the hosts behind the gateway of the
/// internet side. First one packet of each flow goes up, and what comes out tells its public
/// endpoint; then both directions are flooded. The device must serve the homes 10.128.0.0/9 through
/// the tunnel endpoints 10.64.0.1, 10.64.0.2, ... (256 homes each), and run before this starts.
///
///   weir traffic flood --access 0000:01:00.0 --internet 0000:02:00.0 --flows 100000 --seconds 10
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct FloodArgs {
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

    /// Number of flows.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    flows: u32,

    /// Flows of each home.
    #[arg(long, value_name = "N", default_value_t = 64)]
    flows_per_subscriber: u32,

    /// Seconds of the flood that are measured.
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    seconds: Duration,

    /// Seconds of flood before that.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    warm_up: Duration,

    /// Core of the generator.
    #[arg(long, default_value_t = 0)]
    core: usize,

    /// The device hands packets through unchanged, as testpmd does.
    #[arg(long)]
    pass_through: bool,

    /// One JSON object per phase, the result last; the ports stay up until standard input ends.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Bench(bench) => bench::run(&bench),
        Command::Flood(flood) => run_flood(flood),
    }
}

fn run_flood(args: FloodArgs) -> anyhow::Result<()> {
    let side = |device, gateway: Ipv4Addr, address: Ipv4Addr| SidePlan {
        device,
        gateway: gateway.to_bits(),
        device_address: address.to_bits(),
    };
    let plan = RunPlan {
        access: side(args.access, args.access_gateway, args.access_address),
        internet: side(args.internet, args.internet_gateway, args.internet_address),
        scenario: Scenario::new(args.flows, args.flows_per_subscriber, SEED)?,
        device: if args.pass_through { Device::PassesThrough } else { Device::Translates },
        flood: FloodPlan { warm_up: args.warm_up, measured: args.seconds },
        core: args.core,
        file_prefix: format!("weir-traffic-{}", std::process::id()),
    };
    let show = if args.json { show_json } else { show_text };
    let mut shown = Ok(());
    generator::run(&plan, |event| {
        if shown.is_ok() {
            shown = show(&event);
        }
    })?;
    Ok(shown?)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("not within a day".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn show_json(event: &Event) -> io::Result<()> {
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, event)?;
    writeln!(output)?;
    output.flush()?;
    if matches!(event, Event::Finished(_)) {
        io::stdin().lock().read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

fn show_text(event: &Event) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match event {
        Event::Started { huge_pages: true } => writeln!(output, "ports up, huge pages"),
        Event::Started { huge_pages: false } => writeln!(output, "ports up, no huge pages"),
        Event::Learned { sent, wrong } => {
            writeln!(output, "all flows established, {sent} packets sent, {wrong} wrong")
        }
        Event::Finished(flood) => write!(output, "{}", table(flood)),
    }
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
    text
}
