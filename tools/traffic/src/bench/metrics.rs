//! Readings of weir's metrics, requested on its admin socket.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::durations::Durations;

const PATIENCE: Duration = Duration::from_secs(10);
/// Share from which tables count as full.
const FULL_SHARE: f64 = 0.75;

/// The metrics of weir at one time, all workers together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// TSC cycles spent since start in polls that returned packets, and those packets.
    busy_cycles: f64,
    busy_packets: f64,
    pub(super) flows: f64,
    flows_max: f64,
    /// Memory of the tables.
    pub(super) memory_bytes: f64,
    /// The longest turn of a worker's loop within the last minute, s, if weir reports it.
    pub(super) longest_turn: Option<f64>,
    /// Turns with work since start, and the housekeeping in them.
    pub(super) turns: Durations,
    pub(super) ticks: Durations,
    /// How long the newest settings were compiled, and how long after that all workers had them, s.
    pub(super) compile_seconds: Option<f64>,
    pub(super) swap_seconds: Option<f64>,
    /// Packets dropped, by reason, and under [`CLAIMS_REFUSED`] the ARP claims that changed no
    /// gateway.
    pub(super) drops: BTreeMap<String, f64>,
    /// Since start: flows that began, flows that ended idle, and records that no collector gets.
    pub(super) flows_created: f64,
    pub(super) flows_expired: f64,
    pub(super) records_lost: f64,
    /// Port blocks that homes hold.
    pub(super) blocks_held: f64,
}

/// Not a drop reason: a refused claim is an ARP message that was received and ignored.
pub(super) const CLAIMS_REFUSED: &str = "arp-claims-refused";

impl Reading {
    /// Parses the text of `/metrics`.
    pub(super) fn parse(metrics: &str) -> Option<Self> {
        let sum = |name| values(metrics, name).reduce(|a, b| a + b);
        Some(Reading {
            busy_cycles: sum("weir_busy_cycles_total")?,
            busy_packets: sum("weir_busy_packets_total")?,
            flows: sum("weir_flows")?,
            flows_max: sum("weir_flows_max")?,
            memory_bytes: sum("weir_memory_bytes")?,
            longest_turn: values(metrics, "weir_turn_seconds_max").reduce(f64::max),
            turns: Durations::parse(metrics, "weir_turn_seconds"),
            ticks: Durations::parse(metrics, "weir_tick_seconds"),
            compile_seconds: sum("weir_generation_build_seconds"),
            swap_seconds: sum("weir_generation_swap_seconds"),
            drops: drops(metrics),
            flows_created: sum("weir_flow_creates_total").unwrap_or(0.0),
            flows_expired: sum("weir_flow_expired_total").unwrap_or(0.0),
            // This series does not exist without a collector.
            records_lost: sum("weir_export_records_lost_total").unwrap_or(0.0),
            blocks_held: sum("weir_blocks").unwrap_or(0.0) - sum("weir_blocks_free").unwrap_or(0.0),
        })
    }

    /// Returns the memory of all tables divided by the flows in them; `None` while the tables are
    /// far from full.
    pub(super) fn bytes_per_flow(&self) -> Option<f64> {
        (self.flows >= FULL_SHARE * self.flows_max).then(|| self.memory_bytes / self.flows)
    }

    /// Returns the drops since `earlier`, the most frequent reason first.
    pub(super) fn drops_since(&self, earlier: &Reading) -> Vec<(String, f64)> {
        let before = |reason: &String| earlier.drops.get(reason).copied().unwrap_or(0.0);
        let since = |(reason, count): (&String, &f64)| (reason.clone(), count - before(reason));
        let mut drops: Vec<_> =
            self.drops.iter().map(since).filter(|&(_, count)| count > 0.0).collect();
        drops.sort_by(|a, b| b.1.total_cmp(&a.1));
        drops
    }

    /// Returns the busy cycles per packet since `earlier`.
    pub(super) fn cycles_since(&self, earlier: &Reading) -> f64 {
        (self.busy_cycles - earlier.busy_cycles)
            / (self.busy_packets - earlier.busy_packets).max(1.0)
    }

    /// Returns the packets per turn with work since `earlier`: full bursts of both sides if weir
    /// was the slowest, fewer if the generator was.
    pub(super) fn packets_per_turn_since(&self, earlier: &Reading) -> f64 {
        let turns = self.turns.since(&earlier.turns).count();
        (self.busy_packets - earlier.busy_packets) / turns
    }
}

/// Returns the values of all series of a metric.
fn values<'m>(metrics: &'m str, name: &str) -> impl Iterator<Item = f64> + 'm {
    let name = name.to_owned();
    metrics
        .lines()
        .filter_map(move |line| line.strip_prefix(&name))
        .filter(|rest| rest.starts_with(['{', ' ']))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse().ok())
}

fn drops(metrics: &str) -> BTreeMap<String, f64> {
    let mut drops = BTreeMap::new();
    for line in metrics.lines().filter_map(|line| line.strip_prefix("weir_drops_total{")) {
        let reason = line.split_once("reason=\"").and_then(|(_, rest)| rest.split('"').next());
        let count = line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok());
        if let (Some(reason), Some(count)) = (reason, count) {
            *drops.entry(reason.to_owned()).or_default() += count;
        }
    }
    let claims = values(metrics, "weir_arp_claims_refused_total").sum();
    drops.insert(CLAIMS_REFUSED.to_owned(), claims);
    drops
}

/// Returns the body of a GET over a Unix socket.
pub(super) fn get(socket: &Path, path: &str) -> io::Result<String> {
    ask(socket, "GET", path, PATIENCE)
}

/// Returns the body of the answer to a POST without a body.
pub(super) fn post(socket: &Path, path: &str) -> io::Result<String> {
    ask(socket, "POST", path, PATIENCE)
}

/// As [`post`], for an answer that may take this long.
pub(super) fn post_patiently(socket: &Path, path: &str, patience: Duration) -> io::Result<String> {
    ask(socket, "POST", path, patience)
}

/// Returns the body of a GET over TCP.
pub(super) fn get_from(address: SocketAddr, path: &str) -> io::Result<String> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(stream, "GET", path)
}

fn ask(socket: &Path, method: &str, path: &str, patience: Duration) -> io::Result<String> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    exchange(stream, method, path)
}

/// Uses HTTP/1.0: the answer ends with the connection.
fn exchange(mut stream: impl Read + Write, method: &str, path: &str) -> io::Result<String> {
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: weir\r\nContent-Length: 0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(format!(
            "unexpected answer to {path}: {}",
            answer.lines().next().unwrap_or("nothing")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "# TYPE weir_busy_cycles counter\n\
        weir_busy_cycles_total{worker=\"0\"} 1000\n\
        weir_busy_cycles_total{worker=\"1\"} 500\n\
        weir_busy_packets_total{worker=\"0\"} 10\n\
        weir_busy_packets_total_other 99\n\
        weir_flows{worker=\"0\"} 3.0\n\
        weir_flows_max{worker=\"0\"} 1000.0\n\
        weir_memory_bytes{worker=\"0\",table=\"mappings\"} 64.0\n\
        weir_memory_bytes{worker=\"0\",table=\"index\"} 18.0\n\
        weir_drops_total{worker=\"0\",reason=\"new-flows\"} 5\n\
        weir_drops_total{worker=\"1\",reason=\"new-flows\"} 2\n\
        weir_drops_total{worker=\"0\",reason=\"vlan\"} 9\n\
        weir_arp_claims_refused_total{worker=\"0\",side=\"access\"} 3\n\
        weir_flow_creates_total{worker=\"0\"} 7\n\
        weir_flow_expired_total{worker=\"0\"} 4\n\
        weir_blocks_free{shard=\"1\"} 90.0\n\
        weir_blocks{shard=\"1\"} 96.0\n\
        weir_export_records_lost_total{collector=\"bench\",reason=\"queue-full\"} 2\n\
        weir_export_records_lost_total{collector=\"bench\",reason=\"end\"} 1\n\
        weir_generation_build_seconds 2.5\n\
        weir_generation_swap_seconds 0.25\n\
        weir_turn_seconds_max{worker=\"0\"} 0.001\n\
        weir_turn_seconds_max{worker=\"1\"} 0.002\n\
        weir_turn_seconds_bucket{le=\"+Inf\",worker=\"0\"} 4\n\
        # EOF\n";

    #[test]
    fn series_are_summed_and_the_longest_turn_counts() {
        let reading = Reading::parse(METRICS).unwrap();
        assert_eq!((reading.busy_cycles, reading.busy_packets), (1500.0, 10.0));
        assert_eq!((reading.flows, reading.memory_bytes), (3.0, 82.0));
        assert_eq!(reading.longest_turn, Some(0.002));
        assert_eq!(reading.turns.bound_of(1.0), Some(f64::INFINITY));
        assert_eq!(reading.ticks, Durations::default());
        assert_eq!((reading.flows_created, reading.flows_expired), (7.0, 4.0));
        assert_eq!((reading.blocks_held, reading.records_lost), (6.0, 3.0));
        assert_eq!((reading.compile_seconds, reading.swap_seconds), (Some(2.5), Some(0.25)));
    }

    #[test]
    fn drops_are_summed_by_reason_since_a_reading_and_sorted() {
        let mut reading = Reading::parse(METRICS).unwrap();
        let before = reading.clone();
        assert_eq!(reading.drops_since(&before), []);
        reading.drops.insert("new-flows".into(), 10.0);
        reading.drops.insert("ttl-exceeded".into(), 4.0);
        let since = reading.drops_since(&before);
        assert_eq!(since, [("ttl-exceeded".to_owned(), 4.0), ("new-flows".to_owned(), 3.0)]);
        assert_eq!(before.drops[CLAIMS_REFUSED], 3.0);
    }

    #[test]
    fn missing_counter_is_no_reading_but_the_turn_may_be_missing() {
        let without = |name: &str| {
            let kept: Vec<&str> = METRICS.lines().filter(|line| !line.contains(name)).collect();
            Reading::parse(&kept.join("\n"))
        };
        assert_eq!(without("weir_busy_packets_total{"), None);
        assert_eq!(without("weir_turn").unwrap().longest_turn, None);
    }

    #[test]
    fn bytes_of_a_flow_are_those_of_full_tables() {
        let with =
            |flows| Reading { flows, flows_max: 100.0, memory_bytes: 8e3, ..Reading::default() };
        assert_eq!(with(80.0).bytes_per_flow(), Some(100.0));
        assert_eq!(with(10.0).bytes_per_flow(), None);
    }

    #[test]
    fn packets_per_turn_are_those_of_the_interval() {
        let reading = |busy_packets, turns: u32| {
            let turns = format!("turns_bucket{{le=\"+Inf\"}} {turns}\n");
            Reading { busy_packets, turns: Durations::parse(&turns, "turns"), ..Reading::default() }
        };
        let per_turn = reading(840.0, 20).packets_per_turn_since(&reading(200.0, 10));
        assert!((per_turn - 64.0).abs() < 1e-9);
    }

    #[test]
    fn cycles_per_packet_are_those_of_the_interval() {
        let at =
            |busy_cycles, busy_packets| Reading { busy_cycles, busy_packets, ..Reading::default() };
        let (before, after) = (at(1000.0, 10.0), at(3000.0, 20.0));
        assert!((after.cycles_since(&before) - 200.0).abs() < 1e-9);
        assert!(before.cycles_since(&before).abs() < 1e-9);
    }
}
