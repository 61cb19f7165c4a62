//! Huge pages for the time of a measurement, returned afterwards.

use std::fs;

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

/// The reservation; dropping it restores the earlier number of pages.
#[derive(Debug)]
pub(super) struct HugePageReserve {
    before: Option<u64>,
    sentence: String,
}

impl HugePageReserve {
    /// Tries to make `wanted` pages of 2 MiB free. Never fails: everything also runs without huge
    /// pages.
    pub(super) fn take(wanted: u64) -> Self {
        let free_mb = weir_dpdk::free_huge_pages_mb() as u64;
        let missing = wanted.saturating_sub(free_mb / 2);
        if missing == 0 {
            let sentence = format!("{free_mb} MB were free, none reserved");
            return HugePageReserve { before: None, sentence };
        }
        let Some(before) = reserved() else {
            return HugePageReserve {
                before: None,
                sentence: "none, this machine has none to reserve".into(),
            };
        };
        if let Err(error) = fs::write(RESERVED, (before + missing).to_string()) {
            let sentence = format!("none, {RESERVED} cannot be written ({error})");
            return HugePageReserve { before: None, sentence };
        }
        let got_mb = weir_dpdk::free_huge_pages_mb();
        let sentence = format!("{got_mb} MB free, reserved for the time of the measurement");
        HugePageReserve { before: Some(before), sentence }
    }

    pub(super) fn sentence(&self) -> &str {
        &self.sentence
    }
}

impl Drop for HugePageReserve {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = fs::write(RESERVED, before.to_string());
        }
    }
}

fn reserved() -> Option<u64> {
    fs::read_to_string(RESERVED).ok()?.trim().parse().ok()
}
