use super::*;
use crate::transaction::{Decided, Operation, Transaction};

const VALUE: &[u8] = br#"{"boot_id":"b1","capacity":1}"#;
const OTHER: &[u8] = br#"{"boot_id":"b1","capacity":2}"#;

fn claim(now: Instant) -> Claim {
    let options = EtcdOptions::new("north".parse().unwrap(), Vec::new(), 1);
    Claim::new(&options, &Key::Leader, "b1".into(), Duration::ZERO, VALUE.to_vec(), now)
}

/// Returns the value that a request writes.
fn written(request: Option<EtcdRequest>) -> Vec<u8> {
    let Some(EtcdRequest::Transact(Transaction { then, .. })) = request else {
        panic!("{request:?}")
    };
    let [Operation::Put { value, .. }] = &then[..] else { panic!("{then:?}") };
    value.clone()
}

fn created() -> Result<Got, Failed> {
    let decided = Decided { has_held: true, revision: Revision(5), found: Vec::new() };
    Ok(Got::Answer(EtcdAnswer::Decided(decided)))
}

#[test]
fn a_value_replaced_during_a_write_is_written_next() {
    let now = Instant::now();
    let mut claim = claim(now);
    assert_eq!(claim.next_request(now), Some(EtcdRequest::Grant { ttl_sec: 10 }));
    let granted = EtcdAnswer::Granted { lease: LeaseId(3), ttl_sec: 10 };
    assert_eq!(claim.done(Ok(Got::Answer(granted)), now), None);
    assert_eq!(written(claim.next_request(now)), VALUE);
    claim.replace(OTHER.to_vec(), now);
    assert_eq!(claim.next_request(now), None, "one request is under way at a time");
    assert_eq!(claim.done(created(), now), None);
    assert_eq!(claim.deadline(), Some(now));
    assert_eq!(written(claim.next_request(now)), OTHER);
    assert_eq!(claim.done(created(), now), None);
    assert_eq!(claim.next_request(now), None);
    assert!(claim.deadline().is_some_and(|deadline| deadline > now));
}

#[test]
fn the_end_of_the_lease_is_reported_while_a_renewal_is_under_way() {
    let now = Instant::now();
    let mut claim = claim(now);
    claim.next_request(now);
    let granted = EtcdAnswer::Granted { lease: LeaseId(3), ttl_sec: 10 };
    claim.done(Ok(Got::Answer(granted)), now);
    claim.next_request(now);
    claim.done(created(), now);
    assert_eq!(claim.next_request(now), None);
    let renew_at = claim.deadline().unwrap();
    assert_eq!(claim.next_request(renew_at), Some(EtcdRequest::KeepAlive(LeaseId(3))));
    let expiry = claim.deadline().unwrap();
    assert_eq!(expiry, now + Duration::from_secs(10));
    assert_eq!(claim.next_request(expiry), None);
    let events: Vec<ClaimEvent> = std::iter::from_fn(|| claim.next_event()).collect();
    assert_eq!(events.last(), Some(&ClaimEvent::Expired), "{events:?}");
}
