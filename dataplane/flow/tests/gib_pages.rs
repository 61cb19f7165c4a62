//! A region on a page of 1 GiB, where the machine has one to give.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use weir_flow::{PageSize, Region};

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB";

fn read(file: &str) -> Option<u64> {
    fs::read_to_string(Path::new(POOL).join(file)).ok()?.trim().parse().ok()
}

/// A page of 1 GiB; dropping it restores the earlier number of pages.
struct ReservedPage {
    before: u64,
}

impl ReservedPage {
    /// `None` if the processor has no such pages, the caller no right to reserve them, or the
    /// memory is in use or fragmented.
    fn reserve() -> Option<ReservedPage> {
        let reserved = ReservedPage { before: read("nr_hugepages")? };
        fs::write(Path::new(POOL).join("nr_hugepages"), (reserved.before + 1).to_string()).ok()?;
        (read("nr_hugepages")? > reserved.before).then_some(reserved)
    }
}

impl Drop for ReservedPage {
    fn drop(&mut self) {
        // A failure cannot be handled here.
        let _ = fs::write(Path::new(POOL).join("nr_hugepages"), self.before.to_string());
    }
}

fn free() -> u64 {
    read("free_hugepages").unwrap().saturating_sub(read("resv_hugepages").unwrap())
}

/// The second region finds no page left, and the page is free again after the first.
#[test]
fn region_of_nearly_1_gib_lies_on_a_reserved_page_and_gives_it_back() {
    let Some(_reserved) = ReservedPage::reserve() else {
        eprintln!("skipped: this machine cannot reserve a page of 1 GiB");
        return;
    };
    let free_before = free();
    let len = (1 << 18) - 1000;
    let mut regions = Vec::new();
    for left in (0..free_before).rev() {
        let mut region = Region::new(len, [7_u64; 512]).unwrap();
        assert_eq!((region.page_size(), region.bytes()), (PageSize::Gib1, 1 << 30));
        assert_eq!(free(), left);
        assert_eq!((region[0][0], region[len - 1][511]), (7, 7));
        region[len - 1][511] = 8;
        regions.push(region);
    }
    let without = Region::new(len, [7_u64; 512]).unwrap();
    assert!(without.page_size() <= PageSize::Mib2);
    assert_eq!(without.bytes(), Region::<[u64; 512]>::bytes_for(len));
    drop(regions);
    assert_eq!(free(), free_before);
}

#[test]
fn region_of_half_a_gib_takes_no_page_of_1_gib() {
    let region = Region::new(1 << 17, [7_u64; 512]).unwrap();
    assert!(region.page_size() <= PageSize::Mib2);
    assert_eq!(region.bytes(), 1 << 29);
}
