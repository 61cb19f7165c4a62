//! The bytes of a connection: each is a function of connection, direction and position. Pure.
//!
//! So a byte that is lost, doubled, changed or of another connection is detected at the first one
//! that differs.

/// The end that sends the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Home,
    Server,
}

/// One direction of a connection, and the current position in it.
#[derive(Clone, Debug)]
pub(super) struct Content {
    seed: u64,
    position: u64,
}

impl Content {
    pub(super) fn of(connection: u32, sender: Sender) -> Self {
        Self { seed: u64::from(connection) << 1 | u64::from(sender == Sender::Server), position: 0 }
    }

    /// Writes the next bytes to send.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = value(self.seed, self.position);
            self.position += 1;
        }
    }

    /// Checks the next received bytes.
    ///
    /// # Errors
    /// The position of the first wrong byte.
    pub(super) fn check(&mut self, bytes: &[u8]) -> Result<(), u64> {
        for &byte in bytes {
            if byte != value(self.seed, self.position) {
                return Err(self.position);
            }
            self.position += 1;
        }
        Ok(())
    }
}

/// Returns a byte of a mixture of both numbers; eight neighbouring bytes share a mixed word.
fn value(seed: u64, position: u64) -> u8 {
    let word = (seed ^ (position / 8) << 34).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word >> (8 * (position % 8))) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_bytes_pass_the_check_however_they_are_split() {
        let mut sent = vec![0; 10_000];
        Content::of(7, Sender::Home).fill(&mut sent);
        let mut expected = Content::of(7, Sender::Home);
        for part in sent.chunks(333) {
            expected.check(part).unwrap();
        }
    }

    #[test]
    fn a_lost_byte_a_changed_byte_and_foreign_bytes_are_seen() {
        let mut sent = vec![0; 1_000];
        Content::of(7, Sender::Home).fill(&mut sent);
        for (connection, sender) in [(8, Sender::Home), (7, Sender::Server)] {
            assert!(Content::of(connection, sender).check(&sent).unwrap_err() < 8);
        }
        let mut changed = sent.clone();
        changed[500] ^= 1;
        assert_eq!(Content::of(7, Sender::Home).check(&changed), Err(500));
        sent.remove(300);
        assert!(Content::of(7, Sender::Home).check(&sent).unwrap_err() < 310);
    }
}
