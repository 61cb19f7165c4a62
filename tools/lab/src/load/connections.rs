//! Many TCP connections at once, each with its pattern, kept up: a broken one is replaced.
//!
//! Two threads, one in the homes' namespace and one in the server's, each run all their connections
//! as tasks.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::client::{Client, SILENCE, Shared, Task};
use super::clock::Clock;
use super::ledger::{Ledger, Pattern};
use super::server;
use super::server_address::ServerAddress;
use crate::condition::wait_for;
use crate::namespace::Namespace;

/// Time between the starts of two connections: bursts of SYNs are not what is tested.
const START_INTERVAL: Duration = Duration::from_millis(3);
/// Time before a broken connection is replaced.
const AFTER_BREAK: Duration = Duration::from_secs(1);
/// Time limits for all connections to open, and to answer a call.
const OPEN_DEADLINE: Duration = Duration::from_secs(60);
const CALL_DEADLINE: Duration = SILENCE.saturating_add(Duration::from_secs(3));

/// Number of connections of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    /// Downloads of 8 kbit/s.
    pub trickles: u32,
    /// Downloads of 1 Mbit/s.
    pub streams: u32,
    /// Dialogues, with a question each second.
    pub dialogues: u32,
    /// Connections that are silent until they are called.
    pub idle: u32,
    /// Short connections begun each second, besides the others.
    pub short_per_sec: u32,
}

impl Mixture {
    /// Returns the number of lasting connections.
    pub fn lasting(&self) -> u32 {
        self.trickles + self.streams + self.dialogues + self.idle
    }

    /// Returns pattern and task of the lasting connection at `position`.
    fn lasting_kind(&self, position: u32) -> (Pattern, Task) {
        let send = |bytes, millis| Task::Send { bytes, interval: Duration::from_millis(millis) };
        let mut rest = position;
        for (count, kind) in [
            (self.trickles, (Pattern::Download, send(1_000, 1_000))),
            (self.streams, (Pattern::Download, send(12_500, 100))),
            (self.dialogues, (Pattern::Dialogue, Task::Answer)),
        ] {
            if rest < count {
                return kind;
            }
            rest -= count;
        }
        (Pattern::Idle, Task::Answer)
    }
}

/// The running connections; they end when dropped.
#[derive(Debug)]
pub struct Connections {
    clock: Clock,
    ledger: Arc<Mutex<Ledger>>,
    calls: watch::Sender<u64>,
    lasting: usize,
    threads: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Connections {
    /// Opens all connections; returns when they are open. `homes` are the addresses of the homes,
    /// which are used in turn.
    pub fn start(
        clock: Clock,
        mixture: Mixture,
        homes: (&Namespace, &[IpAddr]),
        server: (&Namespace, ServerAddress),
    ) -> Result<Self> {
        ensure!(!homes.1.is_empty(), "no homes");
        let (calls, called) = watch::channel(0);
        let ledger: Arc<Mutex<Ledger>> = Arc::default();
        let shared = Shared { clock, ledger: Arc::clone(&ledger), calls: called, server: server.1 };
        let mut connections =
            Self { clock, ledger, calls, lasting: mixture.lasting() as usize, threads: Vec::new() };
        let (is_listening, listens) = std::sync::mpsc::channel();
        for address in server.1.all() {
            let is_listening = is_listening.clone();
            connections.thread(server.0, "tcp-server", async move {
                let listener = server::bind(address).await;
                let bound = listener.as_ref().map(|_| ()).map_err(|error| format!("{error:#}"));
                // The caller waits for this result.
                let _ = is_listening.send(bound);
                if let Ok(listener) = listener {
                    server::listen(listener).await;
                }
            })?;
            listens.recv()?.map_err(|error| anyhow::anyhow!("{address}: {error}"))?;
        }
        let addresses = homes.1.to_vec();
        connections
            .thread(homes.0, "tcp-homes", async move { open(shared, mixture, addresses).await })?;
        connections.wait_open()?;
        Ok(connections)
    }

    /// Waits until all lasting connections are open, including those that replace broken ones.
    pub fn wait_open(&self) -> Result<()> {
        wait_for("all connections", OPEN_DEADLINE, || {
            (self.ledger().open(None) >= self.lasting).then_some(())
        })
        .with_context(|| format!("only {} are open", self.ledger().open(None)))
    }

    /// Returns the record of all connections.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of connections that are open if none breaks.
    pub fn lasting(&self) -> usize {
        self.lasting
    }

    /// Calls the idle connections, and waits until every connection has received an answer since,
    /// or has broken.
    pub fn call(&self) -> Result<()> {
        let called = self.clock.now();
        self.calls.send_modify(|calls| *calls += 1);
        let begun = Instant::now();
        wait_for("answers of all connections", CALL_DEADLINE, || {
            (self.ledger().silent_since(called) == 0).then_some(())
        })
        .with_context(|| {
            let silent = self.ledger().silent_since(called);
            format!("{silent} said nothing for {:?}", begun.elapsed())
        })
    }

    fn thread(
        &mut self,
        namespace: &Namespace,
        name: &str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        let (stop, stopped) = oneshot::channel();
        let thread = namespace.spawn(name, move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            // Without a runtime nothing opens, which the caller sees.
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                tokio::select! {
                    () = work => {}
                    _ = stopped => {}
                }
            });
        })?;
        self.threads.push((stop, thread));
        Ok(())
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        for (stop, thread) in self.threads.drain(..).rev() {
            drop(stop);
            // A thread that panicked has printed its panic.
            let _ = thread.join();
        }
    }
}

/// Opens all connections and keeps them up permanently.
async fn open(shared: Shared, mixture: Mixture, homes: Vec<IpAddr>) {
    let numbers = Arc::new(AtomicU32::new(1));
    for position in 0..mixture.lasting() {
        let (pattern, task) = mixture.lasting_kind(position);
        let local = homes[position as usize % homes.len()];
        let (shared, numbers) = (shared.clone(), Arc::clone(&numbers));
        tokio::spawn(async move {
            loop {
                client(&shared, &numbers, pattern, task, local).live().await;
                sleep(AFTER_BREAK).await;
            }
        });
        sleep(START_INTERVAL).await;
    }
    let Some(interval) = Duration::from_secs(1).checked_div(mixture.short_per_sec) else {
        return std::future::pending().await;
    };
    for local in homes.iter().cycle() {
        let client = client(&shared, &numbers, Pattern::Short, Task::Answer, *local);
        tokio::spawn(client.live());
        sleep(interval).await;
    }
}

fn client(
    shared: &Shared,
    numbers: &AtomicU32,
    pattern: Pattern,
    task: Task,
    local: IpAddr,
) -> Client {
    let number = numbers.fetch_add(1, Ordering::Relaxed);
    Client { shared: shared.clone(), number, pattern, task, local, interval: INTERVAL }
}

/// Time between two questions of a dialogue.
const INTERVAL: Duration = Duration::from_secs(1);
