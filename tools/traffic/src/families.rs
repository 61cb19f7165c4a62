//! The address families of the flows. Pure; hot where a set of families is a type parameter.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The families that the flows of a run have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Families {
    #[default]
    Ipv4,
    Ipv6,
    /// Half of the flows each, without any order.
    Both,
}

impl Families {
    pub fn has_ipv4(self) -> bool {
        self != Families::Ipv6
    }

    pub fn has_ipv6(self) -> bool {
        self != Families::Ipv4
    }

    /// Returns whether the flow of this number is of IPv6.
    pub fn is_ipv6(self, number: u32) -> bool {
        match self {
            Families::Ipv4 => false,
            Families::Ipv6 => true,
            Families::Both => draws_ipv6(number),
        }
    }
}

impl fmt::Display for Families {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Families::Ipv4 => "ipv4",
            Families::Ipv6 => "ipv6",
            Families::Both => "both",
        })
    }
}

/// [`Families`] at compile time: the code of a run of one family knows no other.
pub trait FamilySet {
    const HAS_IPV4: bool;
    const HAS_IPV6: bool;

    /// As [`Families::is_ipv6`].
    #[inline(always)]
    fn is_ipv6(number: u32) -> bool {
        Self::HAS_IPV6 && (!Self::HAS_IPV4 || draws_ipv6(number))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct OnlyIpv4;

#[derive(Clone, Copy, Debug)]
pub struct OnlyIpv6;

#[derive(Clone, Copy, Debug)]
pub struct BothFamilies;

impl FamilySet for OnlyIpv4 {
    const HAS_IPV4: bool = true;
    const HAS_IPV6: bool = false;
}

impl FamilySet for OnlyIpv6 {
    const HAS_IPV4: bool = false;
    const HAS_IPV6: bool = true;
}

impl FamilySet for BothFamilies {
    const HAS_IPV4: bool = true;
    const HAS_IPV6: bool = true;
}

/// Draws a family by the flow's number, which needs no bit in its record. A regular pattern would
/// teach the device's branch predictor which family comes next: so the number is mixed (the
/// finalizer of MurmurHash3).
#[inline(always)]
fn draws_ipv6(number: u32) -> bool {
    let mut word = number;
    word = (word ^ (word >> 16)).wrapping_mul(0x85eb_ca6b);
    word = (word ^ (word >> 13)).wrapping_mul(0xc2b2_ae35);
    (word ^ (word >> 16)) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_flows_are_of_ipv6_in_no_order() {
        let flows: Vec<bool> = (0..100_000).map(|number| Families::Both.is_ipv6(number)).collect();
        let count = flows.iter().filter(|is_ipv6| **is_ipv6).count();
        assert!(count.abs_diff(50_000) < 500, "{count}");
        let changes = flows.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes.abs_diff(50_000) < 500, "{changes}");
    }

    #[test]
    fn sets_at_compile_time_agree_with_those_at_run_time() {
        for number in 0..1000 {
            assert_eq!(OnlyIpv4::is_ipv6(number), Families::Ipv4.is_ipv6(number));
            assert_eq!(OnlyIpv6::is_ipv6(number), Families::Ipv6.is_ipv6(number));
            assert_eq!(BothFamilies::is_ipv6(number), Families::Both.is_ipv6(number));
        }
    }
}
