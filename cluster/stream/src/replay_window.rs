//! Hot: which numbers of a session were received: each is accepted once, and never after 1,024
//! later ones.

const WORDS: usize = 16;
const NUMBERS: u64 = WORDS as u64 * 64;

/// Numbers above `highest - 1,024`, one bit each, in a ring (RFC 6479).
#[derive(Debug, Default)]
pub(crate) struct ReplayWindow {
    highest: u64,
    seen: [u64; WORDS],
}

impl ReplayWindow {
    fn bit_of(number: u64) -> (usize, u64) {
        ((number / 64) as usize % WORDS, 1 << (number % 64))
    }

    /// Whether the number is new. Numbers start at 1.
    #[inline]
    pub(crate) fn is_new(&self, number: u64) -> bool {
        if number > self.highest {
            return true;
        }
        let (word, bit) = Self::bit_of(number);
        // The word of `highest` is shared with the oldest numbers: those count as too old.
        number != 0 && self.highest - number < NUMBERS - 64 && self.seen[word] & bit == 0
    }

    /// Notes a number that was new and authentic.
    #[inline]
    pub(crate) fn note(&mut self, number: u64) {
        let (old, new) = (self.highest / 64, number / 64);
        for word in (old + 1..=new).take(WORDS) {
            self.seen[word as usize % WORDS] = 0;
        }
        if new > old + WORDS as u64 {
            self.seen = [0; WORDS];
        }
        self.highest = self.highest.max(number);
        let (word, bit) = Self::bit_of(number);
        self.seen[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bolero::check;

    use super::*;

    /// Against a set: no number is accepted twice, and a new one that is not far behind is
    /// accepted.
    #[test]
    fn the_replay_window_agrees_with_a_set() {
        check!().with_type::<Vec<(bool, u16)>>().for_each(|steps| {
            let mut window = ReplayWindow::default();
            let mut seen = HashSet::new();
            let mut highest = 0u64;
            for &(is_back, distance) in steps {
                let distance = u64::from(distance % 2000);
                let number =
                    if is_back { highest.saturating_sub(distance) } else { highest + distance };
                let is_new = window.is_new(number);
                assert!(!(is_new && seen.contains(&number)), "{number} was accepted twice");
                if number != 0 && !seen.contains(&number) && highest.saturating_sub(number) < 900 {
                    assert!(is_new, "{number} is new, the highest is {highest}");
                }
                if is_new {
                    window.note(number);
                    seen.insert(number);
                    highest = highest.max(number);
                }
            }
        });
    }
}
