//! Sizes of pages, and which of them a region of memory should lie on.
//!
//! The larger the pages, the rarer the TLB misses of random accesses: the records and indexes of 60
//! million flows are 2,300 pages of 2 MiB, more than the 1,536 or 2,048 entries of many a
//! second-level TLB; the records alone are four pages of 1 GiB.

use std::fmt;

/// Size of the pages that memory lies on, as x86-64 and most arm64 machines have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageSize {
    /// The ordinary page.
    #[default]
    Kib4,
    Mib2,
    Gib1,
}

impl PageSize {
    /// Returns the bytes of a page.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Kib4 => 4 << 10,
            Self::Mib2 => 2 << 20,
            Self::Gib1 => 1 << 30,
        }
    }

    /// Returns `bytes` rounded up to whole pages; `usize::MAX` if that is no number.
    pub fn round_up(self, bytes: usize) -> usize {
        bytes.checked_next_multiple_of(self.bytes()).unwrap_or(usize::MAX)
    }

    /// Returns the sizes of reserved huge pages for a region of `bytes`, in the order in which they
    /// are tried: none for less than 2 MiB, and 1 GiB only for a region that fills one such page or
    /// leaves at most an eighth of it unused.
    pub fn huge_for(bytes: usize) -> &'static [PageSize] {
        if bytes >= Self::Gib1.bytes() / 8 * 7 {
            &[Self::Gib1, Self::Mib2]
        } else if bytes >= Self::Mib2.bytes() {
            &[Self::Mib2]
        } else {
            &[]
        }
    }

    /// Returns the page size that decides how many bytes a region takes if there is no page of 1
    /// GiB: huge pages for all regions that fill one.
    pub(crate) fn usual_for(bytes: usize) -> PageSize {
        if bytes >= Self::Mib2.bytes() { Self::Mib2 } else { Self::Kib4 }
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kib4 => "4 KiB",
            Self::Mib2 => "2 MiB",
            Self::Gib1 => "1 GiB",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    #[test]
    fn pages_of_1_gib_are_tried_for_regions_that_leave_at_most_an_eighth_of_one_unused() {
        for bytes in [GIB - GIB / 8, GIB, GIB + 1, 60_000_000 * 64, usize::MAX] {
            assert_eq!(PageSize::huge_for(bytes), [PageSize::Gib1, PageSize::Mib2], "{bytes}");
        }
        for bytes in [2 << 20, GIB / 2, GIB - GIB / 8 - 1] {
            assert_eq!(PageSize::huge_for(bytes), [PageSize::Mib2], "{bytes}");
        }
        for bytes in [0, 1, (2 << 20) - 1] {
            assert!(PageSize::huge_for(bytes).is_empty(), "{bytes}");
        }
    }

    #[test]
    fn bytes_are_rounded_up_to_whole_pages() {
        assert_eq!(PageSize::Kib4.round_up(1), 4096);
        assert_eq!(PageSize::Mib2.round_up(5 << 20), 6 << 20);
        assert_eq!(PageSize::Gib1.round_up(GIB), GIB);
        assert_eq!(PageSize::Gib1.round_up(usize::MAX - 5), usize::MAX);
    }

    #[test]
    fn page_sizes_are_ordered_and_named_by_their_bytes() {
        let sizes = [PageSize::Kib4, PageSize::Mib2, PageSize::Gib1];
        assert!(sizes.is_sorted() && sizes.is_sorted_by_key(|size| size.bytes()));
        assert_eq!(sizes.map(|size| size.to_string()), ["4 KiB", "2 MiB", "1 GiB"]);
    }
}
