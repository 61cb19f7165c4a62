//! The worker's loop: turns over DPDK ports, and the work between two of them. Hot: no allocation,
//! lock, system call or log line per packet.
//!
//! ```text
//!   now -> turn (`weir_worker`) -> request -> events -> stats -> rest
//! ```
//!
//! The clock is read once per turn, the timestamp counter also around the tick. Everything besides
//! packets has a budget per turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

use weir_config::Poll;
use weir_dpdk::{Mbuf, tsc};

use crate::back_off::{IdleBackOff, Rest};
use crate::block_events::BlockEventLog;
use crate::cluster::ThreadLink;
use crate::dpdk_ports::DpdkPorts;
use crate::publisher::Publisher;
use crate::request::LiveSwap;

/// Block events handed to the log per turn.
const EVENTS_PER_TURN: usize = 64;

/// Everything one worker owns.
#[derive(Debug)]
pub(crate) struct WorkerLoop {
    pub core: weir_worker::Worker<Mbuf, ThreadLink>,
    pub ports: DpdkPorts,
    pub publisher: Publisher,
    pub block_log: Option<BlockEventLog>,
    pub poll: Poll,
    pub is_stopping: Arc<AtomicBool>,
}

/// Result of a turn.
struct TurnResult {
    packets: usize,
    /// Whether other work than packets needs the next turn soon.
    is_busy_elsewhere: bool,
}

impl WorkerLoop {
    /// Forwards until the node stops.
    pub(crate) fn run(mut self) {
        self.core.start(self.ports.clock.now(), &mut self.ports);
        let mut back_off = IdleBackOff::default();
        while !self.is_stopping.load(Relaxed) {
            let turn = self.turn();
            if turn.is_busy_elsewhere || self.poll == Poll::Busy {
                back_off.wake();
                continue;
            }
            if turn.packets > 0 {
                back_off.found(turn.packets);
                continue;
            }
            self.publisher.rest(tsc(), &self.ports.stats);
            match back_off.rest() {
                Rest::Spin => std::hint::spin_loop(),
                Rest::Sleep(time) => std::thread::sleep(time),
            }
        }
        self.core.let_go(self.ports.clock.now(), &mut self.ports);
        self.publisher.publish_all(&self.core.engine, &self.ports.stats);
        self.log_blocks(usize::MAX);
        self.log_sessions();
    }

    fn turn(&mut self) -> TurnResult {
        let cycles = tsc();
        let now = self.ports.clock.now();
        let turn = self.core.turn(now, &mut self.ports);
        let packets = turn.packets;
        let stats = &self.ports.stats;
        if packets > 0 {
            stats.busy_packets.add(packets as u64);
            stats.busy_cycles.add(tsc().wrapping_sub(cycles));
        }
        if turn.late + turn.discarded > 0 {
            stats.late_packets.add(turn.late as u64);
            stats.late_discarded.add(turn.discarded as u64);
        }
        let is_asked = self.ports.request_server.serve(self.core.engine.nat_mut().admin_mut(), now);
        if is_asked {
            self.swap_live();
        }
        let is_busy_elsewhere = is_asked || turn.is_busy || turn.is_holding;
        self.log_blocks(EVENTS_PER_TURN);
        self.log_sessions();
        let has_work = packets > 0 || is_busy_elsewhere || self.ports.has_ticked;
        let (engine, stats) = (&self.core.engine, &self.ports.stats);
        self.publisher.publish(now, cycles, has_work, engine, stats);
        TurnResult { packets, is_busy_elsewhere }
    }

    /// Puts the generation in force that was asked for, and sends the former one back.
    #[cold]
    fn swap_live(&mut self) {
        let Some(LiveSwap { settings, reply }) = self.ports.request_server.take_live_swap() else {
            return;
        };
        let former = self.core.engine.setup().swap_live(settings);
        self.ports.stats.generation.set(self.core.engine.admin().generation());
        // The requester waits as long as it takes; only at the end of the node has it gone.
        let _ = reply.send(former);
    }

    /// Hands block events to the log's own thread; without a log they are only taken out of the
    /// NAT's ring. When no event is left, the next piece of a listing follows.
    fn log_blocks(&mut self, events_max: usize) {
        let mut nat = self.core.engine.nat_mut().admin_mut();
        let Some(first) = nat.next_event() else {
            if let Some(log) = &self.block_log {
                log.list(&mut nat);
            }
            return;
        };
        let at = SystemTime::now();
        if let Some(log) = &mut self.block_log {
            log.note_lost(nat.read().events_lost());
        }
        let mut next = Some(first);
        let mut events = 0;
        while let Some(event) = next {
            if let Some(log) = &mut self.block_log {
                log.push(&event, at);
            }
            events += 1;
            next = if events < events_max { nat.next_event() } else { None };
        }
    }

    /// Hands begun, ended and refused sessions of homes to the collectors.
    fn log_sessions(&mut self) {
        if let Some(log) = &mut self.block_log {
            log.log_sessions(self.core.engine.nat_mut().admin_mut());
        }
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
