//! Copies of other workers' IPv6 flows.
//!
//! Two workers that do not hear each other may each have the record of one flow. Both name the same
//! endpoints, so a packet may use either; each ends by its own timer.

use weir_flow::{Hash, Record, RecordId, SlabId, is_later_version};

use crate::endpoint::{Endpoint, Home, Tick};
use crate::ipv6::flow_image::FlowImage;
use crate::ipv6::flow_key::FlowKey6;
use crate::ipv6::flow_record::Flow6;
use crate::look_up::PacketKey;
use crate::nat::Nat;
use crate::replication::change::{Applied, ChangeKind, LaneChange, table_slot};
use crate::replication::lane::lane_of;
use crate::replication::mirror::CopyRemoval;
use crate::replication::owner_update::never;
use crate::sessions::mapping::Mapping;
use crate::subscribers::subscriber::NO_ADDRESS;

impl Nat {
    /// Returns the image of a flow's record.
    pub(crate) fn flow_image(&self, record: &Mapping) -> FlowImage {
        let home = self.subscribers.get(record.subscriber);
        let paired_address = (home.paired_address != NO_ADDRESS)
            .then(|| self.ports.public_address(home.paired_address));
        FlowImage {
            inside: record.inside6(),
            remote: record.remote6(),
            protocol: record.protocol,
            state: record.first.state,
            age_sec: self.now.since(record.created),
            is_answered: record.flags & Mapping::ANSWERED != 0,
            is_of_prefix: self.policy.home_mask != 0,
            outer: home.outer,
            gre_key: home.gre_key(),
            paired_address,
        }
    }

    /// Applies a copy of a flow to its slot.
    pub(crate) fn apply_flow6(
        &mut self,
        slab: SlabId,
        change: LaneChange,
        image: &FlowImage,
        now: Tick,
    ) -> Applied {
        let LaneChange { kind, slot, version } = change;
        let (_, slot) = table_slot(slot);
        let Some(home) = self.home_of_image(slab, image) else { return Applied::Invalid };
        let hint = self.mappings.prefetch_slot(slab, slot);
        let (held, version_held) = self.held::<Mapping>(slab, slot);
        if let Some(id) = held.filter(|_| version == version_held) {
            if self.is_flow_of(id, image, &home) {
                return self.change_flow6(id, kind, image, now);
            }
            // A correct owner never gives one version to two flows.
            self.remove_mapping(id, CopyRemoval::Forgotten);
        } else if !is_later_version(version, version_held) {
            return Applied::Old;
        } else if let Some(id) = held {
            self.remove_mapping(id, CopyRemoval::Ended);
        }
        let Some(id) = self.mappings.put(slab, slot, version, hint) else {
            return self.lane_is_full(slab);
        };
        match self.attach_flow6(id, image, &home, now) {
            Some(()) => Applied::Done,
            None => {
                self.mappings.forget(id);
                self.lane_is_full(slab)
            }
        }
    }

    /// Returns the home of an image, if its flow can be one of this lane.
    fn home_of_image(&self, slab: SlabId, image: &FlowImage) -> Option<Home> {
        let (shard, _) = lane_of(slab);
        let home = Home { shard, outer: image.outer, gre_key: image.gre_key };
        let is_prefix = self.policy.home_mask != 0;
        let is_ours = self.prefixes.shard_of(image.inside.address) == Some(shard)
            && image.is_of_prefix == is_prefix
            && match is_prefix {
                true => self.home_of_inside6(shard, image.inside.address) == home,
                false => self.is_home_outer(image.outer),
            };
        is_ours.then_some(home)
    }

    fn is_flow_of(&self, id: RecordId, image: &FlowImage, home: &Home) -> bool {
        let record = self.mappings.get(id);
        record.kind.is_ipv6()
            && key_of(image).differs(record) == 0
            && self.subscribers.is_of(record.subscriber, home)
    }

    /// Applies what the owner decides of a flow that is here.
    fn change_flow6(
        &mut self,
        id: RecordId,
        kind: ChangeKind,
        image: &FlowImage,
        now: Tick,
    ) -> Applied {
        let Mapping { first, protocol, subscriber, .. } = *self.mappings.get(id);
        let remote = Endpoint::new(first.address, first.port);
        let state = self.received_state(&first, protocol, kind, (remote, image.state), now);
        if state != image.state {
            self.send_state_to_owner::<Mapping>(id);
        }
        let record = self.mappings.get_mut(id);
        record.first.state = state;
        if image.is_answered {
            record.flags |= Mapping::ANSWERED;
            self.subscribers.set_answered(subscriber);
        }
        self.subscribers.get_mut(subscriber).note_gre_key(image.gre_key);
        Applied::Done
    }

    /// Makes a record that was put into its slot the copy of a flow. None if there is no room for
    /// what belongs to it.
    fn attach_flow6(
        &mut self,
        id: RecordId,
        image: &FlowImage,
        home: &Home,
        now: Tick,
    ) -> Option<()> {
        if self.flows >= self.policy.live.flows_max {
            return None;
        }
        let created = Tick(now.0.wrapping_sub(image.age_sec));
        let paired = image.paired_address.and_then(|address| self.ports.position_of(address));
        let paired = match self.policy.enabled && self.policy.home_mask == 0 {
            true => paired.filter(|&it| self.ports.shard_at(it) == home.shard)?,
            false => NO_ADDRESS,
        };
        let subscriber = self.find_or_create(home, paired)?;
        let (_, lane) = lane_of(self.mappings.slab_of(id));
        let Some(claim) = self.hold_copied_prefix(home, image.inside.address, lane, created) else {
            self.dismiss_home(subscriber);
            return None;
        };
        let hash = key_of(image).hash(self);
        if self.outbound_index.insert(hash, id.0).is_err() {
            self.release_claim(claim);
            self.dismiss_home(subscriber);
            return None;
        }
        if image.is_answered {
            self.subscribers.set_answered(subscriber);
        }
        let flow = Flow6 {
            inside: image.inside,
            remote: image.remote,
            protocol: image.protocol,
            shard: home.shard,
            state: image.state,
            last_seen: never(now),
            created,
            flags: self.subscribers.get(subscriber).mapping_flags(),
            subscriber,
            claim,
        };
        self.mappings.get_mut(id).fill_flow6(&flow);
        self.count_flow6(subscriber);
        self.note_home_key(subscriber, home);
        Some(())
    }

    /// Returns a flow's term of a sum, see
    /// [`mapping_term`](Self::mapping_term).
    pub(crate) fn flow6_term(
        &self,
        slot: u32,
        record: &Mapping,
        sum: impl Fn([u64; 3]) -> Hash,
    ) -> u64 {
        let key = FlowKey6::new(record.inside6(), record.remote6(), record.protocol, true);
        let home = self.subscribers.get(record.subscriber);
        let named = match home.gre_key().filter(|_| self.policy.by_key) {
            Some(key) => u64::from(key),
            None => 1 << 32,
        };
        let first = sum([
            u64::from(slot) << 32 | u64::from(record.version()),
            self.outer_term(home.outer, &sum) ^ named,
            key.inside().prefix64() ^ 1,
        ]);
        let second = sum([first.0, key.inside().address as u64, key.remote().prefix64()]);
        let ports = u64::from(key.inside().port) << 32 | u64::from(key.remote().port) << 16;
        sum([second.0, key.remote().address as u64, ports | record.protocol as u64]).0
    }

    /// Returns what stands for an outer address in a sum: the same at all workers.
    pub(crate) fn outer_term(&self, outer: u32, sum: impl Fn([u64; 3]) -> Hash) -> u64 {
        match self.outer_ipv6(outer) {
            None => u64::from(outer) << 32,
            Some([upper, lower]) => sum([upper, lower, 6]).0,
        }
    }
}

fn key_of(image: &FlowImage) -> FlowKey6 {
    FlowKey6::new(image.inside, image.remote, image.protocol, true)
}
