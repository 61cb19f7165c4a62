//! Counts packets and losses in a pcapng stream as it passes by in pieces of any size.

/// Block type of an enhanced packet.
const ENHANCED_PACKET: u32 = 6;
/// Option of an enhanced packet: frames lost before it.
const DROP_COUNT: u16 = 4;
/// Larger blocks do not come from weir.
const BLOCK_MAX: usize = 1 << 20;

/// What has passed by.
#[derive(Debug, Default)]
pub struct Tally {
    /// The unfinished block.
    pending: Vec<u8>,
    packets: u64,
    lost: u64,
}

impl Tally {
    /// Packets seen.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Frames that the capture could not take, as far as packets after them say so.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The next piece of the stream, in this machine's byte order, as the writer on the same machine made it.
    pub fn add(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
        let mut at = 0;
        while let Some(block) = block(&self.pending[at..]) {
            at += block.len();
            if read_u32(block, 0) == Some(ENHANCED_PACKET) {
                self.packets += 1;
                self.lost += drop_count(block).unwrap_or(0);
            }
        }
        self.pending.drain(..at);
    }
}

/// The first block, when it is complete.
fn block(bytes: &[u8]) -> Option<&[u8]> {
    let len = read_u32(bytes, 4)? as usize;
    if (12..=BLOCK_MAX).contains(&len) { bytes.get(..len) } else { None }
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
