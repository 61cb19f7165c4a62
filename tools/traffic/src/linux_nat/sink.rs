//! The program at the far end: it counts the translated packets, keeps a sample of them, and drops
//! them all.

use super::assembler::{Assembler, If, Op, Reg, Size};
use super::bpf::{Link, Program, Value};
use super::flow::{Direction, FRAME_BYTES, HOMES, PUBLIC};

const XDP_DROP: i32 = 1;
/// One packet in this many is kept.
const SAMPLE_EVERY: u64 = 256;
const SAMPLES: usize = 64;
const SLOT_BYTES: usize = 64;
const SLOT_BITS: i32 = SLOT_BYTES.trailing_zeros() as i32;
/// The value of the map: the count in the first 8 of 64 bytes, then the sample slots.
const SLOTS: usize = 64;
const VALUE_BYTES: usize = SLOTS + SAMPLES * SLOT_BYTES;

/// Offsets of the IPv4 source and destination addresses in a frame.
const SOURCE: i16 = 14 + 12;
const DESTINATION: i16 = 14 + 16;

/// The program attached to an interface.
#[derive(Debug)]
pub(super) struct Sink {
    value: Value,
    _link: Link,
}

impl Sink {
    /// Attaches the program for packets translated in this direction to the interface with this
    /// index.
    pub(super) fn attach(direction: Direction, interface: u32) -> nix::Result<Sink> {
        let value = Value::new(VALUE_BYTES)?;
        let link = Program::load(&instructions(direction, value.fd()))?.attach(interface)?;
        Ok(Sink { value, _link: link })
    }

    /// Returns the number of packets so far whose address was translated.
    pub(super) fn translated(&self) -> nix::Result<u64> {
        let value = self.value.read()?;
        Ok(value.first_chunk().map_or(0, |count| u64::from_ne_bytes(*count)))
    }

    /// Returns frames of these packets: the first, and the latest of every 256th.
    pub(super) fn samples(&self) -> nix::Result<Vec<Vec<u8>>> {
        let kept = self.translated()?.div_ceil(SAMPLE_EVERY).min(SAMPLES as u64);
        let value = self.value.read()?;
        let slots = value[SLOTS..].chunks(SLOT_BYTES);
        Ok(slots.take(kept as usize).map(|slot| slot[..FRAME_BYTES].to_vec()).collect())
    }
}

fn instructions(direction: Direction, value: i32) -> Vec<u64> {
    use Reg::{R1, R2, R3, R4, R5, R6, R7};
    let (offset, prefix, mask) = match direction {
        Direction::Up => (SOURCE, PUBLIC, u32::MAX),
        Direction::Down => (DESTINATION, HOMES, HOMES_MASK),
    };
    let in_memory = |address: u32| u32::from_ne_bytes(address.to_be_bytes());
    let mut a = Assembler::default();

    a.load(Size::Four, R2, R1, 0);
    a.load(Size::Four, R3, R1, 4);
    a.register(Op::Move, R4, R2);
    a.constant(Op::Add, R4, FRAME_BYTES as i32);
    let too_short = a.jump(If::Above, R4, R3);

    a.load(Size::Four, R5, R2, offset);
    a.constant(Op::And, R5, in_memory(mask) as i32);
    let foreign = a.jump32(If::NotEqual, R5, in_memory(prefix));

    // All packets are counted on one core: no atomic addition is needed.
    a.value_address(R1, value);
    a.load(Size::Eight, R6, R1, 0);
    a.constant(Op::Add, R6, 1);
    a.store(Size::Eight, R1, 0, R6);

    a.register(Op::Move, R7, R6);
    a.constant(Op::And, R7, SAMPLE_EVERY as i32 - 1);
    let not_sampled = a.jump32(If::NotEqual, R7, 1);
    a.constant(Op::ShiftRight, R6, SAMPLE_EVERY.trailing_zeros() as i32);
    a.constant(Op::And, R6, SAMPLES as i32 - 1);
    a.constant(Op::ShiftLeft, R6, SLOT_BITS);
    a.register(Op::Add, R1, R6);
    for at in (0..FRAME_BYTES as i16).step_by(4) {
        a.load(Size::Four, R3, R2, at);
        a.store(Size::Four, R1, SLOTS as i16 + at, R3);
    }

    a.land(too_short);
    a.land(foreign);
    a.land(not_sampled);
    a.exit(XDP_DROP);
    a.finish()
}

/// The netmask of 10.128.0.0/9.
const HOMES_MASK: u32 = u32::MAX << (32 - 9);
