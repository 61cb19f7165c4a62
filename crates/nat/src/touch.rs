//! Touches: what a worker tells a lane's owner of the traffic that it carries for him.
//!
//! The owner's timers see only the packets that the owner sees. Whoever else translates packets of a mapping tells him
//! once per quarter of its timeout that it is in use, and for how long it has been idle: so a timer is as exact as if
//! he had seen the last packet himself, but for the time that a walk and a stream take. Time is cut into windows of a
//! quarter of the timeout. The lower byte of a window's number is kept in the record; a flow that pauses for exactly
//! 256 windows is told a window late.
//!
//! A segment of TCP that changes what the copy knows of its connection is told at once, with the remote that it is of or
//! for: the owner plays it as if it had come there, and tells all copies what follows. So the end of a connection is the
//! end for its owner, wherever it was seen. Told are segments and not states: two workers may each see one direction of a
//! connection, and then neither state is the later one. What is told while the owner is out of reach for so long that its
//! stream ends is lost: the connection then rests as an established one that is idle.
//!
//! A touch as old as a copy without packets says that another mapping is used in place of this one, see `doubles.rs`.

use weir_flow::{Record, RecordId, SlabId};

use crate::change::{Applied, Table};
use crate::change_body::SegmentBody;
use crate::endpoint::{Protocol, Tick};
use crate::journal::News;
use crate::mapping::{Mapping, Remote};
use crate::nat::Nat;
use crate::session::Session;
use crate::timeouts::Timeouts;

/// Touches per timeout.
const TOUCHES: u32 = 4;

/// The last packet of a copy that has seen none here: longer ago than any timer.
const NEVER_SEC: u32 = 1 << 30;

/// When a copy without packets was last seen.
pub(crate) fn never(now: Tick) -> Tick {
    Tick(now.0.wrapping_sub(NEVER_SEC))
}

/// Is it a copy without packets?
pub(crate) fn is_never(last_seen: Tick, now: Tick) -> bool {
    now.since(last_seen) >= NEVER_SEC
}

impl Remote {
    fn window_sec(&self, protocol: Protocol, timeouts: &Timeouts) -> u32 {
        (self.timeout_sec(protocol, timeouts) / TOUCHES).max(1)
    }

    fn window(&self, protocol: Protocol, timeouts: &Timeouts, now: Tick) -> u8 {
        (now.0 / self.window_sec(protocol, timeouts)) as u8
    }

    fn is_touch_due(&self, told: u8, protocol: Protocol, timeouts: &Timeouts, now: Tick) -> bool {
        let is_recent = now.since(self.last_seen) < 2 * self.window_sec(protocol, timeouts);
        is_recent && self.window(protocol, timeouts, now) != told
    }
}

impl Mapping {
    /// Is its owner to be told of traffic?
    #[inline]
    pub(crate) fn is_touch_due(&self, timeouts: &Timeouts, now: Tick) -> bool {
        let told = (self.flags >> Self::TOUCHED_SHIFT) as u8;
        self.first.is_touch_due(told, self.protocol, timeouts, now)
    }

    pub(crate) fn note_touch(&mut self, timeouts: &Timeouts, now: Tick) {
        let window = self.first.window(self.protocol, timeouts, now);
        let others = self.flags & ((1 << Self::TOUCHED_SHIFT) - 1);
        self.flags = others | u16::from(window) << Self::TOUCHED_SHIFT;
    }
}

impl Session {
    /// As [`Mapping::is_touch_due`].
    #[inline]
    pub(crate) fn is_touch_due(&self, protocol: Protocol, timeouts: &Timeouts, now: Tick) -> bool {
        self.remote.is_touch_due(self.touched(), protocol, timeouts, now)
    }

    pub(crate) fn note_touch(&mut self, protocol: Protocol, timeouts: &Timeouts, now: Tick) {
        self.set_touched(self.remote.window(protocol, timeouts, now));
    }
}

impl Nat {
    /// Another worker has last seen traffic of a record of ours at `seen`, or uses another mapping in its place.
    pub(crate) fn apply_touch(
        &mut self,
        table: Table,
        slab: SlabId,
        slot: u32,
        version: u32,
        (seen, segment): (Tick, Option<SegmentBody>),
        now: Tick,
    ) -> Applied {
        if is_never(seen, now) && segment.is_none() {
            let disused = (table == Table::Mappings)
                .then(|| self.live_mapping(slab, slot, version))
                .flatten();
            return disused.map_or(Applied::Old, |id| self.supersede(id));
        }
        let found = match table {
            Table::Mappings => self.live_mapping(slab, slot, version).map(|id| {
                let mapping = self.mappings.get_mut(id);
                (id, &mut mapping.first, mapping.protocol)
            }),
            Table::Sessions => self.sessions.id_of(slab, slot).and_then(|id| {
                let session = self.sessions.get_mut(id);
                let is_it = session.version() == version && session.is_live();
                let protocol = is_it.then(|| self.mappings.get(session.mapping).protocol);
                protocol.map(|protocol| (id, &mut session.remote, protocol))
            }),
        };
        let Some((id, remote, protocol)) = found else { return Applied::Old };
        remote.last_seen = remote.last_seen.later(seen, now);
        let segment = segment.filter(|it| protocol == Protocol::Tcp && remote.is(it.remote));
        let Some(SegmentBody { segment, .. }) = segment else { return Applied::Done };
        let state = remote.state.after_segment(segment.sender, segment.tcp_flags);
        if std::mem::replace(&mut remote.state, state) != state {
            match table {
                Table::Mappings => self.note_mapping(News::Changed, id),
                Table::Sessions => self.note_session(News::Changed, id),
            }
        }
        Applied::Done
    }

    /// The live mapping of this version in a slot.
    pub(crate) fn live_mapping(&self, slab: SlabId, slot: u32, version: u32) -> Option<RecordId> {
        let id = self.mappings.id_of(slab, slot)?;
        let mapping = self.mappings.get(id);
        let is_it = mapping.version() == version && mapping.kind.is_in_use();
        is_it.then_some(id)
    }
}
