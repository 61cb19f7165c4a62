//! `weir trace`: the way of chosen packets through the workers.

use std::io::{self, Write};

use weir_admin::client::query_value;
use weir_admin::{HomeName, TracedPacket};

use crate::json_lines::read_lines;
use crate::node_socket::NodeSocket;

/// Show each step of chosen packets: look-ups, records, rule, mapping, edits, and how they end.
///
/// Ends after -n packets, after --for seconds, or with Ctrl-C. A traced packet is processed by
/// itself, before the other packets of its burst; those are not touched.
///
///   weir trace --subscriber 10.200.1.5
///   weir trace --subscriber 10.200.1.5 --protocol udp --remote 198.51.100.53:53 -n 2
///   weir trace --side internet --remote 198.51.100.0/24 --json
///   weir trace --subscriber 2001:db8:1000:100::/56 --remote [2001:db8:9::1]:443
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// Only of this home: outer source of its tunnel, its address with plain access, or any of its
    /// IPv6 addresses or prefixes.
    #[arg(long, value_name = "A[/LEN]")]
    subscriber: Option<HomeName>,
    /// Only of this protocol; icmp includes ICMPv6.
    #[arg(long, value_name = "NAME", value_parser = ["tcp", "udp", "icmp"])]
    protocol: Option<String>,
    /// Only from or to this remote address.
    #[arg(long, value_name = "A[/LEN]|A:P", value_parser = crate::endpoints::any)]
    remote: Option<String>,
    /// Only packets that come from this side.
    #[arg(long, value_name = "SIDE", value_parser = ["access", "internet"])]
    side: Option<String>,
    /// Only this worker (counted from 0, as in `weir status`).
    #[arg(long, value_name = "N")]
    worker: Option<usize>,
    /// Stop after so many packets.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    count: u64,
    /// Stop after so many seconds.
    #[arg(long = "for", value_name = "SEC", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut path = format!("/trace?count={}&seconds={}", args.count, args.seconds);
    let filters = [
        ("subscriber", args.subscriber.map(|address| address.to_string())),
        ("protocol", args.protocol.clone()),
        ("remote", args.remote.clone()),
        ("side", args.side.clone()),
        ("worker", args.worker.map(|worker| worker.to_string())),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", query_value(&value)));
        }
    }
    let (mut out, mut packets) = (io::stdout().lock(), 0);
    read_lines(&args.node.client()?, &path, |packet: TracedPacket, line| {
        packets += 1;
        match args.json {
            true => out.write_all(line)?,
            false => print(&mut out, packets, &packet)?,
        }
        out.flush()
    })?;
    if packets < args.count {
        eprintln!("{packets} packets in {} s", args.seconds);
    }
    Ok(())
}

fn print(out: &mut impl Write, number: u64, packet: &TracedPacket) -> io::Result<()> {
    let TracedPacket { worker, side, outcome, drop_reason, steps } = packet;
    let reason = drop_reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    writeln!(out, "packet {number}, worker {worker}, from {side}: {outcome}{reason}")?;
    for step in steps {
        writeln!(out, "  {:<8} {}", step.step, step.text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weir_admin::TraceStep;

    use super::*;

    #[test]
    fn packet_is_printed_with_a_line_for_each_step() {
        let step = |step: &str, text: &str| TraceStep { step: step.into(), text: text.into() };
        let packet = TracedPacket {
            worker: 1,
            side: "internet".into(),
            outcome: "dropped".into(),
            drop_reason: Some("filtered".into()),
            steps: vec![step("record", "none"), step("drop", "filtered: Kept out.")],
        };
        let mut text = Vec::new();
        print(&mut text, 3, &packet).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "packet 3, worker 1, from internet: dropped: filtered\n  record   none\n  drop     \
             filtered: Kept out.\n"
        );
    }
}
