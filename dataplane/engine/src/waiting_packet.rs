//! Hot. A packet without a mapping, while it waits for the others of its burst.

use weir_nat::{
    ASKED_MAX, Endpoint, FlowClass, Hash, LikelySubscriber, LookUp, Nat, NewFlow, Opening, Refusal,
    Tick, Translated,
};

use crate::BURST_MAX;
use crate::fast_path::FastUpstream;
use crate::upstream::Upstream;

/// How far the flow of a waiting packet is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress {
    /// Another packet of the flow waits before this one.
    Behind,
    Waiting,
    /// `opening` is valid.
    Prepared,
    /// `opening` was carried out, for a fast-path packet.
    Opened,
    Refused(Refusal),
}

/// A waiting packet: its flow, its place in its frame, and what is known of its home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingPacket {
    pub(crate) flow: NewFlow,
    pub(crate) hash: Hash,
    pub(crate) home: Hash,
    /// The subscriber to whom the packet probably belongs.
    pub(crate) subscriber: LikelySubscriber,
    pub(crate) opening: Opening,
    /// Where the packet begins in its frame, and its length.
    pub(crate) offset: u8,
    /// Position among the packets that are no fast-path packets; `NOT_OTHER` for a fast-path
    /// packet, `CLASSED` for one whose flow has a class.
    pub(crate) other: u8,
    pub(crate) len: u16,
    pub(crate) progress: Progress,
    /// Class of its flow, unless it is `NOT_OTHER`.
    pub(crate) class: FlowClass,
}

pub(crate) const NOT_OTHER: u8 = u8::MAX;
pub(crate) const CLASSED: u8 = u8::MAX - 1;
const _: () = assert!(BURST_MAX <= ASKED_MAX);
const _: () = assert!(BURST_MAX < CLASSED as usize);

impl WaitingPacket {
    pub(crate) const EMPTY: Self = Self {
        flow: NewFlow::EMPTY,
        hash: Hash(0),
        home: Hash(0),
        subscriber: LikelySubscriber::NONE,
        opening: Opening::NONE,
        offset: 0,
        other: NOT_OTHER,
        len: 0,
        progress: Progress::Behind,
        class: FlowClass::NONE,
    };

    /// Fills in what the slow path reads of a fast-path packet, which is all of its frame now.
    pub(crate) fn fill(&self, bytes: &[u8], packet: &mut Upstream) {
        let &Self { flow: NewFlow { key, .. }, hash, len, .. } = self;
        FastUpstream { key, look_up: LookUp { hash, ..LookUp::EMPTY }, len }.fill(bytes, 0, packet);
    }

    #[cold]
    pub(crate) fn set_class(&mut self, class: FlowClass) {
        self.class = class;
        if self.other == NOT_OTHER {
            self.other = CLASSED;
        }
    }

    /// Opens the flow, or finds the mapping that the packet before it has opened.
    pub(crate) fn open(&self, nat: &mut Nat, now: Tick) -> Result<Translated<Endpoint>, Refusal> {
        let class = if self.other == NOT_OTHER { FlowClass::NONE } else { self.class };
        let Self { hash, flow, opening, .. } = self;
        let to = match &self.progress {
            Progress::Prepared => nat.open_mapping(*hash, flow, opening, class, now)?,
            Progress::Behind | Progress::Waiting => {
                return nat.outbound(*hash, &flow.outbound(), now);
            }
            Progress::Opened => opening.public(),
            Progress::Refused(refusal) => return Err(*refusal),
        };
        Ok(Translated { to, class })
    }
}
