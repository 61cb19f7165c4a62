//! Fragments of a datagram to a home: later fragments take the route of the first one.

use weir_nat::{Delivery, Hash, ShardIndex, Translated};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4;

use crate::DropReason;
use crate::downstream::{Downstream, DownstreamStep};
use crate::engine::{Context, Engine};
use crate::flow_key::FlowKey;
use crate::fragment_cache::{DatagramEnds, DatagramKey, Translation};
use crate::rewrite::{self, PacketEnd};

impl<F: Frame> Engine<F> {
    /// Delivers a first fragment and all fragments that waited for it.
    pub(crate) fn first_fragment_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        key: &FlowKey,
        translated: Translated<Delivery>,
        cx: &mut Context<'_, P>,
    ) {
        let datagram = datagram_key(frame.data(), key);
        let home = &translated.to.home;
        let party = self.party_of(home);
        let (translation, dependency) = (Translation::Down(translated), self.nat.dependency());
        let mut early = self.fragments.learn(datagram, party, translation, dependency, cx.now.ms);
        self.deliver(frame, home, fragment_flow(&datagram), cx);
        while let Some(held) = self.fragments.release(&mut early) {
            if let Err(reason) = self.follow_down(held, &translated, &datagram, cx) {
                self.discard(reason);
            }
        }
    }

    pub(crate) fn later_fragment_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Downstream,
        shard: ShardIndex,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let datagram = datagram_key(frame.data(), &packet.key);
        let learned = self.fragments.learned(&datagram);
        if let Some((_, dependency)) = learned {
            self.nat.depend_on(dependency);
        }
        match learned.map(|(translation, _)| translation) {
            Some(Translation::Down(translated)) => {
                self.follow_down(frame, &translated, &datagram, cx)
            }
            Some(Translation::Away) => {
                self.redirect_unknown_down(frame, packet, shard, DropReason::MissRefused, cx)
            }
            // It would be held for a first fragment that goes to another worker.
            _ if packet.step == DownstreamStep::Stray && !self.duties.creates(shard) => {
                Err(DropReason::MissRefused)
            }
            // The first fragment passed earlier on its sender's side, and did not reach a home.
            _ if packet.step == DownstreamStep::Hairpin => Err(DropReason::FragmentTimeout),
            _ if !self.may_remote_take_slow_path(datagram.sender(0).party) => {
                Err(DropReason::SlowPathLimit)
            }
            _ => self.hold_fragment(datagram, frame, cx.now),
        }
    }

    fn follow_down<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        Translated { to: delivery, class, remote }: &Translated<Delivery>,
        datagram: &DatagramKey,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        self.check_hop(frame.data(), &delivery.home, cx)?;
        let bytes = frame.data_mut();
        rewrite::address(bytes, PacketEnd::Destination, delivery.inside.address);
        rewrite::decrement_ttl(bytes);
        if let Some(asked) = remote {
            rewrite::address(bytes, PacketEnd::Source, asked.address);
        }
        self.mark(bytes, *class);
        self.deliver(frame, &delivery.home, fragment_flow(datagram), cx);
        Ok(())
    }
}

/// All fragments of a datagram use the same gateway.
fn fragment_flow(datagram: &DatagramKey) -> Hash {
    Hash(u64::from(datagram.flow()) << 32)
}

/// Returns the key of a fragment's datagram: its destination and identification as the sender wrote
/// them.
pub(crate) fn datagram_key(packet: &[u8], key: &FlowKey) -> DatagramKey {
    let identification = ipv4::parse(packet).map_or(0, |(ip, _, _)| ip.identification.get());
    DatagramKey {
        home: None,
        ends: DatagramEnds::Ipv4 {
            source: key.source.address,
            destination: key.destination.address,
            identification,
            protocol: key.protocol as u8,
        },
    }
}
