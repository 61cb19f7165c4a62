//! The flow table: records in slabs, found through private indexes.
//!
//! Records and indexes are separate. A record is as large as its owner likes and never moves; an
//! index maps the hash of a key to a record id, and there can be as many indexes as a record has
//! keys (for a NAT mapping one for each direction). The record holds the keys, so the index asks
//! the caller's closure whether a record is the one sought.
//!
//! ```text
//!   key --HashKey--> Hash --Index--> RecordId --Slabs--> record
//!
//!   Index: buckets of one cache line; an entry is in its primary or in its alternate bucket
//!   +----------------------------------------------------------------+
//!   | 8 tags (16 bits of hash) | 8 record ids | 16 counts | 8 x away | <- primary: tag found,
//!   +----------------------------------------------------------------+    or count 0: one line
//!   | 8 tags                   | 8 record ids | 16 counts | 8 x away | <- alternate: computed from
//!   +----------------------------------------------------------------+    primary and tag alone,
//!                                               so no record is read to move an entry
//!
//!   Slabs: an arena of extents of 1,024 records; an extent belongs to one slab, or is free
//!   extent     0              1              2              3
//!          +--------------+--------------+--------------+--------------+
//!          | slab 7       | slab 0       | free         | slab 7       |
//!          | position 0   | position 0   |              | position 1   |
//!          +--------------+--------------+--------------+--------------+
//!            |       ^ dead -> dead -> end   each extent's free list: links are in dead records
//!            +--- next with room ---------------------------> 3 -> end   each slab's list: links
//!                                                                        are in the extents
//!   RecordId = extent * 1,024 + offset
//!   slot     = position * 1,024 + offset
//! ```
//!
//! A slab is one lane of one shard: what one writer owns and replicas mirror slot by slot. A
//! record's slot does not change while it lives, and the version of a slot only rises, even if the
//! slab gives the extent back and later gets another at the same position. So (slab, slot, version)
//! permanently names one record, as long as no slot falls 2^31 uses behind another of its slab.
//!
//! All memory is mapped and touched by the constructors, on the thread that calls them; nothing is
//! allocated later. There are no threads here: one worker owns a table.

pub mod hash;
pub mod index;
pub mod region;
pub mod slabs;

mod bucket;
mod displace;
mod error;
mod extent;
mod huge_pages;
mod mirror;
mod page_size;
mod positions;
mod prefetch;
mod record;
mod tags;
mod vacate;
mod walk;

pub use error::{Full, OutOfMemory};
pub use extent::{OFFSET_BITS, RECORDS};
pub use hash::{Hash, HashKey, WordHasher};
pub use index::{Candidate, Index};
pub use page_size::PageSize;
pub use prefetch::prefetch;
pub use record::{Record, RecordId, SlabId, is_later_version};
pub use region::Region;
pub use slabs::Slabs;
pub use walk::Cursor;
