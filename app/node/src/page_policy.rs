//! Refuses large tables on pages of 4 KiB: nearly each cache miss of a look-up is a TLB miss there.

use weir_config::{Config, HugePagesSetting};
use weir_nat::{Gauges, PageSize};
use weir_node_core::ClusterRoom;

use crate::memory;

/// The most flows of a worker whose tables may lie on pages of 4 KiB by default. Tables up to here
/// are about 100 MB.
const SMALL_PAGES_FLOWS_MAX: u32 = 1_000_000;

/// On which pages the tables of the node's workers may lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagePolicy {
    setting: HugePagesSetting,
    /// Pages of 2 MiB that all tables and packet buffers of the node fit on.
    huge_pages: usize,
}

impl PagePolicy {
    /// `rooms`: room of each worker, in a cluster.
    pub(crate) fn new(config: &Config, rooms: &[ClusterRoom]) -> Self {
        let setting = config.node.hugepages;
        Self { setting, huge_pages: memory::huge_pages_for(config, rooms) }
    }

    /// Refuses the tables that a worker has built, if they lie on pages too small for them.
    ///
    /// # Errors
    /// One sentence with the sizes and what to change.
    pub(crate) fn check(self, worker: usize, built: &Gauges) -> Result<(), String> {
        let (flows, page) = (built.flows_max, built.pages.smallest());
        let is_slow = page == PageSize::Kib4 && flows > SMALL_PAGES_FLOWS_MAX;
        match self.setting {
            HugePagesSetting::Auto if is_slow => Err(format!(
                "worker {worker}: tables for nat.flows_max = {flows} lie on pages of {page}, where a packet costs \
                 several times as much: reserve {} huge pages of 2 MiB (sysctl vm.nr_hugepages), set node.hugepages = \
                 \"prefer\" to run nevertheless, or lower nat.flows_max to {SMALL_PAGES_FLOWS_MAX}",
                self.huge_pages
            )),
            HugePagesSetting::Auto | HugePagesSetting::Prefer | HugePagesSetting::Never => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_nat::TablePages;

    use super::*;

    fn check(setting: HugePagesSetting, flows_max: u32, index: PageSize) -> Result<(), String> {
        let pages = TablePages {
            mappings: PageSize::Gib1,
            outbound_index: index,
            inbound_index: PageSize::Mib2,
        };
        let built = Gauges { flows_max, pages, ..Gauges::default() };
        PagePolicy { setting, huge_pages: 230 }.check(3, &built)
    }

    #[test]
    fn tables_of_more_than_a_million_flows_on_small_pages_are_refused_by_default_alone() {
        let (auto, small) = (HugePagesSetting::Auto, PageSize::Kib4);
        let text = check(auto, 1_000_001, small).unwrap_err();
        for part in ["worker 3", "nat.flows_max = 1000001", "4 KiB", "reserve 230 huge pages"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(text.contains("node.hugepages = \"prefer\""), "{text}");
        check(auto, 1_000_000, small).unwrap();
        check(auto, 60_000_000, PageSize::Mib2).unwrap();
        check(HugePagesSetting::Prefer, 60_000_000, small).unwrap();
        check(HugePagesSetting::Never, 60_000_000, small).unwrap();
    }
}
