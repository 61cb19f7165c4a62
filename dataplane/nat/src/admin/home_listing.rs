//! An operator's questions about homes. A call looks at a bounded number of slots; nothing here is
//! on a packet's path.

use ipnet::Ipv6Net;
use weir_ids::ShardId;

use crate::admin::facet::Admin;
use crate::admin::home_selector::HomeSelector;
use crate::admin::session_view::{
    BlockView, ClaimView, HomeLimits, SubscriberCursor, SubscriberPart, SubscriberView,
    subscriber_views,
};
use crate::endpoint::{Home, ShardIndex};
use crate::ports::port_block::BlockId;
use crate::subscribers::address_owner::HeldAddress;
use crate::subscribers::allowance::GroupAllowance;
use crate::subscribers::subscriber::NO_ADDRESS;

const PARTS_AT_ONCE: usize = 1024;

impl Admin<'_> {
    /// Appends to `out` what the homes with this name hold: by an IPv4 address one home per shard
    /// and, if keys tell homes apart, per key; by IPv6 addresses one home. Looks at `budget`
    /// positions, homes, blocks and slots of claims at most, and at no more than `out` has room
    /// for: it does not allocate. Returns whether there may be more.
    pub fn subscriber_parts(
        self,
        name: HomeSelector,
        cursor: &mut SubscriberCursor,
        budget: usize,
        out: &mut Vec<SubscriberPart>,
    ) -> bool {
        let positions = self.positions_of(name);
        let mut left = budget.min(out.capacity() - out.len());
        while left > 0 && cursor.position < positions {
            left -= 1;
            let Some(slot) = self.slot_with_name(name, cursor.position) else {
                cursor.next_position();
                continue;
            };
            let identity = self.nat.identity(&self.nat.subscribers.get(slot).home());
            if cursor.home != Some(identity) {
                out.push(SubscriberPart::Home(self.home_view(slot)));
                let position = cursor.position;
                let home = Some(identity);
                *cursor = SubscriberCursor { position, home, ..SubscriberCursor::default() };
                continue;
            }
            left -= match cursor.claims {
                None => self.show_blocks(slot, cursor, left, out),
                Some(from) => self.show_claims(&identity, from, cursor, left, out),
            };
        }
        cursor.position < positions
    }

    /// Appends up to `left` blocks of a home and returns their number.
    fn show_blocks(
        self,
        slot: u32,
        cursor: &mut SubscriberCursor,
        left: usize,
        out: &mut Vec<SubscriberPart>,
    ) -> usize {
        let blocks = self.nat.subscribers.blocks(slot).skip(cursor.blocks as usize);
        let (count, shown) = (blocks.len(), blocks.len().min(left));
        let blocks = blocks.take(shown);
        out.extend(blocks.map(|block| SubscriberPart::Block(self.block_view(block))));
        cursor.blocks += shown as u32;
        match (shown == count, self.nat.claims.capacity()) {
            (true, 0) => cursor.next_position(),
            (true, _) => cursor.claims = Some(0),
            (false, _) => {}
        }
        shown
    }

    /// Appends the claims of a home in up to `left` slots from one on, and returns how many slots
    /// it has looked at.
    fn show_claims(
        self,
        home: &Home,
        from: u32,
        cursor: &mut SubscriberCursor,
        left: usize,
        out: &mut Vec<SubscriberPart>,
    ) -> usize {
        let owner = self.nat.owner(home);
        let show = |held, flows| {
            let HeldAddress::Prefix(prefix64) = held else { return };
            let net = Ipv6Net::new((u128::from(prefix64) << 64).into(), 64);
            let prefix = net.expect("64 bits are a length of a prefix");
            out.push(SubscriberPart::Claim(ClaimView { prefix, flows }));
        };
        let until = self.nat.claims.each_of(owner, from, left as u32, show);
        if until == self.nat.claims.capacity() {
            cursor.next_position();
        } else {
            cursor.claims = Some(until);
        }
        (until - from) as usize
    }

    /// Appends the next homes that hold state to `out`, without their blocks and claims; with
    /// `shard`, those of one shard. Looks at `budget` slots at most, and at no more than `out` has
    /// room for: it does not allocate. `cursor` begins at 0. Returns whether there may be more. A
    /// home that is there throughout is shown once.
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
    pub fn subscriber(self, name: impl Into<HomeSelector>) -> Vec<SubscriberView> {
        let name = name.into();
        let (mut cursor, mut parts) = (SubscriberCursor::default(), Vec::new());
        let mut has_more = true;
        while has_more {
            parts.reserve(PARTS_AT_ONCE);
            has_more = self.subscriber_parts(name, &mut cursor, PARTS_AT_ONCE, &mut parts);
        }
        subscriber_views(parts)
    }

    fn home_view(self, slot: u32) -> SubscriberView {
        let home = self.nat.subscribers.get(slot);
        let flows6 = self.nat.subscribers.flows6(slot);
        let group = self.nat.group_of(&home.home());
        let &GroupAllowance { home: allowance, quota_blocks } =
            self.nat.policy.live.allowances.of(group);
        SubscriberView {
            shard: self.nat.shards.id(home.shard),
            home: self.view_of(&home.home()),
            public_address: self
                .nat
                .policy
                .enabled
                .then_some(home.paired_address)
                .filter(|&paired| paired != NO_ADDRESS)
                .map(|paired| self.nat.ports.public_address(paired)),
            blocks: Vec::new(),
            claims: Vec::new(),
            ports_used: home.ports_used.iter().sum(),
            mappings: home.records - flows6,
            flows: home.flows,
            flows6,
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
