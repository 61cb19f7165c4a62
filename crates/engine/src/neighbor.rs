//! The next hops of one side: who they are, whether they answer, when to ask them again.
//!
//! A gateway is asked every second until it answers, confirmed again every 20 s also when idle (so that a
//! failover never waits for ARP), and considered down after three unanswered confirmations.

use weir_wire::ethernet::Mac;

use crate::link_header::LinkHeader;

/// Between two confirmations of a gateway that answers, milliseconds.
const REFRESH_MS: u64 = 20_000;
/// Between two requests to a gateway that has not answered, milliseconds.
const RETRY_MS: u64 = 1_000;
/// Unanswered confirmations after which a gateway is down.
const RETRIES_MAX: u8 = 3;

#[derive(Clone, Copy, Debug)]
struct Gateway {
    address: u32,
    mac: Option<Mac>,
    next_request_ms: u64,
    unanswered: u8,
}

/// The gateways of one side.
#[derive(Debug, Default)]
pub(crate) struct Gateways {
    all: Box<[Gateway]>,
    /// Headers of packets to the live ones, kept at hand for the data path.
    live: Vec<LinkHeader>,
    /// What they are made of.
    header: LinkHeader,
}

impl Gateways {
    /// `header` is that of IPv4 packets to nobody yet.
    pub(crate) fn new(addresses: impl Iterator<Item = u32>, header: LinkHeader) -> Self {
        let all: Box<[Gateway]> = addresses
            .map(|address| Gateway { address, mac: None, next_request_ms: 0, unanswered: 0 })
            .collect();
        let live = Vec::with_capacity(all.len());
        Self { all, live, header }
    }

    /// The header that takes a packet of this flow to its gateway; `None` while no gateway answers.
    #[inline(always)]
    pub(crate) fn choose(&self, flow: u32) -> Option<&LinkHeader> {
        match self.live.as_slice() {
            [] => None,
            [only] => Some(only),
            live => Some(&live[flow as usize % live.len()]),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.live.is_empty()
    }

    /// What a station said of itself in ARP; ignored unless it is a gateway.
    pub(crate) fn confirm(&mut self, address: u32, mac: Mac, now_ms: u64) {
        let Some(gateway) = self.all.iter_mut().find(|gateway| gateway.address == address) else {
            return;
        };
        gateway.unanswered = 0;
        gateway.next_request_ms = now_ms + REFRESH_MS;
        if gateway.mac != Some(mac) {
            gateway.mac = Some(mac);
            self.update_live();
        }
    }

    /// The addresses that are to be asked now.
    pub(crate) fn due(&mut self, now_ms: u64, mut ask: impl FnMut(u32, Option<Mac>)) {
        let mut has_lost = false;
        for gateway in &mut self.all {
            if now_ms < gateway.next_request_ms {
                continue;
            }
            if gateway.mac.is_some() && gateway.unanswered >= RETRIES_MAX {
                gateway.mac = None;
                has_lost = true;
            }
            gateway.unanswered = gateway.unanswered.saturating_add(1);
            gateway.next_request_ms = now_ms + RETRY_MS;
            ask(gateway.address, gateway.mac);
        }
        if has_lost {
            self.update_live();
        }
    }

    /// Another header than the one they were built with.
    pub(crate) fn set_header(&mut self, header: LinkHeader) {
        self.header = header;
        self.update_live();
    }

    fn update_live(&mut self) {
        self.live.clear();
        let macs = self.all.iter().filter_map(|gateway| gateway.mac);
        self.live.extend(macs.map(|mac| self.header.to(mac)));
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::ethernet::ETHERTYPE_IPV4;

    use super::*;

    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const OWN: Mac = Mac([2, 0, 0, 0, 0, 9]);
    const VLAN: Option<u16> = Some(7);

    fn gateways<const N: usize>(addresses: [u32; N]) -> Gateways {
        Gateways::new(addresses.into_iter(), LinkHeader::new(Mac::ZERO, OWN, VLAN, ETHERTYPE_IPV4))
    }

    fn chosen(gateways: &Gateways, flow: u32) -> Option<LinkHeader> {
        gateways.choose(flow).copied()
    }

    fn header(to: Mac) -> Option<LinkHeader> {
        Some(LinkHeader::new(to, OWN, VLAN, ETHERTYPE_IPV4))
    }

    fn asked(gateways: &mut Gateways, now_ms: u64) -> Vec<u32> {
        let mut asked = Vec::new();
        gateways.due(now_ms, |address, _| asked.push(address));
        asked
    }

    #[test]
    fn asks_every_second_until_answered_then_every_twenty() {
        let mut gateways = gateways([1]);
        assert_eq!(asked(&mut gateways, 0), [1]);
        assert_eq!(asked(&mut gateways, 999), [0; 0]);
        assert_eq!(asked(&mut gateways, 1000), [1]);
        gateways.confirm(1, A, 1200);
        assert_eq!(chosen(&gateways, 7), header(A));
        assert_eq!(asked(&mut gateways, 21_199), [0; 0]);
        assert_eq!(asked(&mut gateways, 21_200), [1]);
    }

    #[test]
    fn down_after_three_silent_confirmations_and_up_again() {
        let mut gateways = gateways([1]);
        gateways.confirm(1, A, 0);
        for now_ms in [20_000, 21_000, 22_000] {
            assert_eq!(asked(&mut gateways, now_ms), [1]);
            assert!(gateways.is_up());
        }
        assert_eq!(asked(&mut gateways, 23_000), [1]);
        assert!(!gateways.is_up());
        assert_eq!(chosen(&gateways, 0), None);
        gateways.confirm(1, B, 23_500);
        assert_eq!(chosen(&gateways, 0), header(B));
    }

    #[test]
    fn a_new_header_counts_at_once() {
        let mut gateways = gateways([1]);
        gateways.confirm(1, A, 0);
        let renamed = LinkHeader::new(Mac::ZERO, B, None, ETHERTYPE_IPV4);
        gateways.set_header(renamed);
        assert_eq!(chosen(&gateways, 0), Some(renamed.to(A)));
    }

    #[test]
    fn flows_spread_over_live_gateways_only() {
        let mut gateways = gateways([1, 2]);
        gateways.confirm(2, B, 0);
        assert_eq!((chosen(&gateways, 0), chosen(&gateways, 1)), (header(B), header(B)));
        gateways.confirm(1, A, 0);
        assert_ne!(chosen(&gateways, 0), chosen(&gateways, 1));
        gateways.confirm(9, A, 0);
        assert_eq!(gateways.live.len(), 2);
    }
}
