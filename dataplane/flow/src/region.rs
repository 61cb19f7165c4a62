//! A fixed array in memory of its own: on the largest pages that are free and that it fills,
//! excluded from core dumps, touched once at the start.
//!
//! Every page is written by the thread that creates the region. So no page fault occurs in the data
//! path, and the pages are on the NUMA node of that thread: a worker creates its tables itself,
//! after it was pinned.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::{fmt, slice};

use crate::error::OutOfMemory;
use crate::huge_pages;
use crate::page_size::PageSize;
use crate::prefetch::prefetch;

/// The size of transparent huge pages.
const HUGE_PAGE_BYTES: usize = PageSize::Mib2.bytes();
const SMALL_PAGE_BYTES: usize = PageSize::Kib4.bytes();

/// An array of `len` elements of plain data (`Copy`, so nothing is dropped), aligned to at least 4
/// KiB.
pub struct Region<T: Copy> {
    start: NonNull<T>,
    len: usize,
    mapped_bytes: usize,
    page_size: PageSize,
}

/// A fresh anonymous mapping, all zero.
struct MemoryMapping {
    start: NonNull<u8>,
    bytes: usize,
    /// The size of the reserved huge pages under the mapping, or the ordinary one.
    reserved: PageSize,
}

impl<T: Copy> Region<T> {
    /// Maps `len` elements and sets each to `value`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the kernel refuses the mapping.
    pub fn new(len: usize, value: T) -> Result<Region<T>, OutOfMemory> {
        const { assert!(align_of::<T>() <= SMALL_PAGE_BYTES && size_of::<T>() > 0) };
        let bytes = len
            .max(1)
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes <= isize::MAX as usize - 2 * PageSize::Gib1.bytes())
            .ok_or(OutOfMemory { bytes: usize::MAX })?;
        let mapping = map(bytes)?;
        let start = mapping.start.cast::<T>();
        for index in 0..len {
            // JUSTIFICATION: the elements must be written before a slice over them may exist.
            // SAFETY: index < len and len * size_of::<T>() <= the bytes mapped, so the address is
            // inside.
            let element = unsafe { start.add(index) };
            // JUSTIFICATION: as above.
            // SAFETY: the element is mapped, writable, aligned (page aligned start) and no other
            // code has a reference to it.
            unsafe { element.write(value) };
        }
        let page_size = match mapping.reserved {
            PageSize::Kib4
                if bytes >= HUGE_PAGE_BYTES
                    && huge_pages::backs(mapping.start.as_ptr() as usize) =>
            {
                PageSize::Mib2
            }
            reserved => reserved,
        };
        Ok(Region { start, len, mapped_bytes: mapping.bytes, page_size })
    }

    /// Returns the bytes of memory that a region of `len` elements takes, in whole pages of at most
    /// 2 MiB. On pages of 1 GiB, where there are some, it takes whole ones: see
    /// [`PageSize::huge_for`].
    pub fn bytes_for(len: usize) -> usize {
        let bytes = len.max(1).saturating_mul(size_of::<T>());
        PageSize::usual_for(bytes).round_up(bytes)
    }

    /// Returns the bytes of memory that the region takes, in whole pages.
    pub fn bytes(&self) -> usize {
        self.mapped_bytes
    }

    /// Prefetches the first cache line of an element, in any state. An index out of range is
    /// harmless.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        prefetch(self, index);
    }

    /// Returns the size of the pages that at least half of the memory lies on.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }
}

impl<T: Copy> Deref for Region<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // JUSTIFICATION: the memory comes from mmap, so a slice has to be made from a raw pointer.
        // SAFETY: `new` wrote all `len` elements, the mapping lives as long as self, and T: Copy
        // has no drop that could invalidate them. &self forbids writers.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for Region<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // JUSTIFICATION: as in `deref`.
        // SAFETY: as in `deref`, and &mut self makes this the only reference.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Copy> Drop for Region<T> {
    fn drop(&mut self) {
        unmap(self.start.cast(), self.mapped_bytes);
    }
}

// JUSTIFICATION: a table is built by one thread and may be moved to another; a raw pointer hides
// that it is owned.
// SAFETY: the region owns its mapping alone, like a Box<[T]>.
unsafe impl<T: Copy + Send> Send for Region<T> {}
// JUSTIFICATION: as above.
// SAFETY: a shared region gives out shared slices only, like a Box<[T]>.
unsafe impl<T: Copy + Sync> Sync for Region<T> {}

impl<T: Copy> fmt::Debug for Region<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len)
            .field("bytes", &self.mapped_bytes)
            .field("page_size", &self.page_size)
            .finish()
    }
}

/// Maps at least `bytes`: on reserved huge pages, the largest first, if the system has enough of
/// one size, otherwise on memory that the kernel is asked to back with transparent huge pages.
fn map(bytes: usize) -> Result<MemoryMapping, OutOfMemory> {
    let on_reserved = |&page: &PageSize| {
        let bytes = page.round_up(bytes);
        Some(MemoryMapping { start: mmap_hugetlb(bytes, page)?, bytes, reserved: page })
    };
    let usual = PageSize::usual_for(bytes);
    let mapping = match PageSize::huge_for(bytes).iter().find_map(on_reserved) {
        Some(mapping) => mapping,
        None if usual == PageSize::Kib4 => {
            let bytes = usual.round_up(bytes);
            let start = mmap(bytes, 0).ok_or(OutOfMemory { bytes })?;
            MemoryMapping { start, bytes, reserved: PageSize::Kib4 }
        }
        None => map_transparent(usual.round_up(bytes))?,
    };
    #[cfg(target_os = "linux")]
    madvise(&mapping, libc::MADV_DONTDUMP);
    Ok(mapping)
}

/// Maps memory at a multiple of the huge page size, which transparent huge pages need: maps one
/// huge page more and unmaps the ends.
fn map_transparent(bytes: usize) -> Result<MemoryMapping, OutOfMemory> {
    let start = mmap(bytes + HUGE_PAGE_BYTES, 0).ok_or(OutOfMemory { bytes })?;
    let head = start.align_offset(HUGE_PAGE_BYTES);
    // JUSTIFICATION: pointer arithmetic keeps the pointer's provenance, integers would lose it.
    // SAFETY: head < HUGE_PAGE_BYTES, which is the surplus mapped above.
    let aligned = unsafe { start.add(head) };
    // JUSTIFICATION: as above.
    // SAFETY: head + bytes <= the bytes mapped, so this is at most one past the end.
    let end = unsafe { aligned.add(bytes) };
    unmap(start, head);
    unmap(end, HUGE_PAGE_BYTES - head);
    let mapping = MemoryMapping { start: aligned, bytes, reserved: PageSize::Kib4 };
    #[cfg(target_os = "linux")]
    madvise(&mapping, libc::MADV_HUGEPAGE);
    Ok(mapping)
}

/// Maps reserved huge pages; `None` if fewer than that are free.
#[cfg(target_os = "linux")]
fn mmap_hugetlb(bytes: usize, page: PageSize) -> Option<NonNull<u8>> {
    let size = match page {
        PageSize::Kib4 => return None,
        PageSize::Mib2 => libc::MAP_HUGE_2MB,
        PageSize::Gib1 => libc::MAP_HUGE_1GB,
    };
    mmap(bytes, libc::MAP_HUGETLB | size)
}

#[cfg(not(target_os = "linux"))]
fn mmap_hugetlb(_bytes: usize, _page: PageSize) -> Option<NonNull<u8>> {
    None
}

fn mmap(bytes: usize, flags: libc::c_int) -> Option<NonNull<u8>> {
    // JUSTIFICATION: allocators of the standard library provide neither huge pages nor memory
    // excluded from core dumps.
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing
    // memory.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return None;
    }
    NonNull::new(address.cast())
}

/// Gives advice to the kernel. A refusal (an old kernel, a container's policy) costs speed or disk
/// space, never correctness.
#[cfg(target_os = "linux")]
fn madvise(mapping: &MemoryMapping, advice: libc::c_int) {
    // JUSTIFICATION: there is no other way to request huge pages or to exclude the table from core
    // dumps.
    // SAFETY: the range is a mapping made here; neither advice used here changes its content.
    unsafe { libc::madvise(mapping.start.as_ptr().cast(), mapping.bytes, advice) };
}

fn unmap(start: NonNull<u8>, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // JUSTIFICATION: memory from mmap has to be released by munmap.
    // SAFETY: the callers pass whole pages of their own mapping, to which no reference remains.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_the_value_and_keep_what_is_written() {
        for len in [0, 1, 1000, 600_000] {
            let mut region = Region::new(len, 7_u64).unwrap();
            assert_eq!(region.len(), len);
            assert!(region.bytes() >= len * 8);
            assert_eq!(region.as_ptr() as usize % SMALL_PAGE_BYTES, 0);
            assert!(region.iter().all(|&value| value == 7));
            if let Some(last) = region.last_mut() {
                *last = 8;
            }
            assert_eq!(region.last().copied(), (len > 0).then_some(8));
        }
    }

    #[test]
    fn a_large_region_is_aligned_for_huge_pages() {
        let region = Region::new(5 << 20, 0_u8).unwrap();
        assert_eq!(region.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        assert_eq!(region.bytes(), 6 << 20);
    }

    #[test]
    fn a_region_takes_what_was_computed_for_pages_of_at_most_2_mib() {
        for len in [0, 1, 4096, 4097, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 9 << 20] {
            let region = Region::new(len, 0_u8).unwrap();
            assert_eq!(region.bytes(), Region::<u8>::bytes_for(len), "{len}");
            assert!(region.page_size() <= PageSize::Mib2);
            assert!(len >= 2 << 20 || region.page_size() == PageSize::Kib4);
        }
    }

    /// 2^48 bytes exceed the address space of a process whatever the overcommit policy.
    #[test]
    fn a_refusal_says_how_many_bytes_were_wanted() {
        let error = Region::new(1 << 42, [0_u8; 64]).unwrap_err();
        assert_eq!(error.bytes, 1 << 48);
        assert!(error.to_string().contains("281474976710656 bytes"));
        let error = Region::new(usize::MAX, [0_u8; 64]).unwrap_err();
        assert_eq!(error.bytes, usize::MAX);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_region_is_left_out_of_core_dumps() {
        let region = Region::new(3 << 20, 1_u8).unwrap();
        let start = region.as_ptr() as usize;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        for line in smaps.lines() {
            if let Some(range) = huge_pages::range_of(line) {
                is_here = range.contains(&start);
            }
            if let (true, Some(flags)) = (is_here, line.strip_prefix("VmFlags:")) {
                assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{line}");
                return;
            }
        }
        panic!("the region is not in smaps");
    }
}
