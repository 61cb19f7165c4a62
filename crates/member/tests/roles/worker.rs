//! A worker that obeys orders and tells news as a real one would, with a number for the contents of each lane.

use std::collections::{BTreeMap, VecDeque};

use weir_member::order::{Order, ShardDuties};
use weir_member::{News, PeerId};
use weir_replica::{Comeback, PeerIndex};
use weir_shard::{BootId, Epoch, Incarnation, LANES, ShardId, Term};

/// How long a copy takes.
const COPY_MS: u64 = 60;
/// A stream that was interrupted for so long begins anew.
const STREAM_MS: u64 = 500;
/// A lane that was followed passes for that so long after its source has changed.
const CARRIED_MS: u64 = 5_000;

/// What goes from one worker to another.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Hello,
    Copy { shard: ShardId, lane: usize, data: u64 },
    Grant { shard: ShardId, lane: usize, since: Epoch, data: u64 },
    Announced { shard: ShardId, term: Term },
    CameBack(Comeback),
}

#[derive(Clone, Debug)]
pub(crate) struct Contact {
    place: PeerIndex,
    boot_id: Option<BootId>,
    heard_ms: u64,
}

/// A copy of a lane that comes from a peer.
#[derive(Clone, Debug)]
struct Feed {
    began_ms: u64,
    seen_ms: u64,
}

impl Feed {
    fn is_complete(&self) -> bool {
        self.seen_ms - self.began_ms >= COPY_MS
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) duties: Option<ShardDuties>,
    /// How much of each lane's history is here.
    pub(crate) data: [u64; LANES],
    feeds: [BTreeMap<PeerId, Feed>; LANES],
    carried_until_ms: [u64; LANES],
    is_done: bool,
    granted: [Option<Epoch>; LANES],
    /// Who has granted a lane that was not taken up yet.
    pub(crate) giver: [Option<BootId>; LANES],
    announced: Option<Term>,
}

impl Shard {
    fn new() -> Self {
        Self {
            duties: None,
            data: [0; LANES],
            feeds: Default::default(),
            carried_until_ms: [0; LANES],
            is_done: false,
            granted: [None; LANES],
            giver: [None; LANES],
            announced: None,
        }
    }

    fn source(&self, lane: usize) -> Option<PeerId> {
        self.duties.as_ref()?.sources[lane]
    }

    pub(crate) fn writes(&self, lane: usize) -> bool {
        self.duties.as_ref().is_some_and(|duties| duties.lanes.contains(lane))
    }

    fn has_feed(&self, lane: usize, peer: PeerId) -> bool {
        self.feeds[lane].get(&peer).is_some_and(Feed::is_complete)
    }

    fn is_followed(&self, lane: usize, now_ms: u64) -> bool {
        let is_fed = self.source(lane).is_some_and(|peer| self.has_feed(lane, peer));
        is_fed || now_ms < self.carried_until_ms[lane]
    }

    fn is_done_now(&self, now_ms: u64) -> bool {
        let has_source = |lane: &usize| self.source(*lane).is_some() && !self.writes(*lane);
        let lanes: Vec<usize> = (0..LANES).filter(has_source).collect();
        !lanes.is_empty() && lanes.iter().all(|&lane| self.is_followed(lane, now_ms))
    }

    fn obey(&mut self, duties: ShardDuties, now_ms: u64) {
        for lane in 0..LANES {
            if duties.sources[lane] != self.source(lane) {
                let was_good = self.writes(lane) || self.is_followed(lane, now_ms);
                self.carried_until_ms[lane] = if was_good { now_ms + CARRIED_MS } else { 0 };
            }
        }
        self.duties = Some(duties);
        // What is known is told again.
        self.is_done = false;
    }

    fn lose(&mut self, lane: usize, peer: PeerId) {
        if self.feeds[lane].remove(&peer).is_some() && self.source(lane) == Some(peer) {
            self.carried_until_ms[lane] = 0;
        }
    }
}

pub(crate) struct Worker {
    pub(crate) me: Incarnation,
    pub(crate) peer: PeerId,
    /// When each order comes.
    pub(crate) orders: VecDeque<(u64, Order)>,
    pub(crate) contacts: BTreeMap<PeerId, Contact>,
    pub(crate) shards: BTreeMap<ShardId, Shard>,
    pub(crate) news: VecDeque<(u64, News)>,
    pub(crate) room: usize,
    places: u16,
    comebacks: Vec<Comeback>,
    said: BTreeMap<(PeerId, ShardId), (BootId, Comeback)>,
    pub(crate) duties_obeyed: u64,
}

impl Worker {
    pub(crate) fn new(me: Incarnation, peer: PeerId, room: usize) -> Self {
        Self {
            me,
            peer,
            orders: VecDeque::new(),
            contacts: BTreeMap::new(),
            shards: BTreeMap::new(),
            news: VecDeque::new(),
            room,
            places: 0,
            comebacks: Vec::new(),
            said: BTreeMap::new(),
            duties_obeyed: 0,
        }
    }

    pub(crate) fn obey_due(&mut self, now_ms: u64) {
        while self.orders.front().is_some_and(|(due_ms, _)| *due_ms <= now_ms) {
            let (_, order) = self.orders.pop_front().expect("there is one");
            self.obey(order, now_ms);
        }
    }

    fn tell(&mut self, now_ms: u64, news: News) {
        self.news.push_back((now_ms, news));
    }

    fn obey(&mut self, order: Order, now_ms: u64) {
        match order {
            Order::AddPeer { peer, .. } => {
                let place = PeerIndex(self.places);
                self.places += 1;
                let contact = Contact { place, boot_id: None, heard_ms: 0 };
                let before = self.contacts.insert(peer, contact);
                assert!(before.is_none(), "{peer:?} is added twice");
            }
            Order::RemovePeer(peer) => {
                self.contacts.remove(&peer).expect("a peer that is known");
                let of_peer = |duties: &ShardDuties| {
                    duties.sources.contains(&Some(peer))
                        || duties.copies.iter().any(|copy| copy.peer == peer)
                };
                let mut duties = self.shards.values().filter_map(|shard| shard.duties.as_ref());
                assert!(!duties.any(of_peer), "{peer:?} is removed, but needed");
                for shard in self.shards.values_mut() {
                    (0..LANES).for_each(|lane| shard.lose(lane, peer));
                }
            }
            Order::AddShard(setup) => {
                let shard = setup.nat.id;
                assert!(!self.shards.contains_key(&shard), "shard {shard} is added twice");
                if self.shards.len() == self.room {
                    let why = "no room".to_string();
                    self.tell(now_ms, News::ShardRefused { shard, why });
                } else {
                    self.shards.insert(shard, Shard::new());
                    self.tell(now_ms, News::ShardAdded(shard));
                }
            }
            Order::RemoveShard(id) => {
                let shard = self.shards.remove(&id).expect("a shard that is here");
                self.said.retain(|&(_, said), _| said != id);
                let is_idle = |duties: &ShardDuties| {
                    duties.lanes.is_empty() && !duties.serves_hits && duties.copies.is_empty()
                };
                assert!(shard.duties.as_ref().is_none_or(is_idle), "{:?}", shard.duties);
                self.tell(now_ms, News::ShardRemoved(id));
            }
            Order::Duties(duties) => {
                self.duties_obeyed += 1;
                let is_known = |peer: &PeerId| self.contacts.contains_key(peer);
                assert!(duties.copies.iter().all(|copy| is_known(&copy.peer)), "{duties:?}");
                let shard = self.shards.get_mut(&duties.shard).expect("added before");
                assert_ne!(shard.duties.as_ref(), Some(&*duties), "ordered already");
                shard.obey(*duties, now_ms);
            }
            Order::SetPeerNode { peer, .. } => {
                assert!(self.contacts.contains_key(&peer), "{peer:?} is not known");
            }
            Order::SetComebacks(comebacks) => self.comebacks = comebacks,
            Order::SetFingerprint(_)
            | Order::SetKeys(_)
            | Order::SetAllPublic(_)
            | Order::SetMapStale(_) => {}
        }
    }

    /// What it sends now: everything again, until it is not ordered any more.
    pub(crate) fn send(&self, now_ms: u64) -> Vec<(PeerId, Option<BootId>, Message)> {
        let mut messages: Vec<_> =
            self.contacts.keys().map(|&peer| (peer, None, Message::Hello)).collect();
        for &peer in self.contacts.keys() {
            let said = self.comebacks.iter().map(|&it| (peer, None, Message::CameBack(it)));
            messages.extend(said);
        }
        for (&id, shard) in &self.shards {
            let Some(duties) = &shard.duties else { continue };
            for copy in &duties.copies {
                let to = (copy.peer, Some(copy.boot));
                for lane in copy.lanes.iter() {
                    let message = Message::Copy { shard: id, lane, data: shard.data[lane] };
                    messages.push((to.0, to.1, message));
                }
            }
            for grant in &duties.grants {
                assert!(!duties.lanes.contains(grant.lane), "granted, but written");
                let message = Message::Grant {
                    shard: id,
                    lane: grant.lane,
                    since: grant.since,
                    data: shard.data[grant.lane],
                };
                let (peer, boot) = grant.to;
                messages.push((peer, Some(boot), message));
            }
            if let Some((term, peers)) =
                duties.announced.as_ref().filter(|_| now_ms.is_multiple_of(50))
            {
                messages.extend(peers.iter().map(|(peer, boot)| {
                    let message = Message::Announced { shard: id, term: *term };
                    (*peer, Some(*boot), message)
                }));
            }
        }
        messages
    }

    pub(crate) fn receive(&mut self, now_ms: u64, from: (PeerId, BootId), message: Message) {
        let (peer, boot_id) = from;
        let Some(contact) = self.contacts.get_mut(&peer) else { return };
        contact.heard_ms = now_ms;
        if contact.boot_id != Some(boot_id) {
            contact.boot_id = Some(boot_id);
            let met = News::PeerMet { peer, place: contact.place, boot: boot_id };
            self.tell(now_ms, met);
            for shard in self.shards.values_mut() {
                (0..LANES).for_each(|lane| shard.lose(lane, peer));
            }
        }
        match message {
            Message::Hello => {}
            Message::CameBack(comeback) => {
                let Comeback { epoch, state, .. } = comeback;
                let shard = comeback.shard;
                let is_known = self.shards.contains_key(&shard);
                let said = (boot_id, comeback);
                if is_known && self.said.insert((peer, shard), said) != Some(said) {
                    self.tell(now_ms, News::CameBack { peer, shard, epoch: Epoch(epoch), state });
                }
            }
            Message::Copy { shard, lane, data } => self.copy(now_ms, peer, shard, lane, data),
            Message::Grant { shard: id, lane, since, data } => {
                let Some(shard) = self.shards.get_mut(&id) else { return };
                let is_whole = shard.has_feed(lane, peer) && shard.data[lane] >= data;
                if is_whole && shard.granted[lane] != Some(since) {
                    shard.granted[lane] = Some(since);
                    shard.giver[lane] = Some(boot_id);
                    self.tell(now_ms, News::Granted { shard: id, lane, since });
                }
            }
            Message::Announced { shard: id, term } => {
                let Some(shard) = self.shards.get_mut(&id) else { return };
                if shard.announced < Some(term) {
                    shard.announced = Some(term);
                    self.tell(now_ms, News::Announced { shard: id, term });
                }
            }
        }
    }

    fn copy(&mut self, now_ms: u64, peer: PeerId, shard: ShardId, lane: usize, data: u64) {
        let Some(shard) = self.shards.get_mut(&shard) else { return };
        if shard.writes(lane) {
            return;
        }
        if shard.feeds[lane].get(&peer).is_some_and(|feed| now_ms - feed.seen_ms > STREAM_MS) {
            shard.lose(lane, peer);
        }
        let feed = shard.feeds[lane].entry(peer);
        let feed = feed.or_insert(Feed { began_ms: now_ms, seen_ms: now_ms });
        feed.seen_ms = now_ms;
        if feed.is_complete() {
            shard.data[lane] = shard.data[lane].max(data);
        }
    }

    /// Tells of copies that are complete, or not any more.
    pub(crate) fn review(&mut self, now_ms: u64) {
        for (&id, shard) in &mut self.shards {
            let is_done = shard.is_done_now(now_ms);
            if std::mem::replace(&mut shard.is_done, is_done) != is_done {
                let news = if is_done { News::CopyDone(id) } else { News::StreamLost(id) };
                self.news.push_back((now_ms, news));
            }
        }
    }

    /// Place and silence of each peer that was met.
    pub(crate) fn silences(&self, now_ms: u64) -> Vec<(PeerIndex, u64)> {
        let met = self.contacts.values().filter(|contact| contact.boot_id.is_some());
        met.map(|contact| (contact.place, now_ms - contact.heard_ms)).collect()
    }
}
