use std::fs;
use std::path::PathBuf;

use bolero::check;
use serde_json::{Value, json};

use super::interpreter::{FirstPacket, FlowVerdict, Interpreter, first_rule, parse_toml};
use super::*;
use std::net::Ipv4Addr;

fn interfaces() -> SideInterfaces {
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

/// Choices from a seed.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    fn address(&mut self) -> u32 {
        self.one(&[0, 0x0a00_0000, 0x0a00_0003, 0x0a00_0007, 0x0a00_0008, 0xc000_0201, u32::MAX])
    }

    fn port(&mut self) -> u32 {
        self.one(&[0, 1, 22, 53, 54, 80, 65535])
    }

    fn addresses(&mut self) -> Value {
        let text = |address: u32| Ipv4Addr::from(address).to_string();
        match self.below(3) {
            0 => json!(text(self.address())),
            1 => {
                let (a, b) = (self.address(), self.address());
                json!({"range": [text(a.min(b)), text(a.max(b))]})
            }
            _ => {
                let bits = self.one(&[0_u32, 1, 8, 29, 32]);
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                json!({"prefix": {"addr": text(self.address() & mask), "len": bits}})
            }
        }
    }

    fn ports(&mut self) -> Value {
        match self.below(2) {
            0 => json!(self.port()),
            _ => {
                let (a, b) = (self.port(), self.port());
                json!({"range": [a.min(b), a.max(b)]})
            }
        }
    }

    fn left(&mut self, is_port: bool) -> Value {
        let (protocol, fields) = match is_port {
            true => (self.one(&["tcp", "udp"]), ["sport", "dport"]),
            false => ("ip", ["saddr", "daddr"]),
        };
        json!({"payload": {"protocol": protocol, "field": self.one(&fields)}})
    }

    fn value(&mut self, is_port: bool) -> Value {
        if is_port { self.ports() } else { self.addresses() }
    }

    fn a_match(&mut self) -> Value {
        let is_port = self.below(2) == 0;
        let op = self.one(&["==", "==", "!="]);
        let (left, right) = match self.below(8) {
            0 => (
                json!({"meta": {"key": self.one(&["iifname", "oifname"])}}),
                json!(self.one(&["lan0", "wan0"])),
            ),
            1 => {
                let left = self.one(&[
                    json!({"meta": {"key": "l4proto"}}),
                    json!({"payload": {"protocol": "ip", "field": "protocol"}}),
                ]);
                let mut set = vec!["tcp", "udp", "icmp"];
                set.remove(self.below(3) as usize);
                (left, json!({ "set": set }))
            }
            2 => {
                return json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "new"}});
            }
            3 => {
                let right = if is_port {
                    json!(self.port())
                } else {
                    json!(Ipv4Addr::from(self.address()).to_string())
                };
                let op = self.one(&["<", ">", "<=", ">="]);
                return json!({"match": {"op": op, "left": self.left(is_port), "right": right}});
            }
            4 => {
                let name = if is_port { "@ports" } else { "@addresses" };
                (self.left(is_port), json!(name))
            }
            5 => {
                let left = json!({"concat": [self.left(false), self.left(true)]});
                return json!({"match": {"op": "==", "left": left, "right": "@pairs"}});
            }
            6 => {
                let set = [self.value(is_port), self.value(is_port)];
                (self.left(is_port), json!({ "set": set }))
            }
            _ => (self.left(is_port), self.value(is_port)),
        };
        json!({"match": {"op": op, "left": left, "right": right}})
    }

    /// A verdict, with jumps to chains behind this one only.
    fn verdict(&mut self, chain: u64) -> Value {
        match self.below(8) {
            kind @ (0 | 1) if chain < 4 => {
                let target = format!("c{}", chain + 1 + self.below(4 - chain));
                let kind = if kind == 0 { "jump" } else { "goto" };
                json!({kind: {"target": target}})
            }
            2 => json!({"return": null}),
            3 => json!({"continue": null}),
            _ => json!({self.one(&["accept", "drop", "reject"]): null}),
        }
    }

    /// A ruleset of two base chains, `c0` and `c1`, and three others.
    fn ruleset(&mut self) -> Value {
        let in_table = |kind: &str, mut body: Value| {
            body["family"] = json!("ip");
            body["table"] = json!("t");
            json!({kind: body})
        };
        let elements = |count: u64, element: &mut dyn FnMut() -> Value| -> Vec<Value> {
            (0..count).map(|_| element()).collect()
        };
        let mut objects = vec![
            in_table(
                "set",
                json!({"name": "addresses", "elem": elements(3, &mut || self.addresses())}),
            ),
            in_table("set", json!({"name": "ports", "elem": elements(3, &mut || self.ports())})),
            in_table(
                "set",
                json!({"name": "pairs", "elem": elements(2, &mut || json!({"concat": [self.addresses(), self.ports()]}))}),
            ),
        ];
        for chain in 0..5 {
            let mut body = json!({"name": format!("c{chain}"), "handle": chain});
            if chain < 1 + self.below(2) {
                body["type"] = json!("filter");
                body["hook"] = json!("forward");
                body["prio"] = json!(self.below(2) * 10 + chain);
                body["policy"] = json!(self.one(&["accept", "drop"]));
            }
            objects.push(in_table("chain", body));
        }
        objects.extend(self.translation().into_iter().map(|(kind, body)| in_table(kind, body)));
        for handle in 10..10 + self.below(14) {
            let chain = self.below(5);
            let mut statements: Vec<Value> = (0..self.below(3)).map(|_| self.a_match()).collect();
            statements.push(json!({"counter": {"packets": 0, "bytes": 0}}));
            if self.below(6) == 0 {
                // Elements of a map do not overlap.
                let is_port = self.below(2) == 0;
                let keys = if is_port {
                    [json!(22), json!({"range": [50, 60]})]
                } else {
                    [json!("0.0.0.0"), json!({"prefix": {"addr": "10.0.0.0", "len": 29}})]
                };
                let set = keys.map(|key| json!([key, self.verdict(chain)]));
                statements.push(json!({"vmap": {"key": self.left(is_port), "data": {"set": set}}}));
            } else {
                statements.push(self.verdict(chain));
            }
            objects.push(in_table(
                "rule",
                json!({"chain": format!("c{chain}"), "handle": handle, "expr": statements}),
            ));
        }
        json!({ "nftables": objects })
    }

    /// A chain that translates, with rules about homes that mostly give another destination.
    fn translation(&mut self) -> Vec<(&'static str, Value)> {
        let chain = json!({"name": "nat", "handle": 9, "type": "nat", "hook": "prerouting",
            "prio": -100, "policy": "accept"});
        let mut objects = vec![("chain", chain)];
        for handle in 30..30 + self.below(4) {
            let side = json!({"match": {"op": "==", "left": {"meta": {"key": "iifname"}},
                "right": "lan0"}});
            let mut statements = vec![side];
            let has_ports = self.below(2) == 0;
            if has_ports {
                statements.push(json!({"match": {"op": "==", "left": self.left(true),
                    "right": self.ports()}}));
            }
            if self.below(2) == 0 {
                statements.push(json!({"match": {"op": "==", "left": self.left(false),
                    "right": self.addresses()}}));
            }
            let address = Ipv4Addr::from(self.one(&[0x0a00_0003, 0xc000_0201])).to_string();
            statements.push(match self.below(4) {
                0 => json!({"accept": null}),
                1 if has_ports => json!({"dnat": {"addr": address, "port": self.one(&[22, 53])}}),
                _ => json!({"dnat": {"family": "ip", "addr": address}}),
            });
            let rule = json!({"chain": "nat", "handle": handle, "expr": statements});
            objects.push(("rule", rule));
        }
        objects
    }

    fn packet(&mut self) -> FirstPacket {
        let protocol = self.one(&["tcp", "udp", "icmp"]);
        let mut port = || if protocol == "icmp" { 0 } else { self.port() };
        let (source_port, destination_port) = (port(), port());
        FirstPacket {
            is_from_home: self.below(2) == 0,
            protocol,
            source: self.address(),
            destination: self.address(),
            source_port,
            destination_port,
        }
    }
}

/// Rules that packets do not reach, and policies that no rule can express, may be listed.
fn is_expected(line: &str) -> bool {
    line.contains("no packet gets here") || line.contains("no rule leaves them to nat.filtering")
}

#[test]
fn imported_rules_decide_as_the_ruleset_does() {
    check!().with_type::<u64>().for_each(|seed| {
        let mut choices = Choices(*seed);
        let ruleset = choices.ruleset();
        let Ok(import) = import(&ruleset.to_string(), &interfaces()) else { return };
        let unexpected = import.not_carried_over.iter().find(|line| !is_expected(line));
        assert!(unexpected.is_none(), "{unexpected:?}\n{ruleset:#}");
        let lacks_default = import.not_carried_over.iter().any(|line| line.contains("filtering"));
        let rules = parse_toml(&import.text);
        let nft = Interpreter::new(&ruleset);
        for _ in 0..40 {
            let packet = choices.packet();
            let (wanted, got) = (nft.verdict(&packet), first_rule(&rules, &packet));
            let is_same = match (wanted, got) {
                (FlowVerdict::Undecided, FlowVerdict::Accept) => packet.is_from_home,
                (FlowVerdict::Undecided, _) if !packet.is_from_home && lacks_default => true,
                (FlowVerdict::Accept, FlowVerdict::Undecided) => packet.is_from_home,
                _ => wanted == got,
            };
            assert!(is_same, "{packet:?}: {wanted:?}, {got:?}\n{}\n{ruleset:#}", import.text);
        }
    });
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
