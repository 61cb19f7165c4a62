//! The metrics of `weir controller`, served as those of a node are.

use std::fmt::{Debug, Error};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use weir_controller::standing::{ControllerStanding, Drain};

use crate::http::serve_text;
use crate::metrics::{Family, Labels, NO_LABEL, build_info, encoded};

/// The numbers of a controller at one moment.
#[derive(Clone, Debug, Default)]
pub struct ControllerNumbers {
    pub standing: ControllerStanding,
    /// Turns of its loop since start.
    pub turns_total: u64,
}

/// Serves `/metrics` on a TCP address from a thread that runs until the process ends.
///
/// # Errors
/// When the address is in use or does not belong to this machine, or the system gives no thread.
pub fn serve_controller(
    address: SocketAddr,
    numbers: impl Fn() -> ControllerNumbers + Send + Sync + 'static,
) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    serve_text(listener, Arc::new(move || controller_text(&numbers(), unix_ms())))
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Returns the numbers as OpenMetrics text.
pub fn controller_text(numbers: &ControllerNumbers, unix_ms: u64) -> String {
    encoded(ControllerScrape { numbers: numbers.clone(), unix_ms })
}

#[derive(Debug)]
struct ControllerScrape {
    numbers: ControllerNumbers,
    unix_ms: u64,
}

impl Collector for ControllerScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut family = Family::new(&mut encoder);
        let ControllerNumbers { standing, turns_total } = &self.numbers;
        build_info(&mut family)?;
        let one = |value: f64| [(Labels([NO_LABEL; 3]), value)];
        let is = |is: bool| one(f64::from(u8::from(is)));
        let help = "1 while this controller leads.";
        family.gauge("weir_controller_leading", help, is(standing.is_leading))?;
        let help = "1 while the leader moves, copies and repairs nothing.";
        family.gauge("weir_controller_frozen", help, is(standing.frozen.is_some()))?;
        let help = "1 while so many nodes look gone or cut off that the leader moves nothing.";
        family.gauge("weir_controller_halted", help, is(standing.halted.is_some()))?;
        let help = "Shards of which etcd has forgotten what nodes have seen.";
        family.gauge("weir_controller_shards_in_doubt", help, one(standing.in_doubt as f64))?;
        let help = "Turns of the controller's loop, several a second.";
        let turns = [(Labels([NO_LABEL; 3]), *turns_total)];
        family.counter("weir_controller_turns", help, turns)?;
        let drains = |value: fn(&Drain, u64) -> f64| {
            standing.drains.iter().map(move |(node, drain)| {
                (Labels([("node", node.as_str()), NO_LABEL, NO_LABEL]), value(drain, self.unix_ms))
            })
        };
        let seconds = drains(|drain, now_ms| match drain.shards {
            0 => 0.0,
            _ => now_ms.saturating_sub(drain.since_ms) as f64 / 1e3,
        });
        let help = "Since the order to empty a node that still holds shards; 0 once it is empty.";
        family.gauge("weir_controller_drain_seconds", help, seconds)?;
        let shards = drains(|drain, _| drain.shards as f64);
        let help = "Shards that a drained node still holds.";
        family.gauge("weir_controller_drain_shards", help, shards)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    /// Returns the numbers of a controller that leads, with one drain under way and one that is
    /// done.
    fn sample() -> ControllerNumbers {
        let drain =
            |shards| Drain { by: "ann".into(), since_ms: 10_000, shards, waits: String::new() };
        let standing = ControllerStanding {
            is_leading: true,
            frozen: Some("frozen by ann".into()),
            drains: [("edge1".to_owned(), drain(3)), ("edge2".to_owned(), drain(0))].into(),
            ..ControllerStanding::default()
        };
        ControllerNumbers { standing, turns_total: 7 }
    }

    #[test]
    fn a_controller_shows_that_it_leads_its_brakes_and_its_drains() {
        let text = controller_text(&sample(), 70_000);
        for line in [
            "weir_controller_leading{} 1.0",
            "weir_controller_frozen{} 1.0",
            "weir_controller_halted{} 0.0",
            "weir_controller_shards_in_doubt{} 0.0",
            "weir_controller_turns_total{} 7",
            "weir_controller_drain_seconds{node=\"edge1\"} 60.0",
            "weir_controller_drain_seconds{node=\"edge2\"} 0.0",
            "weir_controller_drain_shards{node=\"edge1\"} 3.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn controller_metrics_are_served_and_nothing_else_is() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        serve_text(listener, Arc::new(|| controller_text(&sample(), 70_000))).unwrap();
        let get = |path: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: c1\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.to_lowercase()
        };
        let answer = get("/metrics");
        assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("\n# type weir_controller_turns_total counter\n"), "{answer}");
        assert!(answer.contains("\nweir_controller_leading{} 1.0\n"), "{answer}");
        assert!(get("/status").starts_with("http/1.1 404 "));
    }
}
