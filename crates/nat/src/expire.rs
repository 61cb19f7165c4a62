//! The end of things: idle sessions, mappings without sessions, ports whose quarantine is over.
//!
//! ```text
//!   first session idle, others left  ->  promote one
//!   first session idle, none left    ->  out of both indexes  ->  quarantine
//!                                        ->  port free  ->  block free  ->  home gone
//! ```
//!
//! TCP closed by two FINs skips the quarantine, and without translation there is none.

use weir_flow::{Hash, Record, RecordId};

use crate::endpoint::Tick;
use crate::mapping::{Kind, Mapping};
use crate::nat::{Nat, WALK_STEP};
use crate::port_choice::Seat;

impl Nat {
    /// Looks at the next `budget` slots of the mappings, and as great a part of the sessions, in slot order, and ends
    /// what has run out, but of each no more than about `ends_max`: an end costs many times a look. To be called once
    /// per burst.
    ///
    /// Returns how many slots of the mappings it looked at.
    pub fn expire(&mut self, now: Tick, budget: usize, ends_max: usize) -> usize {
        self.now = now;
        let (sessions, mappings) = (self.sessions.capacity(), self.mappings.capacity());
        let part = (budget as u128 * sessions as u128).div_ceil(mappings.max(1) as u128);
        self.expire_sessions(now, usize::try_from(part).unwrap_or(usize::MAX), ends_max);
        self.expire_mappings(now, budget, ends_max)
    }

    fn expire_sessions(&mut self, now: Tick, budget: usize, ends_max: usize) {
        let (mut left, mut ends, mut laps) = (budget, 0, 0);
        while left > 0 && ends < ends_max {
            let step = left.min(WALK_STEP);
            let (due, mappings, timeouts) = (&mut self.due, &self.mappings, &self.policy.timeouts);
            let has_wrapped = self.sessions.walk(&mut self.session_cursor, step, |id, _, session| {
                let protocol = mappings.get(session.mapping).protocol;
                if !session.is_address() && session.remote.is_expired(protocol, timeouts, now) {
                    due.push(id);
                }
            });
            ends += self.due.len();
            while let Some(id) = self.due.pop() {
                self.totals.flow_expired += 1;
                self.end_session(id);
            }
            left -= step;
            laps += u32::from(has_wrapped);
            // Two ends passed: everything was seen, however large the budget.
            if laps == 2 {
                return;
            }
        }
    }

    fn expire_mappings(&mut self, now: Tick, budget: usize, ends_max: usize) -> usize {
        let (mut left, mut ends, mut laps) = (budget, 0, 0);
        while left > 0 && ends < ends_max {
            let step = left.min(WALK_STEP);
            let (due, policy) = (&mut self.due, &self.policy);
            let has_wrapped = self.mappings.walk(&mut self.mapping_cursor, step, |id, _, mapping| {
                let is_due = match mapping.kind {
                    Kind::Live => mapping.first.is_expired(mapping.protocol, &policy.timeouts, now),
                    Kind::Quarantined => {
                        now.since(mapping.first.last_seen) >= policy.quarantine_sec
                    }
                    Kind::Free => false,
                };
                if is_due {
                    due.push(id);
                }
            });
            ends += self.due.len();
            self.due.iter().for_each(|&id| self.prefetch_end(id));
            while let Some(id) = self.due.pop() {
                self.expire_mapping(id, now);
            }
            left -= step;
            laps += u32::from(has_wrapped);
            if laps == 2 {
                return budget;
            }
        }
        budget - left
    }

    /// Asks for the lines that the end of a mapping, or of its quarantine, will write.
    fn prefetch_end(&self, id: RecordId) {
        let mapping = self.mappings.get(id);
        if mapping.kind == Kind::Live {
            let (outbound, inbound) = self.hashes_of(mapping);
            self.prefetch_outbound(outbound);
            self.prefetch_inbound(inbound);
        } else {
            let block = self.ports.block_of(mapping.address, mapping.public_port);
            self.ports.prefetch(block, mapping.protocol, mapping.public_port);
        }
        self.subscribers.prefetch(mapping.subscriber);
    }

    /// The keys of a mapping in the two indexes.
    fn hashes_of(&self, mapping: &Mapping) -> (Hash, Hash) {
        let outbound = self.outbound_hash(&mapping.home(), mapping.inside(), mapping.protocol);
        (outbound, self.inbound_hash(mapping.public(), mapping.protocol))
    }

    fn expire_mapping(&mut self, id: RecordId, now: Tick) {
        let mapping = self.mappings.get(id);
        if mapping.kind == Kind::Quarantined {
            self.quarantined -= 1;
            self.free_mapping(id);
            return;
        }
        self.totals.flow_expired += 1;
        if mapping.sessions > 0 {
            self.promote_session(id);
        } else {
            self.end_mapping(id, now);
        }
    }

    /// Has a mapping run out that the walk has not collected yet?
    pub(crate) fn is_mapping_over(&self, id: RecordId, now: Tick) -> bool {
        let mapping = self.mappings.get(id);
        mapping.sessions == 0
            && mapping.first.is_expired(mapping.protocol, &self.policy.timeouts, now)
    }

    /// Ends a live mapping without further sessions.
    ///
    /// RFC 6888 REQ-8: "Once an external port is deallocated, it SHOULD NOT be reallocated to a new
    /// mapping until at least 120 seconds have passed, with the exceptions being: If the CGN tracks
    /// TCP sessions (e.g., with a state machine, as in Section 3.5.2.2 of [RFC6146]), TCP ports MAY
    /// be reused immediately." We use the exception for connections that both sides have closed.
    pub(crate) fn end_mapping(&mut self, id: RecordId, now: Tick) {
        let mapping = self.mappings.get_mut(id);
        assert!(mapping.kind == Kind::Live, "a mapping ends once");
        assert!(mapping.sessions == 0, "a mapping ends after its further sessions");
        mapping.note_end(mapping.first.state);
        let needs_quarantine = mapping.flags & Mapping::UNCLEAN != 0
            && self.policy.enabled
            && self.policy.quarantine_sec > 0;
        let mapping = *mapping;
        let (outbound, inbound) = self.hashes_of(&mapping);
        let was_outbound = self.outbound_index.remove(outbound, id.0);
        let was_inbound = self.inbound_index.remove(inbound, id.0);
        assert!(was_outbound && was_inbound, "a live mapping is in both indexes");
        self.subscribers.get_mut(mapping.subscriber).flows -= 1;
        self.flows -= 1;
        if needs_quarantine {
            let mapping = self.mappings.get_mut(id);
            mapping.kind = Kind::Quarantined;
            mapping.first.last_seen = now;
            self.quarantined += 1;
        } else {
            self.free_mapping(id);
        }
    }

    /// Gives port and slot back; the home goes with its last record.
    fn free_mapping(&mut self, id: RecordId) {
        let mapping = *self.mappings.get(id);
        assert!(mapping.is_live(), "a record is freed once");
        if self.policy.enabled {
            let seat = Seat {
                subscriber: mapping.subscriber,
                block: self.ports.block_of(mapping.address, mapping.public_port),
                public: mapping.public(),
            };
            self.give_port_back(&seat, mapping.protocol);
        }
        self.mappings.free(id);
        self.subscribers.get_mut(mapping.subscriber).records -= 1;
        self.dismiss_home(mapping.subscriber);
    }
}
