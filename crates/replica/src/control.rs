//! Control datagrams: the heartbeat, and in it where each stream stands. Fields of type, length and value.
//!
//! ```text
//!  position         1   lane u8 | epoch u32 | last sequence that was sent u64
//!  acknowledgement  2   lane u8 | flags u8 (bit 0: the sums of `check` differ) | window u16 | epoch u32
//!                       | all up to here u64 | map u64 (bit i: here + 2 + i too) | check u32
//! ```

use crate::bytes::{Reader, Writer};
use crate::identity::LANES;

const POSITION: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;

const POSITION_LEN: usize = 13;
const ACKNOWLEDGEMENT_LEN: usize = 28;
const DIFFERS: u8 = 1;

/// Bytes of the longest control body of ours.
pub(crate) const CONTROL_LEN_MAX: usize = LANES * (4 + POSITION_LEN + ACKNOWLEDGEMENT_LEN);

/// How far the sender's stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) lane: u8,
    pub(crate) epoch: u32,
    pub(crate) last: u64,
}

/// How far the receiver of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    pub(crate) lane: u8,
    pub(crate) epoch: u32,
    /// All sequences up to this one were applied.
    pub(crate) cumulative: u64,
    /// Bit i: the datagram `cumulative + 2 + i` is held.
    pub(crate) map: u64,
    /// Datagrams behind `cumulative` that there is room for.
    pub(crate) window: u16,
    /// Number of the last sum that was compared, 0 = none, and whether it differed.
    pub(crate) check: u32,
    pub(crate) differs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Position(Position),
    Acknowledgement(Acknowledgement),
}

impl Field {
    pub(crate) fn emit(&self, writer: &mut Writer<'_>) {
        match self {
            Field::Position(position) => {
                writer.u8(POSITION).u8(POSITION_LEN as u8);
                writer.u8(position.lane).u32(position.epoch).u64(position.last);
            }
            Field::Acknowledgement(ack) => {
                writer.u8(ACKNOWLEDGEMENT).u8(ACKNOWLEDGEMENT_LEN as u8);
                writer.u8(ack.lane).u8(if ack.differs { DIFFERS } else { 0 }).u16(ack.window);
                writer.u32(ack.epoch).u64(ack.cumulative).u64(ack.map).u32(ack.check);
            }
        }
    }
}

/// The fields of a control body; unknown ones and those too short are passed over.
pub(crate) fn fields(body: &[u8]) -> impl Iterator<Item = Field> {
    let mut reader = Reader(body);
    std::iter::from_fn(move || reader.field()).filter_map(|(kind, value)| read(kind, value))
}

fn read(kind: u8, mut value: Reader<'_>) -> Option<Field> {
    match kind {
        POSITION => Some(Field::Position(Position {
            lane: value.u8()?,
            epoch: value.u32()?,
            last: value.u64()?,
        })),
        ACKNOWLEDGEMENT => {
            let [lane, flags] = value.array()?;
            Some(Field::Acknowledgement(Acknowledgement {
                lane,
                differs: flags & DIFFERS != 0,
                window: value.u16()?,
                epoch: value.u32()?,
                cumulative: value.u64()?,
                map: value.u64()?,
                check: value.u32()?,
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_unknown_is_passed_over() {
        let all = [
            Field::Position(Position { lane: 7, epoch: 3, last: 1 << 40 }),
            Field::Acknowledgement(Acknowledgement {
                lane: 1,
                epoch: 9,
                cumulative: 77,
                map: 1 << 63 | 1,
                window: 64,
                check: 5,
                differs: true,
            }),
        ];
        let mut buffer = [0; CONTROL_LEN_MAX + 10];
        let mut writer = Writer::new(&mut buffer);
        all[0].emit(&mut writer);
        writer.put(&[99, 2, 1, 1]).put(&[POSITION, 1, 0]);
        all[1].emit(&mut writer);
        let length = writer.len();
        assert_eq!(fields(&buffer[..length]).collect::<Vec<_>>(), all);
        assert_eq!(fields(&buffer[..length - 1]).collect::<Vec<_>>(), all[..1]);
    }
}
