//! ICMP errors about translated packets on their way through, in both directions.

use weir_nat::{Hash, ShardIndex, Translated};
use weir_wire::frame::{Frame, Pool};

use crate::DropReason;
use crate::downstream::Downstream;
use crate::engine::{Context, Engine};
use crate::icmp_error::Quote;
use crate::identification::Fragmented;
use crate::rewrite::{self, PacketEnd};
use crate::upstream::Upstream;

impl<F: Frame> Engine<F> {
    /// Translates an ICMP error from a home about a packet that it received: the quoted destination
    /// becomes the public endpoint again.
    pub(crate) fn icmp_error_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Upstream { home, key, header_len, .. } = packet;
        let (_, icmp) = frame.data_mut().split_at_mut(*header_len);
        let quote = Quote::read(icmp, PacketEnd::Destination)?;
        let known = self.nat.peek_outbound(home, quote.destination, quote.source, quote.protocol);
        if self.nat.has_bypass() && self.bypasses_quoted_by_home(home, &quote) {
            rewrite::decrement_ttl(frame.data_mut());
            self.forward_up(frame, key.destination.address, packet.hash, cx);
            return Ok(());
        }
        let Some(Translated { to: public, remote, .. }) = known else {
            return self.redirect_unknown_up(frame, packet, DropReason::IcmpErrorUnmatched, cx);
        };
        quote
            .rewrite(icmp, PacketEnd::Destination, public)
            .ok_or(DropReason::TransportMalformed)?;
        let mut destination = key.destination.address;
        if let Some(remote) = remote {
            quote.rewrite(icmp, PacketEnd::Source, remote).ok_or(DropReason::TransportMalformed)?;
            // The home answers the sender that it knows; that one is elsewhere.
            if destination == quote.source.address {
                rewrite::address(frame.data_mut(), PacketEnd::Destination, remote.address);
                destination = remote.address;
            }
        }
        // RFC 5508 REQ-5: whichever inside host or router sends it, the NAT's public address is its
        // source.
        rewrite::address(frame.data_mut(), PacketEnd::Source, public.address);
        rewrite::decrement_ttl(frame.data_mut());
        self.forward_up(frame, destination, Hash(u64::from(public.port) << 32), cx);
        Ok(())
    }

    /// Translates an ICMP error from the internet about a home's packet: the quoted source becomes
    /// the home's own again.
    pub(crate) fn icmp_error_down<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Downstream,
        shard: ShardIndex,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Downstream { header_len, key, .. } = packet;
        let (_, icmp) = frame.data_mut().split_at_mut(*header_len);
        let quote = Quote::read(icmp, PacketEnd::Source)?;
        // Any host may send the error (RFC 4787 REQ-12a), but its destination has to be the address
        // that it quotes.
        if quote.source.address != key.destination.address {
            return Err(DropReason::IcmpErrorUnmatched);
        }
        let known = self.nat.peek_inbound(quote.source, quote.destination, quote.protocol);
        let Some(Translated { to: delivery, remote: asked, .. }) = known else {
            let unknown = DropReason::IcmpErrorUnmatched;
            return self.redirect_unknown_down(frame, packet, shard, unknown, cx);
        };
        self.note_downstream(packet, shard);
        quote
            .rewrite(icmp, PacketEnd::Source, delivery.inside)
            .ok_or(DropReason::TransportMalformed)?;
        let own = quote.identification.and_then(|identification| {
            self.identifications.own(&Fragmented {
                public: quote.source.address,
                destination: quote.destination.address,
                identification,
                protocol: quote.protocol as u8,
            })
        });
        if let Some(own) = own {
            quote.rewrite_identification(icmp, own).ok_or(DropReason::TransportMalformed)?;
        }
        if let Some(asked) = asked {
            quote
                .rewrite(icmp, PacketEnd::Destination, asked)
                .ok_or(DropReason::TransportMalformed)?;
        }
        self.check_hop(frame.data(), &delivery.home, cx)?;
        if let Some(asked) = asked.filter(|_| key.source.address == quote.destination.address) {
            // The host that answers is the one that the home knows by another address.
            rewrite::address(frame.data_mut(), PacketEnd::Source, asked.address);
        }
        rewrite::address(frame.data_mut(), PacketEnd::Destination, delivery.inside.address);
        rewrite::decrement_ttl(frame.data_mut());
        self.deliver(frame, &delivery.home, Hash(u64::from(delivery.inside.port) << 32), cx);
        Ok(())
    }
}
