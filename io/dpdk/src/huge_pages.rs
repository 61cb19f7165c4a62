//! Available memory: huge pages of any size, and ordinary memory.

use std::fs;
use std::path::Path;

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";
const GIB_KB: usize = 1 << 20;

/// Huge pages that are free, on all NUMA nodes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FreeHugePages {
    /// Pages of 1 GiB.
    pub gib_pages: usize,
    /// Memory in pages of all other sizes, in MB.
    pub smaller_mb: usize,
}

impl FreeHugePages {
    /// Returns the memory in pages of all sizes, in MB.
    pub fn total_mb(self) -> usize {
        self.gib_pages * 1024 + self.smaller_mb
    }
}

/// Returns the huge pages that are free.
pub fn free_huge_pages() -> FreeHugePages {
    free_in(Path::new(HUGE_PAGES))
}

/// Returns the free memory in huge pages of all sizes and nodes, in MB.
pub fn free_huge_pages_mb() -> usize {
    free_huge_pages().total_mb()
}

fn free_in(folder: &Path) -> FreeHugePages {
    let mut free = FreeHugePages::default();
    let mut smaller_kb = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let page_kb = entry.file_name().to_str().and_then(page_kb).unwrap_or(0);
        let pages = |file: &str| -> usize {
            let text = fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        // Free pages may be reserved already for mappings that have not touched them yet.
        let pages = pages("free_hugepages").saturating_sub(pages("resv_hugepages"));
        if page_kb == GIB_KB {
            free.gib_pages += pages;
        } else {
            smaller_kb += page_kb * pages;
        }
    }
    free.smaller_mb = smaller_kb / 1024;
    free
}

/// Returns 2048 for `hugepages-2048kB`.
fn page_kb(name: &str) -> Option<usize> {
    name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()
}

/// Returns the ordinary memory that the machine can provide without swapping, in MB; `None` if the
/// kernel does not report it.
pub(crate) fn available_mb() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kb: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kb / 1024)
}

/// Returns the available memory in words, for a message about a shortage.
pub(crate) fn shortage_text() -> String {
    let ordinary = available_mb().map_or("unknown".to_owned(), |mb| format!("{mb} MB"));
    format!(
        "{} MB free in huge pages, {ordinary} available in ordinary memory",
        free_huge_pages_mb()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_pages_of_1_gib_are_counted_apart_from_the_smaller_ones() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (size, free) in
            [("hugepages-2048kB", "4\n"), ("hugepages-1048576kB", "3\n"), ("other", "9\n")]
        {
            fs::create_dir(folder.path().join(size)).expect("creates");
            fs::write(folder.path().join(size).join("free_hugepages"), free).expect("writes");
            fs::write(folder.path().join(size).join("resv_hugepages"), "1").expect("writes");
        }
        let free = free_in(folder.path());
        assert_eq!(free, FreeHugePages { gib_pages: 2, smaller_mb: 6 });
        assert_eq!(free.total_mb(), 2054);
    }

    #[test]
    fn a_machine_without_huge_pages_has_none() {
        assert_eq!(free_in(Path::new("/nonexistent")), FreeHugePages::default());
    }
}
