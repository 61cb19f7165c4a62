//! Stations of a link that are resolved in advance, and the next hops of one side: whether they
//! answer, and when to send the next request.
//!
//! A neighbour gets a request every second until it answers, is confirmed every 20 s also when idle
//! (so that a failover never waits for ARP), and is considered down after three unanswered
//! confirmations. The gateways of a worker in a cluster get requests continuously: a worker that is
//! cut off has to notice it before its homes do. Only an answer to the worker's own request counts:
//! a station that sends requests or announces itself may not receive anything.
//!
//! ARP is not authenticated, so a known MAC holds while it answers. A message that names another
//! MAC is a *claim*: a request is sent at once, to the known MAC only. Its answer refuses the
//! claim. Only if three such requests stay unanswered is the address requested by broadcast, and
//! the MAC that answers that is accepted. So a router that takes over an address is used after 750
//! ms (200 ms in a cluster), and no number of claims moves a gateway that answers. A pinned MAC
//! never moves.
//!
//! ```text
//!   known --claim--> claimed --the known MAC answers--> known            (claims refused)
//!                       \--3 requests to it unanswered--> open --another answers--> known  (moved)
//!                                                           \--no answer--> down
//! ```

use weir_wire::ethernet::Mac;

use crate::link_header::LinkHeader;

/// Interval of requests to a neighbour that has never answered, or that is down, milliseconds.
const RETRY_MS: u64 = 1_000;
/// Number of unanswered confirmations after which a neighbour is down.
const RETRIES_MAX: u8 = 3;
/// Longest interval of requests to a neighbour whose address another MAC claims, milliseconds.
const CLAIMED_RETRY_MS: u64 = 250;

/// Intervals at which a neighbour gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Interval of confirmations of a neighbour that answers, milliseconds.
    refresh_ms: u64,
    /// Interval of requests to a neighbour that has not answered the last one, milliseconds.
    retry_ms: u64,
}

impl Pace {
    /// Keeps an entry fresh.
    pub(crate) const REFRESH: Self = Self { refresh_ms: 20_000, retry_ms: RETRY_MS };
    /// Detects within 200 ms that a neighbour is gone.
    pub(crate) const WATCH: Self = Self { refresh_ms: 50, retry_ms: 50 };

    /// Returns the interval of requests while another MAC claims the address, milliseconds.
    fn claimed_ms(self) -> u64 {
        self.retry_ms.min(CLAIMED_RETRY_MS)
    }
}

/// Result of an ARP message about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// No change to report.
    Nothing,
    /// The neighbour is reached for the first time, or again.
    Found,
    /// The neighbour is reached at another MAC than before.
    Moved,
    /// The neighbour answered at its known MAC, after so many messages had claimed its address for
    /// another MAC (the last one is given).
    Refused(u32, Mac),
}

/// A station of the link whose MAC address the worker needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbor {
    address: u32,
    pace: Pace,
    /// The only MAC that it may have, if the operator pinned one.
    pin: Option<Mac>,
    mac: Option<Mac>,
    /// Its MAC at its last answer, also if it has been down since.
    former: Option<Mac>,
    next_request_ms: u64,
    last_request_ms: Option<u64>,
    unanswered: u8,
    /// Messages since its last answer that claim its address for another MAC.
    claims: u32,
    /// The MAC of the last claim.
    claimant: Mac,
}

impl Neighbor {
    /// Makes a neighbour whose first request is due at once.
    pub(crate) const fn new(address: u32, pace: Pace) -> Self {
        Self {
            address,
            pace,
            pin: None,
            mac: None,
            former: None,
            next_request_ms: 0,
            last_request_ms: None,
            unanswered: 0,
            claims: 0,
            claimant: Mac::ZERO,
        }
    }

    /// Makes a neighbour that may have only this MAC.
    pub(crate) const fn pinned(address: u32, pace: Pace, mac: Mac) -> Self {
        Self { pin: Some(mac), ..Self::new(address, pace) }
    }

    /// Returns its MAC; `None` if it does not answer.
    pub(crate) fn mac(&self) -> Option<Mac> {
        self.mac
    }

    /// Returns the time of its next request.
    pub(crate) fn next_request_ms(&self) -> u64 {
        self.next_request_ms
    }

    /// Handles a station's ARP message about this address; `is_answer`: whether it answers a
    /// request of the worker.
    pub(crate) fn hear(&mut self, mac: Mac, is_answer: bool, now_ms: u64) -> Heard {
        if self.pin.is_some_and(|pin| pin != mac) {
            return Heard::Refused(1, mac);
        }
        match self.mac {
            Some(known) if known == mac => match is_answer {
                true => self.answered(mac, now_ms),
                false => Heard::Nothing,
            },
            Some(_) if is_answer && self.is_open() => self.answered(mac, now_ms),
            Some(_) => {
                (self.claims, self.claimant) = (self.claims.saturating_add(1), mac);
                self.ask_soon(now_ms);
                Heard::Nothing
            }
            None if is_answer => self.answered(mac, now_ms),
            // The station is there; a request shows whether it receives anything.
            None => {
                self.ask_soon(now_ms);
                Heard::Nothing
            }
        }
    }

    /// True if another MAC claims the address and the known one does not answer.
    fn is_open(&self) -> bool {
        self.claims > 0 && self.unanswered > RETRIES_MAX
    }

    fn answered(&mut self, mac: Mac, now_ms: u64) -> Heard {
        let before = self.mac.replace(mac);
        let former = self.former.replace(mac);
        let claims = std::mem::take(&mut self.claims);
        self.unanswered = 0;
        self.next_request_ms = now_ms + self.pace.refresh_ms;
        match before {
            _ if former.is_some_and(|former| former != mac) => Heard::Moved,
            None => Heard::Found,
            Some(_) if claims > 0 => Heard::Refused(claims, self.claimant),
            Some(_) => Heard::Nothing,
        }
    }

    /// Brings the next request forward, but never closer to the last one than the interval for
    /// claims.
    fn ask_soon(&mut self, now_ms: u64) {
        let gap_ms = self.pace.claimed_ms();
        let earliest_ms = self.last_request_ms.map_or(now_ms, |last| now_ms.max(last + gap_ms));
        self.next_request_ms = self.next_request_ms.min(earliest_ms);
    }

    /// Returns the destination if a request is due: `Some(None)` means broadcast. A neighbour that
    /// left too many requests unanswered loses its MAC.
    pub(crate) fn due(&mut self, now_ms: u64) -> Option<Option<Mac>> {
        if now_ms < self.next_request_ms {
            return None;
        }
        // A station that may have taken over the address gets one request to answer before the
        // neighbour counts as down.
        let is_claimed = self.claims > 0;
        if self.unanswered >= RETRIES_MAX + u8::from(is_claimed) {
            (self.mac, self.claims) = (None, 0);
        }
        self.unanswered = self.unanswered.saturating_add(1);
        self.last_request_ms = Some(now_ms);
        self.next_request_ms = now_ms
            + match self.mac {
                None => RETRY_MS,
                Some(_) if is_claimed => self.pace.claimed_ms(),
                Some(_) => self.pace.retry_ms,
            };
        Some(self.mac.filter(|_| !self.is_open()))
    }
}

/// The gateways of one side.
#[derive(Debug, Default)]
pub(crate) struct Gateways {
    all: Box<[Neighbor]>,
    /// Headers of packets to the gateways that answer, ready for the data path.
    live: Vec<LinkHeader>,
    /// The header from which they are made.
    header: LinkHeader,
}

impl Gateways {
    /// Makes the gateways of a side. `header` is that of IPv4 packets without a destination MAC;
    /// `pins`: the MACs of the first gateways, which may have no others.
    pub(crate) fn new(
        addresses: impl Iterator<Item = u32>,
        pins: &[Mac],
        header: LinkHeader,
    ) -> Self {
        let neighbor = |(place, address): (usize, u32)| match pins.get(place) {
            Some(&pin) => Neighbor::pinned(address, Pace::REFRESH, pin),
            None => Neighbor::new(address, Pace::REFRESH),
        };
        let all: Box<[Neighbor]> = addresses.enumerate().map(neighbor).collect();
        let live = Vec::with_capacity(all.len());
        Self { all, live, header }
    }

    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.all.iter_mut().for_each(|gateway| gateway.pace = pace);
    }

    /// Returns the header that takes a packet of this flow to its gateway; `None` while no gateway
    /// answers.
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

    /// Handles a station's ARP message about an address; ignored unless the address is a gateway's.
    pub(crate) fn hear(&mut self, address: u32, mac: Mac, is_answer: bool, now_ms: u64) -> Heard {
        let Some(gateway) = self.all.iter_mut().find(|gateway| gateway.address == address) else {
            return Heard::Nothing;
        };
        let heard = gateway.hear(mac, is_answer, now_ms);
        if matches!(heard, Heard::Found | Heard::Moved) {
            self.update_live();
        }
        heard
    }

    /// Calls `ask` for each address whose request is due, with the MAC to send it to; `None`: by
    /// broadcast.
    pub(crate) fn due(&mut self, now_ms: u64, mut ask: impl FnMut(u32, Option<Mac>)) {
        let mut has_lost = false;
        for gateway in &mut self.all {
            let had_mac = gateway.mac.is_some();
            let Some(to) = gateway.due(now_ms) else { continue };
            has_lost |= had_mac && gateway.mac.is_none();
            ask(gateway.address, to);
        }
        if has_lost {
            self.update_live();
        }
    }

    /// Replaces the header given to `new`.
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
        let mut gateways = Gateways::new(addresses.into_iter(), &[], header);
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
    fn gateway_is_asked_every_second_until_it_answers_then_every_20_s() {
        let mut gateways = gateways([1]);
        assert_eq!(asked(&mut gateways, 0), [1]);
        assert_eq!(asked(&mut gateways, 999), [0; 0]);
        assert_eq!(asked(&mut gateways, 1000), [1]);
        gateways.hear(1, A, true, 1200);
        assert_eq!(chosen(&gateways, 7), header(A));
        assert_eq!(asked(&mut gateways, 21_199), [0; 0]);
        assert_eq!(asked(&mut gateways, 21_200), [1]);
    }

    #[test]
    fn gateway_is_down_after_three_unanswered_confirmations() {
        let mut gateways = gateways([1]);
        gateways.hear(1, A, true, 0);
        for now_ms in [20_000, 21_000, 22_000] {
            assert_eq!(asked(&mut gateways, now_ms), [1]);
            assert!(gateways.is_up());
        }
        assert_eq!(asked(&mut gateways, 23_000), [1]);
        assert!(!gateways.is_up());
        assert_eq!(chosen(&gateways, 0), None);
        gateways.hear(1, B, true, 23_500);
        assert_eq!(chosen(&gateways, 0), header(B));
    }

    #[test]
    fn a_watched_gateway_is_down_within_200_ms() {
        let mut gateways = paced([1], Pace::WATCH);
        assert_eq!(asked(&mut gateways, 0), [1]);
        assert_eq!(asked(&mut gateways, 999), [0; 0], "a silent gateway is asked once a second");
        gateways.hear(1, A, true, 1_000);
        for now_ms in [1_050, 1_100, 1_150] {
            assert_eq!(asked(&mut gateways, now_ms), [1]);
            assert!(gateways.is_up());
        }
        assert_eq!(asked(&mut gateways, 1_200), [1]);
        assert!(!gateways.is_up());
        assert_eq!(asked(&mut gateways, 2_199), [0; 0]);
        assert_eq!(asked(&mut gateways, 2_200), [1]);
        gateways.hear(1, A, false, 2_300);
        assert!(!gateways.is_up(), "it has announced itself, but not answered a request");
        assert_eq!(asked(&mut gateways, 2_300), [1]);
        gateways.hear(1, A, true, 2_301);
    }

    fn paces() -> [(Pace, u64); 2] {
        [(Pace::REFRESH, 250), (Pace::WATCH, 50)]
    }

    /// Claims against a gateway that was confirmed at 0 with MAC `A`; `answers` are the times at
    /// which it answers. Returns the times and destinations of the requests.
    fn claimed(pace: Pace, answers: &[u64], claims: impl Fn(u64) -> Vec<(Mac, bool)>) -> Claimed {
        let mut gateways = paced([1], pace);
        gateways.due(0, |_, _| {});
        assert_eq!(gateways.hear(1, A, true, 0), Heard::Found);
        let (mut asked, mut heard) = (Vec::new(), Vec::new());
        for now_ms in 0..2_000 {
            for (mac, is_answer) in claims(now_ms) {
                heard.push(gateways.hear(1, mac, is_answer, now_ms));
            }
            if answers.contains(&now_ms) {
                heard.push(gateways.hear(1, A, true, now_ms));
            }
            gateways.due(now_ms, |_, to| asked.push((now_ms, to)));
        }
        heard.retain(|heard| *heard != Heard::Nothing);
        Claimed { asked, heard, chosen: chosen(&gateways, 0) }
    }

    #[derive(Debug)]
    struct Claimed {
        asked: Vec<(u64, Option<Mac>)>,
        heard: Vec<Heard>,
        chosen: Option<LinkHeader>,
    }

    /// Whatever the rate, order and kind of the claims, an answer within the time of two requests
    /// keeps the gateway.
    #[test]
    fn claims_move_nothing_while_the_gateway_answers() {
        for (pace, interval_ms) in paces() {
            for (every_ms, shift_ms) in [(1, 0), (7, 3), (300, 10), (49, 48)] {
                for macs in [[(B, false), (OWN, true)], [(B, true), (B, true)]] {
                    let mut gateways = paced([1], pace);
                    gateways.hear(1, A, true, 0);
                    let (mut answer_at, mut requests, mut refused) = (None, 0, 0);
                    for now_ms in 1..20_000 {
                        if (now_ms + shift_ms) % every_ms == 0 {
                            for (mac, is_answer) in macs {
                                assert_eq!(
                                    gateways.hear(1, mac, is_answer, now_ms),
                                    Heard::Nothing
                                );
                            }
                        }
                        if answer_at == Some(now_ms) {
                            let heard = gateways.hear(1, A, true, now_ms);
                            refused += u64::from(matches!(heard, Heard::Refused(..)));
                            answer_at = None;
                        }
                        gateways.due(now_ms, |_, to| {
                            assert_eq!(to, Some(A), "the request goes to the known MAC only");
                            answer_at = answer_at.or(Some(now_ms + 2 * interval_ms - 5));
                            requests += 1;
                        });
                        assert_eq!(chosen(&gateways, 0), header(A));
                    }
                    assert!(requests <= 20_000 / interval_ms, "claims cause no extra requests");
                    assert!(refused > 0);
                }
            }
        }
    }

    #[test]
    fn a_gateway_that_moved_is_taken_within_a_second_and_within_250_ms_in_a_cluster() {
        for (pace, interval_ms) in paces() {
            // The new router announces itself once at 10 ms, and answers the request sent by
            // broadcast.
            let at = |n: u64| 10.max(if pace == Pace::WATCH { 50 } else { 250 }) + n * interval_ms;
            let taken_ms = at(3) + 5;
            let claims = |now_ms| match now_ms {
                10 => vec![(B, false)],
                now_ms if now_ms == taken_ms => vec![(B, true)],
                _ => vec![],
            };
            let told = claimed(pace, &[], claims);
            let expected = [(at(0), Some(A)), (at(1), Some(A)), (at(2), Some(A)), (at(3), None)];
            assert_eq!(told.asked[..4], expected);
            assert_eq!(told.heard, [Heard::Moved]);
            assert!(taken_ms <= if pace == Pace::WATCH { 250 } else { 1_010 });
        }
    }

    #[test]
    fn an_answer_of_another_mac_before_three_requests_were_missed_is_a_claim() {
        for (pace, _) in paces() {
            let told =
                claimed(pace, &[], |now_ms| if now_ms < 150 { vec![(B, true)] } else { vec![] });
            assert_eq!(told.heard, []);
            assert_eq!(told.chosen, None, "the gateway is down, and no station answered");
        }
    }

    #[test]
    fn pinned_gateway_accepts_no_other_mac_even_while_it_is_down() {
        let header_of = LinkHeader::new(Mac::ZERO, OWN, VLAN, ETHERTYPE_IPV4);
        let mut gateways = Gateways::new([1].into_iter(), &[A], header_of);
        for now_ms in 0..30_000 {
            gateways.due(now_ms, |_, _| {});
            assert_eq!(gateways.hear(1, B, now_ms % 2 == 0, now_ms), Heard::Refused(1, B));
            assert!(!gateways.is_up());
        }
        assert_eq!(gateways.hear(1, A, true, 30_000), Heard::Found);
        assert_eq!(chosen(&gateways, 0), header(A));
        assert_eq!(gateways.hear(1, B, true, 30_001), Heard::Refused(1, B));
        assert_eq!(chosen(&gateways, 0), header(A));
    }

    #[test]
    fn gateway_that_comes_back_at_another_mac_has_moved() {
        let mut gateways = gateways([1]);
        assert_eq!(gateways.hear(1, A, true, 0), Heard::Found);
        for now_ms in [20_000, 21_000, 22_000, 23_000] {
            gateways.due(now_ms, |_, _| {});
        }
        assert!(!gateways.is_up());
        assert_eq!(gateways.hear(1, A, false, 23_100), Heard::Nothing, "not an answer");
        assert!(!gateways.is_up());
        assert_eq!(asked(&mut gateways, 23_250), [1]);
        assert_eq!(gateways.hear(1, B, true, 23_300), Heard::Moved);
        assert_eq!(chosen(&gateways, 0), header(B));
    }

    #[test]
    fn new_link_header_is_used_at_once() {
        let mut gateways = gateways([1]);
        gateways.hear(1, A, true, 0);
        let renamed = LinkHeader::new(Mac::ZERO, B, None, ETHERTYPE_IPV4);
        gateways.set_header(renamed);
        assert_eq!(chosen(&gateways, 0), Some(renamed.to(A)));
    }

    #[test]
    fn flows_spread_over_live_gateways_only() {
        let mut gateways = gateways([1, 2]);
        gateways.hear(2, B, true, 0);
        assert_eq!((chosen(&gateways, 0), chosen(&gateways, 1)), (header(B), header(B)));
        gateways.hear(1, A, true, 0);
        assert_ne!(chosen(&gateways, 0), chosen(&gateways, 1));
        gateways.hear(9, A, true, 0);
        assert_eq!(gateways.live.len(), 2);
    }
}
