//! IPv6 flows that begin: from a home, where no rule refuses them, and from the internet, where a
//! rule accepts them.

use weir_flow::{Hash, RecordId, SlabId};
use weir_rules::{FlowClass, FlowOrigin, NO_RULE};

use crate::endpoint::{Home, ShardIndex, Tick};
use crate::ipv6::established::{Delivery6, Packet6};
use crate::ipv6::flow_record::Flow6;
use crate::nat::Nat;
use crate::opening::LikelySubscriber;
use crate::packet::Refusal;
use crate::replication::lane::slab_of;
use crate::rules::AcceptingRule;
use crate::sessions::session_state::{SentBy, SessionState};

impl Nat {
    /// Begins the flow of a home's packet, whose flow is not there, and returns the flow's class.
    /// `hash` is the key's. `likely` is what [`prefetch_subscriber`](Self::prefetch_subscriber) has
    /// found of the home, or [`LikelySubscriber::NONE`].
    ///
    /// # Errors
    /// A [`Refusal`]; the tables are then as before.
    pub fn open_outbound6(
        &mut self,
        hash: Hash,
        (home, likely): (&Home, LikelySubscriber),
        packet: &Packet6,
        now: Tick,
    ) -> Result<FlowClass, Refusal> {
        if let Err(refusal) = self.check_opening(packet.protocol, packet.tcp_flags) {
            // A rule may let a segment that opens nothing pass as it is.
            let is_bypassed = self.bypasses6(FlowOrigin::Home, home, packet);
            return Err(if is_bypassed { Refusal::RuleBypass } else { refusal });
        }
        let AcceptingRule { rule, policy } = self.ask6(FlowOrigin::Home, home, packet)?;
        self.open_flow6(hash, (home, likely), packet, (SentBy::Inside, policy.class), now)?;
        self.count_accepted6(rule, FlowOrigin::Home, home, packet);
        Ok(policy.class)
    }

    /// Begins the flow of a packet from the internet, whose flow is not there, if a rule accepts it
    /// and a home has its inside address. RFC 6092 REC-10 and REC-31 let no other unsolicited
    /// packet in.
    ///
    /// # Errors
    /// A [`Refusal`]; the tables are then as before. [`Refusal::NoMapping`]: no rule is about the
    /// packet.
    pub fn open_inbound6(
        &mut self,
        hash: Hash,
        shard: ShardIndex,
        packet: &Packet6,
        now: Tick,
    ) -> Result<Delivery6, Refusal> {
        if !self.has_rules6() {
            return Err(Refusal::NoMapping);
        }
        let holder = self.home_with_inside6(shard, packet.key.inside().address);
        let home = holder.ok_or(Refusal::NoMapping)?;
        if self.bypasses6(FlowOrigin::Internet, &home, packet) {
            return Ok(Delivery6 { home, class: FlowClass::NONE });
        }
        let AcceptingRule { rule, policy } = self.ask6(FlowOrigin::Internet, &home, packet)?;
        if rule == NO_RULE {
            return Err(Refusal::NoMapping);
        }
        self.check_opening(packet.protocol, packet.tcp_flags)?;
        let opener = (SentBy::Remote, policy.class);
        let id = self.open_flow6(hash, (&home, LikelySubscriber::NONE), packet, opener, now)?;
        self.count_accepted6(rule, FlowOrigin::Internet, &home, packet);
        Ok(self.delivery6(id))
    }

    fn open_flow6(
        &mut self,
        hash: Hash,
        (home, likely): (&Home, LikelySubscriber),
        packet: &Packet6,
        (opener, class): (SentBy, FlowClass),
        now: Tick,
    ) -> Result<RecordId, Refusal> {
        self.check_replicas(home.shard)?;
        if !self.has_room(1) {
            return Err(Refusal::TableFull);
        }
        // Without ports any lane that this worker owns will do.
        let lanes = self.ports.lanes(home.shard);
        if lanes == 0 {
            return Err(Refusal::TableFull);
        }
        let slab = slab_of(home.shard, lanes.trailing_zeros());
        let subscriber = match self.is_ready(likely.slot, home, now) {
            true => likely.slot,
            false => self.admit_for_flow6(home, opener, now)?,
        };
        let claim = match self.claim_prefix(home, packet.key.inside().address) {
            Ok(claim) => claim,
            Err(refusal) => {
                self.dismiss_home(subscriber);
                return Err(refusal);
            }
        };
        let flow = Flow6 {
            inside: packet.key.inside(),
            remote: packet.key.remote(),
            protocol: packet.protocol,
            shard: home.shard,
            state: SessionState::opened(packet.protocol, opener, packet.tcp_flags, class),
            last_seen: now,
            created: now,
            flags: self.subscribers.get(subscriber).mapping_flags(),
            subscriber,
            claim,
        };
        let Some(id) = self.write_flow6(hash, slab, &flow) else {
            self.release_claim(claim);
            self.dismiss_home(subscriber);
            return Err(Refusal::TableFull);
        };
        if opener == SentBy::Inside {
            self.note_home_key(subscriber, home);
            self.subscribers.get_mut(subscriber).tokens -= 1;
        }
        self.totals.flow_creates += 1;
        self.totals.flow_creates6 += 1;
        if self.lanes.is_any_marked {
            self.mark_flow6_begun(slab, id);
        }
        self.note_claim_use(claim, slab, now);
        Ok(id)
    }

    /// Whether this is the subscriber of a home, which may begin a flow now.
    #[inline(always)]
    fn is_ready(&self, subscriber: u32, home: &Home, now: Tick) -> bool {
        self.subscribers.try_get(subscriber).is_some_and(|known| {
            known.is_live()
                && known.is(home, self.policy.by_key)
                && known.flows < self.policy.live.allowances.of(known.group).home.flows
                && known.tokens > 0
                && known.refilled == now
        })
    }

    /// Returns the subscriber of a home, which is made one if it may be, and may begin a flow.
    #[inline(never)]
    fn admit_for_flow6(&mut self, home: &Home, opener: SentBy, now: Tick) -> Result<u32, Refusal> {
        let subscriber = self.admit_home(home, None, now)?;
        let may_begin = self.check_share(subscriber).and_then(|()| match opener {
            SentBy::Inside => self.check_tokens(subscriber, now),
            SentBy::Remote => Ok(()),
        });
        if let Err(refusal) = may_begin {
            self.dismiss_home(subscriber);
            return Err(refusal);
        }
        Ok(subscriber)
    }

    /// Fills a record, enters it into the index and counts it; None, and nothing changed, if one of
    /// the two has no room.
    fn write_flow6(&mut self, hash: Hash, slab: SlabId, flow: &Flow6) -> Option<RecordId> {
        let (id, record) = self.mappings.alloc_mut(slab)?;
        record.fill_flow6(flow);
        if self.outbound_index.insert(hash, id.0).is_err() {
            self.mappings.free(id);
            return None;
        }
        self.count_flow6(flow.subscriber);
        Some(id)
    }

    /// Counts a flow that stands in a record now.
    pub(crate) fn count_flow6(&mut self, subscriber: u32) {
        self.flows += 1;
        self.flows6 += 1;
        self.subscribers.count_flow6(subscriber);
    }
}
