//! The transactions of a claim: create the key, or find its holder, and take it over if the holder
//! is this process (the same boot id) or a process that is known to have ended.

use serde::Deserialize;

use crate::claim::state::ClaimAnswer;
use crate::revision::{LeaseId, Revision, Versioned};
use crate::transaction::{Compare, Decided, Operation, Transaction};

/// The beginning of every value held with a lease: the holder's boot id.
#[derive(Deserialize)]
struct HolderRecord {
    boot_id: String,
}

/// The key to claim, with the claimant, the lease and the value. If etcd knows no such lease, any
/// transaction ends with [`ClaimAnswer::NoSuchLease`].
#[derive(Clone, Debug)]
pub struct Claiming {
    /// Path of the key.
    pub path: String,
    /// Boot id of the claimant; `value` begins with it.
    pub boot_id: String,
    /// Boot ids of holders that have certainly ended.
    pub ended: Vec<String>,
    pub lease: LeaseId,
    pub value: Vec<u8>,
}

/// The result of the first transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundHolder {
    Answer(ClaimAnswer),
    /// The key has the same boot id, or one that has ended, and differs in lease or value: to be
    /// overwritten, which keeps its create revision.
    OwnOther {
        create_revision: Revision,
        mod_revision: Revision,
    },
}

impl Claiming {
    /// Creates the key, or reads its holder.
    pub fn create(&self) -> Transaction {
        self.put_if(Compare::absent(&self.path))
    }

    /// Interprets the answer to [`create`](Self::create).
    pub fn created(&self, decided: Decided) -> FoundHolder {
        if decided.has_held {
            return FoundHolder::Answer(ClaimAnswer::Mine { create_revision: decided.revision });
        }
        let Some(found) = decided.found.into_iter().flatten().next() else {
            // etcd contradicted itself: the key exists, and it does not.
            return FoundHolder::Answer(ClaimAnswer::Refused);
        };
        let boot_id = serde_json::from_slice::<HolderRecord>(&found.value)
            .map_or_else(|_| "unknown".to_owned(), |holder| holder.boot_id);
        let Versioned { create_revision, mod_revision, .. } = found;
        if boot_id != self.boot_id && !self.ended.contains(&boot_id) {
            FoundHolder::Answer(ClaimAnswer::Other { boot_id })
        } else if found.lease == Some(self.lease) && found.value == self.value {
            FoundHolder::Answer(ClaimAnswer::Mine { create_revision })
        } else {
            FoundHolder::OwnOther { create_revision, mod_revision }
        }
    }

    /// Overwrites the key, unless it has changed since.
    pub fn replace(&self, mod_revision: Revision) -> Transaction {
        self.put_if(Compare::ModRevision(self.path.clone(), mod_revision))
    }

    /// Interprets the answer to [`replace`](Self::replace); `create_revision` is the one from
    /// [`created`](Self::created).
    pub fn replaced(create_revision: Revision, decided: &Decided) -> ClaimAnswer {
        // Another client was faster, and may have deleted the key: try again.
        if decided.has_held { ClaimAnswer::Mine { create_revision } } else { ClaimAnswer::Refused }
    }

    fn put_if(&self, compare: Compare) -> Transaction {
        let put = Operation::Put {
            path: self.path.clone(),
            value: self.value.clone(),
            lease: Some(self.lease),
        };
        let look = Operation::Get(self.path.clone());
        Transaction { compares: vec![compare], then: vec![put], otherwise: vec![look] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claiming() -> Claiming {
        Claiming {
            path: "/weir/north/nodes/n1".into(),
            boot_id: "b1".into(),
            ended: vec!["b0".into()],
            lease: LeaseId(7),
            value: br#"{"boot_id":"b1"}"#.to_vec(),
        }
    }

    fn found(value: &str, lease: i64) -> Decided {
        let found = Versioned {
            value: value.into(),
            create_revision: Revision(3),
            mod_revision: Revision(5),
            lease: Some(LeaseId(lease)),
        };
        Decided { has_held: false, revision: Revision(9), found: vec![Some(found)] }
    }

    #[test]
    fn a_key_is_created_found_or_taken_over() {
        let created = Decided { has_held: true, revision: Revision(9), found: Vec::new() };
        let mine = |revision| {
            FoundHolder::Answer(ClaimAnswer::Mine { create_revision: Revision(revision) })
        };
        assert_eq!(claiming().created(created), mine(9));
        assert_eq!(claiming().created(found(r#"{"boot_id":"b1"}"#, 7)), mine(3));
        let other = FoundHolder::Answer(ClaimAnswer::Other { boot_id: "b2".into() });
        assert_eq!(claiming().created(found(r#"{"boot_id":"b2"}"#, 7)), other);
        let own = FoundHolder::OwnOther { create_revision: Revision(3), mod_revision: Revision(5) };
        assert_eq!(claiming().created(found(r#"{"boot_id":"b1"}"#, 6)), own);
        assert_eq!(claiming().created(found(r#"{"boot_id":"b0"}"#, 6)), own);
    }

    #[test]
    fn a_key_deleted_before_its_take_over_is_not_held() {
        let gone = Decided { has_held: false, revision: Revision(9), found: vec![None] };
        assert_eq!(Claiming::replaced(Revision(3), &gone), ClaimAnswer::Refused);
    }
}
