//! Control datagrams: the heartbeat, with the position of each stream. Fields of type, length and
//! value.
//!
//! ```text
//!  position         1   lane u8 | epoch u32 | last sequence that was sent u64
//!  acknowledgement  2   lane u8 | flags u8 (bit 0: the sums of `check` differ) | window u16
//!                       | epoch u32 | all up to here u64 | map u64 (bit i: here + 2 + i too)
//!                       | check u32
//!  sightings        3   of each of up to 16 nodes:
//!                       node u64 | milliseconds since the sender heard it u16
//!  comebacks        4   of each of up to 16 shards: shard u32 | state u8 | epoch u64
//!  accepts          5   bytes of copies per second that the receiver of the heartbeat may send u32
//! ```
//!
//! Every heartbeat has one field of sightings, which may be empty: it marks the sender as a
//! witness, so a node that it never names is one that it does not hear. Heartbeats of an earlier
//! build have none.
//!
//! Every heartbeat has one field of what its sender accepts of copies; a build without the field
//! accepts the limit.
//!
//! Only a worker that came back while etcd did not answer sends comebacks, in turn over all its
//! heartbeats.

use weir_ids::{LANES, ShardId};

use crate::bytes::{ByteReader, ByteWriter};
use crate::datagram::BODY_MAX;

const POSITION: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;
const SIGHTINGS: u8 = 3;
const COMEBACKS: u8 = 4;
const ACCEPTS: u8 = 5;

const POSITION_LEN: usize = 13;
const ACKNOWLEDGEMENT_LEN: usize = 28;
const SIGHTING_LEN: usize = 10;
const COMEBACK_LEN: usize = 13;
const ACCEPTS_LEN: usize = 4;
const DIFFERS: u8 = 1;

/// Sightings in one heartbeat. If there are more nodes, the next heartbeats have the others.
pub(crate) const SIGHTINGS_MAX: usize = 16;

/// Comebacks in one heartbeat.
const COMEBACKS_MAX: usize = 16;

/// Bytes of the longest control body of ours.
pub(crate) const CONTROL_LEN_MAX: usize = LANES * (4 + POSITION_LEN + ACKNOWLEDGEMENT_LEN)
    + (2 + SIGHTINGS_MAX * SIGHTING_LEN)
    + (2 + COMEBACKS_MAX * COMEBACK_LEN)
    + (2 + ACCEPTS_LEN);

const _: () = assert!(CONTROL_LEN_MAX <= BODY_MAX);
const _: () = assert!(SIGHTINGS_MAX * SIGHTING_LEN < 256 && COMEBACKS_MAX * COMEBACK_LEN < 256);

/// Position of the sender's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamPosition {
    pub(crate) lane: u8,
    pub(crate) epoch: u32,
    pub(crate) last: u64,
}

/// Position of a stream's receiver.
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

/// When the sender heard a node last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) node: u64,
    pub(crate) silent_ms: u16,
}

/// A worker's report on a shard that its former incarnation was a member of, while etcd does not
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comeback {
    pub shard: ShardId,
    /// Epoch of the newest entry that it knows.
    pub epoch: u64,
    pub state: ComebackState,
}

/// State of a shard at a worker that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ComebackState {
    /// The worker has nothing, and no peer has sent it anything of the shard.
    Empty,
    /// The worker has copies, or some of them.
    Copying,
    /// The worker has resumed the member slot of its former incarnation.
    Resumed,
}

impl ComebackState {
    const ALL: [Self; 3] = [Self::Empty, Self::Copying, Self::Resumed];
}

/// Writes the field of comebacks: those whose turn it is, from `turn` on. Returns the next turn.
/// Writes no field if there is no comeback.
pub(crate) fn emit_comebacks(
    comebacks: &[Comeback],
    turn: usize,
    writer: &mut ByteWriter<'_>,
) -> usize {
    if comebacks.is_empty() {
        return 0;
    }
    let turn = if turn < comebacks.len() { turn } else { 0 };
    let listed = &comebacks[turn..comebacks.len().min(turn + COMEBACKS_MAX)];
    writer.u8(COMEBACKS).u8((listed.len() * COMEBACK_LEN) as u8);
    for comeback in listed {
        writer.u32(comeback.shard.0).u8(comeback.state as u8).u64(comeback.epoch);
    }
    turn + listed.len()
}

/// Comebacks as received; those of an unknown state are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comebacks<'a>(&'a [u8]);

impl Comebacks<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Comeback> {
        self.0.chunks_exact(COMEBACK_LEN).filter_map(|bytes| {
            let mut reader = ByteReader(bytes);
            let (shard, state, epoch) = (reader.u32()?, reader.u8()?, reader.u64()?);
            let state = *ComebackState::ALL.get(usize::from(state))?;
            Some(Comeback { shard: ShardId(shard), epoch, state })
        })
    }
}

/// Writes the field of sightings, at most [`SIGHTINGS_MAX`].
pub(crate) fn emit_sightings(sightings: &[Sighting], writer: &mut ByteWriter<'_>) {
    writer.u8(SIGHTINGS).u8((sightings.len() * SIGHTING_LEN) as u8);
    for sighting in sightings {
        writer.u64(sighting.node).u16(sighting.silent_ms);
    }
}

/// Sightings as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sightings<'a>(&'a [u8]);

impl Sightings<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Sighting> {
        let mut reader = ByteReader(self.0);
        std::iter::from_fn(move || Some(Sighting { node: reader.u64()?, silent_ms: reader.u16()? }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Position(StreamPosition),
    Acknowledgement(Acknowledgement),
    Sightings(Sightings<'a>),
    Comebacks(Comebacks<'a>),
    /// Bytes of copies per second.
    Accepts(u32),
}

impl Field<'_> {
    pub(crate) fn emit(&self, writer: &mut ByteWriter<'_>) {
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
            Field::Sightings(sightings) => {
                writer.u8(SIGHTINGS).u8(sightings.0.len() as u8).put(sightings.0);
            }
            Field::Comebacks(comebacks) => {
                writer.u8(COMEBACKS).u8(comebacks.0.len() as u8).put(comebacks.0);
            }
            Field::Accepts(bytes_per_sec) => {
                writer.u8(ACCEPTS).u8(ACCEPTS_LEN as u8).u32(*bytes_per_sec);
            }
        }
    }
}

/// Returns the fields of a control body; unknown and truncated ones are skipped.
pub(crate) fn fields(body: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut reader = ByteReader(body);
    std::iter::from_fn(move || reader.field()).filter_map(|(kind, value)| read(kind, value))
}

fn read(kind: u8, mut value: ByteReader<'_>) -> Option<Field<'_>> {
    match kind {
        POSITION => Some(Field::Position(StreamPosition {
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
        SIGHTINGS => Some(Field::Sightings(Sightings(value.0))),
        COMEBACKS => Some(Field::Comebacks(Comebacks(value.0))),
        ACCEPTS => Some(Field::Accepts(value.u32()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_fields_read_back_equal_and_unknown_ones_are_skipped() {
        let all = [
            Field::Position(StreamPosition { lane: 7, epoch: 3, last: 1 << 40 }),
            Field::Acknowledgement(Acknowledgement {
                lane: 1,
                epoch: 9,
                cumulative: 77,
                map: 1 << 63 | 1,
                window: 64,
                check: 5,
                differs: true,
            }),
            Field::Accepts(5_000_000),
        ];
        let mut buffer = [0; CONTROL_LEN_MAX + 10];
        let mut writer = ByteWriter::new(&mut buffer);
        all[0].emit(&mut writer);
        writer.put(&[99, 2, 1, 1]).put(&[POSITION, 1, 0]);
        all[1].emit(&mut writer);
        all[2].emit(&mut writer);
        let length = writer.len();
        assert_eq!(fields(&buffer[..length]).collect::<Vec<_>>(), all);
        assert_eq!(fields(&buffer[..length - 1]).collect::<Vec<_>>(), all[..2]);
    }

    #[test]
    fn sightings_read_back_equal_and_a_partial_one_is_skipped() {
        let listed =
            [Sighting { node: 1 << 60, silent_ms: 3 }, Sighting { node: 7, silent_ms: 199 }];
        let mut buffer = [0; CONTROL_LEN_MAX];
        for count in 0..=2 {
            let mut writer = ByteWriter::new(&mut buffer);
            emit_sightings(&listed[..count], &mut writer);
            let length = writer.len();
            let Some(Field::Sightings(read)) = fields(&buffer[..length]).next() else {
                panic!("an empty field of sightings is sent, too");
            };
            assert_eq!(read.iter().collect::<Vec<_>>(), listed[..count]);
        }
        buffer[1] -= 1;
        let Some(Field::Sightings(read)) = fields(&buffer).next() else {
            panic!("the body has the field")
        };
        assert_eq!(read.iter().collect::<Vec<_>>(), listed[..1]);
    }

    #[test]
    fn comebacks_are_sent_in_turn_and_read_back_equal() {
        let all: Vec<Comeback> = (0..40)
            .map(|shard| Comeback {
                shard: ShardId(shard),
                epoch: u64::from(shard) << 32,
                state: ComebackState::ALL[shard as usize % 3],
            })
            .collect();
        let (mut turn, mut read) = (0, Vec::new());
        for _ in 0..3 {
            let mut buffer = [0; CONTROL_LEN_MAX];
            let mut writer = ByteWriter::new(&mut buffer);
            turn = emit_comebacks(&all, turn, &mut writer);
            let length = writer.len();
            let Some(Field::Comebacks(listed)) = fields(&buffer[..length]).next() else {
                panic!("the body has the field")
            };
            read.extend(listed.iter());
        }
        assert_eq!(read, all);
        let mut buffer = [0; CONTROL_LEN_MAX];
        let mut writer = ByteWriter::new(&mut buffer);
        assert_eq!(
            emit_comebacks(&all, turn, &mut writer),
            16,
            "the next turn begins with the first comeback again"
        );
        assert_eq!(emit_comebacks(&[], 5, &mut writer), 0);
        // A state of a later build.
        buffer[2 + 4] = 99;
        let Some(Field::Comebacks(listed)) = fields(&buffer).next() else {
            panic!("the body has the field")
        };
        assert_eq!(listed.iter().collect::<Vec<_>>(), all[1..16]);
    }
}
