use super::*;
use crate::ipv6::Endpoint6;
use bolero::{TypeGenerator, check};
use weir_flow::OFFSET_BITS;

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Fields {
    flags: u16,
    protocol: u8,
    words: [u32; 8],
    halves: [u16; 5],
}

impl Fields {
    fn body(self) -> Body {
        let Self { flags, protocol, words, halves } = self;
        let flag = |bit, flag| if flags & bit != 0 { flag } else { 0 };
        let mapping = MappingImage::of_parts(
            (
                flags & 1 != 0,
                Protocol::ALL[usize::from(protocol % 3)],
                flag(2, Mapping::UNCLEAN) | flag(2048, Mapping::ANSWERED) | flag(4, Mapping::KEYED),
            ),
            (words[0], words[1]),
            [0, 1, 2].map(|at| Endpoint::new(words[2 + at], halves[at])),
            state_of_home(halves[3]),
            words[5],
        );
        let mapping = (flags & 8 != 0).then_some(mapping);
        let is_redirected = mapping.is_some_and(|mapping| mapping.is_redirected());
        let session = SessionImage {
            mapping_slot: words[6] & !(1 << OFFSET_BITS),
            mapping_version: words[7].max(1),
            remote: Endpoint::new(words[5], halves[4]),
            state: SessionState::known(halves[0] & !SessionState::REDIRECTED),
        };
        let flow6 = FlowImage {
            inside: Endpoint6::new(u128::from(words[0]) << 64, halves[0]),
            remote: Endpoint6::new(u128::from(words[1]), halves[1]),
            protocol: Protocol::ALL[usize::from(protocol % 3)],
            state: SessionState::known(halves[2]),
            age_sec: words[2],
            is_answered: flags & 1 != 0,
            is_of_prefix: flags & 2 != 0,
            outer: words[3],
            gre_key: (flags & 6 != 0).then_some(words[4]),
            paired_address: (words[5] != 0).then_some(words[5]),
        };
        Body {
            flow6: (flags & 4096 != 0).then_some(flow6),
            outer6: (flags & 8192 != 0).then_some([words[3].into(), words[4].into()]),
            mapping,
            asked: is_redirected.then_some(Endpoint::new(words[7], halves[1])),
            session: (flags & 16 != 0).then_some(session),
            paired_address: (flags & 32 != 0).then_some(words[7]),
            idle_sec: (flags & 64 != 0).then_some(words[6]),
            run: (flags & 128 != 0).then_some(words[5]),
            segment: (flags & 256 != 0).then_some(SegmentBody {
                remote: Endpoint::new(words[1], halves[3]),
                segment: TrackedSegment {
                    sender: if flags & 512 != 0 { SentBy::Inside } else { SentBy::Remote },
                    tcp_flags: words[0] as u8,
                },
            }),
            state: (flags & 1024 != 0).then_some(StateBody {
                remote: Endpoint::new(words[2], halves[1]),
                state: SessionState::known(halves[4]),
            }),
        }
    }
}

/// Returns a state that a remote has not opened, if it is that of a flow with another
/// destination.
fn state_of_home(bits: u16) -> SessionState {
    match bits & SessionState::REDIRECTED {
        0 => SessionState::known(bits),
        _ => SessionState::known(bits & !SessionState::OPENED_BY_REMOTE),
    }
}

fn written(body: &Body) -> Vec<u8> {
    let mut bytes = [0; BODY_MAX];
    let mut writer = BodyWriter::new(&mut bytes);
    body.session.iter().for_each(|session| writer.session(session));
    body.mapping.iter().for_each(|mapping| writer.mapping(mapping));
    body.flow6.iter().for_each(|flow| writer.flow6(flow));
    body.outer6.iter().for_each(|&outer| writer.outer6(outer));
    body.asked.iter().for_each(|&asked| writer.asked(asked));
    body.paired_address.iter().for_each(|&paired_address| writer.paired_address(paired_address));
    body.idle_sec.iter().for_each(|&seconds| writer.idle(seconds));
    body.run.iter().for_each(|&slots| writer.run(slots));
    body.segment.iter().for_each(|segment| writer.segment(segment));
    body.state.iter().for_each(|state| writer.state(state));
    let len = writer.len();
    bytes[..len].to_vec()
}

#[test]
fn a_written_body_reads_back_the_same() {
    check!().with_type::<Fields>().for_each(|fields| {
        let body = fields.body();
        assert_eq!(Body::read(&written(&body)), Some(body));
    });
}

/// A later version of weir adds parts, and fields behind the known ones.
#[test]
fn unknown_parts_and_trailing_fields_are_skipped() {
    check!().with_type::<(Fields, Vec<u8>)>().for_each(|(fields, extra)| {
        let (body, extra) = (fields.body(), &extra[..extra.len().min(40)]);
        let mut longer = vec![200, extra.len() as u8];
        longer.extend(extra);
        let mut rest = &written(&body)[..];
        while let [kind, len, behind @ ..] = rest {
            let (known, behind) = behind.split_at(usize::from(*len));
            longer.extend([*kind, len + extra.len() as u8]);
            longer.extend(known.iter().chain(extra));
            rest = behind;
        }
        assert_eq!(Body::read(&longer), Some(body));
    });
}

/// No earlier version has IPv6 flows, and no cluster has any before all its nodes know them.
#[test]
fn a_body_for_an_earlier_version_says_the_same_without_an_image() {
    check!().with_type::<Fields>().for_each(|fields| {
        let whole = Body { flow6: None, ..fields.body() };
        let Body { session, mapping, asked, paired_address, outer6, .. } = whole;
        let session = session.filter(|_| mapping.is_some());
        let paired_address = paired_address.filter(|_| mapping.is_some());
        let outer6 = outer6.filter(|_| mapping.is_some());
        let record = Body { session, mapping, asked, paired_address, outer6, ..Body::default() };
        let none = Body::default();
        let update =
            Body { mapping: none.mapping, asked: none.asked, session: none.session, ..whole };
        let update = Body { paired_address: None, outer6: None, ..update };
        for body in [record, update] {
            let mut bytes = [0; BODY_MAX];
            let len = body_without_images(&written(&body), &mut bytes);
            let mut rest = &bytes[..len];
            while let [kind, len, behind @ ..] = rest {
                let is_known = *kind < IMAGE || [ASKED, OUTER6].contains(kind);
                assert!(is_known, "an earlier version skips images");
                rest = &behind[usize::from(*len)..];
            }
            assert_eq!(Body::read(&bytes[..len]), Some(body));
        }
    });
}

#[test]
fn a_body_that_is_cut_off_is_refused() {
    let whole = Fields { flags: u16::MAX, protocol: 0, words: [7; 8], halves: [9; 5] }.body();
    let bytes = written(&whole);
    for len in 1..bytes.len() {
        let is_part_end = [18, 56, 114, 132, 138, 144, 150, 160].contains(&len);
        assert_eq!(Body::read(&bytes[..len]).is_some(), is_part_end, "{len} bytes");
    }
}

#[test]
fn any_bytes_are_read_or_refused() {
    check!().for_each(|bytes: &[u8]| {
        if let Some(body) = Body::read(bytes) {
            assert_eq!(Body::read(&written(&body)), Some(body));
        }
    });
}
