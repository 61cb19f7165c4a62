//! Packets that depend on changes wait until replicas have them, in order and bounded; other
//! packets do not wait.

use weir_engine::{CommitLimits, DropReason, EarlyRelease, EngineConfig, Side, Uncommitted};
use weir_nat::{Filtering, RuleAction, ShardIndex};
use weir_wire::build;

use crate::world::pair::{SHARD, clustered};
use crate::world::rules::{Rules, host};
use crate::world::*;

const OTHER_SHARD: ShardIndex = ShardIndex(1);

const LIMITS: CommitLimits =
    CommitLimits { held_max: 16, changes_max: 512, timeout_ms: 50, policy: Uncommitted::Release };

/// All lanes of both shards are replicated; packets of the first shard wait.
fn committing(config: EngineConfig, limits: CommitLimits) -> World {
    let mut world = World::new(clustered(config));
    world.engine.setup().hold_uncommitted(limits);
    let nat = world.engine.nat_mut();
    for shard in [SHARD, OTHER_SHARD] {
        nat.replica_mut().set_replicated_lanes(shard, 0xff);
    }
    nat.replica_mut().set_commit(SHARD, true);
    world
}

fn releasing() -> World {
    committing(config(), LIMITS)
}

fn dropping() -> World {
    committing(config(), CommitLimits { policy: Uncommitted::Drop, ..LIMITS })
}

fn query(port: u16, text: &str) -> Vec<u8> {
    build::ipv4(PC, SERVER).udp(port, 53, text.as_bytes())
}

/// Returns the last two characters of each packet, in order.
fn marks(packets: &[Vec<u8>]) -> Vec<String> {
    let last = |packet: &Vec<u8>| String::from_utf8_lossy(&packet[packet.len() - 2..]).into_owned();
    packets.iter().map(last).collect()
}

#[test]
fn first_packet_waits_and_packets_without_a_change_do_not() {
    let mut world = releasing();
    assert!(world.up(HOME_A, query(5000, "01")).is_nothing());
    let first = world.take_changes();
    assert!(world.release(first - 1).is_nothing());
    assert_eq!(world.engine.held(), 1);
    assert_eq!(marks(&world.release(first).internet), ["01"]);
    assert_eq!((world.engine.held(), world.counters.held()), (0, 1));
    // The flow is committed: its packets do not wait, in either direction, even while another flow
    // does.
    let sent = world.up(HOME_A, query(5000, "02")).into_internet();
    let public = ends(&sent);
    assert!(world.up(HOME_A, query(5001, "03")).is_nothing());
    world.down(build::ipv4(SERVER, public.0).udp(53, public.1, b"04")).into_home();
    world.up(HOME_A, query(5000, "05")).into_internet();
    assert_eq!(world.drops(), 0);
}

#[test]
fn packets_of_a_flow_keep_their_order() {
    let mut world = releasing();
    let syn = build::ipv4(PC, SERVER).tcp(build::tcp(5000, 80).syn());
    assert!(world.up(HOME_A, syn).is_nothing());
    let opened = world.take_changes();
    let public = ends(&world.release(opened).into_internet());
    // The answer changes the session: it waits, and packets behind it wait for that change alone.
    let answer = build::ipv4(SERVER, public.0).tcp(build::tcp(80, public.1).syn().ack());
    assert!(world.down(answer).is_nothing());
    let answered = world.take_changes();
    assert!(world.release(opened).is_nothing());
    assert!(world.up(HOME_A, query(6000, "99")).is_nothing());
    let other = world.take_changes();
    for text in [b"01", b"02"] {
        let data = build::ipv4(SERVER, public.0).tcp(build::tcp(80, public.1).ack().payload(text));
        assert!(world.down(data).is_nothing());
    }
    // Another flow's change is later, and is not waited for.
    let out = world.release(answered);
    assert_eq!((out.access.len(), out.internet.len()), (3, 0));
    assert_eq!(marks(&out.access)[1..], ["01", "02"]);
    assert_eq!(marks(&world.release(other).internet), ["99"]);
}

#[test]
fn a_burst_with_two_packets_of_a_new_flow_leaves_in_order() {
    let mut world = releasing();
    let frame = |text: &str| {
        let packet = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), query(5000, text));
        let frame = build::ethernet(worker_mac(Side::Access), gateway_mac(Side::Access), packet);
        weir_wire::frame::VecFrame::new(&frame)
    };
    let frames = ["01", "02", "03"].map(frame).into();
    assert!(world.frames(Side::Access, frames).is_nothing());
    let taken = world.take_changes();
    assert_eq!(marks(&world.release(taken).internet), ["01", "02", "03"]);
}

#[test]
fn packets_that_rely_on_an_uncommitted_mapping_wait_too() {
    let mut open = config();
    open.nat.filtering = Filtering::EndpointIndependent;
    let mut world = committing(open, LIMITS);
    let out = world.up(HOME_A, query(5000, "01"));
    assert!(out.is_nothing());
    let taken = world.take_changes();
    let public = ends(&world.release(taken).into_internet());
    // A second remote of the same mapping is a session of its own.
    let other = build::ipv4(PC, SERVER_2).udp(5000, 53, b"02");
    assert!(world.up(HOME_A, other).is_nothing());
    // Let in by the filter, without state of its own.
    assert!(
        world.down(build::ipv4("198.51.100.77", public.0).udp(9, public.1, b"03")).is_nothing()
    );
    // An ICMP error about the first packet.
    let quoted = build::ipv4(public.0, SERVER).udp(public.1, 53, b"01");
    let error = build::ipv4(SERVER, public.0).port_unreachable(&quoted);
    assert!(world.down(error).is_nothing());
    // Another home whose packet turns around to this one: its own mapping is new, too.
    let hairpin = build::ipv4(PC, public.0).udp(7000, public.1, b"04");
    assert!(world.up(HOME_B, hairpin).is_nothing());
    let taken = world.take_changes();
    assert!(world.release(taken - 2).is_nothing());
    let out = world.release(taken);
    assert_eq!((out.internet.len(), out.access.len()), (1, 3));
    assert_eq!(world.drops(), 0);
}

#[test]
fn later_fragments_wait_as_long_as_their_first_fragment() {
    let mut world = releasing();
    let whole = build::ipv4(PC, SERVER).identification(7).udp(5000, 53, vec![b'x'; 1600]);
    let pieces = build::fragments(&whole, 800);
    assert!(pieces.len() > 1);
    for piece in &pieces {
        assert!(world.up(HOME_A, piece).is_nothing());
    }
    let taken = world.take_changes();
    assert!(world.release(taken - 1).is_nothing());
    assert_eq!(world.release(taken).internet.len(), pieces.len());
}

#[test]
fn packets_of_a_shard_without_output_commit_do_not_wait() {
    let mut world = releasing();
    let packet = build::ipv4(HOME_A, ENDPOINT_2).gre(build::gre(), query(5000, "01"));
    world.packet(Side::Access, &packet).into_internet();
    assert_eq!(world.counters.held(), 0);
}

#[test]
fn late_packets_are_released_in_order() {
    let mut world = releasing();
    assert!(world.up(HOME_A, query(5000, "01")).is_nothing());
    assert!(world.release(0).is_nothing());
    world.now.ms += 30;
    assert!(world.up(HOME_A, query(5001, "02")).is_nothing());
    assert!(world.release(0).is_nothing());
    world.now.ms += 20;
    assert_eq!(marks(&world.release(0).internet), ["01"]);
    assert_eq!(world.counters.early(EarlyRelease::Timeout), 1);
    // The flow goes on: it counts as committed.
    world.up(HOME_A, query(5000, "03")).into_internet();
    assert_eq!(world.engine.held(), 1);
}

/// The first frame of an older batch may be added after that of a newer one.
#[test]
fn batch_that_times_out_ends_all_older_batches_before_it() {
    let mut world = releasing();
    world.pass_sec(24);
    assert!(world.up(HOME_A, query(5000, "01")).is_nothing());
    assert_eq!(world.dropped(DropReason::GatewayUnresolved), 1);
    assert!(world.release(0).is_nothing());
    world.gateway_answers(Side::Internet);
    assert!(world.up(HOME_A, query(5001, "02")).is_nothing());
    assert!(world.release(0).is_nothing());
    world.now.ms += 30;
    assert!(world.up(HOME_A, query(5000, "03")).is_nothing());
    assert!(world.release(0).is_nothing());
    world.now.ms += 20;
    assert_eq!(marks(&world.release(0).internet), ["03", "02"]);
    assert_eq!((world.engine.held(), world.counters.early(EarlyRelease::Timeout)), (0, 2));
}

#[test]
fn late_packets_are_dropped_with_the_flows_that_they_began() {
    let mut world = dropping();
    assert!(world.up(HOME_A, query(5000, "01")).is_nothing());
    assert!(world.release(0).is_nothing());
    assert_eq!(world.engine.nat().admin().gauges().flows, 1);
    world.now.ms += 50;
    assert!(world.release(0).is_nothing());
    assert_eq!(world.dropped(DropReason::CommitTimeout), 1);
    assert_eq!((world.engine.nat().admin().gauges().flows, world.engine.held()), (0, 0));
    // The home tries again.
    assert!(world.up(HOME_A, query(5000, "02")).is_nothing());
    let taken = world.take_changes();
    assert_eq!(marks(&world.release(taken).internet), ["02"]);
}

#[test]
fn a_session_that_was_given_up_is_ended_and_its_mapping_is_not() {
    let mut world = dropping();
    assert!(world.up(HOME_A, query(5000, "01")).is_nothing());
    let taken = world.take_changes();
    world.release(taken).into_internet();
    assert!(world.up(HOME_A, build::ipv4(PC, SERVER_2).udp(5000, 53, b"02")).is_nothing());
    assert!(world.release(taken).is_nothing());
    assert_eq!(world.engine.nat().admin().gauges().flows, 2);
    world.now.ms += 50;
    assert!(world.release(taken).is_nothing());
    assert_eq!(world.engine.nat().admin().gauges().flows, 1);
    // The mapping is there, and the end of one of its sessions is a change, too.
    assert!(world.up(HOME_A, query(5000, "03")).is_nothing());
    let taken = world.take_changes();
    assert_eq!(marks(&world.release(taken).internet), ["03"]);
}

#[test]
fn held_packets_never_exceed_their_limit() {
    let mut world = releasing();
    let mut sent = Vec::new();
    for port in 0..20 {
        sent.extend(world.up(HOME_A, query(5000 + port, &format!("{port:02}"))).internet);
        world.release(0);
    }
    assert_eq!(marks(&sent), ["00", "01", "02", "03"]);
    assert_eq!((world.engine.held(), world.counters.early(EarlyRelease::Limit)), (16, 4));

    let mut world = dropping();
    for port in 0..20 {
        assert!(world.up(HOME_A, query(5000 + port, "xx")).is_nothing());
    }
    assert_eq!((world.engine.held(), world.dropped(DropReason::CommitLimit)), (16, 4));
}

#[test]
fn packet_beyond_the_limit_leaves_behind_the_held_ones_of_its_batch() {
    let mut world = releasing();
    // All sixteen are of one batch, and so is the next.
    for number in 0..16 {
        assert!(world.up(HOME_A, query(5000, &format!("{number:02}"))).is_nothing());
    }
    let out = world.up(HOME_A, query(5000, "16"));
    let expected: Vec<_> = (0..17).map(|number| format!("{number:02}")).collect();
    assert_eq!(marks(&out.internet), expected);
}

#[test]
fn no_flow_begins_with_too_few_replicas_under_the_drop_policy() {
    let mut world = dropping();
    assert!(world.up(HOME_A, query(5000, "01")).is_nothing());
    let taken = world.take_changes();
    world.release(taken).into_internet();
    world.engine.nat_mut().replica_mut().set_short(SHARD, true);
    assert!(world.up(HOME_A, query(5001, "02")).is_nothing());
    assert!(world.up(HOME_A, build::ipv4(PC, SERVER_2).udp(5000, 53, b"03")).is_nothing());
    assert_eq!(world.dropped(DropReason::TooFewReplicas), 2);
    assert_eq!(world.engine.nat().admin().gauges().flows, 1);
    world.up(HOME_A, query(5000, "04")).into_internet();
    world.engine.nat_mut().replica_mut().set_short(SHARD, false);
    assert!(world.up(HOME_A, query(5001, "05")).is_nothing());
    assert_eq!(world.engine.held(), 1);
}

#[test]
fn changes_beyond_their_limit_release_the_oldest_batch() {
    let limits = CommitLimits { held_max: 1024, changes_max: 256, ..LIMITS };
    let mut world = committing(config(), limits);
    let mut sent = 0;
    for port in 0..400 {
        sent += world.up(HOME_A, query(5000 + port, "xx")).internet.len();
        world.release(0);
    }
    assert_eq!(sent + world.engine.held(), 400);
    assert!(world.engine.held() <= 256);
    assert_eq!(world.counters.early(EarlyRelease::Limit), sent as u64);
}

#[test]
fn batches_beyond_the_number_of_batch_numbers_become_one() {
    let limits = CommitLimits { held_max: 1024, changes_max: 1024, timeout_ms: 10_000, ..LIMITS };
    let mut world = committing(config(), limits);
    for port in 0..600 {
        assert!(world.up(HOME_A, query(5000 + port, "xx")).is_nothing());
        assert!(world.release(0).is_nothing());
    }
    let taken = world.take_changes();
    let mut sent = world.release(taken).internet.len();
    sent += world.release(taken).internet.len();
    assert_eq!(sent, 600);
    for port in 0..600 {
        world.up(HOME_A, query(5000 + port, "yy")).into_internet();
    }
}

#[test]
fn a_worker_that_stops_or_was_fenced_holds_nothing_back() {
    let mut world = releasing();
    assert!(world.up(HOME_A, query(5000, "01")).is_nothing());
    assert_eq!(marks(&world.release_all().internet), ["01"]);

    let mut world = dropping();
    assert!(world.up(HOME_A, query(5000, "01")).is_nothing());
    assert!(world.release_all().is_nothing());
    assert_eq!(world.dropped(DropReason::CommitTimeout), 1);

    let mut world = releasing();
    assert!(world.up(HOME_A, query(5000, "01")).is_nothing());
    assert_eq!(world.engine.discard_held(world.now), 1);
    assert_eq!((world.engine.held(), world.dropped(DropReason::CommitTimeout)), (0, 1));
}

#[test]
fn a_shard_that_leaves_holds_nothing_back() {
    let mut world = releasing();
    assert!(world.up(HOME_A, query(5000, "01")).is_nothing());
    world.engine.setup().remove_shard(SHARD);
    world.pass_sec(10);
    assert!(world.engine.nat().replica().is_removed(SHARD));
    let taken = world.take_changes();
    assert_eq!(world.release(taken).internet.len(), 1);
    assert_eq!(world.engine.held(), 0);
}

/// It changes nothing that replicas would have to know.
#[test]
fn packet_that_a_rule_lets_pass_as_it_is_needs_no_replica() {
    let limits = CommitLimits { policy: Uncommitted::Drop, ..LIMITS };
    let mut world = committing(plain(), limits);
    let rules = Rules::default().home(RuleAction::Bypass, |it| it.remote = host(SERVER_2));
    rules.load(&mut world);
    world.engine.nat_mut().replica_mut().set_short(SHARD, true);
    let to = |server| build::ipv4(HOME_A, server).udp(5000, 53, b"01");
    let passed = world.packet(Side::Access, &to(SERVER_2)).into_internet();
    assert_eq!(ends(&passed).0, HOME_A.to_bits());
    assert!(world.packet(Side::Access, &to(SERVER)).is_nothing());
    assert_eq!((world.dropped(DropReason::TooFewReplicas), world.drops()), (1, 1));
}
