//! One port of the generator: bursts in and out, and the gateway it plays there.

use weir_dpdk::{Mbuf, MbufPool, Port, RxQueue, TxQueue};
use weir_wire::frame::{Frame, Pool};

use crate::gateway::{ArpFrame, Gateway, Heard};

/// Packets sent in a burst.
pub const BURST: usize = 32;
/// Packets received in a burst, at most. More than are sent, so that a backlog after a hiccup does not stay for ever.
const RECEIVE_BURST: usize = 2 * BURST;
/// Buffers kept between receiving and sending.
pub const SPARE_MAX: usize = 8 * BURST;

#[derive(Debug)]
pub struct Side {
    pub gateway: Gateway,
    /// Frames received that are neither packets of the generator nor ARP.
    pub foreign_total: u64,
    rx: RxQueue,
    tx: TxQueue,
    pool: MbufPool,
    outgoing: Vec<Mbuf>,
    port: Port,
}

impl Side {
    pub fn new(port: Port, pool: MbufPool, gateway: Gateway) -> Self {
        let (rx, tx) = port.queues();
        Side { gateway, foreign_total: 0, rx, tx, pool, outgoing: Vec::with_capacity(BURST), port }
    }

    /// Whether a packet sent now has somewhere to go.
    pub fn link_up(&self) -> bool {
        self.port.link_up()
    }

    /// Receives a burst and hands each frame to `enter`; one that it does not know (`false`) goes to the gateway. The buffers
    /// stay in `spare` and do not go back to the pool: the next packets are written into them while they are warm.
    #[inline]
    pub fn receive(
        &mut self,
        spare: &mut Vec<Mbuf>,
        mut enter: impl FnMut(&[u8]) -> bool,
    ) -> usize {
        // Losses of the device must not let `spare` grow.
        spare.truncate(SPARE_MAX - RECEIVE_BURST);
        let first = spare.len();
        let count = self.rx.burst(spare, RECEIVE_BURST);
        let mut answer = None;
        for frame in &spare[first..] {
            if enter(frame.data()) {
                continue;
            }
            match self.gateway.receive(frame.data()) {
                Heard::NotArp => self.foreign_total += 1,
                Heard::Arp => {}
                Heard::Question(reply) => answer = Some(reply),
            }
        }
        if let Some(answer) = answer {
            self.send_arp(&answer);
        }
        count
    }

    /// Appends a packet of `len` bytes, written by `write`, to the burst; `false` when there is no buffer left.
    #[inline]
    pub fn append(
        &mut self,
        spare: &mut Vec<Mbuf>,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(mut frame) = spare.pop().or_else(|| self.pool.alloc()) else {
            return false;
        };
        let missing = len.saturating_sub(frame.data().len());
        if missing > 0 && !frame.extend(missing) {
            return false;
        }
        frame.truncate(len);
        write(frame.data_mut());
        self.outgoing.push(frame);
        true
    }

    /// Sends the burst; returns how many packets the port took. The others are dropped, and count as never sent.
    #[inline]
    pub fn send(&mut self) -> u64 {
        if self.outgoing.is_empty() { 0 } else { self.tx.burst(&mut self.outgoing) as u64 }
    }

    /// Sends an ARP frame, if there is a buffer: ARP repeats itself.
    pub fn send_arp(&mut self, bytes: &ArpFrame) {
        let Some(mut frame) = self.pool.alloc() else { return };
        if frame.extend(bytes.len()) {
            frame.data_mut().copy_from_slice(bytes);
            self.outgoing.push(frame);
            self.tx.burst(&mut self.outgoing);
        }
    }
}
