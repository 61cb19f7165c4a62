//! Properties of the packet views over generated and damaged packets, and the comparison with
//! etherparse.

mod any_bytes;
mod clamp_mss;
mod differential;
mod differential6;
mod incremental_checksum;
mod incremental_checksum6;
mod packets;
mod packets6;
mod round_trip;
