//! Flows that rules with log decide on.

use std::sync::Arc;

use weir_nat::*;
use weir_rules::{FlowKind, FlowOrigin, Prefix, RuleFilter, RuleSet};

use crate::world::*;

/// Rules about UDP: homes may begin flows to server 1 and not to server 2, server 3 may send to any
/// home, and server 4 may not. The last one of each side is not logged.
fn load(world: &mut World) {
    let filter = |number: u32, from: FlowOrigin, remote: u32| RuleFilter {
        kinds: FlowKind::new(from, 17).into_iter().collect(),
        remote: Prefix::new(server(remote).address, 32),
        ..RuleFilter::all(number)
    };
    use FlowOrigin::{Home, Internet};
    let filters = [(Home, 1), (Home, 2), (Home, 5), (Internet, 3), (Internet, 4), (Internet, 6)];
    let filters: Vec<_> =
        (0..).zip(filters).map(|(number, (from, remote))| filter(number, from, remote)).collect();
    use RuleAction::{Accept, Drop, Reject};
    let actions = vec![Accept, Reject, Accept, Accept, Drop, Accept];
    let set = RuleSet::new(&filters, actions, Vec::new()).unwrap().with_log(vec![0, 1, 3, 4]);
    drop(world.nat.admin_mut().swap_rules(Box::new(ActiveRules::new(Arc::new(set)))));
}

/// Returns the inside and the remote endpoint of a flow of IPv4.
fn ends(flow: &LoggedFlow) -> (Endpoint, Endpoint) {
    let FlowEnds::Ipv4 { inside, remote } = flow.ends else { panic!("{flow:?} is of IPv4") };
    (inside, remote)
}

fn logged(world: &mut World) -> (Vec<(u32, FlowOrigin, Endpoint)>, u64) {
    let mut flows = Vec::with_capacity(RULE_LOG_MAX);
    let lost = world.nat.admin_mut().take_rule_log(&mut flows);
    for flow in &flows {
        let subscriber = LoggedSubscriber::Address { address: home(1).outer.into(), gre_key: None };
        assert_eq!((flow.protocol, flow.subscriber), (Protocol::Udp, subscriber));
        assert_eq!(ends(flow).0, inside(0));
    }
    (flows.iter().map(|flow| (flow.rule, flow.origin, ends(flow).1)).collect(), lost)
}

#[test]
fn decisions_of_rules_with_log_are_logged_with_their_flow_and_no_others() {
    use FlowOrigin::{Home, Internet};
    let mut world = World::new(config());
    load(&mut world);
    let public = world.udp_out(home(1), inside(0), server(1)).unwrap();
    world.udp_out(home(1), inside(0), server(1)).unwrap();
    assert_eq!(world.udp_out(home(1), inside(0), server(2)), Err(Refusal::RuleReject));
    world.udp_out(home(1), inside(0), server(5)).unwrap();
    world.udp_out(home(1), inside(0), server(7)).unwrap();
    world.udp_back(public, server(3)).unwrap();
    assert_eq!(world.udp_back(public, server(4)), Err(Refusal::RuleDrop));
    world.udp_back(public, server(6)).unwrap();
    let expected = [
        (0, Home, server(1)),
        (1, Home, server(2)),
        (3, Internet, server(3)),
        (4, Internet, server(4)),
    ];
    assert_eq!(logged(&mut world), (expected.to_vec(), 0));
    assert_eq!(logged(&mut world), (vec![], 0));
}

#[test]
fn flows_beyond_the_room_are_counted_and_so_are_those_of_former_rules() {
    let mut world = World::new(config());
    load(&mut world);
    for _ in 0..RULE_LOG_MAX + 5 {
        let _refused = world.udp_out(home(1), inside(0), server(2));
    }
    let (flows, lost) = logged(&mut world);
    assert_eq!((flows.len(), lost), (RULE_LOG_MAX, 5));
    let _refused = world.udp_out(home(1), inside(0), server(2));
    load(&mut world);
    assert_eq!(logged(&mut world), (vec![], 1), "the numbers are those of other rules now");
}

#[test]
fn stranger_that_a_rule_refuses_is_not_logged() {
    let mut world = World::new(config());
    load(&mut world);
    let stranger = Home { outer: address("10.99.0.1"), ..home(1) };
    assert_eq!(world.udp_out(stranger, inside(0), server(2)), Err(Refusal::NotSubscriber));
    assert_eq!(logged(&mut world), (vec![], 0));
}
