//! For tests: counts everything again and compares it with the counts that the tables keep.

use std::collections::{HashMap, HashSet};

use weir_flow::{RecordId, SlabId};

use crate::admin::facet::Admin;
use crate::admin::gauges::ShardGauges;
use crate::endpoint::{Endpoint, Protocol, ShardIndex};
use crate::ipv6::{Endpoint6, FlowKey6, NO_CLAIM};
use crate::look_up::PacketKey;
use crate::nat::Nat;
use crate::ports::port_block::BlockId;
use crate::replication::lane::{LANES, slab_of};
use crate::sessions::mapping::{Mapping, MappingKind};
use crate::sessions::session::FurtherSession;
use crate::sessions::session_state::SessionState;

/// Sums over the mapping records.
#[derive(Default)]
struct MappingSums {
    live: u32,
    quarantined: u32,
    /// Sessions and address records.
    session_records: usize,
    further: u32,
    ports: HashSet<(Endpoint, Protocol)>,
    /// Per subscriber slot: records, flows, further sessions.
    homes: HashMap<u32, (u32, u32, u32)>,
    blocks: HashSet<(u32, BlockId)>,
    /// Without translation: records by the slot of their address, and the lanes they lie in, a bit
    /// each.
    addresses: HashMap<u32, (u32, u8)>,
    /// IPv6 flows, and as for addresses those with a claim by its slot.
    flows6: u32,
    /// IPv6 flows by home.
    homes_flows6: HashMap<u32, u32>,
    claims: HashMap<u32, (u32, u8)>,
}

impl Admin<'_> {
    /// For tests and simulations: counts everything again, which takes time in proportion to the
    /// records.
    ///
    /// # Panics
    /// If state is lost, duplicated or counted wrongly.
    pub fn audit(self) {
        audit(self.nat);
    }

    /// For tests and simulations: returns the outer address of the home that has an inside IPv6
    /// address, by the claims of this worker or by configuration, if any has it. None: the address
    /// is of no shard of this worker, or of one that it removes.
    pub fn holder_of_inside6(self, address: u128) -> Option<Option<u32>> {
        let shard = self.nat.shard_of_inside6(address)?;
        Some(self.nat.known_home_with_inside6(shard, address).map(|home| home.outer))
    }

    /// For tests and simulations: returns the lane and the state of each record of an IPv6 flow.
    /// Several workers may each have made one.
    pub fn records_of_flow6(
        self,
        inside: Endpoint6,
        remote: Endpoint6,
        protocol: Protocol,
    ) -> Vec<(usize, &'static str)> {
        let (nat, key) = (self.nat, FlowKey6::new(inside, remote, protocol, true));
        let mut records = Vec::new();
        nat.outbound_index.find(key.hash(nat), |id| {
            let record = nat.mappings.get(RecordId(id));
            if key.differs(record) == 0 {
                let lane = nat.mappings.slab_of(RecordId(id)).0 % LANES;
                records.push((lane as usize, record.first.state.phase(protocol).name()));
            }
            false
        });
        records
    }
}

/// Panics if state is lost, duplicated or counted wrongly.
pub(crate) fn audit(nat: &Nat) {
    let mut sums = MappingSums::default();
    audit_local(nat);
    for slab in 0..nat.shards.len() as u32 * LANES {
        nat.mappings.walk_slab(SlabId(slab), 0, usize::MAX, |id, mapping| {
            audit_mapping(nat, id, mapping, &mut sums);
        });
        nat.sessions.walk_slab(SlabId(slab), 0, usize::MAX, |_, session| {
            assert_eq!(
                nat.mappings.slab_of(session.mapping).0,
                slab,
                "a session lies with its mapping"
            );
            assert!(nat.mappings.get(session.mapping).kind.is_in_use());
        });
    }
    assert_eq!(nat.mappings.live() as u32, sums.live + sums.quarantined);
    assert_eq!(nat.flows6, sums.flows6);
    assert_eq!(nat.sessions.live(), sums.session_records, "no session without its mapping");
    assert_eq!(nat.flows, sums.live + sums.further);
    assert_eq!(nat.quarantined, sums.quarantined);
    assert_eq!(nat.outbound_index.len() as u32, sums.live);
    assert_eq!(nat.inbound_index.len() as u32, sums.live - sums.flows6 + sums.quarantined);
    assert_eq!(nat.session_index.len(), sums.session_records);
    assert_eq!(nat.subscribers.len(), sums.homes.len());
    for (&slot, &(records, flows, sessions)) in &sums.homes {
        let home = nat.subscribers.get(slot);
        assert_eq!((home.records, home.flows, home.sessions), (records, flows, sessions));
        let flows6 = sums.homes_flows6.get(&slot).copied().unwrap_or(0);
        assert_eq!(nat.subscribers.flows6(slot), flows6);
        for held in nat.subscribers.with_blocks(slot).1 {
            let block = held.block();
            assert!(sums.blocks.remove(&(slot, block)), "a held block has a port in use");
            for protocol in Protocol::ALL {
                let is_full = nat.ports.is_full(block, protocol);
                assert!(is_full || !held.is_full(protocol), "a block noted as full has no room");
            }
        }
    }
    assert!(sums.blocks.is_empty(), "a port in use lies in a block of its home");
    nat.owners.audit(&sums.addresses);
    nat.claims.audit(&sums.claims);
    nat.subscribers.audit(sums.homes.keys().copied());
    audit_absent(nat);
}

/// Adds a record to those of an address, and its lane to theirs.
fn add_record((records, lanes): &mut (u32, u8), nat: &Nat, id: RecordId) {
    *records += 1;
    *lanes |= 1 << (nat.mappings.slab_of(id).0 % LANES);
}

fn audit_mapping(nat: &Nat, id: RecordId, mapping: &Mapping, sums: &mut MappingSums) {
    let home = sums.homes.entry(mapping.subscriber).or_default();
    home.0 += 1;
    if mapping.kind.is_ipv6() {
        home.1 += 1;
        sums.live += 1;
        sums.flows6 += 1;
        *sums.homes_flows6.entry(mapping.subscriber).or_default() += 1;
        if mapping.claim6() != NO_CLAIM {
            add_record(sums.claims.entry(mapping.claim6()).or_default(), nat, id);
        }
        let found = nat.outbound_index.find(nat.hash_of_flow6(mapping), |other| other == id.0);
        assert_eq!(found, Some(id.0), "an IPv6 flow is in the index");
        return;
    }
    if mapping.is_static() {
        assert!(mapping.kind.is_in_use(), "a static endpoint needs no quarantine");
    } else if nat.policy.enabled {
        assert!(sums.ports.insert((mapping.public(), mapping.protocol)), "one record per port");
        let block = nat.ports.block_of(mapping.address, mapping.public_port);
        assert_eq!(
            nat.mappings.slab_of(id).0,
            u32::from(mapping.shard.0) * LANES + nat.ports.lane(block)
        );
        sums.blocks.insert((mapping.subscriber, block));
    } else {
        add_record(sums.addresses.entry(mapping.address).or_default(), nat, id);
    }
    let slab = nat.mappings.slab_of(id);
    assert_eq!(nat.find_holder(slab, mapping.public(), mapping.protocol), Some(id));
    if mapping.kind == MappingKind::Quarantined {
        assert_eq!(mapping.sessions, 0);
        sums.quarantined += 1;
        return;
    }
    sums.live += 1;
    let chain = chain(nat, id, mapping);
    assert_eq!(mapping.sessions as usize, chain.len());
    home.1 += 1 + mapping.sessions;
    home.2 += mapping.sessions;
    if mapping.flags & Mapping::ANSWERED != 0 {
        assert!(nat.subscribers.get(mapping.subscriber).is_answered());
    }
    sums.further += mapping.sessions;
    sums.session_records += chain.len();
    let opened_by_remote = chain
        .iter()
        .map(|session| session.remote.state)
        .chain([mapping.first.state])
        .filter(|state| state.has(SessionState::OPENED_BY_REMOTE))
        .count();
    let sessions_inbound = if mapping.is_redirected() { 0 } else { mapping.sessions_inbound };
    assert_eq!(usize::from(sessions_inbound), opened_by_remote);
    let remotes: HashSet<_> = chain.iter().map(|session| session.remote.endpoint()).collect();
    assert_eq!(remotes.len(), chain.len(), "a remote has one session");
    sums.session_records += audit_addresses(nat, id, &chain);
}

/// Returns the further sessions of a mapping, whose links must fit.
fn chain(nat: &Nat, id: RecordId, mapping: &Mapping) -> Vec<FurtherSession> {
    let mut chain = Vec::new();
    let (mut previous, mut next) = (RecordId::NONE, mapping.sessions_head);
    if mapping.is_redirected() {
        assert_eq!(mapping.sessions, 0, "a flow with another destination is alone in its mapping");
        return chain;
    }
    while next != RecordId::NONE {
        let session = *nat.sessions.get(next);
        assert!(session.mapping == id && session.previous == previous && !session.is_address());
        chain.push(session);
        (previous, next) = (next, session.next);
    }
    chain
}

/// Returns the number of address records of a mapping, whose references must be the sessions with
/// that address.
fn audit_addresses(nat: &Nat, id: RecordId, chain: &[FurtherSession]) -> usize {
    let mut counted = 0;
    let slab = match nat.policy.is_replicated {
        true => nat.lanes.local(),
        false => nat.mappings.slab_of(id),
    };
    nat.sessions.walk_slab(slab, 0, usize::MAX, |_, session| {
        if session.mapping == id && session.is_address() {
            let address = session.remote.address;
            let sessions = chain.iter().filter(|other| other.remote.address == address).count();
            assert_eq!(session.references as usize, sessions);
            counted += 1;
        }
    });
    counted
}

/// Checks that the slab of sessions that only this worker has holds sessions of live mappings only.
fn audit_local(nat: &Nat) {
    if nat.policy.is_replicated {
        nat.sessions.walk_slab(nat.lanes.local(), 0, usize::MAX, |_, session| {
            assert!(nat.mappings.get(session.mapping).kind.is_in_use());
        });
    }
}

/// Checks that an index without a shard holds nothing.
fn audit_absent(nat: &Nat) {
    for shard in (0..nat.shards.len() as u16).map(ShardIndex) {
        if !nat.shards.is_free(shard) {
            continue;
        }
        assert_eq!(nat.admin().shard_gauges(shard), ShardGauges::default());
        for slab in (0..LANES).map(|lane| slab_of(shard, lane)) {
            assert_eq!(nat.mappings.next_extent(slab, 0), None);
            assert_eq!(nat.sessions.next_extent(slab, 0), None);
            let lane = nat.lanes.get(slab);
            assert!(lane.is_owned && !lane.is_present && !lane.is_replicated);
        }
    }
}
