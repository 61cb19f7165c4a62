//! The ports of a worker without a device: packets are copied from the worker's own memory, those
//! that it sends are counted and their buffers used again. A gateway on each side answers ARP.

use std::time::Duration;

use weir_engine::{BURST_MAX, Side};
use weir_wire::arp::{self, Arp};
use weir_wire::build;
use weir_wire::ethernet::{Ethernet, Mac};
use weir_wire::frame::Frame;
use weir_worker::Ports;

use crate::frame::{BufferFrame, Buffers};

/// Packets of one length, one behind the other. They come round and round.
#[derive(Debug, Default)]
struct Packets {
    bytes: Vec<u8>,
    len: usize,
    /// Offset of the next one.
    next: usize,
}

/// Packets that wait on both sides, and what became of those that were received.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) pool: Buffers,
    pub(crate) now: Duration,
    /// Packets received from both sides, without ARP.
    pub(crate) received: u64,
    /// Packets sent to both sides, without ARP.
    pub(crate) sent: u64,
    /// Collects the packets sent, without ARP, while it is there.
    pub(crate) record: Option<Vec<Vec<u8>>>,
    packets: [Packets; 2],
    /// The gateways' answers.
    answers: [Vec<BufferFrame>; 2],
}

pub(crate) fn gateway_mac(side: Side) -> Mac {
    build::mac(11 + side as u8)
}

impl Source {
    /// Lets these packets of one length wait on a side, in place of others.
    pub(crate) fn supply(&mut self, side: Side, packets: impl Iterator<Item = Vec<u8>>) {
        let waiting = &mut self.packets[side as usize];
        *waiting = Packets::default();
        for packet in packets {
            assert!([0, packet.len()].contains(&waiting.len), "packets have one length");
            waiting.len = packet.len();
            waiting.bytes.extend_from_slice(&packet);
        }
    }

    #[cold]
    fn answer(&mut self, side: Side, request: &BufferFrame) {
        let request = arp::parse(&request.data()[Ethernet::LEN..]).expect("an ARP message");
        if request.is_request() && !request.is_gratuitous() {
            let asker = (request.sender_mac, request.sender_ip.get());
            let reply = Arp::reply(gateway_mac(side), request.target_ip.get(), asker.0, asker.1);
            let reply = self.pool.filled(&build::arp(reply));
            self.answers[side as usize].push(reply);
        }
    }
}

impl Ports for Source {
    type Frame = BufferFrame;
    type Pool = Buffers;

    #[inline]
    fn pool(&mut self) -> &mut Buffers {
        &mut self.pool
    }

    #[inline]
    fn now(&mut self) -> Duration {
        self.now
    }

    #[inline]
    fn receive(&mut self, side: Side, frames: &mut Vec<BufferFrame>) -> usize {
        let answers = &mut self.answers[side as usize];
        if !answers.is_empty() {
            let count = answers.len();
            frames.append(answers);
            return count;
        }
        let Packets { bytes, len, next } = &mut self.packets[side as usize];
        if bytes.is_empty() {
            return 0;
        }
        let burst = &bytes[*next..bytes.len().min(*next + BURST_MAX * *len)];
        let packets = burst.chunks_exact(*len);
        let count = packets.len();
        frames.extend(packets.map(|packet| self.pool.filled(packet)));
        *next = (*next + burst.len()) % bytes.len();
        self.received += count as u64;
        count
    }

    #[inline]
    fn send(&mut self, side: Side, frames: &mut Vec<BufferFrame>) {
        for frame in frames.drain(..) {
            if frame.data()[12..14] == [8, 6] {
                self.answer(side, &frame);
            } else if let Some(record) = &mut self.record {
                record.push(frame.data().to_vec());
            }
            self.sent += u64::from(frame.data()[12..14] == [8, 0]);
            self.pool.give_back(frame);
        }
    }
}
