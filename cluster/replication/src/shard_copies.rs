//! A worker's copies of one shard, lane by lane: outgoing copies, incoming copies, unreported
//! events.

use weir_map::{Epoch, LANES, ShardId, Term};
use weir_nat::{Replica, ShardIndex};
use weir_stream::{BootId, Lane, Lineage, PeerIndex, Provenance, Ticket};

use super::outgoing::{Confirmation, Outgoing};
use crate::PeerId;
use crate::command::{GrantOrder, ShardDuties};

/// Peers whose copies of one lane may be under way here at once: its source, the previous source,
/// and up to two others.
const FEEDS_MAX: usize = 4;

/// Microseconds for which a lane counts as followed after it changed hands, while its new source
/// has not begun a copy.
const CARRIED_US: u64 = 5_000_000;

/// A missing copy is asked for again after this time, then after twice as long, up to 64 times as
/// long.
const WANT_US: u64 = 100_000;
const WANT_DOUBLINGS: u32 = 6;

/// A copy that found no room is asked for again after this time.
const WANT_FULL_US: u64 = 60_000_000;

/// A copy that comes from a peer, from its start until it is stopped or its stream restarts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feed {
    peer: PeerIndex,
    lineage: Lineage,
    is_complete: bool,
}

/// The copies of one lane of the shard.
#[derive(Debug)]
pub(super) struct LaneCopy {
    /// Peers that have copies from here, and the same list as [`weir_stream::Endpoint::tell`] takes
    /// it.
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) readers: Vec<PeerIndex>,
    feeds: Vec<Feed>,
    /// Peer whose copy is awaited.
    pub(super) source: Option<PeerIndex>,
    /// Lineage of the records here.
    pub(super) lineage: Lineage,
    /// All of that lineage was here once, or it is this worker's own.
    pub(super) is_whole: bool,
    /// All of the lineage before it was here when this one became known.
    had_before: bool,
    /// The lineage is this worker's own: the worker knows of none later.
    pub(super) is_own: bool,
    /// The lane is on its way from here to its source, so no worker writes it.
    pub(super) is_given: bool,
    /// Records are being removed, since the source's lineage does not continue theirs.
    pub(super) is_forgetting: bool,
    /// Ticket of the last change that packets wait for, and the journal position of the first
    /// change that went in the same datagrams; 0: it is not tracked.
    pub(super) awaited: (Ticket, u64),
    /// Journal position of the last change that packets wait for.
    pub(super) last_awaited: u64,
    /// Set if the lane was followed when its source changed: until when it counts as followed
    /// without an incoming copy.
    carried_until_us: Option<u64>,
    wants: u32,
    want_due_us: u64,
}

impl LaneCopy {
    fn new(lane: Lane) -> Self {
        Self {
            outgoing: Vec::new(),
            readers: Vec::new(),
            feeds: Vec::with_capacity(FEEDS_MAX),
            source: None,
            lineage: Lineage::default(),
            is_whole: false,
            had_before: false,
            is_own: false,
            is_given: false,
            is_forgetting: false,
            awaited: (Ticket::new(lane), 0),
            last_awaited: 0,
            carried_until_us: None,
            wants: 0,
            want_due_us: 0,
        }
    }

    /// True if this peer's records of the lane are accepted.
    #[inline]
    pub(super) fn is_fed_by(&self, peer: PeerIndex) -> bool {
        let is_of_here =
            |feed: &Feed| feed.lineage.now == self.lineage.now || self.is_ahead_of(feed.lineage);
        self.feed(peer).is_some_and(is_of_here) && !self.is_forgetting
    }

    /// True if the records here continue that lineage. Records of it can only add something then.
    #[inline]
    fn is_ahead_of(&self, lineage: Lineage) -> bool {
        let may_add = self.is_whole || self.had_before || lineage.is_relayed();
        lineage.now != 0 && lineage.now == self.lineage.before && may_add
    }

    /// True if the peer's copy is complete and followed.
    pub(super) fn has_all_of(&self, peer: PeerIndex) -> bool {
        self.is_fed_by(peer) && self.feed(peer).is_some_and(|feed| feed.is_complete)
    }

    /// True if everything that the peer, which gives the lane, can send of it is here. A peer
    /// without records, or a relay whose lineage cannot be compared with the one here, has nothing
    /// to send.
    pub(super) fn may_be_taken_from(&self, peer: PeerIndex) -> bool {
        let is_complete = self.feed(peer).is_some_and(|feed| feed.is_complete);
        is_complete && !self.is_forgetting
    }

    #[inline]
    fn feed(&self, peer: PeerIndex) -> Option<&Feed> {
        self.feeds.iter().find(|feed| feed.peer == peer)
    }

    /// Returns the lineage of the peer's copy.
    pub(super) fn lineage_of(&self, peer: PeerIndex) -> Option<Lineage> {
        self.feed(peer).map(|feed| feed.lineage)
    }

    /// True if versions of that lineage continue those here, or there are none here.
    fn goes_on_in(&self, lineage: Lineage) -> bool {
        let known = self.lineage.now;
        lineage.now != 0 && (known == 0 || known == lineage.now || known == lineage.before)
    }

    /// Notes that a peer begins a copy. `is_ours`: this worker writes the lane, whatever other
    /// workers say.
    pub(super) fn begin_feed(
        &mut self,
        peer: PeerIndex,
        lineage: Lineage,
        is_ours: bool,
        now_us: u64,
    ) {
        let was_followed = self.is_followed();
        self.end_feed(peer);
        // A lane that is being given stays as it is: a late record of its former writer would not
        // be given with it.
        if self.is_given && self.source != Some(peer) {
            return;
        }
        if self.feeds.len() == FEEDS_MAX {
            let other = self.feeds.iter().position(|feed| Some(feed.peer) != self.source);
            self.feeds.swap_remove(other.expect("at most one incoming copy is the source's"));
        }
        self.feeds.push(Feed { peer, lineage, is_complete: false });
        if !is_ours && self.goes_on_in(lineage) && self.lineage.now != lineage.now {
            self.lineage = Lineage { provenance: Provenance::Writer, ..lineage };
            self.had_before = self.is_whole;
            (self.is_whole, self.is_own) = (false, false);
            if was_followed && self.source != Some(peer) {
                // The copy of the new writer begins before a command names it as the source.
                self.carried_until_us = Some(now_us + CARRIED_US);
            }
        }
    }

    /// Notes that a peer takes the lane over. If its copy is followed, the copy continues in the
    /// peer's own lineage. If it was not accepted, the peer may have more to send, so the copy ends
    /// and is asked for again.
    pub(super) fn begin_lineage(&mut self, peer: PeerIndex, lineage: Lineage) {
        let is_followed = self.is_fed_by(peer) && lineage.before == self.lineage.now;
        let Some(feed) = self.feeds.iter_mut().find(|feed| feed.peer == peer) else { return };
        if !is_followed || feed.lineage.is_relayed() {
            return self.lose(peer);
        }
        feed.lineage = lineage;
        self.lineage = lineage;
        (self.had_before, self.is_own) = (self.is_whole, false);
    }

    pub(super) fn complete_feed(&mut self, peer: PeerIndex) {
        let is_fed = self.is_fed_by(peer);
        let Some(feed) = self.feeds.iter_mut().find(|feed| feed.peer == peer) else { return };
        let tells_nothing = feed.lineage.now == 0 || feed.lineage.is_relayed();
        if !is_fed && (!tells_nothing || self.is_forgetting) {
            return;
        }
        feed.is_complete = true;
        let is_all = feed.lineage.provenance != Provenance::PartialRelay;
        // With lineage 0 the peer knows nothing of the lane; another member may.
        let is_known = feed.lineage.now != 0;
        self.is_whole |= is_fed && is_all && is_known && feed.lineage.now == self.lineage.now;
        self.wants = 0;
    }

    pub(super) fn end_feed(&mut self, peer: PeerIndex) {
        self.feeds.retain(|feed| feed.peer != peer);
    }

    /// Notes that the peer sends no more changes; if its copy was complete, the lane is as the peer
    /// left it.
    pub(super) fn stop_feed(&mut self, peer: PeerIndex, now_us: u64) {
        if self.source == Some(peer) && self.has_all_of(peer) {
            self.carried_until_us = Some(now_us + CARRIED_US);
        }
        self.end_feed(peer);
    }

    /// Notes that the peer's stream restarted, or that the peer is gone.
    pub(super) fn lose(&mut self, peer: PeerIndex) {
        let was_fed = self.feed(peer).is_some();
        self.end_feed(peer);
        if self.source == Some(peer) && (was_fed || !self.is_given) {
            self.carried_until_us = None;
            self.want_soon(0);
        }
    }

    /// Sets the peer that the lane's copy comes from, if any. `was_followed`: the lane is as its
    /// writer left it.
    pub(super) fn set_source(
        &mut self,
        source: Option<PeerIndex>,
        was_followed: bool,
        now_us: u64,
    ) {
        if self.source == source {
            return;
        }
        self.carried_until_us = was_followed.then_some(now_us + CARRIED_US);
        self.source = source;
        self.want_soon(now_us);
    }

    /// Notes whether the lane is being given to its source. Until the source writes it, the lane is
    /// as it is here.
    pub(super) fn set_given(&mut self, is_given: bool, now_us: u64) {
        if is_given {
            let source = self.source;
            self.feeds.retain(|feed| Some(feed.peer) == source);
        }
        if is_given != self.is_given && self.is_whole {
            self.carried_until_us = Some(now_us + CARRIED_US);
        }
        self.is_given = is_given;
    }

    fn want_soon(&mut self, now_us: u64) {
        (self.wants, self.want_due_us) = (0, now_us);
    }

    /// True if the source's lineage does not continue the one here. Ends a copy that could have
    /// been accepted from its start but was not: it is asked for again.
    pub(super) fn is_source_foreign(&mut self) -> bool {
        let Some((source, feed)) = self.source.and_then(|peer| Some((peer, *self.feed(peer)?)))
        else {
            return false;
        };
        if self.is_ahead_of(feed.lineage) {
            return false;
        }
        let goes_on = self.goes_on_in(feed.lineage);
        if goes_on && feed.lineage.now != self.lineage.now {
            self.end_feed(source);
        }
        // A complete copy is never discarded in favour of a relayed one.
        let is_believed = !feed.lineage.is_relayed() || !self.is_whole;
        !goes_on && feed.lineage.now != 0 && is_believed
    }

    /// Notes that all records are gone.
    pub(super) fn forgotten(&mut self) {
        self.lineage = Lineage::default();
        (self.is_whole, self.had_before, self.is_own) = (false, false, false);
        self.is_forgetting = false;
        self.feeds.clear();
        self.carried_until_us = None;
        self.want_soon(0);
    }

    /// True if the lane is as its source has it, as far as is known.
    pub(super) fn is_followed(&self) -> bool {
        let is_fed = self.source.is_some_and(|source| self.has_all_of(source)) && self.is_whole;
        is_fed || (self.carried_until_us.is_some() && !self.is_forgetting)
    }

    /// Returns true if the time has passed in which the lane counted as followed without a copy.
    pub(super) fn has_carry_ended(&mut self, now_us: u64) -> bool {
        let is_fed = self.source.is_some_and(|source| self.is_fed_by(source));
        let is_due = self.carried_until_us.is_some_and(|until_us| now_us >= until_us);
        let is_over = is_due && !is_fed && !self.is_given;
        if is_over {
            self.carried_until_us = None;
        }
        is_over
    }

    /// True if time alone changes nothing: no copy is missing, and the lane does not count as
    /// followed for a limited time.
    pub(super) fn is_at_rest(&self, is_full: bool) -> bool {
        let is_there = self.source.is_none_or(|source| self.feed(source).is_some());
        let is_fed = self.source.is_some_and(|source| self.is_fed_by(source));
        let waits = self.carried_until_us.is_some() && !is_fed;
        is_there && !is_full && !self.is_forgetting && !waits
    }

    /// Returns the peer to ask for a copy now, if one is missing.
    pub(super) fn next_want(&mut self, is_full: bool, now_us: u64) -> Option<PeerIndex> {
        let source = self.source?;
        let is_missing = self.feed(source).is_none() || (is_full && self.has_all_of(source));
        if !is_missing || self.is_forgetting || now_us < self.want_due_us {
            return None;
        }
        let pause_us = WANT_US << self.wants.min(WANT_DOUBLINGS);
        self.want_due_us = now_us + if is_full { WANT_FULL_US } else { pause_us };
        self.wants += 1;
        Some(source)
    }
}

/// A lane that is to be given away.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) order: GrantOrder,
    /// Journal end when the lane had been put down.
    pub(super) journal_end: u64,
    /// Epoch of the stream in which it was last sent, and when.
    pub(super) sent: Option<(u32, u64)>,
}

/// A peer to notify that the routes of a term are out.
#[derive(Debug)]
pub(super) struct Announcement {
    pub(super) term: Term,
    pub(super) peer: PeerId,
    pub(super) boot: BootId,
    pub(super) ticket: Option<Ticket>,
    pub(super) is_delivered: bool,
}

/// Events of a shard that have not been reported yet.
#[derive(Debug, Default)]
pub(super) struct Untold {
    pub(super) is_queued: bool,
    pub(super) is_done: Option<bool>,
    pub(super) granted: [Option<Epoch>; LANES],
    pub(super) announced: Option<Term>,
}

/// A worker's copies of one shard.
#[derive(Debug)]
pub(super) struct ShardCopies {
    pub(super) number: ShardId,
    pub(super) duties: ShardDuties,
    /// Packets wait until replicas have the changes that they depend on.
    pub(super) awaits_replicas: bool,
    /// Fewer replicas than wanted have the shard, as far as is known.
    pub(super) is_short: bool,
    /// All peers that the duties name are known, and there was room for all copies.
    pub(super) is_settled: bool,
    pub(super) lanes: [LaneCopy; LANES],
    pub(super) grants: Vec<Grant>,
    pub(super) announcements: Vec<Announcement>,
    pub(super) confirmations: Vec<Confirmation>,
    /// All lanes that have a source were followed at the last look.
    pub(super) is_done: bool,
    /// The last term whose primary reported that its routes are out.
    pub(super) announced: Option<Term>,
    pub(super) untold: Untold,
    /// The shard is in the queue of those with grants or announcements under way.
    pub(super) is_busy: bool,
    /// No copy is missing and no time is awaited, until something of the shard changes.
    pub(super) is_at_rest: bool,
}

impl ShardCopies {
    pub(super) fn new(number: ShardId) -> Self {
        Self {
            number,
            duties: ShardDuties::none(number),
            awaits_replicas: false,
            is_short: true,
            is_settled: true,
            lanes: Lane::ALL.map(LaneCopy::new),
            grants: Vec::new(),
            announcements: Vec::new(),
            confirmations: Vec::new(),
            is_done: false,
            announced: None,
            untold: Untold::default(),
            is_busy: false,
            is_at_rest: false,
        }
    }

    /// True if a lane's copy is to come from a peer.
    pub(super) fn has_source(&self, lane: usize) -> bool {
        self.duties.sources[lane].is_some() && !self.duties.lanes.contains(lane)
    }

    /// True if all lanes that have a source are followed, and none is full.
    pub(super) fn is_done_now(&self, shard: ShardIndex, nat: Replica<'_>) -> bool {
        let mut lanes = (0..LANES).filter(|&lane| self.has_source(lane)).peekable();
        let is_good =
            |lane: usize| self.lanes[lane].is_followed() && !nat.is_copy_full(shard, lane as u8);
        lanes.peek().is_some() && lanes.all(is_good)
    }

    /// True if some message is to be repeated until it is heard.
    pub(super) fn has_messages(&self) -> bool {
        let is_any = !(self.grants.is_empty() && self.confirmations.is_empty());
        is_any || self.announcements.iter().any(|to| !to.is_delivered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: PeerIndex = PeerIndex(0);
    const NEW: PeerIndex = PeerIndex(1);
    const FIRST: Lineage = Lineage { now: 1, before: 0, provenance: Provenance::Writer };
    const SECOND: Lineage = Lineage { now: 2, before: 1, provenance: Provenance::Writer };

    /// A lane that follows its first writer.
    fn followed() -> LaneCopy {
        let mut lane = LaneCopy::new(Lane::ALL[0]);
        lane.set_source(Some(OLD), false, 0);
        lane.begin_feed(OLD, FIRST, false, 0);
        lane.complete_feed(OLD);
        assert!(lane.is_followed());
        lane
    }

    #[test]
    fn a_lane_follows_its_writer_when_the_next_one_begins_early() {
        let mut lane = followed();
        lane.begin_feed(NEW, SECOND, false, 1);
        assert!(lane.is_fed_by(OLD) && lane.is_fed_by(NEW));
        assert!(!lane.is_source_foreign() && lane.is_followed());
        lane.set_source(Some(NEW), lane.is_followed(), 2);
        lane.complete_feed(NEW);
        assert!(!lane.is_source_foreign() && lane.is_followed());
    }

    #[test]
    fn an_incomplete_lineage_is_not_accepted_once_the_next_one_begins() {
        let mut lane = LaneCopy::new(Lane::ALL[0]);
        lane.set_source(Some(OLD), false, 0);
        lane.begin_feed(OLD, FIRST, false, 0);
        lane.begin_feed(NEW, SECOND, false, 1);
        assert!(!lane.is_fed_by(OLD) && lane.is_fed_by(NEW));
    }

    /// A member that began after the lane's writer ended, and is to give the lane, knows nothing of
    /// it; another member may.
    #[test]
    fn a_copy_without_a_lineage_is_not_complete() {
        let mut lane = LaneCopy::new(Lane::ALL[0]);
        lane.set_source(Some(OLD), false, 0);
        lane.begin_feed(OLD, Lineage::default(), false, 0);
        lane.complete_feed(OLD);
        assert!(!lane.is_followed());
        assert!(
            lane.may_be_taken_from(OLD),
            "an empty giver does not hold up the lane's new writer"
        );
        lane.begin_feed(NEW, FIRST, false, 1);
        lane.set_source(Some(NEW), lane.is_followed(), 1);
        lane.complete_feed(NEW);
        assert!(lane.is_followed());
    }

    #[test]
    fn a_forgotten_lane_accepts_only_the_new_lineage() {
        let mut lane = followed();
        lane.begin_feed(NEW, SECOND, false, 1);
        lane.forgotten();
        lane.begin_feed(NEW, SECOND, false, 2);
        lane.begin_feed(OLD, FIRST, false, 2);
        assert!(!lane.is_fed_by(OLD) && lane.is_fed_by(NEW));
    }
}
