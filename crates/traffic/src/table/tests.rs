use weir_wire::ethernet::Mac;

use super::*;

const ANY: Mac = Mac([2, 0, 0, 0, 0, 1]);
const FLOW: u32 = 17;

fn table(device: Device) -> Table {
    Table::new(&Scenario::new(100, 8, 1).unwrap(), device)
}

/// A packet as the device would send it to the internet side.
fn translated(table: &Table, public: Endpoint, lap: u32) -> Vec<u8> {
    let remote = table.flows[FLOW as usize].upstream.destination;
    let mut bytes = vec![0; 60];
    let inner = Inner::new(public, remote, FLOW, Direction::Upstream);
    Plain::template(ANY, ANY, Direction::Upstream).write(&mut bytes, &inner, FLOW, lap);
    bytes
}

/// A packet as the device would send it to the home `outer.1`.
fn delivered(table: &Table, outer: (u32, u32), inside: Endpoint, lap: u32) -> Vec<u8> {
    let remote = table.flows[FLOW as usize].upstream.destination;
    let mut bytes = vec![0; 84];
    let inner = Inner::new(remote, inside, FLOW, Direction::Downstream);
    let template = Tunnel::template(ANY, ANY, Direction::Downstream);
    template.write(&mut bytes, &Outer::new(outer.0, outer.1), &inner, FLOW, lap);
    bytes
}

const PUBLIC: Endpoint = Endpoint { address: 0xc612_0001, port: 4242 };
const OTHER: Endpoint = Endpoint { address: 0xc612_0001, port: 4243 };

#[test]
fn a_flow_is_learned_once() {
    let mut table = table(Device::Translates);
    assert!(!table.is_learned(FLOW));
    let mut bad = translated(&table, PUBLIC, 0);
    bad[59] ^= 1;
    assert_eq!(table.learn(&bad), Some(Lesson::Wrong));
    assert_eq!(table.learn(&translated(&table, PUBLIC, 0)), Some(Lesson::Learned));
    assert!(table.is_learned(FLOW));
    assert_eq!(table.learn(&translated(&table, PUBLIC, 0)), Some(Lesson::Known));
    assert_eq!(table.learn(&translated(&table, OTHER, 0)), Some(Lesson::Wrong));
    assert_eq!(table.learn(b"something else"), None);
}

#[test]
fn upstream_is_judged_by_the_learned_endpoint() {
    let mut table = table(Device::Translates);
    table.learn(&translated(&table, PUBLIC, 0));
    assert_eq!(table.judge_upstream(&translated(&table, PUBLIC, 1)), Some(Verdict::Right));
    assert_eq!(table.judge_upstream(&translated(&table, PUBLIC, 1)), Some(Verdict::Duplicate));
    assert_eq!(table.judge_upstream(&translated(&table, OTHER, 2)), Some(Verdict::WrongAddress));
    let mut bad = translated(&table, PUBLIC, 2);
    bad[40] ^= 1;
    assert_eq!(table.judge_upstream(&bad), Some(Verdict::BadChecksum));
    // A wrong packet does not count as the lap's right one.
    assert_eq!(table.judge_upstream(&translated(&table, PUBLIC, 2)), Some(Verdict::Right));
}

#[test]
fn downstream_is_judged_by_home_tunnel_and_inside_endpoint() {
    let mut table = table(Device::Translates);
    let flow = table.flows[FLOW as usize];
    let (home, tunnel, inside) = (flow.outer.source, flow.outer.destination, flow.upstream.source);
    let neighbour = Endpoint { port: inside.port + 1, ..inside };
    let cases = [
        (delivered(&table, (tunnel, home), inside, 1), Some(Verdict::Right)),
        (delivered(&table, (tunnel, home), inside, 1), Some(Verdict::Duplicate)),
        (delivered(&table, (tunnel, home + 1), inside, 2), Some(Verdict::WrongAddress)),
        (delivered(&table, (tunnel + 1, home), inside, 2), Some(Verdict::WrongAddress)),
        (delivered(&table, (tunnel, home), neighbour, 2), Some(Verdict::WrongAddress)),
        (b"something else".to_vec(), None),
    ];
    for (frame, expected) in cases {
        assert_eq!(table.judge_downstream(&frame), expected);
    }
}

#[test]
fn an_unchanged_packet_is_right_only_where_nobody_translates() {
    for (device, expected) in
        [(Device::PassesThrough, Some(Verdict::Right)), (Device::Translates, None)]
    {
        let mut table = table(device);
        let (mut up, mut down) = ([0; 84], [0; 60]);
        table.write_upstream(&Tunnel::template(ANY, ANY, Direction::Upstream), FLOW, 1, &mut up);
        table.write_downstream(
            &Plain::template(ANY, ANY, Direction::Downstream),
            FLOW,
            1,
            &mut down,
        );
        assert_eq!(table.judge_upstream(&up), expected);
        assert_eq!(table.judge_downstream(&down), expected);
    }
}

#[test]
fn shared_endpoints_are_counted() {
    let mut table = table(Device::Translates);
    let remote = table.flows[0].upstream.destination;
    for number in [1, 2, 3] {
        table.flows[number].downstream =
            Inner::new(remote, PUBLIC, number as u32, Direction::Downstream);
    }
    table.flows[4].downstream = Inner::new(remote, OTHER, 4, Direction::Downstream);
    assert_eq!(table.shared_endpoints(), 2);
}
