use std::net::{Ipv4Addr, Ipv6Addr};

use bolero::{TypeGenerator, check};
use weir_config::{ConfigFile, load_sets, parse_set};
use weir_policy::{ComparedHomes, FlowQuestion, compare, compile, warnings};
use weir_rules::FlowOrigin;

/// Any text is a set, whose entries are read back equal, or is refused with lines that exist.
#[test]
fn set_file() {
    check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        match parse_set("s", &text, "s.txt") {
            Ok(set) => {
                let written: String = set.prefixes().map(|net| format!("{net}\n")).collect();
                assert_eq!(parse_set("s", &written, "s.txt").as_ref(), Ok(&set));
            }
            Err(errors) => {
                let lines = text.lines().count();
                assert!(!errors.is_empty() && errors.len() <= 22);
                assert!(errors.iter().all(|it| it.line <= lines + 1 && !it.message.is_empty()));
            }
        }
    });
}

const FILE: &str = include_str!("../../../examples/memif.toml");

/// A rule, of which each number chooses one of some values of a key.
#[derive(Clone, Debug, TypeGenerator)]
struct Choices {
    action: u8,
    from: u8,
    groups: u8,
    subscribers: u8,
    protocol: u8,
    remote: u8,
    ports: [u16; 4],
    prefix: (u32, u8),
    extra: Option<(u8, u32, u16)>,
}

impl Choices {
    /// Returns an action that is refused beside some keys: with a source pool, or with `to`.
    fn extra(extra: u8, to: Ipv4Addr, port: u16) -> String {
        match extra % 4 {
            0 => "action = \"accept\"\nsource_pool = \"few\"".to_owned(),
            1 => "action = \"accept\"\nsource_pool = \"many\"".to_owned(),
            2 => format!("action = \"redirect\"\nto = \"{to}\""),
            _ => format!("action = \"redirect\"\nto = \"{to}:{port}\""),
        }
    }

    /// Returns the rule as text.
    fn rule(&self, number: usize) -> String {
        let any =
            |choice: u8, values: &[&str]| values[usize::from(choice) % values.len()].to_owned();
        let mut text = format!("[[rule]]\nname = \"r{number}\"\n");
        text += &match (self.action % 3, self.extra) {
            (0, Some((extra, to, port))) => Self::extra(extra, to.into(), port),
            (0, None) => "action = \"accept\"".to_owned(),
            (1, _) => "action = \"drop\"".to_owned(),
            (_, _) => "action = \"reject\"".to_owned(),
        };
        text += &any(self.from, &["\n", "\nfrom = \"internet\"\n", "\nfrom = \"any\"\n"]);
        text += &any(self.groups, &["", "groups = \"one\"\n", "groups = [\"one\", \"two\"]\n"]);
        let len = self.prefix.1 % 33;
        let prefix = ipnet::Ipv4Net::new(self.prefix.0.into(), len).expect("at most 32 bits");
        let prefix = prefix.trunc();
        text += &any(
            self.subscribers,
            &[
                "",
                "subscribers = \"@homes\"\n",
                &format!("subscribers = [\"@homes\", \"{prefix}\"]\n"),
            ],
        );
        text += &any(
            self.remote,
            &[
                "",
                "remote = \"@far\"\n",
                &format!("remote = \"{prefix}\"\n"),
                &format!("remote = [\"{prefix}\", \"@far6\"]\n"),
            ],
        );
        let [a, b, c, d] = self.ports;
        let ports = format!(
            "inside_port = \"{}-{}\"\nremote_port = [{c}, \"{}-{}\"]\n",
            a.min(b),
            a.max(b),
            c.min(d),
            c.max(d)
        );
        text += &any(
            self.protocol,
            &[
                "",
                "protocol = \"icmp\"\n",
                &format!("protocol = \"tcp\"\n{ports}"),
                &format!("protocol = [\"udp\", \"tcp\"]\nremote_port = {c}\n"),
            ],
        );
        text
    }

    /// Returns a flow near the rule.
    fn flow(&self) -> FlowQuestion {
        let words = match self.protocol % 4 {
            0 | 1 => {
                format!("home 10.200.{}.1 icmp {}", self.action, Ipv4Addr::from(self.prefix.0))
            }
            _ => format!(
                "home 10.200.{}.1 tcp {} {}:{}",
                self.from,
                self.ports[0],
                Ipv4Addr::from(self.prefix.0),
                self.ports[2]
            ),
        };
        self.read(&words)
    }

    /// Returns a flow of IPv6 in the tunnel of a home.
    fn flow6(&self) -> FlowQuestion {
        let home = format!("2001:db8:1::{:x}@10.200.{}.1", self.action, self.from);
        let remote = Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(self.prefix.0) << 64);
        let words = match self.protocol % 4 {
            0 | 1 => format!("home {home} icmp {remote}"),
            _ => format!("home {home} tcp {} {remote} {}", self.ports[0], self.ports[2]),
        };
        self.read(&words)
    }

    fn read(&self, words: &str) -> FlowQuestion {
        let flow = FlowQuestion::from_words(&words.split(' ').collect::<Vec<_>>());
        let from = if self.from % 3 == 1 { FlowOrigin::Internet } else { FlowOrigin::Home };
        FlowQuestion { from, ..flow.expect("a flow") }
    }
}

/// Any rules compile or are refused with a rule of theirs; compiled, the first of all that fit
/// decides.
#[test]
fn rules() {
    let names = "[[set]]\nname = \"homes\"\nprefixes = [\"10.200.0.0/24\", \"10.200.2.0/23\", \"2001:db8:1::/64\"]\n\
                 [[set]]\nname = \"far\"\nprefixes = [\"192.0.2.0/25\", \"192.0.2.128/25\", \"2001:db8::/33\"]\n\
                 [[set]]\nname = \"far6\"\nprefixes = [\"2001:db8:8000::/33\", \"::/1\"]\n\
                 [[source_pool]]\nname = \"few\"\npublic = \"203.0.113.7/32\"\n\
                 [[source_pool]]\nname = \"many\"\npublic = [\"203.0.113.8/30\", \"203.0.113.2/31\"]\n\
                 [[group]]\nname = \"one\"\nsubscribers = \"10.200.0.0/23\"\n\
                 [[group]]\nname = \"two\"\nsubscribers = \"10.200.4.0/24\"\n";
    check!().with_type::<Vec<Choices>>().for_each(|choices| {
        let parse = |choices: &[Choices]| {
            let rules = choices.iter().take(80).enumerate().map(|(number, rule)| rule.rule(number));
            let text = format!("{FILE}\n{names}{}", rules.collect::<String>());
            weir_config::parse_file(&text, "t.toml").map(|(file, _)| (file, text))
        };
        let (file, text) = match parse(choices) {
            Ok(parsed) => parsed,
            Err(errors) => {
                assert!(!errors.is_empty());
                let plain = |choice: &Choices| Choices { extra: None, ..choice.clone() };
                let choices: Vec<_> = choices.iter().map(plain).collect();
                parse(&choices).expect("rules without a source pool or `to` are valid")
            }
        };
        let ConfigFile::Single(config) = file else { panic!("a single node") };
        let sets = load_sets(&config.policy, |_| unreachable!()).expect("no set has a file");
        let compiled = match compile(&config.policy, &sets) {
            Ok(compiled) => compiled,
            Err(error) => {
                assert!(config.policy.rules.iter().any(|rule| rule.name == error.rule()));
                return;
            }
        };
        for flow in choices.iter().flat_map(|it| [it.flow(), it.flow6()]) {
            let explained = compiled.explain(&flow);
            let first = explained.candidates.first().copied();
            assert_eq!(explained.deciding.map(|it| it.rule), first, "{flow}\n{text}");
        }
        let _ = warnings(&config.policy, &sets, &compiled);
        if choices.len() < 4 {
            let ipv4 = &config.access.subscribers;
            let homes = ComparedHomes { ipv4, ipv6: &[], are_in_tunnels: true, outer6: &[] };
            let same = compare(&compiled, &compiled, &homes);
            assert!(same.changes.is_empty());
        }
    });
}
