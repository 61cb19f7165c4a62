//! Scripts for two etcds. Leases are identified by the order in which they were granted.

use weir_etcd::transaction::{Compare, Operation, Transaction};
use weir_etcd::{LeaseId, Revision, Versioned};
use weir_sim::dice::Dice;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The leases in it are positions, from 1.
    Transact(Transaction),
    Grant,
    Revoke(usize),
    KeepAlive(usize),
    Range(Option<Revision>),
    /// Compaction up to the newest revision less this number.
    Compact(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Decided(bool, Revision, Vec<Option<Versioned>>),
    Granted(u64),
    Found(Vec<(String, Versioned)>, bool),
    Done,
    NoSuchLease,
    Duplicate,
    Compacted,
    Future,
}

fn path(dice: &mut Dice) -> String {
    format!("/script/{}", dice.below(4))
}

pub(crate) fn draw(dice: &mut Dice, revision: i64, leases: usize) -> Step {
    let lease = |dice: &mut Dice| dice.below(leases as u64) as usize;
    match dice.below(20) {
        0 => Step::Grant,
        1 if leases > 0 => Step::Revoke(lease(dice)),
        2 if leases > 0 => Step::KeepAlive(lease(dice)),
        3..6 => {
            let back = dice.below(8) as i64 - 1;
            Step::Range((dice.below(3) > 0).then(|| Revision((revision - back).max(1))))
        }
        6 if dice.one_in(2) && revision > 4 => Step::Compact(dice.below(4) as i64),
        _ => Step::Transact(transaction(dice, revision, leases)),
    }
}

fn transaction(dice: &mut Dice, revision: i64, leases: usize) -> Transaction {
    let compare = |dice: &mut Dice| {
        let near = Revision((revision - dice.below(5) as i64).max(0));
        match dice.below(4) {
            0 => Compare::CreateRevision(path(dice), Revision(0)),
            1 => Compare::CreateRevision(path(dice), near),
            2 => Compare::ModRevision(path(dice), near),
            _ => Compare::Lease(path(dice), LeaseId(dice.below(leases as u64 + 1) as i64)),
        }
    };
    let operation = |dice: &mut Dice| match dice.below(6) {
        0 => Operation::Get(path(dice)),
        1 => Operation::Delete(path(dice)),
        _ => {
            let lease = LeaseId(dice.below(2) as i64 * dice.below(leases as u64 + 1) as i64);
            let value = dice.below(100).to_string().into_bytes();
            Operation::Put { path: path(dice), value, lease: (lease.0 != 0).then_some(lease) }
        }
    };
    let compares = (0..dice.below(3)).map(|_| compare(dice)).collect();
    let then = (0..dice.below(4)).map(|_| operation(dice)).collect();
    let otherwise = (0..dice.below(3)).map(|_| operation(dice)).collect();
    Transaction { compares, then, otherwise }
}

/// A change that the watch sends last.
pub(crate) fn last_word(number: u64) -> Step {
    let value = number.to_string().into_bytes();
    let put = Operation::Put { path: "/script/last".into(), value, lease: None };
    Step::Transact(Transaction { then: vec![put], ..Transaction::default() })
}

/// Replaces positions by the leases of one etcd.
pub(crate) fn with_leases(transaction: &Transaction, leases: &[LeaseId]) -> Transaction {
    let id = |lease: LeaseId| of(lease, leases);
    let mut transaction = transaction.clone();
    for compare in &mut transaction.compares {
        if let Compare::Lease(_, lease) = compare {
            *lease = id(*lease);
        }
    }
    for operation in transaction.then.iter_mut().chain(&mut transaction.otherwise) {
        if let Operation::Put { lease: Some(lease), .. } = operation {
            *lease = id(*lease);
        }
    }
    transaction
}

fn of(position: LeaseId, leases: &[LeaseId]) -> LeaseId {
    if position.0 == 0 { position } else { leases[position.0 as usize - 1] }
}

/// Replaces the leases of one etcd by positions.
pub(crate) fn bare(held: Versioned, leases: &[LeaseId]) -> Versioned {
    let position = |lease: LeaseId| leases.iter().position(|it| *it == lease);
    let lease = held.lease.map(|lease| LeaseId(position(lease).map_or(-1, |it| it as i64 + 1)));
    Versioned { lease, ..held }
}
