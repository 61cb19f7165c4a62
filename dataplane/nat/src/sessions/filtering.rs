//! Which remotes may reach a mapping without a session of their own, and what ICMP errors may pass.

use weir_flow::{Hash, RecordId};

use crate::config::Filtering;
use crate::endpoint::{Endpoint, Home, Protocol, Tick};
use crate::nat::Nat;
use crate::packet::{Delivery, Outbound, Translated};
use crate::sessions::session::SessionKey;

impl Nat {
    /// True if the filter lets a remote without a session through. With `now`, a first session that
    /// has run out lets no remote in.
    ///
    /// RFC 4787 REQ-8: "If application transparency is most important, it is RECOMMENDED that a NAT
    /// have an "Endpoint-Independent Filtering" behavior. If a more stringent filtering behavior is
    /// most important, it is RECOMMENDED that a NAT have an "Address-Dependent Filtering"
    /// behavior." Address-and-port-dependent is the strictest of the three and weir's default.
    ///
    /// Address-dependent: some session with that address must live. A further session lets its
    /// address in until the walk has collected it, at most one round of the walk after its timer
    /// ran out.
    pub(crate) fn lets_in(&self, id: RecordId, remote: Endpoint, now: Option<Tick>) -> bool {
        let mapping = self.mappings.get(id);
        if mapping.is_redirected() {
            return false;
        }
        if mapping.is_static() {
            // That remotes can begin is what a static mapping is for.
            return self.is_static_still(mapping);
        }
        match self.policy.live.filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => {
                let mapping = self.mappings.get(id);
                let is_first_live = now.is_none_or(|now| !self.has_first_run_out(id, now));
                (is_first_live && mapping.first.address == remote.address)
                    || self.find_session(id, SessionKey::Address(remote.address)).is_some()
            }
            Filtering::AddressAndPortDependent => false,
        }
    }

    pub(crate) fn has_session(&self, id: RecordId, remote: Endpoint) -> bool {
        self.mappings.get(id).first.is(remote)
            || self.find_session(id, SessionKey::Remote(remote)).is_some()
    }

    /// Returns the translation of a packet that an ICMP error from inside quotes (its destination,
    /// seen from inside: `inside`; its source: `remote`). None if no such packet can have been
    /// delivered.
    ///
    /// Never creates, refreshes or deletes. RFC 5508 REQ-6: "While processing an ICMP Error packet
    /// pertaining to an ICMP Query or Query response, a NAT device MUST NOT refresh or delete the
    /// NAT Session that pertains to the embedded payload within the ICMP Error packet." RFC 5382
    /// REQ-10, RFC 4787 REQ-12: "Receipt of any sort of ICMP message MUST NOT terminate the NAT
    /// mapping".
    pub fn peek_outbound(
        &mut self,
        home: &Home,
        inside: Endpoint,
        remote: Endpoint,
        protocol: Protocol,
    ) -> Option<Translated<Endpoint>> {
        let hash = self.outbound_hash(home, inside, protocol);
        let quoted = Outbound { home: *home, inside, remote, protocol, tcp_flags: 0 };
        if let Some(id) = self.find_redirected(hash, &quoted) {
            self.rely_on(id);
            return Some(self.mappings.get(id).redirected_out());
        }
        let id = self.find_outbound_to(hash, home, inside, remote, protocol)?;
        self.rely_on(id);
        let was_delivered = self.has_session(id, remote)
            || self.lets_in(id, remote, None)
            || self.is_accepted_by_rule(id, remote);
        let to = self.mappings.get(id).public();
        was_delivered.then_some(Translated::plain(to))
    }

    /// Returns the sender of the packet that an ICMP error from outside quotes (its source:
    /// `public`; its destination: `remote`), and what it sent that packet to. None if the inside
    /// never sent it: an error about a remote without a session is forged, whatever the filtering.
    /// Never creates, refreshes or deletes.
    pub fn peek_inbound(
        &mut self,
        public: Endpoint,
        remote: Endpoint,
        protocol: Protocol,
    ) -> Option<Translated<Delivery>> {
        let hash = self.inbound_hash(public, protocol);
        let id = self.find_inbound(hash, public, protocol)?;
        self.rely_on(id);
        let mapping = self.mappings.get(id);
        let translated =
            Translated { remote: mapping.asked(), ..Translated::plain(mapping.delivery()) };
        self.has_session(id, remote).then_some(translated)
    }

    /// Returns the home that holds a public endpoint, whatever the remote. `hash` as in
    /// [`inbound`](Self::inbound).
    pub fn holder(&self, hash: Hash, public: Endpoint, protocol: Protocol) -> Option<Home> {
        let id = self.find_inbound(hash, public, protocol)?;
        Some(self.mappings.get(id).home())
    }
}
