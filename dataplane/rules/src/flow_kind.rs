//! Where a flow comes from, and its protocol.
//!
//! Both families have the same kinds, so that one rule is about flows of both: the kind of ICMP is
//! ICMP (protocol 1, RFC 792) in IPv4, and ICMPv6 (next header 58, RFC 4443) in IPv6. The other way
//! round a packet has no kind: 58 in IPv4 and 1 in IPv6 are protocols that no rule is about.

/// The side that begins a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowOrigin {
    Home,
    Internet,
}

/// Origin and protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKind(u8);

impl FlowKind {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const ICMP: u8 = 1;
    const ICMP6: u8 = 58;

    /// Kinds of one origin.
    const PROTOCOLS: u8 = 3;
    /// All kinds.
    pub(crate) const COUNT: u8 = 2 * Self::PROTOCOLS;

    /// Returns the kind of an IPv4 flow of this protocol; `None` if no rule can be about it.
    #[inline]
    pub const fn new(origin: FlowOrigin, protocol: u8) -> Option<Self> {
        Self::of(origin, protocol, Self::ICMP)
    }

    /// Returns the kind of an IPv6 flow with this upper-layer protocol; `None` if no rule can be
    /// about it.
    #[inline]
    pub const fn new6(origin: FlowOrigin, protocol: u8) -> Option<Self> {
        Self::of(origin, protocol, Self::ICMP6)
    }

    /// `icmp`: the protocol number that has the kind of ICMP.
    #[inline]
    const fn of(origin: FlowOrigin, protocol: u8, icmp: u8) -> Option<Self> {
        let protocol = match protocol {
            Self::TCP => 0,
            Self::UDP => 1,
            _ if protocol == icmp => 2,
            _ => return None,
        };
        let first = match origin {
            FlowOrigin::Home => 0,
            FlowOrigin::Internet => Self::PROTOCOLS,
        };
        Some(Self(first + protocol))
    }

    /// Returns the kind's number, below the number of all kinds.
    #[inline(always)]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns all kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKinds(u8);

impl FlowKinds {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self((1 << FlowKind::COUNT) - 1);

    #[inline(always)]
    pub fn has(self, kind: FlowKind) -> bool {
        self.0 >> kind.0 & 1 != 0
    }

    /// Returns the kinds, bit by bit, of their [numbers](FlowKind::number).
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    /// Whether all kinds of the other set are in this one.
    pub fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}

impl FromIterator<FlowKind> for FlowKinds {
    fn from_iter<T: IntoIterator<Item = FlowKind>>(kinds: T) -> Self {
        Self(kinds.into_iter().fold(0, |set, kind| set | 1 << kind.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icmp_of_either_family_is_one_kind_and_that_of_the_other_family_none() {
        for origin in [FlowOrigin::Home, FlowOrigin::Internet] {
            let [icmp, other] = [1, 58].map(|protocol| FlowKind::new(origin, protocol));
            let [other6, icmp6] = [1, 58].map(|protocol| FlowKind::new6(origin, protocol));
            assert!(icmp.is_some() && icmp == icmp6);
            assert_eq!((other, other6), (None, None));
            for protocol in [6, 17, 47] {
                assert_eq!(FlowKind::new(origin, protocol), FlowKind::new6(origin, protocol));
            }
        }
    }

    #[test]
    fn each_origin_and_protocol_is_a_kind_of_its_own() {
        let kinds: Vec<FlowKind> = [FlowOrigin::Home, FlowOrigin::Internet]
            .into_iter()
            .flat_map(|origin| [6, 17, 1].map(|protocol| FlowKind::new(origin, protocol).unwrap()))
            .collect();
        assert_eq!(kinds, FlowKind::all().collect::<Vec<_>>());
        assert_eq!(kinds.iter().copied().collect::<FlowKinds>(), FlowKinds::ALL);
        assert_eq!(FlowKind::new(FlowOrigin::Home, 47), None);
        let set: FlowKinds = [kinds[1], kinds[5]].into_iter().collect();
        assert_eq!(
            FlowKind::all().filter(|&kind| set.has(kind)).collect::<Vec<_>>(),
            [kinds[1], kinds[5]]
        );
        assert!(FlowKinds::ALL.covers(set) && !set.covers(FlowKinds::ALL));
    }
}
