//! Hot. A packet without a mapping, while it waits for the others of its burst.

use weir_nat::{
    ASKED_MAX, Endpoint, FlowPolicy, Hash, LikelySubscriber, LookUp, Nat, NewFlow, Opening,
    Refusal, Tick, Translated,
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
    /// packet, `SPECIAL` for one whose flow a rule gives something.
    pub(crate) other: u8,
    pub(crate) len: u16,
    pub(crate) progress: Progress,
    /// What a rule gives its flow, unless `other` is `NOT_OTHER`.
    pub(crate) policy: FlowPolicy,
}

pub(crate) const NOT_OTHER: u8 = u8::MAX;
pub(crate) const SPECIAL: u8 = u8::MAX - 1;
const _: () = assert!(BURST_MAX <= ASKED_MAX);
const _: () = assert!(BURST_MAX < SPECIAL as usize);

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
        policy: FlowPolicy::NONE,
    };

    /// Fills in what the slow path reads of a fast-path packet, which is all of its frame now.
    pub(crate) fn fill(&self, bytes: &[u8], packet: &mut Upstream) {
        let &Self { flow: NewFlow { key, .. }, hash, len, .. } = self;
        FastUpstream { key, look_up: LookUp { hash, ..LookUp::EMPTY }, len }.fill(bytes, 0, packet);
    }

    /// Sets what a rule gives the flow. The block for its port may be in another source pool than
    /// the likely one.
    #[cold]
    pub(crate) fn set_policy(&mut self, policy: FlowPolicy) {
        self.policy = policy;
        self.subscriber = LikelySubscriber::NONE;
        if self.other == NOT_OTHER {
            self.other = SPECIAL;
        }
    }

    /// Returns what a rule gives the flow.
    #[inline]
    pub(crate) fn policy(&self) -> &FlowPolicy {
        if self.other == NOT_OTHER { &FlowPolicy::NONE } else { &self.policy }
    }

    /// Opens the flow, or finds the mapping that the packet before it has opened.
    pub(crate) fn open(&self, nat: &mut Nat, now: Tick) -> Result<Translated<Endpoint>, Refusal> {
        let Self { hash, flow, opening, .. } = self;
        match &self.progress {
            Progress::Prepared => nat.open_mapping(*hash, flow, opening, self.policy(), now),
            Progress::Behind | Progress::Waiting => nat.outbound(*hash, &flow.outbound(), now),
            // No rule gives anything to the flow of such a packet.
            Progress::Opened => Ok(Translated::plain(opening.public())),
            Progress::Refused(refusal) => Err(*refusal),
        }
    }
}
