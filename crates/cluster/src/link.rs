//! The connection to etcd: one member at a time, the next one after a failure.
//!
//! All of this crate shares one connection. Who finds that it does not work says so, and the next request makes
//! another one, to the next endpoint; certificates and the password are read and the user authenticates again each time. After an
//! attempt that failed there is a wait, in which requests fail at once with that error. Every request has its time, connecting included; none is repeated here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_client::{Certificate, Client, ConnectOptions, GetOptions, Identity, TlsOptions};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use crate::back_off::BackOff;
use crate::counters::{Counters, count};
use crate::error::{Cause, Error};
use crate::keys::{Key, Keys};
use crate::options::{Options, OptionsError, TlsFiles};
use crate::secret_file::read_secret;

/// Pings on a connection without traffic. etcd ends connections that ping more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// A connection that worked when it was made.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) endpoint: Arc<str>,
    generation: u64,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) options: Options,
    pub(crate) keys: Keys,
    pub(crate) counters: Counters,
    state: AsyncMutex<State>,
    /// Generation of the newest connection that was given up.
    distrusted: AtomicU64,
    last_error: Mutex<Option<Error>>,
}

struct State {
    connection: Option<Connection>,
    generation: u64,
    /// Index of the endpoint that is tried next.
    next_endpoint: usize,
    back_off: BackOff,
    /// Until when nobody tries, and why.
    rest: Option<(Instant, Error)>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("State").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(options: Options, now: Instant) -> Self {
        let back_off = BackOff::new(options.retry_first, options.retry_max, options.seed);
        // Nodes begin with different members.
        let next_endpoint = (options.seed % options.endpoints.len().max(1) as u64) as usize;
        Self {
            keys: Keys::new(options.cluster.clone()),
            counters: Counters::new(now),
            state: AsyncMutex::new(State {
                connection: None,
                generation: 0,
                next_endpoint,
                back_off,
                rest: None,
            }),
            distrusted: AtomicU64::new(0),
            last_error: Mutex::new(None),
            options,
        }
    }

    /// The last failure, if nothing has worked since.
    pub(crate) fn last_error(&self) -> Option<Error> {
        self.error_slot().clone()
    }

    /// Makes one request within the request timeout.
    pub(crate) async fn request<T>(
        &self,
        operation: &str,
        ask: impl AsyncFnOnce(Client) -> Result<T, etcd_client::Error>,
    ) -> Result<T, Error> {
        self.request_of(operation, ask).await.map(|(answer, _)| answer)
    }

    /// As [`request`](Self::request); gives the connection that answered too.
    pub(crate) async fn request_of<T>(
        &self,
        operation: &str,
        ask: impl AsyncFnOnce(Client) -> Result<T, etcd_client::Error>,
    ) -> Result<(T, Connection), Error> {
        let limit = self.options.request_timeout;
        let start = Instant::now();
        let Ok(connection) = timeout(limit, self.connection(operation)).await else {
            let detail = format!("no connection within {limit:?}");
            let error = Error::unsent(&self.endpoints(), operation, Cause::Timeout, detail);
            return Err(self.failed(None, error));
        };
        let connection = connection?;
        let rest = limit.saturating_sub(start.elapsed());
        let error = match timeout(rest, ask(connection.client.clone())).await {
            Ok(Ok(answer)) => {
                self.heard();
                return Ok((answer, connection));
            }
            Ok(Err(error)) => Error::of_client(&connection.endpoint, operation, &error),
            Err(_) => Error::timeout(&connection.endpoint, operation, limit),
        };
        if !error.cause.is_silence() {
            self.counters.heard(Instant::now());
        }
        Err(self.failed(Some(&connection), error))
    }

    /// etcd answered.
    pub(crate) fn heard(&self) {
        self.counters.heard(Instant::now());
        *self.error_slot() = None;
    }

    /// Gives the connection up: the next request makes another one.
    pub(crate) fn distrust(&self, connection: &Connection) {
        self.distrusted.fetch_max(connection.generation, Relaxed);
    }

    fn failed(&self, connection: Option<&Connection>, error: Error) -> Error {
        if error.cause.is_silence() {
            count(&self.counters.failures_total);
        }
        if let Some(connection) = connection.filter(|_| error.cause.wants_another_connection()) {
            self.distrust(connection);
        }
        tracing::debug!(%error, "etcd");
        *self.error_slot() = Some(error.clone());
        error
    }

    /// The connection there is, or a new one.
    async fn connection(&self, operation: &str) -> Result<Connection, Error> {
        let mut state = self.state.lock().await;
        let distrusted = self.distrusted.load(Relaxed);
        state.connection.take_if(|connection| connection.generation <= distrusted);
        if let Some(connection) = &state.connection {
            return Ok(connection.clone());
        }
        if let Some((_, error)) = state.rest.as_ref().filter(|(until, _)| Instant::now() < *until) {
            return Err(Error { operation: operation.to_owned(), ..error.clone() });
        }
        let endpoints = &self.options.endpoints;
        let endpoint = &endpoints[state.next_endpoint % endpoints.len()];
        state.next_endpoint = (state.next_endpoint + 1) % endpoints.len();
        // Set before trying: a caller whose time ends in the middle must not leave the next one without a wait.
        let wait = state.back_off.next_wait();
        let error =
            Error::unsent(endpoint, operation, Cause::Unreachable, "no connection yet".to_owned());
        state.rest = Some((Instant::now() + wait, error));
        // Half of a request's time: what is left is for the request, and for saying which member it was.
        let limit = self.options.request_timeout / 2;
        let attempt = match timeout(limit, self.connect(endpoint)).await {
            Ok(attempt) => attempt,
            Err(_) => Err(Error::timeout(endpoint, "connect", limit)),
        };
        match attempt {
            Ok(client) => {
                state.generation += 1;
                let generation = state.generation;
                let connection =
                    Connection { client, endpoint: endpoint.as_str().into(), generation };
                state.connection = Some(connection.clone());
                state.rest = None;
                state.back_off.reset();
                count(&self.counters.connects_total);
                Ok(connection)
            }
            Err(error) => {
                // The request itself was never sent.
                let error = Error { may_have_happened: false, ..error };
                state.rest = Some((Instant::now() + wait, error.clone()));
                count(&self.counters.failures_total);
                *self.error_slot() = Some(error.clone());
                Err(Error { operation: operation.to_owned(), ..error })
            }
        }
    }

    /// Connects, and reads a key: that shows trust, user, role and quorum at once.
    async fn connect(&self, endpoint: &str) -> Result<Client, Error> {
        let options = &self.options;
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(options.request_timeout / 2)
            .with_keep_alive(PING_INTERVAL, options.request_timeout)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(options.user.is_some());
        if let Some(user) = &options.user {
            let password = user.password.read().map_err(|error| {
                Error::unsent(endpoint, "connect", Cause::NotAuthenticated, error.to_string())
            })?;
            connect = connect.with_user(&user.name, password);
        }
        if let Some(files) = &options.tls {
            let tls = read_tls(files).map_err(|error| {
                Error::unsent(endpoint, "connect", Cause::Tls, error.to_string())
            })?;
            connect = connect.with_tls(tls);
        }
        let of_client = |error| Error::of_client(endpoint, "connect", &error);
        let mut client = Client::connect([endpoint], Some(connect)).await.map_err(of_client)?;
        let probe = self.keys.path(&Key::Meta);
        client.get(probe, Some(GetOptions::new().with_keys_only())).await.map_err(of_client)?;
        Ok(client)
    }

    fn endpoints(&self) -> String {
        self.options.endpoints.join(", ")
    }

    fn error_slot(&self) -> MutexGuard<'_, Option<Error>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
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
