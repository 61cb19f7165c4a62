//! The JSON form of an entry: the value of one small key of the store.
//!
//! ```json
//! {"term":2,"epoch":9,
//!  "members":[{"worker":"n2/1","boot_id":"5e0c…","seat":1,"state":"synced"},
//!             {"worker":"n1/0","boot_id":"77ab…","seat":0,"state":"synced"}],
//!  "owners":[0,1,1,1,1,1,1,1],
//!  "moves":[{"lane":2,"from":0,"since":8,"then":[3]}]}
//! ```
//!
//! `owners` has a slot for each lane; `then` is left out where `from` has written the lane,
//! `rebased` where the store was never set back. Unknown fields are skipped, so that a newer
//! version may add some; an entry that breaks an invariant is refused.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_ids::{BootId, Epoch, Incarnation, LANES, Term, WorkerId};

use super::check::Violation;
use super::entry::{LaneEntry, Member, MemberState, Move, ShardEntry};
use crate::lane::MemberSlot;

/// Why the value of a key is not an entry.
#[derive(Debug, Error)]
pub enum EntryError {
    #[error("the entry is no valid JSON of a shard: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the entry moves lane {0} twice, or there is no such lane")]
    Lane(usize),
    #[error("the entry breaks an invariant: {0}")]
    Breaks(#[from] Violation),
}

#[derive(Serialize, Deserialize)]
struct EntryJson {
    term: Term,
    epoch: Epoch,
    members: Vec<MemberJson>,
    owners: [MemberSlot; LANES],
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moves: Vec<MoveJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rebased: Option<Epoch>,
}

#[derive(Serialize, Deserialize)]
struct MemberJson {
    worker: WorkerId,
    boot_id: BootId,
    #[serde(rename = "seat")]
    slot: MemberSlot,
    state: MemberState,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    yielding: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leaving: bool,
}

#[derive(Serialize, Deserialize)]
struct MoveJson {
    lane: usize,
    from: MemberSlot,
    since: Epoch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    then: Option<Vec<MemberSlot>>,
}

impl ShardEntry {
    /// Returns the entry as compact JSON.
    pub fn to_json(&self) -> String {
        let members = self.members.iter().map(|member| MemberJson {
            worker: member.incarnation.worker.clone(),
            boot_id: member.incarnation.boot_id,
            slot: member.slot,
            state: member.state,
            yielding: member.is_yielding,
            leaving: member.is_leaving,
        });
        let moves = self.lanes.iter().enumerate().filter_map(|(lane, state)| {
            let Move { from, since, then } = state.moving?;
            Some(MoveJson { lane, from, since, then: then.map(|slots| slots.iter().collect()) })
        });
        let json = EntryJson {
            term: self.term,
            epoch: self.epoch,
            members: members.collect(),
            owners: self.lanes.map(|lane| lane.owner),
            moves: moves.collect(),
            rebased: self.rebased,
        };
        serde_json::to_string(&json).expect("an entry has string keys only")
    }

    /// Reads and checks an entry.
    pub fn from_json(text: &[u8]) -> Result<Self, EntryError> {
        let json: EntryJson = serde_json::from_slice(text)?;
        let members = json.members.into_iter().map(|member| Member {
            incarnation: Incarnation { worker: member.worker, boot_id: member.boot_id },
            slot: member.slot,
            state: member.state,
            is_yielding: member.yielding,
            is_leaving: member.leaving,
        });
        let mut lanes = json.owners.map(LaneEntry::at_rest);
        for MoveJson { lane, from, since, then } in json.moves {
            let mut slots = then.iter().flatten();
            if let Some(&slot) = slots.find(|slot| slot.lane() >= LANES) {
                return Err(Violation::NoSuchSlot(slot).into());
            }
            let then = then.map(|slots| slots.into_iter().collect());
            let moving = Move { from, since, then };
            match lanes.get_mut(lane) {
                Some(state) if state.moving.is_none() => state.moving = Some(moving),
                _ => return Err(EntryError::Lane(lane)),
            }
        }
        let EntryJson { term, epoch, rebased, .. } = json;
        let entry = Self { term, epoch, members: members.collect(), lanes, rebased };
        entry.check()?;
        Ok(entry)
    }
}
