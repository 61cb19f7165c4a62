//! The accounts of a flood: every sent packet came back correct, came back wrong, or is lost.

use serde::{Deserialize, Serialize};

/// The judgement of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    /// Upstream: not the public endpoint or the remote of this flow. Downstream: not its home, its
    /// tunnel or its inside endpoint.
    WrongAddress,
    BadChecksum,
    /// The same lap of the same flow a second time.
    Duplicate,
}

impl Verdict {
    /// True if the packet is the one that was sent, even if it arrived a second time.
    pub fn is_delivered(self) -> bool {
        matches!(self, Verdict::Right | Verdict::Duplicate)
    }
}

/// Packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub sent: u64,
    pub right: u64,
    pub wrong_address: u64,
    pub bad_checksum: u64,
    pub duplicate: u64,
}

impl Account {
    #[inline]
    pub fn enter(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Right => self.right += 1,
            Verdict::WrongAddress => self.wrong_address += 1,
            Verdict::BadChecksum => self.bad_checksum += 1,
            Verdict::Duplicate => self.duplicate += 1,
        }
    }

    /// Returns the number of packets that never came back. Exact once no packet is in flight; a
    /// duplicate does not offset a loss.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.right + self.wrong_address + self.bad_checksum)
    }

    /// Returns the number of packets that came back although they should not, or not in this form.
    pub fn wrong(&self) -> u64 {
        self.wrong_address + self.bad_checksum + self.duplicate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sent_packet_is_right_wrong_or_lost() {
        let mut account = Account { sent: 10, ..Account::default() };
        for verdict in [Verdict::Right, Verdict::Right, Verdict::WrongAddress, Verdict::BadChecksum]
        {
            account.enter(verdict);
        }
        assert_eq!((account.right, account.wrong(), account.lost()), (2, 2, 6));
    }

    #[test]
    fn duplicate_does_not_offset_a_loss() {
        let mut account = Account { sent: 3, ..Account::default() };
        account.enter(Verdict::Right);
        account.enter(Verdict::Duplicate);
        assert_eq!((account.lost(), account.wrong()), (2, 1));
    }
}
