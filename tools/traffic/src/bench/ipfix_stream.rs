//! The bytes of an IPFIX connection (RFC 7011), parsed as far as counting NAT events (RFC 8158)
//! requires. Pure.
//!
//! ```text
//!   message:  header  set  set ...      set:  id, length  record  record ...
//!             |version 10, length, export time, sequence number, observation domain
//! ```

use std::collections::BTreeMap;

const VERSION: u16 = 10;
const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
/// Data sets have the id of their template, which is at least this number (RFC 7011, section
/// 3.3.2).
const FIRST_DATA_SET: u16 = 256;
/// A field of this length has its actual length in each record (section 7).
const VARIABLE_LENGTH: u16 = 65_535;
/// Set in the number of an enterprise-specific element, which the enterprise number follows
/// (section 3.2).
const ENTERPRISE_BIT: u16 = 0x8000;
/// The element natEvent, and the counted values (IANA, "NAT Event Type").
const NAT_EVENT: u16 = 230;
const SESSION_CREATE: u8 = 4;
const SESSION_DELETE: u8 = 5;
const PORT_BLOCK_ALLOCATION: u8 = 16;

/// Counts of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Sessions, or mappings, that began and that ended.
    pub(super) begun: u64,
    pub(super) ended: u64,
    /// Port blocks allocated to homes.
    pub(super) blocks: u64,
    /// Bytes of whole messages.
    pub(super) bytes: u64,
}

/// Why bytes are not valid IPFIX, or incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IpfixError {
    #[error("a message of version {version}, not 10")]
    Version { version: u16 },
    #[error("a message, set or template that ends before its content")]
    Short,
    #[error("a set with the id {id}, which means nothing")]
    SetId { id: u16 },
    #[error("records of domain {domain} under template {id}, which was not sent before")]
    NoTemplate { domain: u32, id: u16 },
    #[error("template {id} with a field of variable length: this collector reads fixed ones only")]
    VariableLength { id: u16 },
    #[error(
        "a message of domain {domain} with the sequence number {found}, after records up to {expected}"
    )]
    Sequence { domain: u32, expected: u32, found: u32 },
}

/// Layout of a template's records: their length, and the offset of natEvent.
#[derive(Clone, Copy, Debug)]
struct Layout {
    bytes: usize,
    event_at: Option<usize>,
}

/// One connection.
#[derive(Debug, Default)]
pub(super) struct IpfixStream {
    /// Bytes of an incomplete message.
    rest: Vec<u8>,
    /// Layouts by observation domain and template id.
    templates: BTreeMap<(u32, u16), Layout>,
    /// Sequence number of the next message, by observation domain.
    next_sequence: BTreeMap<u32, u32>,
    tally: Tally,
}

impl IpfixStream {
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// Parses the next bytes.
    ///
    /// # Errors
    /// The fault in the bytes; later bytes are meaningless then.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), IpfixError> {
        self.rest.extend_from_slice(bytes);
        let rest = std::mem::take(&mut self.rest);
        let mut left = &rest[..];
        while left.len() >= HEADER_BYTES {
            let version = u16_at(left, 0)?;
            if version != VERSION {
                return Err(IpfixError::Version { version });
            }
            let length = usize::from(u16_at(left, 2)?);
            if length < HEADER_BYTES {
                return Err(IpfixError::Short);
            }
            let Some((message, next)) = left.split_at_checked(length) else { break };
            self.message(message)?;
            left = next;
        }
        let taken = rest.len() - left.len();
        self.rest = rest;
        self.rest.drain(..taken);
        Ok(())
    }

    fn message(&mut self, message: &[u8]) -> Result<(), IpfixError> {
        let (sequence, domain) = (u32_at(message, 8)?, u32_at(message, 12)?);
        let mut records = 0;
        let mut sets = &message[HEADER_BYTES..];
        while !sets.is_empty() {
            let (id, length) = (u16_at(sets, 0)?, usize::from(u16_at(sets, 2)?));
            let set = sets.get(SET_HEADER_BYTES..length).ok_or(IpfixError::Short)?;
            match id {
                TEMPLATE_SET => self.templates(domain, set, 4)?,
                OPTIONS_TEMPLATE_SET => self.templates(domain, set, 6)?,
                FIRST_DATA_SET.. => records += self.data(domain, id, set)?,
                _ => return Err(IpfixError::SetId { id }),
            }
            sets = &sets[length..];
        }
        // The sequence number counts the data records before this message (section 3.1).
        let expected = *self.next_sequence.entry(domain).or_insert(sequence);
        if sequence != expected {
            return Err(IpfixError::Sequence { domain, expected, found: sequence });
        }
        self.next_sequence.insert(domain, sequence.wrapping_add(records));
        self.tally.bytes += message.len() as u64;
        Ok(())
    }

    /// Reads templates whose header has `head` bytes: id and number of fields, and in an options
    /// template also the number of scope fields.
    fn templates(&mut self, domain: u32, mut set: &[u8], head: usize) -> Result<(), IpfixError> {
        // Fewer bytes are padding (section 3.3.1).
        while set.len() >= head {
            let (id, fields) = (u16_at(set, 0)?, u16_at(set, 2)?);
            let mut layout = Layout { bytes: 0, event_at: None };
            let mut at = head;
            for _ in 0..fields {
                let (element, length) = (u16_at(set, at)?, u16_at(set, at + 2)?);
                if length == VARIABLE_LENGTH {
                    return Err(IpfixError::VariableLength { id });
                }
                if element == NAT_EVENT {
                    layout.event_at = Some(layout.bytes);
                }
                layout.bytes += usize::from(length);
                at += if element & ENTERPRISE_BIT == 0 { 4 } else { 8 };
            }
            self.templates.insert((domain, id), layout);
            set = set.get(at..).ok_or(IpfixError::Short)?;
        }
        Ok(())
    }

    /// Counts the events of a data set. Returns the number of records.
    fn data(&mut self, domain: u32, id: u16, set: &[u8]) -> Result<u32, IpfixError> {
        let layout = self.templates.get(&(domain, id)).filter(|layout| layout.bytes > 0);
        let Layout { bytes, event_at } = *layout.ok_or(IpfixError::NoTemplate { domain, id })?;
        let records = set.chunks_exact(bytes);
        let count = records.len() as u32;
        if let Some(at) = event_at {
            for record in records {
                match record[at] {
                    SESSION_CREATE => self.tally.begun += 1,
                    SESSION_DELETE => self.tally.ended += 1,
                    PORT_BLOCK_ALLOCATION => self.tally.blocks += 1,
                    _ => {}
                }
            }
        }
        Ok(count)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, IpfixError> {
    array_at(bytes, at).map(u16::from_be_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, IpfixError> {
    array_at(bytes, at).map(u32::from_be_bytes)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], IpfixError> {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().ok_or(IpfixError::Short)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use weir_nat_log_export::{
        ExportTime, ExportedBlock, ExportedHome, ExportedSession, IpfixEncoder, IpfixOptions,
        NatEvent, NatEventKind,
    };

    use super::*;

    const NOW: ExportTime = ExportTime { unix_ms: 1_772_366_400_500, steady_ms: 0 };

    fn encoder(enterprise: Option<u32>) -> IpfixEncoder {
        let options = IpfixOptions {
            enterprise,
            has_prefixes: true,
            message_bytes_max: 1400,
            templates_repeat: None,
        };
        IpfixEncoder::new(options)
    }

    /// Returns events of the worker `domain`; the home has a GRE key if `gre_key` has one.
    fn events(domain: u32, gre_key: Option<u32>) -> Vec<NatEvent> {
        let home = ExportedHome { address: Ipv4Addr::new(10, 200, 0, 1).into(), gre_key };
        let public = Ipv4Addr::new(203, 0, 113, 1);
        let session = ExportedSession {
            home,
            inside: SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 2), 50_000),
            public: SocketAddrV4::new(public, 1100),
            remote: None,
            protocol: 17,
        };
        let mut kinds = vec![
            NatEventKind::BlockAllocated(ExportedBlock {
                home,
                public,
                port_first: 1024,
                port_last: 1279,
            }),
            NatEventKind::RecordsLost { count: 3, total: 3 },
        ];
        kinds.extend([NatEventKind::SessionBegun(session); 100]);
        kinds.extend([NatEventKind::SessionEnded(session); 7]);
        let event = |kind| NatEvent {
            time_ms: NOW.unix_ms,
            node: domain,
            shard: 3,
            lane: 5,
            epoch: 9,
            index: 1,
            kind,
        };
        kinds.into_iter().map(event).collect()
    }

    /// Returns the messages of all events, templates first.
    fn messages(encoder: &mut IpfixEncoder, mut events: &[NatEvent]) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while !events.is_empty() {
            let mut message = Vec::new();
            let count = encoder.next(events, NOW, &mut message);
            messages.push(message);
            events = &events[count..];
        }
        messages
    }

    #[test]
    fn events_of_the_exporter_are_counted_by_kind_whatever_their_template() {
        for enterprise in [None, Some(32_473)] {
            let mut encoder = encoder(enterprise);
            let mut stream = IpfixStream::default();
            let mut bytes = 0;
            for (domain, gre_key) in [(1, None), (2, Some(4)), (1, Some(4))] {
                for message in messages(&mut encoder, &events(domain, gre_key)) {
                    stream.take(&message).unwrap();
                    bytes += message.len() as u64;
                }
            }
            assert_eq!(stream.tally(), Tally { begun: 300, ended: 21, blocks: 3, bytes });
        }
    }

    #[test]
    fn messages_are_read_however_they_are_cut() {
        let bytes = messages(&mut encoder(None), &events(1, None)).concat();
        for piece in [1, 7, 15, 16, 17, 1399, bytes.len()] {
            let mut stream = IpfixStream::default();
            bytes.chunks(piece).for_each(|piece| stream.take(piece).unwrap());
            let all = Tally { begun: 100, ended: 7, blocks: 1, bytes: bytes.len() as u64 };
            assert_eq!(stream.tally(), all, "pieces of {piece}");
        }
    }

    #[test]
    fn a_message_that_is_missing_shows_in_the_sequence_number_of_the_next() {
        let all = messages(&mut encoder(None), &events(1, None));
        let is_data = |message: &&Vec<u8>| u16_at(message, HEADER_BYTES).unwrap() >= FIRST_DATA_SET;
        let data: Vec<&Vec<u8>> = all.iter().filter(is_data).collect();
        assert!(data.len() >= 3);
        let mut stream = IpfixStream::default();
        let templates = all.iter().filter(|message| !is_data(message));
        templates.chain(data[..1].iter().copied()).for_each(|it| stream.take(it).unwrap());
        let counted = stream.tally();
        let error = stream.take(data[2]).unwrap_err();
        let expected = u32_at(data[1], 8).unwrap();
        let found = u32_at(data[2], 8).unwrap();
        assert_eq!(error, IpfixError::Sequence { domain: 1, expected, found });
        assert!(found > expected && counted.begun > 0);
    }

    #[test]
    fn bytes_that_are_no_ipfix_are_named() {
        let whole = messages(&mut encoder(None), &events(1, None));
        let error = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = whole.concat();
            change(&mut bytes);
            IpfixStream::default().take(&bytes).unwrap_err()
        };
        assert_eq!(error(&|bytes| bytes[1] = 9), IpfixError::Version { version: 9 });
        assert_eq!(error(&|bytes| (bytes[2], bytes[3]) = (0, 15)), IpfixError::Short);
        assert_eq!(error(&|bytes| bytes[17] = 4), IpfixError::SetId { id: 4 });
        // A set of 3 bytes, and one that extends beyond its message.
        assert_eq!(error(&|bytes| (bytes[18], bytes[19]) = (0, 3)), IpfixError::Short);
        assert_eq!(error(&|bytes| bytes[18] = 0xff), IpfixError::Short);
        // The first field of the first template.
        let variable = error(&|bytes| (bytes[26], bytes[27]) = (0xff, 0xff));
        assert_eq!(variable, IpfixError::VariableLength { id: 256 });
        let no_templates = IpfixStream::default().take(whole.last().unwrap()).unwrap_err();
        assert!(matches!(no_templates, IpfixError::NoTemplate { domain: 1, .. }));
    }
}
