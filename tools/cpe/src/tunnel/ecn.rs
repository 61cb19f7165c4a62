//! The congestion marks of tunnels (RFC 6040): one rule for every pair of families.

use super::Refused;

/// The ECN field in a traffic class or type of service.
pub(super) const ECN: u8 = 0b11;
pub(super) const NOT_ECT: u8 = 0b00;
pub(super) const ECT_1: u8 = 0b01;
pub(super) const ECT_0: u8 = 0b10;
pub(super) const CE: u8 = 0b11;

/// RFC 6040 figure 4: returns the ECN field to forward for the given arriving inner and outer ones.
pub(super) fn merge(inner: u8, outer: u8) -> Result<u8, Refused> {
    match (inner, outer) {
        (NOT_ECT, CE) => Err(Refused::Congestion),
        (NOT_ECT, _) => Ok(NOT_ECT),
        (_, CE) => Ok(CE),
        (ECT_0, ECT_1) => Ok(ECT_1),
        (inner, _) => Ok(inner),
    }
}
