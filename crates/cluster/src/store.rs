//! Reading, and writing only what nobody else has written meanwhile.
//!
//! Every write is a compare-and-swap: each key that it touches has the revision that its writer saw, or is absent.
//! The transactions of a controller compare its leadership too. Nothing is repeated here: a write without an answer
//! may have happened, and only its writer knows whether reading again and comparing is right.

use std::sync::Arc;

use weir_ids::ClusterName;

use crate::counters::count;
use crate::election::Leadership;
use crate::error::Error;
use crate::keys::{Key, Range};
use crate::link::Link;
use crate::list::list;
use crate::revision::{Place, Revision, Versioned};
use crate::swap::{Change, Outcome, Swap, transaction};
use crate::txn::{decided, txn_of, versioned};

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
        let outcome = self.try_transact(swaps, leader).await.unwrap_or_else(Outcome::of_error);
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
        let transaction = transaction(&self.link.keys, swaps, leader)
            .map_err(|(cause, detail)| Error::unsent("any", &operation, cause, detail))?;
        let txn = txn_of(transaction);
        let response = self.link.request(&operation, async |mut client| client.txn(txn).await);
        Ok(Outcome::of_decided(decided(&response.await?), leader))
    }

    fn operation(&self, swaps: &[Swap]) -> String {
        match swaps {
            [one] => format!("write {}", self.link.keys.path(&one.key)),
            many => format!("write {} keys of {}", many.len(), self.link.keys.prefix()),
        }
    }
}
