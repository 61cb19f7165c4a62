//! Expiry: idle sessions, mappings without sessions, ports whose quarantine is over.
//!
//! ```text
//!   first session idle, others left  ->  promote one
//!   first session idle, none left    ->  out of the outbound index  ->  quarantine
//!                                        ->  port free, out of the inbound index
//!                                        ->  block free  ->  home gone
//! ```
//!
//! Only records in lanes owned here end. For mappings of other workers' lanes that are in use, the
//! walk sends the owner updates (`replication/owner_update.rs`). TCP closed by two FINs skips the
//! quarantine, and without translation there is none.

use weir_flow::{Hash, Record, RecordId};

use crate::endpoint::Tick;
use crate::nat::{Nat, WALK_STEP};
use crate::ports::port_block::service::OutOfService;
use crate::ports::port_choice::PortLease;
use crate::replication::change::RecordTable;
use crate::replication::journal::MarkKind;
use crate::replication::lane::lane_of;
use crate::sessions::mapping::{Mapping, MappingKind};

impl Nat {
    /// Looks at the next `budget` slots of the mappings, and as great a part of the sessions, in
    /// slot order, and ends what has run out, but of each no more than about `ends_max`: an end
    /// costs many times a look. To be called once per burst. While a shard is being removed, half
    /// of `ends_max` is for what it holds, and half for each of the others.
    ///
    /// Returns how many slots of the mappings it looked at.
    pub fn expire(&mut self, now: Tick, budget: usize, ends_max: usize) -> usize {
        self.now = now;
        self.note_next_out_of_service();
        if self.rematch.is_due() {
            self.rematch_piece(now);
        }
        let mut ends_max = ends_max;
        if let Some(shard) = self.shards.leaving {
            ends_max = ends_max.div_ceil(2);
            self.remove_piece(shard, ends_max);
        }
        let (sessions, mappings) = (self.sessions.capacity(), self.mappings.capacity());
        let part = (budget as u128 * sessions as u128).div_ceil(mappings.max(1) as u128);
        self.expire_sessions(now, usize::try_from(part).unwrap_or(usize::MAX), ends_max);
        self.expire_addresses(now, ends_max);
        self.expire_mappings(now, budget, ends_max)
    }

    fn expire_sessions(&mut self, now: Tick, budget: usize, ends_max: usize) {
        let (mut left, mut ends, mut laps) = (budget, 0, 0);
        while left > 0 && ends < ends_max {
            let step = left.min(WALK_STEP);
            let Self { sessions, due, answered, carried, mappings, lanes, journal, policy, .. } =
                self;
            let timeouts = &policy.live.timeouts;
            let has_wrapped = sessions.walk(&mut self.session_cursor, step, |id, slab, session| {
                if session.is_address() {
                    return;
                }
                let mapping = mappings.get(session.mapping);
                let protocol = mapping.protocol;
                if mapping.flags & Mapping::ANSWERED == 0
                    && session.remote.state.is_answered(protocol)
                {
                    answered.push(session.mapping);
                }
                let lane = lanes.get(slab);
                if lane.has_run_out(&session.remote, protocol, timeouts, now) {
                    due.push(id);
                } else if !lane.is_owned {
                    if session.is_owner_update_due(protocol, timeouts, now)
                        && journal.push_owner_update(
                            RecordTable::Sessions,
                            slab,
                            session.version(),
                            id,
                        )
                    {
                        session.note_owner_update(protocol, timeouts, now);
                        carried.push(session.mapping);
                    }
                } else if slab == lanes.local()
                    && !lanes.get(mappings.slab_of(session.mapping)).is_owned
                {
                    // The mapping's owner knows nothing of this remote: report the mapping as in
                    // use.
                    let first = &mut mappings.get_mut(session.mapping).first;
                    first.last_seen = first.last_seen.later(session.remote.last_seen, now);
                }
            });
            self.note_all_answered();
            self.note_all_carried();
            ends += self.due.len();
            while let Some(id) = self.due.pop() {
                self.totals.flow_expired += 1;
                self.end_session(id);
            }
            left -= step;
            laps += u32::from(has_wrapped);
            // The walk has wrapped twice: every slot was seen, however large the budget.
            if laps == 2 {
                return;
            }
        }
    }

    fn expire_mappings(&mut self, now: Tick, budget: usize, ends_max: usize) -> usize {
        let may_rest_on = self.has_room_to_rest();
        let (mut left, mut ends, mut laps) = (budget, 0, 0);
        while left > 0 && ends < ends_max {
            let step = left.min(WALK_STEP);
            let Self {
                mappings,
                due,
                doubles,
                answered,
                displaced,
                withdrawn,
                statics_seen,
                carried,
                subscribers,
                ports,
                lanes,
                journal,
                policy,
                ..
            } = self;
            let timeouts = &policy.live.timeouts;
            let is_any_displaced = subscribers.displaced > 0;
            let is_any_out_of_service = ports.is_any_out_of_service();
            let has_wrapped = mappings.walk(&mut self.mapping_cursor, step, |id, slab, mapping| {
                let lane = lanes.get(slab);
                let is_due = match mapping.kind {
                    MappingKind::Live
                    | MappingKind::Uncommitted
                    | MappingKind::LiveIpv6
                    | MappingKind::UncommittedIpv6 => {
                        lane.has_run_out(&mapping.first, mapping.protocol, timeouts, now)
                    }
                    MappingKind::Quarantined => {
                        lane.is_owned
                            && lane.idle_sec(mapping.first.last_seen, now)
                                >= policy.live.quarantine_sec
                            && !(may_rest_on
                                && lanes.keeps_ports(slab, policy.live.quarantine_sec, now))
                    }
                    MappingKind::Free => false,
                };
                if is_due {
                    due.push(id);
                } else if !lane.is_owned
                    && mapping.is_owner_update_due(timeouts, now)
                    && journal.push_owner_update(RecordTable::Mappings, slab, mapping.version(), id)
                {
                    mapping.note_owner_update(timeouts, now);
                    carried.push(id);
                }
                if mapping.flags & Mapping::DOUBLE != 0 {
                    doubles.push(id);
                }
                if mapping.is_static() && !is_due && lane.is_owned && mapping.kind.is_in_use() {
                    statics_seen.push(id);
                } else if is_any_out_of_service
                    && !is_due
                    && lane.is_owned
                    && mapping.kind.is_in_use()
                    && !mapping.kind.is_ipv6()
                    && ports.out_of_service(mapping.address) == Some(OutOfService::Quarantined)
                {
                    withdrawn.push(id);
                }
                if mapping.flags & Mapping::ANSWERED == 0 && mapping.kind.is_in_use() {
                    if mapping.first.state.is_answered(mapping.protocol) {
                        answered.push(id);
                    } else if is_any_displaced
                        && !is_due
                        && lane.is_owned
                        && subscribers.get(mapping.subscriber).is_displaced()
                    {
                        displaced.push(id);
                    }
                }
            });
            self.note_all_answered();
            self.note_all_carried();
            ends += self.due.len() + self.displaced.len() + self.withdrawn.len();
            self.due.iter().for_each(|&id| self.prefetch_end(id));
            while let Some(id) = self.due.pop() {
                self.expire_mapping(id, now);
            }
            while let Some(id) = self.displaced.pop() {
                self.end_displaced(id, now);
            }
            while let Some(id) = self.withdrawn.pop() {
                self.end_withdrawn(id, now);
            }
            while let Some(id) = self.statics_seen.pop() {
                self.end_if_not_static(id, now);
            }
            while let Some(id) = self.doubles.pop() {
                self.resolve_duplicate(id);
            }
            left -= step;
            laps += u32::from(has_wrapped);
            if laps == 2 {
                return budget;
            }
        }
        budget - left
    }

    /// Marks the homes of all mappings that the walk has found to be answered.
    fn note_all_answered(&mut self) {
        for &id in &self.answered {
            self.subscribers.prefetch(self.mappings.get(id).subscriber);
        }
        while let Some(id) = self.answered.pop() {
            self.note_answered(id);
        }
    }

    /// Notes whose addresses the flows have that this worker carries for the owners of their lanes.
    /// It logs them in a lane of its own: an owner that does not hear this worker ends its flow,
    /// and logs that the home has the address no longer.
    fn note_all_carried(&mut self) {
        while let Some(id) = self.carried.pop() {
            let mapping = self.mappings.get(id);
            let lanes = self.ports.lanes(lane_of(self.mappings.slab_of(id)).0);
            if lanes == 0 {
                continue;
            }
            let lane = lanes.trailing_zeros() as u8;
            if mapping.kind.is_ipv6() {
                self.note_carried_claim(mapping.claim6(), lane);
            } else if !self.policy.enabled && !mapping.is_static() {
                self.note_carried_address(mapping.address, lane);
            }
        }
    }

    /// True while ports may rest longer than they must: a quarter of the table stays free for other
    /// flows.
    fn has_room_to_rest(&self) -> bool {
        self.flows + self.quarantined < self.policy.live.flows_max / 4 * 3
    }

    /// Prefetches the lines that the end of a mapping, or of its quarantine, will write.
    fn prefetch_end(&self, id: RecordId) {
        let mapping = self.mappings.get(id);
        if mapping.kind.is_ipv6() {
            self.prefetch_outbound(self.hash_of_flow6(mapping));
            return self.subscribers.prefetch(mapping.subscriber);
        }
        let (outbound, inbound) = self.hashes_of(mapping);
        if mapping.kind.is_in_use() {
            self.prefetch_outbound(outbound);
        } else {
            self.prefetch_inbound(inbound);
            if self.policy.enabled && !mapping.is_static() {
                let block = self.ports.block_of(mapping.address, mapping.public_port);
                let port = self.ports.bit_of(block, mapping.protocol, mapping.public_port);
                self.ports.prefetch(block, port);
            }
        }
        self.subscribers.prefetch(mapping.subscriber);
    }

    /// Returns the hashes of a mapping in the outbound and the inbound index.
    pub(crate) fn hashes_of(&self, mapping: &Mapping) -> (Hash, Hash) {
        (self.outbound_hash_of(mapping), self.inbound_hash(mapping.public(), mapping.protocol))
    }

    fn expire_mapping(&mut self, id: RecordId, now: Tick) {
        let mapping = self.mappings.get(id);
        if mapping.kind == MappingKind::Quarantined {
            self.quarantined -= 1;
            self.free_mapping(id);
            return;
        }
        self.totals.flow_expired += 1;
        if mapping.kind.is_ipv6() {
            self.end_flow6(id);
        } else if mapping.sessions > 0 {
            self.promote_session(id);
        } else {
            self.end_mapping(id, now);
        }
    }

    /// True if a mapping has run out that the walk has not collected yet.
    pub(crate) fn is_mapping_over(&self, id: RecordId, now: Tick) -> bool {
        let mapping = self.mappings.get(id);
        mapping.sessions == 0 && self.has_first_run_out(id, now)
    }

    /// True if the first session of a mapping has been silent for too long.
    pub(crate) fn has_first_run_out(&self, id: RecordId, now: Tick) -> bool {
        let mapping = self.mappings.get(id);
        let lane = self.lanes.get(self.mappings.slab_of(id));
        lane.has_run_out(&mapping.first, mapping.protocol, &self.policy.live.timeouts, now)
    }

    /// Ends a live mapping without further sessions.
    ///
    /// RFC 6888 REQ-8: "Once an external port is deallocated, it SHOULD NOT be reallocated to a new
    /// mapping until at least 120 seconds have passed, with the exceptions being: If the CGN tracks
    /// TCP sessions (e.g., with a state machine, as in Section 3.5.2.2 of [RFC6146]), TCP ports MAY
    /// be reused immediately." The exception is used for connections that both sides have closed,
    /// unless a copy is behind.
    pub(crate) fn end_mapping(&mut self, id: RecordId, now: Tick) {
        self.note_if_answered(id, self.mappings.get(id).first.state);
        self.log_mapping(false, id);
        let slab = self.mappings.slab_of(id);
        let keeps_ports = self.lanes.keeps_ports(slab, self.policy.live.quarantine_sec, now)
            && self.has_room_to_rest();
        let mapping = self.mappings.get_mut(id);
        assert!(mapping.kind.is_in_use(), "a mapping ends once");
        assert!(mapping.sessions == 0, "a mapping ends after its further sessions");
        mapping.note_end(mapping.first.state);
        let needs_quarantine = (mapping.flags & Mapping::UNCLEAN != 0 || keeps_ports)
            && self.policy.enabled
            && !mapping.is_static()
            && self.policy.live.quarantine_sec > 0;
        let mapping = *mapping;
        let (outbound, _) = self.hashes_of(&mapping);
        let was_outbound = self.outbound_index.remove(outbound, id.0);
        assert!(was_outbound, "a live mapping is in both indexes");
        self.subscribers.get_mut(mapping.subscriber).flows -= 1;
        self.flows -= 1;
        if needs_quarantine {
            let mapping = self.mappings.get_mut(id);
            mapping.kind = MappingKind::Quarantined;
            mapping.first.last_seen = now;
            self.quarantined += 1;
            self.note_mapping(MarkKind::Changed, id);
        } else {
            self.free_mapping(id);
        }
    }

    /// Gives the port and the slot back; the home goes with its last record.
    fn free_mapping(&mut self, id: RecordId) {
        self.note_mapping(MarkKind::Ended, id);
        let mapping = self.release_holding(id);
        self.mappings.free(id);
        self.subscribers.get_mut(mapping.subscriber).records -= 1;
        self.dismiss_home(mapping.subscriber);
    }

    /// Takes a mapping that holds its port and nothing else out of the inbound index, and gives the
    /// port back.
    pub(crate) fn release_holding(&mut self, id: RecordId) -> Mapping {
        let mapping = *self.mappings.get(id);
        assert!(mapping.is_live(), "a record is freed once");
        let hash = self.inbound_hash(mapping.public(), mapping.protocol);
        let was_inbound = self.inbound_index.remove(hash, id.0);
        assert!(was_inbound, "the holder of a port is in the inbound index");
        if mapping.is_static() {
            return mapping;
        }
        if self.policy.enabled {
            let lease = PortLease {
                subscriber: mapping.subscriber,
                block: self.ports.block_of(mapping.address, mapping.public_port),
                public: mapping.public(),
            };
            self.give_port_back(&lease, mapping.protocol);
        } else {
            self.release_address(mapping.address);
        }
        mapping
    }
}
