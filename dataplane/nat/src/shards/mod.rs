//! The shards of a worker, and their coming and going while packets pass.

mod shard_change;
pub(crate) mod shard_table;
