//! A whole site that restarts while the store is unreachable: when a guest resumes the member slot
//! of its former incarnation.
//!
//! ```text
//!   the other members have come back, and report of      this worker resumes, after the quarantine
//!   the newest entry that it knows
//!     all of them: no copy                               at once, empty; or with its full copy
//!     some: resumed                                      with a full copy of what those have
//!     none: resumed, some: copies                        not: the store has to name the giver
//!   one of them is missing, or knows another entry       not
//! ```
//!
//! - Members obey an entry only when its epoch is on disk. So if all of them know the same one, no
//!   newer one was obeyed by any, and each lane is its former owner's: only the last incarnation of
//!   a worker runs.
//! - A lane that the entry gives to an earlier incarnation than the one that the store was last
//!   sent may be another worker's: that incarnation's end is proven.
//! - The first member to resume has all that is left of the shard's flows, since all others have
//!   nothing. A member that resumes later has taken the first one's copy.
//! - Ports of flows that all members have forgotten are free when the quarantine is over. It begins
//!   when all are back.
//! - Reports go with the heartbeats of a session, so each is of the incarnation that was met last,
//!   and is repeated again and again.
//! - A worker that has resumed writes that into the entry (`Transition::Resume`). Until all entries
//!   say so, the record that its node registers names the former incarnation, too: without it, the
//!   record would prove that incarnation's end.

use std::collections::BTreeMap;

use crate::role::RoleEvent;
use weir_map::{BootId, Epoch, Incarnation, ShardId};
use weir_stream::ComebackState;

use super::Roles;
use super::shard_role::TablesState;
use super::worker::{RolesShared, WorkerRoles};
use weir_ids::PeerId;
use weir_replication::command::WorkerCommand;

/// Time between two looks.
const LOOK_MS: u64 = 100;

/// One shard role's knowledge of the other members that have come back.
#[derive(Debug, Default)]
pub(super) struct ShardComebacks {
    reports: BTreeMap<PeerId, PeerComeback>,
    /// Whether a member with copies was heard, so that this worker may have received some.
    may_have_copies: bool,
    /// Since when all members are back, so that this worker may resume after the quarantine.
    since_ms: Option<u64>,
}

/// The last report of a peer, and the incarnation that sent it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerComeback {
    pub(super) boot_id: BootId,
    pub(super) epoch: Epoch,
    pub(super) state: ComebackState,
}

impl ShardComebacks {
    pub(super) fn on_report(&mut self, peer: PeerId, report: PeerComeback) {
        self.reports.insert(peer, report);
    }

    /// Returns the time until the worker resumes.
    pub(super) fn left_ms(&self, now_ms: u64, quarantine_ms: u64) -> Option<u64> {
        Some((self.since_ms? + quarantine_ms).saturating_sub(now_ms))
    }
}

/// Another member, as this worker sees it.
enum Other {
    /// It is not heard, or it knows another entry, or it reports nothing.
    Missing,
    /// It runs on, or the store names its new incarnation already.
    Living,
    Back(Incarnation, PeerId, ComebackState),
}

impl Roles {
    /// Sets how long ports rest before they are given again.
    pub fn set_quarantine_ms(&mut self, quarantine_ms: u64) {
        self.shared.options.quarantine_ms = quarantine_ms;
    }
}

impl WorkerRoles {
    /// Looks at all shards whose members come back, and sends this worker's reports to peers.
    pub(super) fn look_at_comebacks(&mut self, shared: &mut RolesShared) {
        let is_over = shared.kept.is_empty() && self.comebacks.is_empty();
        if is_over || shared.now_ms < self.comebacks_due_ms {
            return;
        }
        self.comebacks_due_ms = shared.now_ms + LOOK_MS;
        let came_back =
            self.roles.iter().filter(|(_, role)| role.machine.former_slot_epoch().is_some());
        let mut comebacks = Vec::new();
        for shard in came_back.map(|(&shard, _)| shard).collect::<Vec<_>>() {
            self.look_at_comeback(shared, shard);
            comebacks.extend(self.own_comeback(shard));
        }
        if comebacks != self.comebacks {
            self.comebacks.clone_from(&comebacks);
            self.commands.push_back(WorkerCommand::SetComebacks(comebacks));
        }
    }

    fn own_comeback(&self, shard: ShardId) -> Option<weir_stream::Comeback> {
        let role = self.roles.get(&shard)?;
        let epoch = role.machine.former_slot_epoch()?;
        let state = match () {
            () if role.machine.has_resumed() => ComebackState::Resumed,
            () if role.comeback.may_have_copies => ComebackState::Copying,
            () => ComebackState::Empty,
        };
        Some(weir_stream::Comeback { shard, epoch: epoch.0, state })
    }

    fn look_at_comeback(&mut self, shared: &mut RolesShared, shard: ShardId) {
        let others = self.others(shared, shard);
        let Some(role) = self.roles.get_mut(&shard) else { return };
        let host = role.machine.stored_entry().and_then(|entry| entry.former_life_of(&self.me));
        let is_its_own = shared.may_resume
            && host.is_some_and(|host| self.former == Some(host.incarnation.boot_id));
        let (mut are_empty, mut is_any_resumed, mut are_back) = (true, false, true);
        let mut lives = Vec::new();
        for (former, other) in others {
            let Other::Back(life, peer, state) = other else {
                are_back = false;
                role.comeback.may_have_copies |= matches!(other, Other::Living);
                // A member that has resumed and is not heard now keeps its member slot.
                let is_its = |life: &&Incarnation| life.worker == former.worker;
                let kept = role.machine.resumed().iter().find(is_its);
                lives.extend(kept.filter(|_| matches!(other, Other::Missing)).cloned());
                continue;
            };
            shared.directory.end(peer, former.boot_id);
            are_empty &= state == ComebackState::Empty;
            if state == ComebackState::Resumed {
                shared.directory.resumed(&life, peer);
                is_any_resumed = true;
                lives.push(life);
            }
        }
        let has_resumed = role.machine.has_resumed();
        role.comeback.may_have_copies |= is_any_resumed && !has_resumed;
        let may_resume = is_its_own && are_back && (are_empty || is_any_resumed) && !has_resumed;
        let since_ms = role.comeback.since_ms.unwrap_or(shared.now_ms);
        role.comeback.since_ms = may_resume.then_some(since_ms);
        let is_empty = are_empty && !role.comeback.may_have_copies;
        let resumes = may_resume
            && shared.now_ms >= since_ms + shared.options.quarantine_ms
            && role.tables == TablesState::There
            && (is_empty || role.machine.has_copy());
        if resumes || has_resumed {
            lives.push(self.me.clone());
        }
        if role.machine.resumed() != lives {
            self.on_event(shared, shard, RoleEvent::Resumed { lives, is_empty });
            self.renew(shared, shard);
        }
    }

    /// Returns the other members of a shard's entry, and how this worker sees them.
    fn others(&self, shared: &RolesShared, shard: ShardId) -> Vec<(Incarnation, Other)> {
        let Some(role) = self.roles.get(&shard) else { return Vec::new() };
        let Some(entry) = role.machine.stored_entry() else { return Vec::new() };
        let see = |former: &Incarnation| {
            let directory = &shared.directory;
            let peer = directory.successor_of(former).or_else(|| directory.peer_of(former));
            let Some((peer, boot_id)) = peer.and_then(|it| Some((it, self.peers.met_boot(it)?)))
            else {
                return Other::Missing;
            };
            if boot_id == former.boot_id {
                return Other::Living;
            }
            let report = role.comeback.reports.get(&peer);
            let report = report.filter(|it| it.boot_id == boot_id && it.epoch == entry.epoch());
            match report {
                Some(report) if self.peers.is_near(peer) => {
                    let life = Incarnation { worker: former.worker.clone(), boot_id };
                    Other::Back(life, peer, report.state)
                }
                _ => Other::Missing,
            }
        };
        let members = entry.members().iter().map(|member| &member.incarnation);
        let others = members.filter(|who| who.worker != self.me.worker);
        others.map(|who| (who.clone(), see(who))).collect()
    }
}
