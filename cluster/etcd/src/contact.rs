//! The contact of a process with etcd: counters, and the last failure.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::counters::{Counts, EtcdCounters};
use crate::error::Error;

/// Shared by the links of a process, which write it, and its readers, which show it.
#[derive(Debug)]
pub struct Contact {
    pub(crate) counters: EtcdCounters,
    last_error: Mutex<Option<Error>>,
}

impl Contact {
    /// Creates a contact without any answer yet.
    pub fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self { counters: EtcdCounters::new(now), last_error: Mutex::new(None) })
    }

    /// Returns the current counters.
    pub fn counts(&self, now: Instant) -> Counts {
        self.counters.read(now)
    }

    /// Returns the last failure, if nothing has succeeded since.
    pub fn last_error(&self) -> Option<Error> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_error(&self, error: Option<Error>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}
