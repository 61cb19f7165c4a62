//! Hot. Replica look-ups, on a worker that shares its shards: duplicate mappings, and copies whose
//! times say nothing.

use weir_flow::{Hash, RecordId};

use crate::endpoint::{Endpoint, Home, Protocol, Tick};
use crate::nat::Nat;
use crate::packet::Outbound;

impl Nat {
    /// Returns the mapping of an inside endpoint that packets to the packet's remote use, unless a
    /// rule has given its flow another destination. There may be more than one: with replicas
    /// (`duplicate.rs`), and one of each source pool.
    #[inline]
    pub(crate) fn find_outbound_of(&self, hash: Hash, packet: &Outbound) -> Option<RecordId> {
        let Outbound { home, inside, remote, protocol, .. } = packet;
        if !self.policy.has_several {
            return self.find_outbound(hash, home, *inside, *protocol);
        }
        self.find_outbound_to(hash, home, *inside, *remote, *protocol)
    }

    /// Returns the mapping of an inside endpoint that packets to this remote use.
    pub(crate) fn find_outbound_to(
        &self,
        hash: Hash,
        home: &Home,
        inside: Endpoint,
        remote: Endpoint,
        protocol: Protocol,
    ) -> Option<RecordId> {
        self.find_preferred(hash, home, (inside, remote, None), protocol, |_| true)
    }

    /// Among the mappings of an inside endpoint for which `will_do` holds, returns the one that
    /// packets to this remote use: those of the flow to `asked`, if that has another destination,
    /// else those of all flows that have none. `hash` is that of the index.
    #[inline]
    pub(crate) fn find_preferred(
        &self,
        hash: Hash,
        home: &Home,
        (inside, remote, asked): (Endpoint, Endpoint, Option<Endpoint>),
        protocol: Protocol,
        will_do: impl Fn(RecordId) -> bool,
    ) -> Option<RecordId> {
        let (by_key, mut found) = (self.policy.by_key, None);
        self.outbound_index.find(hash, |id| {
            let id = RecordId(id);
            let mapping = self.mappings.get(id);
            let is_its = mapping.is_inside(home, inside, protocol, by_key);
            if is_its && mapping.asked() == asked && will_do(id) {
                found = Some(match found {
                    None => id,
                    Some(former) => self.preferred(former, id, remote),
                });
            }
            false
        });
        found
    }

    /// True if, with replicas, `remote` is the remote of the mapping's first session and that
    /// session has not run out. The fast path leaves two cases to the slow path: changes that
    /// replicas must know, and copies whose own times say nothing.
    pub(crate) fn is_held_first(&self, id: RecordId, remote: Endpoint, now: Tick) -> bool {
        self.policy.is_replicated
            && self.mappings.get(id).first.is(remote)
            && !self.has_first_run_out(id, now)
    }
}
