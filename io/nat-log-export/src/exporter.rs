//! The exporter: its senders, and a thread for each collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::connection::CollectorAddress;
use crate::counters::CollectorCounters;
use crate::courier::{Courier, CourierConfig, CourierShared};
use crate::encoder::Encoder;
use crate::options::{CollectorOptions, ExportError, ExportOptions};
use crate::pacing::Pacer;
use crate::sender::{EventInlet, EventSender, ring};
use crate::spool::Spool;

/// Longest time for which a stalled disk or collector delays the end.
const END_PATIENCE: Duration = Duration::from_secs(5);
const END_POLL: Duration = Duration::from_millis(2);

/// Starts the threads of collectors.
#[derive(Debug)]
pub struct Exporter;

/// Watches and ends the threads. Dropping it ends them as [`ExportHandle::stop`] does.
#[derive(Debug)]
pub struct ExportHandle {
    collectors: Vec<Collector>,
    suppressed: Vec<Arc<AtomicU64>>,
}

#[derive(Debug)]
struct Collector {
    name: String,
    shared: Arc<CourierShared>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Opens the spools and starts a thread for each collector. The threads may run on the cores of
    /// the caller. Returns `senders` senders: one for each thread that makes events.
    ///
    /// # Errors
    /// Names the collector and the fault; no thread is left running then.
    pub fn start(
        options: &ExportOptions,
        senders: usize,
    ) -> Result<(Vec<EventSender>, ExportHandle), ExportError> {
        let mut outlets: Vec<Vec<_>> = (0..senders).map(|_| Vec::new()).collect();
        let mut handle = ExportHandle { collectors: Vec::new(), suppressed: Vec::new() };
        for collector in &options.collectors {
            let (target, encoder) = collector.prepare()?;
            let mut inlets = Vec::new();
            for outlets in &mut outlets {
                let (outlet, inlet) = ring(collector.queue_records);
                outlets.push(outlet);
                inlets.push(inlet);
            }
            handle.collectors.push(Collector::start(collector, target, encoder, inlets)?);
        }
        let interval_ms = u64::try_from(options.refusals_every.as_millis()).unwrap_or(u64::MAX);
        let mut made = Vec::new();
        for outlets in outlets {
            let suppressed = Arc::new(AtomicU64::new(0));
            handle.suppressed.push(Arc::clone(&suppressed));
            made.push(EventSender::new(outlets, Pacer::new(interval_ms), suppressed));
        }
        Ok((made, handle))
    }
}

impl Collector {
    fn start(
        options: &CollectorOptions,
        target: CollectorAddress,
        encoder: Encoder,
        inlets: Vec<EventInlet>,
    ) -> Result<Self, ExportError> {
        let name = options.name.clone();
        let failed = |source| ExportError::Spool { name: name.clone(), source };
        let spool = options.spool.as_ref().map(Spool::open).transpose().map_err(failed)?;
        let orders = CourierConfig {
            name: name.clone(),
            target,
            encoder,
            has_prefixes: options.has_prefixes,
            spool,
            inlets,
            resend: options.resend,
            flush: options.flush,
        };
        let shared = Arc::new(CourierShared::default());
        let courier = Courier::new(orders, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("weir-export".to_owned())
            .spawn(move || courier.run())
            .map_err(|source| ExportError::Thread { name: name.clone(), source })?;
        Ok(Self { name, shared, thread: Some(thread) })
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl ExportHandle {
    /// Returns the counters of each collector, in the order of the options.
    pub fn counters(&self) -> Vec<CollectorCounters> {
        let read = |it: &Collector| it.shared.counters.read(&it.name, !it.is_finished());
        self.collectors.iter().map(read).collect()
    }

    /// Returns the refusals that were not sent because one of the same home and kind had been sent
    /// shortly before.
    pub fn suppressed_total(&self) -> u64 {
        self.suppressed.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Sends the events that the senders have passed in, for about two seconds; events that a
    /// collector has not acknowledged by then are written to its spool. Returns the last counters.
    /// A stalled disk is waited for five seconds at most: its thread is then left running. So is a
    /// thread that is connecting; it ends within seconds.
    pub fn stop(mut self) -> Vec<CollectorCounters> {
        self.join();
        self.counters()
    }

    fn join(&mut self) {
        for collector in &self.collectors {
            collector.shared.is_stop_asked.store(true, Ordering::Release);
            if let Some(thread) = &collector.thread {
                thread.thread().unpark();
            }
        }
        let end = Instant::now() + END_PATIENCE;
        while !self.collectors.iter().all(Collector::is_finished) {
            if Instant::now() >= end {
                tracing::error!(
                    event = "export-abandoned",
                    "a collector's thread does not end: the disk of its spool stands still"
                );
                break;
            }
            std::thread::sleep(END_POLL);
        }
        for collector in &mut self.collectors {
            let is_finished = collector.is_finished();
            if let Some(thread) = collector.thread.take().filter(|_| is_finished) {
                // A panic has been reported by the panic hook; the thread has ended either way.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for ExportHandle {
    fn drop(&mut self) {
        self.join();
    }
}
