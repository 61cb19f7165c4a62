//! The model of etcd beside etcd itself: equal scripts, equal answers.

/// A daemon, started as the tests of weir-etcd do.
#[allow(dead_code)]
#[path = "../../../../cluster/etcd/tests/cluster/etcd.rs"]
mod daemon;
mod script;

use etcd_client::{
    Client, CompactionOptions, Compare as ClientCompare, CompareOp, Error, EventType, GetOptions,
    KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse, WatchOptions,
};
use weir_etcd::message::{
    ChangedKey, EtcdAnswer, EtcdRequest, RequestFailure, TransportEvent, WatchEvent, end_of,
};
use weir_etcd::transaction::{Compare, Operation, Transaction};
use weir_etcd::{LeaseId, Revision, Versioned};
use weir_sim::dice::Dice;
use weir_sim::etcd::{ClientId, Etcd, EtcdModelOptions};

use script::{Answer, Step};

const ME: ClientId = ClientId(1);
const PREFIX: &str = "/script/";
/// Lease time longer than a script takes, even in the model's time.
const TTL_SEC: u64 = 3_000;

/// The model, with immediate answers.
struct Model {
    etcd: Etcd,
    now_us: u64,
    leases: Vec<LeaseId>,
}

impl Model {
    fn ask(&mut self, request: EtcdRequest) -> Vec<TransportEvent> {
        self.etcd.request(self.now_us, ME, request);
        self.now_us += 1_000_000;
        let mut events = Vec::new();
        self.etcd.poll(self.now_us, &mut events);
        events.into_iter().map(|(_, event)| event).collect()
    }

    fn answer(&mut self, request: EtcdRequest) -> Result<EtcdAnswer, RequestFailure> {
        match self.ask(request).pop() {
            Some(TransportEvent::Answered { answer, .. }) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn step(&mut self, step: &Step) -> Answer {
        match step {
            Step::Transact(transaction) => {
                match self
                    .answer(EtcdRequest::Transact(script::with_leases(transaction, &self.leases)))
                {
                    Ok(EtcdAnswer::Decided(decided)) => {
                        let found = decided.found.into_iter();
                        let found = found.map(|it| it.map(|it| script::bare(it, &self.leases)));
                        Answer::Decided(decided.has_held, decided.revision, found.collect())
                    }
                    Err(failure) => refused(&failure),
                    other => panic!("{other:?}"),
                }
            }
            Step::Grant => match self.answer(EtcdRequest::Grant { ttl_sec: TTL_SEC }) {
                Ok(EtcdAnswer::Granted { lease, ttl_sec }) => {
                    self.leases.push(lease);
                    Answer::Granted(ttl_sec)
                }
                other => panic!("{other:?}"),
            },
            Step::Revoke(lease) => match self.answer(EtcdRequest::Revoke(self.leases[*lease])) {
                Ok(_) => Answer::Done,
                Err(failure) => refused(&failure),
            },
            Step::KeepAlive(lease) => {
                match self.answer(EtcdRequest::KeepAlive(self.leases[*lease])) {
                    Ok(_) => Answer::Done,
                    Err(failure) => refused(&failure),
                }
            }
            Step::Range(revision) => {
                let (start, end) = (PREFIX.to_owned(), end_of(PREFIX));
                let range = EtcdRequest::Range { start, end, limit: 2, revision: *revision };
                match self.answer(range) {
                    Ok(EtcdAnswer::Range { found, has_more, .. }) => {
                        let found = found.into_iter();
                        let found = found.map(|(path, it)| (path, script::bare(it, &self.leases)));
                        Answer::Found(found.collect(), has_more)
                    }
                    Err(failure) => refused(&failure),
                    other => panic!("{other:?}"),
                }
            }
            Step::Compact(kept) => {
                self.etcd.compact(*kept);
                Answer::Done
            }
        }
    }

    fn watched(&mut self, from: i64) -> Vec<ChangedKey> {
        let watch = EtcdRequest::Watch { prefix: PREFIX.into(), from: Revision(from) };
        let changes = self.ask(watch).into_iter().filter_map(|event| match event {
            TransportEvent::Watched { event: WatchEvent::Changes(changes), .. } => Some(changes),
            _ => None,
        });
        let changes = changes.flatten().collect();
        self.etcd.close(ME);
        changes
    }
}

/// A real etcd.
struct Real {
    client: Client,
    leases: Vec<LeaseId>,
}

impl Real {
    async fn step(&mut self, step: &Step, revision: i64) -> Answer {
        let leases = self.leases.clone();
        let bare = |it: &KeyValue| script::bare(versioned(it), &leases);
        match step {
            Step::Transact(transaction) => {
                let transaction = script::with_leases(transaction, &self.leases);
                match self.client.txn(txn_of(&transaction)).await {
                    Ok(answer) => {
                        let revision = answer.header().expect("a header").revision();
                        let found = answer.op_responses().into_iter().filter_map(|it| match it {
                            TxnOpResponse::Get(found) => Some(found.kvs().first().map(bare)),
                            _ => None,
                        });
                        let found = found.collect();
                        Answer::Decided(answer.succeeded(), Revision(revision), found)
                    }
                    Err(error) => refusal(&error),
                }
            }
            Step::Grant => {
                let granted = self.client.lease_grant(TTL_SEC as i64, None).await.expect("a lease");
                self.leases.push(LeaseId(granted.id()));
                Answer::Granted(granted.ttl() as u64)
            }
            Step::Revoke(lease) => match self.client.lease_revoke(self.leases[*lease].0).await {
                Ok(_) => Answer::Done,
                Err(error) => refusal(&error),
            },
            Step::KeepAlive(lease) => {
                match self.client.lease_keep_alive(self.leases[*lease].0).await {
                    Ok(_) => Answer::Done,
                    Err(Error::LeaseKeepAliveError(_)) => Answer::NoSuchLease,
                    Err(error) => refusal(&error),
                }
            }
            Step::Range(revision) => {
                let options = GetOptions::new().with_prefix().with_limit(2);
                let options = options.with_revision(revision.map_or(0, |revision| revision.0));
                match self.client.get(PREFIX, Some(options)).await {
                    Ok(answer) => {
                        let found = answer.kvs().iter();
                        let path = |it: &KeyValue| it.key_str().expect("text").to_owned();
                        let found = found.map(|it| (path(it), bare(it)));
                        Answer::Found(found.collect(), answer.more())
                    }
                    Err(error) => refusal(&error),
                }
            }
            Step::Compact(kept) => {
                // The answer comes when the compaction is complete. It is refused if the revision
                // is compacted already.
                let physical = CompactionOptions::new().with_physical();
                let _ = self.client.compact(revision - kept, Some(physical)).await;
                Answer::Done
            }
        }
    }

    /// Returns all changes from one revision to another, of which the last contains a change.
    async fn watched(&mut self, from: i64, to: i64) -> Vec<ChangedKey> {
        let options = WatchOptions::new().with_prefix().with_start_revision(from);
        let mut watch = self.client.watch(PREFIX, Some(options)).await.expect("a watch");
        let mut all: Vec<ChangedKey> = Vec::new();
        while all.last().is_none_or(|last| last.revision.0 < to) {
            let response = watch.message().await.expect("news").expect("the watch has not ended");
            all.extend(response.events().iter().map(|event| {
                let pair = event.kv().expect("a key");
                let is_put = event.event_type() == EventType::Put;
                ChangedKey {
                    path: pair.key_str().expect("text").into(),
                    value: is_put.then(|| pair.value().to_vec()),
                    revision: Revision(pair.mod_revision()),
                }
            }));
        }
        all
    }
}

/// Converts a refusal of the model, which uses etcd's words.
fn refused(failure: &RequestFailure) -> Answer {
    match failure {
        RequestFailure::NoSuchLease => Answer::NoSuchLease,
        RequestFailure::Failed { detail, .. } => answer_of(detail),
    }
}

fn refusal(error: &Error) -> Answer {
    answer_of(&error.to_string())
}

fn answer_of(words: &str) -> Answer {
    [
        ("requested lease not found", Answer::NoSuchLease),
        ("duplicate key given", Answer::Duplicate),
        ("has been compacted", Answer::Compacted),
        ("future revision", Answer::Future),
    ]
    .into_iter()
    .find_map(|(text, answer)| words.contains(text).then_some(answer))
    .unwrap_or_else(|| panic!("{words}"))
}

fn versioned(pair: &KeyValue) -> Versioned {
    Versioned {
        value: pair.value().to_vec(),
        create_revision: Revision(pair.create_revision()),
        mod_revision: Revision(pair.mod_revision()),
        lease: (pair.lease() != 0).then_some(LeaseId(pair.lease())),
    }
}

fn txn_of(transaction: &Transaction) -> Txn {
    let is = CompareOp::Equal;
    let compares = transaction.compares.iter().map(|compare| match compare {
        Compare::CreateRevision(path, it) => {
            ClientCompare::create_revision(path.as_str(), is, it.0)
        }
        Compare::ModRevision(path, it) => ClientCompare::mod_revision(path.as_str(), is, it.0),
        Compare::Lease(path, it) => ClientCompare::lease(path.as_str(), is, it.0),
    });
    let operation = |operation: &Operation| match operation {
        Operation::Get(path) => TxnOp::get(path.as_str(), None),
        Operation::Delete(path) => TxnOp::delete(path.as_str(), None),
        Operation::Put { path, value, lease } => {
            let options = lease.map(|lease| PutOptions::new().with_lease(lease.0));
            TxnOp::put(path.as_str(), value.as_slice(), options)
        }
    };
    Txn::new()
        .when(compares.collect::<Vec<_>>())
        .and_then(transaction.then.iter().map(operation).collect::<Vec<_>>())
        .or_else(transaction.otherwise.iter().map(operation).collect::<Vec<_>>())
}

async fn play(endpoint: String, seed: u64) {
    let client = Client::connect([endpoint], None).await.expect("etcd answers");
    let mut real = Real { client, leases: Vec::new() };
    let etcd =
        Etcd::new(EtcdModelOptions { watch_lag_us: (0, 0), ..EtcdModelOptions::default() }, seed);
    let mut model = Model { etcd, now_us: 0, leases: Vec::new() };
    let mut dice = Dice::new(seed);
    let mut compacted = 0;
    for number in 0..400 {
        let revision = model.etcd.revision().0;
        let step = script::draw(&mut dice, revision, model.leases.len());
        if let Step::Compact(kept) = step {
            compacted = compacted.max(revision - kept);
        }
        let answer = real.step(&step, revision).await;
        assert_eq!(model.step(&step), answer, "seed {seed}, step {number}: {step:?}");
        if number % 40 == 39 && model.etcd.revision().0 > compacted {
            let put = script::last_word(number);
            let answer = real.step(&put, 0).await;
            assert_eq!(model.step(&put), answer);
            let to = model.etcd.revision().0;
            let from = dice.between((compacted.max(1) as u64, to as u64)) as i64;
            let watched = real.watched(from, to).await;
            assert_eq!(model.watched(from), watched, "seed {seed}, from {from} to {to}");
        }
    }
}

#[test]
fn the_model_answers_scripts_like_etcd() {
    for seed in 1..=3 {
        let etcd = daemon::Etcd::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(play(etcd.endpoint(), seed));
    }
}
