//! Public addresses, their port blocks, and the choice of a port.

pub(crate) mod address_ranges;
pub(crate) mod out_of_service;
pub(crate) mod port_block;
pub(crate) mod port_choice;
pub(crate) mod random;
pub(crate) mod shard_capacity;
pub(crate) mod source_pools;
pub(crate) mod static_mappings;
