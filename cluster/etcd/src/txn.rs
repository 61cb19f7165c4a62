//! Conversion of transactions to and from the client library.

use etcd_client::{Compare as ClientCompare, CompareOp, KeyValue, PutOptions};
use etcd_client::{Txn, TxnOp, TxnOpResponse, TxnResponse};

use crate::revision::{LeaseId, Revision, Versioned};
use crate::transaction::{Compare, Decided, Operation, Transaction};

pub(crate) fn txn_of(transaction: Transaction) -> Txn {
    let operations = |all: Vec<Operation>| all.into_iter().map(operation).collect::<Vec<_>>();
    let compares: Vec<_> = transaction.compares.into_iter().map(compare).collect();
    Txn::new()
        .when(compares)
        .and_then(operations(transaction.then))
        .or_else(operations(transaction.otherwise))
}

pub(crate) fn decided(response: &TxnResponse) -> Decided {
    let found = response.op_responses().into_iter().filter_map(|response| match response {
        TxnOpResponse::Get(found) => Some(found.kvs().first().map(versioned)),
        _ => None,
    });
    Decided {
        has_held: response.succeeded(),
        revision: Revision(response.header().map_or(0, |header| header.revision())),
        found: found.collect(),
    }
}

pub(crate) fn versioned(pair: &KeyValue) -> Versioned {
    Versioned {
        value: pair.value().to_vec(),
        create_revision: Revision(pair.create_revision()),
        mod_revision: Revision(pair.mod_revision()),
        lease: (pair.lease() != 0).then_some(LeaseId(pair.lease())),
    }
}

fn compare(compare: Compare) -> ClientCompare {
    let is = CompareOp::Equal;
    match compare {
        Compare::CreateRevision(path, revision) => {
            ClientCompare::create_revision(path, is, revision.0)
        }
        Compare::ModRevision(path, revision) => ClientCompare::mod_revision(path, is, revision.0),
        Compare::Lease(path, lease) => ClientCompare::lease(path, is, lease.0),
    }
}

fn operation(operation: Operation) -> TxnOp {
    match operation {
        Operation::Get(path) => TxnOp::get(path, None),
        Operation::Put { path, value, lease } => {
            let options = lease.map(|lease| PutOptions::new().with_lease(lease.0));
            TxnOp::put(path, value, options)
        }
        Operation::Delete(path) => TxnOp::delete(path, None),
    }
}
