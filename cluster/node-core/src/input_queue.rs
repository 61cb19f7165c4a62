//! Reports of etcd on the map, in etcd's order, on their way to the roles: an entry is obeyed once
//! it is on disk.
//!
//! So no entry is ever obeyed that a restart could forget: if one of two members has obeyed a newer
//! entry, that member knows it after any restart. Entries that the roles would refuse are not kept.
//! A disk that refuses to save, or stalls for longer than a failover may wait for its repair, is
//! not waited for: `epochs-not-kept` reports that, and until the disk works again a restart may
//! forget what was obeyed.
//!
//! Nothing else waits: a replica acts, copies go on and duties are obeyed without an entry.

use std::collections::VecDeque;
use std::time::Duration;

use weir_map::{ShardEntry, ShardId};
use weir_roles::{Roles, RolesInput};

use crate::map_keeper::{ChangeNumber, MapKeeper};

/// Inputs of the roles that are still to be handed in.
#[derive(Debug, Default)]
pub(crate) struct InputQueue(VecDeque<WaitingInput>);

#[derive(Debug)]
enum WaitingInput {
    Entry { shard: ShardId, entry: Box<ShardEntry>, change: Option<ChangeNumber> },
    Other(RolesInput),
}

impl InputQueue {
    /// Adds an input. An entry is on its way to the disk from here on, so that many are saved
    /// together.
    pub(crate) fn push(
        &mut self,
        now: Duration,
        input: RolesInput,
        roles: &Roles,
        keeper: &mut MapKeeper,
    ) {
        let waiting = match input {
            RolesInput::Entry { shard, entry } => {
                let is_newer = keeper.map().epoch(shard).is_none_or(|kept| entry.epoch() >= kept);
                let is_kept = is_newer && roles.would_obey(shard, &entry);
                let change = is_kept.then(|| keeper.set_entry(now, shard, &entry));
                WaitingInput::Entry { shard, entry, change }
            }
            other => WaitingInput::Other(other),
        };
        self.0.push_back(waiting);
    }

    /// Returns the next input that the roles may have now. Epochs that they have noted from earlier
    /// ones must be with the keeper.
    pub(crate) fn next(
        &mut self,
        now: Duration,
        roles: &Roles,
        keeper: &mut MapKeeper,
    ) -> Option<RolesInput> {
        if let WaitingInput::Entry { shard, entry, change } = self.0.front_mut()?
            && roles.would_obey(*shard, entry)
        {
            // A shard that has ended meanwhile was forgotten.
            let is_held = keeper.map().epoch(*shard).is_some_and(|kept| kept >= entry.epoch());
            if change.is_none() || !is_held {
                *change = Some(keeper.set_entry(now, *shard, entry));
            }
            let is_saved = change.is_some_and(|change| keeper.is_saved(change));
            if !is_saved && !keeper.is_stalled(now) {
                return None;
            }
        }
        Some(match self.0.pop_front()? {
            WaitingInput::Entry { shard, entry, .. } => RolesInput::Entry { shard, entry },
            WaitingInput::Other(input) => input,
        })
    }
}

#[cfg(test)]
#[path = "input_queue_tests.rs"]
mod tests;
