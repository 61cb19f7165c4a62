//! An allocator that takes each allocation from the kernel as a [`Region`]: on huge pages, like
//! weir's own tables.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use weir_flow::Region;

const HUGE_PAGE_BYTES: usize = 2 << 20;
const SMALL_PAGE_BYTES: usize = 4 << 10;

/// An allocator that gives each allocation whole pages of its own.
#[derive(Clone, Copy, Debug)]
pub struct HugePages;

/// Returns the bytes that a region of this length maps.
fn mapped_bytes(len: usize) -> usize {
    let page = if len.max(1) < HUGE_PAGE_BYTES { SMALL_PAGE_BYTES } else { HUGE_PAGE_BYTES };
    len.max(1).next_multiple_of(page)
}

// JUSTIFICATION: hashbrown takes huge pages only through an allocator.
// SAFETY: each block is a separate mapping, at least as large as requested and aligned to a page,
// that stays until it is deallocated; the allocator has no state, so any copy may free it.
unsafe impl Allocator for HugePages {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.align() > SMALL_PAGE_BYTES {
            return Err(AllocError);
        }
        let region = Region::new(layout.size(), 0_u8).map_err(|_| AllocError)?;
        assert_eq!(region.bytes(), mapped_bytes(layout.size()), "a region takes whole pages");
        let mut region = ManuallyDrop::new(region);
        let start = NonNull::new(region.as_mut_ptr()).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(start, layout.size()))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        // JUSTIFICATION: the region was forgotten so that its memory stays; it must be unmapped
        // here.
        // SAFETY: the caller returns a block of `allocate`, which is the whole of a mapping of this
        // size.
        unsafe { libc::munmap(start.as_ptr().cast(), mapped_bytes(layout.size())) };
    }
}
