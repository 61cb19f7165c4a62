//! Hot. Look-ups on a worker that shares its shards: mappings that there are two of, and copies whose times say nothing.

use weir_flow::{Hash, RecordId};

use crate::endpoint::{Endpoint, Home, Protocol, Tick};
use crate::nat::Nat;
use crate::packet::Outbound;

impl Nat {
    /// The mapping of an inside endpoint. With replicas there may be more than one, made on both sides of a split or
    /// within the lag of a stream: then the one that knows the remote.
    #[inline]
    pub(crate) fn find_outbound_of(&self, hash: Hash, packet: &Outbound) -> Option<RecordId> {
        let Outbound { home, inside, remote, protocol, .. } = packet;
        if !self.policy.is_replicated {
            return self.find_outbound(hash, home, *inside, *protocol);
        }
        self.find_outbound_to(hash, home, *inside, *remote, *protocol)
    }

    /// The mapping of an inside endpoint that has a session with this remote, else any.
    pub(crate) fn find_outbound_to(
        &self,
        hash: Hash,
        home: &Home,
        inside: Endpoint,
        remote: Endpoint,
        protocol: Protocol,
    ) -> Option<RecordId> {
        let (by_key, mut any) = (self.policy.by_key, None);
        let known = self.outbound_index.find(hash, |id| {
            let is_it = self.mappings.get(RecordId(id)).is_inside(home, inside, protocol, by_key);
            if is_it && any.is_none() {
                any = Some(id);
            }
            is_it && self.has_session(RecordId(id), remote)
        });
        known.or(any).map(RecordId)
    }

    /// With replicas: is it the remote of the mapping's first session, and is that not over? The straight way leaves to
    /// the general one what replicas must know, and copies whose own times say nothing.
    pub(crate) fn is_held_first(&self, id: RecordId, remote: Endpoint, now: Tick) -> bool {
        self.policy.is_replicated
            && self.mappings.get(id).first.is(remote)
            && !self.has_first_run_out(id, now)
    }
}
