use fastrand::Rng;

use super::*;
use crate::shapes::{RuleShape, ShapeAddress, filters, question};
use crate::{FlowKind, FlowOrigin, PortRange, Prefix, first_match};

/// Compares the compiled rules with the plain search. Returns whether the rules compile.
fn check<A: ShapeAddress>(shape: RuleShape, count: u32, seed: u64) -> bool {
    let rng = &mut Rng::with_seed(seed);
    let filters = filters::<A>(shape, count, rng);
    let classifier = match Classifier::new(&filters) {
        Ok(classifier) => classifier,
        Err(error) => {
            assert!(!error.rules.is_empty() && error.count > 64, "{error}");
            return false;
        }
    };
    let mut walks = QuestionWalks::default();
    for _ in 0..20 {
        let count = rng.usize(0..=TOGETHER);
        let questions: Vec<_> = (0..count).map(|_| question(&filters, rng)).collect();
        let mut found = vec![0; questions.len()];
        classifier.find_all(questions.iter().copied(), &mut walks, &mut found);
        for (question, found) in questions.iter().zip(found) {
            let expected = first_match(&filters, question);
            assert_eq!(
                (classifier.find(question), found),
                (expected, expected.unwrap_or(NO_RULE)),
                "{shape:?}, {count} rules, seed {seed}: {question:x?}"
            );
        }
    }
    true
}

#[test]
fn compiled_rules_decide_as_the_list_does() {
    for shape in RuleShape::ALL {
        let mut compiled = 0;
        for seed in 0..100 {
            let count = Rng::with_seed(seed).u32(0..300);
            compiled += u32::from(check::<u32>(shape, count, seed));
            compiled += u32::from(check::<u128>(shape, count, seed));
        }
        assert!(compiled >= 100, "{shape:?}: {compiled} of 200 lists compile");
    }
}

#[test]
fn long_lists_decide_as_the_list_does() {
    for shape in [RuleShape::Provider, RuleShape::AccessLists, RuleShape::Chains] {
        assert!(check::<u32>(shape, 10_000, 1), "{shape:?}");
        assert!(check::<u128>(shape, 10_000, 1), "{shape:?}");
    }
}

/// The paths of 70 nested prefixes: lists that are copied, and lists that are linked.
#[test]
fn filters_of_all_outer_prefixes_are_compared() {
    let address = 0xffff_ffff_ffff_ffff_ffff_ffff_ffff_ffff_u128;
    let kind = FlowKind::new(FlowOrigin::Home, 6).unwrap();
    // The longest prefix decides last, so all filters are compared.
    let filters: Vec<RuleFilter<u128>> = (1..=60)
        .map(|len| RuleFilter {
            remote: Prefix::new(address, len),
            remote_ports: PortRange { first: u16::from(len), last: u16::from(len) },
            ..RuleFilter::all(u32::from(len))
        })
        .collect();
    let classifier = Classifier::new(&filters).unwrap();
    let mut question =
        Question { kind, group: 3, local: 1, remote: address, local_port: 1, remote_port: 0 };
    for port in 0..=61 {
        question.remote_port = port;
        assert_eq!(classifier.find(&question), first_match(&filters, &question), "{port}");
    }
}

#[test]
fn filters_that_agree_on_all_addresses_and_ports_are_refused_with_their_rules() {
    // Pairs of groups, none of which is in another one.
    let pairs = (0..16_u16).flat_map(|one| (0..one).map(move |other| 1 << one | 1 << other));
    let alike = pairs.zip(0..).map(|(groups, rule)| RuleFilter {
        groups,
        local: Prefix::new(0x0ac8_0000 + rule, 32),
        remote: Prefix::new(0xc633_6400_u32, 24),
        ..RuleFilter::all(rule)
    });
    let mut filters: Vec<RuleFilter<u32>> = alike.collect();
    // The homes differ, so they are found through these.
    assert!(Classifier::new(&filters).is_ok());
    filters.iter_mut().for_each(|filter| filter.local = Prefix::new(0x0ac8_0000, 32));
    let error = Classifier::new(&filters).expect_err("120 filters are more than 64");
    assert_eq!((error.count, error.rules.len()), (120, 120));
    assert!(error.to_string().starts_with("120 filters may have to be compared"), "{error}");
}

#[test]
fn a_set_of_prefixes_shares_one_list_where_they_are_dense() {
    let blocked = |number: u32| RuleFilter {
        remote: Prefix::new(0xc633_0000 + number * 3, 32),
        ..RuleFilter::all(7)
    };
    let filters: Vec<RuleFilter<u32>> = (0..200_000).map(blocked).collect();
    let classifier = Classifier::new(&filters).unwrap();
    assert_eq!(classifier.lists.bytes(), 2 * 32);
    assert_eq!(classifier.bound().comparisons, 1);
    assert!(classifier.bytes() < 16 * filters.len(), "{}", classifier.bytes());
}

#[test]
fn scattered_prefixes_take_little_more_than_their_filters() {
    let blocked = |rule: u32| RuleFilter {
        remote: Prefix::new(rule.wrapping_mul(0x9e37_79b9), 32),
        ..RuleFilter::all(rule)
    };
    let filters: Vec<RuleFilter<u32>> = (0..10_000).map(blocked).collect();
    let classifier = Classifier::new(&filters).unwrap();
    assert!(classifier.bytes() < 64 * filters.len(), "{}", classifier.bytes());
}

/// A filter of IPv6 has two prefixes of 16 bytes, and so twice the size.
#[test]
fn scattered_prefixes_of_ipv6_take_little_more_than_their_filters() {
    let rng = &mut Rng::with_seed(1);
    let rule =
        |rule| RuleFilter { remote: Prefix::new(u128::remote(rng), 64), ..RuleFilter::all(rule) };
    let filters: Vec<RuleFilter<u128>> = (0..10_000).map(rule).collect();
    let classifier = Classifier::new(&filters).unwrap();
    assert!(classifier.bytes() < 96 * filters.len(), "{}", classifier.bytes());
}

#[test]
fn no_rules_decide_nothing_and_take_nearly_no_memory() {
    let classifier = Classifier::<u32>::new(&[]).unwrap();
    let question = question(&[], &mut Rng::with_seed(1));
    assert_eq!(classifier.find(&question), None);
    assert!(classifier.bytes() < 1000, "{}", classifier.bytes());
}

#[test]
fn group_of_the_local_address_decides_as_that_of_the_question() {
    check_groups::<u32>(&[0, 8, 16, 24, 28, 32]);
    check_groups::<u128>(&[0, 29, 40, 48, 56, 64, 128]);
}

/// Compares rules that know the groups of local addresses with the plain search. `lengths` are
/// those of the groups' prefixes.
fn check_groups<A: ShapeAddress>(lengths: &[u8]) {
    for seed in 0..100 {
        let rng = &mut Rng::with_seed(seed);
        let count = rng.u32(0..200);
        let mut filters = filters::<A>(RuleShape::Provider, count, rng);
        filters.iter_mut().for_each(|filter| filter.groups = rng.u16(..));
        let group = |rng: &mut Rng| {
            (Prefix::new(A::home(rng), *rng.choice(lengths).unwrap()), rng.u8(..16))
        };
        let mut groups: Vec<(Prefix<A>, u8)> = (0..rng.u8(0..20)).map(|_| group(rng)).collect();
        groups.sort();
        groups.dedup_by_key(|(prefix, _)| *prefix);
        let classifier = Classifier::with_groups(&filters, &groups).unwrap();
        for _ in 0..200 {
            let mut question = question(&filters, rng);
            let covering = groups.iter().filter(|(prefix, _)| prefix.contains(question.local));
            let longest = covering.max_by_key(|(prefix, _)| prefix.bits());
            question.group = longest.map_or(0, |&(_, group)| group);
            assert_eq!(classifier.group_of(question.local), question.group, "seed {seed}");
            let expected = first_match(&filters, &question);
            question.group = 0;
            assert_eq!(classifier.find(&question), expected, "seed {seed}: {question:x?}");
            let mut found = [0];
            classifier.find_all([question].into_iter(), &mut QuestionWalks::default(), &mut found);
            assert_eq!(found, [expected.unwrap_or(NO_RULE)], "seed {seed}: {question:x?}");
        }
    }
}

/// Compares the rules for kinds and groups alone with the plain search.
#[test]
fn wide_rules_decide_where_no_other_rule_does() {
    for seed in 0..100 {
        let rng = &mut Rng::with_seed(seed);
        let mut filters = filters::<u32>(RuleShape::Firewall, 30, rng);
        for filter in &mut filters {
            if rng.u8(0..4) == 0 {
                let (kinds, groups) = (filter.kinds, rng.u16(..));
                *filter = RuleFilter { kinds, groups, ..RuleFilter::all(filter.rule) };
            }
        }
        let classifier = Classifier::new(&filters).unwrap();
        for _ in 0..500 {
            let question = question(&filters, rng);
            let expected = first_match(&filters, &question);
            assert_eq!(classifier.find(&question), expected, "seed {seed}: {question:x?}");
        }
    }
}

#[test]
fn packet_that_costs_most_is_named_with_its_rules() {
    let port = |port| PortRange { first: port, last: port };
    let net = |third: u32| Prefix::new(0xc000_0000 + (third << 8), 24);
    let to = |rule, third| RuleFilter { remote: net(third), ..RuleFilter::all(rule) };
    let few = [
        RuleFilter { remote_ports: port(25), ..RuleFilter::all(0) },
        to(1, 2),
        RuleFilter { groups: 2, ..to(2, 7) },
        to(3, 7),
        RuleFilter { local: Prefix::new(0x0ac8_0001, 32), ..RuleFilter::all(4) },
    ];
    let classifier = Classifier::new(&few).unwrap();
    let (worst, rules) = classifier.worst();
    let found = (worst.local, worst.remote, worst.remote_port, worst.local_port);
    assert_eq!(found, (0x0ac8_0001, net(7).address(), 25, 0));
    assert_eq!((rules, classifier.bound().comparisons), (vec![0, 2, 3, 4], 4));

    for shape in RuleShape::ALL {
        let filters = filters::<u32>(shape, 200, &mut Rng::with_seed(3));
        let Ok(classifier) = Classifier::new(&filters) else { continue };
        let (_, rules) = classifier.worst();
        assert!(rules.len() <= classifier.bound().comparisons, "{shape:?}");
    }
}
