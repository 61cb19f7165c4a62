//! Handles of outer addresses.

use std::collections::HashMap;

use super::*;

fn table(subscribers: usize) -> OuterAddresses {
    let subscribers6 = vec!["2001:db8:e::/48".parse().unwrap()];
    let config = NatConfig { subscribers6, seed: [1, 2, 3, 4], ..NatConfig::default() };
    OuterAddresses::new(&config, subscribers).unwrap()
}

fn address(n: u64) -> [u64; 2] {
    [0x2001_0db8_000e_0000, n]
}

#[test]
fn an_address_that_is_no_homes_gets_no_handle() {
    let mut table = table(8);
    assert_eq!(table.intern([0x2001_0db8_000f_0000, 1]), None);
    assert_eq!(table.len(), 0);
}

#[test]
fn forged_addresses_leave_nothing_behind() {
    let mut table = table(8);
    for burst in 0..1000 {
        for n in 0..64 {
            let handle = table.intern(address(burst * 64 + n)).unwrap();
            assert_eq!(table.address(handle), Some(address(burst * 64 + n)));
            assert_eq!(table.intern(address(burst * 64 + n)), Some(handle), "again in its burst");
        }
        table.release_unused();
        assert_eq!(table.len(), 0);
    }
    table.audit([].into_iter());
}

#[test]
fn handle_lives_as_long_as_its_last_subscriber() {
    let mut table = table(8);
    let handle = table.intern(address(1)).unwrap();
    assert!(handle >= OUTER_HANDLES);
    table.retain(handle);
    table.retain(handle);
    table.release_unused();
    table.release(handle);
    assert_eq!((table.find(address(1)), table.len()), (Some(handle), 1));
    table.release(handle);
    assert_eq!(table.find(address(1)), Some(handle), "packets of the burst may have it");
    table.release_unused();
    assert_eq!((table.find(address(1)), table.address(handle), table.len()), (None, None, 0));
}

#[test]
fn subscriber_that_comes_and_goes_within_a_burst_leaves_no_handle_behind() {
    let mut table = table(8);
    let handle = table.intern(address(1)).unwrap();
    table.retain(handle);
    table.release(handle);
    assert_eq!(table.intern(address(1)), Some(handle));
    table.release_unused();
    assert_eq!(table.len(), 0);
}

/// Slots come again in their order of return, each with another generation.
#[test]
fn handle_comes_again_only_after_many_others() {
    let mut table = table(8);
    let mut seen = HashMap::new();
    for n in 0..1 << 20 {
        let handle = table.intern(address(n)).unwrap();
        assert_eq!(seen.insert(handle, n), None, "handle {handle:#x}");
        table.release_unused();
    }
}

/// What remembers a home for a while after its last flow must not reach the next one of its slot.
#[test]
fn handle_that_was_given_back_has_no_address_whatever_its_slot_has() {
    let mut table = table(8);
    let first = table.intern(address(0)).unwrap();
    table.release_unused();
    let mut has_same_slot = false;
    for n in 1..2000 {
        let handle = table.intern(address(n)).unwrap();
        has_same_slot |= table.slot_of(handle) == table.slot_of(first);
        assert_eq!((table.address(first), table.address(handle)), (None, Some(address(n))));
        table.release_unused();
    }
    assert!(has_same_slot);
}

#[test]
fn every_home_of_a_full_table_is_found_and_nearly_all_are_near() {
    let mut table = table(10_000);
    let count = (table.capacity() / 2).min(10_000);
    let handles: Vec<_> = (0..count).map(|n| table.intern(address(n)).unwrap()).collect();
    for (n, handle) in (0..count).zip(&handles) {
        table.retain(*handle);
        assert_eq!(table.find(address(n)), Some(*handle));
    }
    let is_near = |n: &u64| table.near.get(table.hash(address(*n)), address(*n)) != 0;
    let near = (0..count).filter(is_near).count() as u64;
    assert!(near < count && near > count * 95 / 100, "{near} of {count} are near, and not all");
    for (n, handle) in (0..count).zip(handles).step_by(2) {
        table.release(handle);
        table.release_unused();
        assert_eq!(table.find(address(n)), None);
    }
    assert!((1..count).step_by(2).all(|n| table.find(address(n)).is_some()));
}

#[test]
fn table_equals_a_map_while_homes_come_and_go() {
    bolero::check!().with_type::<Vec<(u8, u8)>>().for_each(|steps| {
        let mut table = table(64);
        let mut model: HashMap<u64, (u32, u32)> = HashMap::new();
        for &(step, n) in steps {
            let n = u64::from(n % 32);
            match step % 3 {
                0 => {
                    let handle = table.intern(address(n)).unwrap();
                    table.retain(handle);
                    let (known, count) = model.entry(n).or_insert((handle, 0));
                    assert_eq!(*known, handle);
                    *count += 1;
                }
                1 => {
                    if let Some((handle, count)) = model.get_mut(&n) {
                        table.release(*handle);
                        *count -= 1;
                    }
                }
                _ => table.release_unused(),
            }
            table.release_unused();
            model.retain(|_, (_, count)| *count > 0);
            for (n, (handle, _)) in &model {
                assert_eq!(table.find(address(*n)), Some(*handle));
                assert_eq!(table.address(*handle), Some(address(*n)));
            }
            assert_eq!(table.len(), model.len());
        }
        table.audit(model.values().flat_map(|&(handle, count)| (0..count).map(move |_| handle)));
    });
}
