//! New identifications for outgoing fragments (RFC 6864 section 5.3.1), with the identifications
//! that the homes had assigned.
//!
//! An ICMP error about a fragment quotes the new identification, and the home knows only its own
//! (RFC 5508 REQ-4a). So the latest replacements are kept, each until a later one takes its slot.

/// Number of datagrams that are kept: some tenths of a second of a flood, minutes of usual traffic.
const KEPT: usize = 16_384;

/// The datagram of an outgoing fragment, as the internet sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragmented {
    pub(crate) public: u32,
    pub(crate) destination: u32,
    pub(crate) identification: u16,
    pub(crate) protocol: u8,
}

#[derive(Debug)]
pub(crate) struct Identifications {
    last: u16,
    /// Each datagram with the home's own identification.
    kept: Box<[(Fragmented, u16)]>,
}

impl Identifications {
    pub(crate) fn new(last: u16) -> Self {
        let none = Fragmented { public: 0, destination: 0, identification: 0, protocol: 0 };
        Self { last, kept: vec![(none, 0); KEPT].into() }
    }

    /// Returns a new identification for a datagram and remembers the one that it replaces. The
    /// counter is not shared with the tunnel headers, which would make it wrap around many times
    /// during the life of a datagram (RFC 6864 section 5.3.1).
    pub(crate) fn replace(&mut self, datagram: Fragmented) -> u16 {
        self.last = self.last.wrapping_add(1);
        let (identification, own) = (self.last, datagram.identification);
        self.kept[usize::from(identification) % KEPT] =
            (Fragmented { identification, ..datagram }, own);
        identification
    }

    /// Returns the home's own identification of a quoted datagram.
    pub(crate) fn own(&self, quoted: &Fragmented) -> Option<u16> {
        let (kept, own) = &self.kept[usize::from(quoted.identification) % KEPT];
        (kept == quoted).then_some(*own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_replaced_identifications_are_known_and_no_others() {
        let datagram = |n: u32| Fragmented {
            public: n,
            destination: 2,
            identification: n as u16 ^ 0x5555,
            protocol: 17,
        };
        let mut identifications = Identifications::new(65_000);
        let given: Vec<_> =
            (0..100_000).map(|n| (n, identifications.replace(datagram(n)))).collect();
        for &(n, identification) in &given {
            let own = identifications.own(&Fragmented { identification, ..datagram(n) });
            let is_kept = n >= 100_000 - KEPT as u32;
            assert_eq!(own, is_kept.then_some(datagram(n).identification), "{n}");
        }
        let (n, identification) = given[99_999];
        let other = Fragmented { identification, protocol: 6, ..datagram(n) };
        assert_eq!(identifications.own(&other), None, "another datagram");
    }
}
