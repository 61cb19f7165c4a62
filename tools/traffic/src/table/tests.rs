use weir_wire::ethernet::Mac;

use super::*;

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

fn bytes<const TUNNEL: bool>(way: Direction, addresses: Addresses, mark: Mark) -> Vec<u8> {
    let template = Template::new::<TUNNEL, false>(ANY, ANY, way, 0);
    let mut bytes = vec![0; template.len()];
    template.write::<TUNNEL, false>(&mut bytes, addresses, mark, Segment::default());
    bytes
}

/// Returns a packet as the device would send it to the internet side.
fn translated(table: &Table, flow: u32, public: Endpoint, lap: u32) -> Vec<u8> {
    let mut record = table.flows[flow as usize];
    record.public = public.address.swap_bytes();
    record.public_port = public.port.swap_bytes();
    bytes::<false>(Direction::Upstream, record.reaching_remote(), mark(flow, lap))
}

fn learn(table: &mut Table, frame: &[u8]) -> Lesson {
    table.learn(&read::<false, false>(frame, Direction::Upstream).unwrap())
}

fn up(table: &mut Table, frame: &[u8]) -> Option<Verdict> {
    table.judge_upstream::<false, false>(frame).map(|(verdict, _)| verdict)
}

fn down(table: &mut Table, frame: &[u8]) -> Option<Verdict> {
    table.judge_downstream::<true, false>(frame).map(|(verdict, _)| verdict)
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
    let nobody =
        bytes::<false>(Direction::Upstream, table.flows[0].reaching_remote(), mark(u32::MAX, 1));
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
        bytes::<true>(Direction::Downstream, record.reaching_home(), mark(FLOW, lap))
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
fn unchanged_packet_is_right_only_if_the_device_does_not_translate() {
    for (device, right) in
        [(Device::PassesThrough, Some(Verdict::Right)), (Device::Translates, None)]
    {
        let mut table = table(device);
        let (mut above, mut below) = ([0; 84], [0; 60]);
        let up_template = Template::new::<true, false>(ANY, ANY, Direction::Upstream, 84);
        let down_template = Template::new::<false, false>(ANY, ANY, Direction::Downstream, 60);
        table.write_upstream::<true, false>(&up_template, mark(FLOW, 1), &mut above);
        table.write_downstream::<false>(&down_template, mark(FLOW, 1), &mut below);
        let verdict = match device {
            Device::PassesThrough => table.judge_upstream::<true, false>(&above),
            _ => table.judge_upstream::<false, false>(&above),
        };
        assert_eq!(verdict.map(|(verdict, _)| verdict), right);
        let verdict = match device {
            Device::PassesThrough => table.judge_downstream::<false, false>(&below),
            _ => table.judge_downstream::<true, false>(&below),
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
