//! A thread on a core of its own, which makes everything that it works on itself.

use std::fs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::work::{Prepared, Work};

enum Order {
    Prepare(Work),
    GetReady,
    Begin(Instant),
}

pub(crate) struct CoreThread {
    orders: Sender<Order>,
    ready: Receiver<()>,
    rates: Receiver<Option<f64>>,
}

impl CoreThread {
    pub(crate) fn new(core: usize) -> Self {
        let (orders, ordered) = channel();
        let (report_ready, ready) = channel();
        let (report, rates) = channel();
        thread::spawn(move || {
            keep_to(core);
            run(&ordered, &report_ready, &report);
        });
        Self { orders, ready, rates }
    }

    pub(crate) fn prepare(&self, work: Work) {
        self.order(Order::Prepare(work));
        self.await_ready();
    }

    pub(crate) fn get_ready(&self) {
        self.order(Order::GetReady);
    }

    pub(crate) fn await_ready(&self) {
        self.ready.recv().expect("the thread runs");
    }

    pub(crate) fn begin(&self, begin: Instant) {
        self.order(Order::Begin(begin));
    }

    /// Waits for the end of the phase; returns the rate in millions a second, none if the kernel
    /// ran something else on the core meanwhile.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.rates.recv().expect("the thread runs")
    }

    fn order(&self, order: Order) {
        self.orders.send(order).expect("the thread runs");
    }
}

fn run(orders: &Receiver<Order>, ready: &Sender<()>, rates: &Sender<Option<f64>>) {
    let mut prepared = None;
    // The other end is gone when the program ends.
    for order in orders {
        match order {
            Order::Prepare(work) => {
                // The memory of the former work is free before that of this one is taken.
                prepared = None;
                prepared = Some(Prepared::new(work)).or(prepared);
                let _ = ready.send(());
            }
            Order::GetReady => {
                prepared.as_mut().expect("work was prepared").get_ready();
                let _ = ready.send(());
            }
            Order::Begin(begin) => {
                let work = prepared.as_mut().expect("work was prepared");
                let before = interruptions();
                let done = work.run(begin).filter(|_| interruptions() == before);
                let rate = done.map(|(count, time)| count as f64 / time.as_secs_f64() / 1e6);
                let _ = rates.send(rate);
            }
        }
    }
}

/// Returns how often the kernel has taken the core away from this thread.
fn interruptions() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").expect("procfs is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).expect("the kernel counts them")
}

fn keep_to(core: usize) {
    let mut set = CpuSet::new();
    set.set(core).expect("the number is small");
    sched_setaffinity(Pid::from_raw(0), &set)
        .unwrap_or_else(|error| panic!("core {core} is needed: {error}"));
}
