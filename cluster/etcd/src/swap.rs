//! Compare-and-swap: the transaction for a write of several keys, and the meaning of its answer.
//!
//! Each key must have the revision that its writer saw, or be absent; a controller's writes also
//! compare its leadership: the create revision and the lease of the leader's key. Pure:
//! [`Store`](crate::Store) does the requests.

use std::collections::BTreeSet;

use crate::error::{Cause, Error};
use crate::keys::{Key, Keys};
use crate::leadership::Leadership;
use crate::revision::{Revision, Versioned};
use crate::transaction::{Compare, Decided, Operation, Transaction};

/// Most keys of one transaction: etcd takes 128 comparisons, and two are the leader's.
pub const TRANSACTION_KEYS_MAX: usize = 126;
/// Most bytes of values in one transaction: etcd takes 1.5 MiB, with keys and comparisons.
pub const TRANSACTION_BYTES_MAX: usize = 1_500_000;

/// One key's part in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    pub key: Key,
    /// The mod revision that the key must have; none: it must not exist.
    pub expected: Option<Revision>,
    pub change: SwapChange,
}

/// The change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapChange {
    Put(Vec<u8>),
    Delete,
    /// The key is only compared.
    Keep,
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Written; holds the mod revision of every key that was put.
    Done(Revision),
    /// Not written: another writer was faster. Holds the current state of each key of the
    /// transaction, in its order.
    LostRace(Vec<Option<Versioned>>),
    /// Not written: another controller is the leader, or none is.
    NotLeader,
    /// Not written: etcd cannot be reached or takes no writes. May be retried.
    Unavailable(Error),
    /// **Perhaps written**: no answer. Read the keys before a retry.
    Unknown(Error),
    /// Not written, and a retry does not help.
    Refused(Error),
}

impl Outcome {
    /// Interprets the answer to [`transaction`]; `leader` must be the same as there.
    pub fn of_decided(decided: Decided, leader: Option<Leadership>) -> Self {
        if decided.has_held {
            return Self::Done(decided.revision);
        }
        let mut current = decided.found;
        if let Some(leader) = leader {
            let found = current.pop().flatten();
            let is_leader = found.is_some_and(|found| {
                found.create_revision == leader.create_revision && found.lease == Some(leader.lease)
            });
            if !is_leader {
                return Self::NotLeader;
            }
        }
        Self::LostRace(current)
    }

    /// Interprets the error of a failed write.
    pub fn of_error(error: Error) -> Self {
        match error.cause {
            _ if error.may_have_happened => Self::Unknown(error),
            Cause::PermissionDenied | Cause::TooLarge | Cause::Invalid => Self::Refused(error),
            _ => Self::Unavailable(error),
        }
    }
}

/// Builds a transaction that writes all or nothing: every key must be as expected, and `leader`, if
/// given, must still lead. If the comparison fails, the transaction reads the keys, and the
/// leader's key after them.
///
/// # Errors
/// When etcd would refuse the transaction, with the limit that it exceeds.
pub fn transaction(
    keys: &Keys,
    swaps: &[Swap],
    leader: Option<Leadership>,
) -> Result<Transaction, (Cause, String)> {
    check(swaps)?;
    let mut transaction = Transaction::default();
    for swap in swaps {
        let path = keys.path(&swap.key);
        transaction.compares.push(match swap.expected {
            Some(revision) => Compare::ModRevision(path.clone(), revision),
            None => Compare::absent(&path),
        });
        transaction.otherwise.push(Operation::Get(path.clone()));
        transaction.then.extend(match &swap.change {
            SwapChange::Put(value) => {
                Some(Operation::Put { path, value: value.clone(), lease: None })
            }
            SwapChange::Delete => Some(Operation::Delete(path)),
            SwapChange::Keep => None,
        });
    }
    if let Some(leader) = leader {
        let path = keys.path(&Key::Leader);
        transaction.compares.extend([
            Compare::CreateRevision(path.clone(), leader.create_revision),
            Compare::Lease(path.clone(), leader.lease),
        ]);
        transaction.otherwise.push(Operation::Get(path));
    }
    Ok(transaction)
}

fn check(swaps: &[Swap]) -> Result<(), (Cause, String)> {
    let bytes: usize = swaps
        .iter()
        .map(|swap| if let SwapChange::Put(value) = &swap.change { value.len() } else { 0 })
        .sum();
    if swaps.len() > TRANSACTION_KEYS_MAX {
        let detail = format!("{} keys, at most {TRANSACTION_KEYS_MAX}", swaps.len());
        return Err((Cause::TooLarge, detail));
    }
    if bytes > TRANSACTION_BYTES_MAX {
        let detail = format!("{bytes} bytes, at most {TRANSACTION_BYTES_MAX}");
        return Err((Cause::TooLarge, detail));
    }
    let different: BTreeSet<&Key> = swaps.iter().map(|swap| &swap.key).collect();
    if different.len() < swaps.len() {
        return Err((Cause::Invalid, "a key is named twice".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weir_ids::ShardId;

    use std::time::Instant;

    use super::*;
    use crate::revision::LeaseId;

    fn leadership() -> Leadership {
        Leadership { create_revision: Revision(3), lease: LeaseId(7), valid_until: Instant::now() }
    }

    fn found(create_revision: i64, lease: i64) -> Option<Versioned> {
        let (create_revision, mod_revision) = (Revision(create_revision), Revision(9));
        Some(Versioned {
            value: Vec::new(),
            create_revision,
            mod_revision,
            lease: Some(LeaseId(lease)),
        })
    }

    #[test]
    fn a_write_compares_its_keys_and_its_writers_leadership() {
        let keys = Keys::new("north".parse().unwrap());
        let swap =
            |shard, expected, change| Swap { key: Key::Shard(ShardId(shard)), expected, change };
        let put = SwapChange::Put(b"x".to_vec());
        let swaps = [swap(1, Some(Revision(5)), put), swap(2, None, SwapChange::Keep)];
        let [one, two] = [1, 2].map(|shard| keys.path(&Key::Shard(ShardId(shard))));
        let leader = keys.path(&Key::Leader);
        let asked = transaction(&keys, &swaps, Some(leadership())).unwrap();
        let compares = vec![
            Compare::ModRevision(one.clone(), Revision(5)),
            Compare::absent(&two),
            Compare::CreateRevision(leader.clone(), Revision(3)),
            Compare::Lease(leader.clone(), LeaseId(7)),
        ];
        assert_eq!(asked.compares, compares);
        let put = Operation::Put { path: one.clone(), value: b"x".to_vec(), lease: None };
        assert_eq!(asked.then, [put], "a key that is only compared is not written");
        assert_eq!(asked.otherwise, [one, two, leader].map(Operation::Get));
    }

    #[test]
    fn a_deposed_leader_gets_not_leader_and_not_a_lost_race() {
        let refused = |leader| {
            let found = vec![found(4, 0), leader];
            let decided = Decided { has_held: false, revision: Revision(9), found };
            Outcome::of_decided(decided, Some(leadership()))
        };
        assert_eq!(refused(found(3, 7)), Outcome::LostRace(vec![found(4, 0)]));
        // A restored etcd may have given the same revision to another leader.
        let others = [None, found(2, 7), found(3, 8)];
        assert!(others.into_iter().all(|leader| refused(leader) == Outcome::NotLeader));
    }
}
