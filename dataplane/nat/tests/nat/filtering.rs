//! Filtering: which remotes may send to a mapping.

use weir_nat::*;

use crate::world::*;

fn world(filtering: Filtering) -> World {
    World::new(NatConfig { filtering, ..config() })
}

/// The verdict of the three modes on a packet of each kind of remote, after one packet to
/// 192.0.2.1:53.
#[test]
fn u8_t3_the_three_modes() {
    let remotes = ["192.0.2.1:53", "192.0.2.1:54", "192.0.2.2:53"];
    let table = [
        (Filtering::EndpointIndependent, [true, true, true]),
        (Filtering::AddressDependent, [true, true, false]),
        (Filtering::AddressAndPortDependent, [true, false, false]),
    ];
    for (filtering, verdicts) in table {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let mut world = world(filtering);
            let public = world.out(home(1), inside(0), at(remotes[0]), protocol, SYN).unwrap();
            for (remote, is_let_in) in remotes.iter().zip(verdicts) {
                let verdict = world.back(public, at(remote), protocol, SYN);
                let expected = if is_let_in { None } else { Some(Refusal::Filtered) };
                assert_eq!(verdict.err(), expected, "{filtering:?} {protocol} {remote}");
            }
        }
    }
}

#[test]
fn a_packet_to_a_port_that_was_not_given_has_no_mapping() {
    let mut world = world(Filtering::EndpointIndependent);
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    let neighbour = Endpoint::new(public.address, public.port ^ 1);
    assert_eq!(world.udp_back(neighbour, server(0)), Err(Refusal::NoMapping));
    assert_eq!(world.tcp_back(public, server(0), SYN), Err(Refusal::NoMapping));
}

#[test]
fn each_remote_of_a_mapping_may_answer() {
    let mut world = world(Filtering::AddressAndPortDependent);
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    for n in 1..50 {
        assert_eq!(world.udp_back(public, server(n)), Err(Refusal::Filtered));
        world.udp_out(home(1), inside(0), server(n)).unwrap();
        assert!(world.udp_back(public, server(n)).is_ok());
    }
    assert_eq!(world.flows(), 50);
}

#[test]
fn address_dependent_counts_further_sessions_and_forgets_them() {
    let mut world = world(Filtering::AddressDependent);
    let public = world.udp_out(home(1), inside(0), at("192.0.2.1:1")).unwrap();
    world.udp_out(home(1), inside(0), at("192.0.2.2:1")).unwrap();
    world.wait(200);
    world.udp_out(home(1), inside(0), at("192.0.2.2:2")).unwrap();
    world.udp_out(home(1), inside(0), at("192.0.2.1:1")).unwrap();
    assert!(world.udp_back(public, at("192.0.2.2:9")).is_ok());
    // One of the two sessions with 192.0.2.2 goes, the address stays.
    world.wait_and_collect(100);
    assert_eq!(world.flows(), 2);
    assert!(world.udp_back(public, at("192.0.2.2:9")).is_ok());
    // Only 192.0.2.1 is kept alive: 192.0.2.2 has no session any more.
    world.udp_out(home(1), inside(0), at("192.0.2.1:1")).unwrap();
    world.wait_and_collect(200);
    assert_eq!(world.flows(), 1);
    assert_eq!(world.udp_back(public, at("192.0.2.2:9")), Err(Refusal::Filtered));
    assert!(world.udp_back(public, at("192.0.2.1:9")).is_ok());
}

#[test]
fn u11_address_dependent_does_not_wait_for_the_walk_to_forget_the_first() {
    let mut world = world(Filtering::AddressDependent);
    let public = world.udp_out(home(1), inside(0), at("192.0.2.1:1")).unwrap();
    world.wait(100);
    world.udp_out(home(1), inside(0), at("192.0.2.2:1")).unwrap();
    world.wait(200);
    assert_eq!(world.udp_back(public, at("192.0.2.1:9")), Err(Refusal::Filtered));
    assert!(world.udp_back(public, at("192.0.2.2:9")).is_ok());
}

#[test]
fn address_dependent_survives_promotion_of_the_counted_session() {
    let mut world = world(Filtering::AddressDependent);
    let public = world.udp_out(home(1), inside(0), at("192.0.2.1:1")).unwrap();
    world.wait(100);
    world.udp_out(home(1), inside(0), at("192.0.2.2:1")).unwrap();
    world.wait_and_collect(200);
    assert_eq!(world.flows(), 1, "192.0.2.1 has run out, 192.0.2.2 took its place");
    assert!(world.udp_back(public, at("192.0.2.2:9")).is_ok());
    assert_eq!(world.udp_back(public, at("192.0.2.1:1")), Err(Refusal::Filtered));
    world.wait_and_collect(100);
    world.wait_and_collect(120);
    world.assert_empty();
}

#[test]
fn b6_udp_let_in_by_the_filter_leaves_no_state() {
    let mut world = world(Filtering::EndpointIndependent);
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    for n in 1..1000 {
        world.udp_back(public, server(n)).unwrap();
    }
    assert_eq!(world.flows(), 1);
    world.wait(300);
    assert_eq!(world.udp_back(public, server(1)), Err(Refusal::NoMapping));
}

#[test]
fn b6_tcp_sessions_from_outside_are_limited_per_mapping() {
    let mut world = World::new(NatConfig {
        filtering: Filtering::EndpointIndependent,
        inbound_sessions_max: 3,
        ..config()
    });
    let public = world.connect(inside(0), server(0));
    for n in 1..=3 {
        world.tcp_back(public, server(n), SYN).unwrap();
        world.tcp_back(public, server(n), SYN).unwrap();
    }
    assert_eq!(world.tcp_back(public, server(4), SYN), Err(Refusal::InboundSessionsMax));
    // Sessions that the inside opens do not count, nor do sessions that have ended.
    world.tcp_out(home(1), inside(0), server(4), SYN).unwrap();
    world.wait_and_collect(240);
    assert_eq!(world.flows(), 1);
    world.tcp_back(public, server(5), SYN).unwrap();
}

#[test]
fn t2_a_connection_from_outside_lives_like_one_from_inside() {
    let mut world = world(Filtering::EndpointIndependent);
    let public = world.connect(inside(0), server(0));
    assert_eq!(world.tcp_back(public, server(1), ACK), Err(Refusal::TcpNotSyn));
    world.tcp_back(public, server(1), SYN).unwrap();
    world.tcp_out(home(1), inside(0), server(1), SYN_ACK).unwrap();
    world.tcp_back(public, server(1), ACK).unwrap();
    world.wait_and_collect(7000);
    assert_eq!(world.tcp_out(home(1), inside(0), server(1), ACK), Ok(public));
}

#[test]
fn a_remote_alone_keeps_no_connection_alive() {
    let mut world = world(Filtering::EndpointIndependent);
    let public = world.connect(inside(0), server(0));
    world.tcp_back(public, server(1), SYN).unwrap();
    for _ in 0..3 {
        world.wait_and_collect(100);
        let _ = world.tcp_back(public, server(1), ACK);
    }
    assert_eq!(world.flows(), 1);
}

#[test]
fn t4_an_unsolicited_syn_is_silent_and_a_later_outbound_syn_is_a_simultaneous_open() {
    let mut world = world(Filtering::AddressAndPortDependent);
    let public = world.connect(inside(0), server(0));
    assert_eq!(world.tcp_back(public, server(1), SYN), Err(Refusal::Filtered));
    assert_eq!(world.tcp_out(home(1), inside(0), server(1), SYN), Ok(public));
    world.tcp_back(public, server(1), SYN).unwrap();
    world.tcp_out(home(1), inside(0), server(1), SYN_ACK).unwrap();
    world.tcp_back(public, server(1), SYN_ACK).unwrap();
    let view =
        world.list(&SessionFilter { remote: Some(server(1).into()), ..SessionFilter::default() });
    assert_eq!(view[0].state, "established");
}

#[test]
fn u12_t10_i6_icmp_errors_change_no_state() {
    let mut world = world(Filtering::AddressAndPortDependent);
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    let delivery = Delivery { home: home(1), inside: inside(0) };
    for _ in 0..3 {
        world.wait(100);
        let quoted = world.nat.peek_inbound(public, server(0), Protocol::Udp);
        assert_eq!(quoted, Some(Translated::plain(delivery)));
        let quoted = world.nat.peek_outbound(&home(1), inside(0), server(0), Protocol::Udp);
        assert_eq!(quoted, Some(Translated::plain(public)));
    }
    world.nat.expire(world.now, usize::MAX, usize::MAX);
    assert_eq!(world.flows(), 0, "errors did not refresh");
    assert_eq!(world.nat.peek_inbound(public, server(0), Protocol::Udp), None);
}

#[test]
fn i4_an_outside_error_about_a_remote_without_a_session_is_refused() {
    for filtering in [Filtering::EndpointIndependent, Filtering::AddressAndPortDependent] {
        let mut world = world(filtering);
        let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
        assert_eq!(world.nat.peek_inbound(public, server(1), Protocol::Udp), None);
        // An error from inside passes if the packet that it answers was let in.
        let quoted = world.nat.peek_outbound(&home(1), inside(0), server(1), Protocol::Udp);
        assert_eq!(quoted.is_some(), filtering == Filtering::EndpointIndependent);
        assert_eq!(world.nat.peek_outbound(&home(2), inside(0), server(0), Protocol::Udp), None);
    }
}
