//! IPv6 prefixes that homes have claimed: the same questions as about ports, and claims of two
//! homes at a time.

use std::collections::BTreeSet;

use weir_nat_log::LogVerdict::{CannotSay, Held, Nobody};
use weir_nat_log::{
    About, Begin, Holding, LogAnswer, LogVerdict, Prefix64, Reason, TenancyEnd, search_logs,
};

use crate::folder::{Random, time};
use crate::node_log::{LaneBlock, LanePrefix, NodeLog, answer_about, homes, question};

/// Within this time no home claims a prefix and lets it go again.
const HOLD_MS: u64 = 31_000;
/// The lane in which homes have flows.
const LANE: u8 = 0;

fn at(epoch: u64, prefix: u16) -> LanePrefix {
    LanePrefix { lane: LANE, epoch, prefix }
}

/// Asks these logs, and one about all other lanes of the shard.
fn answer(logs: &[NodeLog], prefix: u16, at_ms: u64) -> LogAnswer {
    let others = NodeLog::of_others(&[LANE], 10_000, 1_000_000);
    let logs = [logs, &[others]].concat();
    answer_about(&logs, About::Ipv6(at(0, prefix).address()), at_ms)
}

/// Returns the holders of a prefix at a time, each as the last number of the home's address.
fn ask(logs: &[NodeLog], prefix: u16, at_ms: u64) -> (LogVerdict, Vec<u8>) {
    let answer = answer(logs, prefix, at_ms);
    (answer.verdict, homes(&answer))
}

fn reasons(answer: &LogAnswer) -> Vec<Reason> {
    answer.missing.iter().map(|missing| missing.reason).collect()
}

/// Creates the log of a member that has owned lane 0 since its start at 10 s, at epoch 3.
fn owner(name: &str) -> NodeLog {
    let mut node = NodeLog::new(name, 0);
    node.opened(10_000, true);
    node.taken(10_000, LANE, 3, None);
    node.listed(10_000, LANE, 3, 1);
    node
}

#[test]
fn an_address_belongs_to_the_home_that_had_claimed_its_prefix() {
    let mut n1 = owner("n1");
    n1.claimed(20_000, at(3, 1), 7);
    n1.claimed(21_000, at(3, 2), 8);
    n1.prefix_released(30_000, at(3, 1), 7);
    n1.claimed(40_000, at(3, 1), 9);
    n1.mark(60_000);
    let logs = [n1];
    assert_eq!(ask(&logs, 1, 15_000), (Nobody, vec![]));
    assert_eq!(ask(&logs, 1, 25_000), (Held, vec![7]));
    assert_eq!(ask(&logs, 1, 35_000), (Nobody, vec![]));
    assert_eq!(ask(&logs, 1, 50_000), (Held, vec![9]));
    assert_eq!(ask(&logs, 2, 50_000), (Held, vec![8]));
    let holder = &answer(&logs, 1, 25_000).holders[0];
    let prefix = Holding::Prefix(Prefix64::of(at(3, 1).address()));
    assert_eq!((holder.holding, holder.shard), (prefix, 1));
    assert_eq!((holder.from, holder.begin), (Some(time(20_000)), Begin::Allocated));
    assert_eq!((holder.until, holder.end), (Some(time(30_000)), TenancyEnd::Released));
    // The records do not show in whose pool a prefix is that no home ever had.
    let unnamed = answer(&logs, 3, 25_000);
    assert_eq!((unnamed.verdict, reasons(&unnamed)), (CannotSay, vec![Reason::NotNamed]));
    let late = answer(&logs, 1, 70_000);
    assert_eq!((late.verdict, reasons(&late)), (CannotSay, vec![Reason::EndOfLog]));
}

#[test]
fn a_claim_that_moves_to_another_node_goes_on_there() {
    let (mut n1, mut n2) = (owner("n1"), NodeLog::new("n2", 0));
    n1.claimed(20_000, at(3, 1), 7);
    n1.left(30_000, LANE, 3);
    n2.opened(10_000, true);
    n2.taken(30_010, LANE, 5, Some(3));
    n2.prefix_held(30_020, at(5, 1), 7);
    n2.listed(30_030, LANE, 5, 1);
    n2.prefix_released(40_000, at(5, 1), 7);
    n2.claimed(50_000, at(5, 1), 8);
    n1.mark(60_000);
    n2.mark(60_000);
    let logs = [n1, n2];
    for ms in [22_000, 30_005, 38_000] {
        assert_eq!(ask(&logs, 1, ms), (Held, vec![7]), "{ms}");
    }
    assert_eq!(answer(&logs, 1, 35_000).holders[0].nodes, ["n1", "n2"]);
    assert_eq!(ask(&logs, 1, 45_000), (Nobody, vec![]));
    assert_eq!(ask(&logs, 1, 55_000), (Held, vec![8]));
    // With the log of one node alone: that node's time, and no more.
    let [n1, n2] = logs;
    let n1 = [n1];
    assert_eq!(ask(&n1, 1, 25_000), (Held, vec![7]));
    let late = answer(&n1, 1, 55_000);
    assert_eq!((late.verdict, reasons(&late)), (CannotSay, vec![Reason::NextOwnerMissing]));
    let n2 = [n2];
    assert_eq!(ask(&n2, 1, 25_000), (CannotSay, vec![]));
    assert_eq!(ask(&n2, 1, 35_000), (Held, vec![7]));
}

/// A split: home 7 has flows at n1, in lane 0, and then at n2, in lane 1; n1 does not hear n2.
#[test]
fn a_claim_that_ends_in_one_lane_goes_on_in_another() {
    let (mut n1, mut n2) = (owner("n1"), NodeLog::new("n2", 0));
    n2.opened(10_000, true);
    n2.taken(10_000, 1, 3, None);
    n2.listed(10_000, 1, 3, 1);
    n1.claimed(20_000, at(3, 1), 7);
    n2.claimed(30_000, LanePrefix { lane: 1, ..at(3, 1) }, 7);
    n1.prefix_released(40_000, at(3, 1), 7);
    n1.claimed(60_000, at(3, 1), 8);
    n2.prefix_released(80_000, LanePrefix { lane: 1, ..at(3, 1) }, 7);
    n1.mark(100_000);
    n2.mark(100_000);
    let others = NodeLog::of_others(&[0, 1], 10_000, 1_000_000);
    let about = About::Ipv6(at(3, 1).address());
    let ask = |logs: &[&NodeLog], at_ms| {
        let logs: Vec<NodeLog> = logs.iter().map(|log| (*log).clone()).collect();
        let answer = answer_about(&logs, about, at_ms);
        (answer.verdict, homes(&answer))
    };
    let all = [&n1, &n2, &others];
    assert_eq!(ask(&all, 15_000), (Nobody, vec![]));
    for ms in [25_000, 35_000, 50_000] {
        assert_eq!(ask(&all, ms), (Held, vec![7]), "{ms}");
    }
    assert_eq!(ask(&all, 70_000), (CannotSay, vec![7, 8]));
    assert_eq!(ask(&all, 90_000), (Held, vec![8]));
    // One tenancy, whatever the lanes.
    let logs = all.map(NodeLog::clone);
    let holder = &answer_about(&logs, about, 35_000).holders[0];
    assert_eq!((holder.from, holder.until), (Some(time(20_000)), Some(time(80_000))));
    assert_eq!(holder.nodes, ["n1", "n2"]);
    // Without the log of one of them: another home may have had it there.
    for ms in [25_000, 50_000, 90_000] {
        assert_eq!(ask(&[&n1, &others], ms).0, CannotSay, "{ms}");
        assert_eq!(ask(&[&n2, &others], ms).0, CannotSay, "{ms}");
    }
}

/// The owner of several lanes dies, and another node takes them.
#[test]
fn home_with_flows_in_one_lane_of_a_dead_node_held_its_prefix() {
    let (mut n1, mut n2) = (owner("n1"), NodeLog::new("n2", 0));
    n1.taken(10_000, 1, 3, None);
    n1.listed(10_000, 1, 3, 1);
    n1.claimed(20_000, at(3, 1), 7);
    n1.mark(35_000);
    n2.opened(10_000, true);
    n2.mark(35_000);
    n2.taken(43_000, 0, 4, Some(3));
    n2.prefix_held(43_050, at(4, 1), 7);
    n2.listed(43_100, 0, 4, 1);
    n2.taken(43_000, 1, 4, Some(3));
    n2.listed(43_100, 1, 4, 1);
    n2.mark(60_000);
    let mut others = NodeLog::of_others(&[0, 1], 10_000, 1_000_000);
    let about = About::Ipv6(at(3, 1).address());
    for ms in [25_000, 38_000, 50_000] {
        let answer = answer_about(&[n1.clone(), n2.clone(), others.clone()], about, ms);
        assert_eq!((answer.verdict, homes(&answer)), (Held, vec![7]), "{ms}");
    }
    // Another node that dies may have let another home in.
    others.lines.pop();
    others.mark(30_000);
    let answer = answer_about(&[n1, n2, others], about, 38_000);
    assert_eq!((answer.verdict, homes(&answer)), (CannotSay, vec![7]));
}

/// In logs of an earlier version the owner of lane 0 says what it knows of all lanes.
#[test]
fn logs_without_claims_by_lane_cannot_say_who_had_a_prefix() {
    let mut n1 = owner("n1");
    n1.claimed(20_000, at(3, 1), 7);
    n1.prefix_released(30_000, at(3, 1), 7);
    n1.mark(40_000);
    assert_eq!(ask(&[n1.clone()], 1, 25_000), (Held, vec![7]));
    let others = NodeLog::of_others(&[LANE], 10_000, 40_000);
    // During an upgrade one of two nodes is of an earlier version.
    for earlier in 0..2 {
        let mut logs = [n1.clone(), others.clone()];
        for line in &mut logs[earlier].lines {
            *line = line.replace("\"claims_by_lane\":true,", "");
        }
        for ms in [15_000, 25_000, 35_000] {
            let answer = answer_about(&logs, About::Ipv6(at(0, 1).address()), ms);
            assert_eq!(answer.verdict, CannotSay, "{earlier} at {ms}");
        }
    }
}

#[test]
fn a_lost_line_leaves_a_doubt_until_the_next_listing() {
    let mut n1 = owner("n1");
    n1.claimed(20_000, at(3, 1), 7);
    n1.mark(25_000);
    n1.prefix_released(30_000, at(3, 1), 7);
    n1.lose_last();
    n1.claimed(40_000, at(3, 1), 8);
    n1.mark(45_000);
    let mut logs = [n1];
    // Home 7 may hold it beside home 8: its last record is the claim.
    let doubtful = answer(&logs, 1, 43_000);
    assert_eq!((doubtful.verdict, homes(&doubtful)), (CannotSay, vec![7, 8]));
    assert!(reasons(&doubtful).contains(&Reason::RecordsMissing), "{doubtful:?}");
    // A listing behind the gap shows that home 7 did not hold it any more.
    let from = logs[0].index(LANE, 3);
    logs[0].prefix_held(50_000, at(3, 1), 8);
    logs[0].listed(50_010, LANE, 3, from);
    logs[0].mark(70_000);
    assert_eq!(ask(&logs, 1, 22_000), (Held, vec![7]));
    assert_eq!(ask(&logs, 1, 30_000), (CannotSay, vec![7]));
    assert_eq!(ask(&logs, 1, 43_000), (Held, vec![8]));
    assert_eq!(ask(&logs, 1, 60_000), (Held, vec![8]));
}

#[test]
fn two_homes_that_hold_a_prefix_at_once_are_both_named() {
    let mut n1 = owner("n1");
    n1.claimed(20_000, at(3, 1), 7);
    // A copy from a worker that had not reached this one.
    n1.claimed(30_000, at(3, 1), 8);
    n1.prefix_released(40_000, at(3, 1), 7);
    n1.mark(50_000);
    n1.prefix_released(60_000, at(3, 1), 8);
    n1.mark(80_000);
    let logs = [n1];
    assert_eq!(ask(&logs, 1, 25_000), (Held, vec![7]));
    let both = answer(&logs, 1, 35_000);
    assert_eq!((both.verdict, homes(&both)), (CannotSay, vec![7, 8]));
    assert_eq!(both.missing, []);
    assert_eq!(ask(&logs, 1, 50_000), (Held, vec![8]), "the other home still holds it");
    assert_eq!(ask(&logs, 1, 70_000), (Nobody, vec![]));
}

/// n1 dies at 40 s; its last mark is of 35 s. n2 takes the lane at 43 s.
fn death(listed: &[u8]) -> [NodeLog; 2] {
    let (mut n1, mut n2) = (owner("n1"), NodeLog::new("n2", 0));
    n1.claimed(20_000, at(3, 1), 7);
    n1.mark(35_000);
    n2.opened(10_000, true);
    n2.mark(35_000);
    n2.taken(43_000, LANE, 4, Some(3));
    for home in listed {
        n2.prefix_held(43_050, at(4, 1), *home);
    }
    n2.listed(43_100, LANE, 4, 1);
    n2.mark(60_000);
    [n1, n2]
}

#[test]
fn a_prefix_is_held_across_a_death_by_the_home_before_and_after() {
    for ms in [21_000, 34_000, 38_000, 43_000, 55_000] {
        assert_eq!(ask(&death(&[7]), 1, ms), (Held, vec![7]), "{ms}");
    }
    assert_eq!(ask(&death(&[]), 1, 38_000), (CannotSay, vec![7]));
    assert_eq!(ask(&death(&[]), 1, 50_000), (Nobody, vec![]));
    assert_eq!(ask(&death(&[8]), 1, 38_000), (CannotSay, vec![7]));
    assert_eq!(ask(&death(&[8]), 1, 50_000), (Held, vec![8]));
    // Home 8 may have come before the death was noticed.
    let both = death(&[7, 8]);
    assert_eq!(ask(&both, 1, 30_000), (Held, vec![7]));
    assert_eq!(ask(&both, 1, 38_000).0, CannotSay);
    assert_eq!(ask(&both, 1, 50_000), (CannotSay, vec![7, 8]));
}

#[test]
fn a_restart_of_a_standalone_node_ends_its_claims() {
    let mut n1 = NodeLog::new("n1", 0);
    n1.opened(10_000, false);
    n1.claimed(20_000, at(0, 1), 7);
    n1.closed(30_000);
    n1.opened(40_000, false);
    n1.claimed(50_000, at(0, 1), 8);
    n1.mark(60_000);
    let logs = [n1];
    assert_eq!(ask(&logs, 1, 25_000), (Held, vec![7]));
    assert_eq!(answer(&logs, 1, 25_000).holders[0].end, TenancyEnd::NodeStopped);
    assert_eq!(ask(&logs, 1, 35_000), (Nobody, vec![]));
    assert_eq!(ask(&logs, 1, 55_000), (Held, vec![8]));
}

#[test]
fn a_home_has_its_prefixes_beside_its_ports() {
    let mut n1 = owner("n1");
    for lane in 1..8 {
        n1.taken(10_000, lane, 3, None);
        n1.listed(10_000, lane, 3, 1);
    }
    let block = LaneBlock { lane: 5, epoch: 3, block: 0 };
    n1.allocated(20_000, block, 7);
    n1.claimed(20_000, at(3, 1), 7);
    n1.claimed(25_000, at(3, 2), 7);
    n1.claimed(26_000, at(3, 3), 8);
    n1.mark(60_000);
    let question = question(About::Home([10, 200, 0, 7].into(), None), 30_000, 40_000);
    let answer = search_logs(&[&n1.text()], &question).expect("memory is read");
    assert_eq!((answer.verdict, answer.missing), (Held, vec![]));
    let held: Vec<Holding> = answer.holders.iter().map(|holder| holder.holding).collect();
    let prefix = |prefix| Holding::Prefix(Prefix64::of(at(3, prefix).address()));
    let (first, last) = (block.port(), block.port() + 255);
    let ports = Holding::Ports { public: [203, 0, 113, 1].into(), first, last };
    assert_eq!(held, [ports, prefix(1), prefix(2)]);
}

/// Lines of an older version have no prefixes; the logs of a node go on across its upgrade.
#[test]
fn lines_of_an_older_version_stay_readable_beside_prefixes() {
    let old = "{\"time\":\"1970-01-01T00:00:05.000Z\",\"event\":\"log-opened\",\"node\":\"n1\",\"sequence\":1}\n\
               {\"time\":\"1970-01-01T00:00:06.000Z\",\"event\":\"block-allocated\",\"shard\":1,\
               \"subscriber\":\"10.200.0.4\",\"public\":\"203.0.113.1\",\"ports\":\"1024-1279\",\
               \"node\":\"n1\",\"sequence\":2}\n\
               {\"time\":\"1970-01-01T00:00:08.000Z\",\"event\":\"log-closed\",\"node\":\"n1\",\"sequence\":3}\n";
    let mut n1 = NodeLog::new("n1", 0);
    n1.lines.push(old.to_owned());
    n1.opened(10_000, false);
    n1.claimed(20_000, at(0, 1), 7);
    n1.mark(60_000);
    let logs = [n1];
    assert_eq!(ask(&logs, 1, 30_000), (Held, vec![7]));
    let about = About::Port([203, 0, 113, 1].into(), 1100);
    let answer = answer_about(&logs, about, 7000);
    assert_eq!((answer.verdict, homes(&answer), answer.lines_unreadable), (Held, vec![4], 0));
}

/// A reader that does not know an event, as one older than prefixes does not know theirs, answers
/// for the lane that it cannot say until it knows a whole listing.
#[test]
fn an_event_that_a_reader_does_not_know_is_a_gap_in_its_lane() {
    let mut n1 = owner("n1");
    n1.claimed(20_000, at(3, 1), 7);
    n1.mark(25_000);
    n1.claimed(30_000, at(3, 2), 8);
    n1.mark(35_000);
    let last = n1.lines.len() - 2;
    n1.lines[last] = n1.lines[last].replace("prefix-claimed", "prefix-delegated");
    n1.mark(40_000);
    let from = n1.index(LANE, 3);
    n1.prefix_held(50_000, at(3, 1), 7);
    n1.listed(50_010, LANE, 3, from);
    n1.mark(60_000);
    let logs = [n1];
    assert_eq!(ask(&logs, 1, 22_000), (Held, vec![7]));
    assert_eq!(ask(&logs, 1, 38_000).0, CannotSay);
    let answer = answer(&logs, 1, 55_000);
    assert_eq!((answer.verdict, answer.lines_unreadable), (Held, 0));
}

/// A time in which a home held the prefix.
struct Truth {
    home: u8,
    from_ms: u64,
    until_ms: u64,
}

/// A random history of one prefix that homes claim and release regardless of each other, with
/// listings, hand-overs and lost lines. A claim lasts for the hold time at least.
fn shared_history(random: &mut Random) -> ([NodeLog; 2], Vec<Truth>, u64) {
    let (mut logs, mut owner, mut epoch) = ([owner("n1"), NodeLog::new("n2", 0)], 0, 3);
    logs[1].opened(10_000, true);
    let (mut now_ms, mut held, mut truths) = (20_000, [None; 3], Vec::new());
    let mut changed_ms = [0; 3];
    for _ in 0..150 {
        now_ms += 1 + random.below(4000);
        let prefix = at(epoch, 1);
        match random.below(16) {
            0 | 1 => {
                if random.is_one_in(2) {
                    logs[owner].left(now_ms, LANE, epoch);
                    (owner, epoch) = (1 - owner, epoch + 2);
                    logs[owner].taken(now_ms, LANE, epoch, Some(epoch - 2));
                }
                let from = logs[owner].index(LANE, epoch);
                for (home, _) in (0..).zip(held).filter(|(_, since)| since.is_some()) {
                    logs[owner].prefix_held(now_ms, at(epoch, 1), home);
                }
                logs[owner].listed(now_ms, LANE, epoch, from);
            }
            2 | 3 => logs[random.below(2) as usize].mark(now_ms),
            _ => {
                let home = random.below(3) as u8;
                if now_ms - changed_ms[usize::from(home)] < HOLD_MS {
                    continue;
                }
                changed_ms[usize::from(home)] = now_ms;
                match held[usize::from(home)].take() {
                    Some(from_ms) => {
                        truths.push(Truth { home, from_ms, until_ms: now_ms });
                        logs[owner].prefix_released(now_ms, prefix, home);
                    }
                    None => {
                        held[usize::from(home)] = Some(now_ms);
                        logs[owner].claimed(now_ms, prefix, home);
                    }
                }
                if random.is_one_in(16) {
                    logs[owner].lose_last();
                }
            }
        }
    }
    logs.iter_mut().for_each(|log| log.mark(now_ms));
    for (home, since) in (0..).zip(held) {
        truths.extend(since.map(|from_ms| Truth { home, from_ms, until_ms: now_ms }));
    }
    (logs, truths, now_ms)
}

#[test]
fn an_answer_about_a_shared_prefix_is_never_wrong() {
    let (mut held, mut nobody, mut cannot_say) = (0, 0, 0);
    for seed in 1..=400 {
        let mut random = Random::new(seed);
        let (mut logs, truths, end_ms) = shared_history(&mut random);
        if random.is_one_in(4) {
            let node = random.below(2) as usize;
            let kept = random.below(logs[node].lines.len() as u64) as usize;
            logs[node].lines.truncate(kept);
        }
        for _ in 0..20 {
            let at_ms = 20_000 + random.below(end_ms - 20_000);
            let answer = answer(&logs, 1, at_ms);
            let case = format!("seed {seed} at {at_ms} ms: {answer:#?}");
            let had = |reach_ms: u64| {
                let is_then = |truth: &&Truth| {
                    truth.from_ms < at_ms + reach_ms && at_ms < truth.until_ms + reach_ms
                };
                truths.iter().filter(is_then).map(|truth| truth.home).collect::<BTreeSet<u8>>()
            };
            let named: BTreeSet<u8> = homes(&answer).into_iter().collect();
            match answer.verdict {
                Held => {
                    held += 1;
                    assert!(named.len() == 1 && had(0).is_subset(&named), "{case}");
                    assert!(named.is_subset(&had(1001)), "{case}");
                }
                Nobody => {
                    nobody += 1;
                    assert_eq!(had(0), BTreeSet::new(), "{case}");
                }
                CannotSay => cannot_say += 1,
            }
        }
    }
    assert!(held > 500 && nobody > 100 && cannot_say > 1000, "{held} {nobody} {cannot_say}");
}
