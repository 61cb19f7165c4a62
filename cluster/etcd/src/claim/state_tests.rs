use super::*;

const TTL: Duration = Duration::from_secs(10);
const MARGIN: Duration = Duration::from_secs(3);
const MS: Duration = Duration::from_millis(1);
const LEASE: LeaseId = LeaseId(7);

fn state(start: Instant) -> ClaimState {
    let back_off = BackOff::new(100 * MS, TTL / 8, 1);
    ClaimState::new(MARGIN, Duration::from_secs(1), back_off, start)
}

fn granted(sent_at: Instant) -> ClaimAnswer {
    ClaimAnswer::Granted { lease: LEASE, ttl: TTL, sent_at }
}

/// Returns a state that holds its key since `start`.
fn holding(start: Instant) -> ClaimState {
    let mut state = state(start);
    assert_eq!(state.step(start), ClaimStep::Ask(ClaimRequest::Grant));
    assert_eq!(state.answer(granted(start), start), [ClaimEvent::Connected]);
    assert_eq!(state.step(start), ClaimStep::Ask(ClaimRequest::Claim(LEASE)));
    let create_revision = Revision(5);
    let events = state.answer(ClaimAnswer::Mine { create_revision }, start);
    assert_eq!(events, [ClaimEvent::Held { create_revision }]);
    state
}

#[test]
fn a_lease_is_renewed_four_times_in_its_ttl_and_the_key_read_each_time() {
    let start = Instant::now();
    let mut state = holding(start);
    let mut now = start;
    for _ in 0..10 {
        assert_eq!(state.step(now), ClaimStep::Wait(now + TTL / 4));
        now += TTL / 4;
        assert_eq!(state.step(now), ClaimStep::Ask(ClaimRequest::KeepAlive(LEASE)));
        assert_eq!(state.answer(ClaimAnswer::KeptAlive { sent_at: now }, now), []);
        assert_eq!(state.step(now), ClaimStep::Ask(ClaimRequest::Claim(LEASE)));
        assert_eq!(state.answer(ClaimAnswer::Mine { create_revision: Revision(5) }, now), []);
        let held = state.held().unwrap();
        assert_eq!((held.create_revision, held.lease), (Revision(5), LEASE));
        assert_eq!(held.valid_until, now + TTL - MARGIN);
    }
}

#[test]
fn the_time_of_a_lease_counts_from_when_its_renewal_was_sent() {
    let start = Instant::now();
    let mut state = holding(start);
    state.answer(ClaimAnswer::KeptAlive { sent_at: start + 2500 * MS }, start + 4500 * MS);
    assert_eq!(state.expiry(), Some(start + 2500 * MS + TTL - MARGIN));
}

#[test]
fn without_answers_the_key_is_given_up_a_margin_before_the_lease_ends() {
    let start = Instant::now();
    let mut state = holding(start);
    let mut now = start + TTL / 4;
    let mut events = Vec::new();
    while now < start + TTL {
        match state.step(now) {
            ClaimStep::Ask(_) => events.extend(state.answer(ClaimAnswer::Silence, now)),
            ClaimStep::Wait(until) => {
                assert!(until > now);
                now = until.min(state.expiry().unwrap_or(until));
                events.extend(state.tick(now));
                if events.contains(&ClaimEvent::Expired) {
                    break;
                }
            }
        }
    }
    assert_eq!(events, [ClaimEvent::Lost { since: start }, ClaimEvent::Expired]);
    assert_eq!(now, start + TTL - MARGIN);
    assert_eq!(state.held(), None);
}

#[test]
fn attempts_go_on_within_a_quarter_of_the_lease() {
    let start = Instant::now();
    let mut state = holding(start);
    let mut now = start + TTL / 4;
    for _ in 0..50 {
        state.answer(ClaimAnswer::Silence, now);
        let ClaimStep::Wait(until) = state.step(now) else { panic!("no wait after a failure") };
        assert!(until > now && until <= now + TTL / 8);
        now = until;
    }
}

#[test]
fn a_lease_that_outlived_its_time_is_kept_with_its_key() {
    let start = Instant::now();
    let mut state = holding(start);
    assert_eq!(state.tick(start + TTL), [ClaimEvent::Expired]);
    let late = start + 2 * TTL;
    assert_eq!(state.step(late), ClaimStep::Ask(ClaimRequest::KeepAlive(LEASE)));
    assert_eq!(state.answer(ClaimAnswer::KeptAlive { sent_at: late }, late), []);
    assert_eq!(state.held(), None);
    assert_eq!(state.step(late), ClaimStep::Ask(ClaimRequest::Claim(LEASE)));
    let create_revision = Revision(5);
    assert_eq!(
        state.answer(ClaimAnswer::Mine { create_revision }, late),
        [ClaimEvent::Held { create_revision }]
    );
}

#[test]
fn a_lost_lease_is_reported_once_and_a_new_one_requested() {
    let start = Instant::now();
    let mut state = holding(start);
    let now = start + TTL / 4;
    assert_eq!(state.answer(ClaimAnswer::NoSuchLease, now), [ClaimEvent::Expired]);
    assert_eq!(state.tick(start + 2 * TTL), []);
    assert_eq!(state.step(now), ClaimStep::Ask(ClaimRequest::Grant));
}

#[test]
fn an_answer_after_the_end_of_the_lease_is_not_acted_on() {
    let start = Instant::now();
    let mut state = state(start);
    state.answer(granted(start), start);
    let late = start + TTL;
    let events = state.answer(ClaimAnswer::Mine { create_revision: Revision(5) }, late);
    assert_eq!(events, [ClaimEvent::Expired]);
    assert_eq!(state.held(), None);
    assert_eq!(state.step(late), ClaimStep::Ask(ClaimRequest::KeepAlive(LEASE)));
}

#[test]
fn another_holder_is_reported_once_and_its_key_read_repeatedly() {
    let start = Instant::now();
    let mut state = state(start);
    state.answer(granted(start), start);
    let other = || ClaimAnswer::Other { boot_id: "b2".to_owned() };
    assert_eq!(
        state.answer(other(), start),
        [ClaimEvent::HeldByOther { boot_id: "b2".to_owned() }]
    );
    let ClaimStep::Wait(until) = state.step(start) else { panic!("no wait") };
    assert!(until > start && until <= start + Duration::from_secs(1));
    assert_eq!(state.step(until), ClaimStep::Ask(ClaimRequest::Claim(LEASE)));
    assert_eq!(state.answer(other(), until), []);
    let create_revision = Revision(9);
    assert_eq!(
        state.answer(ClaimAnswer::Mine { create_revision }, until),
        [ClaimEvent::Held { create_revision }]
    );
}

#[test]
fn the_loss_of_a_key_is_reported_even_if_it_is_held_again_at_once() {
    let start = Instant::now();
    let mut state = holding(start);
    let create_revision = Revision(8);
    assert_eq!(
        state.answer(ClaimAnswer::Mine { create_revision }, start),
        [ClaimEvent::TakenAway, ClaimEvent::Held { create_revision }]
    );
}

#[test]
fn a_changed_value_is_claimed_at_once() {
    let start = Instant::now();
    let mut state = holding(start);
    let now = start + 10 * MS;
    state.claim_now(now);
    assert_eq!(state.step(now), ClaimStep::Ask(ClaimRequest::Claim(LEASE)));
}

#[test]
fn a_refusal_counts_as_contact_and_delays_the_next_attempt() {
    let start = Instant::now();
    let mut state = state(start);
    assert_eq!(state.answer(ClaimAnswer::Refused, start), [ClaimEvent::Connected]);
    assert!(matches!(state.step(start), ClaimStep::Wait(_)));
}
