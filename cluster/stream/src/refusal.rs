//! Reasons why a received datagram was not used.

/// Reason under which a datagram that is not used is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DatagramRefusal {
    /// Source address and sender are not those of a peer; nothing else was checked.
    NotAPeer,
    /// Shorter than header and tag.
    Truncated,
    /// Of another protocol, too long, or authentic with fields that contradict each other.
    Malformed,
    /// A protocol version we do not speak, or that the session did not negotiate.
    Version,
    /// Sealed with the key of a session that is over: mostly of an earlier boot of the peer or of
    /// ours.
    OldBoot,
    /// Sealed with the key of a session that we do not have (yet).
    NoSession,
    /// The authentication tag is wrong.
    BadMac,
    /// A number that was received before, or is too old to be checked.
    Replayed,
    /// About an epoch of a stream before it restarted.
    StaleEpoch,
    /// The peer's configuration differs in what replication depends on.
    Fingerprint,
    /// More HELLOs than are checked in this time.
    HelloRate,
    /// There was no room to hold or apply it; the sender repeats it.
    NoRoom,
}

impl DatagramRefusal {
    /// All reasons, in the order of their numbers.
    pub const ALL: [DatagramRefusal; 12] = [
        DatagramRefusal::NotAPeer,
        DatagramRefusal::Truncated,
        DatagramRefusal::Malformed,
        DatagramRefusal::Version,
        DatagramRefusal::OldBoot,
        DatagramRefusal::NoSession,
        DatagramRefusal::BadMac,
        DatagramRefusal::Replayed,
        DatagramRefusal::StaleEpoch,
        DatagramRefusal::Fingerprint,
        DatagramRefusal::HelloRate,
        DatagramRefusal::NoRoom,
    ];

    /// Returns its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            DatagramRefusal::NotAPeer => "not-a-peer",
            DatagramRefusal::Truncated => "truncated",
            DatagramRefusal::Malformed => "malformed",
            DatagramRefusal::Version => "version",
            DatagramRefusal::OldBoot => "old-boot",
            DatagramRefusal::NoSession => "no-session",
            DatagramRefusal::BadMac => "bad-mac",
            DatagramRefusal::Replayed => "replayed",
            DatagramRefusal::StaleEpoch => "stale-epoch",
            DatagramRefusal::Fingerprint => "fingerprint",
            DatagramRefusal::HelloRate => "hello-rate",
            DatagramRefusal::NoRoom => "no-room",
        }
    }
}

/// How many datagrams were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; DatagramRefusal::ALL.len()]);

impl Refusals {
    pub(crate) fn count(&mut self, refusal: DatagramRefusal) {
        self.0[refusal as usize] += 1;
    }

    /// Datagrams refused for this reason.
    pub fn of(&self, refusal: DatagramRefusal) -> u64 {
        self.0[refusal as usize]
    }

    /// Datagrams refused for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_own_index_and_name() {
        let mut refusals = Refusals::default();
        for (index, refusal) in DatagramRefusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, index);
            refusals.count(refusal);
            assert_eq!(refusals.of(refusal), 1);
        }
        assert_eq!(refusals.total(), DatagramRefusal::ALL.len() as u64);
        let names: std::collections::HashSet<_> =
            DatagramRefusal::ALL.map(DatagramRefusal::name).into();
        assert_eq!(names.len(), DatagramRefusal::ALL.len());
    }
}
