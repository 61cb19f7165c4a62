//! The sessions of a mapping: opening one, finding one, ending one.

use weir_flow::{Record, RecordId};

use crate::config::Filtering;
use crate::endpoint::{Endpoint, Tick};
use crate::mapping::Remote;
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::session::SessionKey;
use crate::session_state::SessionState;

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

    /// The further session with this remote. One that has run out but was not collected yet is
    /// ended on the way, so that what a packet meets does not depend on how far the walk has come
    /// (RFC 4787 REQ-11, determinism).
    pub(crate) fn live_session(
        &mut self,
        mapping: RecordId,
        remote: Endpoint,
        now: Tick,
    ) -> Option<RecordId> {
        let id = self.find_session(mapping, SessionKey::Remote(remote))?;
        let protocol = self.mappings.get(mapping).protocol;
        let session = self.sessions.get(id);
        if !session.remote.is_expired(protocol, &self.policy.timeouts, now) {
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
    /// No room, nothing changed.
    pub(crate) fn open_session(
        &mut self,
        mapping: RecordId,
        remote: Remote,
        now: Tick,
    ) -> Result<(), Refusal> {
        let record = self.mappings.get(mapping);
        if record.first.is_expired(record.protocol, &self.policy.timeouts, now) {
            let record = self.mappings.get_mut(mapping);
            record.note_end(record.first.state);
            record.first = remote;
            self.totals.flow_expired += 1;
        } else {
            self.check_room(record.subscriber)?;
            self.add_session(mapping, remote).ok_or(Refusal::TableFull)?;
        }
        if remote.state.has(SessionState::OPENED_BY_REMOTE) {
            self.mappings.get_mut(mapping).sessions_inbound += 1;
        }
        self.totals.flow_creates += 1;
        Ok(())
    }

    /// None, and nothing changed, if there is no place.
    fn add_session(&mut self, mapping: RecordId, remote: Remote) -> Option<()> {
        let counts_addresses = self.policy.filtering == Filtering::AddressDependent;
        if counts_addresses {
            self.count_address(mapping, remote.address)?;
        }
        let Some(id) = self.insert_session(mapping, SessionKey::Remote(remote.endpoint())) else {
            if counts_addresses {
                self.uncount_address(mapping, remote.address);
            }
            return None;
        };
        let record = self.mappings.get_mut(mapping);
        let next = std::mem::replace(&mut record.sessions_head, id);
        record.sessions += 1;
        let subscriber = record.subscriber;
        let session = self.sessions.get_mut(id);
        session.remote = remote;
        session.next = next;
        if next != RecordId::NONE {
            self.sessions.get_mut(next).previous = id;
        }
        self.subscribers.get_mut(subscriber).flows += 1;
        self.flows += 1;
        Some(())
    }

    /// A record of the mapping's slab under this key.
    fn insert_session(&mut self, mapping: RecordId, key: SessionKey) -> Option<RecordId> {
        let id = self.sessions.alloc(self.mappings.slab_of(mapping))?;
        let hash = self.session_hash(mapping, self.mappings.get(mapping).version(), key);
        if self.session_index.insert(hash, id.0).is_err() {
            self.sessions.free(id);
            return None;
        }
        self.sessions.get_mut(id).mapping = mapping;
        Some(id)
    }

    /// Takes a record out of the index and frees it.
    fn delete_session(&mut self, id: RecordId) {
        let session = self.sessions.get(id);
        let version = self.mappings.get(session.mapping).version();
        let hash = self.session_hash(session.mapping, version, session.key());
        let was_indexed = self.session_index.remove(hash, id.0);
        assert!(was_indexed, "a session is in the index");
        self.sessions.free(id);
    }

    /// One more further session with this remote address.
    fn count_address(&mut self, mapping: RecordId, address: u32) -> Option<()> {
        let key = SessionKey::Address(address);
        let id = match self.find_session(mapping, key) {
            Some(id) => id,
            None => {
                let id = self.insert_session(mapping, key)?;
                self.sessions.get_mut(id).remote.address = address;
                id
            }
        };
        self.sessions.get_mut(id).references += 1;
        Some(())
    }

    /// One less; the address record goes with the last.
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
            self.delete_session(id);
        } else {
            self.sessions.get_mut(id).references -= 1;
        }
    }

    /// Ends a further session: out of the list, the index and the counts. The mapping stays.
    pub(crate) fn end_session(&mut self, id: RecordId) {
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
        mapping.note_end(session.remote.state);
        let subscriber = mapping.subscriber;
        self.delete_session(id);
        if self.policy.filtering == Filtering::AddressDependent {
            self.uncount_address(session.mapping, session.remote.address);
        }
        self.subscribers.get_mut(subscriber).flows -= 1;
        self.flows -= 1;
    }

    /// Puts the newest further session in the place of the first one, which has ended.
    pub(crate) fn promote_session(&mut self, mapping: RecordId) {
        let record = self.mappings.get_mut(mapping);
        record.note_end(record.first.state);
        let newest = record.sessions_head;
        let remote = self.sessions.get(newest).remote;
        let flags = self.mappings.get(mapping).flags;
        self.end_session(newest);
        let record = self.mappings.get_mut(mapping);
        record.first = remote;
        // The promoted session goes on: its move is no end.
        record.flags = flags;
        if remote.state.has(SessionState::OPENED_BY_REMOTE) {
            record.sessions_inbound += 1;
        }
    }
}
