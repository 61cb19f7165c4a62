//! The ends of IPv6 flows. Nothing rests: a flow holds no port.

use weir_flow::{Hash, RecordId};

use crate::ipv6::flow_key::FlowKey6;
use crate::look_up::PacketKey;
use crate::nat::Nat;
use crate::replication::journal::MarkKind;
use crate::replication::mirror::CopyRemoval;
use crate::sessions::mapping::Mapping;

impl Nat {
    /// Returns the hash of a flow's record.
    pub(crate) fn hash_of_flow6(&self, record: &Mapping) -> Hash {
        let key = FlowKey6::new(record.inside6(), record.remote6(), record.protocol, true);
        key.hash(self)
    }

    /// Ends a flow in a lane that this worker owns.
    pub(crate) fn end_flow6(&mut self, id: RecordId) {
        self.note_if_answered(id, self.mappings.get(id).first.state);
        self.note_mapping(MarkKind::Ended, id);
        self.release_flow6(id);
        self.mappings.free(id);
    }

    /// Removes the copy of a flow.
    pub(crate) fn remove_flow6(&mut self, id: RecordId, exit: CopyRemoval) {
        self.release_flow6(id);
        match exit {
            CopyRemoval::Ended => self.mappings.free(id),
            CopyRemoval::Forgotten => self.mappings.forget(id),
        }
    }

    /// Takes a flow out of the index and the counts; the home goes with its last record.
    fn release_flow6(&mut self, id: RecordId) {
        let record = *self.mappings.get(id);
        assert!(record.kind.is_ipv6() && record.kind.is_in_use(), "an IPv6 flow ends once");
        let was_indexed = self.outbound_index.remove(self.hash_of_flow6(&record), id.0);
        assert!(was_indexed, "an IPv6 flow is in the index");
        self.release_claim(record.claim6());
        self.flows -= 1;
        self.flows6 -= 1;
        self.subscribers.count_flow6_ended(record.subscriber);
        self.dismiss_home(record.subscriber);
    }
}
