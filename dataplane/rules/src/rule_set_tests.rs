use fastrand::Rng;

use super::*;
use crate::filter::first_match;
use crate::flow_class::FlowClass;
use crate::flow_kind::{FlowKind, FlowOrigin};
use crate::flow_policy::Destination;
use crate::shapes::{RuleShape, ShapeAddress, filters, question as random_question};

fn question(group: u8, remote: u32) -> Question<u32> {
    let kind = FlowKind::new(FlowOrigin::Home, 17).unwrap();
    Question { kind, group, local: 1, remote, local_port: 1000, remote_port: 53 }
}

#[test]
fn first_rule_that_fits_decides_with_its_action() {
    let of_group = RuleFilter { groups: 1 << 3, ..RuleFilter::all(0) };
    let to_net = RuleFilter { remote: Prefix::new(0x0a00_0000, 8), ..RuleFilter::all(1) };
    let actions = vec![RuleAction::Accept, RuleAction::Reject, RuleAction::Drop];
    let groups = vec![(Prefix::new(0x0a64_0000, 16), 3), (Prefix::new(0x0a64_0100, 24), 2)];
    let set = RuleSet::new(&[of_group, to_net, RuleFilter::all(2)], actions, groups).unwrap();
    let decides = |question| set.find(&question).map(|it| (it.rule, it.action));
    assert_eq!(decides(question(3, 0x0a00_0001)), Some((0, RuleAction::Accept)));
    assert_eq!(decides(question(0, 0x0a00_0001)), Some((1, RuleAction::Reject)));
    assert_eq!(decides(question(0, 0x0b00_0001)), Some((2, RuleAction::Drop)));
    let groups = [0x0a64_0001, 0x0a64_0101, 0x0a65_0001].map(|it| set.group_of(it));
    assert_eq!(groups, [3, 2, 0]);
    assert_eq!((set.rules(), set.is_empty(), set.has_rematch()), (3, false, false));
    assert!(!set.has_bypass());
    let set = set.with_rematch(vec![1]).with_log(vec![0, 2]);
    assert_eq!([0, 1, 2].map(|rule| set.is_rematch(rule)), [false, true, false]);
    assert_eq!([0, 1, 2].map(|rule| set.is_logged(rule)), [true, false, true]);
}

#[test]
fn rules_give_their_flows_what_they_say() {
    let rules = [0, 1, 2].map(|rule| RuleFilter { groups: 1 << rule, ..RuleFilter::all(rule) });
    let actions = vec![RuleAction::Accept; 3];
    let mail = SourcePool::new(2).unwrap();
    let class = FlowClass::new(2).unwrap();
    let given = FlowPolicy {
        class,
        source: mail,
        destination: Some(Destination { address: 7, port: None }),
    };
    let pools = vec![(Prefix::new(0xcb00_7108, 30), mail)];
    let set = RuleSet::new(&rules, actions, Vec::new()).unwrap();
    assert!(!set.has_destinations() && !set.has_source_pools());
    let set = set.with_policies(&[(0, given), (1, FlowPolicy::of_class(class))]);
    let set = set.with_source_pools(pools);
    let policy = |group| set.find(&question(group, 1)).map(|it| it.policy);
    let expected = [given, FlowPolicy::of_class(class), FlowPolicy::NONE].map(Some);
    assert_eq!([0, 1, 2].map(policy), expected);
    assert_eq!([0, 1, 2, NO_RULE].map(|it| set.accepts_plainly(it)), [false, false, true, true]);
    assert!(set.has_destinations() && set.has_source_pools());
    let of = [0xcb00_7107, 0xcb00_7108, 0xcb00_710b, 0xcb00_710c].map(|it| set.source_pool_of(it));
    assert_eq!(of, [SourcePool::COMMON, mail, mail, SourcePool::COMMON]);
    assert_eq!((FlowClass::new(4), SourcePool::new(8)), (None, None));
}

#[test]
fn set_without_rules_decides_on_nothing() {
    let set = RuleSet::empty();
    assert!(set.is_empty() && set.find(&question(0, 1)).is_none());
    assert_eq!((set.rules(), set.group_of(7), set.deciding(NO_RULE)), (0, 0, None));
}

/// Draws the filters of `count` rules, of which those of a number that `is_about` refuses have none
/// in this family.
fn family<A: ShapeAddress>(
    count: u32,
    is_about: impl Fn(u32) -> bool,
    rng: &mut Rng,
) -> Vec<RuleFilter<A>> {
    let mut drawn = filters::<A>(RuleShape::Provider, count - 1, rng);
    drawn.retain(|filter| is_about(filter.rule));
    drawn
}

#[test]
fn rules_of_both_families_decide_by_their_own_filters_under_one_numbering() {
    let mut decided = [0, 0];
    for seed in 0..40 {
        let rng = &mut Rng::with_seed(seed);
        let count = rng.u32(1..300);
        // A third of the rules is about IPv4 alone, a third about IPv6 alone.
        let of_ipv4 = family::<u32>(count, |rule| rule % 3 != 1, rng);
        let of_ipv6 = family::<u128>(count, |rule| rule % 3 != 0, rng);
        let actions = (0..count).map(|rule| match rule % 2 {
            0 => RuleAction::Drop,
            _ => RuleAction::Accept,
        });
        let set = RuleSet::new(&of_ipv4, actions.collect(), Vec::new()).unwrap();
        let set = set.with_ipv6(&of_ipv6, Vec::new()).unwrap();
        assert_eq!((set.rules(), set.has_ipv6()), (count as usize, !of_ipv6.is_empty()));
        for _ in 0..100 {
            let question = random_question(&of_ipv4, rng);
            let expected = first_match(&of_ipv4, &question);
            assert_eq!(set.find(&question).map(|it| it.rule), expected, "seed {seed}");
            decided[0] += usize::from(expected.is_some());
            let question = random_question(&of_ipv6, rng);
            let expected = first_match(&of_ipv6, &question);
            let found = set.find6(&question);
            assert_eq!(found.map(|it| it.rule), expected, "seed {seed}");
            assert!(found.is_none_or(|it| Some(it) == set.deciding(it.rule)));
            let (mut all, mut walks) = ([0], QuestionWalks::default());
            set.find_all6([question].into_iter(), &mut walks, &mut all);
            assert_eq!(all, [expected.unwrap_or(NO_RULE)], "seed {seed}");
            decided[1] += usize::from(expected.is_some());
        }
    }
    assert!(decided.iter().all(|&count| count > 1000), "{decided:?}");
}

#[test]
fn rules_without_filters_of_ipv6_decide_on_no_flow_of_it() {
    let set = RuleSet::new(&[RuleFilter::all(0)], vec![RuleAction::Drop], Vec::new()).unwrap();
    let kind = FlowKind::new6(FlowOrigin::Home, 58).unwrap();
    let asked = Question { kind, group: 0, local: 1, remote: 2, local_port: 0, remote_port: 0 };
    assert_eq!((set.find6(&asked), set.has_ipv6(), set.is_empty()), (None, false, false));
    let set = set.with_ipv6(&[RuleFilter::all(0)], Vec::new()).unwrap();
    assert_eq!(set.find6(&asked).map(|it| it.action), Some(RuleAction::Drop));
    assert!(set.has_ipv6());
}

#[test]
fn group_of_an_ipv6_flow_is_that_of_its_address_or_that_of_its_question() {
    let of_group = RuleFilter::<u128> { groups: 1 << 3, ..RuleFilter::all(0) };
    let set = || {
        let actions = vec![RuleAction::Drop];
        let groups = vec![(Prefix::new(0x0a64_0001, 32), 3)];
        RuleSet::new(&[], actions, groups).unwrap()
    };
    let kind = FlowKind::new6(FlowOrigin::Home, 6).unwrap();
    let home = 0x2001_0db8_0007_u128 << 80;
    let asked = |group, local| Question {
        kind,
        group,
        local,
        remote: 1 << 125,
        local_port: 1000,
        remote_port: 443,
    };
    // Homes without tunnels, by their own prefixes.
    let groups = vec![(Prefix::new(home, 48), 3), (Prefix::new(home, 56), 5)];
    let plain = set().with_ipv6(&[of_group], groups).unwrap();
    let other = 1 << 90;
    assert_eq!([home, home + other, 0].map(|it| plain.group_of6(it)), [5, 0, 0]);
    let inside = home + (1 << 75);
    assert_eq!(plain.group_of6(inside), 3);
    let own = |local| plain.find6(&asked(plain.group_of6(local), local));
    assert!(own(inside).is_some() && own(home).is_none());
    // A prefix of a tunnel's outer addresses may have inside addresses of other homes.
    assert!(plain.find6(&asked(5, inside)).is_none() && plain.find6(&asked(3, home)).is_some());
    assert!(plain.has_groups() && plain.has_groups6());
    // Homes in tunnels over IPv4.
    let tunnels = set().with_ipv6(&[of_group], Vec::new()).unwrap();
    let of_outer = |outer| tunnels.find6(&asked(tunnels.group_of(outer), inside));
    assert!(of_outer(0x0a64_0001).is_some() && of_outer(0x0a64_0002).is_none());
    assert_eq!(tunnels.group_of6(inside), 0);
    assert!(tunnels.has_groups() && !tunnels.has_groups6() && !RuleSet::empty().has_groups());
}

#[test]
#[should_panic(expected = "each rule has an action")]
fn filter_of_ipv6_of_a_rule_that_the_set_lacks_panics() {
    let _ = RuleSet::empty().with_ipv6(&[RuleFilter::all(0)], Vec::new());
}
