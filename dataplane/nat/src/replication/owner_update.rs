//! Owner updates ([`OwnerUpdate`](ChangeKind::OwnerUpdate)): reports to a lane's owner of the
//! traffic that another worker carries.
//!
//! The owner's timers see only the packets that reach the owner. Any other worker that translates
//! packets of a mapping reports to the owner, once per quarter of the mapping's timeout, how long
//! the mapping has been idle. A timer is thus as exact as if the owner had seen the last packet
//! itself, but for the time that a walk and a stream take. Time is cut into windows of a quarter of
//! the timeout. The lower byte of a window's number is kept in the record; the update for a flow
//! that pauses for exactly 256 windows is a window late.
//!
//! A TCP segment that changes the connection's state in the copy is reported at once, with its
//! remote (sender or receiver): the owner processes it as if it had arrived there, and replicates
//! the result to all copies. The end of a connection thus reaches its owner, wherever it was seen.
//! Updates carry segments and not states: two workers may each see one direction of a connection,
//! and then neither state is the later one.
//!
//! A segment may be lost: the lane may have no owner for a while, or its owner may be unreachable
//! for so long that the stream to it ends. Every owner update therefore carries the state that the
//! session has here. The owner adopts that state if it continues its own and the owner has had no
//! later packet: a connection that has ended ends, and one that was opened again since does not. A
//! worker that receives a new copy from an owner that is behind keeps what packets have shown here,
//! and sends an owner update at once.
//!
//! An owner update as old as a copy without packets means that a duplicate is used in place of this
//! mapping, see `duplicate.rs`.

use weir_flow::{Record, RecordId, SlabId};

use crate::endpoint::{Endpoint, Protocol, Tick};
use crate::nat::Nat;
use crate::replication::change::{Applied, ChangeKind, RecordTable};
use crate::replication::change_body::{SegmentBody, StateBody};
use crate::replication::journal::MarkKind;
use crate::replication::lane_record::LaneRecord;
use crate::sessions::class_timeouts::ClassTimeouts;
use crate::sessions::mapping::{Mapping, Remote};
use crate::sessions::session::FurtherSession;
use crate::sessions::session_state::SessionState;

/// Owner updates per timeout.
const OWNER_UPDATES: u32 = 4;

/// Age of the last packet of a copy that has seen none here: longer than any timer.
const NEVER_SEC: u32 = 1 << 30;

/// Returns the time of the last packet for a copy without packets.
pub(crate) fn never(now: Tick) -> Tick {
    Tick(now.0.wrapping_sub(NEVER_SEC))
}

/// True if this is the time of a copy without packets.
pub(crate) fn is_never(last_seen: Tick, now: Tick) -> bool {
    now.since(last_seen) >= NEVER_SEC
}

/// An owner update: another worker's report of a record that this worker owns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerUpdate {
    /// Time of the last packet that the other worker saw.
    pub(crate) seen: Tick,
    pub(crate) segment: Option<SegmentBody>,
    pub(crate) state: Option<StateBody>,
}

/// Tolerance between the clocks of two workers, which count the seconds from different moments.
const SLACK_SEC: u32 = 1;

impl OwnerUpdate {
    /// Returns the session's state with the report applied.
    fn state(&self, known: &Remote, now: Tick) -> SessionState {
        let state = match self.segment.filter(|report| known.is(report.remote)) {
            Some(SegmentBody { segment, .. }) => {
                known.state.after_segment(segment.sender, segment.tcp_flags)
            }
            None => known.state,
        };
        let is_late = now.since(self.seen) > now.since(known.last_seen) + SLACK_SEC;
        let report = self.state.filter(|report| known.is(report.remote) && !is_late);
        // The owner knows which side opened the session, and counts it: those bits stay its own.
        let report = report.map(|report| report.state.with_lasting_of(state));
        report.filter(|report| report.has(state.bits())).unwrap_or(state)
    }
}

impl Remote {
    fn window_sec(&self, protocol: Protocol, timeouts: &ClassTimeouts) -> u32 {
        (self.timeout_sec(protocol, timeouts) / OWNER_UPDATES).max(1)
    }

    fn window(&self, protocol: Protocol, timeouts: &ClassTimeouts, now: Tick) -> u8 {
        (now.0 / self.window_sec(protocol, timeouts)) as u8
    }

    fn is_owner_update_due(
        &self,
        reported: u8,
        protocol: Protocol,
        timeouts: &ClassTimeouts,
        now: Tick,
    ) -> bool {
        let is_recent = now.since(self.last_seen) < 2 * self.window_sec(protocol, timeouts);
        is_recent && self.window(protocol, timeouts, now) != reported
    }
}

impl Mapping {
    /// True if an owner update for the mapping's first session is due.
    #[inline]
    pub(crate) fn is_owner_update_due(&self, timeouts: &ClassTimeouts, now: Tick) -> bool {
        let reported = (self.flags >> Self::WINDOW_SHIFT) as u8;
        self.first.is_owner_update_due(reported, self.protocol, timeouts, now)
    }

    pub(crate) fn note_owner_update(&mut self, timeouts: &ClassTimeouts, now: Tick) {
        let window = self.first.window(self.protocol, timeouts, now);
        let others = self.flags & ((1 << Self::WINDOW_SHIFT) - 1);
        self.flags = others | u16::from(window) << Self::WINDOW_SHIFT;
    }
}

impl FurtherSession {
    /// As [`Mapping::is_owner_update_due`].
    #[inline]
    pub(crate) fn is_owner_update_due(
        &self,
        protocol: Protocol,
        timeouts: &ClassTimeouts,
        now: Tick,
    ) -> bool {
        self.remote.is_owner_update_due(self.update_window(), protocol, timeouts, now)
    }

    pub(crate) fn note_owner_update(
        &mut self,
        protocol: Protocol,
        timeouts: &ClassTimeouts,
        now: Tick,
    ) {
        self.set_update_window(self.remote.window(protocol, timeouts, now));
    }
}

impl Nat {
    /// Applies an owner update: another worker last saw traffic of an owned record at
    /// `update.seen`, or uses its duplicate.
    pub(crate) fn apply_owner_update(
        &mut self,
        table: RecordTable,
        slab: SlabId,
        slot: u32,
        version: u32,
        update: &OwnerUpdate,
        now: Tick,
    ) -> Applied {
        if is_never(update.seen, now) && update.segment.is_none() {
            let disused = (table == RecordTable::Mappings)
                .then(|| self.live_mapping(slab, slot, version))
                .flatten();
            return disused.map_or(Applied::Old, |id| self.supersede(id));
        }
        let found = match table {
            RecordTable::Mappings => self.live_mapping(slab, slot, version).map(|id| {
                let mapping = self.mappings.get_mut(id);
                (id, &mut mapping.first, mapping.protocol)
            }),
            RecordTable::Sessions => self.sessions.id_of(slab, slot).and_then(|id| {
                let session = self.sessions.get_mut(id);
                let is_it = session.version() == version && session.is_live();
                let protocol = is_it.then(|| self.mappings.get(session.mapping).protocol);
                protocol.map(|protocol| (id, &mut session.remote, protocol))
            }),
        };
        let Some((id, remote, protocol)) = found else { return Applied::Old };
        let state = update.state(remote, now);
        let report = update.state.filter(|report| remote.is(report.remote));
        let is_answered = report.is_some_and(|report| report.state.is_answered(protocol));
        remote.last_seen = remote.last_seen.later(update.seen, now);
        if protocol == Protocol::Tcp && state != remote.state {
            remote.state = state;
            match table {
                RecordTable::Mappings => self.note_mapping(MarkKind::Changed, id),
                RecordTable::Sessions => self.note_session(MarkKind::Changed, id),
            }
        }
        if is_answered {
            // The answering packet may never pass this worker.
            let mapping = match table {
                RecordTable::Mappings => id,
                RecordTable::Sessions => self.sessions.get(id).mapping,
            };
            self.note_answered(mapping);
        }
        Applied::Done
    }

    /// Returns the state that the copy of a session gets from a `Create` or `Change` of the version
    /// held here. A `Change` is taken as it is. A `Create` of TCP comes from a copy of the lane and
    /// may be behind: the state held here stays if it continues the copied one and either packets
    /// were seen here or a relay sent the copy.
    pub(crate) fn received_state(
        &self,
        known: &Remote,
        protocol: Protocol,
        kind: ChangeKind,
        (remote, state): (Endpoint, SessionState),
        now: Tick,
    ) -> SessionState {
        let is_copied = kind == ChangeKind::Create && protocol == Protocol::Tcp;
        let is_further = known.is(remote) && known.state.has(state.bits());
        let timeouts = &self.policy.live.timeouts;
        let was_seen =
            !is_never(known.last_seen, now) && !known.is_expired(protocol, timeouts, now);
        if is_copied && is_further && (was_seen || self.is_relayed) { known.state } else { state }
    }

    /// Sends the owner of a copied record, which is behind, an owner update with the state reached
    /// here.
    pub(crate) fn send_state_to_owner<R: LaneRecord>(&mut self, id: RecordId) {
        let table = R::table(self);
        let (slab, version) = (table.slab_of(id), table.get(id).version());
        if !self.is_relayed {
            self.journal.push_owner_update(R::TABLE, slab, version, id);
        }
    }

    /// Returns the live mapping of this version in a slot.
    pub(crate) fn live_mapping(&self, slab: SlabId, slot: u32, version: u32) -> Option<RecordId> {
        let id = self.mappings.id_of(slab, slot)?;
        let mapping = self.mappings.get(id);
        let is_it = mapping.version() == version && mapping.kind.is_in_use();
        is_it.then_some(id)
    }
}
