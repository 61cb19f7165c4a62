//! Carries out a client's orders on etcd, with the client library, and returns the answers. It
//! decides nothing: the client chooses the connection, and what is given up and when.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Error as ClientError, EventType, GetOptions, Identity,
    ResponseHeader, TlsOptions, WatchOptions, WatchResponse, WatchStream,
};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::error::{Cause, cause_of_cancel, classify};
use crate::message::{
    ChangedKey, EtcdAnswer, EtcdRequest, RequestFailure, RequestId, TransportEvent, TransportOrder,
    WatchEvent,
};
use crate::options::{EtcdOptions, OptionsError, TlsFiles};
use crate::revision::{HistoryPosition, LeaseId, Revision, Versioned};
use crate::secret_file::read_secret;
use crate::txn::{decided, txn_of, versioned};

/// Time between pings on an idle connection. etcd ends connections that ping more often than every
/// 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// The result of a request.
enum RequestResult {
    /// The connection is used if its probe was answered.
    Connected(Box<Client>, Result<EtcdAnswer, RequestFailure>),
    Answered(Result<EtcdAnswer, RequestFailure>),
    Opened(Result<Box<(WatchStream, WatchResponse)>, RequestFailure>),
}

#[derive(Debug)]
struct OpenWatch {
    stream: WatchStream,
    is_paused: bool,
}

/// The requests and watches of one client. They end when it is dropped; to be used inside a
/// runtime.
pub struct Transport {
    options: EtcdOptions,
    /// The newest connection.
    client: Option<Client>,
    requests: JoinSet<(RequestId, RequestResult)>,
    aborts: BTreeMap<RequestId, AbortHandle>,
    watches: BTreeMap<RequestId, OpenWatch>,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (requests, watches) = (self.requests.len(), &self.watches);
        out.debug_struct("Transport")
            .field("requests", &requests)
            .field("watches", watches)
            .finish_non_exhaustive()
    }
}

impl Transport {
    /// Creates a transport without a connection.
    pub fn new(options: EtcdOptions) -> Self {
        Self {
            options,
            client: None,
            requests: JoinSet::new(),
            aborts: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    /// Begins to carry out an order; its results come from [`next_event`](Self::next_event).
    pub async fn carry_out(&mut self, order: TransportOrder) {
        match order {
            TransportOrder::Connect { id, endpoint, probe } => {
                let options = self.options.clone();
                self.spawn(id, async move { connect_and_ask(&options, endpoint, probe).await });
            }
            TransportOrder::Ask { request: EtcdRequest::Progress(watch), .. } => {
                if let Some(watch) = self.watches.get_mut(&watch) {
                    // A watch that cannot be asked will not answer, which ends it.
                    let _ = watch.stream.request_progress().await;
                }
            }
            TransportOrder::Ask { request: EtcdRequest::Cancel(watch), .. } => {
                drop(self.watches.remove(&watch))
            }
            TransportOrder::Ask { id, request } => {
                let client = self.client.clone();
                self.spawn(id, async move { ask(client, request).await });
            }
            TransportOrder::Forget(id) => {
                if let Some(request) = self.aborts.remove(&id) {
                    request.abort();
                }
            }
        }
    }

    fn spawn(
        &mut self,
        id: RequestId,
        request: impl Future<Output = RequestResult> + Send + 'static,
    ) {
        let handle = self.requests.spawn(async move { (id, request.await) });
        self.aborts.insert(id, handle);
    }

    /// Pauses or resumes a watch. Nothing is read from a paused watch: etcd retains its news.
    pub fn pause(&mut self, watch: RequestId, is_paused: bool) {
        if let Some(watch) = self.watches.get_mut(&watch) {
            watch.is_paused = is_paused;
        }
    }

    /// Returns the next event of etcd. Cancel safe.
    pub async fn next_event(&mut self) -> TransportEvent {
        loop {
            let Self { requests, watches, .. } = self;
            tokio::select! {
                (watch, message) = next_message(watches) => return self.watched(watch, message),
                Some(done) = requests.join_next() => {
                    if let Some(event) = self.done(done) {
                        return event;
                    }
                }
            }
        }
    }

    /// Returns the next event, if there is one without waiting.
    pub async fn ready_event(&mut self) -> Option<TransportEvent> {
        tokio::select! {
            biased;
            event = self.next_event() => Some(event),
            () = std::future::ready(()) => None,
        }
    }

    /// Returns the event of a completed request. None: the request was forgotten.
    fn done(
        &mut self,
        done: Result<(RequestId, RequestResult), JoinError>,
    ) -> Option<TransportEvent> {
        let (request, done) = done.ok()?;
        self.aborts.remove(&request)?;
        Some(match done {
            RequestResult::Connected(client, answer) => {
                if answer.is_ok() {
                    self.client = Some(*client);
                }
                TransportEvent::Answered { request, answer }
            }
            RequestResult::Answered(answer) => TransportEvent::Answered { request, answer },
            RequestResult::Opened(opened) => {
                TransportEvent::Watched { watch: request, event: self.opened(request, opened) }
            }
        })
    }

    fn opened(
        &mut self,
        id: RequestId,
        opened: Result<Box<(WatchStream, WatchResponse)>, RequestFailure>,
    ) -> WatchEvent {
        match opened.map(|opened| *opened) {
            Ok((stream, first)) => canceled(&first).unwrap_or_else(|| {
                self.watches.insert(id, OpenWatch { stream, is_paused: false });
                WatchEvent::Created
            }),
            Err(failure) => WatchEvent::Ended(failure),
        }
    }

    fn watched(&mut self, watch: RequestId, message: Message) -> TransportEvent {
        let event = match message {
            Ok(Some(response)) => match canceled(&response) {
                Some(event) => event,
                None if response.events().is_empty() => WatchEvent::Progress,
                None => WatchEvent::Changes(response.events().iter().filter_map(changed).collect()),
            },
            Ok(None) => WatchEvent::Ended(failed(Cause::Unreachable, "etcd closed the watch")),
            Err(error) => WatchEvent::Ended(failure_of(&error)),
        };
        if let WatchEvent::Compacted(_) | WatchEvent::Ended(_) = event {
            self.watches.remove(&watch);
        }
        TransportEvent::Watched { watch, event }
    }
}

type Message = Result<Option<WatchResponse>, ClientError>;

async fn next_message(watches: &mut BTreeMap<RequestId, OpenWatch>) -> (RequestId, Message) {
    poll_fn(|context| {
        for (id, watch) in watches.iter_mut().filter(|(_, watch)| !watch.is_paused) {
            // Dropping the future loses nothing: the received part of a message stays in the
            // stream.
            if let Poll::Ready(message) = pin!(watch.stream.message()).poll(context) {
                return Poll::Ready((*id, message));
            }
        }
        Poll::Pending
    })
    .await
}

async fn connect_and_ask(
    options: &EtcdOptions,
    endpoint: usize,
    probe: EtcdRequest,
) -> RequestResult {
    match connect(options, endpoint).await {
        Ok(client) => {
            let answer = answer(client.clone(), probe).await;
            RequestResult::Connected(Box::new(client), answer)
        }
        Err(failure) => RequestResult::Answered(Err(failure)),
    }
}

async fn connect(options: &EtcdOptions, endpoint: usize) -> Result<Client, RequestFailure> {
    let Some(endpoint) = options.endpoints.get(endpoint) else {
        return Err(failed(Cause::Unreachable, "there is no such endpoint"));
    };
    let mut connect = ConnectOptions::new()
        .with_connect_timeout(options.request_timeout / 2)
        .with_keep_alive(PING_INTERVAL, options.request_timeout)
        .with_keep_alive_while_idle(true)
        .with_require_leader(true)
        .with_auto_token_refresh(options.user.is_some());
    if let Some(user) = &options.user {
        let password = user.password.read();
        let password =
            password.map_err(|error| failed(Cause::NotAuthenticated, &error.to_string()))?;
        connect = connect.with_user(&user.name, password);
    }
    if let Some(files) = &options.tls {
        let tls = read_tls(files).map_err(|error| failed(Cause::Tls, &error.to_string()))?;
        connect = connect.with_tls(tls);
    }
    Client::connect([endpoint], Some(connect)).await.map_err(|error| failure_of(&error))
}

async fn ask(client: Option<Client>, request: EtcdRequest) -> RequestResult {
    let Some(client) = client else {
        return RequestResult::Answered(Err(failed(Cause::Unreachable, "there is no connection")));
    };
    match request {
        EtcdRequest::Watch { prefix, from } => {
            let opened = open(client, prefix, from).await;
            RequestResult::Opened(opened.map(Box::new).map_err(|error| failure_of(&error)))
        }
        request => RequestResult::Answered(answer(client, request).await),
    }
}

/// Opens a watch and waits for etcd to confirm it.
async fn open(
    mut client: Client,
    prefix: String,
    from: Revision,
) -> Result<(WatchStream, WatchResponse), ClientError> {
    let options = WatchOptions::new().with_prefix().with_start_revision(from.0);
    let mut stream = client.watch(prefix, Some(options)).await?;
    let first = stream.message().await?;
    let first = first.ok_or_else(|| ClientError::WatchError("etcd closed the watch".to_owned()))?;
    Ok((stream, first))
}

async fn answer(mut client: Client, request: EtcdRequest) -> Result<EtcdAnswer, RequestFailure> {
    let answer = match request {
        EtcdRequest::Grant { ttl_sec } => {
            let ttl_sec = i64::try_from(ttl_sec).unwrap_or(i64::MAX);
            client.lease_grant(ttl_sec, None).await.map(|granted| EtcdAnswer::Granted {
                lease: LeaseId(granted.id()),
                ttl_sec: u64::try_from(granted.ttl()).unwrap_or(0),
            })
        }
        EtcdRequest::KeepAlive(lease) => match client.lease_keep_alive(lease.0).await {
            // The client library returns this error when etcd answered with no time left.
            Err(ClientError::LeaseKeepAliveError(_)) => return Err(RequestFailure::NoSuchLease),
            answer => answer.map(|_| EtcdAnswer::KeptAlive),
        },
        EtcdRequest::Revoke(lease) => {
            client.lease_revoke(lease.0).await.map(|_| EtcdAnswer::Revoked)
        }
        EtcdRequest::Transact(transaction) => {
            let response = client.txn(txn_of(transaction)).await;
            response.map(|response| EtcdAnswer::Decided(decided(&response)))
        }
        EtcdRequest::Range { start, end, limit, revision } => {
            // A user may have rights on a key and on no range.
            let is_key = end.strip_suffix('\0').is_some_and(|key| key == start);
            let options = (!is_key).then(|| {
                GetOptions::new()
                    .with_range(end)
                    .with_limit(i64::try_from(limit).unwrap_or(i64::MAX))
                    .with_revision(revision.map_or(0, |revision| revision.0))
            });
            client.get(start, options).await.map(|found| EtcdAnswer::Range {
                position: position_of(found.header()),
                has_more: found.more(),
                found: found
                    .kvs()
                    .iter()
                    .map(|pair| (path_of(pair.key()), versioned(pair)))
                    .collect(),
            })
        }
        EtcdRequest::Watch { .. } | EtcdRequest::Progress(_) | EtcdRequest::Cancel(_) => {
            return Err(failed(Cause::Invalid, "a watch has no answer"));
        }
    };
    answer.map_err(|error| failure_of(&error))
}

/// Converts a key to a path. A key that is not UTF-8 is none of weir's, whatever path it becomes.
fn path_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn changed(event: &etcd_client::Event) -> Option<ChangedKey> {
    let pair = event.kv()?;
    let Versioned { value, mod_revision, .. } = versioned(pair);
    let is_put = event.event_type() == EventType::Put;
    Some(ChangedKey {
        path: path_of(pair.key()),
        value: is_put.then_some(value),
        revision: mod_revision,
    })
}

fn canceled(response: &WatchResponse) -> Option<WatchEvent> {
    if !response.canceled() {
        return None;
    }
    let compacted = Revision(response.compact_revision());
    Some(if compacted.0 > 0 {
        WatchEvent::Compacted(compacted)
    } else {
        let reason = response.cancel_reason();
        WatchEvent::Ended(failed(cause_of_cancel(reason), reason))
    })
}

fn failed(cause: Cause, detail: &str) -> RequestFailure {
    RequestFailure::Failed { cause, detail: detail.to_owned() }
}

fn failure_of(error: &ClientError) -> RequestFailure {
    if let ClientError::GRpcStatus(status) = error
        && status.message().contains("requested lease not found")
    {
        return RequestFailure::NoSuchLease;
    }
    let (cause, detail) = classify(error);
    RequestFailure::Failed { cause, detail }
}

fn position_of(header: Option<&ResponseHeader>) -> HistoryPosition {
    HistoryPosition {
        cluster_id: header.map_or(0, ResponseHeader::cluster_id),
        revision: Revision(header.map_or(0, ResponseHeader::revision)),
        raft_term: header.map_or(0, ResponseHeader::raft_term),
    }
}

/// Reads the files of a TLS connection.
pub(crate) fn read_tls(files: &TlsFiles) -> Result<TlsOptions, OptionsError> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|error| OptionsError::File(path.to_owned(), error.to_string()))
    };
    let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&files.ca)?));
    if let Some((certificate, key)) = &files.client {
        tls = tls.identity(Identity::from_pem(read(certificate)?, read_secret(key)?));
    }
    if let Some(name) = &files.server_name {
        tls = tls.domain_name(name);
    }
    Ok(tls)
}
