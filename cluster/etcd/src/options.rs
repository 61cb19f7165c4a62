//! The access to etcd, and every time and limit of this crate.

use std::path::PathBuf;
use std::time::Duration;

use weir_ids::ClusterName;

use crate::secret_file::{SecretFileError, read_secret_line};

/// etcd grants no lease shorter than one and a half election timeouts, 2 s by default.
const LEASE_TTL_MIN: Duration = Duration::from_secs(2);
const LEASE_TTL_MAX: Duration = Duration::from_secs(600);
const ENDPOINTS_MAX: usize = 32;

/// PEM files of the TLS connection. They are read again for each connection, so they may be renewed
/// at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities that etcd's certificate is checked against.
    pub ca: PathBuf,
    /// This process's certificate and its key, if etcd requires one.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Name in etcd's certificate, if it is not the one in the endpoint.
    pub server_name: Option<String>,
}

/// A user of etcd. Its password does not appear in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub password: Password,
}

/// A password, or the file that holds it.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    Given(String),
    /// A file, read again for each connection, so that it may be changed at any time.
    File(PathBuf),
}

impl Password {
    /// Returns the current password.
    ///
    /// # Errors
    /// When its file cannot be read, or other users can read it.
    pub(crate) fn read(&self) -> Result<String, SecretFileError> {
        match self {
            Self::Given(password) => Ok(password.clone()),
            Self::File(path) => read_secret_line(path),
        }
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Given(_) => out.write_str("Given"),
            Self::File(path) => out.debug_tuple("File").field(path).finish(),
        }
    }
}

impl std::fmt::Debug for User {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The access to etcd. [`EtcdOptions::new`] sets the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOptions {
    pub cluster: ClusterName,
    /// `http://` or `https://` addresses of members; one is used at a time, the next one after a
    /// failure.
    pub endpoints: Vec<String>,
    pub tls: Option<TlsFiles>,
    pub user: Option<User>,
    /// Longest time for one request, connecting included. Default 2 s.
    pub request_timeout: Duration,
    /// Time of the lease of a node's key or of the leader's. Whole seconds; default 10 s.
    pub lease_ttl: Duration,
    /// Part of its lease that a leader does not use: longer than its longest step. Default 3 s.
    pub leader_margin: Duration,
    /// First wait after a failure; it doubles up to [`retry_max`](Self::retry_max). Default 100 ms.
    pub retry_first: Duration,
    /// Longest wait after a failure. Default 5 s.
    pub retry_max: Duration,
    /// Time between two reads of a key that another process holds. Default 1 s.
    pub claim_interval: Duration,
    /// Silence of a watch after which it is asked for its progress. Default 5 s.
    pub progress_interval: Duration,
    /// Time between two full lists beside a running watch. Default 60 s.
    pub list_interval: Duration,
    /// Time that a running watch may take to deliver what a full list contains. Default 5 s.
    pub list_grace: Duration,
    /// Events a mirror holds before it stops reading from etcd. Default 1,024.
    pub queue_len: usize,
    /// Most keys in the range of a mirror; a longer list is refused. Default 1,000,000.
    pub keys_max: usize,
    /// Seed of the jitter; must differ between processes.
    pub seed: u64,
}

/// An error in [`EtcdOptions`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("etcd needs 1 to {ENDPOINTS_MAX} endpoints, not {0}")]
    Endpoints(usize),
    #[error("endpoint \"{0}\" must begin with {1}")]
    Scheme(String, &'static str),
    #[error("the lease must be of 2 to 600 whole seconds, not {0:?}")]
    LeaseTtl(Duration),
    #[error("a request may take {0:?}: at most a third of the lease, {1:?}")]
    RequestTimeout(Duration, Duration),
    #[error("a leader cannot leave {0:?} of a lease of {1:?} unused: at most half")]
    Margin(Duration, Duration),
    #[error("{0} must be longer than nothing")]
    Zero(&'static str),
    #[error("{0} cannot be read: {1}")]
    File(PathBuf, String),
    /// A key or password file that cannot be read, or that other users can read.
    #[error(transparent)]
    Secret(#[from] SecretFileError),
    #[error("the thread for etcd cannot be started: {0}")]
    Thread(String),
}

impl EtcdOptions {
    pub fn new(cluster: ClusterName, endpoints: Vec<String>, seed: u64) -> Self {
        Self {
            cluster,
            endpoints,
            tls: None,
            user: None,
            request_timeout: Duration::from_secs(2),
            lease_ttl: Duration::from_secs(10),
            leader_margin: Duration::from_secs(3),
            retry_first: Duration::from_millis(100),
            retry_max: Duration::from_secs(5),
            claim_interval: Duration::from_secs(1),
            progress_interval: Duration::from_secs(5),
            list_interval: Duration::from_secs(60),
            list_grace: Duration::from_secs(5),
            queue_len: 1024,
            keys_max: 1_000_000,
            seed,
        }
    }

    /// Reports all errors, not only the first one.
    ///
    /// # Errors
    /// See [`OptionsError`].
    pub fn check(&self) -> Result<(), Vec<OptionsError>> {
        let mut errors = Vec::new();
        if self.endpoints.is_empty() || self.endpoints.len() > ENDPOINTS_MAX {
            errors.push(OptionsError::Endpoints(self.endpoints.len()));
        }
        let scheme = if self.tls.is_some() { "https://" } else { "http://" };
        let foreign = self.endpoints.iter().filter(|endpoint| !endpoint.starts_with(scheme));
        errors.extend(foreign.map(|endpoint| OptionsError::Scheme(endpoint.clone(), scheme)));
        let ttl = self.lease_ttl;
        if !(LEASE_TTL_MIN..=LEASE_TTL_MAX).contains(&ttl) || ttl.subsec_nanos() != 0 {
            errors.push(OptionsError::LeaseTtl(ttl));
        }
        // Two attempts and a wait must fit between a renewal and the end of the lease.
        if self.request_timeout > ttl / 3 {
            errors.push(OptionsError::RequestTimeout(self.request_timeout, ttl));
        }
        if self.leader_margin > ttl / 2 {
            errors.push(OptionsError::Margin(self.leader_margin, ttl));
        }
        let durations = [
            ("request_timeout", self.request_timeout),
            ("retry_first", self.retry_first),
            ("retry_max", self.retry_max),
            ("claim_interval", self.claim_interval),
            ("progress_interval", self.progress_interval),
            ("list_interval", self.list_interval),
            ("list_grace", self.list_grace),
        ];
        let zero = durations.iter().filter(|(_, duration)| duration.is_zero());
        errors.extend(zero.map(|(name, _)| OptionsError::Zero(name)));
        if self.queue_len == 0 {
            errors.push(OptionsError::Zero("queue_len"));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> EtcdOptions {
        let endpoints = vec!["http://10.0.0.1:2379".to_owned(), "http://10.0.0.2:2379".to_owned()];
        EtcdOptions::new("north".parse().unwrap(), endpoints, 1)
    }

    #[test]
    fn the_defaults_are_sound() {
        assert_eq!(options().check(), Ok(()));
    }

    #[test]
    fn every_error_is_named_at_once() {
        let mut bad = options();
        bad.endpoints[1] = "https://10.0.0.2:2379".to_owned();
        bad.lease_ttl = Duration::from_millis(1500);
        bad.queue_len = 0;
        let errors = bad.check().unwrap_err();
        assert_eq!(errors.len(), 5, "{errors:?}");
        assert_eq!(
            errors[0].to_string(),
            "endpoint \"https://10.0.0.2:2379\" must begin with http://"
        );
    }

    #[test]
    fn tls_wants_https() {
        let mut bad = options();
        bad.tls = Some(TlsFiles { ca: "ca.pem".into(), client: None, server_name: None });
        assert_eq!(bad.check().unwrap_err().len(), 2);
    }

    #[test]
    fn a_password_is_not_printed() {
        let user = User { name: "weir".to_owned(), password: Password::Given("secret".to_owned()) };
        assert!(!format!("{user:?}").contains("secret"));
    }
}
