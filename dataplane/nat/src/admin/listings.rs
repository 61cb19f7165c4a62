//! An operator's questions to a running worker. Listings look at a bounded number of slots per
//! call; nothing here is on a packet's path.

use weir_flow::SlabId;
use weir_ids::ShardId;

use crate::admin::facet::Admin;
use crate::admin::session_view::{
    BlockView, EndpointRange, HomeLimits, PageCursor, PageStage, SessionFilter, SessionView,
    SubscriberCursor, SubscriberPart, SubscriberView, subscriber_views,
};
use crate::endpoint::{Endpoint, Protocol, ShardIndex};
use crate::ports::port_block::BlockId;
use crate::sessions::mapping::{Mapping, Remote};
use crate::subscribers::allowance::GroupAllowance;
use crate::subscribers::subscriber::NO_ADDRESS;

/// Slots looked at in one slab before the budget is asked again.
const PAGE_STEP: usize = 64;
const PARTS_AT_ONCE: usize = 1024;

impl Admin<'_> {
    /// Appends the next sessions that match to `out`, looking at `budget` slots at most (rounded up
    /// to 64). Returns whether there may be more. A filter with a public endpoint goes through the
    /// index and one slab only.
    pub fn sessions(
        self,
        cursor: &mut PageCursor,
        budget: usize,
        filter: &SessionFilter,
        out: &mut Vec<SessionView>,
    ) -> bool {
        let mut left = budget.div_ceil(PAGE_STEP).max(1);
        while left > 0 && cursor.stage != PageStage::Done {
            match (cursor.stage, filter.public_endpoint()) {
                (PageStage::First, Some(public)) => {
                    self.page_of_public(cursor, public, filter, out)
                }
                _ => self.page_step(cursor, filter, out),
            }
            left -= 1;
        }
        cursor.stage != PageStage::Done
    }

    /// Appends first sessions by index; the cursor is left at the slab that holds the further ones.
    fn page_of_public(
        self,
        cursor: &mut PageCursor,
        public: Endpoint,
        filter: &SessionFilter,
        out: &mut Vec<SessionView>,
    ) {
        cursor.stage = PageStage::Done;
        for protocol in Protocol::ALL {
            let hash = self.nat.inbound_hash(public, protocol);
            let Some(id) = self.nat.find_inbound(hash, public, protocol) else {
                continue;
            };
            let mapping = self.nat.mappings.get(id);
            self.list(mapping, &mapping.first, self.nat.mappings.slab_of(id), filter, out);
            // The three protocols share the port's block, so its lane, so the slab.
            *cursor = PageCursor {
                stage: PageStage::Further,
                slab: self.nat.mappings.slab_of(id).0,
                slot: 0,
            };
        }
    }

    fn page_step(
        self,
        cursor: &mut PageCursor,
        filter: &SessionFilter,
        out: &mut Vec<SessionView>,
    ) {
        let slab = SlabId(cursor.slab);
        let next = if cursor.stage == PageStage::First {
            self.nat.mappings.walk_slab(slab, cursor.slot, PAGE_STEP, |_, mapping| {
                if mapping.kind.is_in_use() && !mapping.kind.is_ipv6() {
                    self.list(mapping, &mapping.first, slab, filter, out);
                }
            })
        } else {
            self.nat.sessions.walk_slab(slab, cursor.slot, PAGE_STEP, |_, session| {
                if !session.is_address() {
                    let mapping = self.nat.mappings.get(session.mapping);
                    self.list(mapping, &session.remote, slab, filter, out);
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
        // Sessions that only this worker has lie in a slab of their own, behind all others.
        let is_last = match (cursor.slab == local, has_local) {
            (true, _) => true,
            (false, true) if filter.public_endpoint().is_some() => {
                cursor.slab = local;
                return;
            }
            (false, true) => false,
            (false, false) => cursor.slab + 1 == local || filter.public_endpoint().is_some(),
        };
        cursor.slab += 1;
        if is_last {
            *cursor = PageCursor {
                stage: match cursor.stage {
                    PageStage::First => PageStage::Further,
                    PageStage::Further | PageStage::Done => PageStage::Done,
                },
                ..PageCursor::default()
            };
        }
    }

    /// Appends a session if it matches and has not run out.
    fn list(
        self,
        mapping: &Mapping,
        remote: &Remote,
        slab: SlabId,
        filter: &SessionFilter,
        out: &mut Vec<SessionView>,
    ) {
        let asked = mapping.asked();
        let is_asked = |range: EndpointRange| asked.is_some_and(|asked| range.has(asked));
        let matches = filter.subscriber.is_none_or(|outer| outer == mapping.outer)
            && filter.inside.is_none_or(|range| range.has(mapping.inside()))
            && filter.public.is_none_or(|range| range.has(mapping.public()))
            && filter.remote.is_none_or(|range| range.has(remote.endpoint()) || is_asked(range))
            && filter.protocol.is_none_or(|protocol| protocol == mapping.protocol);
        let (lane, timeouts) = (self.nat.lanes.get(slab), &self.nat.policy.live.timeouts);
        if !matches || lane.has_run_out(remote, mapping.protocol, timeouts, self.nat.now) {
            return;
        }
        let age_sec = self.nat.now.since(mapping.created);
        let state = remote.state.phase(mapping.protocol).name();
        let is_of_age = filter.age_min_sec.is_none_or(|min| age_sec >= min)
            && filter.age_max_sec.is_none_or(|max| age_sec <= max);
        if !is_of_age || filter.state.is_some_and(|wanted| wanted != state) {
            return;
        }
        out.push(SessionView {
            shard: self.nat.shards.id(mapping.shard),
            outer: mapping.outer,
            gre_key: mapping.gre_key(),
            protocol: mapping.protocol,
            inside: mapping.inside(),
            public: mapping.public(),
            remote: remote.endpoint(),
            asked,
            state,
            age_sec,
            // The copy of a flow that has seen no packet here has been idle for as long as this
            // worker knows it.
            idle_sec: lane.idle_sec(remote.last_seen, self.nat.now).min(age_sec),
            timeout_sec: remote.timeout_sec(mapping.protocol, timeouts),
            class: remote.state.class(),
        });
    }

    /// Appends to `out` what the subscribers with this outer address hold: one per shard and, if
    /// keys tell homes apart, per key. Looks at `budget` positions, homes and blocks at most, and
    /// at no more than `out` has room for: it does not allocate. Returns whether there may be more.
    pub fn subscriber_parts(
        self,
        outer: u32,
        cursor: &mut SubscriberCursor,
        budget: usize,
        out: &mut Vec<SubscriberPart>,
    ) -> bool {
        let positions = self.nat.subscribers.home_positions();
        let mut left = budget.min(out.capacity() - out.len());
        while left > 0 && cursor.position < positions {
            left -= 1;
            let found = self.nat.subscribers.home_at(cursor.position, outer);
            let Some(slot) = found else {
                cursor.next_position();
                continue;
            };
            let identity = self.nat.subscribers.identity(slot);
            if cursor.home != Some(identity) {
                out.push(SubscriberPart::Home(self.home_view(slot)));
                *cursor = SubscriberCursor { home: Some(identity), blocks: 0, ..*cursor };
                continue;
            }
            let blocks = self.nat.subscribers.blocks(slot).skip(cursor.blocks as usize);
            let (count, shown) = (blocks.len(), blocks.len().min(left));
            let blocks = blocks.take(shown);
            out.extend(blocks.map(|block| SubscriberPart::Block(self.block_view(block))));
            left -= shown;
            cursor.blocks += shown as u32;
            if shown == count {
                cursor.next_position();
            }
        }
        cursor.position < positions
    }

    /// Appends the next homes that hold state to `out`, without their blocks; with `shard`, those
    /// of one shard. Looks at `budget` slots at most, and at no more than `out` has room for: it
    /// does not allocate. `cursor` begins at 0. Returns whether there may be more. A home that is
    /// there throughout is shown once.
    pub fn homes(
        self,
        cursor: &mut u32,
        budget: usize,
        shard: Option<ShardId>,
        out: &mut Vec<SubscriberView>,
    ) -> bool {
        let slots = self.nat.subscribers.slots();
        let room = out.capacity() - out.len();
        let end = slots.min(cursor.saturating_add(budget.min(room) as u32));
        for slot in *cursor..end {
            let home = self.nat.subscribers.get(slot);
            let is_wanted = |shard| self.nat.shards.id(home.shard) == shard;
            if home.is_live() && shard.is_none_or(is_wanted) {
                out.push(self.home_view(slot));
            }
        }
        *cursor = end;
        end < slots
    }

    /// Returns the shards that are here and are not being removed, by index.
    #[inline]
    pub fn shards(self) -> impl Iterator<Item = (ShardIndex, ShardId)> {
        let all = self.nat.shards.all();
        all.filter(|(_, _, is_leaving)| !is_leaving).map(|(index, shard, _)| (index, shard.id))
    }

    /// Returns all of [`subscriber_parts`](Self::subscriber_parts) at once; for callers whose
    /// thread carries no packets.
    pub fn subscriber(self, outer: u32) -> Vec<SubscriberView> {
        let (mut cursor, mut parts) = (SubscriberCursor::default(), Vec::new());
        let mut has_more = true;
        while has_more {
            parts.reserve(PARTS_AT_ONCE);
            has_more = self.subscriber_parts(outer, &mut cursor, PARTS_AT_ONCE, &mut parts);
        }
        subscriber_views(parts)
    }

    fn home_view(self, slot: u32) -> SubscriberView {
        let home = self.nat.subscribers.get(slot);
        let group = self.nat.group_of(&home.home());
        let &GroupAllowance { home: allowance, quota_blocks } =
            self.nat.policy.live.allowances.of(group);
        SubscriberView {
            shard: self.nat.shards.id(home.shard),
            outer: home.outer,
            gre_key: home.gre_key(),
            public_address: self
                .nat
                .policy
                .enabled
                .then_some(home.paired_address)
                .filter(|&paired| paired != NO_ADDRESS)
                .map(|paired| self.nat.ports.public_address(paired)),
            blocks: Vec::new(),
            ports_used: home.ports_used.iter().sum(),
            mappings: home.records,
            flows: home.flows,
            sessions: home.sessions,
            blocks_held: home.blocks,
            new_flows_left: self.nat.tokens_at(home, self.nat.now).into(),
            refused_total: self.nat.subscribers.refused_total(slot),
            limits: HomeLimits {
                blocks: if self.nat.policy.enabled { quota_blocks } else { u32::MAX },
                flows: allowance.flows,
                sessions: allowance.sessions,
                new_flows_per_sec: allowance.new_flows_per_sec,
            },
        }
    }

    fn block_view(self, block: BlockId) -> BlockView {
        let (port_first, port_last) = self.nat.ports.port_range(block);
        BlockView {
            public_address: self.nat.ports.public_address(self.nat.ports.address_of(block)),
            port_first,
            port_last,
        }
    }
}

impl SubscriberCursor {
    fn next_position(&mut self) {
        *self = Self { position: self.position + 1, ..Self::default() };
    }
}
