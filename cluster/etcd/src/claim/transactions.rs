//! The transactions of a claim: create the key, or find whose it is, and take it over if it is one's own: of the same boot id,
//! or of a process that is known to have ended.

use serde::Deserialize;

use crate::claim::state::Answer;
use crate::revision::{LeaseId, Revision, Versioned};
use crate::transaction::{Compare, Decided, Operation, Transaction};

/// What every value held with a lease begins with: who holds it.
#[derive(Deserialize)]
struct Holder {
    boot_id: String,
}

/// What is claimed, by whom, and with which lease and value. etcd's word that it knows no such lease is, at any
/// transaction, [`Answer::NoSuchLease`].
#[derive(Clone, Debug)]
pub struct Claiming {
    /// Of the key.
    pub path: String,
    /// Of the process that claims; `value` begins with it.
    pub boot_id: String,
    /// Boot ids of holders that have certainly ended.
    pub ended: Vec<String>,
    pub lease: LeaseId,
    pub value: Vec<u8>,
}

/// What follows from the first transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Answer(Answer),
    /// A key of the same boot id, or of one that has ended, that differs: to be written over, which leaves its create revision.
    OwnOther {
        create_revision: Revision,
        mod_revision: Revision,
    },
}

impl Claiming {
    /// Creates the key, or finds whose it is.
    pub fn create(&self) -> Transaction {
        self.put_if(Compare::absent(&self.path))
    }

    /// What the answer to [`create`](Self::create) means.
    pub fn created(&self, decided: Decided) -> Found {
        if decided.has_held {
            return Found::Answer(Answer::Mine { create_revision: decided.revision });
        }
        let Some(found) = decided.found.into_iter().flatten().next() else {
            // No etcd says that there is a key and that there is none.
            return Found::Answer(Answer::Refused);
        };
        let boot_id = serde_json::from_slice::<Holder>(&found.value)
            .map_or_else(|_| "unknown".to_owned(), |holder| holder.boot_id);
        let Versioned { create_revision, mod_revision, .. } = found;
        if boot_id != self.boot_id && !self.ended.contains(&boot_id) {
            Found::Answer(Answer::Other { boot_id })
        } else if found.lease == Some(self.lease) && found.value == self.value {
            Found::Answer(Answer::Mine { create_revision })
        } else {
            Found::OwnOther { create_revision, mod_revision }
        }
    }

    /// Writes one's own key over, unless it has changed since.
    pub fn replace(&self, mod_revision: Revision) -> Transaction {
        self.put_if(Compare::ModRevision(self.path.clone(), mod_revision))
    }

    /// What the answer to [`replace`](Self::replace) means; `create_revision` as [`created`](Self::created) told it.
    pub fn replaced(create_revision: Revision, decided: &Decided) -> Answer {
        // Somebody was faster, and may have taken the key away: look again.
        if decided.has_held { Answer::Mine { create_revision } } else { Answer::Refused }
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
        let mine = |revision| Found::Answer(Answer::Mine { create_revision: Revision(revision) });
        assert_eq!(claiming().created(created), mine(9));
        assert_eq!(claiming().created(found(r#"{"boot_id":"b1"}"#, 7)), mine(3));
        let other = Found::Answer(Answer::Other { boot_id: "b2".into() });
        assert_eq!(claiming().created(found(r#"{"boot_id":"b2"}"#, 7)), other);
        let own = Found::OwnOther { create_revision: Revision(3), mod_revision: Revision(5) };
        assert_eq!(claiming().created(found(r#"{"boot_id":"b1"}"#, 6)), own);
        assert_eq!(claiming().created(found(r#"{"boot_id":"b0"}"#, 6)), own);
    }

    #[test]
    fn a_key_that_went_before_it_was_taken_over_is_not_ours() {
        let gone = Decided { has_held: false, revision: Revision(9), found: vec![None] };
        assert_eq!(Claiming::replaced(Revision(3), &gone), Answer::Refused);
    }
}
