//! A controller's process on its own clock, over the model of etcd.

use weir_controller::process::{Moment, Process, ReportQuestion};
use weir_controller::state::{ControllerOptions, NodeReport};
use weir_etcd::message::TransportEvent;
use weir_etcd::{ClusterName, Contact, EtcdOptions, LeaderRecord};

use super::clock::ProcessClock;
use super::wire::Wire;
use crate::etcd::{ClientId, Etcd};

/// The identity, clock and options of a controller's process.
#[derive(Clone, Debug)]
pub struct ControllerSetup {
    pub client: ClientId,
    pub cluster: ClusterName,
    /// Seed of its jitter: different in each process.
    pub seed: u64,
    /// Different at each start.
    pub boot_id: String,
    pub clock: ProcessClock,
    pub options: ControllerOptions,
}

/// A controller's process, from its start to its end.
#[derive(Debug)]
pub struct ControllerProcess {
    process: Process,
    clock: ProcessClock,
    wire: Wire,
}

impl ControllerProcess {
    /// Starts a process, which stands for election.
    pub fn new(setup: ControllerSetup, now_us: u64) -> Self {
        let ControllerSetup { client, cluster, seed, boot_id, clock, options } = setup;
        // The addresses of etcd's members mean nothing here.
        let etcd = EtcdOptions::new(cluster, Vec::new(), seed);
        let (now, name) = (clock.instant(now_us), options.name.clone());
        let record = LeaderRecord { boot_id, name };
        let process = Process::new(&etcd, &Contact::new(now), &record, options, now);
        Self { process, clock, wire: Wire::new(client) }
    }

    /// Whether it acts as the leader, by its own clock.
    pub fn is_leading(&self, now_us: u64) -> bool {
        self.process.is_leading(self.clock.instant(now_us))
    }

    /// Returns the questions to be carried to their nodes.
    pub fn take_questions(&mut self) -> Vec<ReportQuestion> {
        self.process.take_questions()
    }

    /// Takes a node's answer. One that arrives too late is ignored.
    pub fn answered(&mut self, now_us: u64, etcd: &mut Etcd, number: u64, report: NodeReport) {
        self.process.answered(self.moment(now_us), number, report);
        self.carry(now_us, etcd);
    }

    /// Returns when [`poll`](Self::poll) is due, if no event arrives before.
    pub fn next_us(&self) -> Option<u64> {
        self.process.deadline().map(|deadline| self.clock.us_at(deadline))
    }

    /// Takes an event of etcd for this client.
    pub fn event(&mut self, now_us: u64, etcd: &mut Etcd, event: TransportEvent) {
        if let Some(event) = self.wire.event(event) {
            self.process.event(self.moment(now_us), event);
        }
        self.carry(now_us, etcd);
    }

    /// Does everything that is due.
    pub fn poll(&mut self, now_us: u64, etcd: &mut Etcd) {
        self.process.poll(self.moment(now_us));
        self.carry(now_us, etcd);
    }

    fn moment(&self, now_us: u64) -> Moment {
        Moment { instant: self.clock.instant(now_us), now: self.clock.now(now_us) }
    }

    fn carry(&mut self, now_us: u64, etcd: &mut Etcd) {
        while let Some(order) = self.process.next_order() {
            self.wire.carry(etcd, now_us, order);
        }
    }
}
