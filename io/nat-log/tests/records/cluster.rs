//! Members of a cluster: tenancies that outlive their node, and missing logs.

use weir_nat_log::LogVerdict::{CannotSay, Held, Nobody};
use weir_nat_log::{About, Begin, LogAnswer, Reason, TenancyEnd, search_logs};

use crate::folder::time;
use crate::node_log::{LaneBlock, NodeLog, PUBLIC, answer, ask, first_port, homes, question};

const LANE: u8 = 3;

fn at(epoch: u64, block: u16) -> LaneBlock {
    LaneBlock { lane: LANE, epoch, block }
}

/// Creates the log of a member that has owned the lane since its start at 10 s, at epoch 3.
fn owner(name: &str, skew_ms: i64) -> NodeLog {
    let mut node = NodeLog::new(name, skew_ms);
    node.opened(10_000, true);
    node.taken(10_000, LANE, 3, None);
    node.listed(10_000, LANE, 3, 1);
    node
}

fn reasons(answer: &LogAnswer) -> Vec<Reason> {
    answer.missing.iter().map(|missing| missing.reason).collect()
}

/// SIGTERM: n1 gives its lane to n2, stops, starts again and takes it back. The home stays
/// connected throughout.
fn restart_of_a_member() -> [NodeLog; 2] {
    let (mut n1, mut n2) = (owner("n1", 0), NodeLog::new("n2", 0));
    n2.opened(10_000, true);
    n1.allocated(20_000, at(3, 0), 7);
    n1.left(30_000, LANE, 3);
    n2.taken(30_010, LANE, 5, Some(3));
    n2.held(30_020, at(5, 0), 7, Some(20_000));
    n2.listed(30_030, LANE, 5, 1);
    n1.closed(31_000);
    n1.opened(40_000, true);
    n2.left(50_000, LANE, 5);
    n1.taken(50_010, LANE, 9, Some(5));
    n1.held(50_020, at(9, 0), 7, Some(20_000));
    n1.listed(50_030, LANE, 9, 1);
    n1.released(60_000, at(9, 0), 7);
    for node in [&mut n1, &mut n2] {
        node.mark(70_000);
    }
    [n1, n2]
}

#[test]
fn a_restart_of_a_member_ends_no_tenancy() {
    let logs = restart_of_a_member();
    let port = at(0, 0).port();
    for ms in [22_000, 30_005, 31_000, 35_000, 40_000, 50_005, 59_000] {
        assert_eq!(ask(&logs, port, ms), (Held, vec![7]), "{ms}");
    }
    assert_eq!(ask(&logs, port, 15_000), (Nobody, vec![]));
    assert_eq!(ask(&logs, port, 65_000), (Nobody, vec![]));
    let holder = &answer(&logs, port, 35_000).holders[0];
    assert_eq!((holder.from, holder.begin), (Some(time(20_000)), Begin::Allocated));
    assert_eq!((holder.until, holder.end), (Some(time(60_000)), TenancyEnd::Released));
    assert_eq!(holder.nodes, ["n1", "n2", "n1"]);
}

#[test]
fn logs_of_one_lane_say_nothing_about_a_block_of_another() {
    let logs = restart_of_a_member();
    // The address is known, its lane 4 is not.
    let answer = answer(&logs, LaneBlock { lane: 4, epoch: 0, block: 0 }.port(), 35_000);
    assert_eq!((answer.verdict, homes(&answer)), (CannotSay, vec![]));
    assert!(reasons(&answer).contains(&Reason::LaneMissing), "{answer:?}");
}

#[test]
fn a_block_allocated_by_one_node_and_released_by_another_is_free() {
    let (mut n1, mut n2) = (owner("n1", 0), NodeLog::new("n2", 0));
    n1.allocated(20_000, at(3, 0), 7);
    n1.left(30_000, LANE, 3);
    n2.opened(10_000, true);
    n2.taken(30_010, LANE, 5, Some(3));
    n2.held(30_020, at(5, 0), 7, None);
    n2.listed(30_030, LANE, 5, 1);
    n2.released(40_000, at(5, 0), 7);
    n2.allocated(50_000, at(5, 0), 8);
    n1.mark(60_000);
    n2.mark(60_000);
    let (logs, port) = ([n1, n2], at(0, 0).port());
    assert_eq!(ask(&logs, port, 35_000), (Held, vec![7]));
    assert_eq!(ask(&logs, port, 45_000), (Nobody, vec![]));
    assert_eq!(ask(&logs, port, 55_000), (Held, vec![8]));
    // Two homes within the error of the clocks.
    let mut close = logs.clone();
    close[1].released(60_500, at(5, 0), 8);
    close[1].allocated(60_600, at(5, 0), 9);
    close[1].mark(70_000);
    assert_eq!(ask(&close, port, 60_550), (CannotSay, vec![8, 9]));
    assert_eq!(ask(&close, port, 62_000), (Held, vec![9]));
    // n2 alone: it held the blocks that it listed.
    let [_, n2] = logs.clone();
    assert_eq!(ask(std::slice::from_ref(&n2), port, 25_000), (CannotSay, vec![]));
    assert_eq!(ask(&[n2], port, 35_000), (Held, vec![7]));
    // n1 alone: it gave the lane away.
    let [n1, _] = logs;
    assert_eq!(ask(std::slice::from_ref(&n1), port, 25_000), (Held, vec![7]));
    let late = answer(&[n1], port, 55_000);
    assert_eq!((late.verdict, homes(&late)), (CannotSay, vec![7]));
    assert_eq!(reasons(&late), [Reason::NextOwnerMissing]);
}

#[test]
fn a_listing_that_lacks_a_block_ends_its_tenancy() {
    let (mut n1, mut n2) = (owner("n1", 0), NodeLog::new("n2", 0));
    n1.allocated(20_000, at(3, 0), 7);
    n1.left(30_000, LANE, 3);
    n2.opened(10_000, true);
    n2.taken(32_000, LANE, 5, Some(3));
    n2.listed(32_010, LANE, 5, 1);
    n2.mark(60_000);
    let (logs, port) = ([n1, n2], at(0, 0).port());
    let answer = answer(&logs, port, 25_000);
    assert_eq!((answer.verdict, homes(&answer)), (Held, vec![7]));
    let holder = &answer.holders[0];
    assert_eq!((holder.end, holder.until), (TenancyEnd::NotListed, Some(time(32_000))));
    assert_eq!(ask(&logs, port, 40_000), (Nobody, vec![]));
    // Without the end of the listing the logs cannot say.
    let mut cut = logs.clone();
    cut[1].lines.truncate(2);
    assert_eq!(ask(&cut, port, 31_500), (CannotSay, vec![7]));
}

/// n1 dies at 40 s; its last mark is of 35 s. n2 takes the lane at 43 s.
fn death(listed: impl Fn(&mut NodeLog)) -> [NodeLog; 2] {
    let (mut n1, mut n2) = (owner("n1", 0), NodeLog::new("n2", 0));
    n1.allocated(20_000, at(3, 0), 7);
    n1.mark(35_000);
    n2.opened(10_000, true);
    n2.mark(35_000);
    n2.taken(43_000, LANE, 4, Some(3));
    listed(&mut n2);
    n2.listed(43_100, LANE, 4, 1);
    n2.mark(60_000);
    [n1, n2]
}

#[test]
fn a_home_named_by_a_dead_node_and_its_successor_held_its_block() {
    let port = at(0, 0).port();
    for since in [None, Some(20_000)] {
        let logs = death(|n2| n2.held(43_050, at(4, 0), 7, since));
        for ms in [21_000, 34_000, 38_000, 43_000, 55_000] {
            assert_eq!(ask(&logs, port, ms), (Held, vec![7]), "{ms}");
        }
        assert_eq!(answer(&logs, port, 38_000).holders[0].nodes, ["n1", "n2"]);
    }
    // The home came back meanwhile: another home may have had the block before.
    let logs = death(|n2| n2.held(43_050, at(4, 0), 7, Some(41_000)));
    assert_eq!(ask(&logs, port, 38_000), (CannotSay, vec![7]));
    assert_eq!(ask(&logs, port, 42_100), (Held, vec![7]));
}

#[test]
fn the_time_after_a_dead_nodes_last_mark_is_unknown() {
    let port = at(0, 0).port();
    // The home is gone, another one is there, or a block was free before and after.
    let gone = death(|_| ());
    assert_eq!(ask(&gone, port, 30_000), (Held, vec![7]));
    let doubtful = answer(&gone, port, 38_000);
    assert_eq!((doubtful.verdict, reasons(&doubtful)), (CannotSay, vec![Reason::CutOff]));
    let missing = &doubtful.missing[0];
    assert_eq!((missing.from, missing.until), (Some(time(35_000)), Some(time(43_000))));
    assert_eq!((missing.node.as_deref(), missing.epoch), (Some("n1"), Some(3)));
    assert_eq!(ask(&gone, port, 45_000), (Nobody, vec![]));

    let another = death(|n2| n2.held(43_050, at(4, 0), 8, Some(42_000)));
    assert_eq!(ask(&another, port, 38_000), (CannotSay, vec![7]));
    assert_eq!(ask(&another, port, 45_000), (Held, vec![8]));

    // The home came back about when the doubt began: by the clock of n2, which may be wrong.
    let back = death(|n2| n2.held(43_050, at(4, 0), 7, Some(34_500)));
    assert_eq!(ask(&back, port, 35_500).0, CannotSay);
    assert_eq!(ask(&back, port, 38_000), (Held, vec![7]));

    // In a listing so much later: another home may have had the block meanwhile.
    let (mut n1, mut n2) = (owner("n1", 0), NodeLog::new("n2", 0));
    n1.allocated(20_000, at(3, 0), 7);
    n1.mark(35_000);
    n2.opened(10_000, true);
    n2.taken(70_000, LANE, 4, Some(3));
    n2.held(70_010, at(4, 0), 7, None);
    n2.listed(70_020, LANE, 4, 1);
    n2.mark(90_000);
    let late = [n1, n2];
    assert_eq!(ask(&late, port, 50_000), (CannotSay, vec![7]));
    assert_eq!(ask(&late, port, 75_000), (Held, vec![7]));

    let mut free = death(|_| ());
    free[1].allocated(61_000, at(4, 1), 9);
    let port = at(0, 1).port();
    assert_eq!(ask(&free, port, 30_000), (Nobody, vec![]));
    assert_eq!(ask(&free, port, 38_000), (CannotSay, vec![]));
    assert_eq!(ask(&free, port, 50_000), (Nobody, vec![]));
}

#[test]
fn the_only_log_of_a_dead_node_is_missing() {
    let [_, n2] = death(|n2| n2.held(43_050, at(4, 0), 7, Some(20_000)));
    let port = at(0, 0).port();
    // n2 knows since when the home has had its block, and knows nothing of other homes.
    assert_eq!(ask(std::slice::from_ref(&n2), port, 30_000), (Held, vec![7]));
    assert_eq!(ask(std::slice::from_ref(&n2), port, 15_000), (CannotSay, vec![]));
    let mut n2 = n2;
    n2.allocated(61_000, at(4, 1), 9);
    let answer = answer(&[n2], at(0, 1).port(), 30_000);
    assert_eq!((answer.verdict, reasons(&answer)), (CannotSay, vec![Reason::BeforeLogs]));
}

#[test]
fn a_missing_log_of_an_owner_between_two_others_is_named() {
    let (n1, mut n3) = (owner("n1", 0), NodeLog::new("n3", 0));
    let mut n1 = n1;
    n1.allocated(20_000, at(3, 0), 7);
    n1.left(30_000, LANE, 3);
    n3.opened(10_000, true);
    n3.taken(50_000, LANE, 8, Some(6));
    n3.held(50_010, at(8, 0), 7, None);
    n3.listed(50_020, LANE, 8, 1);
    n3.mark(60_000);
    let answer = answer(&[n1, n3], at(0, 0).port(), 40_000);
    assert_eq!(answer.verdict, CannotSay);
    assert_eq!((reasons(&answer), answer.missing[0].epoch), (vec![Reason::OwnerMissing], Some(6)));
    let text = answer.missing[0].to_string();
    assert!(text.contains("shard 1 lane 3") && text.contains("epoch 6"), "{text}");
}

#[test]
fn an_owner_that_knows_no_previous_owner_leaves_a_doubt() {
    let (mut n1, mut n3) = (owner("n1", 0), NodeLog::new("n3", 0));
    n1.allocated(20_000, at(3, 0), 7);
    n1.left(30_000, LANE, 3);
    n1.mark(60_000);
    n3.opened(10_000, true);
    n3.taken(30_500, LANE, 8, None);
    n3.held(30_510, at(8, 0), 7, None);
    n3.listed(30_520, LANE, 8, 1);
    n3.mark(60_000);
    let port = at(0, 0).port();
    let doubtful = answer(&[n1.clone(), n3.clone()], port, 30_200);
    assert_eq!((doubtful.verdict, reasons(&doubtful)), (CannotSay, vec![Reason::OwnerUnknown]));
    // The same if the record that it took the lane is missing, and the epoch is the next one.
    n3.lines.remove(1);
    for line in &mut n3.lines {
        *line = line.replace("\"epoch\":8", "\"epoch\":4");
    }
    let doubtful = answer(&[n1, n3], port, 30_200);
    assert_eq!((doubtful.verdict, reasons(&doubtful)), (CannotSay, vec![Reason::BeginMissing]));
}

#[test]
fn a_gap_in_the_index_leaves_a_doubt() {
    let mut n1 = owner("n1", 0);
    n1.allocated(20_000, at(3, 0), 7);
    n1.skip_index(LANE, 3);
    n1.allocated(50_000, at(3, 1), 9);
    n1.mark(60_000);
    assert_eq!(ask(&[n1], at(0, 0).port(), 45_000), (CannotSay, vec![7]));
}

#[test]
fn a_listing_with_a_missing_record_ends_no_doubt() {
    let mut n1 = owner("n1", 0);
    n1.allocated(20_000, at(3, 0), 7);
    n1.mark(30_000);
    let from = n1.index(LANE, 3);
    n1.held(40_000, at(3, 0), 7, None);
    n1.lose_last();
    n1.listed(40_010, LANE, 3, from);
    n1.mark(60_000);
    assert_eq!(ask(&[n1], at(0, 0).port(), 50_000), (CannotSay, vec![7]));
}

/// If the block size was changed, a port lay in one lane and lies in another.
#[test]
fn a_port_of_blocks_of_two_sizes_may_lie_in_any_lane() {
    let mut n1 = owner("n1", 0);
    n1.allocated(20_000, at(3, 0), 7);
    n1.released(30_000, at(3, 0), 7);
    n1.mark(60_000);
    let port = at(0, 0).port();
    assert_eq!(ask(&[n1.clone()], port, 45_000), (Nobody, vec![]));
    n1.allocated(61_000, at(3, 2), 9);
    let line = n1.lines.last_mut().expect("a line");
    let first = at(0, 2).port();
    *line = line.replace(&format!("-{}\"", first + 255), &format!("-{}\"", first + 511));
    let answer = answer(&[n1], port, 45_000);
    assert_eq!(answer.verdict, CannotSay);
    assert!(reasons(&answer).iter().all(|reason| *reason == Reason::LaneMissing), "{answer:?}");
}

/// A standalone node whose log was moved away while it was stopped may have run meanwhile.
#[test]
fn a_start_after_an_unknown_incarnation_leaves_a_doubt() {
    let mut n1 = NodeLog::new("n1", 0);
    n1.opened(10_000, false);
    n1.allocated(20_000, at(0, 0), 7);
    n1.closed(30_000);
    n1.opened(60_000, false);
    n1.mark(90_000);
    let port = at(0, 0).port();
    assert_eq!(ask(&[n1.clone()], port, 45_000), (Nobody, vec![]));
    for line in &mut n1.lines {
        *line = line.replace("\"boot_before\":\"0", "\"boot_before\":\"f");
    }
    let doubtful = answer(&[n1.clone()], port, 45_000);
    assert_eq!((doubtful.verdict, reasons(&doubtful)), (CannotSay, vec![Reason::LifeMissing]));
    assert_eq!(ask(&[n1], port, 70_000), (Nobody, vec![]));
}

/// The clock of n2 is 500 ms behind that of n1: by the times alone, n2 took the lane before n1 gave
/// it away.
#[test]
fn records_are_ordered_by_epoch_and_index_not_by_time() {
    let (mut n1, mut n2) = (owner("n1", 250), NodeLog::new("n2", -250));
    n2.opened(10_000, true);
    n1.allocated(20_000, at(3, 0), 7);
    n1.released(29_900, at(3, 0), 7);
    n1.allocated(29_950, at(3, 0), 8);
    n1.left(30_000, LANE, 3);
    n2.taken(30_010, LANE, 5, Some(3));
    n2.held(30_020, at(5, 0), 8, Some(29_950));
    n2.listed(30_030, LANE, 5, 1);
    n2.released(30_100, at(5, 0), 8);
    n1.mark(60_000);
    n2.mark(60_000);
    let (logs, port) = ([n1, n2], at(0, 0).port());
    assert_eq!(ask(&logs, port, 25_000), (Held, vec![7]));
    assert_eq!(ask(&logs, port, 30_050), (CannotSay, vec![7, 8]));
    assert_eq!(ask(&logs, port, 31_180), (Held, vec![8]), "within the error of the clocks");
    assert_eq!(ask(&logs, port, 32_000), (Nobody, vec![]));
}

#[test]
fn a_lost_record_leaves_a_doubt_until_the_next_statement() {
    let mut n1 = owner("n1", 0);
    n1.allocated(20_000, at(3, 0), 7);
    n1.mark(30_000);
    n1.released(40_000, at(3, 0), 7);
    n1.lose_last();
    n1.allocated(50_000, at(3, 1), 9);
    n1.mark(60_000);
    let from = n1.index(LANE, 3);
    n1.held(70_000, at(3, 1), 9, Some(50_000));
    n1.listed(70_010, LANE, 3, from);
    n1.mark(80_000);
    let port = at(0, 0).port();
    let logs = [n1];
    let doubtful = answer(&logs, port, 45_000);
    assert_eq!(reasons(&doubtful), [Reason::RecordsMissing]);
    assert_eq!(ask(&logs, port, 49_000), (CannotSay, vec![7]));
    // The listing at 70 s does not contain the block, so it was free at every record since the one
    // at 50 s.
    assert_eq!(ask(&logs, port, 55_000), (Nobody, vec![]));
    assert_eq!(ask(&logs, at(0, 1).port(), 60_000), (Held, vec![9]));
    // A record of another lane is missing: the numbers of this lane continue without a gap.
    let mut n1 = owner("n1", 0);
    n1.allocated(20_000, at(3, 0), 7);
    n1.allocated(25_000, LaneBlock { lane: 0, epoch: 3, block: 0 }, 9);
    n1.lose_last();
    n1.released(40_000, at(3, 0), 7);
    n1.mark(50_000);
    let logs = [n1];
    assert_eq!(ask(&logs, port, 30_000), (Held, vec![7]));
    assert_eq!(ask(&logs, port, 45_000), (Nobody, vec![]));
    // The record of a loss takes the number of the lost record.
    let mut logged = owner("n1", 0);
    logged.allocated(20_000, at(3, 0), 7);
    logged.mark(30_000);
    logged.released(40_000, at(3, 0), 7);
    logged.lose_last_reported(40_000);
    logged.mark(50_000);
    let doubtful = answer(&[logged], port, 45_000);
    assert_eq!((doubtful.verdict, reasons(&doubtful)), (CannotSay, vec![Reason::RecordsMissing]));
    // At the end of the log the lane of the missing record is not known.
    let mut cut = logs.clone();
    cut[0].allocated(51_000, LaneBlock { lane: 0, epoch: 3, block: 1 }, 9);
    cut[0].lose_last();
    cut[0].mark(60_000);
    assert_eq!(ask(&cut, port, 55_000), (CannotSay, vec![]));
}

#[test]
fn a_log_that_begins_anywhere_stands_alone_after_a_listing() {
    let mut n1 = owner("n1", 0);
    n1.allocated(20_000, at(3, 0), 7);
    n1.mark(30_000);
    let begin = n1.lines.len();
    n1.mark(40_000);
    let from = n1.index(LANE, 3);
    n1.held(50_000, at(3, 0), 7, None);
    n1.listed(50_010, LANE, 3, from);
    n1.mark(60_000);
    n1.lines.drain(..begin);
    let logs = [n1];
    assert_eq!(ask(&logs, at(0, 0).port(), 45_000), (CannotSay, vec![]));
    assert_eq!(ask(&logs, at(0, 0).port(), 55_000), (Held, vec![7]));
    let holder = &answer(&logs, at(0, 0).port(), 55_000).holders[0];
    assert_eq!((holder.begin, holder.from), (Begin::Unknown, Some(time(50_000))));
}

#[test]
fn beyond_the_last_mark_the_logs_cannot_say() {
    let mut n1 = owner("n1", 0);
    n1.allocated(20_000, at(3, 0), 7);
    n1.mark(30_000);
    let (logs, port) = ([n1], at(0, 0).port());
    assert_eq!(ask(&logs, port, 29_000), (Held, vec![7]));
    let late = answer(&logs, port, 29_500);
    assert_eq!((late.verdict, homes(&late)), (CannotSay, vec![7]));
    assert_eq!(reasons(&late), [Reason::EndOfLog]);
    // Without a time the question is about the end.
    let texts = [logs[0].text()];
    let mut at_end = question(About::Port(PUBLIC.into(), port), 0, 0);
    at_end.time = None;
    let answer = search_logs(&[&texts[0]], &at_end).expect("read");
    assert_eq!((answer.verdict, homes(&answer)), (Held, vec![7]));
    assert_eq!(answer.asked, Some((time(30_000), time(30_000))));
}

#[test]
fn an_address_has_many_homes_and_a_home_many_blocks() {
    let (mut n1, mut n2) = (owner("n1", 0), NodeLog::new("n2", 0));
    n2.opened(10_000, true);
    for lane in (0..8).filter(|lane| *lane != LANE) {
        n2.taken(10_000, lane, 3, None);
        n2.listed(10_000, lane, 3, 1);
    }
    n1.allocated(20_000, at(3, 0), 7);
    n2.allocated(21_000, LaneBlock { lane: 5, epoch: 3, block: 1 }, 8);
    n2.allocated(30_000, LaneBlock { lane: 0, epoch: 3, block: 2 }, 7);
    n2.released(40_000, LaneBlock { lane: 0, epoch: 3, block: 2 }, 7);
    n1.mark(60_000);
    n2.mark(60_000);
    let texts = [n1.text(), n2.text()];
    let search = |logs: &[&[u8]], about, from, until| {
        let answer = search_logs(logs, &question(about, from, until)).expect("read");
        let ports: Vec<u16> = answer.holders.iter().map(first_port).collect();
        (answer.verdict, homes(&answer), ports)
    };
    let all: &[&[u8]] = &[&texts[0], &texts[1]];
    let ports = [
        at(0, 0).port(),
        LaneBlock { lane: 5, epoch: 0, block: 1 }.port(),
        LaneBlock { lane: 0, epoch: 0, block: 2 }.port(),
    ];
    let address = About::Address(PUBLIC.into());
    assert_eq!(search(all, address, 15_000, 15_000), (Nobody, vec![], vec![]));
    assert_eq!(search(all, address, 25_000, 25_000), (Held, vec![7, 8], ports[..2].to_vec()));
    assert_eq!(search(all, address, 25_000, 50_000), (Held, vec![7, 8, 7], ports.to_vec()));
    let home = About::Home([10, 200, 0, 7].into(), None);
    assert_eq!(search(all, home, 15_000, 50_000), (Held, vec![7, 7], vec![ports[0], ports[2]]));
    assert_eq!(search(all, home, 45_000, 50_000), (Held, vec![7], vec![ports[0]]));
    let keyed = About::Home([10, 200, 0, 7].into(), Some(4));
    assert_eq!(search(all, keyed, 15_000, 50_000), (CannotSay, vec![], vec![]));
    // One log is missing: the home had these ports, and perhaps more.
    assert_eq!(search(&all[..1], home, 15_000, 50_000), (CannotSay, vec![7], vec![ports[0]]));
}

/// Without translation a home has a whole address, which is recorded in each lane with flows of it.
#[test]
fn an_address_with_all_its_ports_is_recorded_in_the_lanes_of_its_flows() {
    let first = LaneBlock { lane: 0, epoch: 3, block: 0 };
    let (mut n1, mut n2) = (NodeLog::new("n1", 0), NodeLog::new("n2", 0));
    for node in [&mut n1, &mut n2] {
        node.opened(10_000, true);
    }
    n1.taken(10_000, 0, 3, None);
    n1.listed(10_000, 0, 3, 1);
    n1.allocated(20_000, first, 7);
    n1.left(30_000, 0, 3);
    n2.taken(30_010, 0, 5, Some(3));
    n2.held(30_020, LaneBlock { epoch: 5, ..first }, 7, None);
    n2.listed(30_030, 0, 5, 1);
    n2.released(40_000, LaneBlock { epoch: 5, ..first }, 7);
    for node in [&mut n1, &mut n2] {
        node.mark(60_000);
        for line in &mut node.lines {
            *line = line.replace("\"1024-1279\"", "\"0-65535\"");
        }
    }
    let others = NodeLog::of_others(&[0], 10_000, 60_000);
    let logs = [n1, others, n2];
    for port in [0, 1100, 65_535] {
        assert_eq!(ask(&logs, port, 15_000), (Nobody, vec![]));
        assert_eq!(ask(&logs, port, 25_000), (Held, vec![7]));
        assert_eq!(ask(&logs, port, 35_000), (Held, vec![7]));
        assert_eq!(ask(&logs, port, 45_000), (Nobody, vec![]));
        assert_eq!(ask(&logs[..2], port, 45_000), (CannotSay, vec![7]));
        assert_eq!(ask(&[logs[0].clone(), logs[2].clone()], port, 25_000), (CannotSay, vec![7]));
    }
    let texts = logs.each_ref().map(NodeLog::text);
    let texts = texts.each_ref().map(Vec::as_slice);
    let home = About::Home([10, 200, 0, 7].into(), None);
    for (about, from_ms, until_ms, verdict) in [
        (About::Address(PUBLIC.into()), 25_000, 25_000, Held),
        (About::Address(PUBLIC.into()), 45_000, 45_000, Nobody),
        (home, 15_000, 50_000, Held),
        (home, 45_000, 50_000, Nobody),
    ] {
        let answer = search_logs(&texts, &question(about, from_ms, until_ms)).expect("read");
        assert_eq!(answer.verdict, verdict, "{about:?} {from_ms}: {answer:?}");
    }
}

/// A site is started without its store: n1 resumes its lane at the same epoch. Later n2 takes it.
/// Returns three files: the first incarnation of n1, its second one, n2.
fn resumption() -> [NodeLog; 3] {
    let (mut n1, mut n2) = (owner("n1", 0), NodeLog::new("n2", 0));
    n1.allocated(20_000, at(3, 0), 7);
    n1.closed(30_000);
    let first = n1.clone();
    n1.lines.clear();
    n1.opened(60_000, true);
    n1.taken(61_000, LANE, 3, None);
    n1.listed(61_010, LANE, 3, 1);
    n1.allocated(65_000, at(3, 0), 8);
    n1.mark(70_000);
    n2.opened(10_000, true);
    n2.taken(90_000, LANE, 5, Some(3));
    n2.listed(90_010, LANE, 5, 1);
    n2.mark(120_000);
    [first, n1, n2]
}

#[test]
fn incarnations_sharing_an_epoch_are_ordered_by_their_nodes_clock() {
    let [first, second, n2] = resumption();
    let port = at(0, 0).port();
    for logs in [
        [first.clone(), second.clone(), n2.clone()],
        [second.clone(), n2.clone(), first.clone()],
        [n2.clone(), second.clone(), first.clone()],
    ] {
        assert_eq!(ask(&logs, port, 15_000), (Nobody, vec![]));
        assert_eq!(ask(&logs, port, 25_000), (Held, vec![7]));
        assert_eq!(ask(&logs, port, 63_000), (Nobody, vec![]));
        assert_eq!(ask(&logs, port, 67_000), (Held, vec![8]));
        assert_eq!(ask(&logs, port, 80_000), (CannotSay, vec![8]), "n1 died");
        assert_eq!(ask(&logs, port, 95_000), (Nobody, vec![]));
    }
}

#[test]
fn a_missing_incarnation_that_resumed_a_lane_leaves_a_doubt() {
    let [first, second, n2] = resumption();
    let port = at(0, 0).port();
    let without = [first.clone(), n2.clone()];
    for ms in [40_000, 67_000] {
        let doubtful = answer(&without, port, ms);
        assert_eq!((doubtful.verdict, homes(&doubtful)), (CannotSay, vec![7]), "{ms}");
        assert_eq!(reasons(&doubtful), [Reason::LifeMissing], "{ms}");
    }
    assert_eq!(ask(&without, port, 25_000), (Held, vec![7]));
    assert_eq!(ask(&without, port, 95_000), (Nobody, vec![]));
    // The same if n1 had given the lane away before it ended.
    let mut left = owner("n1", 0);
    left.allocated(20_000, at(3, 0), 7);
    left.left(30_000, LANE, 3);
    assert_eq!(ask(&[left.clone(), n2.clone()], port, 67_000), (CannotSay, vec![7]));
    // The log of n1 continues until n2 has the lane: there was no other incarnation in between.
    left.mark(95_000);
    assert_eq!(ask(&[left, n2.clone()], port, 67_000), (Held, vec![7]));
    // n1 took the lane from n0 and resumed it: the log of its first incarnation is missing, and the
    // second one knows no previous owner.
    let mut n0 = owner("n0", 0);
    n0.left(15_000, LANE, 3);
    let mut stopped = n0.clone();
    stopped.closed(60_500);
    n0.mark(120_000);
    let mut resumed = second.clone();
    for line in &mut resumed.lines {
        *line = line.replace("\"epoch\":3", "\"epoch\":4");
    }
    for n0 in [n0, stopped] {
        let doubtful = answer(&[n0, resumed.clone()], port, 25_000);
        assert_eq!((doubtful.verdict, reasons(&doubtful)), (CannotSay, vec![Reason::LifeMissing]));
    }
    // The home is there again when n2 takes the lane: in the missing incarnation it may have had no
    // block.
    let mut back = NodeLog::new("n2", 0);
    back.opened(10_000, true);
    back.taken(50_000, LANE, 5, Some(3));
    back.held(50_010, at(5, 0), 7, None);
    back.listed(50_020, LANE, 5, 1);
    assert_eq!(ask(&[first.clone(), back], port, 40_000), (CannotSay, vec![7]));
    // A third incarnation ran between the two that are there.
    let mut third = second;
    for line in &mut third.lines {
        *line = line.replace("\"boot_before\":\"0", "\"boot_before\":\"f");
    }
    let between = answer(&[first, third, n2], port, 45_000);
    assert_eq!((between.verdict, reasons(&between)), (CannotSay, vec![Reason::LifeMissing]));
}

#[test]
fn a_lane_regained_at_the_same_epoch_is_listed_again() {
    let mut n1 = owner("n1", 0);
    n1.allocated(20_000, at(3, 0), 7);
    n1.allocated(21_000, at(3, 1), 8);
    n1.left(30_000, LANE, 3);
    let from = n1.index(LANE, 3);
    n1.held(40_000, at(3, 0), 7, None);
    n1.listed(40_010, LANE, 3, from);
    n1.mark(60_000);
    let logs = [n1];
    for ms in [25_000, 35_000, 45_000] {
        assert_eq!(ask(&logs, at(0, 0).port(), ms), (Held, vec![7]), "{ms}");
    }
    assert_eq!(ask(&logs, at(0, 1).port(), 25_000), (Held, vec![8]));
    assert_eq!(ask(&logs, at(0, 1).port(), 45_000), (Nobody, vec![]));
    // A record behind the one that gives the lane away is missing: from then on the state of the
    // blocks is not known.
    let mut cut = owner("n1", 0);
    cut.allocated(20_000, at(3, 0), 7);
    cut.left(30_000, LANE, 3);
    cut.mark(36_000);
    let from = cut.index(LANE, 3);
    cut.held(40_000, at(3, 0), 7, None);
    cut.lose_last();
    cut.listed(40_010, LANE, 3, from);
    cut.mark(60_000);
    assert_eq!(ask(&[cut], at(0, 0).port(), 33_000), (CannotSay, vec![7]));
}

/// n1 gives the lane away at 30 s, n2 takes it at 41.5 s. Until then n1 may get it back.
#[test]
fn a_lane_that_its_last_owner_may_have_regained_is_in_doubt() {
    let ask_with_a_mark = |mark_ms: u64| {
        let (mut n1, mut n2) = (owner("n1", 0), NodeLog::new("n2", 0));
        n1.left(30_000, LANE, 3);
        n1.mark(mark_ms);
        n2.opened(10_000, true);
        n2.taken(41_500, LANE, 5, Some(3));
        n2.listed(41_510, LANE, 5, 1);
        n2.allocated(61_000, at(5, 0), 9);
        ask(&[n1, n2], at(0, 0).port(), 41_500).0
    };
    assert_eq!([40_000, 42_400, 42_500].map(ask_with_a_mark), [CannotSay, CannotSay, Nobody]);
}

/// The same home is listed before and after a gap.
#[test]
fn a_listing_counts_in_any_order_of_a_logs_parts() {
    let mut n1 = NodeLog::new("n1", 0);
    n1.opened(10_000, true);
    n1.taken(10_000, LANE, 5, Some(3));
    n1.held(10_010, at(5, 0), 7, None);
    n1.listed(10_020, LANE, 5, 1);
    n1.mark(20_000);
    let mut second = n1.clone();
    second.lines.clear();
    second.released(30_000, at(5, 0), 7);
    second.lose_last();
    let from = second.index(LANE, 5);
    second.held(50_000, at(5, 0), 7, None);
    second.listed(50_010, LANE, 5, from);
    second.mark(60_000);
    for logs in [[n1.clone(), second.clone()], [second, n1]] {
        assert_eq!(ask(&logs, at(0, 0).port(), 15_000), (Held, vec![7]));
        assert_eq!(ask(&logs, at(0, 0).port(), 40_000), (CannotSay, vec![7]));
        assert_eq!(ask(&logs, at(0, 0).port(), 55_000), (Held, vec![7]));
    }
}

#[test]
fn a_log_given_twice_answers_as_if_given_once() {
    let [n1, n2] = restart_of_a_member();
    let (once, twice) = ([n1.clone(), n2.clone()], [n2.clone(), n1.clone(), n2, n1]);
    let port = at(0, 0).port();
    for ms in (5_000..75_000).step_by(500) {
        assert_eq!(answer(&twice, port, ms), answer(&once, port, ms), "{ms}");
    }
}

#[test]
fn a_mark_dated_back_does_not_hide_the_record_before_it() {
    let mut n1 = owner("n1", 0);
    n1.allocated(20_000, at(3, 0), 7);
    n1.mark(19_500);
    let port = at(0, 0).port();
    let at_end = |node: &NodeLog| {
        let mut question = question(About::Port(PUBLIC.into(), port), 0, 0);
        question.time = None;
        search_logs(&[&node.text()], &question).expect("read")
    };
    let answer = at_end(&n1);
    assert_eq!((answer.verdict, homes(&answer)), (Held, vec![7]));
    assert_eq!(answer.asked, Some((time(20_000), time(20_000))));
    // The clock was set back: the time between occurs twice.
    n1.mark(15_000);
    assert_eq!(ask(&[n1], port, 18_000).0, CannotSay);
}
