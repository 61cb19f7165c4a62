//! How long an outer packet may be: path MTU discovery for the tunnel (RFC 1191, RFC 8201).
//! No socket, no device, no clock.

use std::time::{Duration, Instant};

/// Time until a larger packet is tried again (RFC 1191 section 6.3, RFC 8201 section 4).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// What the path to the tunnel endpoint carries, as far as ICMP errors say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathMtu {
    /// Longest outer packet before any error, bytes.
    configured: u16,
    /// No error lowers the value below this, bytes: every link of the family carries it.
    floor: u16,
    /// The value that errors left, and when the last of them came.
    lowered: Option<(u16, Instant)>,
}

impl PathMtu {
    /// Makes a path that carries `configured` bytes, or the floor if that is more.
    pub(crate) fn new(configured: u16, floor: u16) -> Self {
        Self { configured: configured.max(floor), floor, lowered: None }
    }

    /// Returns the length of the longest outer packet, bytes.
    pub(crate) fn get(&self) -> u16 {
        self.lowered.map_or(self.configured, |(mtu, _)| mtu)
    }

    /// Takes the MTU that an ICMP error or the kernel states, in bytes. Returns true if that
    /// lowers the value: an error never raises it.
    pub(crate) fn lower(&mut self, stated: u32, now: Instant) -> bool {
        let stated = u16::try_from(stated).unwrap_or(u16::MAX).max(self.floor);
        let before = self.get();
        if stated < before {
            self.lowered = Some((stated, now));
        }
        stated < before
    }

    /// Returns to the configured value when the last error is old. Returns true if it does.
    pub(crate) fn raise_if_old(&mut self, now: Instant) -> bool {
        let is_old = self
            .lowered
            .is_some_and(|(_, since)| now.saturating_duration_since(since) >= RAISE_AFTER);
        if is_old {
            self.lowered = None;
        }
        is_old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_lower_the_path_mtu_to_its_floor_and_never_raise_it() {
        let now = Instant::now();
        let mut path = PathMtu::new(1500, 1280);
        assert!(!path.lower(1500, now) && !path.lower(9000, now) && !path.lower(u32::MAX, now));
        assert_eq!(path.get(), 1500);
        assert!(path.lower(1400, now));
        assert!(!path.lower(1450, now));
        assert_eq!(path.get(), 1400);
        assert!(path.lower(600, now));
        assert!(!path.lower(0, now));
        assert_eq!(path.get(), 1280);
    }

    #[test]
    fn a_larger_packet_is_tried_again_ten_minutes_after_the_last_error() {
        let start = Instant::now();
        let mut path = PathMtu::new(1500, 1280);
        assert!(!path.raise_if_old(start + RAISE_AFTER));
        path.lower(1400, start);
        path.lower(1300, start + Duration::from_secs(60));
        assert!(!path.raise_if_old(start + RAISE_AFTER));
        assert_eq!(path.get(), 1300);
        assert!(path.raise_if_old(start + RAISE_AFTER + Duration::from_secs(60)));
        assert_eq!(path.get(), 1500);
    }

    #[test]
    fn a_configured_value_below_the_floor_is_the_floor() {
        assert_eq!(PathMtu::new(100, 1280).get(), 1280);
    }
}
