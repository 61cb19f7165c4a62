//! The prefixes that an operator takes out of service: under attack, on a block list, or to be
//! given back to their owner.
//!
//! ```text
//!                 new mappings            live mappings
//!   in service    yes                     go on
//!   drained       on other addresses      go on until they end
//!   quarantined   on other addresses      end, at most one sweep later
//! ```
//!
//! A home whose paired address is out of service is paired with another one when it needs its next
//! block. The blocks that it holds on the first one count against its quota until their flows have
//! ended.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use weir_flow::RecordId;

use crate::admin::facet::AdminMut;
use crate::endpoint::{ShardIndex, Tick};
use crate::nat::Nat;
use crate::ports::port_block::service::OutOfService;

/// A prefix out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixOutOfService {
    pub prefix: Ipv4Net,
    pub how: OutOfService,
}

impl AdminMut<'_> {
    /// Takes these prefixes out of service, and no others, and returns the former ones for the
    /// caller to free: allocates and frees nothing. Where two overlap the first one decides.
    /// [`Nat::expire`] carries it out, a shard in each call. Without translation there are no
    /// addresses.
    #[must_use]
    pub fn swap_out_of_service(
        &mut self,
        out_of_service: Box<[PrefixOutOfService]>,
    ) -> Box<[PrefixOutOfService]> {
        self.nat.service_unnoted = self.nat.shards.len() as u16;
        std::mem::replace(&mut self.nat.out_of_service, out_of_service)
    }
}

impl Nat {
    /// Goes on with a change of what is out of service.
    pub(crate) fn note_next_out_of_service(&mut self) {
        if let Some(next) = self.service_unnoted.checked_sub(1) {
            self.service_unnoted = next;
            self.note_out_of_service(ShardIndex(next));
        }
    }

    /// Sets for each address of a shard whether it is out of service.
    pub(crate) fn note_out_of_service(&mut self, shard: ShardIndex) {
        let Self { ports, out_of_service, policy, .. } = self;
        let mut has_changed = false;
        for at in 0..ports.positions(shard).len() {
            let position = ports.positions(shard)[at];
            let address = Ipv4Addr::from(ports.public_address(position));
            let listed = out_of_service.iter().find(|listed| listed.prefix.contains(&address));
            let how = listed.map(|listed| listed.how);
            if how != ports.out_of_service(position) {
                ports.set_service(position, how);
                policy.has_special_addresses = true;
                has_changed = true;
            }
        }
        if self.reserve_blocks(shard) | has_changed {
            self.ports.recount(shard);
        }
    }

    /// Ends a mapping on a quarantined address, with all its sessions.
    pub(crate) fn end_withdrawn(&mut self, id: RecordId, now: Tick) {
        // A mapping that was found twice may have ended meanwhile.
        if !self.mappings.get(id).kind.is_in_use() {
            return;
        }
        while self.mappings.get(id).sessions > 0 {
            self.totals.flow_expired += 1;
            self.end_session(self.mappings.get(id).sessions_head);
        }
        self.totals.flow_expired += 1;
        self.end_mapping(id, now);
    }
}
