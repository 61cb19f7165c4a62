//! Stations of a link that are resolved in advance, and the next hops of one side: whether they
//! answer, and when to send the next request.
//!
//! Both families share this. `A` is the type of an address: `u32` for IPv4, where requests and
//! answers are those of ARP, `u128` for IPv6, where they are neighbor solicitations and
//! advertisements (RFC 4861). A request by broadcast goes in IPv6 to the solicited-node multicast
//! group of the neighbour.
//!
//! A neighbour gets a request every second until it answers, is confirmed every 20 s also when idle
//! (so that a failover never waits for an answer), and is considered down after three unanswered
//! confirmations. The gateways of a worker in a cluster get requests continuously: a worker that is
//! cut off has to notice it before its homes do. Only an answer to the worker's own request counts:
//! a station that sends requests or announces itself may not receive anything.
//!
//! Neither protocol is authenticated, so a known MAC holds while it answers. A message that names
//! another MAC is a *claim*: a request is sent at once, to the known MAC only. Its answer refuses
//! the claim. Only if three such requests stay unanswered is the address requested by broadcast,
//! and the MAC that answers that is accepted. So a router that takes over an address is used after
//! 750 ms (200 ms in a cluster), and no number of claims moves a gateway that answers. A pinned MAC
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
pub(crate) struct RequestPace {
    /// Interval of confirmations of a neighbour that answers, milliseconds.
    refresh_ms: u64,
    /// Interval of requests to a neighbour that has not answered the last one, milliseconds.
    retry_ms: u64,
}

impl RequestPace {
    /// Keeps an entry fresh.
    pub(crate) const REFRESH: Self = Self { refresh_ms: 20_000, retry_ms: RETRY_MS };
    /// Detects within 200 ms that a neighbour is gone.
    pub(crate) const WATCH: Self = Self { refresh_ms: 50, retry_ms: 50 };

    /// Returns the interval of requests while another MAC claims the address, milliseconds.
    fn claimed_ms(self) -> u64 {
        self.retry_ms.min(CLAIMED_RETRY_MS)
    }
}

/// Result of a message about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeighborOutcome {
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
pub(crate) struct Neighbor<A = u32> {
    address: A,
    pace: RequestPace,
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

impl<A> Neighbor<A> {
    /// Makes a neighbour whose first request is due at once.
    pub(crate) const fn new(address: A, pace: RequestPace) -> Self {
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
    pub(crate) fn pinned(address: A, pace: RequestPace, mac: Mac) -> Self {
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

    /// Handles a station's message about this address; `is_answer`: whether it answers a request of
    /// the worker.
    pub(crate) fn on_message(&mut self, mac: Mac, is_answer: bool, now_ms: u64) -> NeighborOutcome {
        if self.pin.is_some_and(|pin| pin != mac) {
            return NeighborOutcome::Refused(1, mac);
        }
        match self.mac {
            Some(known) if known == mac => match is_answer {
                true => self.answered(mac, now_ms),
                false => NeighborOutcome::Nothing,
            },
            Some(_) if is_answer && self.is_open() => self.answered(mac, now_ms),
            Some(_) => {
                (self.claims, self.claimant) = (self.claims.saturating_add(1), mac);
                self.ask_soon(now_ms);
                NeighborOutcome::Nothing
            }
            None if is_answer => self.answered(mac, now_ms),
            // The station is there; a request shows whether it receives anything.
            None => {
                self.ask_soon(now_ms);
                NeighborOutcome::Nothing
            }
        }
    }

    /// True if another MAC claims the address and the known one does not answer.
    fn is_open(&self) -> bool {
        self.claims > 0 && self.unanswered > RETRIES_MAX
    }

    fn answered(&mut self, mac: Mac, now_ms: u64) -> NeighborOutcome {
        let before = self.mac.replace(mac);
        let former = self.former.replace(mac);
        let claims = std::mem::take(&mut self.claims);
        self.unanswered = 0;
        self.next_request_ms = now_ms + self.pace.refresh_ms;
        match before {
            _ if former.is_some_and(|former| former != mac) => NeighborOutcome::Moved,
            None => NeighborOutcome::Found,
            Some(_) if claims > 0 => NeighborOutcome::Refused(claims, self.claimant),
            Some(_) => NeighborOutcome::Nothing,
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
pub(crate) struct Gateways<A = u32> {
    all: Box<[Neighbor<A>]>,
    /// Headers of packets to the gateways that answer, ready for the data path.
    live: Vec<LinkHeader>,
    /// The header from which they are made.
    header: LinkHeader,
}

impl<A: Copy + PartialEq> Gateways<A> {
    /// Makes the gateways of a side. `header` is that of packets of the family, without a
    /// destination MAC; `pins`: the MACs of the first gateways, which may have no others.
    pub(crate) fn new(
        addresses: impl Iterator<Item = A>,
        pins: &[Mac],
        header: LinkHeader,
    ) -> Self {
        let neighbor = |(index, address): (usize, A)| match pins.get(index) {
            Some(&pin) => Neighbor::pinned(address, RequestPace::REFRESH, pin),
            None => Neighbor::new(address, RequestPace::REFRESH),
        };
        let all: Box<[_]> = addresses.enumerate().map(neighbor).collect();
        let live = Vec::with_capacity(all.len());
        Self { all, live, header }
    }

    pub(crate) fn set_pace(&mut self, pace: RequestPace) {
        self.all.iter_mut().for_each(|gateway| gateway.pace = pace);
    }

    /// Returns the headers to the gateways that answer.
    #[inline(always)]
    pub(crate) fn live(&self) -> &[LinkHeader] {
        &self.live
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

    /// Handles a station's message about an address; ignored unless the address is a gateway's.
    pub(crate) fn on_message(
        &mut self,
        address: A,
        mac: Mac,
        is_answer: bool,
        now_ms: u64,
    ) -> NeighborOutcome {
        let Some(gateway) = self.all.iter_mut().find(|gateway| gateway.address == address) else {
            return NeighborOutcome::Nothing;
        };
        let outcome = gateway.on_message(mac, is_answer, now_ms);
        if matches!(outcome, NeighborOutcome::Found | NeighborOutcome::Moved) {
            self.update_live();
        }
        outcome
    }

    /// Whether the address is that of a gateway that answers at this MAC.
    pub(crate) fn has(&self, address: A, mac: Mac) -> bool {
        self.all.iter().any(|gateway| gateway.address == address && gateway.mac == Some(mac))
    }

    /// Calls `ask` for each address whose request is due, with the MAC to send it to; `None`: by
    /// broadcast.
    pub(crate) fn due(&mut self, now_ms: u64, mut ask: impl FnMut(A, Option<Mac>)) {
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
#[path = "neighbor_tests.rs"]
mod tests;
