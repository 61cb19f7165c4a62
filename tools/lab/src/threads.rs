//! Threads that end when their owner is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Result;

use crate::namespace::Namespace;

/// Flag that asks a thread to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

/// Running threads. Dropping this asks all of them to end and joins them.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    stop: Stop,
    running: Vec<JoinHandle<()>>,
}

impl Stop {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Threads {
    /// Starts a thread. `body` must check the flag regularly.
    pub(crate) fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce(&Stop) + Send + 'static,
    ) -> Result<()> {
        let stop = self.stop.clone();
        let thread = thread::Builder::new().name(name.to_owned());
        self.running.push(thread.spawn(move || body(&stop))?);
        Ok(())
    }

    /// Like `spawn`, for a thread in a namespace.
    pub(crate) fn spawn_in(
        &mut self,
        namespace: &Namespace,
        name: &str,
        body: impl FnOnce(&Stop) + Send + 'static,
    ) -> Result<()> {
        let stop = self.stop.clone();
        self.running.push(namespace.spawn(name, move || body(&stop))?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
        for thread in self.running.drain(..) {
            // A thread that panicked has printed its panic.
            let _ = thread.join();
        }
    }
}
