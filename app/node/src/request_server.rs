//! Answers requests to a worker: a bounded piece of one per turn, so that no request ever stalls
//! the worker. The requester brings the room for an answer, so that the worker does not allocate.

use std::time::Duration;

use tokio::sync::oneshot;
use weir_nat::{Admin, AdminMut, Flush, HomeSelector, SessionFilter, ShardId, Tick};

use crate::capture::CapturePoint;
use crate::request::{HomesPage, LiveSwap, Mailbox, Page, SubscriberPage, WorkerRequest};
use crate::trace::TracePoint;

/// Table slots visited per turn for a dump: some microseconds.
const SLOTS_PER_TURN: usize = 256;

/// Most turns that a page of a dump takes, so that its answer comes in time however few sessions
/// match.
const TURNS_PER_PAGE: usize = 4096;

/// Positions, homes, blocks and slots of claims visited per turn to show what a home holds. A
/// position costs one look-up in the index at most.
const PARTS_PER_TURN: usize = 256;

/// The worker's open work besides packets.
#[derive(Debug)]
pub(crate) struct RequestServer {
    mailbox: Mailbox,
    work: Option<Work>,
    capture_point: Option<Box<CapturePoint>>,
    live_swap: Option<LiveSwap>,
    trace_point: Option<Box<TracePoint>>,
    /// Whether there is one of the two.
    is_tapped: bool,
}

/// Work that is done piece by piece.
#[derive(Debug)]
enum Work {
    Dump(Dump),
    Listing(HomesListing),
    Homes(Homes),
    Flushing(Flushing),
}

/// A page of homes and blocks being filled.
#[derive(Debug)]
struct Homes {
    name: HomeSelector,
    page: SubscriberPage,
    reply: oneshot::Sender<SubscriberPage>,
}

/// A page being filled.
#[derive(Debug)]
struct Dump {
    page: Page,
    filter: SessionFilter,
    turns_left: usize,
    reply: oneshot::Sender<Page>,
}

/// A page of all homes being filled.
#[derive(Debug)]
struct HomesListing {
    page: HomesPage,
    shard: Option<ShardId>,
    turns_left: usize,
    reply: oneshot::Sender<HomesPage>,
}

/// A flush being done.
#[derive(Debug)]
struct Flushing {
    flush: Flush,
    reply: oneshot::Sender<usize>,
}

impl RequestServer {
    pub(crate) fn new(mailbox: Mailbox) -> Self {
        Self {
            mailbox,
            work: None,
            capture_point: None,
            live_swap: None,
            trace_point: None,
            is_tapped: false,
        }
    }

    /// Whether a capture or a trace runs.
    #[inline]
    pub(crate) fn is_tapped(&self) -> bool {
        self.is_tapped
    }

    /// Returns the running trace, if there is one.
    pub(crate) fn trace_point(&self) -> Option<&TracePoint> {
        self.trace_point.as_deref()
    }

    pub(crate) fn trace_point_mut(&mut self) -> Option<&mut TracePoint> {
        self.trace_point.as_deref_mut()
    }

    /// Returns the running capture, if there is one.
    #[inline]
    pub(crate) fn capture_point(&mut self) -> Option<&mut CapturePoint> {
        self.capture_point.as_deref_mut()
    }

    /// Returns the generation that is to be put in force, once: it concerns more than the NAT.
    pub(crate) fn take_live_swap(&mut self) -> Option<LiveSwap> {
        self.live_swap.take()
    }

    /// Works on the requests for one turn. Must be called once per turn. True while there is more
    /// to do.
    #[inline]
    pub(crate) fn serve(&mut self, nat: AdminMut<'_>, now: Duration) -> bool {
        if self.is_tapped {
            self.end_taps();
        }
        if self.work.is_some() {
            self.go_on(nat, now);
            return true;
        }
        match self.mailbox.take() {
            None => false,
            Some(request) => {
                self.begin(request, nat);
                true
            }
        }
    }

    /// Ends a capture and a trace whose reader has gone.
    #[cold]
    fn end_taps(&mut self) {
        self.capture_point.take_if(|point| point.is_closed());
        self.trace_point.take_if(|point| point.is_closed());
        self.is_tapped = self.capture_point.is_some() || self.trace_point.is_some();
    }

    #[cold]
    fn begin(&mut self, request: WorkerRequest, mut nat: AdminMut<'_>) {
        // The requester may have gone: an answer without a receiver is dropped.
        match request {
            WorkerRequest::Sessions { page, filter, reply } => {
                let turns_left = TURNS_PER_PAGE;
                self.work = Some(Work::Dump(Dump { page, filter, turns_left, reply }));
            }
            WorkerRequest::Homes { page, shard, reply } => {
                let turns_left = TURNS_PER_PAGE;
                self.work = Some(Work::Listing(HomesListing { page, shard, turns_left, reply }));
            }
            WorkerRequest::Subscriber { name, page, reply } => {
                self.work = Some(Work::Homes(Homes { name, page, reply }));
            }
            WorkerRequest::Flush { name, reply } => {
                self.work =
                    Some(Work::Flushing(Flushing { flush: nat.read().begin_flush(name), reply }));
            }
            WorkerRequest::Capture { point, reply } => {
                let is_free = self.capture_point.is_none();
                if is_free {
                    self.capture_point = Some(point);
                    self.is_tapped = true;
                }
                let _ = reply.send(is_free);
            }
            WorkerRequest::Trace { point, reply } => {
                let is_free = self.trace_point.is_none();
                if is_free {
                    self.trace_point = Some(point);
                    self.is_tapped = true;
                }
                let _ = reply.send(is_free);
            }
            WorkerRequest::RuleHits { mut counts, reply } => {
                let nat = nat.read();
                let hits = &nat.active_rules().hits;
                counts.is_whole &= hits.len() == counts.hits.len();
                for (sum, hits) in counts.hits.iter_mut().zip(hits) {
                    *sum += hits;
                }
                let _ = reply.send(counts);
            }
            WorkerRequest::RuleLog { mut page, reply } => {
                page.lost += nat.take_rule_log(&mut page.flows);
                let _ = reply.send(page);
            }
            WorkerRequest::SwapLive(swap) => self.live_swap = Some(swap),
        }
    }

    #[cold]
    fn go_on(&mut self, nat: AdminMut<'_>, now: Duration) {
        self.work = match self.work.take() {
            Some(Work::Dump(dump)) => dump.go_on(nat.read()).map(Work::Dump),
            Some(Work::Listing(listing)) => listing.go_on(nat.read()).map(Work::Listing),
            Some(Work::Homes(homes)) => homes.go_on(nat.read()).map(Work::Homes),
            Some(Work::Flushing(flushing)) => flushing.go_on(nat, now).map(Work::Flushing),
            None => None,
        };
    }
}

/// Whether the entries that the slots of another turn may add fit into a page.
fn has_room<T>(page: &Vec<T>) -> bool {
    page.len() + SLOTS_PER_TURN <= page.capacity()
}

impl Dump {
    /// Visits the next slots. Returns `None` once the page is full or complete, has taken long, or
    /// has no receiver any more.
    fn go_on(mut self, nat: Admin<'_>) -> Option<Self> {
        if self.reply.is_closed() {
            return None;
        }
        let page = &mut self.page;
        page.has_more =
            nat.sessions(&mut page.cursor, SLOTS_PER_TURN, &self.filter, &mut page.sessions);
        self.turns_left -= 1;
        if page.has_more && has_room(&page.sessions) && self.turns_left > 0 {
            return Some(self);
        }
        let _ = self.reply.send(self.page);
        None
    }
}

impl HomesListing {
    /// Visits the next homes, as [`Dump::go_on`].
    fn go_on(mut self, nat: Admin<'_>) -> Option<Self> {
        if self.reply.is_closed() {
            return None;
        }
        let page = &mut self.page;
        page.has_more = nat.homes(&mut page.cursor, SLOTS_PER_TURN, self.shard, &mut page.homes);
        self.turns_left -= 1;
        if page.has_more && has_room(&page.homes) && self.turns_left > 0 {
            return Some(self);
        }
        let _ = self.reply.send(self.page);
        None
    }
}

impl Homes {
    /// Visits the next positions, as [`Dump::go_on`].
    fn go_on(mut self, nat: Admin<'_>) -> Option<Self> {
        if self.reply.is_closed() {
            return None;
        }
        let page = &mut self.page;
        page.has_more =
            nat.subscriber_parts(self.name, &mut page.cursor, PARTS_PER_TURN, &mut page.parts);
        let is_full = page.parts.len() + PARTS_PER_TURN > page.parts.capacity();
        if page.has_more && !is_full {
            return Some(self);
        }
        let _ = self.reply.send(self.page);
        None
    }
}

impl Flushing {
    /// Flushes the next piece. A flush goes on even if its answer has no receiver any more.
    fn go_on(mut self, mut nat: AdminMut<'_>, now: Duration) -> Option<Self> {
        if nat.flush(&mut self.flush, Tick(now.as_secs() as u32)) {
            return Some(self);
        }
        let _ = self.reply.send(self.flush.ended());
        None
    }
}

#[cfg(test)]
mod tests {
    use weir_nat::{
        Endpoint, Home, Nat, NatConfig, NatShardConfig, Outbound, PageCursor, Protocol, ShardId,
        ShardIndex, SubscriberCursor, subscriber_views,
    };

    use super::*;
    use crate::request::mailbox;

    const SESSIONS: u16 = 3000;
    const HOME: HomeSelector = HomeSelector::Ipv4(0x0ac8_0001);

    fn nat_with_sessions() -> Nat {
        let shard = NatShardConfig {
            id: ShardId(7),
            public: vec!["203.0.113.0/30".parse().unwrap()],
            public6: Vec::new(),
            subscribers_max: 16,
        };
        let mut nat = Nat::new(NatConfig {
            flows_max: 10_000,
            ports_per_subscriber: 8192,
            subscribers: vec!["10.200.0.0/16".parse().unwrap()],
            shards: vec![shard],
            ..NatConfig::default()
        })
        .unwrap();
        for port in 0..SESSIONS {
            let outbound = Outbound {
                home: Home { shard: ShardIndex(0), outer: 0x0ac8_0001, gre_key: None },
                inside: Endpoint::new(0xc0a8_0102, 1024 + port),
                remote: Endpoint::new(0x0101_0101, 53),
                protocol: Protocol::Udp,
                tcp_flags: 0,
            };
            let hash = nat.outbound_hash(&outbound.home, outbound.inside, outbound.protocol);
            nat.outbound(hash, &outbound, Tick(5)).unwrap();
        }
        nat
    }

    /// Returns the turns of the loop until the request is answered.
    fn turns(request_server: &mut RequestServer, nat: &mut Nat) -> usize {
        let mut turns = 1;
        while request_server.serve(nat.admin_mut(), Duration::from_secs(5)) {
            turns += 1;
        }
        turns
    }

    #[test]
    fn a_dump_takes_many_short_turns_and_misses_nothing() {
        let mut nat = nat_with_sessions();
        let (requester, mailbox) = mailbox();
        let mut request_server = RequestServer::new(mailbox);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut ports = Vec::new();
        let mut cursor = PageCursor::default();
        loop {
            let page = Page { cursor, sessions: Vec::with_capacity(1024), has_more: true };
            let filter = SessionFilter::default();
            let page = runtime.block_on(async {
                let asked = requester.ask(|reply| WorkerRequest::Sessions { page, filter, reply });
                let served = async {
                    tokio::task::yield_now().await;
                    assert!(turns(&mut request_server, &mut nat) > 2);
                };
                tokio::join!(asked, served).0.unwrap()
            });
            assert_eq!(page.sessions.capacity(), 1024, "the worker must not allocate");
            ports.extend(page.sessions.iter().filter_map(|it| Some(it.ipv4()?.inside.port)));
            cursor = page.cursor;
            if !page.has_more {
                break;
            }
        }
        ports.sort_unstable();
        assert_eq!(ports, (1024..1024 + SESSIONS).collect::<Vec<_>>());
    }

    #[test]
    fn homes_and_blocks_of_an_address_are_listed_in_many_short_turns() {
        let mut nat = nat_with_sessions();
        let (_requester, mailbox) = mailbox();
        let mut request_server = RequestServer::new(mailbox);
        let (mut cursor, mut parts, mut pages) = (SubscriberCursor::default(), Vec::new(), 0);
        let mut has_more = true;
        while has_more {
            let (reply, mut answer) = oneshot::channel();
            let room = Vec::with_capacity(PARTS_PER_TURN);
            let page = SubscriberPage { cursor, parts: room, has_more: true };
            request_server
                .begin(WorkerRequest::Subscriber { name: HOME, page, reply }, nat.admin_mut());
            turns(&mut request_server, &mut nat);
            let page = answer.try_recv().unwrap();
            assert_eq!(page.parts.capacity(), PARTS_PER_TURN, "the worker must not allocate");
            parts.extend(page.parts);
            (cursor, has_more, pages) = (page.cursor, page.has_more, pages + 1);
        }
        // A position, a home and its blocks.
        assert_eq!(pages, 1 + parts.len() / PARTS_PER_TURN);
        assert_eq!(subscriber_views(parts), nat.admin().subscriber(HOME));
    }

    #[test]
    fn an_abandoned_query_is_dropped_and_an_abandoned_flush_is_not() {
        let mut nat = nat_with_sessions();
        let (_requester, mailbox) = mailbox();
        let mut request_server = RequestServer::new(mailbox);
        let (reply, answer) = oneshot::channel();
        let page = SubscriberPage {
            cursor: SubscriberCursor::default(),
            parts: Vec::with_capacity(1024),
            has_more: true,
        };
        request_server
            .begin(WorkerRequest::Subscriber { name: HOME, page, reply }, nat.admin_mut());
        drop(answer);
        assert_eq!(turns(&mut request_server, &mut nat), 2);
        let (reply, answer) = oneshot::channel();
        request_server.begin(WorkerRequest::Flush { name: HOME, reply }, nat.admin_mut());
        drop(answer);
        turns(&mut request_server, &mut nat);
        assert_eq!(nat.admin().gauges().flows, 0);
    }

    #[test]
    fn homes_are_listed_and_the_worker_does_not_allocate() {
        let mut nat = nat_with_sessions();
        let (_requester, mailbox) = mailbox();
        let mut request_server = RequestServer::new(mailbox);
        let list = |request_server: &mut RequestServer, nat: &mut Nat, shard| {
            let (reply, mut answer) = oneshot::channel();
            let page =
                HomesPage { cursor: 0, homes: Vec::with_capacity(SLOTS_PER_TURN), has_more: true };
            request_server.begin(WorkerRequest::Homes { page, shard, reply }, nat.admin_mut());
            turns(request_server, nat);
            let page = answer.try_recv().unwrap();
            assert_eq!(page.homes.capacity(), SLOTS_PER_TURN);
            page.homes.iter().filter_map(|home| home.home.ipv4()).collect::<Vec<_>>()
        };
        assert_eq!(list(&mut request_server, &mut nat, None), [0x0ac8_0001]);
        assert_eq!(list(&mut request_server, &mut nat, Some(ShardId(7))), [0x0ac8_0001]);
        assert_eq!(list(&mut request_server, &mut nat, Some(ShardId(8))), [0; 0]);
    }

    #[test]
    fn a_dump_in_which_nothing_matches_comes_back_after_a_bounded_number_of_turns() {
        let nat = nat_with_sessions();
        let (reply, mut answer) = oneshot::channel();
        let page = Page {
            cursor: PageCursor::default(),
            sessions: Vec::with_capacity(1024),
            has_more: true,
        };
        let filter = SessionFilter { subscriber: Some(1.into()), ..SessionFilter::default() };
        let dump = Dump { page, filter, turns_left: 2, reply };
        let dump = dump.go_on(nat.admin()).unwrap();
        assert!(dump.go_on(nat.admin()).is_none());
        let page = answer.try_recv().unwrap();
        assert!(page.has_more && page.sessions.is_empty());
        let (reply, _answer) = oneshot::channel();
        let mut dump = Dump { page, filter, turns_left: TURNS_PER_PAGE, reply };
        // The dump goes on where it was.
        let before = dump.page.cursor;
        dump = dump.go_on(nat.admin()).unwrap();
        assert_ne!(dump.page.cursor, before);
    }

    #[test]
    fn a_flush_takes_many_short_turns() {
        let mut nat = nat_with_sessions();
        let (_requester, mailbox) = mailbox();
        let mut request_server = RequestServer::new(mailbox);
        let (reply, mut answer) = oneshot::channel();
        request_server.begin(WorkerRequest::Flush { name: HOME, reply }, nat.admin_mut());
        assert!(turns(&mut request_server, &mut nat) > 12, "a block and a protocol at a time");
        assert_eq!(answer.try_recv(), Ok(usize::from(SESSIONS)));
        assert_eq!(nat.admin().gauges().flows, 0);
    }

    #[test]
    fn an_abandoned_dump_is_dropped() {
        let mut nat = nat_with_sessions();
        let (_requester, mailbox) = mailbox();
        let mut request_server = RequestServer::new(mailbox);
        let (reply, answer) = oneshot::channel();
        let page = Page {
            cursor: PageCursor::default(),
            sessions: Vec::with_capacity(4096),
            has_more: true,
        };
        request_server.begin(
            WorkerRequest::Sessions { page, filter: SessionFilter::default(), reply },
            nat.admin_mut(),
        );
        drop(answer);
        assert_eq!(turns(&mut request_server, &mut nat), 2);
    }
}
