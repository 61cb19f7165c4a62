//! Hot. A packet from a home: find its mapping, note the packet, or make the mapping.

use weir_flow::{Hash, RecordId, SlabId};

use crate::block_event::BlockEventKind;
use crate::endpoint::{Endpoint, Protocol, Tick};
use crate::mapping::{Kind, Mapping, Remote};
use crate::nat::Nat;
use crate::packet::{Outbound, Refusal};
use crate::port_block::LANES;
use crate::port_choice::Seat;
use crate::session_state::Sender;
use crate::tcp_state;

impl Nat {
    /// Translates a packet from a home: finds or creates its mapping and session and returns the
    /// public endpoint.
    ///
    /// `hash` is [`outbound_hash`](Self::outbound_hash) of the packet's home, inside endpoint and
    /// protocol.
    ///
    /// # Errors
    /// A [`Refusal`]; the tables are then as before.
    #[inline]
    pub fn outbound(
        &mut self,
        hash: Hash,
        packet: &Outbound,
        now: Tick,
    ) -> Result<Endpoint, Refusal> {
        let Some(id) = self.find_outbound(hash, &packet.home, packet.inside, packet.protocol)
        else {
            return self.open_mapping(hash, packet, now);
        };
        // RFC 4787 REQ-1, RFC 5382 REQ-1: "A NAT MUST have an "Endpoint-Independent Mapping"
        // behavior." The remote is no part of what was looked up.
        let mapping = self.mappings.get_mut(id);
        mapping.note_gre_key(packet.home.gre_key);
        let public = mapping.public();
        let first = &mut mapping.first;
        if first.is(packet.remote) && !first.is_expired(packet.protocol, &self.policy.timeouts, now)
        {
            note_outbound(first, packet, now);
            return Ok(public);
        }
        self.outbound_further(id, packet, now)?;
        Ok(public)
    }

    /// A packet to a remote that is not, or no longer, the first session's.
    fn outbound_further(
        &mut self,
        id: RecordId,
        packet: &Outbound,
        now: Tick,
    ) -> Result<(), Refusal> {
        if let Some(session) = self.live_session(id, packet.remote, now) {
            note_outbound(&mut self.sessions.get_mut(session).remote, packet, now);
            return Ok(());
        }
        self.check_opening(packet.protocol, packet.tcp_flags)?;
        let remote =
            Remote::opened(packet.remote, packet.protocol, Sender::Inside, packet.tcp_flags, now);
        self.open_session(id, remote, now)
    }

    /// May this packet open a flow? "TCP not SYN" keeps segments of forgotten connections, and the
    /// scans that look like them, out.
    pub(crate) fn check_opening(&self, protocol: Protocol, tcp_flags: u8) -> Result<(), Refusal> {
        if protocol == Protocol::Tcp && !tcp_state::is_opening(tcp_flags) {
            return Err(Refusal::TcpNotSyn);
        }
        Ok(())
    }

    /// Is there room for one more flow of this subscriber?
    pub(crate) fn check_room(&self, subscriber: u32) -> Result<(), Refusal> {
        if self.flows >= self.policy.flows_max {
            return Err(Refusal::TableFull);
        }
        // RFC 6888 REQ-5: "A CGN SHOULD support limiting the amount of state memory allocated per
        // mapping and per subscriber."
        if self.subscribers.get(subscriber).flows >= self.policy.flows_per_subscriber {
            return Err(Refusal::FlowsPerSubscriber);
        }
        Ok(())
    }

    /// The first packet of an inside endpoint.
    #[cold]
    fn open_mapping(
        &mut self,
        hash: Hash,
        packet: &Outbound,
        now: Tick,
    ) -> Result<Endpoint, Refusal> {
        self.check_opening(packet.protocol, packet.tcp_flags)?;
        // RFC 6888 REQ-11: no existing mapping is deleted to make room. Quarantined records need
        // slots too.
        if self.flows >= self.policy.flows_max || self.mappings.live() >= self.mappings.capacity() {
            return Err(Refusal::TableFull);
        }
        if !self.policy.enabled {
            self.check_inside_is_free(packet, now)?;
        }
        let subscriber = self.admit_home(&packet.home)?;
        let opened = self.fill_mapping(hash, packet, subscriber, now);
        if opened.is_err() {
            self.dismiss_home(subscriber);
        }
        opened
    }

    fn fill_mapping(
        &mut self,
        hash: Hash,
        packet: &Outbound,
        subscriber: u32,
        now: Tick,
    ) -> Result<Endpoint, Refusal> {
        self.check_room(subscriber)?;
        let seat = if self.policy.enabled {
            Some(self.take_port(subscriber, packet.protocol)?)
        } else {
            None
        };
        match self.write_mapping(hash, packet, subscriber, seat, now) {
            Some(public) => {
                if let Some(seat) = seat.filter(|seat| seat.is_new_block) {
                    self.push_block_event(BlockEventKind::Allocated, subscriber, seat.block);
                }
                Ok(public)
            }
            None => {
                if let Some(seat) = seat {
                    self.give_port_back(&seat, packet.protocol);
                }
                Err(Refusal::TableFull)
            }
        }
    }

    /// Fills a record and enters it into both indexes; None, and nothing changed, if one of the
    /// three has no place.
    fn write_mapping(
        &mut self,
        hash: Hash,
        packet: &Outbound,
        subscriber: u32,
        seat: Option<Seat>,
        now: Tick,
    ) -> Option<Endpoint> {
        let shard = packet.home.shard;
        let (lane, address, public) = match seat {
            Some(seat) => {
                let address = self.ports.address_of(seat.block);
                let public = Endpoint::new(self.ports.public_address(address), seat.port);
                (self.ports.lane(seat.block), address, public)
            }
            None => (0, crate::subscriber::NO_ADDRESS, packet.inside),
        };
        let id = self.mappings.alloc(SlabId(u32::from(shard.0) * LANES + lane))?;
        let inbound_hash = self.inbound_hash(public, packet.protocol);
        if self.outbound_index.insert(hash, id.0).is_err() {
            self.mappings.free(id);
            return None;
        }
        if self.inbound_index.insert(inbound_hash, id.0).is_err() {
            self.outbound_index.remove(hash, id.0);
            self.mappings.free(id);
            return None;
        }
        fill(self.mappings.get_mut(id), packet, public, now);
        let mapping = self.mappings.get_mut(id);
        mapping.subscriber = subscriber;
        mapping.address = address;
        let home = self.subscribers.get_mut(subscriber);
        home.records += 1;
        home.flows += 1;
        self.flows += 1;
        self.totals.flow_creates += 1;
        Some(public)
    }

    /// Without translation an inside endpoint must be ours to announce and can belong to one home
    /// only.
    fn check_inside_is_free(&mut self, packet: &Outbound, now: Tick) -> Result<(), Refusal> {
        if self.public.shard_of(packet.inside.address) != Some(packet.home.shard) {
            return Err(Refusal::InsideNotPublic);
        }
        let hash = self.inbound_hash(packet.inside, packet.protocol);
        let Some(holder) = self.find_inbound(hash, packet.inside, packet.protocol) else {
            return Ok(());
        };
        if !self.is_mapping_over(holder, now) {
            return Err(Refusal::AddressConflict);
        }
        self.totals.flow_expired += 1;
        self.end_mapping(holder, now);
        Ok(())
    }
}

/// RFC 4787 REQ-6: "The NAT mapping Refresh Direction MUST have a "NAT Outbound refresh behavior" of
/// "True"." A RST in answer to a stranger is the exception, see `is_refreshed_by`.
#[inline]
fn note_outbound(remote: &mut Remote, packet: &Outbound, now: Tick) {
    let refresh =
        packet.protocol != Protocol::Tcp || remote.state.is_refreshed_by(packet.tcp_flags);
    let state = remote.state.after(packet.protocol, Sender::Inside, packet.tcp_flags);
    remote.note(state, refresh, now);
}

/// Everything but version, subscriber and position of the address.
fn fill(mapping: &mut Mapping, packet: &Outbound, public: Endpoint, now: Tick) {
    mapping.outer = packet.home.outer;
    mapping.shard = packet.home.shard;
    mapping.inside_address = packet.inside.address;
    mapping.inside_port = packet.inside.port;
    mapping.public_address = public.address;
    mapping.public_port = public.port;
    mapping.protocol = packet.protocol;
    mapping.kind = Kind::Live;
    mapping.first =
        Remote::opened(packet.remote, packet.protocol, Sender::Inside, packet.tcp_flags, now);
    mapping.created = now;
    mapping.note_gre_key(packet.home.gre_key);
}
