//! New identifications for fragments that leave (RFC 6864 section 5.3.1), and which ones the homes had given.
//!
//! An ICMP error about a fragment quotes the new identification, and the home knows only its own (RFC 5508 REQ-4a). So the
//! last ones are kept, each until its place is taken by the one that comes so much later.

/// Datagrams that are kept: some tenths of a second of a flood, minutes of what is usual.
const KEPT: usize = 16_384;

/// The datagram of a fragment that has left, as the internet sees it.
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
    /// With the home's own identification.
    kept: Box<[(Fragmented, u16)]>,
}

impl Identifications {
    pub(crate) fn new(last: u16) -> Self {
        let none = Fragmented { public: 0, destination: 0, identification: 0, protocol: 0 };
        Self { last, kept: vec![(none, 0); KEPT].into() }
    }

    /// An identification for a datagram, whose own one is replaced. The counter is not the tunnel headers', which would
    /// carry it round many times while a datagram lives (RFC 6864 section 5.3.1).
    pub(crate) fn replace(&mut self, datagram: Fragmented) -> u16 {
        self.last = self.last.wrapping_add(1);
        let (identification, own) = (self.last, datagram.identification);
        self.kept[usize::from(identification) % KEPT] =
            (Fragmented { identification, ..datagram }, own);
        identification
    }

    /// The home's own identification of a datagram that is quoted.
    pub(crate) fn own(&self, quoted: &Fragmented) -> Option<u16> {
        let (kept, own) = &self.kept[usize::from(quoted.identification) % KEPT];
        (kept == quoted).then_some(*own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_known_and_no_others() {
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
