//! One port of the generator: bursts in and out, and the gateway that it simulates there. Hot path.

use weir_dpdk::{Mbuf, MbufPool, Port, RxQueue, TxQueue};
use weir_wire::frame::{Frame, Pool};

use crate::gateway::{Gateway, LinkFrame, Received};

/// Packets sent in a burst, and the most received in one. Larger than a device's own bursts: the
/// cache lines of a memif ring move between the two cores once a burst, and 128 moved 10 % more
/// packets than 64 or 256.
pub const BURST: usize = 128;
/// Buffers kept between receiving and sending.
pub const SPARE_MAX: usize = 6 * BURST;

#[derive(Debug)]
pub struct Side {
    pub gateway: Gateway,
    /// Frames received that are neither packets of the generator nor ARP or neighbor discovery.
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
        let outgoing = Vec::with_capacity(2 * BURST);
        Side { gateway, foreign_total: 0, rx, tx, pool, outgoing, port }
    }

    /// True if a packet sent at this time can reach the device.
    pub fn link_up(&self) -> bool {
        self.port.link_up()
    }

    /// Receives a burst into `spare`, after its content; returns the position of its first frame.
    /// The buffers stay in `spare` and do not go back to the pool: the next packets are written
    /// into them while they are in the cache.
    #[inline(always)]
    pub fn poll(&mut self, spare: &mut Vec<Mbuf>) -> usize {
        // Losses of the device must not let `spare` grow.
        spare.truncate(SPARE_MAX - BURST);
        let first = spare.len();
        self.rx.burst(spare, BURST);
        first
    }

    /// Receives a burst and passes each frame to `enter`; a frame that it does not know (`false`)
    /// goes to the gateway. Returns the number of frames.
    #[inline(always)]
    pub fn receive(
        &mut self,
        spare: &mut Vec<Mbuf>,
        mut enter: impl FnMut(&[u8]) -> bool,
    ) -> usize {
        let first = self.poll(spare);
        for frame in &spare[first..] {
            if !enter(frame.data()) {
                self.stranger(frame.data());
            }
        }
        spare.len() - first
    }

    /// Handles a frame that is not the generator's.
    #[cold]
    pub fn stranger(&mut self, frame: &[u8]) {
        match self.gateway.receive(frame) {
            Received::Foreign => self.foreign_total += 1,
            Received::Message => {}
            Received::Question(answer) => self.send_link(&answer),
        }
    }

    /// True if the last burst has left; a new one is written only then.
    #[inline(always)]
    pub fn is_clear(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Appends a packet of `len` bytes, written by `write`; `false` if there is no buffer left.
    #[inline(always)]
    pub fn append(
        &mut self,
        spare: &mut Vec<Mbuf>,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(mut frame) = spare.pop().or_else(|| self.pool.alloc()) else { return false };
        let Some(bytes) = frame.reset(len as u16) else { return false };
        write(bytes);
        self.outgoing.push(frame);
        true
    }

    /// Offers the rest of the burst to the port; returns how many packets it accepted.
    #[inline(always)]
    pub fn send(&mut self) -> u64 {
        if self.outgoing.is_empty() { 0 } else { self.tx.offer(&mut self.outgoing) as u64 }
    }

    /// Drops the packets that the port did not accept.
    pub fn discard(&mut self) {
        Mbuf::free_all(&mut self.outgoing);
    }

    /// Sends a frame of ARP or neighbor discovery, if there is a buffer and room: otherwise these
    /// will repeat it.
    pub fn send_link(&mut self, frame: &LinkFrame) {
        let bytes = frame.as_bytes();
        let Some(mut frame) = self.pool.alloc() else { return };
        if frame.extend(bytes.len()) {
            frame.data_mut().copy_from_slice(bytes);
            self.tx.burst(&mut vec![frame]);
        }
    }
}
