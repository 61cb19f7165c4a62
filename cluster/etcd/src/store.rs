//! Reads of keys, and writes that fail if another client has written meanwhile.
//!
//! Every write is a compare-and-swap: each key that it touches must have the revision that its
//! writer saw, or be absent. The transactions of a controller also compare its leadership. Nothing
//! is retried here: a write without an answer may have happened, and only its writer knows whether
//! reading again and comparing is right.

use std::sync::Arc;

use weir_ids::ClusterName;

use crate::contact::Contact;
use crate::counters::count;
use crate::error::{Cause, Error};
use crate::keys::{Key, KeyRange, Keys};
use crate::leadership::Leadership;
use crate::list::KeyListing;
use crate::message::{EtcdAnswer, EtcdRequest, RequestFailure};
use crate::revision::{HistoryPosition, Revision, Versioned};
use crate::swap::{Outcome, Swap, SwapChange, transaction};
use crate::tasks::Commands;

/// Access to the keys of this cluster. Clones share one connection.
#[derive(Clone, Debug)]
pub struct Store {
    commands: Commands,
    keys: Keys,
    keys_max: usize,
    contact: Arc<Contact>,
}

impl Store {
    pub(crate) fn new(
        commands: Commands,
        keys: Keys,
        keys_max: usize,
        contact: Arc<Contact>,
    ) -> Self {
        Self { commands, keys, keys_max, contact }
    }

    /// Returns the cluster that the keys belong to.
    pub fn cluster(&self) -> &ClusterName {
        self.keys.cluster()
    }

    /// Reads one key at the current revision (linearizable).
    ///
    /// # Errors
    /// When etcd does not answer or refuses.
    pub async fn get(&self, key: &Key) -> Result<Option<Versioned>, Error> {
        let request = EtcdRequest::get(&self.keys.path(key));
        let operation = request.operation();
        match self.commands.ask(request).await? {
            EtcdAnswer::Range { found, .. } => Ok(found.into_iter().next().map(|(_, held)| held)),
            _ => Err(unexpected(&operation)),
        }
    }

    /// Reads every key of a range that this version knows, at one revision.
    ///
    /// # Errors
    /// When etcd does not answer or refuses, or the range has more keys than `keys_max`.
    pub async fn list(
        &self,
        range: KeyRange,
    ) -> Result<(HistoryPosition, Vec<(Key, Versioned)>), Error> {
        let mut listing = KeyListing::new(&self.keys.range(range), self.keys_max);
        let (position, found) = loop {
            let request = listing.request();
            let operation = request.operation();
            match listing.take(self.commands.ask(request).await?) {
                Ok(Some(listed)) => break listed,
                Ok(None) => {}
                Err(RequestFailure::Failed { cause, detail }) => {
                    return Err(Error::unsent("any", &operation, cause, detail));
                }
                Err(RequestFailure::NoSuchLease) => return Err(unexpected(&operation)),
            }
        };
        let known = found.into_iter().filter_map(|(path, held)| {
            let key = self.keys.parse(path.as_bytes()).ok()?;
            Some((key, held))
        });
        Ok((position, known.collect()))
    }

    /// Writes one key, if its revision is still `expected`; none: if it does not exist.
    pub async fn put(&self, key: Key, expected: Option<Revision>, value: Vec<u8>) -> Outcome {
        self.transact(&[Swap { key, expected, change: SwapChange::Put(value) }], None).await
    }

    /// Writes all or nothing: every key must be as expected, and `leader`, if given, must still
    /// lead.
    pub async fn transact(&self, swaps: &[Swap], leader: Option<Leadership>) -> Outcome {
        let outcome = self.try_transact(swaps, leader).await.unwrap_or_else(Outcome::of_error);
        if matches!(outcome, Outcome::LostRace(_)) {
            count(&self.contact.counters.conflicts_total);
        }
        outcome
    }

    async fn try_transact(
        &self,
        swaps: &[Swap],
        leader: Option<Leadership>,
    ) -> Result<Outcome, Error> {
        let transaction = transaction(&self.keys, swaps, leader)
            .map_err(|(cause, detail)| Error::unsent("any", "write", cause, detail))?;
        let request = EtcdRequest::Transact(transaction);
        let operation = request.operation();
        match self.commands.ask(request).await? {
            EtcdAnswer::Decided(decided) => Ok(Outcome::of_decided(decided, leader)),
            _ => Err(unexpected(&operation)),
        }
    }
}

fn unexpected(operation: &str) -> Error {
    Error::asked("any", operation, Cause::Other, "the answer to another request".to_owned())
}
