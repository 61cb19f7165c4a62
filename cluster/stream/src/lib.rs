//! Replication between workers: the owner of a lane keeps copies of its records equal on other
//! workers.
//!
//! ```text
//!   owner of the lane                                                   replica
//!   NAT --append--> log --datagrams, at most 64 on the way--> reorder --in order--> Sink
//!        Source ----walk (copy, scrub)---^   <--acknowledgements--          one store if newer
//! ```
//!
//! One stream per pair of workers, lane and direction. Datagrams are numbered, kept until they are
//! acknowledged, sent again when lost, delivered in order. An owner never waits: a peer that does
//! not keep up falls out of sync when the bounded log is full, costs nothing from then on, and is
//! copied to again when it answers. The copy goes through the stream too, while changes flow; a
//! slot's version makes it idempotent. What was acknowledged has been applied.
//!
//! ```text
//!   endpoint      one worker's end of everything: peers, append, poll, receive
//!     link        a peer on the network: HELLO, session keys, when it was heard
//!     send_stream, receive_stream, copy, pace, scrub
//!   datagram, record, control, hello      the encodings; seal, session: authentic and secret
//! ```
//!
//! The crate has no I/O, clock, thread or source of randomness: datagrams, microseconds and a
//! secret are arguments, so a simulator runs it from a seed. After construction it allocates
//! nothing per datagram or record. It does not know what a record means, which worker should be
//! whose replica, or when a lane changes hands.

#![forbid(unsafe_code)]

mod buffers;
mod bytes;
mod cluster_keys;
mod control;
mod copy;
mod copying;
mod counters;
mod datagram;
mod describe;
mod endpoint;
mod fingerprint;
mod hello;
mod identity;
mod incoming;
#[cfg(test)]
mod later_version_tests;
mod link;
mod options;
mod outgoing;
mod pace;
mod receive_stream;
mod record;
mod refusal;
mod replay_window;
mod round_trip;
mod scrub;
mod seal;
mod send_stream;
mod session;
mod status;
mod sum;
mod traits;
mod witness;

pub use cluster_keys::{ClusterKeys, KeyFileError};
pub use control::{Comeback, ComebackState};
pub use copy::{CopyId, CopyRoom, CopyState, CopyStatus};
pub use counters::{Lag, PeerCounters};
pub use datagram::{DATAGRAM_MAX, VERSION_MAX, VERSION_MIN};
pub use describe::describe;
pub use endpoint::{PeerError, REPLICAS_MAX, StreamEndpoint, Ticket};
pub use fingerprint::{Fingerprint, FingerprintPart};
pub use identity::{Lineage, Origin, PeerIndex, Provenance, Sequence};
pub use incoming::{ITEMS_MAX, Received};
pub use link::RedirectForm;
pub use options::{EarlierBody, OptionError, StreamOptions};
pub use pace::TurnLoad;
pub use record::{RECORD_BODY_MAX, RECORD_HEADER_LEN, RecordKind, StreamRecord};
pub use refusal::{DatagramRefusal, Refusals};
pub use session::Identity;
pub use status::PeerLinkStatus;
pub use sum::Sum;
pub use traits::{Sink, Source, Transmit};
pub use weir_ids::{BootId, Lane, PeerId, ShardId};
pub use witness::PeerSigns;
