//! Duplicate address detection of one of the worker's IPv6 addresses (RFC 4862 section 5.4), and
//! its defence afterwards.
//!
//! ```text
//!   unprobed --probe--> tentative --1 s of silence--> assigned --claim--> assigned  (defended)
//!                        ^     \--claim--> duplicate
//!                        \----------10 s----/
//! ```
//!
//! A *claim* is another station's message that says it has the address: an advertisement, its own
//! probe meanwhile, or a message that comes from the address. An address is used for nothing before
//! it is assigned. An optimistic address (RFC 4429), which is used while it is probed, would not
//! make a failover faster: addresses do not move between workers, so a worker that takes over
//! shards has probed its own when it started.
//!
//! A duplicate is probed again and again, so that a repaired network needs no restart. An assigned
//! address is never given up: a claim may be forged, and homes would notice the loss of the worker.
//! It is defended with one advertisement a second at most, so that two stations that both defend it
//! do not flood the link (RFC 5227 section 2.4 (c) says the same of IPv4).

/// How long an answer to a probe is waited for (RFC 4861 section 10, RETRANS_TIMER), milliseconds.
const PROBE_MS: u64 = 1_000;
/// After how long a duplicate is probed again, milliseconds.
const RETRY_MS: u64 = 10_000;
/// Shortest interval of defences, milliseconds.
const DEFENCE_MS: u64 = 1_000;

/// What the worker has to send about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DetectionStep {
    /// The question whether another station has it.
    Probe,
    /// That the worker has it from now on.
    Announce,
}

/// Result of another station's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimOutcome {
    /// It is known that another station has the address.
    Nothing,
    /// A conflict to report.
    Conflict,
    /// A conflict to report, and the address is to be announced at once.
    Defend,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AddressState {
    #[default]
    Unprobed,
    Tentative {
        until_ms: u64,
    },
    Assigned {
        /// Time from which on it may be defended again.
        defence_ms: u64,
    },
    Duplicate {
        retry_ms: u64,
    },
}

/// The state of one of the worker's addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DuplicateDetection {
    state: AddressState,
}

impl DuplicateDetection {
    /// Whether the address is in use.
    #[inline]
    pub(crate) fn is_assigned(&self) -> bool {
        matches!(self.state, AddressState::Assigned { .. })
    }

    /// Whether another station was found to have the address, at the last probe.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self.state, AddressState::Duplicate { .. })
    }

    /// Returns what is to be sent now.
    pub(crate) fn due(&mut self, now_ms: u64) -> Option<DetectionStep> {
        match self.state {
            AddressState::Unprobed => {}
            AddressState::Duplicate { retry_ms } if now_ms >= retry_ms => {}
            AddressState::Tentative { until_ms } if now_ms >= until_ms => {
                self.state = AddressState::Assigned { defence_ms: now_ms };
                return Some(DetectionStep::Announce);
            }
            _ => return None,
        }
        self.state = AddressState::Tentative { until_ms: now_ms + PROBE_MS };
        Some(DetectionStep::Probe)
    }

    /// Handles the claim of another station.
    pub(crate) fn on_claim(&mut self, now_ms: u64) -> ClaimOutcome {
        match self.state {
            AddressState::Duplicate { .. } => ClaimOutcome::Nothing,
            AddressState::Assigned { defence_ms } if now_ms < defence_ms => ClaimOutcome::Conflict,
            AddressState::Assigned { .. } => {
                self.state = AddressState::Assigned { defence_ms: now_ms + DEFENCE_MS };
                ClaimOutcome::Defend
            }
            // RFC 4862 section 5.4.3: the other station's probe counts too, even before the own.
            AddressState::Unprobed | AddressState::Tentative { .. } => {
                self.state = AddressState::Duplicate { retry_ms: now_ms + RETRY_MS };
                ClaimOutcome::Conflict
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the steps of the milliseconds `from` to `to` (inclusive).
    fn steps(detection: &mut DuplicateDetection, from: u64, to: u64) -> Vec<(u64, DetectionStep)> {
        (from..=to).filter_map(|ms| detection.due(ms).map(|step| (ms, step))).collect()
    }

    #[test]
    fn address_is_assigned_after_a_second_without_a_claim() {
        let mut detection = DuplicateDetection::default();
        assert_eq!(steps(&mut detection, 500, 1_499), [(500, DetectionStep::Probe)]);
        assert!(!detection.is_assigned());
        assert_eq!(steps(&mut detection, 1_500, 90_000), [(1_500, DetectionStep::Announce)]);
        assert!(detection.is_assigned() && !detection.is_duplicate());
    }

    #[test]
    fn duplicate_is_probed_every_ten_seconds_until_the_claims_end() {
        let mut detection = DuplicateDetection::default();
        for round in 0..3 {
            let at = round * 10_500;
            assert_eq!(steps(&mut detection, at, at + 499), [(at, DetectionStep::Probe)]);
            assert_eq!(detection.on_claim(at + 500), ClaimOutcome::Conflict);
            assert_eq!(detection.on_claim(at + 501), ClaimOutcome::Nothing);
            assert!(detection.is_duplicate());
            assert_eq!(steps(&mut detection, at + 500, at + 10_499), []);
        }
        let expected = [(31_500, DetectionStep::Probe), (32_500, DetectionStep::Announce)];
        assert_eq!(steps(&mut detection, 31_500, 50_000), expected);
        assert!(detection.is_assigned() && !detection.is_duplicate());
    }

    #[test]
    fn claim_before_the_first_probe_makes_a_duplicate() {
        let mut detection = DuplicateDetection::default();
        assert_eq!(detection.on_claim(0), ClaimOutcome::Conflict);
        assert!(detection.is_duplicate());
    }

    #[test]
    fn assigned_address_is_kept_and_defended_once_a_second() {
        let mut detection = DuplicateDetection::default();
        steps(&mut detection, 0, 1_000);
        let defences = (1_001..=11_000).filter(|&ms| {
            let outcome = detection.on_claim(ms);
            assert!(outcome != ClaimOutcome::Nothing && detection.is_assigned());
            outcome == ClaimOutcome::Defend
        });
        assert_eq!(
            defences.collect::<Vec<_>>(),
            (0..10).map(|s| 1_001 + s * 1_000).collect::<Vec<_>>()
        );
    }
}
