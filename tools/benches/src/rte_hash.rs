//! DPDK's `rte_hash`, through its own functions; a C file makes the table, as its parameters are a
//! C structure.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use weir_flow::{OutOfMemory, Region};

use crate::BURST_MAX;
use crate::flow::{FlowKey, FlowRecord};
use crate::subject::Table;

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

type Keys = *mut *const c_void;

// JUSTIFICATION: the rival is a C library.
// SAFETY: the signatures are those of rte_hash.h (DPDK 22.11) and of shim/rte_hash.c.
unsafe extern "C" {
    fn weir_benches_eal_init(core: *mut c_char) -> c_int;
    fn weir_benches_rte_hash_create(
        name: *const c_char,
        entries: u32,
        key_bytes: u32,
    ) -> *mut Opaque;
    fn rte_hash_free(table: *mut Opaque);
    fn rte_hash_add_key(table: *const Opaque, key: *const c_void) -> i32;
    fn rte_hash_del_key(table: *const Opaque, key: *const c_void) -> i32;
    fn rte_hash_lookup_bulk(
        table: *const Opaque,
        keys: Keys,
        count: u32,
        positions: *mut i32,
    ) -> c_int;
    fn rte_hash_iterate(
        table: *const Opaque,
        key: *mut *const c_void,
        data: *mut *mut c_void,
        next: *mut u32,
    ) -> i32;
}

/// Starts DPDK's environment, once per process: huge pages, no device. It pins the calling thread
/// to the core that the thread runs on.
///
/// # Errors
/// A sentence, if there are not enough rights or no huge pages.
pub fn start_eal() -> Result<(), String> {
    static STARTED: OnceLock<c_int> = OnceLock::new();
    let code = *STARTED.get_or_init(|| {
        // JUSTIFICATION: the standard library does not say which core a thread runs on.
        // SAFETY: the function takes nothing and touches no memory of ours.
        let core = unsafe { libc::sched_getcpu() };
        let core = CString::new(core.max(0).to_string()).expect("digits have no NUL");
        // JUSTIFICATION: DPDK is C.
        // SAFETY: a NUL-terminated string that is never freed, as DPDK may keep it.
        unsafe { weir_benches_eal_init(core.into_raw()) }
    });
    match code {
        0 => Ok(()),
        code => Err(format!("DPDK does not start (error {}): run as root with huge pages", -code)),
    }
}

/// A table of `rte_hash`, with or without the 64-byte records that its positions lead to.
#[derive(Debug)]
pub struct RteHash {
    table: NonNull<Opaque>,
    /// Records by position.
    records: Option<Region<FlowRecord>>,
    slots: usize,
}

impl std::fmt::Debug for Opaque {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("rte_hash")
    }
}

impl RteHash {
    /// Makes a table of `slots` slots, a power of two. The EAL must have been started.
    ///
    /// # Errors
    /// [`OutOfMemory`], if there are not enough free huge pages.
    pub fn new(slots: usize, has_records: bool) -> Result<RteHash, OutOfMemory> {
        assert!(slots.is_power_of_two(), "rte_hash would round {slots} slots up");
        let name = if has_records { c"records" } else { c"positions" };
        // JUSTIFICATION: DPDK is C.
        // SAFETY: the name is a NUL-terminated string, copied by the callee.
        let table = unsafe {
            weir_benches_rte_hash_create(name.as_ptr(), slots as u32, size_of::<FlowKey>() as u32)
        };
        let table = NonNull::new(table).ok_or(OutOfMemory { bytes: bytes_of(slots) })?;
        let mut table = RteHash { table, records: None, slots };
        if has_records {
            table.records = Some(Region::new(slots, FlowRecord::of(FlowKey::default(), 0))?);
        }
        Ok(table)
    }

    /// Looks up to [`BURST_MAX`] keys up. Returns the position of each key, negative for an absent
    /// one.
    #[inline(always)]
    fn look_up(&self, keys: &[FlowKey]) -> [i32; BURST_MAX] {
        assert!(keys.len() <= BURST_MAX);
        let mut pointers = [ptr::null(); BURST_MAX];
        let mut positions = [0; BURST_MAX];
        for (key, pointer) in keys.iter().zip(&mut pointers) {
            *pointer = ptr::from_ref(key).cast();
        }
        // JUSTIFICATION: DPDK is C.
        // SAFETY: `pointers` and `positions` have at least as many elements as the count; each
        // pointer leads to a key of the table's length.
        unsafe {
            rte_hash_lookup_bulk(
                self.table.as_ptr(),
                pointers.as_mut_ptr(),
                keys.len() as u32,
                positions.as_mut_ptr(),
            )
        };
        positions
    }

    fn remove_one(&mut self, key: &FlowKey) {
        // JUSTIFICATION: DPDK is C.
        // SAFETY: the key has the table's key length; &mut self: no reader runs meanwhile.
        let position = unsafe { rte_hash_del_key(self.table.as_ptr(), ptr::from_ref(key).cast()) };
        assert!(position >= 0, "a removed flow was in the table");
    }

    /// Calls `visit` with each key and its position.
    fn iterate(&self, mut visit: impl FnMut(&FlowKey, usize)) {
        let (mut key, mut data, mut next) = (ptr::null(), ptr::null_mut(), 0);
        loop {
            // JUSTIFICATION: DPDK is C.
            // SAFETY: three places that the callee writes.
            let position =
                unsafe { rte_hash_iterate(self.table.as_ptr(), &mut key, &mut data, &mut next) };
            let Ok(position) = usize::try_from(position) else { return };
            // JUSTIFICATION: the key lies in the table of DPDK.
            // SAFETY: a pointer to a key of the table's length in a 16-byte aligned slot, valid
            // until the key is deleted.
            let key = unsafe { &*key.cast::<FlowKey>() };
            visit(key, position);
        }
    }
}

/// Returns the bytes of a table, by the layout of rte_hash 22.11: a bucket of eight slots takes 64;
/// a slot for a key of 16 bytes, with 8 bytes of data, takes 32; the ring of free slots takes 4 per
/// slot and is a power of two long.
fn bytes_of(slots: usize) -> usize {
    slots / 8 * 64 + slots * 32 + (slots + 1).next_power_of_two() * 4
}

impl Drop for RteHash {
    fn drop(&mut self) {
        // JUSTIFICATION: DPDK is C.
        // SAFETY: made by rte_hash_create, freed once and not used afterwards.
        unsafe { rte_hash_free(self.table.as_ptr()) };
    }
}

impl Table for RteHash {
    fn find(&mut self, keys: &[FlowKey], burst: usize) -> usize {
        let mut hits = 0;
        for keys in keys.chunks(burst) {
            let positions = self.look_up(keys);
            let positions = &positions[..keys.len()];
            let Some(records) = &self.records else {
                hits += positions.iter().filter(|&&position| position >= 0).count();
                continue;
            };
            for &position in positions {
                records.prefetch(position as usize);
            }
            for &position in positions {
                let record = usize::try_from(position).ok().map(|position| &records[position]);
                hits += record.map_or(0, |record| record.is_live as usize);
            }
        }
        hits
    }

    fn insert(&mut self, keys: &[FlowKey], numbers: &[u32], burst: usize) {
        for (keys, numbers) in keys.chunks(burst).zip(numbers.chunks(burst)) {
            let positions = self.look_up(keys);
            assert!(positions[..keys.len()].iter().all(|&position| position < 0), "flows are new");
            for (&key, &number) in keys.iter().zip(numbers) {
                // JUSTIFICATION: DPDK is C.
                // SAFETY: the key has the table's key length and is copied; &mut self: no reader
                // runs meanwhile.
                let position =
                    unsafe { rte_hash_add_key(self.table.as_ptr(), ptr::from_ref(&key).cast()) };
                assert!(position >= 0, "rte_hash is full: error {}", -position);
                if let Some(records) = &mut self.records {
                    records[position as usize] = FlowRecord::of(key, number);
                }
            }
        }
    }

    fn remove(&mut self, keys: &[FlowKey], _burst: usize) {
        for key in keys {
            self.remove_one(key);
        }
    }

    fn sweep(&mut self, class: u32, ended: &mut Vec<u32>) -> bool {
        let Some(records) = &self.records else { return false };
        let first = ended.len();
        let mut due = Vec::with_capacity(records.len() / 16);
        self.iterate(|key, position| {
            if records[position].is_due(class) {
                ended.push(records[position].number);
                due.push(*key);
            }
        });
        assert_eq!(ended.len() - first, due.len());
        for key in &due {
            self.remove_one(key);
        }
        true
    }

    fn walk(&mut self) -> Option<u64> {
        let records = self.records.as_ref()?;
        let mut sum = 0;
        self.iterate(|_, position| sum += u64::from(records[position].number));
        Some(sum)
    }

    fn bytes(&self) -> usize {
        bytes_of(self.slots) + self.records.as_ref().map_or(0, Region::bytes)
    }

    fn load(&self, entries: usize) -> f64 {
        entries as f64 / self.slots as f64
    }
}
