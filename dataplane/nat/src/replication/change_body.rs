//! Hot. The body of a change: parts, each a type, a length and fields. Fields are big-endian, but
//! for images, which are records' memory.
//!
//! ```text
//!  0 type u8   1 length u8 of what follows   2 fields
//!  mapping  1   what an image tells, in the versions of the protocol before images:
//!               kind u8 (1 live, 2 quarantined) | protocol u8
//!               | flags u8 (1 GRE key known, 2 unclean end, 4 a flow of the home was answered)
//!               | outer address u32 | GRE key u32 | inside address u32, port u16
//!               | public address u32, port u16 | first remote address u32, port u16, state u16
//!               | age in seconds u32
//!  session  2   what a session image tells, in the versions before images:
//!               slot u32 and version u32 of its mapping | remote address u32, port u16, state u16
//!  paired   3   paired address u32 of the home, if it is not the mapping's public address
//!  idle     4   seconds u32 since the last packet
//!  run      5   slots u32
//!  segment  6   remote address u32, port u16 | sender u8 (1 inside, 2 remote)
//!               | TCP flags u8 (RFC 9293 section 3.1)
//!  state    7   remote address u32, port u16 | state u16
//!  mapping  8   image [u8; 32] of the mapping, see `image.rs` | GRE key u32 if it is known
//!  session  9   image [u8; 16] of the session, see `session_image.rs`
//!  flow    11   image [u8; 56] of an IPv6 flow, see `ipv6/flow_image.rs`
//!  asked   10   address u32, port u16 that the home asks, if a rule gave the flow another
//!               destination, which is the remote of the image
//!  outer6  12   the home's outer IPv6 address [u8; 16]; the outer address of the image is then the
//!               writer's handle, which means nothing here
//!
//!  Create, Change   of a mapping: mapping [asked] [paired] [outer6]
//!                   of an IPv6 flow: flow [outer6]
//!                   of a session: session mapping [paired] [outer6]
//!  OwnerUpdate            idle [segment] [state]     Clear   run     Delete   nothing
//! ```
//!
//! Parts of unknown type are skipped, and so are fields behind those known here. A session brings
//! its mapping along, a mapping its home and so the owner of its port block: a change needs no
//! other to have come before. Bits of a state: 0 to 8 TCP (`sessions/tcp_state.rs`), 9 the inside
//! has sent, 10 the remote has sent, 11 the remote opened the session.
//!
//! Bits 2 to 4 of an image's kind are 0: another value is a record that this version does not know,
//! and is refused.

use crate::endpoint::{Endpoint, Protocol};
use crate::ipv6::FlowImage;
use crate::replication::change::BODY_MAX;
use crate::replication::image::MappingImage;
use crate::replication::journal::TrackedSegment;
use crate::replication::session_image::SessionImage;
use crate::sessions::mapping::{Mapping, MappingKind};
use crate::sessions::session_state::{SentBy, SessionState};

const MAPPING: u8 = 1;
const SESSION: u8 = 2;
const PAIRED_ADDRESS: u8 = 3;
const IDLE: u8 = 4;
const RUN: u8 = 5;
const SEGMENT: u8 = 6;
const STATE: u8 = 7;
const IMAGE: u8 = 8;
const SESSION_IMAGE: u8 = 9;
const ASKED: u8 = 10;
const FLOW6: u8 = 11;
const OUTER6: u8 = 12;

const MAPPING_LEN: usize = 35;
const SESSION_LEN: usize = 16;
const WORD_LEN: usize = 4;
const SEGMENT_LEN: usize = 8;
const STATE_LEN: usize = 8;
const ASKED_LEN: usize = 6;
const OUTER6_LEN: usize = 16;
const KEYED_IMAGE_LEN: usize = MappingImage::LEN + MappingImage::KEY_LEN;

/// Bytes of the longest body written here.
const _: () = {
    let of_session = 2 + SessionImage::LEN + 2 + KEYED_IMAGE_LEN + 2 + ASKED_LEN + 2 + WORD_LEN;
    assert!(of_session + 2 + OUTER6_LEN <= BODY_MAX);
};

const KEYED: u8 = 1;
const UNCLEAN: u8 = 2;
const ANSWERED: u8 = 4;

const FROM_INSIDE: u8 = 1;
const FROM_REMOTE: u8 = 2;

/// A segment that another worker saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentBody {
    pub(crate) remote: Endpoint,
    pub(crate) segment: TrackedSegment,
}

/// The state that a session has reached on another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateBody {
    pub(crate) remote: Endpoint,
    pub(crate) state: SessionState,
}

/// The parts of a body that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) mapping: Option<MappingImage>,
    pub(crate) flow6: Option<FlowImage>,
    /// The outer address of the home's tunnel over IPv6, by its upper and lower half.
    pub(crate) outer6: Option<[u64; 2]>,
    /// The destination that the home asks, if the mapping's flow has another one.
    pub(crate) asked: Option<Endpoint>,
    pub(crate) session: Option<SessionImage>,
    pub(crate) paired_address: Option<u32>,
    pub(crate) idle_sec: Option<u32>,
    pub(crate) run: Option<u32>,
    pub(crate) segment: Option<SegmentBody>,
    pub(crate) state: Option<StateBody>,
}

/// Writes the parts of a body one after the other.
#[derive(Debug)]
pub(crate) struct BodyWriter<'a> {
    bytes: &'a mut [u8; BODY_MAX],
    len: usize,
}

impl<'a> BodyWriter<'a> {
    pub(crate) fn new(bytes: &'a mut [u8; BODY_MAX]) -> Self {
        Self { bytes, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn part<const LEN: usize>(&mut self, kind: u8, fields: [u8; LEN]) {
        let part = &mut self.bytes[self.len..][..2 + LEN];
        (part[0], part[1]) = (kind, LEN as u8);
        part[2..].copy_from_slice(&fields);
        self.len += 2 + LEN;
    }

    #[inline(always)]
    pub(crate) fn mapping(&mut self, image: &MappingImage) {
        self.part(IMAGE, image.bytes());
        if let Some(key) = image.gre_key() {
            self.lengthen(key.to_be_bytes());
        }
    }

    /// Writes the destination that the home asks, behind the image of a flow that has another one.
    #[inline(never)]
    pub(crate) fn asked(&mut self, asked: Endpoint) {
        self.part(ASKED, endpoint_bytes(asked));
    }

    /// Writes the image of an IPv6 flow.
    #[inline(never)]
    pub(crate) fn flow6(&mut self, image: &FlowImage) {
        self.part(FLOW6, image.bytes());
    }

    /// Writes the outer address of a tunnel over IPv6, behind the image of a flow of the home.
    #[inline(never)]
    pub(crate) fn outer6(&mut self, [upper, lower]: [u64; 2]) {
        let address = u128::from(upper) << 64 | u128::from(lower);
        self.part::<OUTER6_LEN>(OUTER6, address.to_be_bytes());
    }

    /// Appends the key to the image that was written last.
    #[inline(never)]
    fn lengthen(&mut self, key: [u8; MappingImage::KEY_LEN]) {
        self.bytes[self.len - MappingImage::LEN - 1] = KEYED_IMAGE_LEN as u8;
        self.bytes[self.len..][..key.len()].copy_from_slice(&key);
        self.len += key.len();
    }

    /// Writes a mapping as the versions of the protocol before images have it.
    fn mapping_fields(&mut self, image: &MappingImage) {
        let is_flagged = |flag| image.flags() & flag != 0;
        let mut fields = [0; MAPPING_LEN];
        fields[0] =
            if image.is_quarantined() { MappingKind::Quarantined } else { MappingKind::Live } as u8;
        fields[1] = image.protocol() as u8;
        fields[2] = if image.gre_key().is_some() { KEYED } else { 0 }
            | if is_flagged(Mapping::UNCLEAN) { UNCLEAN } else { 0 }
            | if is_flagged(Mapping::ANSWERED) { ANSWERED } else { 0 };
        fields[3..7].copy_from_slice(&image.outer().to_be_bytes());
        fields[7..11].copy_from_slice(&image.gre_key().unwrap_or(0).to_be_bytes());
        fields[11..17].copy_from_slice(&endpoint_bytes(image.inside()));
        fields[17..23].copy_from_slice(&endpoint_bytes(image.public()));
        fields[23..29].copy_from_slice(&endpoint_bytes(image.remote()));
        fields[29..31].copy_from_slice(&image.state().word().to_be_bytes());
        fields[31..35].copy_from_slice(&image.age_sec().to_be_bytes());
        self.part(MAPPING, fields);
    }

    pub(crate) fn session(&mut self, image: &SessionImage) {
        self.part(SESSION_IMAGE, image.bytes());
    }

    /// Writes a session as the versions of the protocol before images have it.
    fn session_fields(&mut self, image: &SessionImage) {
        let mut fields = [0; SESSION_LEN];
        fields[0..4].copy_from_slice(&image.mapping_slot.to_be_bytes());
        fields[4..8].copy_from_slice(&image.mapping_version.to_be_bytes());
        fields[8..14].copy_from_slice(&endpoint_bytes(image.remote));
        fields[14..16].copy_from_slice(&image.state.word().to_be_bytes());
        self.part(SESSION, fields);
    }

    pub(crate) fn paired_address(&mut self, address: u32) {
        self.part(PAIRED_ADDRESS, address.to_be_bytes());
    }

    pub(crate) fn idle(&mut self, seconds: u32) {
        self.part(IDLE, seconds.to_be_bytes());
    }

    pub(crate) fn run(&mut self, slots: u32) {
        self.part(RUN, slots.to_be_bytes());
    }

    pub(crate) fn segment(&mut self, body: &SegmentBody) {
        let mut fields = [0; SEGMENT_LEN];
        fields[..6].copy_from_slice(&endpoint_bytes(body.remote));
        fields[6] = match body.segment.sender {
            SentBy::Inside => FROM_INSIDE,
            SentBy::Remote => FROM_REMOTE,
        };
        fields[7] = body.segment.tcp_flags;
        self.part(SEGMENT, fields);
    }

    pub(crate) fn state(&mut self, body: &StateBody) {
        let mut fields = [0; STATE_LEN];
        fields[..6].copy_from_slice(&endpoint_bytes(body.remote));
        fields[6..].copy_from_slice(&body.state.word().to_be_bytes());
        self.part(STATE, fields);
    }
}

impl Body {
    /// Reads a body. None if a part is cut off or has a value that cannot occur.
    #[inline]
    pub(crate) fn read(mut bytes: &[u8]) -> Option<Body> {
        let mut body = Body::default();
        while let [kind, len, rest @ ..] = bytes {
            let (fields, behind) = rest.split_at_checked(usize::from(*len))?;
            match *kind {
                MAPPING => body.mapping = Some(read_mapping(fields.first_chunk()?)?),
                IMAGE => body.mapping = Some(read_image(fields)?),
                SESSION => body.session = Some(read_session(fields.first_chunk()?)?),
                SESSION_IMAGE => body.session = Some(SessionImage::read(fields.first_chunk()?)?),
                PAIRED_ADDRESS => body.paired_address = Some(word(fields.first_chunk()?)),
                IDLE => body.idle_sec = Some(word(fields.first_chunk()?)),
                RUN => body.run = Some(word(fields.first_chunk()?)),
                SEGMENT => body.segment = Some(read_segment(fields.first_chunk()?)?),
                STATE => body.state = Some(read_state(fields.first_chunk()?)),
                ASKED => body.asked = Some(endpoint_at(fields.first_chunk::<ASKED_LEN>()?, 0)),
                OUTER6 => body.outer6 = Some(read_outer6(fields.first_chunk()?)),
                FLOW6 => body.flow6 = Some(FlowImage::read(fields.first_chunk()?)?),
                _ => {}
            }
            bytes = behind;
        }
        (bytes.is_empty() && body.has_its_destination()).then_some(body)
    }
}

impl Body {
    /// Whether it has the asked destination exactly if the mapping's flow has another one. Such a
    /// flow is its home's: no rule redirects those of remotes.
    fn has_its_destination(&self) -> bool {
        let redirected = self.mapping.filter(MappingImage::is_redirected);
        let is_of_remote = |it: MappingImage| it.state().has(SessionState::OPENED_BY_REMOTE);
        redirected.is_some() == self.asked.is_some() && !redirected.is_some_and(is_of_remote)
    }
}

impl MappingImage {
    /// Reads a body that is one image, and nothing else. The flow of such a body has no other
    /// destination.
    #[inline(always)]
    pub(crate) fn read_alone(body: &[u8]) -> Option<MappingImage> {
        match body {
            [IMAGE, len, fields @ ..]
                if usize::from(*len) == fields.len() && !MappingImage::is_of_redirected(fields) =>
            {
                read_image(fields)
            }
            _ => None,
        }
    }
}

/// Rewrites the body of a change for a peer that speaks a version of the protocol before images.
/// Returns its length in `out`; a body that this version does not write is copied as it is.
pub fn body_without_images(body: &[u8], out: &mut [u8; BODY_MAX]) -> usize {
    let read = Body::read(body);
    let Some(Body { mapping: Some(mapping), asked, session, paired_address, outer6, .. }) = read
    else {
        let len = body.len().min(BODY_MAX);
        out[..len].copy_from_slice(&body[..len]);
        return len;
    };
    let mut writer = BodyWriter::new(out);
    if let Some(session) = session {
        writer.session_fields(&session);
    }
    writer.mapping_fields(&mapping);
    if let Some(asked) = asked {
        writer.asked(asked);
    }
    if let Some(address) = paired_address {
        writer.paired_address(address);
    }
    if let Some(outer6) = outer6 {
        writer.outer6(outer6);
    }
    writer.len()
}

#[inline(always)]
fn read_image(fields: &[u8]) -> Option<MappingImage> {
    let (image, behind) = fields.split_first_chunk()?;
    MappingImage::read(image, behind.first_chunk().map(|key| u32::from_be_bytes(*key)))
}

fn read_mapping(fields: &[u8; MAPPING_LEN]) -> Option<MappingImage> {
    let is_quarantined = match fields[0] {
        kind if kind == MappingKind::Live as u8 => false,
        kind if kind == MappingKind::Quarantined as u8 => true,
        _ => return None,
    };
    let flag = |bit, flag| if fields[2] & bit != 0 { flag } else { 0 };
    let flags = flag(KEYED, Mapping::KEYED)
        | flag(UNCLEAN, Mapping::UNCLEAN)
        | flag(ANSWERED, Mapping::ANSWERED);
    Some(MappingImage::of_parts(
        (is_quarantined, Protocol::from_number(fields[1])?, flags),
        (word_at(fields, 3), word_at(fields, 7)),
        [11, 17, 23].map(|at| endpoint_at(fields, at)),
        SessionState::known(half_at(fields, 29)),
        word_at(fields, 31),
    ))
}

fn read_session(fields: &[u8; SESSION_LEN]) -> Option<SessionImage> {
    let image = SessionImage {
        mapping_slot: word_at(fields, 0),
        mapping_version: word_at(fields, 4),
        remote: endpoint_at(fields, 8),
        state: SessionState::known(half_at(fields, 14)),
    };
    image.checked()
}

fn read_outer6(fields: &[u8; OUTER6_LEN]) -> [u64; 2] {
    let address = u128::from_be_bytes(*fields);
    [(address >> 64) as u64, address as u64]
}

fn read_segment(fields: &[u8; SEGMENT_LEN]) -> Option<SegmentBody> {
    let sender = match fields[6] {
        FROM_INSIDE => SentBy::Inside,
        FROM_REMOTE => SentBy::Remote,
        _ => return None,
    };
    let segment = TrackedSegment { sender, tcp_flags: fields[7] };
    Some(SegmentBody { remote: endpoint_at(fields, 0), segment })
}

fn read_state(fields: &[u8; STATE_LEN]) -> StateBody {
    let state = SessionState::known(half_at(fields, 6));
    StateBody { remote: endpoint_at(fields, 0), state }
}

#[inline]
fn endpoint_bytes(endpoint: Endpoint) -> [u8; 6] {
    let [a, b, c, d] = endpoint.address.to_be_bytes();
    let [e, f] = endpoint.port.to_be_bytes();
    [a, b, c, d, e, f]
}

fn endpoint_at(fields: &[u8], at: usize) -> Endpoint {
    Endpoint::new(word_at(fields, at), half_at(fields, at + 4))
}

fn word_at(fields: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]])
}

fn half_at(fields: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([fields[at], fields[at + 1]])
}

fn word(fields: &[u8; WORD_LEN]) -> u32 {
    u32::from_be_bytes(*fields)
}

#[cfg(test)]
#[path = "change_body_tests.rs"]
mod tests;
