//! Reading, and writing only what nobody else has written meanwhile.
//!
//! Every write is a compare-and-swap: each key that it touches has the revision that its writer saw, or is absent.
//! The transactions of a controller compare its leadership too. Nothing is repeated here: a write without an answer
//! may have happened, and only its writer knows whether reading again and comparing is right.

use std::collections::BTreeSet;
use std::sync::Arc;

use etcd_client::{Compare, CompareOp, KeyValue, Txn, TxnOp, TxnOpResponse};

use crate::counters::count;
use crate::election::Leadership;
use crate::error::{Cause, Error};
use crate::keys::{ClusterName, Key, Range};
use crate::link::Link;
use crate::list::list;
use crate::revision::{LeaseId, Place, Revision, Versioned};

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
    pub change: Change,
}

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(Vec<u8>),
    Delete,
    /// It is only compared.
    Keep,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Written: the mod revision of everything that was put.
    Done(Revision),
    /// Not written: somebody wrote first. What each key of the transaction is now, in its order.
    LostRace(Vec<Option<Versioned>>),
    /// Not written: another one is the leader, or nobody.
    NotLeader,
    /// Not written: etcd cannot be reached or takes no writes now. May be tried again.
    Unavailable(Error),
    /// **Perhaps written**: no answer. Read the keys before trying again.
    Unknown(Error),
    /// Not written, and trying again does not help.
    Refused(Error),
}

/// etcd's store, as far as the keys of this cluster go. Clones share one connection.
#[derive(Clone, Debug)]
pub struct Store {
    link: Arc<Link>,
}

impl Store {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// The cluster whose keys these are.
    pub fn cluster(&self) -> &ClusterName {
        self.link.keys.cluster()
    }

    /// One key, as of now (linearizable).
    ///
    /// # Errors
    /// When etcd does not answer or refuses.
    pub async fn get(&self, key: &Key) -> Result<Option<Versioned>, Error> {
        let path = self.link.keys.path(key);
        let found = self
            .link
            .request(&format!("get {path}"), async |mut client| client.get(path, None).await)
            .await?;
        Ok(found.kvs().first().map(versioned))
    }

    /// Every key of a range that this version knows, at one revision.
    ///
    /// # Errors
    /// When etcd does not answer or refuses, or the range has more keys than `keys_max`.
    pub async fn list(&self, range: Range) -> Result<(Place, Vec<(Key, Versioned)>), Error> {
        let (place, found) = list(&self.link, range).await?;
        let known = found.iter().filter_map(|pair| {
            let key = self.link.keys.parse(pair.key()).ok()?;
            Some((key, versioned(pair)))
        });
        Ok((place, known.collect()))
    }

    /// Writes one key if nobody else has since `expected`; none: if it does not exist.
    pub async fn put(&self, key: Key, expected: Option<Revision>, value: Vec<u8>) -> Outcome {
        self.transact(&[Swap { key, expected, change: Change::Put(value) }], None).await
    }

    /// Writes all or nothing: every key as expected, and `leader`, if given, still the leader.
    pub async fn transact(&self, swaps: &[Swap], leader: Option<Leadership>) -> Outcome {
        let outcome =
            self.try_transact(swaps, leader).await.unwrap_or_else(|error| match error.cause {
                _ if error.may_have_happened => Outcome::Unknown(error),
                Cause::PermissionDenied | Cause::TooLarge | Cause::Invalid => {
                    Outcome::Refused(error)
                }
                _ => Outcome::Unavailable(error),
            });
        if matches!(outcome, Outcome::LostRace(_)) {
            count(&self.link.counters.conflicts_total);
        }
        outcome
    }

    async fn try_transact(
        &self,
        swaps: &[Swap],
        leader: Option<Leadership>,
    ) -> Result<Outcome, Error> {
        let operation = self.operation(swaps);
        check(swaps).map_err(|(cause, detail)| Error::unsent("any", &operation, cause, detail))?;
        let paths: Vec<String> = swaps.iter().map(|swap| self.link.keys.path(&swap.key)).collect();
        let leader_path = self.link.keys.path(&Key::Leader);
        let mut compares: Vec<Compare> =
            paths.iter().zip(swaps).map(|(path, swap)| compare(path, swap.expected)).collect();
        let mut looks: Vec<TxnOp> =
            paths.iter().map(|path| TxnOp::get(path.as_str(), None)).collect();
        if let Some(leader) = leader {
            compares.extend(leader_compares(&leader_path, leader));
            looks.push(TxnOp::get(leader_path.as_str(), None));
        }
        let changes: Vec<TxnOp> = paths
            .iter()
            .zip(swaps)
            .filter_map(|(path, swap)| match &swap.change {
                Change::Put(value) => Some(TxnOp::put(path.as_str(), value.clone(), None)),
                Change::Delete => Some(TxnOp::delete(path.as_str(), None)),
                Change::Keep => None,
            })
            .collect();
        let transaction = Txn::new().when(compares).and_then(changes).or_else(looks);
        let response =
            self.link.request(&operation, async |mut client| client.txn(transaction).await).await?;
        if response.succeeded() {
            return Ok(Outcome::Done(Revision(response.header().map_or(0, |it| it.revision()))));
        }
        let mut current: Vec<Option<Versioned>> =
            response.op_responses().iter().map(first_found).collect();
        if let Some(leader) = leader {
            let found = current.pop().flatten();
            let is_leader = found.is_some_and(|found| {
                found.create_revision == leader.create_revision && found.lease == Some(leader.lease)
            });
            if !is_leader {
                return Ok(Outcome::NotLeader);
            }
        }
        Ok(Outcome::LostRace(current))
    }

    fn operation(&self, swaps: &[Swap]) -> String {
        match swaps {
            [one] => format!("write {}", self.link.keys.path(&one.key)),
            many => format!("write {} keys of {}", many.len(), self.link.keys.prefix()),
        }
    }
}

fn check(swaps: &[Swap]) -> Result<(), (Cause, String)> {
    let bytes: usize = swaps
        .iter()
        .map(|swap| if let Change::Put(value) = &swap.change { value.len() } else { 0 })
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

fn compare(path: &str, expected: Option<Revision>) -> Compare {
    match expected {
        Some(revision) => Compare::mod_revision(path, CompareOp::Equal, revision.0),
        None => Compare::create_revision(path, CompareOp::Equal, 0),
    }
}

fn leader_compares(path: &str, leader: Leadership) -> [Compare; 2] {
    [
        Compare::create_revision(path, CompareOp::Equal, leader.create_revision.0),
        Compare::lease(path, CompareOp::Equal, leader.lease.0),
    ]
}

fn first_found(response: &TxnOpResponse) -> Option<Versioned> {
    match response {
        TxnOpResponse::Get(found) => found.kvs().first().map(versioned),
        _ => None,
    }
}

fn versioned(pair: &KeyValue) -> Versioned {
    Versioned {
        value: pair.value().to_vec(),
        create_revision: Revision(pair.create_revision()),
        mod_revision: Revision(pair.mod_revision()),
        lease: (pair.lease() != 0).then_some(LeaseId(pair.lease())),
    }
}
