//! What a process knows of its contact with etcd: counters, and the last failure.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::counters::{Counters, Counts};
use crate::error::Error;

/// Shared by the links of a process, which write it, and by those who show it.
#[derive(Debug)]
pub struct Contact {
    pub(crate) counters: Counters,
    last_error: Mutex<Option<Error>>,
}

impl Contact {
    /// No contact yet.
    pub fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self { counters: Counters::new(now), last_error: Mutex::new(None) })
    }

    /// The counters now.
    pub fn counts(&self, now: Instant) -> Counts {
        self.counters.read(now)
    }

    /// The last failure, if nothing has worked since.
    pub fn last_error(&self) -> Option<Error> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_error(&self, error: Option<Error>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}
