//! Use of a worker's table: flows, ports in quarantine, further sessions.

use weir_nat::*;

use crate::world::*;

#[test]
fn a_port_in_quarantine_keeps_its_place_in_the_table() {
    let mut world = World::new(NatConfig { flows_max: 4, ..config() });
    for n in 0..4 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
    }
    world.wait_and_collect(300);
    assert_eq!((world.flows(), world.nat.admin().gauges().quarantined), (0, 4));
    assert_eq!(world.udp_out(home(2), inside(0), server(0)), Err(Refusal::TableFull));
    assert_eq!(world.events().len(), 1, "a refused home gets no block");
    world.wait_and_collect(120);
    assert!(world.udp_out(home(2), inside(0), server(0)).is_ok());
}

#[test]
fn live_flows_and_ports_in_quarantine_share_the_table() {
    let mut world = World::new(NatConfig { flows_max: 4, ..config() });
    world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.udp_out(home(1), inside(1), server(0)).unwrap();
    world.wait_and_collect(300);
    world.udp_out(home(1), inside(2), server(0)).unwrap();
    world.udp_out(home(1), inside(3), server(0)).unwrap();
    assert_eq!((world.flows(), world.nat.admin().gauges().quarantined), (2, 2));
    assert_eq!(world.udp_out(home(1), inside(4), server(0)), Err(Refusal::TableFull));
    assert!(
        world.udp_out(home(1), inside(2), server(1)).is_ok(),
        "a further session needs no port"
    );
}

#[test]
fn further_sessions_have_a_limit_of_their_own() {
    for filtering in [Filtering::AddressAndPortDependent, Filtering::AddressDependent] {
        let config = NatConfig { sessions_max: Some(3), filtering, ..config() };
        let mut world = World::new(config);
        let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
        for n in 1..=3 {
            assert_eq!(world.udp_out(home(1), inside(0), server(n)), Ok(public));
        }
        assert_eq!(world.udp_out(home(1), inside(0), server(4)), Err(Refusal::TableFull));
        assert_eq!(world.flows(), 4, "nothing is held for the refused one");
        assert_eq!(world.udp_out(home(1), inside(0), server(3)), Ok(public), "the others go on");
        assert!(world.udp_out(home(1), inside(1), server(4)).is_ok(), "a new mapping has room");
        world.wait_and_collect(300);
        assert!(world.udp_out(home(1), inside(0), server(4)).is_ok());
        world.wait_and_collect(300);
        world.wait_and_collect(120);
        world.assert_empty();
    }
}
