//! Two counters from weir's metrics, asked for on its admin socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

/// Work since the start of the process: TSC cycles spent in polls that brought packets, and those packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Busy {
    cycles: f64,
    packets: f64,
}

impl Busy {
    /// From the text of `/metrics`, summed over the workers.
    pub(super) fn parse(metrics: &str) -> Option<Self> {
        let cycles = sum(metrics, "weir_busy_cycles_total")?;
        let packets = sum(metrics, "weir_busy_packets_total")?;
        Some(Busy { cycles, packets })
    }

    /// Cycles per packet since `earlier`.
    pub(super) fn since(self, earlier: Busy) -> f64 {
        (self.cycles - earlier.cycles) / (self.packets - earlier.packets).max(1.0)
    }
}

/// The body of a GET over a Unix socket. HTTP/1.0: the answer ends with the connection.
pub(super) fn get(socket: &Path, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: weir\r\n\r\n")?;
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

/// The sum of a counter's series; `None` when there is none.
fn sum(metrics: &str, name: &str) -> Option<f64> {
    metrics
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with(['{', ' ']))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
        .reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "# TYPE weir_busy_cycles counter\n\
        weir_busy_cycles_total{worker=\"0\"} 1000\n\
        weir_busy_cycles_total{worker=\"1\"} 500\n\
        weir_busy_packets_total{worker=\"0\"} 10\n\
        weir_busy_packets_total_other 99\n\
        # EOF\n";

    #[test]
    fn counters_are_summed_over_workers() {
        assert_eq!(Busy::parse(METRICS), Some(Busy { cycles: 1500.0, packets: 10.0 }));
        assert_eq!(Busy::parse("weir_flows 3\n"), None);
    }

    #[test]
    fn cycles_per_packet_are_those_of_the_interval() {
        let (before, after) =
            (Busy { cycles: 1000.0, packets: 10.0 }, Busy { cycles: 3000.0, packets: 20.0 });
        assert!((after.since(before) - 200.0).abs() < 1e-9);
        assert!(before.since(before).abs() < 1e-9);
    }
}
