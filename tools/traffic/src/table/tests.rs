use weir_wire::ethernet::Mac;

use super::*;
use crate::families::{BothFamilies, OnlyIpv4};
use crate::packet::{GRE, GRE6};
use crate::scenario::outer6;

const ANY: Mac = Mac([2, 0, 0, 0, 0, 1]);
const FLOW: u32 = 17;
const PUBLIC: Endpoint = Endpoint { address: 0xc612_0001, port: 4242 };
const OTHER: Endpoint = Endpoint { address: 0xc612_0001, port: 4243 };

fn table(device: Device) -> Table {
    let scenario = Scenario::new(100, 8, 1).unwrap().with_new_flows(10).unwrap();
    Table::new(&scenario, device).unwrap()
}

fn mark(flow: u32, lap: u32) -> Mark {
    Mark { flow, lap, stamp: 0 }
}

fn bytes<F: Family, const TUNNEL: usize>(
    way: Direction,
    addresses: Addresses<F>,
    mark: Mark,
) -> Vec<u8> {
    let template = Template::new::<F, TUNNEL, false>(ANY, ANY, way, 0);
    let mut bytes = vec![0; template.len()];
    template.write::<F, TUNNEL, false>(&mut bytes, addresses, mark, Segment::default());
    bytes
}

/// Returns a packet as the device would send it to the internet side.
fn translated(table: &Table, flow: u32, public: Endpoint, lap: u32) -> Vec<u8> {
    let mut record = table.flows[flow as usize];
    record.public = public.address.swap_bytes();
    record.public_port = public.port.swap_bytes();
    bytes::<Ipv4, PLAIN>(Direction::Upstream, record.reaching_remote(), mark(flow, lap))
}

fn learn(table: &mut Table, frame: &[u8]) -> Lesson {
    table.learn::<OnlyIpv4, false>(frame).unwrap().lesson
}

fn up(table: &mut Table, frame: &[u8]) -> Option<Verdict> {
    table.judge_upstream::<OnlyIpv4, PLAIN, false>(frame).map(|(verdict, _)| verdict)
}

fn down(table: &mut Table, frame: &[u8]) -> Option<Verdict> {
    table.judge_downstream::<OnlyIpv4, GRE, false>(frame).map(|(verdict, _)| verdict)
}

#[test]
fn a_flow_is_learned_once() {
    let mut table = table(Device::Translates);
    assert!(!table.is_learned(FLOW));
    let right = translated(&table, FLOW, PUBLIC, 1);
    let mut bad = right.clone();
    bad[59] ^= 1;
    assert_eq!(learn(&mut table, &bad), Lesson::Wrong);
    assert_eq!(learn(&mut table, &right), Lesson::Learned);
    assert!(table.is_learned(FLOW));
    assert_eq!(table.laps_seen(FLOW), [1, 0]);
    assert_eq!(learn(&mut table, &right), Lesson::Known);
    let other = translated(&table, FLOW, OTHER, 1);
    assert_eq!(learn(&mut table, &other), Lesson::Wrong);
    let nobody = bytes::<Ipv4, PLAIN>(
        Direction::Upstream,
        table.flows[0].reaching_remote(),
        mark(u32::MAX, 1),
    );
    assert_eq!(learn(&mut table, &nobody), Lesson::Wrong);
}

#[test]
fn upstream_is_judged_by_the_learned_endpoint() {
    let mut table = table(Device::Translates);
    let first = translated(&table, FLOW, PUBLIC, 1);
    learn(&mut table, &first);
    let (second, third) =
        (translated(&table, FLOW, PUBLIC, 2), translated(&table, FLOW, PUBLIC, 3));
    assert_eq!(up(&mut table, &second), Some(Verdict::Right));
    assert_eq!(up(&mut table, &second), Some(Verdict::Duplicate));
    let other = translated(&table, FLOW, OTHER, 3);
    assert_eq!(up(&mut table, &other), Some(Verdict::WrongAddress));
    let mut bad = third.clone();
    bad[40] ^= 1;
    assert_eq!(up(&mut table, &bad), Some(Verdict::BadChecksum));
    // A wrong packet does not count as the lap's correct one.
    assert_eq!(up(&mut table, &third), Some(Verdict::Right));
}

#[test]
fn a_flow_opened_during_the_flood_is_learned_from_its_first_packet() {
    let mut table = table(Device::Translates);
    let new = table.creation_order()[105];
    assert!(new >= table.established());
    let first = translated(&table, new, PUBLIC, 1);
    assert_eq!(up(&mut table, &first), Some(Verdict::Right));
    let other = translated(&table, new, OTHER, 2);
    assert_eq!(up(&mut table, &other), Some(Verdict::WrongAddress));
}

#[test]
fn downstream_is_judged_by_home_tunnel_and_inside_endpoint() {
    let mut table = table(Device::Translates);
    let record = table.flows[FLOW as usize];
    let lap = |lap, change: fn(&mut Flow)| {
        let mut record = record;
        change(&mut record);
        bytes::<Ipv4, GRE>(Direction::Downstream, record.reaching_home(), mark(FLOW, lap))
    };
    let cases = [
        (lap(1, |_| {}), Some(Verdict::Right)),
        (lap(1, |_| {}), Some(Verdict::Duplicate)),
        (lap(2, |record| record.home ^= 1 << 24), Some(Verdict::WrongAddress)),
        (lap(2, |record| record.tunnel ^= 1 << 24), Some(Verdict::WrongAddress)),
        (lap(2, |record| record.inside ^= 1 << 24), Some(Verdict::WrongAddress)),
        (lap(2, |record| record.inside_port ^= 1 << 8), Some(Verdict::WrongAddress)),
        (lap(2, |record| record.remote ^= 1 << 24), Some(Verdict::WrongAddress)),
        (lap(2, |_| {}), Some(Verdict::Right)),
        (b"something else".to_vec(), None),
    ];
    for (frame, expected) in cases {
        assert_eq!(down(&mut table, &frame), expected);
    }
}

#[test]
fn upstream_packet_over_ipv6_has_the_outer_addresses_of_home_and_shard() {
    let table = table(Device::Translates);
    let template = Template::new::<Ipv4, GRE6, false>(ANY, ANY, Direction::Upstream, 0);
    for (created, &number) in (0..).zip(table.creation_order()) {
        let plan = Scenario::new(100, 8, 1).unwrap().with_new_flows(10).unwrap().flow(created);
        let mut bytes = vec![0; template.len()];
        table.write_upstream::<OnlyIpv4, GRE6, false>(&template, mark(number, 1), &mut bytes);
        assert_eq!(bytes[22..38], outer6(plan.home).octets());
        assert_eq!(bytes[38..54], outer6(plan.tunnel).octets());
    }
}

#[test]
fn downstream_over_ipv6_is_judged_by_every_bit_of_the_outer_addresses() {
    let mut table = table(Device::Translates);
    let record = table.flows[FLOW as usize];
    let right = bytes::<Ipv4, GRE6>(Direction::Downstream, record.reaching_home(), mark(FLOW, 1));
    let mut judge = |frame: &[u8]| {
        table.judge_downstream::<OnlyIpv4, GRE6, false>(frame).map(|(verdict, _)| verdict)
    };
    for bit in 22 * 8..54 * 8 {
        let mut wrong = right.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(judge(&wrong), Some(Verdict::WrongAddress), "bit {bit}");
    }
    let mut swapped = right.clone();
    swapped[22..38].copy_from_slice(&right[38..54]);
    swapped[38..54].copy_from_slice(&right[22..38]);
    assert_eq!(judge(&swapped), Some(Verdict::WrongAddress));
    assert_eq!(judge(&right), Some(Verdict::Right));
}

#[test]
fn downstream_without_its_tunnel_over_ipv6_or_of_another_length_is_no_packet_of_the_flow() {
    let mut table = table(Device::Translates);
    let record = table.flows[FLOW as usize];
    let to_home = |way| bytes::<Ipv4, GRE6>(way, record.reaching_home(), mark(FLOW, 1));
    let right = to_home(Direction::Downstream);
    let (mut short, mut long) = (right.clone(), right.clone());
    short.pop();
    long.push(0);
    let mut payload_length = right.clone();
    payload_length[19] -= 1;
    let mut keyed = right.clone();
    keyed[54] = 0x20;
    let plain = bytes::<Ipv4, PLAIN>(Direction::Downstream, record.reaching_home(), mark(FLOW, 1));
    let over_ipv4 =
        bytes::<Ipv4, GRE>(Direction::Downstream, record.reaching_home(), mark(FLOW, 1));
    let up = to_home(Direction::Upstream);
    for wrong in [short, long, payload_length, keyed, plain, over_ipv4, up] {
        let verdict = table.judge_downstream::<OnlyIpv4, GRE6, false>(&wrong);
        assert_eq!(verdict.map(|it| it.0), None, "{wrong:02x?}");
    }
    let verdict = table.judge_downstream::<OnlyIpv4, GRE6, false>(&right);
    assert_eq!(verdict.map(|it| it.0), Some(Verdict::Right));
}

#[test]
fn unchanged_packet_is_right_only_if_the_device_does_not_translate() {
    for (device, right) in
        [(Device::PassesThrough, Some(Verdict::Right)), (Device::Translates, None)]
    {
        let mut table = table(device);
        let (mut above, mut below) = ([0; 84], [0; 60]);
        let up_template = Template::new::<Ipv4, GRE, false>(ANY, ANY, Direction::Upstream, 84);
        let down_template =
            Template::new::<Ipv4, PLAIN, false>(ANY, ANY, Direction::Downstream, 60);
        table.write_upstream::<OnlyIpv4, GRE, false>(&up_template, mark(FLOW, 1), &mut above);
        table.write_downstream::<OnlyIpv4, false>(&down_template, mark(FLOW, 1), &mut below);
        let verdict = match device {
            Device::PassesThrough => table.judge_upstream::<OnlyIpv4, GRE, false>(&above),
            _ => table.judge_upstream::<OnlyIpv4, PLAIN, false>(&above),
        };
        assert_eq!(verdict.map(|(verdict, _)| verdict), right);
        let verdict = match device {
            Device::PassesThrough => table.judge_downstream::<OnlyIpv4, PLAIN, false>(&below),
            _ => table.judge_downstream::<OnlyIpv4, GRE, false>(&below),
        };
        assert_eq!(verdict.map(|(verdict, _)| verdict), right);
    }
}

#[test]
fn device_that_translates_per_remote_shares_endpoints_between_remotes_alone() {
    let (mut per_remote, mut per_source) =
        (table(Device::TranslatesPerRemote), table(Device::Translates));
    let other = (0..100).find(|&flow| {
        let remote = |flow: u32| per_remote.flows[flow as usize].remote;
        flow != FLOW && remote(flow) != remote(FLOW)
    });
    for flow in [FLOW, other.unwrap()] {
        for table in [&mut per_remote, &mut per_source] {
            let first = translated(table, flow, PUBLIC, 1);
            assert_eq!(up(table, &first), Some(Verdict::Right));
        }
    }
    assert_eq!((per_remote.shared_endpoints(), per_source.shared_endpoints()), (0, 1));
    let remote = per_remote.flows[FLOW as usize].remote;
    per_remote.flows[other.unwrap() as usize].remote = remote;
    assert_eq!(per_remote.shared_endpoints(), 1);
}

#[test]
fn shared_endpoints_are_counted() {
    let mut table = table(Device::Translates);
    for number in [1, 2, 3] {
        let frame = translated(&table, number, PUBLIC, 1);
        learn(&mut table, &frame);
    }
    let frame = translated(&table, 4, OTHER, 1);
    learn(&mut table, &frame);
    assert_eq!(table.shared_endpoints(), 2);
}

/// Returns the table of a run in both families, and a flow of each.
fn table_of_both(device: Device) -> (Table, [u32; 2]) {
    let scenario = Scenario::new(100, 8, 1).unwrap().with_families(Families::Both).unwrap();
    let of = |is_ipv6| (0..100).find(|&flow| Families::Both.is_ipv6(flow) == is_ipv6).unwrap();
    (Table::new(&scenario, device).unwrap(), [of(false), of(true)])
}

#[test]
fn ipv6_flow_reaches_the_remote_with_the_addresses_of_its_plan() {
    let (mut table, [_, flow]) = table_of_both(Device::Translates);
    let scenario = Scenario::new(100, 8, 1).unwrap();
    let created = table.creation_order().iter().position(|&number| number == flow).unwrap();
    let plan = scenario.flow(created as u32);
    let record = table.flows[flow as usize];
    let frame = bytes::<Ipv6, PLAIN>(Direction::Upstream, record.reaching_remote(), mark(flow, 1));
    assert_eq!(frame[22..38], plan.inside6.to_be_bytes());
    assert_eq!(frame[38..54], plan.remote6.to_be_bytes());
    assert_eq!(frame[54..58], [plan.inside.port.to_be_bytes(), 443u16.to_be_bytes()].concat());
    let arrival = table.learn::<BothFamilies, false>(&frame).unwrap();
    assert_eq!((arrival.lesson, arrival.lap_before), (Lesson::Learned, 0));
    assert!(table.is_learned(flow));
    assert_eq!(table.shared_endpoints(), 0);
}

/// Returns the first packet to a home in plain mode.
fn to_home<F: FlowFamily>(table: &Table, flow: u32) -> Vec<u8> {
    let record = &table.flows[flow as usize];
    let addresses = match table.device {
        Device::PassesThrough => record.sent_by_remote::<F>(),
        _ => Addresses { outer: 0, ..record.reaching_home() },
    };
    bytes::<F, PLAIN>(Direction::Downstream, addresses, mark(flow, 1))
}

#[test]
fn packets_of_both_families_are_right_at_their_homes() {
    for device in [Device::Translates, Device::PassesThrough] {
        let (mut table, [ipv4, ipv6]) = table_of_both(device);
        for frame in [to_home::<Ipv4>(&table, ipv4), to_home::<Ipv6>(&table, ipv6)] {
            let verdict = table.judge_downstream::<BothFamilies, PLAIN, false>(&frame);
            assert_eq!(verdict.map(|it| it.0), Some(Verdict::Right));
        }
    }
}

#[test]
fn packet_of_the_other_family_is_wrong() {
    let (mut table, [ipv4, _]) = table_of_both(Device::Translates);
    let record = table.flows[ipv4 as usize];
    let frame = bytes::<Ipv6, PLAIN>(Direction::Upstream, record.reaching_remote(), mark(ipv4, 1));
    let arrival = table.learn::<BothFamilies, false>(&frame).unwrap();
    assert_eq!(arrival.lesson, Lesson::Wrong);
    let verdict = table.judge_upstream::<BothFamilies, PLAIN, false>(&frame);
    assert_eq!(verdict.map(|it| it.0), Some(Verdict::WrongAddress));
}
