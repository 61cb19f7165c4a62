//! Policies as a file has them: compiled, explained, compared.

mod families;
mod model;

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use weir_config::{LoadedSet, PolicySettings, load_sets};
use weir_policy::{
    ComparedHomes, CompiledPolicy, FlowQuestion, PolicyError, RuleVerdict, compare, compile,
    warnings,
};
use weir_rules::{Destination, RuleAction, SourcePool};

const NODE: &str = r#"
[[worker]]
core = 1
access = { device = "net_null0", address = "10.1.0.1/24", gateway = "10.1.0.2" }
internet = { device = "net_null1", address = "10.2.0.1/24", gateway = "10.2.0.2" }
[access]
subscribers = ["10.200.0.0/16"]
[[shard]]
id = 1
endpoint = "10.100.0.1"
public = ["203.0.113.0/28"]
"#;

const POLICY: &str = r#"
[[set]]
name = "blocked"
prefixes = ["192.0.2.0/25", "192.0.2.128/25", "192.0.2.7", "198.51.100.1"]
[[group]]
name = "business"
subscribers = ["10.200.16.0/20"]
[[group]]
name = "away"
subscribers = ["10.200.64.0/24"]
[[rule]]
name = "mail-of-business"
groups = ["business"]
protocol = "tcp"
remote_port = 25
action = "accept"
[[rule]]
name = "no-smtp"
protocol = "tcp"
remote_port = [25, "465-587"]
action = "reject"
[[rule]]
name = "court-orders"
from = "any"
remote = "@blocked"
action = "drop"
[[rule]]
name = "camera"
from = "internet"
subscribers = "10.200.1.5"
protocol = ["tcp", "udp"]
inside_port = 80
action = "accept"
"#;

const HOME_NETS: [Ipv4Net; 1] = [Ipv4Net::new_assert(Ipv4Addr::new(10, 200, 0, 0), 16)];
const HOMES: ComparedHomes<'_> =
    ComparedHomes { ipv4: &HOME_NETS, ipv6: &[], are_in_tunnels: true, outer6: &[] };

fn read(policy: &str) -> (PolicySettings, Vec<LoadedSet>) {
    let (config, _) = weir_config::parse(&format!("{NODE}{policy}"), "t.toml").unwrap();
    let sets = load_sets(&config.policy, |_| unreachable!("no set has a file")).unwrap();
    (config.policy, sets)
}

/// Reads a policy for homes without tunnels.
fn read_plain(
    policy: &str,
) -> Result<(PolicySettings, Vec<LoadedSet>), Vec<weir_config::Diagnostic>> {
    let node = NODE
        .replace("[access]\n", "[access]\nmode = \"plain\"\n")
        .replace("endpoint = \"10.100.0.1\"", "subscribers = [\"10.200.0.0/16\"]");
    let (config, _) = weir_config::parse(&format!("{node}{policy}"), "t.toml")?;
    let sets = load_sets(&config.policy, |_| unreachable!("no set has a file"))?;
    Ok((config.policy, sets))
}

fn compiled(policy: &str) -> CompiledPolicy {
    let (policy, sets) = read(policy);
    compile(&policy, &sets).unwrap()
}

fn flow(text: &str) -> FlowQuestion {
    FlowQuestion::from_words(&text.split(' ').collect::<Vec<_>>()).unwrap()
}

/// Returns the verdict and the names of all candidates.
fn ask(policy: &CompiledPolicy, text: &str) -> String {
    let flow = flow(text);
    let explained = policy.explain(&flow);
    let verdict = RuleVerdict::of(flow.from, explained.deciding);
    let names: Vec<&str> = explained.candidates.iter().map(|rule| policy.name(*rule)).collect();
    [&[verdict.name()], &names[..]].concat().join(" ")
}

#[test]
fn first_rule_that_fits_decides_and_the_others_are_candidates() {
    let policy = compiled(POLICY);
    for (question, expected) in [
        ("home 10.200.16.1 tcp 1000 1.1.1.1:25", "accept mail-of-business no-smtp"),
        ("home 10.200.16.1 tcp 1000 1.1.1.1:465", "reject no-smtp"),
        ("home 10.200.1.1 tcp 1000 192.0.2.7:25", "reject no-smtp court-orders"),
        ("home 10.200.1.1 udp 1000 192.0.2.7:25", "drop court-orders"),
        ("home 10.200.1.1 icmp 192.0.2.255", "drop court-orders"),
        ("home 10.200.1.1 icmp 192.0.3.0", "accept"),
        ("internet 10.200.1.5 tcp 80 192.0.2.9:5", "drop court-orders camera"),
        ("internet 10.200.1.5 udp 80 1.1.1.1:5", "accept camera"),
        ("internet 10.200.1.5 icmp 1.1.1.1", "filtering"),
        ("internet 10.200.1.6 udp 80 1.1.1.1:5", "filtering"),
        ("home 10.200.1.5 udp 80 1.1.1.1:5", "accept"),
    ] {
        assert_eq!(ask(&policy, question), expected, "{question}");
    }
    let group = |text: &str| policy.group_name(policy.group_of(&flow(text)));
    assert_eq!(group("home 10.200.16.1 icmp 1.1.1.1"), Some("business"));
    assert_eq!(group("home 10.200.64.1 icmp 1.1.1.1"), Some("away"));
    assert_eq!(group("home 10.200.65.1 icmp 1.1.1.1"), None);
}

#[test]
fn prefixes_of_a_set_that_adjoin_are_one_filter() {
    // Rules without addresses have one in each family.
    assert_eq!(compiled(POLICY).filters_by_rule(), [2, 4, 2, 1]);
}

#[test]
fn rule_about_an_empty_set_fits_nothing_and_is_warned_of() {
    let mut policy = read(POLICY).0;
    let empty = [LoadedSet { name: "blocked".into(), ..LoadedSet::default() }];
    let compiled = compile(&policy, &empty).unwrap();
    assert_eq!(ask(&compiled, "home 10.200.1.1 udp 1000 192.0.2.7:25"), "accept");
    let words = |policy: &PolicySettings, compiled: &CompiledPolicy| {
        let found = warnings(policy, &empty, compiled);
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        words(&policy, &compiled),
        [
            "set blocked: it has no entries",
            "rule court-orders: fits nothing: the sets that it names have no entry",
        ]
    );
    policy.rules.retain(|rule| rule.name != "court-orders");
    let found = words(&policy, &compile(&policy, &[]).unwrap());
    assert_eq!(found, ["set blocked: it has no entries", "set blocked: no rule uses it"]);
}

#[test]
fn rules_that_are_never_reached_are_warned_of_with_those_before() {
    let (policy, sets) = read(&format!(
        "{POLICY}
[[rule]]\nname = \"late\"\nremote = [\"192.0.2.9\", \"198.51.100.1\"]\naction = \"accept\"
[[rule]]\nname = \"all\"\nfrom = \"any\"\naction = \"accept\"
[[rule]]\nname = \"last\"\nprotocol = \"udp\"\ninside_port = 53\naction = \"drop\"\n"
    ));
    let compiled = compile(&policy, &sets).unwrap();
    let found: Vec<String> =
        warnings(&policy, &sets, &compiled).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "rule late: never reached: court-orders before it fits all its flows; move it up, or remove it",
            "rule last: never reached: all before it fits all its flows; move it up, or remove it",
        ]
    );
}

#[test]
fn too_many_candidates_for_one_packet_are_refused_with_their_rules() {
    let rule = |at: u32| {
        format!(
            "[[rule]]\nname = \"r{at}\"\nprotocol = \"tcp\"\ninside_port = \"{}-{}\"\n\
             remote_port = \"{}-{}\"\naction = \"drop\"\n",
            100 + at,
            1000 + at,
            200 + at,
            900 - at
        )
    };
    let (policy, sets) = read(&(0..100).map(rule).collect::<String>());
    let error = compile(&policy, &sets).unwrap_err();
    let PolicyError::TooManyCandidates { rules, .. } = &error else { panic!("{error}") };
    assert!(rules.len() > 60, "{rules:?}");
    let text = error.to_string();
    assert!(text.contains("belong to rules r0, r1, r2, r3, r4 and "), "{text}");
    assert_eq!(error.rule(), "r0");
}

#[test]
fn product_of_large_sets_is_refused_before_it_is_made() {
    let (policy, _) = read(
        "[[set]]\nname = \"a\"\nprefixes = \"10.0.0.0/8\"\n\
         [[rule]]\nname = \"both\"\nsubscribers = \"@a\"\nremote = \"@a\"\naction = \"drop\"\n",
    );
    let net = |at: u32| Ipv4Net::new((at * 2).into(), 32).unwrap();
    let large = LoadedSet { name: "a".into(), ipv4: (0..100_000).map(net).collect(), ipv6: vec![] };
    let error = compile(&policy, &[large]).unwrap_err().to_string();
    assert!(error.contains("up to rule both are 10000000000"), "{error}");
    assert!(error.contains("its lists are 100000 x 100000 x 1 x 1"), "{error}");
    let error = compile(&policy, &[]).unwrap_err().to_string();
    assert_eq!(error, "the entries of set a are not here");
}

#[test]
fn changed_decisions_are_found_with_a_flow_each() {
    let homes = &HOMES;
    let old = compiled(POLICY);
    let same = compare(&old, &old, homes);
    assert!(same.asked > 50 && same.changes.is_empty(), "{same:?}");
    for (from, to, old_verdict, new_verdict) in [
        ("\"198.51.100.1\"", "\"198.51.100.2\"", RuleVerdict::Drop, RuleVerdict::Accept),
        ("10.200.16.0/20", "10.200.17.0/24", RuleVerdict::Accept, RuleVerdict::Reject),
        ("action = \"reject\"", "action = \"drop\"", RuleVerdict::Reject, RuleVerdict::Drop),
        (
            "inside_port = 80",
            "inside_port = \"80-81\"",
            RuleVerdict::Filtering,
            RuleVerdict::Accept,
        ),
    ] {
        let changed = POLICY.replacen(from, to, 1);
        assert_ne!(changed, POLICY);
        let new = compiled(&changed);
        let changes = compare(&old, &new, homes).changes;
        let is_found =
            |old, new| changes.iter().any(|it| (it.old.verdict, it.new.verdict) == (old, new));
        assert!(is_found(old_verdict, new_verdict), "{from} -> {to}: {changes:#?}");
    }
    let first = POLICY.find("[[rule]]").unwrap();
    let mut rules: Vec<&str> = POLICY[first..].split("[[rule]]").skip(1).collect();
    rules.reverse();
    let moved = format!("{}[[rule]]{}", &POLICY[..first], rules.join("[[rule]]"));
    let new = compiled(&moved);
    let changes = compare(&old, &new, homes).changes;
    let is_swap = |it: &weir_policy::DecisionChange<'_>| {
        it.old.verdict == RuleVerdict::Accept && it.new.verdict == RuleVerdict::Reject
    };
    assert!(changes.iter().any(is_swap), "{changes:#?}");
}

#[test]
fn class_of_a_rule_is_found_by_its_name_and_its_change_is_a_change() {
    let text = |class: &str| {
        format!(
            "[[class]]\nid = 3\nname = \"voice\"\ndscp = 46\n\
             [[class]]\nid = 1\nname = \"bulk\"\ndscp = 1\n\
             [[rule]]\nname = \"phones\"\nprotocol = \"udp\"\nremote_port = 5060\n\
             action = \"accept\"\nclass = \"{class}\"\n"
        )
    };
    let (voice, bulk) = (compiled(&text("voice")), compiled(&text("bulk")));
    let words = ["home", "10.200.1.5", "udp", "40000", "198.51.100.7:5060"];
    let flow = FlowQuestion::from_words(&words).unwrap();
    let decided = voice.decide(&flow);
    assert_eq!((decided.class.number(), voice.class_name(decided.class)), (3, Some("voice")));
    let changes = compare(&voice, &bulk, &HOMES).changes;
    let is_change = |it: &weir_policy::DecisionChange<'_>| {
        (it.old.class.number(), it.new.class.number(), it.old.rule) == (3, 1, Some(0))
    };
    assert!(!changes.is_empty() && changes.iter().all(is_change), "{changes:#?}");
}

/// Returns a policy with a rule about mail from the source pool `mail`, and one that redirects.
fn addresses(pools: &[(&str, &str)], mail: &str, to: &str) -> String {
    let pool = |(name, net): &(&str, &str)| {
        format!("[[source_pool]]\nname = \"{name}\"\npublic = \"{net}\"\n")
    };
    let pools: String = pools.iter().map(pool).collect();
    format!(
        "{pools}[[rule]]\nname = \"mail\"\nprotocol = \"tcp\"\nremote_port = 25\n\
         action = \"accept\"\nsource_pool = \"{mail}\"\n\
         [[rule]]\nname = \"dns\"\nprotocol = \"udp\"\nremote_port = 53\n\
         action = \"redirect\"\nto = \"{to}\"\n"
    )
}

fn action(policy: &CompiledPolicy, rule: u32) -> RuleAction {
    policy.rules.deciding(rule).unwrap().action
}

const POOLS: [(&str, &str); 2] = [("mail", "203.0.113.8/31"), ("bulk", "203.0.113.4/32")];

#[test]
fn rules_give_source_pools_by_the_order_of_their_names_and_destinations() {
    let policy = compiled(&addresses(&POOLS, "mail", "192.0.2.53:5353"));
    let decided = policy.decide(&flow("home 10.200.1.5 tcp 4000 198.51.100.7:25"));
    assert_eq!((decided.verdict, decided.source_pool), (RuleVerdict::Accept, Some("mail")));
    let mail = policy.rules.deciding(0).unwrap().policy.source;
    assert_eq!((mail.number(), policy.source_pool_name(mail)), (2, Some("mail")));
    let of = |text: &str| policy.rules.source_pool_of(text.parse::<Ipv4Addr>().unwrap().into());
    let pools = ["203.0.113.4", "203.0.113.8", "203.0.113.9", "203.0.113.10"].map(of);
    assert_eq!(pools.map(SourcePool::number), [1, 2, 2, 0]);
    assert_eq!(policy.source_pool_name(SourcePool::COMMON), None);
    let decided = policy.decide(&flow("home 10.200.1.5 udp 4000 198.51.100.7:53"));
    let address = u32::from(Ipv4Addr::new(192, 0, 2, 53));
    assert_eq!(decided.verdict, RuleVerdict::Redirect);
    assert_eq!(decided.destination, Some(Destination { address, port: Some(5353) }));
    assert_eq!((decided.source_pool, action(&policy, 1)), (None, RuleAction::Accept));
    let port_stays = compiled(&addresses(&POOLS, "mail", "192.0.2.53"));
    let decided = port_stays.decide(&flow("home 10.200.1.5 udp 4000 198.51.100.7:53"));
    assert_eq!(decided.destination, Some(Destination { address, port: None }));
    assert_eq!(RuleVerdict::from_name("redirect"), Some(RuleVerdict::Redirect));
}

#[test]
fn flows_with_another_source_pool_or_destination_are_changed_whatever_its_number() {
    let homes = &HOMES;
    let old = compiled(&addresses(&POOLS, "mail", "192.0.2.53"));
    let changed_rules = |new: &str| {
        let new = compiled(new);
        let changes = compare(&old, &new, homes).changes;
        let rules: std::collections::BTreeSet<Option<u32>> =
            changes.iter().map(|it| it.old.rule).collect();
        rules.into_iter().collect::<Vec<_>>()
    };
    let renumbered = [POOLS[0], POOLS[1], ("a", "203.0.113.5/32")];
    assert_eq!(changed_rules(&addresses(&renumbered, "mail", "192.0.2.53")), []);
    assert_eq!(changed_rules(&addresses(&POOLS, "bulk", "192.0.2.53")), [Some(0)]);
    let other_with_the_number = [("x", POOLS[0].1), POOLS[1]];
    assert_eq!(changed_rules(&addresses(&other_with_the_number, "x", "192.0.2.53")), [Some(0)]);
    for to in ["192.0.2.54", "192.0.2.53:53"] {
        assert_eq!(changed_rules(&addresses(&POOLS, "mail", to)), [Some(1)], "{to}");
    }
    let accept = addresses(&POOLS, "mail", "192.0.2.53").replace("redirect", "accept");
    let accept = accept.replace("to = \"192.0.2.53\"\n", "");
    assert_eq!(changed_rules(&accept), [Some(1)]);
}

#[test]
fn more_outcomes_than_a_rule_set_keeps_are_refused_with_the_rule_and_the_fix() {
    let rule = |at: u32| {
        format!(
            "[[rule]]\nname = \"r{at}\"\nremote = \"198.51.{}.{}\"\naction = \"redirect\"\n\
             to = \"192.0.{}.{}\"\n",
            at / 256,
            at % 256,
            at / 256,
            at % 256
        )
    };
    let text = |count: u32| (0..count).map(rule).collect::<String>();
    // One is left for rules that accept and give nothing.
    assert_eq!(compiled(&text(255)).rules.rules(), 255);
    let (policy, sets) = read(&text(300));
    let error = compile(&policy, &sets).unwrap_err();
    assert_eq!(error.rule(), "r255");
    assert_eq!(
        error.to_string(),
        "the rules have 301 combinations of action, class, source pool and destination, at most \
         256 fit: rule r255 and those after it need more; redirect to fewer destinations, or give \
         fewer combinations"
    );
}

#[test]
fn rules_are_numbered_in_the_order_of_the_file() {
    let policy = compiled(POLICY);
    let names: Vec<&str> = (0..4).map(|rule| policy.name(rule)).collect();
    assert_eq!(names, ["mail-of-business", "no-smtp", "court-orders", "camera"]);
    assert_eq!((policy.rules.rules(), action(&policy, 1)), (4, RuleAction::Reject));
    assert!(policy.rules.bytes() > 0 && policy.rules.bound().comparisons >= 2);
}
