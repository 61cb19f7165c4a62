//! Available memory: huge pages of any size, and ordinary memory.

use std::fs;
use std::path::Path;

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// Returns the free memory in huge pages of all sizes and nodes, in MB.
pub fn free_huge_pages_mb() -> usize {
    free_in(Path::new(HUGE_PAGES))
}

fn free_in(folder: &Path) -> usize {
    let Ok(sizes) = fs::read_dir(folder) else {
        return 0;
    };
    let free_kb = sizes.flatten().map(|entry| {
        let page_kb = entry.file_name().to_str().and_then(page_kb).unwrap_or(0);
        let pages = |file: &str| -> usize {
            let text = fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        // Free pages may be reserved already for mappings that have not touched them yet.
        page_kb * pages("free_hugepages").saturating_sub(pages("resv_hugepages"))
    });
    free_kb.sum::<usize>() / 1024
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
    fn free_pages_of_all_sizes_are_added_up() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (size, free) in
            [("hugepages-2048kB", "4\n"), ("hugepages-1048576kB", "3\n"), ("other", "9\n")]
        {
            fs::create_dir(folder.path().join(size)).expect("creates");
            fs::write(folder.path().join(size).join("free_hugepages"), free).expect("writes");
            fs::write(folder.path().join(size).join("resv_hugepages"), "1").expect("writes");
        }
        assert_eq!(free_in(folder.path()), 6 + 2048);
    }

    #[test]
    fn a_machine_without_huge_pages_has_none() {
        assert_eq!(free_in(Path::new("/nonexistent")), 0);
    }
}
