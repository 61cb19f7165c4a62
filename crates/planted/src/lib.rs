//! Bugs planted on purpose: a simulator that does not find them proves nothing.
//!
//! Without the feature `planted` [`is`] is the constant false, and no binary has anything of this. With it a bug is there
//! in the thread that [`plant`]ed it, and in no other. Cargo unites the features of what one command builds: so the
//! simulator, which alone asks for it, is built and tested by commands of its own.

#![forbid(unsafe_code)]

#[cfg(feature = "planted")]
use std::cell::Cell;

macro_rules! bugs {
    ($($name:ident: $what:literal,)*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $what] $name,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What is done wrong.
            pub fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }
        }
    };
}

bugs! {
    OldEpoch: "a worker obeys entries that are older than the one it holds",
    ObeysOldBoot: "a worker takes the role that an entry gives to an earlier life of it",
    WritesOn: "a worker goes on writing a lane that has begun to move away from it",
    TakesUngranted: "a worker writes a lane before it was granted",
    ForgetsOthers: "who gets the lane of an ended worker does not ask the other members",
    WritesAllLanes: "an acting primary writes all lanes",
    SyncedAtOnce: "a replica says that it has a full copy before it has one",
    FencesTheSilent: "a node that nobody hears is taken for ended",
    KeepsTheDead: "members that have ended are not removed from the map",
    AnnouncesUnsynced: "a replica announces a route before it has a full copy",
    SkipsGap: "a stream goes on behind a gap",
    AcksUnstored: "a stream acknowledges what has not come",
    ForgetsResync: "a peer that began a new life is not copied to anew",
    CopiesNothing: "a copy ends before it has begun",
    CopyHoldsNoPort: "the port of a copied mapping counts as free",
    LeavesUnacknowledged: "packets that wait for copies leave before any has acknowledged",
    CountsUnsynced: "a replica whose copy is not complete counts for packets that wait for copies",
    ActsOnPacketsOnly: "a replica acts for a primary that nobody hears only when packets come to it",
    IgnoresWitnesses: "a replica acts for a silent primary that other nodes still hear",
    RejoinsAtOnce: "a worker that is fenced again and again has its routes set again at once",
    RestsNot: "a port is given again without having rested",
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Whether this bug is there.
#[inline(always)]
pub fn is(bug: Bug) -> bool {
    #[cfg(feature = "planted")]
    return PLANTED.get() == Some(bug);
    #[cfg(not(feature = "planted"))]
    {
        let _ = bug;
        false
    }
}

/// From now on this bug, or none, is there in the calling thread.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_says_what_it_is() {
        for (position, bug) in Bug::ALL.iter().enumerate() {
            assert!(!bug.what().is_empty());
            assert!(Bug::ALL[..position].iter().all(|other| other.what() != bug.what()));
            assert!(!is(*bug), "none is there unasked");
        }
    }
}
