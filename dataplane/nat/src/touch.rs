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
//! connection, and then neither state is the later one.
//!
//! A segment may be lost: the lane has no owner for a while, or he is out of reach for so long that his stream ends. So
//! every touch says how far the session is here. The owner takes that if it goes on from what he has, and he has had no
//! later packet: what has ended ends, and what was opened anew since does not. Who is copied to anew by an owner that is
//! behind keeps what packets have shown here, and touches at once.
//!
//! A touch as old as a copy without packets says that another mapping is used in place of this one, see `doubles.rs`.

use weir_flow::{Record, RecordId, SlabId};

use crate::change::{Applied, ChangeKind, Table};
use crate::change_body::{SegmentBody, StateBody};
use crate::endpoint::{Endpoint, Protocol, Tick};
use crate::journal::News;
use crate::mapping::{Mapping, Remote};
use crate::nat::Nat;
use crate::session::Session;
use crate::session_state::SessionState;
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

/// What another worker tells of a record of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    /// When it saw the last packet.
    pub(crate) seen: Tick,
    pub(crate) segment: Option<SegmentBody>,
    pub(crate) state: Option<StateBody>,
}

/// Two workers' clocks count the seconds from different moments.
const SLACK_SEC: u32 = 1;

impl Touch {
    /// The session's state with what is told.
    fn state(&self, known: &Remote, now: Tick) -> SessionState {
        let state = match self.segment.filter(|told| known.is(told.remote)) {
            Some(SegmentBody { segment, .. }) => {
                known.state.after_segment(segment.sender, segment.tcp_flags)
            }
            None => known.state,
        };
        let is_late = now.since(self.seen) > now.since(known.last_seen) + SLACK_SEC;
        let told = self.state.filter(|told| known.is(told.remote) && !is_late);
        // Who opened a session its owner knows, and counts.
        let told = told.map(|told| told.state.with_accounting_of(state));
        told.filter(|told| told.has(state.0)).unwrap_or(state)
    }
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
        touch: &Touch,
        now: Tick,
    ) -> Applied {
        if is_never(touch.seen, now) && touch.segment.is_none() {
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
        let state = touch.state(remote, now);
        let told = touch.state.filter(|told| remote.is(told.remote));
        let is_answered = told.is_some_and(|told| told.state.is_answered(protocol));
        remote.last_seen = remote.last_seen.later(touch.seen, now);
        if protocol == Protocol::Tcp && state != remote.state {
            remote.state = state;
            match table {
                Table::Mappings => self.note_mapping(News::Changed, id),
                Table::Sessions => self.note_session(News::Changed, id),
            }
        }
        if is_answered {
            // The answer may never come here.
            let mapping = match table {
                Table::Mappings => id,
                Table::Sessions => self.sessions.get(id).mapping,
            };
            self.note_answered(mapping);
        }
        Applied::Done
    }

    /// The state of a session of another's lane that is here, and is told in the same version. News are as they are. What
    /// is copied may be older than what is here: if packets have shown that here, or if who passes it on did not write it.
    pub(crate) fn state_told(
        &self,
        known: &Remote,
        protocol: Protocol,
        kind: ChangeKind,
        (remote, state): (Endpoint, SessionState),
        now: Tick,
    ) -> SessionState {
        let is_copied = kind == ChangeKind::Create && protocol == Protocol::Tcp;
        let is_further = known.is(remote) && known.state.has(state.0);
        let timeouts = &self.policy.timeouts;
        let was_seen =
            !is_never(known.last_seen, now) && !known.is_expired(protocol, timeouts, now);
        if is_copied && is_further && (was_seen || self.is_hearsay) { known.state } else { state }
    }

    /// The owner of a record that is copied here is behind: he is told how far it is.
    pub(crate) fn tell_further(&mut self, table: Table, id: RecordId) {
        let (slab, version) = match table {
            Table::Mappings => (self.mappings.slab_of(id), self.mappings.get(id).version()),
            Table::Sessions => (self.sessions.slab_of(id), self.sessions.get(id).version()),
        };
        if !self.is_hearsay {
            self.journal.touch(table, slab, version, id);
        }
    }

    /// The live mapping of this version in a slot.
    pub(crate) fn live_mapping(&self, slab: SlabId, slot: u32, version: u32) -> Option<RecordId> {
        let id = self.mappings.id_of(slab, slot)?;
        let mapping = self.mappings.get(id);
        let is_it = mapping.version() == version && mapping.kind.is_in_use();
        is_it.then_some(id)
    }
}
