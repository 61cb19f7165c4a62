//! Random policies of both families, decided as the words of the file say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastrand::Rng;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use weir_config::{LoadedSet, OriginSetting, PolicySettings, PortSpan, RuleAddress, RuleSettings};
use weir_policy::{FlowAddresses, FlowQuestion, PolicyError, compile};
use weir_rules::FlowOrigin;

use super::{flow, read_plain};

/// The bits that addresses have in common: of homes, and of remotes.
const HOMES: (u32, u128) = (0x0ac8_0000, 0x2001_0db8_0001 << 80);
const REMOTES: (u32, u128) = (0xc633_0000, 0x2001_0db8_00ff << 80);

/// Returns prefixes of either family, or of both.
fn prefixes(rng: &mut Rng, (base4, base6): (u32, u128), count: usize) -> String {
    let families = rng.u8(1..=3);
    let mut nets: Vec<String> = Vec::new();
    for _ in 0..count {
        let bits = rng.u32(0..0x1_0000) & rng.u32(0..0x1_0000);
        if families & 1 != 0 {
            let net = Ipv4Net::new((base4 | bits).into(), rng.u8(16..=32)).unwrap().trunc();
            nets.push(format!("\"{net}\""));
        }
        if families & 2 != 0 {
            let address = base6 | u128::from(bits) << 64;
            let net = Ipv6Net::new(address.into(), rng.u8(48..=64)).unwrap().trunc();
            nets.push(format!("\"{net}\""));
        }
    }
    nets.join(", ")
}

/// Returns a random policy with nests, sets and ports, for homes without tunnels.
fn random_policy(rng: &mut Rng) -> String {
    let mut text = String::from(
        "[[group]]\nname = \"a\"\nsubscribers = [\"10.200.0.0/18\", \"2001:db8:1::/50\"]\n\
         [[group]]\nname = \"b\"\nsubscribers = [\"10.200.64.0/20\", \"10.200.80.7\", \
         \"2001:db8:1:4000::/52\", \"2001:db8:1:5007::7\"]\n",
    );
    text += &format!("[[set]]\nname = \"s\"\nprefixes = [{}]\n", prefixes(rng, REMOTES, 20));
    for rule in 0..rng.u32(0..20) {
        text += &format!("[[rule]]\nname = \"r{rule}\"\n");
        let action = rng.choice(["accept", "drop", "reject"]).unwrap();
        text += &format!("action = \"{action}\"\n");
        text += &format!("from = \"{}\"\n", rng.choice(["home", "internet", "any"]).unwrap());
        text += rng.choice(["", "groups = \"a\"\n", "groups = [\"a\", \"b\"]\n"]).unwrap();
        match rng.u8(0..5) {
            0 => text += &format!("subscribers = [{}]\n", prefixes(rng, HOMES, 2)),
            1 => text += &format!("remote = [\"@s\", {}]\n", prefixes(rng, REMOTES, 2)),
            2 => text += &format!("remote = [{}]\n", prefixes(rng, REMOTES, 3)),
            3 => {
                text += &format!("subscribers = [{}]\n", prefixes(rng, HOMES, 1));
                text += "remote = \"@s\"\n";
            }
            _ => {}
        }
        match rng.u8(0..3) {
            0 => text += "protocol = \"udp\"\nremote_port = [53, \"100-200\", \"150-300\"]\n",
            1 => text += "protocol = [\"tcp\", \"udp\"]\ninside_port = [\"80-90\", 91]\n",
            _ => text += rng.choice(["", "protocol = \"icmp\"\n"]).unwrap(),
        }
    }
    text
}

fn random_flow(rng: &mut Rng) -> FlowQuestion {
    let is_ipv6 = rng.bool();
    let mut address = |(base4, base6): (u32, u128)| -> IpAddr {
        let bits = rng.u32(0..0x1_0000) & rng.u32(0..0x1_0000);
        match is_ipv6 {
            false => Ipv4Addr::from(base4 | bits).into(),
            true => Ipv6Addr::from(base6 | u128::from(bits) << 64 | rng.u128(0..9)).into(),
        }
    };
    let (home, remote) = (address(HOMES), address(REMOTES));
    let port = |rng: &mut Rng| rng.choice([0, 53, 80, 90, 91, 92, 100, 250, 300, 301]).unwrap();
    let from = rng.choice(["home", "internet"]).unwrap();
    match rng.u8(0..3) {
        0 => flow(&format!("{from} {home} icmp {remote}")),
        1 => flow(&format!("{from} {home} tcp {} {remote} {}", port(rng), port(rng))),
        _ => flow(&format!("{from} {home} udp {} {remote} {}", port(rng), port(rng))),
    }
}

fn is_in(net: &IpNet, address: IpAddr) -> bool {
    net.contains(&address)
}

/// Whether a rule of the file fits, by its words alone: compiled rules must decide as this does.
fn fits(
    policy: &PolicySettings,
    sets: &[LoadedSet],
    rule: &RuleSettings,
    flow: &FlowQuestion,
) -> bool {
    let (home, remote): (IpAddr, IpAddr) = match flow.addresses {
        FlowAddresses::Ipv4 { subscriber, remote } => (subscriber, remote.into()),
        FlowAddresses::Ipv6 { inside, remote, .. } => (inside.into(), remote.into()),
    };
    let has = |list: &[RuleAddress], address: IpAddr| {
        let is_here = |it: &RuleAddress| match it {
            RuleAddress::Net(net) => is_in(net, address),
            RuleAddress::Set(name) => {
                let set = sets.iter().find(|set| set.name == *name);
                set.is_some_and(|set| set.prefixes().any(|net| is_in(&net, address)))
            }
        };
        list.is_empty() || list.iter().any(is_here)
    };
    let mut groups = policy.groups.iter();
    let group = groups.find(|group| group.subscribers.iter().any(|net| is_in(net, home)));
    let ports = |list: &[PortSpan], port: u16| {
        list.is_empty() || list.iter().any(|span| (span.first..=span.last).contains(&port))
    };
    let from = match rule.from {
        OriginSetting::Any => true,
        OriginSetting::Home => flow.from == FlowOrigin::Home,
        OriginSetting::Internet => flow.from == FlowOrigin::Internet,
    };
    from && (rule.protocol.is_empty() || rule.protocol.contains(&flow.protocol))
        && (rule.groups.is_empty() || group.is_some_and(|it| rule.groups.contains(&it.name)))
        && has(&rule.subscribers, home)
        && has(&rule.remote, remote)
        && ports(&rule.inside_port, flow.inside_port)
        && ports(&rule.remote_port, flow.remote_port)
}

/// Whether a rule has subscribers of one family and remotes of the other, by its words alone.
fn is_of_two_families(sets: &[LoadedSet], rule: &RuleSettings) -> bool {
    let families = |list: &[RuleAddress]| {
        let of = |is_ipv6: bool| {
            let is_of = |net: IpNet| matches!(net, IpNet::V6(_)) == is_ipv6;
            list.is_empty()
                || list.iter().any(|it| match it {
                    RuleAddress::Net(net) => is_of(*net),
                    RuleAddress::Set(name) => {
                        sets.iter().any(|set| set.name == *name && set.prefixes().any(is_of))
                    }
                })
        };
        [of(false), of(true)]
    };
    let (homes, remotes) = (families(&rule.subscribers), families(&rule.remote));
    (homes == [true, false] && remotes == [false, true])
        || (homes == [false, true] && remotes == [true, false])
}

#[test]
fn explained_and_compiled_rules_decide_as_the_words_of_the_file_do() {
    let (mut decided, mut refused) = ([0, 0], 0);
    for seed in 0..400 {
        let rng = &mut Rng::with_seed(seed);
        let text = random_policy(rng);
        // Inline prefixes of two families are refused when the file is read.
        let Ok((policy, sets)) = read_plain(&text) else {
            refused += 1;
            continue;
        };
        let wrong = policy.rules.iter().find(|rule| is_of_two_families(&sets, rule));
        let compiled = match (compile(&policy, &sets), wrong) {
            (Ok(compiled), None) => compiled,
            (Err(PolicyError::TwoFamilies { rule, .. }), Some(wrong)) => {
                assert_eq!(rule, wrong.name, "seed {seed}");
                refused += 1;
                continue;
            }
            (compiled, wrong) => panic!("seed {seed}: {compiled:?}, {wrong:?}"),
        };
        for _ in 0..200 {
            let flow = random_flow(rng);
            let fitting = (0..).zip(&policy.rules);
            let fitting = fitting.filter(|(_, rule)| fits(&policy, &sets, rule, &flow));
            let expected: Vec<u32> = fitting.map(|(number, _)| number).collect();
            let explained = compiled.explain(&flow);
            assert_eq!(explained.candidates, expected, "seed {seed}: {flow}");
            let deciding = explained.deciding.map(|it| it.rule);
            assert_eq!(deciding, expected.first().copied(), "seed {seed}: {flow}");
            let is_ipv6 = matches!(flow.addresses, FlowAddresses::Ipv6 { .. });
            decided[usize::from(is_ipv6)] += usize::from(deciding.is_some());
        }
    }
    assert!(decided.iter().all(|&it| it > 5_000) && refused > 20, "{decided:?}, {refused}");
}
