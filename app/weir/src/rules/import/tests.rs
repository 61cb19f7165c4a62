use std::fs;
use std::path::PathBuf;

use bolero::check;
use serde_json::{Value, json};

use super::*;

pub(super) fn interfaces() -> SideInterfaces {
    SideInterfaces { home: vec!["lan0".to_owned()], internet: vec!["wan0".to_owned()] }
}

fn import_json(ruleset: &Value) -> Import {
    import(&ruleset.to_string(), &interfaces()).unwrap()
}

/// A ruleset with one chain of forwarded packets.
fn forward(policy: &str, rules: &[Value]) -> Value {
    let mut objects = vec![
        json!({"table": {"family": "inet", "name": "t", "handle": 1}}),
        json!({"chain": {"family": "inet", "table": "t", "name": "forward", "handle": 1,
            "type": "filter", "hook": "forward", "prio": 0, "policy": policy}}),
    ];
    objects.extend(rules.iter().zip(2..).map(|(statements, handle)| {
        json!({"rule": {"family": "inet", "table": "t", "chain": "forward", "handle": handle,
            "expr": statements}})
    }));
    json!({ "nftables": objects })
}

/// Returns the files beside the real firewalls: source, `nft -j list ruleset` of it in a network
/// namespace, and what becomes of it.
fn firewall(name: &str, ending: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/nft").join(format!("{name}.{ending}"))
}

#[test]
fn real_firewalls_are_imported_as_the_golden_files_say() {
    for name in ["isp", "office", "maps", "iptables"] {
        let text = fs::read_to_string(firewall(name, "json")).unwrap();
        let import = import(&text, &interfaces()).unwrap();
        let report = import.not_carried_over.iter().map(|line| format!("not carried over: {line}"));
        let notes = import.notes.iter().map(|line| format!("note: {line}"));
        let report: Vec<String> = notes.chain(report).collect();
        for (ending, got) in [("toml", import.text), ("report", report.join("\n") + "\n")] {
            let path = firewall(name, ending);
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                fs::write(&path, &got).unwrap();
            }
            let golden = fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(got, golden, "{}: UPDATE_GOLDEN=1 writes it again", path.display());
        }
    }
}

#[test]
fn text_that_is_no_ruleset_is_refused_with_the_place() {
    for (text, error) in [
        ("table inet filter {}", "this is not JSON; it takes the output of `nft -j list ruleset`"),
        ("{}", "the JSON has no array \"nftables\""),
        (r#"{"nftables": [{"metainfo": {}}, 7]}"#, "object 1 of \"nftables\": it is not an object"),
        (r#"{"nftables": [{"chain": {"family": "ip"}}]}"#, "it has no text \"table\""),
        (
            r#"{"nftables": [{"rule": {"family": "ip", "table": "t", "chain": "c", "handle": 3,
                "expr": []}}]}"#,
            "table ip t chain c handle 3: no such chain before the rule",
        ),
    ] {
        let refused = format!("{:#}", import(text, &interfaces()).unwrap_err());
        assert!(refused.contains(error), "{refused}");
    }
}

#[test]
fn jumps_in_a_loop_are_refused() {
    let jump = json!([{"jump": {"target": "forward"}}]);
    let refused = import(&forward("drop", &[jump]).to_string(), &interfaces()).unwrap_err();
    assert!(refused.to_string().contains("more than 16 jumps lead here, or a loop"), "{refused}");
}

#[test]
fn rule_without_interfaces_becomes_one_rule_only_if_both_sides_are_alike() {
    let port = |field: &str| {
        json!({"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": field}},
            "right": 22}})
    };
    let dport = import_json(&forward("accept", &[json!([port("dport"), {"drop": null}])]));
    assert_eq!((dport.rules, &*dport.not_carried_over), (2, &[][..]));
    assert!(dport.text.contains("from = \"home\"\nprotocol = [\"tcp\"]\nremote_port = [22]"));
    assert!(dport.text.contains("from = \"internet\"\nprotocol = [\"tcp\"]\ninside_port = [22]"));
    let both = json!([port("dport"), port("sport"), {"drop": null}]);
    let both = import_json(&forward("accept", &[both]));
    assert_eq!(both.rules, 1);
    assert!(both.text.contains("from = \"any\""), "{}", both.text);
}

#[test]
fn state_matches_are_implied_or_listed() {
    let state = |op: &str, states: Value, verdict: &str| {
        let rule = json!([{"match": {"op": op, "left": {"ct": {"key": "state"}}, "right": states}},
            {verdict: null}]);
        let import = import_json(&forward("drop", &[rule]));
        let reasons = import.not_carried_over.join(";");
        // The last rule is the policy's.
        (import.rules - 1, import.notes.len(), reasons.is_empty())
    };
    assert_eq!(state("in", json!(["established", "related"]), "accept"), (0, 1, true));
    assert_eq!(state("==", json!({"set": ["established"]}), "accept"), (0, 1, true));
    assert_eq!(state("in", json!("established"), "drop"), (0, 0, false));
    assert_eq!(state("in", json!("invalid"), "drop"), (0, 1, true));
    assert_eq!(state("in", json!("invalid"), "accept"), (0, 0, false));
    assert_eq!(state("in", json!(["invalid", "established"]), "drop"), (0, 0, false));
    assert_eq!(state("in", json!("new"), "drop"), (1, 0, true));
    assert_eq!(state("==", json!({"set": ["new", "untracked"]}), "drop"), (1, 0, true));
    assert_eq!(state("!=", json!("established"), "drop"), (1, 0, true));
}

/// A ruleset with one chain that translates before forwarding, and perhaps one of forwarding.
fn prerouting(rules: &[Value], forward_rules: &[Value]) -> Value {
    let mut ruleset = forward("accept", forward_rules);
    let objects = ruleset["nftables"].as_array_mut().unwrap();
    objects.push(json!({"chain": {"family": "inet", "table": "t", "name": "nat", "handle": 50,
        "type": "nat", "hook": "prerouting", "prio": -100, "policy": "accept"}}));
    objects.extend(rules.iter().zip(51..).map(|(statements, handle)| {
        json!({"rule": {"family": "inet", "table": "t", "chain": "nat", "handle": handle,
            "expr": statements}})
    }));
    ruleset
}

fn a_match(left: Value, right: Value) -> Value {
    json!({"match": {"op": "==", "left": left, "right": right}})
}

#[test]
fn destination_of_packets_of_homes_becomes_a_redirect_before_the_forwarding_rules() {
    let from = |name: &str| a_match(json!({"meta": {"key": "iifname"}}), json!(name));
    let field =
        |protocol: &str, field: &str| json!({"payload": {"protocol": protocol, "field": field}});
    let dns = || a_match(field("udp", "dport"), json!(53));
    let to = json!({"dnat": {"family": "ip", "addr": "192.0.2.53", "port": 5353}});
    let redirected = import_json(&prerouting(&[json!([from("lan0"), dns(), to])], &[]));
    assert_eq!(
        redirected.text,
        "# table inet t chain nat handle 51\n[[rule]]\nname = \"nat-51\"\nfrom = \"home\"\n\
         protocol = [\"udp\"]\nremote_port = [53]\naction = \"redirect\"\n\
         to = \"192.0.2.53:5353\"\n"
    );
    assert!(redirected.not_carried_over.is_empty(), "{redirected:?}");
    // The forwarding chain sees the new destination: one home is kept from it.
    let kept = json!([
        a_match(field("ip", "saddr"), json!("10.200.1.5")),
        a_match(field("ip", "daddr"), json!("192.0.2.53")),
        {"drop": null}
    ]);
    let refused = import_json(&prerouting(&[json!([from("lan0"), dns(), to])], &[kept]));
    let first = "subscribers = [\"10.200.1.5\"]\nprotocol = [\"udp\"]\nremote_port = [53]\naction = \"drop\"";
    let (drop, redirect) = (refused.text.find(first), refused.text.find("\"redirect\""));
    assert!(drop.is_some() && drop < redirect, "{}", refused.text);
}

#[test]
fn destinations_that_no_rule_can_give_are_listed() {
    let from = |name: &str| a_match(json!({"meta": {"key": "iifname"}}), json!(name));
    let tcp = a_match(json!({"meta": {"key": "l4proto"}}), json!("tcp"));
    let dnat = |body: Value| json!({ "dnat": body });
    let one = || dnat(json!({"addr": "192.168.1.5"}));
    let range = json!({"range": ["192.0.2.1", "192.0.2.9"]});
    let ports = json!({"range": [80, 90]});
    let cases = [
        (json!([from("wan0"), one()]), 0, "write port forwards to homes in [public] static"),
        (json!([one()]), 1, "write port forwards to homes in [public] static"),
        (json!([from("lan0"), dnat(json!({ "addr": range }))]), 0, "redirects to one address"),
        (
            json!([from("lan0"), tcp, dnat(json!({"addr": "192.0.2.1", "port": ports}))]),
            0,
            "redirects to one port",
        ),
        (json!([from("lan0"), dnat(json!({"addr": "2001:db8::1"}))]), 0, "IPv6"),
        (json!([from("lan0"), dnat(json!({"addr": "127.0.0.1"}))]), 0, "no address of another"),
        (
            json!([from("lan0"), dnat(json!({"addr": "192.0.2.1", "port": 53}))]),
            0,
            "a port of ICMP",
        ),
        (json!([from("lan0"), {"redirect": {"port": 53}}]), 0, "weir has no services for homes"),
        (json!([from("lan0"), {"snat": {"addr": "203.0.113.8"}}]), 0, "write a [[source_pool]]"),
    ];
    for (rule, rules, reason) in cases {
        let import = import_json(&prerouting(&[rule], &[]));
        let [line] = &import.not_carried_over[..] else { panic!("{reason}: {import:?}") };
        assert!(line.contains("chain nat handle 51: ") && line.contains(reason), "{line}");
        assert_eq!(import.rules, rules, "{}", import.text);
    }
}

/// Returns a match on a field of a header.
fn on(protocol: &str, field: &str, right: Value) -> Value {
    a_match(json!({"payload": {"protocol": protocol, "field": field}}), right)
}

#[test]
fn rules_of_tables_inet_become_one_rule_for_both_families_where_they_are_alike() {
    let drop = || json!({"drop": null});
    let import = import_json(&forward(
        "drop",
        &[
            json!([on("ip6", "daddr", json!("2001:db8:bad::/48")), drop()]),
            json!([
                on("ip6", "daddr", json!({"prefix": {"addr": "2001:db8:bad::", "len": 48}})),
                drop()
            ]),
            json!([on("tcp", "dport", json!(25)), on("tcp", "sport", json!(25)), drop()]),
            json!([a_match(json!({"meta": {"key": "nfproto"}}), json!("ipv6")), {"accept": null}]),
            json!([on("icmpv6", "type", json!("echo-request")), {"reject": null}]),
            json!([a_match(json!({"meta": {"key": "l4proto"}}), json!("ipv6-icmp")), drop()]),
        ],
    ));
    let rules: Vec<&str> = import.text.split("[[rule]]\n").skip(1).collect();
    let of = |handle: u32| -> Vec<&str> {
        let name = format!("name = \"forward-{handle}");
        rules.iter().copied().filter(|rule| rule.starts_with(&name)).collect()
    };
    assert!(
        import.not_carried_over[0].contains("handle 2: address 2001:db8:bad::/48"),
        "{import:?}"
    );
    assert!(of(3).iter().all(|it| it.contains("[\"2001:db8:bad::/48\"]")) && of(3).len() == 2);
    let [both] = of(4)[..] else { panic!("{rules:#?}") };
    assert!(both.contains("protocol = [\"tcp\"]") && !both.contains("/0"), "{both}");
    let [ipv6] = of(5)[..] else { panic!("{rules:#?}") };
    assert!(ipv6.contains("remote = [\"::/0\"]\naction = \"accept\""), "{ipv6}");
    // The rules behind that one are reached by IPv4 alone.
    let policy = rules.last().unwrap();
    assert!(policy.starts_with("name = \"forward-policy\""), "{policy}");
}

#[test]
fn rules_of_one_family_are_about_it_alone() {
    let table = |family: &str| {
        let rule = json!([{"drop": null}]);
        let text = forward("accept", &[rule]).to_string().replace("inet", family);
        import(&text, &interfaces()).unwrap().text
    };
    assert!(table("ip").contains("from = \"any\"\nremote = [\"0.0.0.0/0\"]\naction = \"drop\""));
    assert!(table("ip6").contains("from = \"any\"\nremote = [\"::/0\"]\naction = \"drop\""));
    assert!(table("inet").contains("from = \"any\"\naction = \"drop\""));
}

#[test]
fn any_text_is_imported_or_refused() {
    check!().for_each(|bytes| {
        let _ = import(&String::from_utf8_lossy(bytes), &interfaces());
    });
}

#[test]
fn any_edit_of_a_ruleset_is_imported_or_refused() {
    let texts = ["isp", "office", "maps"];
    let texts = texts.map(|name| fs::read_to_string(firewall(name, "json")).unwrap());
    check!().with_type::<(u8, [(u16, u16, u8); 3])>().for_each(|(text, edits)| {
        let mut value: Value = serde_json::from_str(&texts[usize::from(*text) % 3]).unwrap();
        for (object, at, new) in edits {
            let objects = value["nftables"].as_array_mut().unwrap();
            let count = objects.len();
            edit(&mut objects[usize::from(*object) % count], usize::from(*at), *new);
        }
        let _ = import(&value.to_string(), &interfaces());
    });
}

/// Replaces one value within another.
fn edit(value: &mut Value, at: usize, new: u8) {
    let parts: Vec<&mut Value> = match value {
        Value::Array(values) => values.iter_mut().collect(),
        Value::Object(values) => values.values_mut().collect(),
        _ => Vec::new(),
    };
    let count = parts.len();
    if count == 0 || at % 7 == 6 {
        let news =
            [json!(null), json!([]), json!({}), json!(-1), json!("::"), json!("@x"), json!(1e300)];
        *value = news[usize::from(new) % news.len()].clone();
        return;
    }
    if let Some(part) = parts.into_iter().nth(at % count) {
        edit(part, at / count, new);
    }
}
