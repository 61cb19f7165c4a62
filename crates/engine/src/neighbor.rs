//! Stations of a link that are resolved ahead, and the next hops of one side: whether they answer, when to ask them again.
//!
//! A neighbour is asked every second until it answers, confirmed again every 20 s also when idle (so that a
//! failover never waits for ARP), and considered down after three unanswered confirmations. The gateways of a worker in a
//! cluster are asked all the time: one that is cut off has to notice before its homes do. Only an answer counts: who asks
//! us may not hear us.

use weir_wire::ethernet::Mac;

use crate::link_header::LinkHeader;

/// Between two requests to a neighbour that has never answered, or that is down, milliseconds.
const RETRY_MS: u64 = 1_000;
/// Unanswered confirmations after which a neighbour is down.
const RETRIES_MAX: u8 = 3;

/// How often a neighbour is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Between two confirmations of one that answers, milliseconds.
    refresh_ms: u64,
    /// Between two requests to one that has just not answered, milliseconds.
    retry_ms: u64,
}

impl Pace {
    /// To keep an entry fresh.
    pub(crate) const REFRESH: Self = Self { refresh_ms: 20_000, retry_ms: RETRY_MS };
    /// To notice within 200 ms that it is gone.
    pub(crate) const WATCH: Self = Self { refresh_ms: 50, retry_ms: 50 };
}

/// A station of the link whose MAC address is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbor {
    address: u32,
    pace: Pace,
    mac: Option<Mac>,
    next_request_ms: u64,
    unanswered: u8,
}

impl Neighbor {
    /// One that is to be asked at once.
    pub(crate) const fn new(address: u32, pace: Pace) -> Self {
        Self { address, pace, mac: None, next_request_ms: 0, unanswered: 0 }
    }

    /// None: it does not answer.
    pub(crate) fn mac(&self) -> Option<Mac> {
        self.mac
    }

    /// When it is to be asked next.
    pub(crate) fn next_request_ms(&self) -> u64 {
        self.next_request_ms
    }

    /// What it said of itself, in an answer to us or not. True if that is another MAC than the one that is known.
    pub(crate) fn confirm(&mut self, mac: Mac, is_answer: bool, now_ms: u64) -> bool {
        if self.pace == Pace::WATCH && !is_answer {
            // It is there; whether it hears us is to be asked.
            let was_down = self.mac.is_none();
            self.next_request_ms = if was_down { now_ms } else { self.next_request_ms };
            return !was_down && self.mac.replace(mac) != Some(mac);
        }
        self.unanswered = 0;
        self.next_request_ms = now_ms + self.pace.refresh_ms;
        self.mac.replace(mac) != Some(mac)
    }

    /// Whether it is to be asked now. One that was silent too often has no MAC any more.
    pub(crate) fn is_due(&mut self, now_ms: u64) -> bool {
        if now_ms < self.next_request_ms {
            return false;
        }
        if self.unanswered >= RETRIES_MAX {
            self.mac = None;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        self.next_request_ms =
            now_ms + if self.mac.is_some() { self.pace.retry_ms } else { RETRY_MS };
        true
    }
}

/// The gateways of one side.
#[derive(Debug, Default)]
pub(crate) struct Gateways {
    all: Box<[Neighbor]>,
    /// Headers of packets to the live ones, kept at hand for the data path.
    live: Vec<LinkHeader>,
    /// What they are made of.
    header: LinkHeader,
}

impl Gateways {
    /// `header` is that of IPv4 packets to nobody yet.
    pub(crate) fn new(addresses: impl Iterator<Item = u32>, header: LinkHeader) -> Self {
        let all: Box<[Neighbor]> =
            addresses.map(|address| Neighbor::new(address, Pace::REFRESH)).collect();
        let live = Vec::with_capacity(all.len());
        Self { all, live, header }
    }

    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.all.iter_mut().for_each(|gateway| gateway.pace = pace);
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
    pub(crate) fn confirm(&mut self, address: u32, mac: Mac, is_answer: bool, now_ms: u64) {
        let Some(gateway) = self.all.iter_mut().find(|gateway| gateway.address == address) else {
            return;
        };
        if gateway.confirm(mac, is_answer, now_ms) {
            self.update_live();
        }
    }

    /// The addresses that are to be asked now.
    pub(crate) fn due(&mut self, now_ms: u64, mut ask: impl FnMut(u32, Option<Mac>)) {
        let mut has_lost = false;
        for gateway in &mut self.all {
            let had_mac = gateway.mac.is_some();
            if !gateway.is_due(now_ms) {
                continue;
            }
            has_lost |= had_mac && gateway.mac.is_none();
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
        paced(addresses, Pace::REFRESH)
    }

    fn paced<const N: usize>(addresses: [u32; N], pace: Pace) -> Gateways {
        let header = LinkHeader::new(Mac::ZERO, OWN, VLAN, ETHERTYPE_IPV4);
        let mut gateways = Gateways::new(addresses.into_iter(), header);
        gateways.set_pace(pace);
        gateways
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
        gateways.confirm(1, A, true, 1200);
        assert_eq!(chosen(&gateways, 7), header(A));
        assert_eq!(asked(&mut gateways, 21_199), [0; 0]);
        assert_eq!(asked(&mut gateways, 21_200), [1]);
    }

    #[test]
    fn down_after_three_silent_confirmations_and_up_again() {
        let mut gateways = gateways([1]);
        gateways.confirm(1, A, true, 0);
        for now_ms in [20_000, 21_000, 22_000] {
            assert_eq!(asked(&mut gateways, now_ms), [1]);
            assert!(gateways.is_up());
        }
        assert_eq!(asked(&mut gateways, 23_000), [1]);
        assert!(!gateways.is_up());
        assert_eq!(chosen(&gateways, 0), None);
        gateways.confirm(1, B, true, 23_500);
        assert_eq!(chosen(&gateways, 0), header(B));
    }

    #[test]
    fn a_watched_gateway_is_down_within_200_ms() {
        let mut gateways = paced([1], Pace::WATCH);
        assert_eq!(asked(&mut gateways, 0), [1]);
        assert_eq!(asked(&mut gateways, 999), [0; 0], "one that never answered is not flooded");
        gateways.confirm(1, A, true, 1_000);
        for now_ms in [1_050, 1_100, 1_150] {
            assert_eq!(asked(&mut gateways, now_ms), [1]);
            assert!(gateways.is_up());
        }
        assert_eq!(asked(&mut gateways, 1_200), [1]);
        assert!(!gateways.is_up());
        assert_eq!(asked(&mut gateways, 2_199), [0; 0]);
        assert_eq!(asked(&mut gateways, 2_200), [1]);
        gateways.confirm(1, A, false, 2_300);
        assert!(!gateways.is_up(), "it speaks, but does it hear?");
        assert_eq!(asked(&mut gateways, 2_300), [1]);
        gateways.confirm(1, A, true, 2_301);
        gateways.confirm(1, B, false, 2_310);
        assert_eq!(chosen(&gateways, 0), header(B), "another MAC counts at once");
    }

    #[test]
    fn a_new_header_counts_at_once() {
        let mut gateways = gateways([1]);
        gateways.confirm(1, A, true, 0);
        let renamed = LinkHeader::new(Mac::ZERO, B, None, ETHERTYPE_IPV4);
        gateways.set_header(renamed);
        assert_eq!(chosen(&gateways, 0), Some(renamed.to(A)));
    }

    #[test]
    fn flows_spread_over_live_gateways_only() {
        let mut gateways = gateways([1, 2]);
        gateways.confirm(2, B, true, 0);
        assert_eq!((chosen(&gateways, 0), chosen(&gateways, 1)), (header(B), header(B)));
        gateways.confirm(1, A, true, 0);
        assert_ne!(chosen(&gateways, 0), chosen(&gateways, 1));
        gateways.confirm(9, A, true, 0);
        assert_eq!(gateways.live.len(), 2);
    }
}
