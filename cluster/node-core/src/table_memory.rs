//! Computes the memory of a worker's tables from the configuration file.

use std::fmt;

use weir_config::Config;
use weir_nat::TableBytes;

use crate::nat_setup::{ClusterRoom, nat_config};

/// Memory of the tables of one worker. Displays as `60,000,000 flows: 5.6 GB, 94 B per flow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMemory {
    pub flows_max: u32,
    pub tables: TableBytes,
}

impl TableMemory {
    /// Computes the memory of worker `worker`, without building anything.
    pub fn of(config: &Config, worker: usize) -> Self {
        Self::with_room(config, worker, None)
    }

    /// Computes the memory of worker `worker` of a cluster, which has `room` beyond its file.
    pub fn with_room(config: &Config, worker: usize, room: Option<&ClusterRoom>) -> Self {
        let nat = nat_config(config, worker, room, [0; 4]);
        Self { flows_max: nat.flows_max, tables: TableBytes::of(&nat) }
    }

    /// Returns the bytes of all tables per flow.
    pub fn bytes_per_flow(&self) -> f64 {
        self.tables.total() as f64 / f64::from(self.flows_max.max(1))
    }
}

impl fmt::Display for TableMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.tables.total() as f64;
        let (size, unit) = if bytes < 1e9 { (bytes / 1e6, "MB") } else { (bytes / 1e9, "GB") };
        let flows = with_commas(self.flows_max);
        write!(f, "{flows} flows: {size:.1} {unit}, {:.0} B per flow", self.bytes_per_flow())
    }
}

/// Formats a number as 1,234,567.
fn with_commas(number: u32) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = (0..digits.len().div_ceil(3))
        .rev()
        .map(|group| {
            let end = digits.len() - 3 * group;
            &digits[end.saturating_sub(3)..end]
        })
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat_setup::tests::config;

    #[test]
    fn a_table_says_how_large_it_is() {
        let memory = TableMemory::of(&config("[nat]\nflows_max = 60_000_000\n"), 0);
        assert_eq!(memory.to_string(), "60,000,000 flows: 5.5 GB, 92 B per flow");
        assert_eq!([7, 1024, 1_234_567].map(with_commas), ["7", "1,024", "1,234,567"]);
    }
}
