//! Tests of the neighbours of a link.

use weir_wire::ethernet::ETHERTYPE_IPV4;

use super::*;

const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
const B: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OWN: Mac = Mac([2, 0, 0, 0, 0, 9]);
const VLAN: Option<u16> = Some(7);

fn gateways<const N: usize>(addresses: [u32; N]) -> Gateways {
    paced(addresses, RequestPace::REFRESH)
}

fn paced<const N: usize>(addresses: [u32; N], pace: RequestPace) -> Gateways {
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
    gateways.on_message(1, A, true, 1200);
    assert_eq!(chosen(&gateways, 7), header(A));
    assert_eq!(asked(&mut gateways, 21_199), [0; 0]);
    assert_eq!(asked(&mut gateways, 21_200), [1]);
}

#[test]
fn gateway_is_down_after_three_unanswered_confirmations() {
    let mut gateways = gateways([1]);
    gateways.on_message(1, A, true, 0);
    for now_ms in [20_000, 21_000, 22_000] {
        assert_eq!(asked(&mut gateways, now_ms), [1]);
        assert!(gateways.is_up());
    }
    assert_eq!(asked(&mut gateways, 23_000), [1]);
    assert!(!gateways.is_up());
    assert_eq!(chosen(&gateways, 0), None);
    gateways.on_message(1, B, true, 23_500);
    assert_eq!(chosen(&gateways, 0), header(B));
}

#[test]
fn a_watched_gateway_is_down_within_200_ms() {
    let mut gateways = paced([1], RequestPace::WATCH);
    assert_eq!(asked(&mut gateways, 0), [1]);
    assert_eq!(asked(&mut gateways, 999), [0; 0], "a silent gateway is asked once a second");
    gateways.on_message(1, A, true, 1_000);
    for now_ms in [1_050, 1_100, 1_150] {
        assert_eq!(asked(&mut gateways, now_ms), [1]);
        assert!(gateways.is_up());
    }
    assert_eq!(asked(&mut gateways, 1_200), [1]);
    assert!(!gateways.is_up());
    assert_eq!(asked(&mut gateways, 2_199), [0; 0]);
    assert_eq!(asked(&mut gateways, 2_200), [1]);
    gateways.on_message(1, A, false, 2_300);
    assert!(!gateways.is_up(), "it has announced itself, but not answered a request");
    assert_eq!(asked(&mut gateways, 2_300), [1]);
    gateways.on_message(1, A, true, 2_301);
}

fn paces() -> [(RequestPace, u64); 2] {
    [(RequestPace::REFRESH, 250), (RequestPace::WATCH, 50)]
}

/// Claims against a gateway that was confirmed at 0 with MAC `A`; `answers` are the times at
/// which it answers. Returns the times and destinations of the requests.
fn claimed(
    pace: RequestPace,
    answers: &[u64],
    claims: impl Fn(u64) -> Vec<(Mac, bool)>,
) -> Claimed {
    let mut gateways = paced([1], pace);
    gateways.due(0, |_, _| {});
    assert_eq!(gateways.on_message(1, A, true, 0), NeighborOutcome::Found);
    let (mut asked, mut outcomes) = (Vec::new(), Vec::new());
    for now_ms in 0..2_000 {
        for (mac, is_answer) in claims(now_ms) {
            outcomes.push(gateways.on_message(1, mac, is_answer, now_ms));
        }
        if answers.contains(&now_ms) {
            outcomes.push(gateways.on_message(1, A, true, now_ms));
        }
        gateways.due(now_ms, |_, to| asked.push((now_ms, to)));
    }
    outcomes.retain(|outcome| *outcome != NeighborOutcome::Nothing);
    Claimed { asked, outcomes, chosen: chosen(&gateways, 0) }
}

#[derive(Debug)]
struct Claimed {
    asked: Vec<(u64, Option<Mac>)>,
    outcomes: Vec<NeighborOutcome>,
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
                gateways.on_message(1, A, true, 0);
                let (mut answer_at, mut requests, mut refused) = (None, 0, 0);
                for now_ms in 1..20_000 {
                    if (now_ms + shift_ms) % every_ms == 0 {
                        for (mac, is_answer) in macs {
                            assert_eq!(
                                gateways.on_message(1, mac, is_answer, now_ms),
                                NeighborOutcome::Nothing
                            );
                        }
                    }
                    if answer_at == Some(now_ms) {
                        let outcome = gateways.on_message(1, A, true, now_ms);
                        refused += u64::from(matches!(outcome, NeighborOutcome::Refused(..)));
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
        let at =
            |n: u64| 10.max(if pace == RequestPace::WATCH { 50 } else { 250 }) + n * interval_ms;
        let taken_ms = at(3) + 5;
        let claims = |now_ms| match now_ms {
            10 => vec![(B, false)],
            now_ms if now_ms == taken_ms => vec![(B, true)],
            _ => vec![],
        };
        let result = claimed(pace, &[], claims);
        let expected = [(at(0), Some(A)), (at(1), Some(A)), (at(2), Some(A)), (at(3), None)];
        assert_eq!(result.asked[..4], expected);
        assert_eq!(result.outcomes, [NeighborOutcome::Moved]);
        assert!(taken_ms <= if pace == RequestPace::WATCH { 250 } else { 1_010 });
    }
}

#[test]
fn an_answer_of_another_mac_before_three_requests_were_missed_is_a_claim() {
    for (pace, _) in paces() {
        let result =
            claimed(pace, &[], |now_ms| if now_ms < 150 { vec![(B, true)] } else { vec![] });
        assert_eq!(result.outcomes, []);
        assert_eq!(result.chosen, None, "the gateway is down, and no station answered");
    }
}

#[test]
fn pinned_gateway_accepts_no_other_mac_even_while_it_is_down() {
    let header_of = LinkHeader::new(Mac::ZERO, OWN, VLAN, ETHERTYPE_IPV4);
    let mut gateways = Gateways::new([1].into_iter(), &[A], header_of);
    for now_ms in 0..30_000 {
        gateways.due(now_ms, |_, _| {});
        assert_eq!(
            gateways.on_message(1, B, now_ms % 2 == 0, now_ms),
            NeighborOutcome::Refused(1, B)
        );
        assert!(!gateways.is_up());
    }
    assert_eq!(gateways.on_message(1, A, true, 30_000), NeighborOutcome::Found);
    assert_eq!(chosen(&gateways, 0), header(A));
    assert_eq!(gateways.on_message(1, B, true, 30_001), NeighborOutcome::Refused(1, B));
    assert_eq!(chosen(&gateways, 0), header(A));
}

#[test]
fn gateway_that_comes_back_at_another_mac_has_moved() {
    let mut gateways = gateways([1]);
    assert_eq!(gateways.on_message(1, A, true, 0), NeighborOutcome::Found);
    for now_ms in [20_000, 21_000, 22_000, 23_000] {
        gateways.due(now_ms, |_, _| {});
    }
    assert!(!gateways.is_up());
    assert_eq!(gateways.on_message(1, A, false, 23_100), NeighborOutcome::Nothing, "not an answer");
    assert!(!gateways.is_up());
    assert_eq!(asked(&mut gateways, 23_250), [1]);
    assert_eq!(gateways.on_message(1, B, true, 23_300), NeighborOutcome::Moved);
    assert_eq!(chosen(&gateways, 0), header(B));
}

#[test]
fn new_link_header_is_used_at_once() {
    let mut gateways = gateways([1]);
    gateways.on_message(1, A, true, 0);
    let renamed = LinkHeader::new(Mac::ZERO, B, None, ETHERTYPE_IPV4);
    gateways.set_header(renamed);
    assert_eq!(chosen(&gateways, 0), Some(renamed.to(A)));
}

#[test]
fn flows_spread_over_live_gateways_only() {
    let mut gateways = gateways([1, 2]);
    gateways.on_message(2, B, true, 0);
    assert_eq!((chosen(&gateways, 0), chosen(&gateways, 1)), (header(B), header(B)));
    gateways.on_message(1, A, true, 0);
    assert_ne!(chosen(&gateways, 0), chosen(&gateways, 1));
    gateways.on_message(9, A, true, 0);
    assert_eq!(gateways.live.len(), 2);
}

/// A history of a gateway: its answers, other stations' claims, and time.
fn history<A: Copy + PartialEq>(address: A, other: A, seed: u64) -> Vec<(NeighborOutcome, bool)> {
    let header = LinkHeader::new(Mac::ZERO, OWN, VLAN, ETHERTYPE_IPV4);
    let mut gateways = Gateways::new([address].into_iter(), &[], header);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut seen = Vec::new();
    let mut now_ms = 0;
    for _ in 0..5_000 {
        now_ms += random.u64(0..400);
        let about = if random.u8(0..8) == 0 { other } else { address };
        let mac = if random.u8(0..4) == 0 { B } else { A };
        let outcome = match random.u8(0..3) {
            0 => NeighborOutcome::Nothing,
            _ => gateways.on_message(about, mac, random.bool(), now_ms),
        };
        gateways.due(now_ms, |asked, to| {
            assert!(asked == address && to.is_none_or(|to| to == A || to == B));
        });
        let known = [A, B].map(|mac| gateways.has(address, mac));
        assert_eq!(known.contains(&true), gateways.is_up());
        assert!(!gateways.has(other, A) && !gateways.has(other, B));
        seen.push((outcome, known[0]));
    }
    seen
}

#[test]
fn gateways_of_both_families_follow_one_state_machine() {
    let mut outcomes = Vec::new();
    for seed in 0..20 {
        let seen = history(0x0a01_0002_u32, 0x0a01_0003, seed);
        assert_eq!(history(1_u128 << 127 | 2, 2, seed), seen);
        outcomes.extend(seen.into_iter().map(|(outcome, _)| std::mem::discriminant(&outcome)));
    }
    let kinds: std::collections::HashSet<_> = outcomes.into_iter().collect();
    assert_eq!(kinds.len(), 4, "the histories have all outcomes");
}

#[test]
fn ipv6_gateways_that_differ_in_their_last_bits_are_two() {
    let header_of = LinkHeader::new(Mac::ZERO, OWN, VLAN, ETHERTYPE_IPV4);
    let first = 0x2001_0db8_u128 << 96 | 1;
    let mut gateways = Gateways::new([first, first + 1].into_iter(), &[], header_of);
    gateways.on_message(first + 1, B, true, 0);
    assert!(gateways.has(first + 1, B) && !gateways.has(first, B));
    assert_eq!(gateways.live(), [header_of.to(B)]);
    let mut asked = Vec::new();
    gateways.due(0, |address, to| asked.push((address, to)));
    assert_eq!(asked, [(first, None)]);
}
