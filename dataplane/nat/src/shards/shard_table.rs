//! The shards of a worker by their index, those that are being removed included.

use weir_ids::ShardId;

use crate::config::{NatConfig, NatShardConfig};
use crate::endpoint::ShardIndex;

#[derive(Debug)]
struct ShardRow {
    config: NatShardConfig,
    is_leaving: bool,
}

/// A position for each shard that there is room for. A position is used again once its shard is
/// gone.
#[derive(Debug)]
pub(crate) struct ShardTable {
    rows: Box<[Option<ShardRow>]>,
    /// Among the shards that are being removed, the one that is being emptied.
    pub(crate) leaving: Option<ShardIndex>,
}

impl ShardTable {
    /// Builds the table with the shards of the configuration, in their order.
    pub(crate) fn new(config: &NatConfig) -> Self {
        let given = config.shards.iter().cloned();
        let given = given.map(|config| Some(ShardRow { config, is_leaving: false }));
        let rows = given.chain(std::iter::repeat_with(|| None)).take(config.shards_max());
        Self { rows: rows.collect(), leaving: None }
    }

    /// Returns the number of positions, taken or not.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the id of a shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub(crate) fn id(&self, shard: ShardIndex) -> ShardId {
        self.config(shard).id
    }

    /// Returns the configuration of a shard. Panics like [`id`](Self::id).
    pub(crate) fn config(&self, shard: ShardIndex) -> &NatShardConfig {
        let row = self.rows[usize::from(shard.0)].as_ref();
        &row.expect("the index names a shard in the table").config
    }

    /// Whether the shard is here and is not being removed.
    ///
    /// # Panics
    /// If there is no such shard.
    pub(crate) fn is_staying(&self, shard: ShardIndex) -> bool {
        let row = self.rows.get(usize::from(shard.0)).and_then(Option::as_ref);
        !row.expect("the index names a shard in the table").is_leaving
    }

    /// True if there is no shard at this index, or the one it had is gone.
    pub(crate) fn is_free(&self, shard: ShardIndex) -> bool {
        self.rows.get(usize::from(shard.0)).is_none_or(Option::is_none)
    }

    /// Returns the lowest free index.
    pub(crate) fn free_index(&self) -> Option<ShardIndex> {
        self.rows.iter().position(Option::is_none).map(|row| ShardIndex(row as u16))
    }

    pub(crate) fn insert(&mut self, shard: ShardIndex, config: NatShardConfig) {
        self.rows[usize::from(shard.0)] = Some(ShardRow { config, is_leaving: false });
    }

    /// Marks the shard as being removed. Panics like [`is_staying`](Self::is_staying).
    pub(crate) fn leave(&mut self, shard: ShardIndex) {
        let row = self.rows.get_mut(usize::from(shard.0)).and_then(Option::as_mut);
        row.expect("a shard that is removed is in the table").is_leaving = true;
        self.leaving = self.leaving.or(Some(shard));
    }

    /// Frees the index of a shard that is gone.
    pub(crate) fn remove(&mut self, shard: ShardIndex) {
        self.rows[usize::from(shard.0)] = None;
        let next =
            self.rows.iter().position(|row| row.as_ref().is_some_and(|shard| shard.is_leaving));
        self.leaving = next.map(|row| ShardIndex(row as u16));
    }

    /// Returns all shards that hold addresses and room, and whether they are being removed.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ShardIndex, &NatShardConfig, bool)> {
        self.rows.iter().zip(0..).filter_map(|(row, index)| {
            row.as_ref().map(|shard| (ShardIndex(index), &shard.config, shard.is_leaving))
        })
    }
}
