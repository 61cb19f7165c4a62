//! Random rulesets of both families: imported rules decide as the ruleset does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bolero::check;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::import;
use super::interpreter::{FirstPacket, FlowVerdict, Interpreter, first_rule, parse_toml};
use super::tests::interfaces;

/// What a match looks at.
#[derive(Clone, Copy)]
enum Field {
    Port,
    Address { is_ipv6: bool },
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

    fn address(&mut self, is_ipv6: bool) -> IpAddr {
        let ipv4 = [0, 0x0a00_0000, 0x0a00_0003, 0x0a00_0007, 0x0a00_0008, 0xc000_0201, u32::MAX];
        let at = self.below(ipv4.len() as u64) as usize;
        match is_ipv6 {
            false => Ipv4Addr::from(ipv4[at]).into(),
            true if at == ipv4.len() - 1 => Ipv6Addr::from(u128::MAX).into(),
            // Prefixes end with other bits than those of IPv4.
            true => Ipv6Addr::from(u128::from(ipv4[at]) << 93 | u128::from(ipv4[at] & 7)).into(),
        }
    }

    fn port(&mut self) -> u32 {
        self.one(&[0, 1, 22, 53, 54, 80, 65535])
    }

    fn addresses(&mut self, is_ipv6: bool) -> Value {
        match self.below(3) {
            0 => json!(self.address(is_ipv6)),
            1 => {
                let (a, b) = (self.address(is_ipv6), self.address(is_ipv6));
                json!({"range": [a.min(b), a.max(b)]})
            }
            _ => {
                let bits = self.one(&[0_u8, 1, 8, 29, 32]) * if is_ipv6 { 4 } else { 1 };
                let net = IpNet::new(self.address(is_ipv6), bits).unwrap();
                json!({"prefix": {"addr": net.network(), "len": bits}})
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

    fn left(&mut self, field: Field) -> Value {
        let (protocol, fields) = match field {
            Field::Port => (self.one(&["tcp", "udp"]), ["sport", "dport"]),
            Field::Address { is_ipv6: false } => ("ip", ["saddr", "daddr"]),
            Field::Address { is_ipv6: true } => ("ip6", ["saddr", "daddr"]),
        };
        json!({"payload": {"protocol": protocol, "field": self.one(&fields)}})
    }

    fn value(&mut self, field: Field) -> Value {
        match field {
            Field::Port => self.ports(),
            Field::Address { is_ipv6 } => self.addresses(is_ipv6),
        }
    }

    fn field(&mut self) -> Field {
        self.one(&[
            Field::Port,
            Field::Port,
            Field::Address { is_ipv6: false },
            Field::Address { is_ipv6: true },
        ])
    }

    fn a_match(&mut self) -> Value {
        let field = self.field();
        let op = self.one(&["==", "==", "!="]);
        let (left, right) = match self.below(9) {
            8 => (json!({"meta": {"key": "nfproto"}}), json!(self.one(&["ipv4", "ipv6"]))),
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
                if left.get("meta").is_some() {
                    set.push("ipv6-icmp");
                }
                set.remove(self.below(3) as usize);
                (left, json!({ "set": set }))
            }
            2 => {
                return json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "new"}});
            }
            3 => {
                let right = match field {
                    Field::Port => json!(self.port()),
                    Field::Address { is_ipv6 } => json!(self.address(is_ipv6)),
                };
                let op = self.one(&["<", ">", "<=", ">="]);
                return json!({"match": {"op": op, "left": self.left(field), "right": right}});
            }
            4 => {
                let name = match field {
                    Field::Port => "@ports",
                    Field::Address { is_ipv6: false } => "@addresses",
                    Field::Address { is_ipv6: true } => "@addresses6",
                };
                (self.left(field), json!(name))
            }
            5 => {
                let is_ipv6 = self.below(2) == 0;
                let address = self.left(Field::Address { is_ipv6 });
                let left = json!({"concat": [address, self.left(Field::Port)]});
                let right = if is_ipv6 { "@pairs6" } else { "@pairs" };
                return json!({"match": {"op": "==", "left": left, "right": right}});
            }
            6 => {
                let set = [self.value(field), self.value(field)];
                (self.left(field), json!({ "set": set }))
            }
            _ => (self.left(field), self.value(field)),
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
            body["family"] = json!("inet");
            body["table"] = json!("t");
            json!({kind: body})
        };
        let elements = |count: u64, element: &mut dyn FnMut() -> Value| -> Vec<Value> {
            (0..count).map(|_| element()).collect()
        };
        let mut objects = vec![
            in_table(
                "set",
                json!({"name": "addresses", "elem": elements(3, &mut || self.addresses(false))}),
            ),
            in_table(
                "set",
                json!({"name": "addresses6", "elem": elements(3, &mut || self.addresses(true))}),
            ),
            in_table("set", json!({"name": "ports", "elem": elements(3, &mut || self.ports())})),
            in_table(
                "set",
                json!({"name": "pairs", "elem": elements(2, &mut || json!({"concat": [self.addresses(false), self.ports()]}))}),
            ),
            in_table(
                "set",
                json!({"name": "pairs6", "elem": elements(2, &mut || json!({"concat": [self.addresses(true), self.ports()]}))}),
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
                let field = self.field();
                let keys = match field {
                    Field::Port => [json!(22), json!({"range": [50, 60]})],
                    Field::Address { is_ipv6: false } => {
                        [json!("0.0.0.0"), json!({"prefix": {"addr": "10.0.0.0", "len": 29}})]
                    }
                    Field::Address { is_ipv6: true } => {
                        [json!("::"), json!({"prefix": {"addr": "1400::", "len": 6}})]
                    }
                };
                let set = keys.map(|key| json!([key, self.verdict(chain)]));
                statements.push(json!({"vmap": {"key": self.left(field), "data": {"set": set}}}));
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
                statements.push(json!({"match": {"op": "==", "left": self.left(Field::Port),
                    "right": self.ports()}}));
            }
            if self.below(2) == 0 {
                let left = self.left(Field::Address { is_ipv6: false });
                let right = self.addresses(false);
                statements.push(json!({"match": {"op": "==", "left": left, "right": right}}));
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
        let is_ipv6 = self.below(2) == 0;
        let icmp = if is_ipv6 { "ipv6-icmp" } else { "icmp" };
        let protocol = self.one(&["tcp", "udp", icmp]);
        let mut port = || if protocol == icmp { 0 } else { self.port() };
        let (source_port, destination_port) = (port(), port());
        let mut number = || match self.address(is_ipv6) {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let (source, destination) = (number(), number());
        FirstPacket {
            is_from_home: self.below(2) == 0,
            is_ipv6,
            protocol,
            source,
            destination,
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
