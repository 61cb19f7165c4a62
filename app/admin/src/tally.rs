//! Counts packets and losses in a pcapng stream as it passes by in pieces of any size.

use std::ops::RangeInclusive;

/// Block type of an enhanced packet.
const ENHANCED_PACKET: u32 = 6;
/// Option of an enhanced packet: frames lost before it.
const DROP_COUNT: u16 = 4;
/// Larger blocks do not come from weir.
const BLOCK_LEN: RangeInclusive<usize> = 12..=1 << 20;

/// Counts of the stream so far.
#[derive(Debug, Default)]
pub struct CaptureTally {
    /// The unfinished block.
    pending: Vec<u8>,
    packets: u64,
    lost: u64,
    /// Whether a malformed block has come; nothing is counted after it.
    is_lost: bool,
}

impl CaptureTally {
    /// Packets seen.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of frames that the capture could not take, as far as later packets report
    /// them.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Counts the next piece of the stream, in this machine's byte order, since the writer runs on
    /// the same machine. From a malformed block on, nothing is counted and nothing kept.
    pub fn add(&mut self, piece: &[u8]) {
        if self.is_lost {
            return;
        }
        self.pending.extend_from_slice(piece);
        let mut at = 0;
        while let Some(block) = block(&self.pending[at..]) {
            at += block.len();
            if read_u32(block, 0) == Some(ENHANCED_PACKET) {
                self.packets += 1;
                self.lost = self.lost.saturating_add(drop_count(block).unwrap_or(0));
            }
        }
        self.pending.drain(..at);
        if read_u32(&self.pending, 4).is_some_and(|len| !BLOCK_LEN.contains(&(len as usize))) {
            (self.is_lost, self.pending) = (true, Vec::new());
        }
    }
}

/// Returns the first block if it is complete.
fn block(bytes: &[u8]) -> Option<&[u8]> {
    let len = read_u32(bytes, 4)? as usize;
    if BLOCK_LEN.contains(&len) { bytes.get(..len) } else { None }
}

/// The drop count among the options of an enhanced packet.
fn drop_count(block: &[u8]) -> Option<u64> {
    let captured_len = read_u32(block, 20)? as usize;
    let mut at = 28 + captured_len.next_multiple_of(4);
    loop {
        let code = u16::from_ne_bytes(block.get(at..at + 2)?.try_into().ok()?);
        let len = u16::from_ne_bytes(block.get(at + 2..at + 4)?.try_into().ok()?) as usize;
        match code {
            0 => return None,
            DROP_COUNT => {
                return Some(u64::from_ne_bytes(block.get(at + 4..at + 12)?.try_into().ok()?));
            }
            _ => at += 4 + len.next_multiple_of(4),
        }
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use bolero::check;

    use super::*;

    /// Builds a block of a kind with this body; `dropped` is the drop count in its options.
    fn block_of(kind: u32, body: &[u8], dropped: Option<u64>) -> Vec<u8> {
        let mut bytes = vec![0; 12];
        bytes.extend((body.len() as u32).to_ne_bytes());
        bytes.extend((body.len() as u32).to_ne_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        if let Some(dropped) = dropped {
            bytes.extend(DROP_COUNT.to_ne_bytes());
            bytes.extend(8_u16.to_ne_bytes());
            bytes.extend(dropped.to_ne_bytes());
        }
        let len = bytes.len() as u32 + 12;
        let ends = [kind.to_ne_bytes(), len.to_ne_bytes()].concat();
        [&ends, &bytes[..], &len.to_ne_bytes()].concat()
    }

    /// A stream is counted the same however it is cut; of any bytes, no more than a block is kept.
    #[test]
    fn stream() {
        type Blocks = Vec<(bool, Vec<u8>, Option<u64>)>;
        check!().with_type::<(Blocks, Vec<u8>, Vec<u16>)>().for_each(|(blocks, junk, cuts)| {
            let (mut bytes, mut packets, mut lost) = (Vec::new(), 0, 0_u64);
            for (is_packet, body, dropped) in blocks {
                let kind = if *is_packet { ENHANCED_PACKET } else { 1 };
                bytes.extend(block_of(kind, body, *dropped));
                packets += u64::from(*is_packet);
                lost = lost.saturating_add(dropped.filter(|_| *is_packet).unwrap_or(0));
            }
            let mut whole = CaptureTally::default();
            whole.add(&bytes);
            assert_eq!((whole.packets(), whole.lost()), (packets, lost));
            bytes.extend(junk);
            whole = CaptureTally::default();
            whole.add(&bytes);
            let (mut cut, mut rest) = (CaptureTally::default(), &bytes[..]);
            for at in cuts {
                let (piece, after) = rest.split_at(usize::from(*at).min(rest.len()));
                cut.add(piece);
                rest = after;
            }
            cut.add(rest);
            assert_eq!((cut.packets(), cut.lost()), (whole.packets(), whole.lost()));
            assert!(cut.pending.len() <= *BLOCK_LEN.end());
        });
    }

    #[test]
    fn bytes_that_are_not_pcapng_are_not_kept() {
        let mut tally = CaptureTally::default();
        for _ in 0..10 {
            tally.add(&[0; 1000]);
        }
        assert_eq!((tally.pending.len(), tally.packets()), (0, 0));
    }
}
