//! Hot. What goes out besides copies: changes from the journal, and messages about a lane that are
//! repeated until they are heard.

use weir_nat::{ChangeKind, Replica, ReplicaMut, ShardIndex};
use weir_stream::{CopyState, Kind, Lane, Record, ShardId};

use super::Replication;
use super::shard_copies::ShardCopies;
use super::world::kind_of;

/// Changes that one turn appends: twice what two bursts of new flows make. More wait in the
/// journal.
const CHANGES_MAX: usize = 512;

/// Time between two repetitions of a grant, and between two tries to announce.
const REPEAT_US: u64 = 100_000;

/// Shards that are checked each millisecond for missing copies. Those at rest cost one look.
pub(super) const SHARDS_PER_SWEEP: usize = 64;

/// Shards with messages under way that one turn looks at.
const MESSAGES_PER_TURN: usize = 32;

/// Returns a message about a lane or a shard: a record without slot and version.
pub(super) fn message<'a>(kind: Kind, number: ShardId, body: &'a [u8]) -> Record<'a> {
    Record { kind, shard: number, slot: 0, version: 0, body }
}

/// The body of a message of two numbers, 16 bytes, big-endian; [`read_pair`] returns the two.
pub(super) fn pair(first: u64, second: u64) -> [u8; 16] {
    (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
}

pub(super) fn read_pair(body: &[u8]) -> Option<(u64, u64)> {
    let both = u128::from_be_bytes(*body.first_chunk()?);
    Some(((both >> 64) as u64, both as u64))
}

impl Replication {
    /// Appends the changes in the journal to the streams of the peers that keep copies.
    #[inline]
    pub(super) fn tell_changes(&mut self, now_us: u64, nat: &mut ReplicaMut<'_>) {
        let Self { commits, endpoint, state, body, .. } = self;
        for _ in 0..CHANGES_MAX {
            let Some((change, length)) = nat.next_change(body) else { return };
            let Some(part) = state.part_to_tell(change.shard) else { continue };
            let record = Record {
                kind: kind_of(change.kind),
                shard: part.number,
                slot: change.slot,
                version: change.version,
                body: &body[..length],
            };
            let lane = Lane::ALL[usize::from(change.lane)];
            let makes_state = matches!(change.kind, ChangeKind::Create | ChangeKind::Change);
            if makes_state && commits.awaits(part) {
                let at = (nat.read().journal_taken(), now_us);
                let is_followed = commits.tell(endpoint, (change.shard, part), lane, &record, at);
                state.counters.changes_untracked_total += u64::from(!is_followed);
                continue;
            }
            let own = &part.lanes[usize::from(change.lane)];
            let peers = match change.kind {
                ChangeKind::OwnerUpdate => own.source.as_slice(),
                _ => &own.readers[..],
            };
            endpoint.tell(peers, lane, &record, now_us);
        }
    }

    /// Appends all changes in the journal before a command changes the readers of lanes. Otherwise
    /// the changes of a lane that loses its last copy would go to no stream, and no packet would
    /// wait for them.
    pub(super) fn tell_all_changes(&mut self, now_us: u64, nat: &mut ReplicaMut<'_>) {
        let journal_end = nat.read().journal_end();
        while !nat.read().is_told(journal_end) {
            self.tell_changes(now_us, nat);
        }
    }

    /// Restarts the copies of lanes whose changes were lost in the journal.
    #[inline]
    pub(super) fn restart_lost(&mut self, nat: &mut ReplicaMut<'_>) {
        while let Some((shard, lane)) = nat.take_lost() {
            let Some(part) = self.state.part_mut(shard) else { continue };
            for out in &mut part.lanes[usize::from(lane)].outgoing {
                out.restart(&mut self.endpoint);
            }
            self.state.counters.lanes_lost_total += 1;
        }
    }

    /// Answers peers that ask for copies that they lack. A copy that is on its way is not
    /// restarted.
    pub(super) fn answer_wants(&mut self) {
        let mut wanted = std::mem::take(&mut self.state.wanted);
        for (peer, shard, lane) in wanted.drain(..) {
            let Some(part) = self.state.part_to_tell(shard) else { continue };
            let boot = self.endpoint.boot(peer);
            let mut copies = part.lanes[lane].outgoing.iter_mut();
            let copy = copies.find(|out| out.peer == peer && Some(out.boot) == boot);
            let Some(copy) = copy else { continue };
            let status = self.endpoint.copy_status(copy.copy);
            if status.is_some_and(|status| status.state == CopyState::Synced) {
                copy.restart(&mut self.endpoint);
                self.state.counters.copies_restarted_total += 1;
            }
        }
        self.state.wanted = wanted;
    }

    /// Sends the grants, announcements and confirmations that are due.
    pub(super) fn send_messages(&mut self, now_us: u64, nat: Replica<'_>) {
        for _ in 0..MESSAGES_PER_TURN.min(self.busy.len()) {
            let Some(shard) = self.busy.pop_front() else { return };
            self.state.counters.shards_looked_at_total += 1;
            let Some(part) = self.state.part_mut(shard) else { continue };
            Self::send_grants(&mut self.endpoint, part, now_us, nat);
            Self::send_announcements(&mut self.endpoint, part, now_us);
            Self::send_confirmations(&mut self.endpoint, part, now_us);
            part.is_busy = part.has_messages();
            if part.is_busy {
                self.busy.push_back(shard);
            }
        }
    }

    /// Sends each grant behind everything that was written in its lane, once the peer has the whole
    /// of it.
    fn send_grants(
        endpoint: &mut weir_stream::Endpoint,
        part: &mut ShardCopies,
        now_us: u64,
        nat: Replica<'_>,
    ) {
        for grant in &mut part.grants {
            let order = grant.order;
            let (to, boot) = order.to;
            let (Some(lane), Some(peer)) = (Lane::new(order.lane as u8), endpoint.peer(to)) else {
                continue;
            };
            let mut copies = part.lanes[order.lane].outgoing.iter();
            let copy = copies.find(|out| out.peer == peer && out.boot == boot);
            let status = copy.and_then(|out| endpoint.copy_status(out.copy));
            let is_there = status.is_some_and(|status| status.state == CopyState::Synced);
            let (epoch, _) = endpoint.acknowledged(peer, lane);
            let is_due = grant
                .sent
                .is_none_or(|(sent_in, sent_us)| sent_in != epoch || now_us >= sent_us + REPEAT_US);
            if is_there && is_due && nat.is_told(grant.journal_end) {
                let body = order.since.0.to_be_bytes();
                endpoint.tell(&[peer], lane, &message(Kind::Grant, part.number, &body), now_us);
                grant.sent = Some((epoch, now_us));
            }
        }
    }

    fn send_announcements(
        endpoint: &mut weir_stream::Endpoint,
        part: &mut ShardCopies,
        now_us: u64,
    ) {
        let lane = Lane::ALL[0];
        for to in part.announcements.iter_mut().filter(|to| !to.is_delivered) {
            let Some(peer) = endpoint.peer(to.peer) else { continue };
            if endpoint.boot(peer) != Some(to.boot) || !endpoint.is_open(peer, lane) {
                continue;
            }
            let ticket = to.ticket.filter(|ticket| !endpoint.is_void(ticket));
            to.is_delivered = ticket.is_some_and(|ticket| endpoint.replicated_on(&ticket) > 0);
            if ticket.is_none() {
                let body = u64::from(to.term.0).to_be_bytes();
                let record = message(Kind::Announced, part.number, &body);
                to.ticket = Some(endpoint.append(&[peer], lane, &record, now_us));
            }
        }
    }

    /// Sends confirmations at once: packets wait until their writer knows that a copy is followed.
    fn send_confirmations(
        endpoint: &mut weir_stream::Endpoint,
        part: &mut ShardCopies,
        now_us: u64,
    ) {
        let ShardCopies { lanes, confirmations, number, .. } = part;
        confirmations.retain_mut(|it| {
            let ticket = it.ticket.filter(|ticket| !endpoint.is_void(ticket));
            let is_told = ticket.is_some_and(|ticket| endpoint.replicated_on(&ticket) > 0);
            if is_told || !lanes[usize::from(it.lane.number())].has_all_of(it.peer) {
                return false;
            }
            it.ticket = ticket;
            if ticket.is_none() && endpoint.is_open(it.peer, it.lane) {
                let body = pair(it.copy.0, it.copy.1);
                let record = message(Kind::Followed, *number, &body);
                it.ticket = Some(endpoint.append(&[it.peer], it.lane, &record, now_us));
                endpoint.hasten(it.peer, now_us, 0);
            }
            true
        });
    }

    /// Checks some shards for copies that no peer has begun, and counts the copies of some others.
    pub(super) fn sweep(&mut self, now_us: u64, nat: &mut ReplicaMut<'_>) {
        let places = self.state.places();
        for _ in 0..SHARDS_PER_SWEEP.min(places) {
            self.swept = (self.swept + 1) % places;
            let shard = ShardIndex(self.swept as u16);
            if self.state.part(shard).is_some_and(|part| !part.is_at_rest) {
                self.state.counters.shards_looked_at_total += 1;
                self.sweep_shard(shard, now_us, nat.read());
            }
        }
        self.look_at_copies(now_us, nat);
    }

    fn sweep_shard(&mut self, shard: ShardIndex, now_us: u64, nat: Replica<'_>) {
        let Some(part) = self.state.part_mut(shard) else { return };
        let want = message(Kind::Want, part.number, &[]);
        let (mut has_lapsed, mut wanted, mut is_at_rest) = (false, 0, true);
        for (lane, number) in part.lanes.iter_mut().zip(Lane::ALL) {
            has_lapsed |= lane.has_carry_ended(now_us);
            let is_full = nat.is_copy_full(shard, number.number());
            is_at_rest &= lane.is_at_rest(is_full);
            if let Some(source) = lane.next_want(is_full, now_us) {
                self.endpoint.tell(&[source], number, &want, now_us);
                wanted += 1;
            }
        }
        part.is_at_rest = is_at_rest;
        self.state.counters.copies_wanted_total += wanted;
        if has_lapsed {
            self.state.review(shard, nat);
        }
    }
}
