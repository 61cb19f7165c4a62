//! The connection: made on a thread of its own, retried after failures, dropped when it breaks.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Instant;

use super::{Courier, OutgoingBytes};
use crate::connection::{CollectorConnection, ConnectError};
use crate::counters::add;

pub(super) enum CollectorLink {
    Up(CollectorConnection),
    Connecting(Receiver<Result<CollectorConnection, ConnectError>>),
    Waiting { until: Instant },
}

impl Courier {
    /// Connects, or waits until the next attempt is due.
    pub(super) fn turn_link(&mut self) {
        match &mut self.link {
            CollectorLink::Up(_) => {}
            CollectorLink::Waiting { until } => {
                if Instant::now() >= *until {
                    self.begin_connecting();
                }
            }
            CollectorLink::Connecting(answer) => match answer.try_recv() {
                Ok(Ok(connection)) => self.up(connection),
                Ok(Err(error)) => self.not_connected(&error),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    self.not_connected(&"the thread that connects has ended");
                }
            },
        }
    }

    fn begin_connecting(&mut self) {
        let (sender, receiver) = mpsc::channel();
        let target = self.orders.target.clone();
        let builder = std::thread::Builder::new().name("weir-export-connect".to_owned());
        let thread = builder.spawn(move || {
            // If the courier has ended meanwhile, the connection is not needed.
            let _ = sender.send(CollectorConnection::connect(&target));
        });
        match thread {
            Ok(_) => self.link = CollectorLink::Connecting(receiver),
            Err(error) => self.not_connected(&error),
        }
    }

    fn up(&mut self, connection: CollectorConnection) {
        let counters = &self.shared.counters;
        add(&counters.connects, 1);
        counters.is_connected.store(true, Ordering::Relaxed);
        self.back_off.connected(Instant::now());
        self.orders.encoder.begin_session();
        self.link = CollectorLink::Up(connection);
        let (collector, address) = (&self.orders.name, &self.orders.target.address);
        tracing::info!(event = "export-connected", %collector, %address, "events go to the collector");
    }

    fn not_connected(&mut self, error: &dyn std::fmt::Display) {
        add(&self.shared.counters.connect_failures, 1);
        let is_first = self.back_off.is_first();
        self.link = CollectorLink::Waiting { until: self.back_off.failed(Instant::now()) };
        self.shared.counters.failed(error.to_string());
        if is_first {
            let collector = &self.orders.name;
            tracing::warn!(event = "export-not-connected", %collector, %error, "the collector is tried again");
        }
        self.spill();
    }

    /// Handles the end of the connection.
    pub(super) fn down(&mut self, error: &io::Error) {
        let counters = &self.shared.counters;
        add(&counters.breaks, 1);
        counters.is_connected.store(false, Ordering::Relaxed);
        counters.failed(format!("the connection broke: {error}"));
        let collector = &self.orders.name;
        tracing::warn!(event = "export-broken", %collector, %error, "the connection broke; the collector is tried again");
        self.link = CollectorLink::Waiting { until: self.back_off.failed(Instant::now()) };
        self.flight.rewind(self.outgoing.events);
        self.outgoing = OutgoingBytes::default();
        self.acknowledged.clear();
        self.spill();
    }
}
