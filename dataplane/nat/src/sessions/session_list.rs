//! The sessions of a mapping: opening one, finding one, ending one.

use weir_flow::{Record, RecordId, SlabId};

use crate::endpoint::{Endpoint, Tick};
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::replication::journal::MarkKind;
use crate::sessions::mapping::{Mapping, Remote};
use crate::sessions::session::SessionKey;
use crate::sessions::session_state::{SentBy, SessionState};

impl Nat {
    pub(crate) fn find_session(&self, mapping: RecordId, key: SessionKey) -> Option<RecordId> {
        let record = self.mappings.get(mapping);
        if record.sessions == 0 {
            return None;
        }
        let hash = self.session_hash(mapping, record.version(), key);
        self.session_index
            .find(hash, |id| self.sessions.get(RecordId(id)).is(mapping, key))
            .map(RecordId)
    }

    /// Returns the further session with this remote. One that has run out but was not collected yet
    /// is ended on the way, so that what a packet meets does not depend on how far the walk has
    /// come (RFC 4787 REQ-11, determinism).
    pub(crate) fn live_session(
        &mut self,
        mapping: RecordId,
        remote: Endpoint,
        now: Tick,
    ) -> Option<RecordId> {
        let id = self.find_session(mapping, SessionKey::Remote(remote))?;
        let protocol = self.mappings.get(mapping).protocol;
        let session = self.sessions.get(id);
        let lane = self.lanes.get(self.sessions.slab_of(id));
        if !lane.has_run_out(&session.remote, protocol, &self.policy.live.timeouts, now) {
            return Some(id);
        }
        self.totals.flow_expired += 1;
        self.end_session(id);
        None
    }

    /// Adds a session to a mapping: in the place of the first one if that has run out, else as a
    /// further one.
    ///
    /// # Errors
    /// A [`Refusal`] if there is no room or the subscriber or its shard may begin nothing; nothing
    /// is changed then.
    pub(crate) fn open_session(
        &mut self,
        mapping: RecordId,
        remote: Remote,
        now: Tick,
    ) -> Result<(), Refusal> {
        let Mapping { shard, subscriber, .. } = *self.mappings.get(mapping);
        self.check_replicas(shard)?;
        let opener = match remote.state.has(SessionState::OPENED_BY_REMOTE) {
            true => SentBy::Remote,
            false => SentBy::Inside,
        };
        if opener == SentBy::Inside {
            self.check_tokens(subscriber, now)?;
        }
        if self.has_first_run_out(mapping, now) {
            self.note_if_answered(mapping, self.mappings.get(mapping).first.state);
            let record = self.mappings.get_mut(mapping);
            record.note_end(record.first.state);
            let former = std::mem::replace(&mut record.first, remote);
            self.log_remote(false, mapping, former);
            self.totals.flow_expired += 1;
            self.note_mapping(MarkKind::Changed, mapping);
        } else {
            self.check_room(subscriber, opener)?;
            self.add_session(mapping, remote).ok_or(Refusal::TableFull)?;
        }
        match opener {
            SentBy::Inside => self.subscribers.get_mut(subscriber).tokens -= 1,
            SentBy::Remote => self.mappings.get_mut(mapping).sessions_inbound += 1,
        }
        self.log_remote(true, mapping, remote);
        self.totals.flow_creates += 1;
        Ok(())
    }

    /// Adds a further session that this worker opens. None, and nothing changed, if there is no
    /// room.
    fn add_session(&mut self, mapping: RecordId, remote: Remote) -> Option<()> {
        let slab = self.mappings.slab_of(mapping);
        let slab = if self.lanes.get(slab).is_owned { slab } else { self.lanes.local() };
        let id = self.sessions.alloc(slab)?;
        if self.link_session(mapping, id, remote).is_none() {
            self.sessions.free(id);
            return None;
        }
        self.note_session(MarkKind::Begun, id);
        Some(())
    }

    /// Makes an allocated record a further session of a mapping. None, and nothing changed, if
    /// there is no room in the index or for its address.
    pub(crate) fn link_session(
        &mut self,
        mapping: RecordId,
        id: RecordId,
        remote: Remote,
    ) -> Option<()> {
        let counts_addresses = self.policy.counts_addresses;
        if counts_addresses {
            self.count_address(mapping, remote.address)?;
        }
        if self.index_session(mapping, id, SessionKey::Remote(remote.endpoint())).is_none() {
            if counts_addresses {
                self.uncount_address(mapping, remote.address);
            }
            return None;
        }
        let record = self.mappings.get_mut(mapping);
        let next = std::mem::replace(&mut record.sessions_head, id);
        record.sessions += 1;
        let subscriber = record.subscriber;
        let session = self.sessions.get_mut(id);
        session.mapping = mapping;
        session.remote = remote;
        session.next = next;
        if next != RecordId::NONE {
            self.sessions.get_mut(next).previous = id;
        }
        let home = self.subscribers.get_mut(subscriber);
        home.flows += 1;
        home.sessions += 1;
        self.flows += 1;
        Some(())
    }

    fn index_session(&mut self, mapping: RecordId, id: RecordId, key: SessionKey) -> Option<()> {
        let hash = self.session_hash(mapping, self.mappings.get(mapping).version(), key);
        self.session_index.insert(hash, id.0).ok()
    }

    /// Returns the slab of address records: with replicas one of their own, as they follow from the
    /// sessions and only the lane's owner may use its slots.
    fn address_slab(&self, mapping: RecordId) -> SlabId {
        match self.policy.is_replicated {
            true => self.lanes.local(),
            false => self.mappings.slab_of(mapping),
        }
    }

    /// Takes a record out of the index.
    fn unindex_session(&mut self, id: RecordId) {
        let session = self.sessions.get(id);
        let version = self.mappings.get(session.mapping).version();
        let hash = self.session_hash(session.mapping, version, session.key());
        let was_indexed = self.session_index.remove(hash, id.0);
        assert!(was_indexed, "a session is in the index");
    }

    /// Counts one more further session with this remote address.
    fn count_address(&mut self, mapping: RecordId, address: u32) -> Option<()> {
        let key = SessionKey::Address(address);
        let id = match self.find_session(mapping, key) {
            Some(id) => id,
            None => {
                let id = self.sessions.alloc(self.address_slab(mapping))?;
                if self.index_session(mapping, id, key).is_none() {
                    self.sessions.free(id);
                    return None;
                }
                let record = self.sessions.get_mut(id);
                record.mapping = mapping;
                record.remote.address = address;
                id
            }
        };
        self.sessions.get_mut(id).references += 1;
        Some(())
    }

    /// Counts one less; the address record goes with the last.
    fn uncount_address(&mut self, mapping: RecordId, address: u32) {
        let hash = self.session_hash(
            mapping,
            self.mappings.get(mapping).version(),
            SessionKey::Address(address),
        );
        let id = self
            .session_index
            .find(hash, |id| {
                self.sessions.get(RecordId(id)).is(mapping, SessionKey::Address(address))
            })
            .map(RecordId)
            .expect("an address with sessions is counted");
        if self.sessions.get(id).references == 1 {
            self.unindex_session(id);
            self.sessions.free(id);
        } else {
            self.sessions.get_mut(id).references -= 1;
        }
    }

    /// Ends a further session: removes it from the list, the index and the counts. The mapping
    /// stays.
    pub(crate) fn end_session(&mut self, id: RecordId) {
        let session = self.sessions.get(id);
        let (mapping, state) = (session.mapping, session.remote.state);
        self.note_if_answered(mapping, state);
        let session = self.sessions.get(id);
        let was_clean = self.mappings.get(mapping).flags & Mapping::UNCLEAN == 0;
        self.mappings.get_mut(mapping).note_end(session.remote.state);
        if was_clean && self.mappings.get(mapping).flags & Mapping::UNCLEAN != 0 {
            self.note_mapping(MarkKind::Changed, mapping);
        }
        let remote = self.sessions.get(id).remote;
        self.log_remote(false, mapping, remote);
        self.note_session(MarkKind::Ended, id);
        self.unlink_session(id);
        self.sessions.free(id);
    }

    /// Removes a further session from the list, the index and the counts. Its record stays, to be
    /// freed.
    pub(crate) fn unlink_session(&mut self, id: RecordId) {
        let session = *self.sessions.get(id);
        assert!(!session.is_address(), "an address record ends with its last session");
        if session.next != RecordId::NONE {
            self.sessions.get_mut(session.next).previous = session.previous;
        }
        if session.previous != RecordId::NONE {
            self.sessions.get_mut(session.previous).next = session.next;
        }
        let mapping = self.mappings.get_mut(session.mapping);
        if mapping.sessions_head == id {
            mapping.sessions_head = session.next;
        }
        mapping.sessions -= 1;
        let subscriber = mapping.subscriber;
        self.unindex_session(id);
        if self.policy.counts_addresses {
            self.uncount_address(session.mapping, session.remote.address);
        }
        let home = self.subscribers.get_mut(subscriber);
        home.flows -= 1;
        home.sessions -= 1;
        self.flows -= 1;
    }

    /// Replaces the first session, which has ended, by the newest further one.
    pub(crate) fn promote_session(&mut self, mapping: RecordId) {
        self.note_if_answered(mapping, self.mappings.get(mapping).first.state);
        let record = self.mappings.get_mut(mapping);
        record.note_end(record.first.state);
        let (newest, former) = (record.sessions_head, record.first);
        self.log_remote(false, mapping, former);
        // The promoted session goes on: log no end of it.
        self.note_session(MarkKind::Ended, newest);
        self.unlink_session(newest);
        let remote = self.sessions.get(newest).remote;
        self.sessions.free(newest);
        self.mappings.get_mut(mapping).first = remote;
        self.note_mapping(MarkKind::Changed, mapping);
    }
}
