//! The role machine: its state, and how duties follow from it.

use weir_ids::{Epoch, Incarnation, LANES, Term};
use weir_wire::Misses;

use super::duties::{Duties, Role};
use super::event::{PortHealth, RoleEvent};
use super::guest::Guest;
use super::metric::Metric;
use weir_map::Rank;
use weir_map::{Grant, LaneSet};
use weir_map::{Member, MemberState, Move, ShardEntry, Transition};

/// Length of the slots in which packets are counted.
const SLOT_MS: u64 = 10;

/// Times of the role machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleOptions {
    /// A primary that is not heard for this long is silent.
    pub silence_ms: u64,
    /// A replica without packets acts after a silence of this length, if no other node hears the
    /// primary's node either.
    pub lone_silence_ms: u64,
    /// This many consecutive slots must have packets before a replica acts: one stray packet must
    /// not outbid a healthy primary.
    pub busy_slots: u32,
    /// The former primary keeps its route for this long at most, if it does not hear of the new
    /// one.
    pub handover_ms: u64,
    /// Without packets for this long, a worker that left withdraws its route.
    pub quiet_ms: u64,
    /// A worker that left withdraws its route after this long even if packets still come.
    pub leaving_max_ms: u64,
}

impl Default for RoleOptions {
    fn default() -> Self {
        Self {
            silence_ms: 30,
            lone_silence_ms: 200,
            busy_slots: 3,
            handover_ms: 1_000,
            quiet_ms: 1_000,
            leaving_max_ms: 10_000,
        }
    }
}

/// The route of a former primary, kept until the new one has announced its own.
#[derive(Clone, Copy, Debug)]
struct KeptRoute {
    metric: Metric,
    until_ms: u64,
}

/// One worker's role for one shard.
#[derive(Clone, Debug)]
pub struct RoleMachine {
    me: Incarnation,
    options: RoleOptions,
    now_ms: u64,
    entry: Option<ShardEntry>,
    /// Set if the entry is one as a guest sees it.
    guest: Option<Guest>,
    /// Whether the copy is complete and follows the stream.
    has_copy: bool,
    is_acting: bool,
    /// Epoch of the move whose grant has come, by lane.
    granted: [Option<Epoch>; LANES],
    /// When the primary was heard last.
    heartbeat_ms: u64,
    /// The last term whose primary reported that its routes are out.
    announced: Option<Term>,
    /// Whether the primary was heard in this term: one that never was may not have begun.
    had_primary_heartbeat: bool,
    busy_slots: u32,
    quiet_slots: u64,
    kept_route: Option<KeptRoute>,
    /// Set while this worker, which is not a member any more, still serves.
    leaving_until_ms: Option<u64>,
    ports: PortHealth,
    duties: Duties,
    /// By lane among the duties: the epoch of the entry that made it one.
    lanes_since: [Epoch; LANES],
}

impl RoleMachine {
    /// A worker without a role.
    pub fn new(me: Incarnation, options: RoleOptions) -> Self {
        Self {
            me,
            options,
            now_ms: 0,
            entry: None,
            guest: None,
            has_copy: false,
            is_acting: false,
            granted: [None; LANES],
            heartbeat_ms: 0,
            announced: None,
            had_primary_heartbeat: false,
            busy_slots: 0,
            quiet_slots: 0,
            kept_route: None,
            leaving_until_ms: None,
            ports: PortHealth::NotReady,
            duties: Duties::NONE,
            lanes_since: [Epoch(0); LANES],
        }
    }

    pub fn incarnation(&self) -> &Incarnation {
        &self.me
    }

    /// Returns the entry that duties follow from: a guest's stands in no store.
    pub fn entry(&self) -> Option<&ShardEntry> {
        self.entry.as_ref()
    }

    /// Returns the same entry as the store has it.
    pub fn stored_entry(&self) -> Option<&ShardEntry> {
        self.guest.as_ref().map_or(self.entry.as_ref(), |guest| Some(&guest.entry))
    }

    /// True if this worker serves copies although the entry names only a former incarnation of it.
    pub fn is_guest(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| !guest.has_resumed(&self.me))
    }

    /// True if this worker has resumed the member slot of its former incarnation, and the store has
    /// not said so yet.
    pub fn has_resumed(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.has_resumed(&self.me))
    }

    /// Returns the epoch of the entry if it names only a former incarnation of this worker.
    pub fn former_slot_epoch(&self) -> Option<Epoch> {
        Some(self.guest.as_ref()?.entry.epoch())
    }

    /// Returns the incarnations that are known to have resumed the member slots of their former
    /// ones.
    pub fn resumed(&self) -> &[Incarnation] {
        self.guest.as_ref().map_or(&[], Guest::resumed)
    }

    /// True if this worker resumed when no member had any copy, so that an empty copy is a complete
    /// one.
    pub fn began_empty(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.began_empty)
    }

    /// Whether the copy is complete.
    pub fn has_copy(&self) -> bool {
        self.has_copy
    }

    /// True if this worker may go on under an entry that names only a former incarnation of it.
    pub fn may_follow(&self, entry: &ShardEntry) -> bool {
        match &self.guest {
            Some(guest) => guest.may_follow(entry, &self.me),
            None => entry.host_of(&self.me).is_some(),
        }
    }

    /// True if this worker may go on with the copies that it has when it obeys this entry.
    /// Otherwise it has to forget them first: the role starts over.
    pub fn keeps_copies_under(&self, entry: &ShardEntry) -> bool {
        self.guest.as_ref().is_none_or(|guest| guest.may_stay(entry, &self.me))
    }

    pub fn duties(&self) -> &Duties {
        &self.duties
    }

    /// Returns, for each lane that this worker writes, the epoch of the entry by which it became
    /// the lane's writer; 0 for the other lanes. No two owners of a lane have the same one, unless
    /// a worker has resumed the member slot of its former incarnation, and a later owner has a
    /// higher one: a move to it began after the owner before had taken the lane, and no other move
    /// begins until a move has ended.
    pub fn lanes_since(&self) -> [Epoch; LANES] {
        self.lanes_since
    }

    /// Handles an event at time `now_ms`, which never goes back, and returns whether the duties
    /// changed. Only a heartbeat may come later than others of its time. After a pause the worker
    /// must hand in a `Tick` before it handles a packet.
    pub fn on(&mut self, now_ms: u64, event: RoleEvent) -> bool {
        self.now_ms = now_ms.max(self.now_ms);
        match event {
            RoleEvent::Entry(entry) => self.on_entry(*entry),
            RoleEvent::Guest(entry) => self.on_guest(*entry),
            RoleEvent::Resumed { lives, is_empty } => self.on_resumed(lives, is_empty),
            RoleEvent::Heartbeat { from } => self.on_heartbeat(&from, now_ms),
            RoleEvent::Announced { term } => self.on_announced(term),
            RoleEvent::Slot { packets } => self.on_slot(packets),
            RoleEvent::CopyDone => self.has_copy = true,
            RoleEvent::StreamLost => self.has_copy = self.role() == Role::Primary,
            RoleEvent::Granted { lane, since } => {
                if let Some(granted) = self.granted.get_mut(lane) {
                    *granted = Some(since);
                }
            }
            RoleEvent::Ports(ports) => self.ports = ports,
            RoleEvent::PrimaryLost => self.on_primary_lost(),
            RoleEvent::Tick => {}
        }
        self.see_as_guest();
        self.pass_time();
        let duties = self.duties_now();
        let before = std::mem::replace(&mut self.duties, duties);
        self.note_lanes(before.lanes);
        before != self.duties
    }

    fn note_lanes(&mut self, before: LaneSet) {
        let epoch = self.entry.as_ref().map_or(Epoch(0), ShardEntry::epoch);
        for (lane, since) in self.lanes_since.iter_mut().enumerate() {
            match (before.contains(lane), self.duties.lanes.contains(lane)) {
                (true, true) => {}
                (false, true) => *since = epoch,
                (_, false) => *since = Epoch(0),
            }
        }
    }

    fn on_entry(&mut self, entry: ShardEntry) {
        let held = self.entry.as_ref().map_or(Epoch(0), |held| held.epoch());
        let is_old = entry.epoch() <= held;
        if is_old {
            return;
        }
        self.guest = None;
        self.obey(entry);
    }

    /// Makes the role follow from this entry.
    fn obey(&mut self, entry: ShardEntry) {
        let held = self.entry.as_ref().map(ShardEntry::epoch);
        assert!(
            held <= Some(entry.epoch()),
            "an obeyed entry is not older than the one before, {held:?}"
        );
        let role_before = self.role();
        let route_before = self.duties.metric;
        let is_new_term = self.entry.as_ref().is_none_or(|held| entry.term() > held.term());
        if is_new_term {
            self.heartbeat_ms = self.now_ms;
            self.had_primary_heartbeat = false;
        }
        let is_member = entry.member(&self.me).is_some();
        self.entry = Some(entry);
        let had_copy = matches!(role_before, Role::Synced | Role::Acting | Role::Primary);
        if !is_member {
            self.has_copy = false;
            if had_copy {
                self.leaving_until_ms = Some(self.now_ms + self.options.leaving_max_ms);
                self.quiet_slots = 0;
            }
        } else {
            self.leaving_until_ms = None;
        }
        self.has_copy |= self.role() == Role::Primary;
        self.is_acting &= self.is_synced_replica() && !is_new_term;
        if matches!(role_before, Role::Primary | Role::Acting) && self.role() != role_before {
            self.demoted(route_before);
        }
    }

    /// Takes an entry as a guest. A member ignores it, and so does a guest that holds one as new.
    fn on_guest(&mut self, entry: ShardEntry) {
        let is_newer = self
            .entry
            .as_ref()
            .is_none_or(|held| self.guest.is_some() && entry.epoch() > held.epoch());
        if !is_newer || !self.may_follow(&entry) {
            return;
        }
        match &mut self.guest {
            Some(guest) => guest.follow(entry, &self.me),
            None => self.guest = Some(Guest::new(entry, &self.me)),
        }
    }

    fn on_resumed(&mut self, lives: Vec<Incarnation>, is_empty: bool) {
        let Some(guest) = &mut self.guest else { return };
        let is_begun = !guest.has_resumed(&self.me) && lives.contains(&self.me);
        guest.resume(lives);
        guest.began_empty |= is_begun && is_empty;
        self.has_copy |= guest.began_empty && is_begun;
    }

    /// Updates the entry as a guest sees it, in which its own record shows whether it has a full
    /// copy. A worker that has resumed obeys the entry as any other member does.
    fn see_as_guest(&mut self) {
        let Some(guest) = &mut self.guest else { return };
        let Some(seen) = guest.see(&self.me, self.has_copy) else { return };
        match seen {
            Some(seen) if self.has_resumed() => self.obey(seen),
            seen => self.entry = seen,
        }
    }

    /// Ends the role of a primary or acting primary: another member was promoted, or the acting
    /// primary itself.
    fn demoted(&mut self, route: Option<Metric>) {
        let until_ms = self.now_ms + self.options.handover_ms;
        self.is_acting = false;
        self.kept_route = match self.role() {
            Role::Synced => route.map(|metric| KeptRoute { metric, until_ms }),
            _ => None,
        };
    }

    fn on_heartbeat(&mut self, from: &Incarnation, at_ms: u64) {
        if self.entry.as_ref().is_some_and(|entry| entry.primary().incarnation == *from) {
            self.heartbeat_ms = self.heartbeat_ms.max(at_ms);
            self.had_primary_heartbeat = true;
        }
    }

    fn on_announced(&mut self, term: Term) {
        if self.entry.as_ref().is_some_and(|entry| term >= entry.term()) {
            // The announcement is repeated whenever the duties change: only the first is a
            // heartbeat.
            if self.announced < Some(term) {
                self.announced = Some(term);
                self.heartbeat_ms = self.now_ms;
                self.had_primary_heartbeat = true;
            }
            self.kept_route = None;
        }
    }

    /// No node hears the primary's node: its routes may still be in the switches, so that no packet
    /// comes here.
    fn on_primary_lost(&mut self) {
        let is_silent = self.now_ms - self.heartbeat_ms >= self.options.lone_silence_ms;
        let can_serve = self.role() == Role::Synced && self.ports == PortHealth::Ready;
        let can_serve = can_serve && !self.is_guest();
        if can_serve && is_silent && self.had_primary_heartbeat {
            self.act();
        }
    }

    fn act(&mut self) {
        self.is_acting = true;
        self.kept_route = None;
    }

    fn on_slot(&mut self, packets: u32) {
        if packets > 0 {
            self.busy_slots = self.busy_slots.saturating_add(1);
            self.quiet_slots = 0;
        } else {
            self.busy_slots = 0;
            self.quiet_slots += 1;
        }
    }

    /// Applies what time and counters decide, after every event.
    fn pass_time(&mut self) {
        if self.role() == Role::Synced
            && !self.is_guest()
            && !self.has_primary_heartbeat()
            && self.busy_slots >= self.options.busy_slots
        {
            self.act();
        }
        if self.kept_route.is_some_and(|kept| self.now_ms >= kept.until_ms) {
            self.kept_route = None;
        }
        let is_quiet = self.quiet_slots * SLOT_MS >= self.options.quiet_ms;
        if self.leaving_until_ms.is_some_and(|until| is_quiet || self.now_ms >= until) {
            self.leaving_until_ms = None;
        }
    }

    fn has_primary_heartbeat(&self) -> bool {
        self.now_ms - self.heartbeat_ms < self.options.silence_ms
    }

    fn membership(&self) -> Option<(Rank, &Member)> {
        let entry = self.entry.as_ref()?;
        entry.member(&self.me)
    }

    fn is_synced_replica(&self) -> bool {
        self.membership().is_some_and(|(rank, member)| {
            rank != Rank::PRIMARY && member.state == MemberState::Synced
        })
    }

    fn role(&self) -> Role {
        let Some((rank, member)) = self.membership() else {
            let is_leaving = self.leaving_until_ms.is_some();
            return if is_leaving { Role::Leaving } else { Role::None };
        };
        match member.state {
            _ if rank == Rank::PRIMARY => Role::Primary,
            MemberState::Syncing => Role::Syncing,
            MemberState::Synced if self.is_acting => Role::Acting,
            MemberState::Synced if self.has_copy => Role::Synced,
            MemberState::Synced | MemberState::OutOfSync => Role::OutOfSync,
        }
    }

    fn duties_now(&self) -> Duties {
        let role = self.role();
        let (Some(entry), false) = (&self.entry, role == Role::None) else {
            return Duties::NONE;
        };
        let (lanes, grants) = (self.lanes(entry), self.grants(entry));
        let is_written = |grant: &Grant<Incarnation>| lanes.contains(grant.lane);
        assert!(
            !grants.iter().any(is_written),
            "a lane that is granted is not written: a lane has one writer"
        );
        Duties {
            role,
            lanes,
            misses: self.misses(role, entry, lanes),
            metric: self.metric(role, entry),
            grants,
            write: self.write(role, entry),
        }
    }

    /// Returns the lanes that this worker alone may write: the heart of uniqueness, argued in
    /// [`weir_map`].
    fn lanes(&self, entry: &ShardEntry) -> LaneSet {
        let Some((_, member)) = self.membership() else { return LaneSet::EMPTY };
        LaneSet::of(|index| {
            let lane = entry.lanes()[index];
            let is_taken =
                |moving: Move| moving.is_last() && self.granted[index] == Some(moving.since);
            let is_mine = lane.moving.is_none_or(is_taken);
            lane.owner == member.slot && is_mine
        })
    }

    fn misses(&self, role: Role, entry: &ShardEntry, lanes: LaneSet) -> Misses<Incarnation> {
        let primary = || Misses::Redirect(entry.primary().incarnation.clone());
        match role {
            Role::None => Misses::Refuse,
            Role::Leaving => primary(),
            Role::Primary | Role::Acting if !lanes.is_empty() => Misses::Create,
            Role::Primary => self.giver(entry).map_or(Misses::Refuse, Misses::Redirect),
            Role::Acting => Misses::Refuse,
            Role::Synced | Role::Syncing | Role::OutOfSync if self.has_primary_heartbeat() => {
                primary()
            }
            Role::Synced if !lanes.is_empty() => Misses::Create,
            Role::Synced | Role::Syncing | Role::OutOfSync => Misses::Refuse,
        }
    }

    /// Returns a member that has not yet granted a lane to this worker.
    fn giver(&self, entry: &ShardEntry) -> Option<Incarnation> {
        let (_, member) = entry.member(&self.me)?;
        let mut awaited = entry.lanes().iter().filter(|lane| lane.owner == member.slot);
        let from = awaited.find_map(|lane| lane.moving)?.from;
        Some(entry.at_slot(from)?.incarnation.clone())
    }

    fn metric(&self, role: Role, entry: &ShardEntry) -> Option<Metric> {
        let others_have_copy = entry
            .members()
            .iter()
            .any(|member| member.incarnation != self.me && member.state == MemberState::Synced);
        match self.ports {
            PortHealth::NotReady => return None,
            PortHealth::Broken if others_have_copy => return None,
            PortHealth::Broken | PortHealth::Ready => {}
        }
        let rank = entry.member(&self.me).map(|(rank, _)| rank);
        match (role, rank) {
            (Role::Primary, _) => Some(Metric::primary(entry.term())),
            (Role::Acting, Some(rank)) => Some(Metric::acting(entry.term(), rank)),
            (Role::Synced, _) if self.is_guest() => Some(Metric::GUEST),
            (Role::Synced, Some(rank)) => {
                let kept = self.kept_route.map(|kept| kept.metric);
                Some(kept.unwrap_or(Metric::replica(rank)))
            }
            (Role::Leaving, _) => Some(Metric::LEAVING),
            _ => None,
        }
    }

    /// Returns the lanes on their way from this worker. It does not write them, so they can be
    /// granted.
    fn grants(&self, entry: &ShardEntry) -> Vec<Grant<Incarnation>> {
        let Some((_, member)) = entry.member(&self.me) else { return Vec::new() };
        let lanes = entry.lanes().iter().enumerate();
        let given = lanes.filter_map(|(lane, state)| {
            let moving = state.moving.filter(|moving| moving.from == member.slot)?;
            let to = entry.at_slot(state.owner)?.incarnation.clone();
            Some(Grant { lane, since: moving.since, to })
        });
        given.collect()
    }

    fn write(&self, role: Role, entry: &ShardEntry) -> Option<Transition> {
        if let Some(guest) = &self.guest {
            return guest.write(&self.me);
        }
        let (_, member) = entry.member(&self.me)?;
        let taken = LaneSet::of(|index| {
            let lane = entry.lanes()[index];
            let since = lane.moving.map(|moving| moving.since);
            lane.owner == member.slot && since.is_some() && since == self.granted[index]
        });
        if !taken.is_empty() {
            return Some(Transition::Settle { by: self.me.clone(), lanes: taken });
        }
        match (role, member.state) {
            (Role::Syncing | Role::OutOfSync, _) if self.has_copy => {
                Some(Transition::Synced(self.me.clone()))
            }
            (Role::OutOfSync, MemberState::Synced) => Some(Transition::OutOfSync(self.me.clone())),
            (Role::OutOfSync, _) => Some(Transition::Resync(self.me.clone())),
            _ => None,
        }
    }
}
