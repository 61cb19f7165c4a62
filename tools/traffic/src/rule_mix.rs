//! Rules for measurements: an ISP's mix, of which none fits the flows of a measurement. Pure.

use std::net::Ipv4Addr;

/// Of so many rules one is about a port alone, these are about prefixes of homes, and the others
/// about prefixes of remotes.
const MIX: u32 = 100;
const OF_HOMES: u32 = 29;
/// Homes and remotes that no measurement has: 10.192.0.0/10, 64.0.0.0/5.
const HOMES: u32 = 0x0ac0_0000;
const HOMES_BITS: u32 = 22;
const REMOTES: u32 = 0x4000_0000;
const REMOTES_BITS: u32 = 27;
/// The first port of the rules about ports; all of them are about TCP, which no measurement is.
const PORT: u32 = 1000;

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MixedRule {
    TcpPort(u32),
    /// A prefix.
    Homes(String),
    /// A prefix.
    Remotes(String),
}

/// Returns a rule of the mix.
pub(crate) fn mixed_rule(number: u32) -> MixedRule {
    match number % MIX {
        0 => MixedRule::TcpPort(PORT + number / MIX),
        1..=OF_HOMES => MixedRule::Homes(prefix(number, HOMES, HOMES_BITS)),
        _ => MixedRule::Remotes(prefix(number, REMOTES, REMOTES_BITS)),
    }
}

/// Returns a prefix of 24 to 32 bits among the last `bits` bits of addresses.
fn prefix(number: u32, first: u32, bits: u32) -> String {
    let length = 24 + number % 9;
    // An odd factor spreads neighbouring numbers.
    let within = number.wrapping_mul(2_654_435_761) >> (32 - bits);
    let address = Ipv4Addr::from_bits((first | within) & (u32::MAX << (32 - length)));
    format!("{address}/{length}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_hundred_rules_one_is_about_a_port_and_29_are_about_homes() {
        let rules: Vec<MixedRule> = (0..1000).map(mixed_rule).collect();
        let of = |fits: fn(&MixedRule) -> bool| rules.iter().filter(|rule| fits(rule)).count();
        assert_eq!(of(|it| matches!(it, MixedRule::TcpPort(_))), 10);
        assert_eq!(of(|it| matches!(it, MixedRule::Homes(_))), 290);
        assert_eq!(rules[100], MixedRule::TcpPort(1001));
        let nets = rules.iter().filter_map(|rule| match rule {
            MixedRule::Homes(net) | MixedRule::Remotes(net) => Some(net),
            MixedRule::TcpPort(_) => None,
        });
        for net in nets {
            let (address, length) = net.split_once('/').unwrap();
            let hosts = u32::MAX.checked_shr(length.parse().unwrap()).unwrap_or(0);
            assert_eq!(address.parse::<Ipv4Addr>().unwrap().to_bits() & hosts, 0, "{net}");
        }
    }
}
