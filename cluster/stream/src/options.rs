//! Limits and times of an endpoint.

use std::ops::RangeInclusive;

use thiserror::Error;

use crate::datagram::{VERSION_MAX, VERSION_MIN};
use crate::record::RECORD_BODY_MAX;

/// Rewrites the body of a record for a peer that speaks version 1 or 2: returns its length in the
/// room.
pub type EarlierBody = fn(body: &[u8], room: &mut [u8; RECORD_BODY_MAX]) -> usize;

/// The rewriting of bodies that are the same in all versions.
fn unchanged(body: &[u8], room: &mut [u8; RECORD_BODY_MAX]) -> usize {
    room[..body.len()].copy_from_slice(body);
    body.len()
}

/// Limits and times; the defaults are for workers of one site.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Protocol versions that this endpoint speaks; a session uses the newest that both ends speak.
    pub versions: RangeInclusive<u8>,
    /// Rewrites bodies for peers that speak an earlier version.
    pub earlier_body: EarlierBody,
    /// Encrypt datagrams. They are authenticated in any case; encryption costs less than
    /// authentication alone, so turn it off only to capture the traffic in the clear.
    pub is_encrypted: bool,
    /// Largest number of peers.
    pub peers_max: u16,
    /// Largest number of slab copies, over all peers.
    pub copies_max: usize,
    /// Datagram buffers of 1,360 bytes for all streams together.
    pub buffers: u32,
    /// Datagrams that a stream may keep unacknowledged, sent or not, before it falls out of sync. A
    /// power of two.
    pub log_datagrams: u32,
    /// Bytes that a stream may have on the way; datagrams: at most 64.
    pub window_bytes: u32,
    /// A datagram with room left is held back this long, so that later records go with it, and so
    /// is an acknowledgement. Less than `retransmit_min_us`.
    pub linger_us: u64,
    /// Interval of the heartbeats to each peer.
    pub heartbeat_us: u64,
    /// Received datagrams are acknowledged after this time, together with those that come until
    /// then; 0: with the next poll.
    pub acknowledge_us: u64,
    /// Time between two HELLOs to a peer without session.
    pub hello_us: u64,
    /// After a peer's silence of this length a new session is tried.
    pub silence_us: u64,
    /// After a peer's silence of this length its streams fall out of sync, full or not.
    pub give_up_us: u64,
    /// Bounds of the retransmission timeout.
    pub retransmit_min_us: u64,
    /// The upper bound.
    pub retransmit_max_us: u64,
    /// Highest rate of the copy over all streams, in bytes of records per second. A worker with
    /// more packets than it can handle copies more slowly, down to a twentieth of it.
    pub copy_bytes_per_sec: u64,
    /// Slots that one poll looks at for the copy.
    pub copy_slots_per_poll: u32,
    /// Time between two sums of the scrub over all streams; 0: no scrub.
    pub scrub_us: u64,
    /// An extent that differed is compared again after this time before it is copied.
    pub settle_us: u64,
    /// Largest number of datagrams per poll.
    pub burst: u32,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            versions: VERSION_MIN..=VERSION_MAX,
            earlier_body: unchanged,
            is_encrypted: true,
            peers_max: 64,
            copies_max: 4096,
            buffers: 8192,
            log_datagrams: 1024,
            window_bytes: 64 * 1400,
            linger_us: 200,
            heartbeat_us: 10_000,
            acknowledge_us: 200,
            hello_us: 50_000,
            silence_us: 200_000,
            give_up_us: 5_000_000,
            retransmit_min_us: 2_000,
            retransmit_max_us: 200_000,
            copy_bytes_per_sec: 50_000_000,
            copy_slots_per_poll: 256,
            scrub_us: 10_000,
            settle_us: 100_000,
            burst: 64,
        }
    }
}

/// An invalid option.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OptionError {
    /// An empty range, or an unknown version.
    #[error("versions are {0:?}: a range of 1 to 3")]
    Versions(RangeInclusive<u8>),
    /// Not a power of two, or too small to hold a window.
    #[error("log_datagrams is {0}: a power of two from 64 to 65,536")]
    LogDatagrams(u32),
    /// Less than two datagrams for each peer.
    #[error("buffers is {buffers}: at least {min} for {peers_max} peers")]
    Buffers {
        /// The value given.
        buffers: u32,
        /// The least value allowed.
        min: u32,
        /// Number of peers they are for.
        peers_max: u16,
    },
    /// A time, rate or limit of 0.
    #[error("{0} is 0")]
    Zero(&'static str),
    /// The lower bound of the retransmission timeout is above the upper.
    #[error("retransmit_min_us is above retransmit_max_us")]
    Retransmit,
    /// A datagram would be sent again before its acknowledgement, which is held back.
    #[error("linger_us or acknowledge_us is not below retransmit_min_us")]
    Linger,
    /// Less than one datagram.
    #[error("window_bytes is {0}: at least 1,400")]
    WindowBytes(u32),
}

impl StreamOptions {
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        let positive = [
            ("peers_max", u64::from(self.peers_max)),
            ("heartbeat_us", self.heartbeat_us),
            ("hello_us", self.hello_us),
            ("silence_us", self.silence_us),
            ("give_up_us", self.give_up_us),
            ("retransmit_min_us", self.retransmit_min_us),
            ("copy_bytes_per_sec", self.copy_bytes_per_sec),
            ("copy_slots_per_poll", u64::from(self.copy_slots_per_poll)),
            ("burst", u64::from(self.burst)),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(OptionError::Zero(name));
        }
        let known = VERSION_MIN..=VERSION_MAX;
        let versions = &self.versions;
        let are_known = known.contains(versions.start()) && known.contains(versions.end());
        if versions.is_empty() || !are_known {
            return Err(OptionError::Versions(versions.clone()));
        }
        if !self.log_datagrams.is_power_of_two() || !(64..=65_536).contains(&self.log_datagrams) {
            return Err(OptionError::LogDatagrams(self.log_datagrams));
        }
        let min = 2 * u32::from(self.peers_max) + 64;
        if self.buffers < min {
            let (buffers, peers_max) = (self.buffers, self.peers_max);
            return Err(OptionError::Buffers { buffers, min, peers_max });
        }
        if self.window_bytes < 1400 {
            return Err(OptionError::WindowBytes(self.window_bytes));
        }
        if self.retransmit_min_us > self.retransmit_max_us {
            return Err(OptionError::Retransmit);
        }
        if self.linger_us.max(self.acknowledge_us) >= self.retransmit_min_us {
            return Err(OptionError::Linger);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_has_its_error() {
        let good = StreamOptions::default();
        assert_eq!(good.check(), Ok(()));
        let refused = |options: StreamOptions| options.check().expect_err("refused").to_string();
        assert!(
            refused(StreamOptions { log_datagrams: 100, ..good.clone() }).contains("power of two")
        );
        assert!(refused(StreamOptions { buffers: 10, ..good.clone() }).contains("at least 192"));
        assert!(refused(StreamOptions { burst: 0, ..good.clone() }).contains("burst is 0"));
        assert!(refused(StreamOptions { window_bytes: 9, ..good.clone() }).contains("1,400"));
        assert!(refused(StreamOptions { linger_us: 2_000, ..good.clone() }).contains("linger_us"));
        for versions in [0..=2, 1..=4, RangeInclusive::new(2, 1)] {
            assert!(refused(StreamOptions { versions, ..good.clone() }).contains("1 to 3"));
        }
        let late = StreamOptions { acknowledge_us: 2_000, ..good.clone() };
        assert!(refused(late).contains("acknowledge_us"));
        let retransmit = StreamOptions { retransmit_min_us: 9, retransmit_max_us: 8, ..good };
        assert!(refused(retransmit).contains("above"));
    }
}
