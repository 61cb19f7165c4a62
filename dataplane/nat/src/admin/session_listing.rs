//! An operator's listings of sessions of both families. A call looks at a bounded number of slots;
//! nothing here is on a packet's path.

use weir_flow::SlabId;

use crate::admin::facet::Admin;
use crate::admin::home_selector::{HomeSelector, HomeView};
use crate::admin::session_filter::{FamilyRange, IpFamily, SessionFilter};
use crate::admin::session_view::{
    PageCursor, PageStage, SessionEnds, SessionEnds4, SessionEnds6, SessionView,
};
use crate::endpoint::{Endpoint, Home, Protocol};
use crate::ipv6::{Endpoint6, FlowKey6};
use crate::look_up::PacketKey;
use crate::sessions::mapping::{Mapping, Remote};

/// Slots looked at in one slab before the budget is asked again.
const PAGE_STEP: usize = 64;

/// A filter, with what one page needs to apply it.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    filter: &'a SessionFilter,
    homes: WantedHomes,
    has_ipv4: bool,
    has_ipv6: bool,
}

/// The homes whose sessions are listed.
#[derive(Clone, Copy)]
enum WantedHomes {
    All,
    /// Those with this outer address, which are no prefixes.
    Outer(u32),
    One(Home),
    None,
}

impl Admin<'_> {
    /// Appends the next sessions that match to `out`, looking at `budget` slots at most (rounded up
    /// to 64). Returns whether there may be more. A filter with a public endpoint goes through the
    /// index and one slab only, one with both endpoints of an IPv6 flow through the index only.
    pub fn sessions(
        self,
        cursor: &mut PageCursor,
        budget: usize,
        filter: &SessionFilter,
        out: &mut Vec<SessionView>,
    ) -> bool {
        let wanted = self.wanted(filter);
        if matches!(wanted.homes, WantedHomes::None) || !(wanted.has_ipv4 || wanted.has_ipv6) {
            cursor.stage = PageStage::Done;
        }
        let mut left = budget.div_ceil(PAGE_STEP).max(1);
        while left > 0 && cursor.stage != PageStage::Done {
            match (cursor.stage, filter.public_endpoint(), filter.ends6()) {
                (PageStage::First, Some(public), _) => {
                    self.page_of_public(cursor, public, &wanted, out);
                }
                (PageStage::First, None, Some(ends)) => {
                    self.page_of_flow6(cursor, ends, &wanted, out)
                }
                _ => self.page_step(cursor, &wanted, out),
            }
            left -= 1;
        }
        cursor.stage != PageStage::Done
    }

    fn wanted<'a>(self, filter: &'a SessionFilter) -> Wanted<'a> {
        let homes = match filter.subscriber {
            None => WantedHomes::All,
            Some(name) => match (self.named_outer(name), name) {
                (Some(outer), _) => outer.map_or(WantedHomes::None, WantedHomes::Outer),
                (None, HomeSelector::Ipv6(net)) => {
                    self.home_with(net).map_or(WantedHomes::None, WantedHomes::One)
                }
                (None, HomeSelector::Ipv4(_)) => WantedHomes::None,
            },
        };
        let [has_ipv4, has_ipv6] = IpFamily::ALL.map(|family| filter.has_family(family));
        Wanted { filter, homes, has_ipv4, has_ipv6 }
    }

    /// Appends first sessions by index; the cursor is left at the slab that holds the further ones.
    fn page_of_public(
        self,
        cursor: &mut PageCursor,
        public: Endpoint,
        wanted: &Wanted<'_>,
        out: &mut Vec<SessionView>,
    ) {
        cursor.stage = PageStage::Done;
        for protocol in Protocol::ALL {
            let hash = self.nat.inbound_hash(public, protocol);
            let Some(id) = self.nat.find_inbound(hash, public, protocol) else {
                continue;
            };
            let mapping = self.nat.mappings.get(id);
            self.list(mapping, &mapping.first, self.nat.mappings.slab_of(id), wanted, out);
            // The three protocols share the port's block, so its lane, so the slab.
            *cursor = PageCursor {
                stage: PageStage::Further,
                slab: self.nat.mappings.slab_of(id).0,
                slot: 0,
            };
        }
    }

    /// Appends the IPv6 flows with these endpoints, one for each protocol, by index.
    fn page_of_flow6(
        self,
        cursor: &mut PageCursor,
        (inside, remote): (Endpoint6, Endpoint6),
        wanted: &Wanted<'_>,
        out: &mut Vec<SessionView>,
    ) {
        cursor.stage = PageStage::Done;
        for protocol in Protocol::ALL {
            let key = FlowKey6::new(inside, remote, protocol, true);
            if let Some(id) = self.nat.find_flow6(key.hash(self.nat), &key) {
                let slab = self.nat.mappings.slab_of(id);
                self.list_flow6(self.nat.mappings.get(id), slab, wanted, out);
            }
        }
    }

    fn page_step(self, cursor: &mut PageCursor, wanted: &Wanted<'_>, out: &mut Vec<SessionView>) {
        let slab = SlabId(cursor.slab);
        let next = if cursor.stage == PageStage::First {
            self.nat.mappings.walk_slab(slab, cursor.slot, PAGE_STEP, |_, mapping| {
                match (mapping.kind.is_in_use(), mapping.kind.is_ipv6()) {
                    (true, false) if wanted.has_ipv4 => {
                        self.list(mapping, &mapping.first, slab, wanted, out);
                    }
                    (true, true) if wanted.has_ipv6 => self.list_flow6(mapping, slab, wanted, out),
                    _ => {}
                }
            })
        } else {
            self.nat.sessions.walk_slab(slab, cursor.slot, PAGE_STEP, |_, session| {
                if !session.is_address() {
                    let mapping = self.nat.mappings.get(session.mapping);
                    self.list(mapping, &session.remote, slab, wanted, out);
                }
            })
        };
        if let Some(slot) = next {
            cursor.slot = slot;
            return;
        }
        cursor.slot = 0;
        let local = self.nat.lanes.local().0;
        let has_local = self.nat.policy.is_replicated && cursor.stage == PageStage::Further;
        let has_public = wanted.filter.public_endpoint().is_some();
        // Sessions that only this worker has lie in a slab of their own, behind all others.
        let is_last = match (cursor.slab == local, has_local) {
            (true, _) => true,
            (false, true) if has_public => {
                cursor.slab = local;
                return;
            }
            (false, true) => false,
            (false, false) => cursor.slab + 1 == local || has_public,
        };
        cursor.slab += 1;
        if is_last {
            *cursor = PageCursor {
                stage: match cursor.stage {
                    PageStage::First if wanted.has_ipv4 => PageStage::Further,
                    _ => PageStage::Done,
                },
                ..PageCursor::default()
            };
        }
    }

    /// Appends a session of IPv4 if it matches and has not run out.
    fn list(
        self,
        mapping: &Mapping,
        remote: &Remote,
        slab: SlabId,
        wanted: &Wanted<'_>,
        out: &mut Vec<SessionView>,
    ) {
        let filter = wanted.filter;
        let ends = SessionEnds4 {
            inside: mapping.inside(),
            public: mapping.public(),
            remote: remote.endpoint(),
            asked: mapping.asked(),
        };
        let is_remote = |range: FamilyRange| {
            range.has4(ends.remote) || ends.asked.is_some_and(|asked| range.has4(asked))
        };
        let is_wanted = match wanted.homes {
            WantedHomes::All => true,
            WantedHomes::Outer(outer) => outer == mapping.outer,
            WantedHomes::One(home) => self.nat.subscribers.is_of(mapping.subscriber, &home),
            WantedHomes::None => false,
        };
        let matches = is_wanted
            && filter.inside.is_none_or(|range| range.has4(ends.inside))
            && filter.public.is_none_or(|range| range.has(ends.public))
            && filter.remote.is_none_or(is_remote);
        if matches {
            let home = self.tunnel_view(mapping.outer, mapping.gre_key());
            let named = (home, SessionEnds::Ipv4(ends));
            out.extend(self.session_view((mapping, remote), slab, filter, named));
        }
    }

    /// Appends an IPv6 flow if it matches and has not run out.
    fn list_flow6(
        self,
        record: &Mapping,
        slab: SlabId,
        wanted: &Wanted<'_>,
        out: &mut Vec<SessionView>,
    ) {
        let filter = wanted.filter;
        let ends = SessionEnds6 { inside: record.inside6(), remote: record.remote6() };
        let is_in_ranges = filter.inside.is_none_or(|range| range.has6(ends.inside))
            && filter.remote.is_none_or(|range| range.has6(ends.remote));
        if !is_in_ranges {
            return;
        }
        let home = self.view_of(&self.nat.subscribers.get(record.subscriber).home());
        let is_wanted = match wanted.homes {
            WantedHomes::All => true,
            WantedHomes::Outer(outer) => {
                !matches!(home, HomeView::Ipv6(_))
                    && self.nat.subscribers.get(record.subscriber).outer == outer
            }
            WantedHomes::One(home) => self.nat.subscribers.is_of(record.subscriber, &home),
            WantedHomes::None => false,
        };
        if is_wanted {
            let named = (home, SessionEnds::Ipv6(ends));
            out.extend(self.session_view((record, &record.first), slab, filter, named));
        }
    }

    /// Returns a session as it is shown, if it has the protocol, age and state that the filter
    /// wants, and has not run out.
    fn session_view(
        self,
        (record, remote): (&Mapping, &Remote),
        slab: SlabId,
        filter: &SessionFilter,
        (home, ends): (HomeView, SessionEnds),
    ) -> Option<SessionView> {
        let protocol = record.protocol;
        let (lane, timeouts) = (self.nat.lanes.get(slab), &self.nat.policy.live.timeouts);
        let age_sec = self.nat.now.since(record.created);
        let state = remote.state.phase(protocol).name();
        let is_wanted = filter.protocol.is_none_or(|wanted| wanted == protocol)
            && filter.age_min_sec.is_none_or(|min| age_sec >= min)
            && filter.age_max_sec.is_none_or(|max| age_sec <= max)
            && filter.state.is_none_or(|wanted| wanted == state);
        if !is_wanted || lane.has_run_out(remote, protocol, timeouts, self.nat.now) {
            return None;
        }
        Some(SessionView {
            shard: self.nat.shards.id(record.shard),
            home,
            protocol,
            ends,
            state,
            age_sec,
            // The copy of a flow that has seen no packet here has been idle for as long as this
            // worker knows it.
            idle_sec: lane.idle_sec(remote.last_seen, self.nat.now).min(age_sec),
            timeout_sec: remote.timeout_sec(protocol, timeouts),
            class: remote.state.class(),
        })
    }
}
