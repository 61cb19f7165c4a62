//! Reduces a failing history to the few faults that make it fail: delta debugging over the list
//! (Zeller and Hildebrandt 2002).

use crate::fault::Timed;
use crate::options::Options;
use crate::play::play_with;

/// Returns the faults that are needed to make the history of a seed fail. `faults` must fail.
pub fn shrink(seed: u64, options: &Options, faults: &[Timed]) -> Vec<Timed> {
    let fails = |faults: &[Timed]| play_with(seed, options, faults, false).violation.is_some();
    minimal(faults, fails)
}

/// Returns the smallest list that `fails` and that is found by leaving out parts, from halves down
/// to single elements.
fn minimal<T: Clone>(all: &[T], fails: impl Fn(&[T]) -> bool) -> Vec<T> {
    if fails(&[]) {
        return Vec::new();
    }
    let mut left = all.to_vec();
    let mut parts = 2;
    while left.len() > 1 {
        let size = left.len().div_ceil(parts);
        let without = |at: usize| -> Vec<T> {
            let part = at * size..(at + 1) * size;
            let kept = left.iter().enumerate().filter(|(number, _)| !part.contains(number));
            kept.map(|(_, one)| one.clone()).collect()
        };
        match (0..left.len().div_ceil(size)).map(without).find(|kept| fails(kept)) {
            Some(kept) => {
                left = kept;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(left.len()),
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_faults_needed_to_fail_are_left() {
        let all: Vec<u32> = (0..20).collect();
        let fails = |list: &[u32]| list.contains(&3) && list.contains(&17);
        assert_eq!(minimal(&all, fails), [3, 17]);
        assert_eq!(minimal(&all, |list| list.len() >= 5).len(), 5);
        assert!(minimal(&all, |_| true).is_empty());
    }
}
