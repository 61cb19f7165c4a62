//! Fragments of a home's datagram: later fragments take the route of the first one.

use weir_nat::{Endpoint, Hash, Home, Translated};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4;

use crate::DropReason;
use crate::engine::{Context, Engine, Now};
use crate::flow_key::FlowKey;
use crate::fragment_cache::{DatagramEnds, DatagramKey, FragmentsUp, Translation};
use crate::identification::Fragmented;
use crate::rewrite::{self, PacketEnd};
use crate::upstream::{Upstream, UpstreamStep, destination};

impl<F: Frame> Engine<F> {
    /// Forwards a first fragment and all fragments that waited for it.
    pub(crate) fn first_fragment_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        home: &Home,
        key: &FlowKey,
        Translated { to: public, class, remote }: Translated<Endpoint>,
        cx: &mut Context<'_, P>,
    ) {
        let home = self.nat.identity(home);
        let datagram = datagram_key(frame.data(), &home, key);
        // A duplicate of a first fragment must not split the later fragments between two
        // identifications.
        let destination = remote.map_or(key.destination.address, |remote| remote.address);
        let identification = match self.fragments.translation(&datagram) {
            Some(Translation::Up(known)) if known.public == public.address => known.identification,
            _ => self.identifications.replace(Fragmented {
                public: public.address,
                destination,
                identification: datagram.flow() as u16,
                protocol: key.protocol as u8,
            }),
        };
        let up = FragmentsUp {
            public: public.address,
            destination: remote.map(|remote| remote.address),
            identification,
            class,
        };
        let (party, dependency) = (self.party_of(&home), self.nat.dependency());
        let translation = Translation::Up(up);
        let mut early = self.fragments.learn(datagram, party, translation, dependency, cx.now.ms);
        rewrite::identification(frame.data_mut(), identification);
        let hash = Hash(u64::from(identification) << 32);
        self.forward_up(frame, destination, hash, cx);
        while let Some(held) = self.fragments.release(&mut early) {
            self.follow_up(held, &up, cx);
        }
    }

    pub(crate) fn later_fragment_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let home = self.nat.identity(&packet.home);
        let datagram = datagram_key(frame.data(), &home, &packet.key);
        let learned = self.fragments.learned(&datagram);
        if let Some((_, dependency)) = learned {
            self.nat.depend_on(dependency);
        }
        match learned.map(|(translation, _)| translation) {
            Some(Translation::Up(up)) => {
                self.follow_up(frame, &up, cx);
                Ok(())
            }
            // The home is not checked yet: no mapping was found for it.
            _ if !self.nat.is_subscriber(&home) => Err(DropReason::NotSubscriber),
            Some(Translation::Away) => {
                self.redirect_unknown_up(frame, packet, DropReason::MissRefused, cx)
            }
            // It would be held for a first fragment that goes to another worker.
            _ if packet.step == UpstreamStep::Stray && !self.duties.creates(home.shard) => {
                Err(DropReason::MissRefused)
            }
            _ => self.hold_fragment(datagram, frame, cx.now),
        }
    }

    /// Holds a fragment until its first fragment comes. The party that is charged for it, or the
    /// party that holds the most, may lose another one.
    pub(crate) fn hold_fragment(
        &mut self,
        datagram: DatagramKey,
        frame: F,
        now: Now,
    ) -> Result<(), DropReason> {
        let group = datagram.home.map_or(0, |home| self.nat.group_of(&home));
        let held = self.fragments.hold(datagram, group, frame, now.ms);
        let fallen = held.map_err(|_| DropReason::FragmentLimit)?;
        self.counters.count_drops(DropReason::FragmentLimit, fallen);
        Ok(())
    }

    /// Forwards a later fragment as its first fragment was forwarded.
    fn follow_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        up: &FragmentsUp,
        cx: &mut Context<'_, P>,
    ) {
        let &FragmentsUp { public, destination: elsewhere, identification, class } = up;
        let bytes = frame.data_mut();
        rewrite::address(bytes, PacketEnd::Source, public);
        rewrite::identification(bytes, identification);
        self.mark(bytes, class);
        rewrite::decrement_ttl(bytes);
        if let Some(elsewhere) = elsewhere {
            rewrite::address(bytes, PacketEnd::Destination, elsewhere);
        }
        let to = destination(bytes);
        self.forward_up(frame, to, Hash(u64::from(identification) << 32), cx);
    }
}

/// Returns the key of a fragment's datagram. To be read before the edits, or with the
/// identification that the home sent; `home` is the home's identity.
pub(crate) fn datagram_key(packet: &[u8], home: &Home, key: &FlowKey) -> DatagramKey {
    let identification = ipv4::parse(packet).map_or(0, |(ip, _, _)| ip.identification.get());
    DatagramKey {
        home: Some(*home),
        ends: DatagramEnds::Ipv4 {
            source: key.source.address,
            destination: key.destination.address,
            identification,
            protocol: key.protocol as u8,
        },
    }
}
