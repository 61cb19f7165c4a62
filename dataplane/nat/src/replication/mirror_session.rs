//! Copies of further sessions. Each brings its mapping along, so it needs no other change to have
//! come before.

use weir_flow::{RecordId, SlabId, is_later_version};

use crate::endpoint::Tick;
use crate::nat::Nat;
use crate::replication::change::{Applied, ChangeKind, LaneChange, table_slot};
use crate::replication::image::MappingImage;
use crate::replication::mirror::CopyRemoval;
use crate::replication::owner_update::never;
use crate::replication::session_image::SessionImage;
use crate::sessions::mapping::Remote;
use crate::sessions::session::{FurtherSession, SessionKey};

impl Nat {
    pub(crate) fn apply_session(
        &mut self,
        slab: SlabId,
        slot: u32,
        (kind, version): (ChangeKind, u32),
        (image, mapping_image, paired_address): (&SessionImage, &MappingImage, Option<u32>),
        now: Tick,
    ) -> Applied {
        if mapping_image.is_redirected() {
            return Applied::Invalid;
        }
        let (held, version_held) = self.held::<FurtherSession>(slab, slot);
        if let Some(id) = held {
            let session = *self.sessions.get(id);
            if version == version_held && session.remote.is(image.remote) {
                let protocol = self.mappings.get(session.mapping).protocol;
                let received = (image.remote, image.state);
                let state = self.received_state(&session.remote, protocol, kind, received, now);
                if state != image.state {
                    self.send_state_to_owner::<FurtherSession>(id);
                }
                self.sessions.get_mut(id).remote.state = state;
                let mapping = self.mappings.get_mut(session.mapping);
                mapping.count_inbound(session.remote.state, -1);
                mapping.count_inbound(state, 1);
                return Applied::Done;
            }
        }
        if version != version_held && !is_later_version(version, version_held) {
            return Applied::Old;
        }
        match held {
            Some(id) if version == version_held => self.end_copy(id, CopyRemoval::Forgotten),
            Some(id) => self.end_copy(id, CopyRemoval::Ended),
            None if version == version_held => return Applied::Old,
            None => {}
        }
        let (_, mapping_slot) = table_slot(image.mapping_slot);
        let mapping_version = image.mapping_version;
        if self.live_mapping(slab, mapping_slot, mapping_version).is_none() {
            let Some(copy) = self.copy_of(slab, mapping_image, None, paired_address) else {
                return Applied::Invalid;
            };
            let change = LaneChange { kind, slot: image.mapping_slot, version: mapping_version };
            let brought = self.apply_mapping(slab, change, &copy, None, now);
            if brought != Applied::Done {
                return brought;
            }
        }
        let Some(mapping) = self.live_mapping(slab, mapping_slot, mapping_version) else {
            return Applied::Old;
        };
        if self.mappings.get(mapping).is_redirected() {
            return Applied::Invalid;
        }
        // A session that only this worker has, or one whose end is still to come.
        if let Some(other) = self.find_session(mapping, SessionKey::Remote(image.remote)) {
            self.end_copy(other, CopyRemoval::Forgotten);
        }
        self.put_session(slab, slot, version, mapping, image, now)
    }

    fn put_session(
        &mut self,
        slab: SlabId,
        slot: u32,
        version: u32,
        mapping: RecordId,
        image: &SessionImage,
        now: Tick,
    ) -> Applied {
        if self.flows >= self.policy.live.flows_max {
            return self.lane_is_full(slab);
        }
        let Some(id) = self.sessions.put(slab, slot, version, RecordId::NONE) else {
            return self.lane_is_full(slab);
        };
        let remote = Remote {
            address: image.remote.address,
            last_seen: never(now),
            port: image.remote.port,
            state: image.state,
        };
        if self.link_session(mapping, id, remote).is_none() {
            self.sessions.forget(id);
            return self.lane_is_full(slab);
        }
        self.mappings.get_mut(mapping).count_inbound(image.state, 1);
        Applied::Done
    }

    /// Removes all further sessions from the copy of a mapping.
    pub(crate) fn end_sessions(&mut self, mapping: RecordId, exit: CopyRemoval) {
        while self.mappings.get(mapping).sessions > 0 {
            self.end_copy(self.mappings.get(mapping).sessions_head, exit);
        }
    }

    /// Removes a further session from the copy of a mapping: a copied session, or one that only
    /// this worker has.
    pub(crate) fn end_copy(&mut self, id: RecordId, exit: CopyRemoval) {
        let session = self.sessions.get(id);
        let (mapping, remote) = (session.mapping, session.remote);
        self.mappings.get_mut(mapping).count_inbound(remote.state, -1);
        let is_local = self.sessions.slab_of(id) == self.lanes.local();
        if is_local {
            self.log_remote(false, mapping, remote);
        }
        self.unlink_session(id);
        match exit {
            CopyRemoval::Forgotten if !is_local => self.sessions.forget(id),
            _ => self.sessions.free(id),
        }
    }
}
