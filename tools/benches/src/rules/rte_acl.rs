//! DPDK's `rte_acl`. A filter is of one kind or of all, since an octet that is compared under a
//! mask has no other sets, and of all groups.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;

use weir_rules::{FlowKind, FlowKinds, NO_RULE, Question, RuleFilter, TOGETHER};

use crate::rules::RuleTable;

/// As `struct filter` of shim/rte_acl.c.
#[repr(C)]
struct AclFilter {
    rule: u32,
    remote: u32,
    local: u32,
    remote_ports: [u16; 2],
    local_ports: [u16; 2],
    remote_bits: u8,
    local_bits: u8,
    kind: u8,
    unused: u8,
}

/// As `struct flow` of shim/rte_acl.c.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct AclFlow {
    kind: u8,
    unused: [u8; 3],
    remote: u32,
    local: u32,
    remote_port: u16,
    local_port: u16,
}

#[repr(C)]
struct AclContext {
    _private: [u8; 0],
}

// JUSTIFICATION: the rival is a C library.
// SAFETY: the signatures are those of rte_acl.h (DPDK 22.11) and of shim/rte_acl.c.
unsafe extern "C" {
    fn weir_benches_rte_acl_build(
        filters: *const AclFilter,
        count: u32,
        error: *mut c_int,
    ) -> *mut AclContext;
    fn weir_benches_rte_acl_find(
        context: *const AclContext,
        flows: *const AclFlow,
        found: *mut u32,
        count: u32,
    ) -> c_int;
    fn rte_acl_free(context: *mut AclContext);
}

/// A built context.
#[derive(Debug)]
pub struct RteAcl {
    context: NonNull<AclContext>,
}

impl std::fmt::Debug for AclContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("rte_acl")
    }
}

impl RteAcl {
    /// Builds the context of these filters. The EAL must have been started.
    ///
    /// # Errors
    /// The library's error number.
    ///
    /// # Panics
    /// If a filter is of some kinds or of some groups.
    pub fn new(filters: &[RuleFilter<u32>]) -> Result<Self, c_int> {
        let filters: Vec<AclFilter> = filters
            .iter()
            .map(|filter| {
                assert_eq!(filter.groups, u16::MAX, "{filter:?}");
                AclFilter {
                    rule: filter.rule,
                    remote: filter.remote.address(),
                    local: filter.local.address(),
                    remote_ports: [filter.remote_ports.first, filter.remote_ports.last],
                    local_ports: [filter.local_ports.first, filter.local_ports.last],
                    remote_bits: filter.remote.bits(),
                    local_bits: filter.local.bits(),
                    kind: kind_bit(filter.kinds),
                    unused: 0,
                }
            })
            .collect();
        let mut error = 0;
        // JUSTIFICATION: DPDK is C.
        // SAFETY: as many filters as the count says, which the callee copies.
        let context = unsafe {
            weir_benches_rte_acl_build(filters.as_ptr(), filters.len() as u32, &mut error)
        };
        NonNull::new(context).map(|context| Self { context }).ok_or(error)
    }
}

/// Returns the octet of a filter of one kind; 0 for one of all kinds.
fn kind_bit(kinds: FlowKinds) -> u8 {
    if kinds == FlowKinds::ALL {
        return 0;
    }
    let bits = FlowKind::all().zip(0..).filter(|&(kind, _)| kinds.has(kind));
    let bits: Vec<u8> = bits.map(|(_, bit)| 1 << bit).collect();
    assert_eq!(bits.len(), 1, "a filter is of one kind or of all");
    bits[0]
}

impl RuleTable<u32> for RteAcl {
    fn find(&mut self, questions: &[Question<u32>], found: &mut [u32]) {
        assert!(questions.len() <= TOGETHER && found.len() >= questions.len());
        let mut flows = [AclFlow::default(); TOGETHER];
        for (flow, question) in flows.iter_mut().zip(questions) {
            *flow = AclFlow {
                kind: 1 << question.kind.number(),
                unused: [0; 3],
                remote: question.remote.to_be(),
                local: question.local.to_be(),
                remote_port: question.remote_port.to_be(),
                local_port: question.local_port.to_be(),
            };
        }
        // JUSTIFICATION: DPDK is C.
        // SAFETY: `flows` and `found` have at least as many elements as the count, at most 64.
        let error = unsafe {
            weir_benches_rte_acl_find(
                self.context.as_ptr(),
                flows.as_ptr(),
                found.as_mut_ptr(),
                questions.len() as u32,
            )
        };
        assert_eq!(error, 0, "rte_acl classifies");
        // A rule is one more than its number, and 0 is none.
        found.iter_mut().for_each(|found| *found = found.wrapping_sub(1));
        debug_assert_eq!(NO_RULE, u32::MAX);
    }
}

impl Drop for RteAcl {
    fn drop(&mut self) {
        // JUSTIFICATION: DPDK is C.
        // SAFETY: made by rte_acl_create, freed once and not used afterwards.
        unsafe { rte_acl_free(self.context.as_ptr()) };
    }
}
