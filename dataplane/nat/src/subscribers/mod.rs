//! Homes that hold state: which are admitted, what each of them has, and, without translation, the
//! inside addresses that are theirs.

pub(crate) mod address_owner;
pub(crate) mod admission;
pub(crate) mod allowance;
pub(crate) mod outer_addresses;
pub(crate) mod subscriber;

#[cfg(test)]
mod admission_tests;
