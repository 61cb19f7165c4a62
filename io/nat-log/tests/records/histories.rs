//! Random histories of a lane with port blocks, or of the lanes that record IPv6 prefixes, over
//! several nodes: takeovers in order and after deaths, lanes that come back at the same epoch, to
//! the same process or a later one, lost records, listings, rotated files, clocks that differ by up
//! to a second; and two sides of a cluster that do not hear each other, each of which lets homes
//! claim prefixes. Whichever logs are left, an answer is never wrong; and if no log or record is
//! missing there is an answer.

use std::collections::BTreeSet;

use weir_nat_log::{LogQuestion, LogVerdict, search_logs};

use crate::lane_world::{BEGIN_MS, BLOCKS, CLOCK_ERROR_MS, Kind, SKEW_MS, World};
use crate::node_log::{homes, question};

#[derive(Default, Debug)]
struct Count {
    held: u32,
    nobody: u32,
    cannot_say: u32,
}

fn check(world: &World, files: &[&[u8]], block: u16, at_ms: u64, count: &mut Count, case: &str) {
    let question: LogQuestion = question(world.kind.about(block), at_ms, at_ms);
    let answer = search_logs(files, &question).expect("memory is read");
    let case = format!("{case}, block {block} at {at_ms} ms: {answer:#?}");
    let named: BTreeSet<u8> = homes(&answer).into_iter().collect();
    let reach_ms = CLOCK_ERROR_MS + SKEW_MS + 1;
    match answer.verdict {
        LogVerdict::Held => {
            count.held += 1;
            assert_eq!(named.len(), 1, "{case}");
            assert!(world.has(block, at_ms).is_subset(&named), "a wrong home is named: {case}");
            let near = world.had(block, at_ms - reach_ms, at_ms + reach_ms);
            assert!(
                named.is_subset(&near) || world.is_pause(block, at_ms, &named),
                "the holder is not near that time: {case}"
            );
        }
        LogVerdict::Nobody => {
            count.nobody += 1;
            assert!(named.is_empty(), "{case}");
            assert_eq!(world.has(block, at_ms), BTreeSet::new(), "it was held: {case}");
        }
        LogVerdict::CannotSay => count.cannot_say += 1,
    }
}

fn ask_subsets(seeds: u64, kind_of: impl Fn(u64) -> Kind) {
    let (mut all, mut some) = (Count::default(), Count::default());
    for seed in 1..=seeds {
        let mut world = World::new(kind_of(seed), seed);
        world.play(60);
        let files = world.files();
        let whole: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        for number in 0..10 {
            let span = world.end_ms() - BEGIN_MS - 2 * (CLOCK_ERROR_MS + SKEW_MS);
            let at_ms = BEGIN_MS + CLOCK_ERROR_MS + SKEW_MS + world.random.below(span);
            let block = world.random.below(BLOCKS) as u16;
            check(&world, &whole, block, at_ms, &mut all, &format!("seed {seed}, all logs"));
            let share = 1 + world.random.below(8);
            let mut part = whole.clone();
            part.retain(|_| !world.random.is_one_in(share + 1));
            // In any order.
            let turn = world.random.below(part.len().max(1) as u64) as usize;
            part.rotate_left(turn);
            let case = format!("seed {seed}, question {number}, some logs");
            check(&world, &part, block, at_ms, &mut some, &case);
        }
    }
    // The histories are busy enough to be meaningful.
    let least = |count: u32, of_thousand: u64| u64::from(count) * 1000 > seeds * of_thousand;
    assert!(least(all.held, 1700) && least(all.nobody, 700), "{all:?}");
    assert!(least(all.cannot_say, 80), "{all:?}");
    assert!(least(some.held, 400) && least(some.nobody, 250), "{some:?}");
    assert!(least(some.cannot_say, 800), "{some:?}");
}

/// What homes claim: prefixes, or addresses without translation.
fn claimed(seed: u64) -> Kind {
    if seed.is_multiple_of(2) { Kind::Prefixes } else { Kind::Addresses }
}

#[test]
fn no_subset_of_the_logs_of_any_history_gives_a_wrong_answer() {
    ask_subsets(1200, |_| Kind::Blocks);
}

#[test]
fn no_subset_of_the_logs_of_any_history_names_a_wrong_home_of_a_prefix() {
    ask_subsets(500, claimed);
}

#[test]
fn with_all_logs_and_no_death_every_question_has_an_answer() {
    ask_whole(1200, |_| Kind::Blocks);
}

#[test]
fn with_all_logs_and_no_death_every_question_about_a_prefix_has_an_answer() {
    ask_whole(600, claimed);
}

fn ask_whole(seeds: u64, kind_of: impl Fn(u64) -> Kind) {
    let mut answers = 0;
    for seed in 1..=seeds {
        let mut world = World::new(kind_of(seed), seed);
        if world.may_fail() {
            continue;
        }
        world.play(60);
        let files = world.files();
        let whole: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        for _ in 0..10 {
            let margin = CLOCK_ERROR_MS + SKEW_MS;
            let span = world.end_ms() - BEGIN_MS - 2 * margin;
            let at_ms = BEGIN_MS + margin + world.random.below(span);
            let block = world.random.below(BLOCKS) as u16;
            let question = question(world.kind.about(block), at_ms, at_ms);
            let answer = search_logs(&whole, &question).expect("memory is read");
            let case = format!("seed {seed}, block {block} at {at_ms} ms: {answer:#?}");
            if answer.verdict == LogVerdict::CannotSay && world.is_named(block) {
                // Two homes within the clock error, and no other reason.
                assert_eq!(answer.missing, [], "{case}");
                let reach_ms = margin + 1;
                let near = world.had(block, at_ms - reach_ms, at_ms + reach_ms);
                assert!(near.len() > 1, "{case}");
            } else {
                answers += 1;
            }
        }
    }
    assert!(answers > 5 * seeds / 3, "{answers}");
}
