//! Bugs planted on purpose: a simulator that does not find them proves nothing.
//!
//! The code under test does not contain them. Each bug is a patch, `tools/sim/mutations/NAME.patch`
//! ([`Mutation`]); [`mutate`] makes a [`Tree`] with all of them, each behind the run-time switch
//! [`is`], so one build of that tree contains every bug. In the source tree only the simulator
//! depends on this crate, and no code calls [`is`].

#![forbid(unsafe_code)]

mod mutation;

use std::cell::Cell;

pub use mutation::{Mutation, Tree, mutate};

thread_local! {
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Whether the bug of this name is planted in the calling thread.
pub fn is(bug: &str) -> bool {
    PLANTED.get() == Some(bug)
}

/// Plants the bug of this name, or none, in the calling thread.
pub fn plant(bug: Option<&'static str>) {
    PLANTED.set(bug);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bug_is_planted_in_one_thread_until_it_is_removed() {
        assert!(!is("SkipsGap"));
        plant(Some("SkipsGap"));
        assert!(is("SkipsGap") && !is("OldEpoch"));
        assert!(!std::thread::spawn(|| is("SkipsGap")).join().unwrap());
        plant(None);
        assert!(!is("SkipsGap"));
    }
}
