//! Properties of the packet views over generated and damaged packets, and the comparison with
//! etherparse.

mod any_bytes;
mod clamp_mss;
mod differential;
mod incremental_checksum;
mod packets;
mod round_trip;
