//! The families of addresses: each has a list of its own, and what is alike in both becomes one
//! rule.

use std::collections::BTreeMap;

use super::flatten::{Fate, FlatEntry, FlatOutcome};
use super::ruleset::{RulePlace, TableName};
use super::statements::Understood;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AddressFamily {
    Ipv4,
    Ipv6,
}

impl AddressFamily {
    pub(super) const BOTH: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }

    /// Returns the last address.
    pub(super) fn last_address(self) -> u128 {
        match self {
            Self::Ipv4 => u128::from(u32::MAX),
            Self::Ipv6 => u128::MAX,
        }
    }

    /// Returns the number of bits of an address.
    pub(super) fn bits(self) -> u32 {
        match self {
            Self::Ipv4 => u32::BITS,
            Self::Ipv6 => u128::BITS,
        }
    }

    /// Returns the prefix of all addresses.
    pub(super) fn all(self) -> &'static str {
        match self {
            Self::Ipv4 => "0.0.0.0/0",
            Self::Ipv6 => "::/0",
        }
    }

    /// Whether packets of the family pass the chains of a table.
    pub(super) fn passes(self, table: &TableName) -> bool {
        match self {
            Self::Ipv4 => matches!(&*table.family, "ip" | "inet"),
            Self::Ipv6 => matches!(&*table.family, "ip6" | "inet"),
        }
    }
}

/// An entry, and whether it is about both families.
#[derive(Clone, Debug)]
pub(super) struct MergedEntry<'a> {
    pub entry: FlatEntry<'a>,
    pub is_of_both: bool,
}

/// Puts the lists of both families together. Each keeps its order, and no flow is in both, so an
/// entry may stand anywhere among those of the other family.
pub(super) fn merge<'a>(
    ipv4: Vec<FlatEntry<'a>>,
    ipv6: Vec<FlatEntry<'a>>,
) -> Vec<MergedEntry<'a>> {
    let mut places: BTreeMap<&RulePlace, Vec<usize>> = BTreeMap::new();
    for (at, entry) in ipv6.iter().enumerate() {
        places.entry(entry.place).or_default().push(at);
    }
    let of_one = |entry: FlatEntry<'a>| MergedEntry { entry, is_of_both: false };
    let mut merged = Vec::new();
    let mut rest = ipv6.iter().cloned();
    let mut taken = 0;
    for entry in ipv4 {
        let like = places.get(entry.place).into_iter().flatten();
        let mut later = like.copied().filter(|at| *at >= taken);
        match later.find(|at| are_alike(&entry, &ipv6[*at])) {
            Some(at) => {
                merged.extend(rest.by_ref().take(at - taken).map(of_one));
                rest.next();
                taken = at + 1;
                merged.push(MergedEntry { entry, is_of_both: true });
            }
            None => merged.push(of_one(entry)),
        }
    }
    merged.extend(rest.map(of_one));
    merged
}

/// Whether two entries of one place differ by their families alone.
fn are_alike(ipv4: &FlatEntry<'_>, ipv6: &FlatEntry<'_>) -> bool {
    let (one, other) = (&ipv4.flows, &ipv6.flows);
    ipv4.outcome == ipv6.outcome
        && !matches!(ipv4.outcome, FlatOutcome::Redirect(_))
        && ipv4.comment == ipv6.comment
        && (one.from, one.protocols, &one.ports) == (other.from, other.protocols, &other.ports)
        && one.has_all_addresses()
        && other.has_all_addresses()
}

/// Puts together what has become of the rules in both families.
pub(super) fn merge_fates<'a>(
    ipv4: BTreeMap<&'a RulePlace, Fate>,
    ipv6: BTreeMap<&'a RulePlace, Fate>,
) -> BTreeMap<&'a RulePlace, Fate> {
    let mut fates = ipv4;
    for (place, of_ipv6) in ipv6 {
        let fate = match fates.remove(place) {
            Some(of_ipv4) => both(of_ipv4, of_ipv6),
            None => of_ipv6,
        };
        fates.insert(place, fate);
    }
    fates
}

fn both(ipv4: Fate, ipv6: Fate) -> Fate {
    match (ipv4, ipv6) {
        (Fate::Understood(one), Fate::Understood(other)) => {
            Fate::Understood(both_understood(one, other))
        }
        (Fate::NotCarriedOver(reason), Fate::Understood(other)) => {
            in_one_family(AddressFamily::Ipv4, reason, other)
        }
        (Fate::Understood(other), Fate::NotCarriedOver(reason)) => {
            in_one_family(AddressFamily::Ipv6, reason, other)
        }
        (Fate::NotCarriedOver(one), Fate::NotCarriedOver(other)) => {
            let reasons = if one == other { one } else { format!("{one}; {other}") };
            Fate::NotCarriedOver(reasons)
        }
    }
}

/// Returns the fate of a rule that is understood in the other family.
fn in_one_family(family: AddressFamily, reason: String, mut other: Understood) -> Fate {
    if other.arms.is_empty() {
        return Fate::NotCarriedOver(reason);
    }
    other.missing.push(format!("of {}: {reason}", family.name()));
    Fate::Understood(other)
}

fn both_understood(mut one: Understood, other: Understood) -> Understood {
    let add = |list: &mut Vec<String>, more: Vec<String>| {
        for text in more {
            if !list.contains(&text) {
                list.push(text);
            }
        }
    };
    add(&mut one.missing, other.missing);
    add(&mut one.notes, other.notes);
    one.implied = match (one.implied, other.implied) {
        (Some(why), Some(Understood::FITS_NOTHING))
        | (Some(Understood::FITS_NOTHING), Some(why)) => Some(why),
        (why, Some(_)) => why,
        (_, None) => None,
    };
    one.arms.extend(other.arms);
    one
}
