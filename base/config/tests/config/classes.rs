//! `[[class]]`, and rules that name one.

use weir_config::{Config, Desired, difference};

use crate::base::{BASE, assert_found, assert_refused};
use crate::cluster_file::{CLUSTER, desired};

/// Line numbers count from 1 at the first `[[class]]`.
const POLICY: &str = r#"[[class]]
id = 2
name = "voice"
dscp = "ef"
timeouts = { udp_sec = 600, icmp_sec = 70 }

[[class]]
id = 1
name = "bulk"
dscp = 1

[[rule]]
name = "phones"
protocol = "udp"
remote_port = "5060-5061"
action = "accept"
class = "voice"
"#;

fn config(policy: &str) -> Config {
    weir_config::parse(&format!("{policy}{BASE}"), "t.toml").unwrap().0
}

#[test]
fn classes_are_read_in_the_order_of_their_numbers_and_read_back_from_etcd() {
    let policy = config(POLICY).policy;
    let read: Vec<_> = policy.classes.iter().map(|it| (it.id, it.name.as_str(), it.dscp)).collect();
    assert_eq!(read, [(1, "bulk", Some(1)), (2, "voice", Some(46))]);
    let timeouts = config(POLICY).timeouts.with(&policy.classes[1].timeouts);
    let given = (timeouts.udp_sec, timeouts.icmp_sec, timeouts.udp_stream_sec);
    assert_eq!(given, (600, 70, 300));
    assert_eq!(policy.rules[0].class.as_deref(), Some("voice"));
    let file = desired(&format!("{CLUSTER}{POLICY}"));
    assert_eq!(file.policy, policy);
    assert_eq!(Desired::from_json(&file.to_json()).unwrap(), file);
    let without = desired(&format!("{CLUSTER}[[rule]]\nname = \"r\"\naction = \"accept\"\n"));
    assert!(!without.to_json().contains("class"), "earlier versions do not know it");
}

#[test]
fn codepoints_are_numbers_below_64_or_names_of_rfcs() {
    for (text, codepoint) in [
        ("0", 0),
        ("63", 63),
        ("\"cs0\"", 0),
        ("\"cs7\"", 56),
        ("\"af11\"", 10),
        ("\"af41\"", 34),
        ("\"af43\"", 38),
        ("\"voice-admit\"", 44),
        ("\"le\"", 1),
    ] {
        let policy = config(&POLICY.replace("\"ef\"", text)).policy;
        assert_eq!(policy.classes[1].dscp, Some(codepoint), "{text}");
    }
    for text in
        ["64", "-1", "\"cs8\"", "\"af\"", "\"af51\"", "\"af14\"", "\"af111\"", "\"EF\"", "true"]
    {
        let file = format!("{}{BASE}", POLICY.replace("\"ef\"", text));
        let errors = weir_config::parse(&file, "t.toml").unwrap_err();
        assert_found(text, &errors, &["4:8: class[0].dscp: "]);
    }
}

#[test]
fn wrong_classes_are_refused_with_place_and_fix() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("id = 1", "id = 4", &["8:6: class[1].id: 4 is out of range"]),
        ("id = 1\n", "", &["7:1: class[1].id: missing"]),
        (
            "id = 1",
            "id = 2",
            &["8:6: class[1].id: the number 2 is already at class[0].id (each may be used once)"],
        ),
        (
            "\"bulk\"",
            "\"voice\"",
            &["9:8: class[1].name: the name voice is already at class[0].name"],
        ),
        ("udp_sec", "udp", &["5:14: class[0].timeouts.udp: unknown key (did you mean udp_sec?"]),
        (
            "class = \"voice\"",
            "class = \"video\"",
            &[
                "17:9: rule[0].class: there is no class video (write a [[class]]; there are bulk, voice",
            ],
        ),
        (
            "action = \"accept\"",
            "action = \"drop\"",
            &["17:9: rule[0].class: beside an action that lets no flow begin (remove it, or write"],
        ),
    ];
    assert_refused(POLICY, cases);
}

#[test]
fn timers_below_the_minima_and_classes_that_give_nothing_are_warned_of() {
    let text = POLICY.replace("udp_sec = 600", "udp_sec = 20").replace("dscp = 1\n", "");
    let (_, warnings) = weir_config::parse(&format!("{text}{BASE}"), "t.toml").unwrap();
    let expected = [
        "5:24: class[0].timeouts.udp_sec: 20 s is below the minimum of RFC 4787 REQ-5 (120 s or more)",
        "9:8: class[1].name: gives its flows nothing: it has neither dscp nor timeouts",
    ];
    assert_found("warnings", &warnings, &expected);
}

#[test]
fn changes_of_classes_say_what_they_do_to_live_flows() {
    let of = |from: &str, to: &str| {
        assert!(POLICY.contains(from), "{from:?}");
        let old = desired(&format!("{CLUSTER}{POLICY}"));
        let new = desired(&format!("{CLUSTER}{}", POLICY.replacen(from, to, 1)));
        difference(&old, &new).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let idle = "(ends flows that are idle for longer)";
    let changed = of("udp_sec = 600, icmp_sec = 70", "udp_sec = 700, tcp_close_sec = 300");
    assert_eq!(
        changed,
        [
            format!("class voice: timeouts.icmp_sec 70 -> as all flows {idle}"),
            format!("class voice: timeouts.tcp_close_sec as all flows -> 300 {idle}"),
            "class voice: timeouts.udp_sec 600 -> 700 (flows go on)".to_owned(),
        ]
    );
    let lower = of("udp_sec = 600", "udp_sec = 500");
    assert_eq!(lower, [format!("class voice: timeouts.udp_sec 600 -> 500 {idle}")]);
    assert_eq!(of("dscp = 1\n", ""), ["class bulk: dscp 1 -> as it came (flows go on)"]);
    let moved = of("id = 1", "id = 3");
    let expected = [
        format!("class bulk: removed {idle}"),
        "class bulk: added with number 3 (flows go on)".to_owned(),
    ];
    assert_eq!(moved, expected);
    let renamed = of("\"bulk\"", "\"slow\"");
    assert_eq!(renamed, ["class slow: name of number 1, was bulk (flows go on)"]);
    let other = of("class = \"voice\"", "class = \"bulk\"");
    assert_eq!(other, ["rule phones: class \"voice\" -> \"bulk\" (for new flows)"]);
}
