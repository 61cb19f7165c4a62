//! An event on disk: 72 bytes, big-endian, the last four of them a checksum of the others; 84 in
//! segments that may have homes with an IPv6 address.
//!
//! ```text
//!    0 time   8 node   12 shard   16 lane   17 kind   18 protocol   19 flags
//!   20 epoch  28 index  36 home  40 GRE key
//!   44 block: public 4, ports 2 + 2, since 8         session: inside 6, public 6, remote 6
//!      quota: limit 4     ports exhausted: public 4     lost: count 8, total 8
//!      prefix: first 64 bits 8
//!   68 CRC-32 of all before; in the longer record at 80, behind the last 12 octets of a home's
//!      IPv6 address, whose first 4 are at 36
//! ```
//!
//! Bytes that an event does not use are zero. A version that does not know a kind passes over its
//! records as unreadable and counts them; records of an older version are read by a newer one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use crate::nat_event::{
    ExportedBlock, ExportedHome, ExportedPrefix, ExportedSession, NatEvent, NatEventKind, Quota,
};

/// Bytes of records without and with homes that have an IPv6 address.
pub(crate) const RECORD_BYTES: usize = 72;
pub(crate) const LONG_RECORD_BYTES: usize = 84;
const SUM_BYTES: usize = 4;
const KIND_AT: usize = 44;
const HOME_AT: usize = 36;
const HOME_REST_AT: usize = RECORD_BYTES - SUM_BYTES;

const HAS_GRE_KEY: u8 = 1;
const HAS_REMOTE: u8 = 2;
const HAS_SINCE: u8 = 4;
const HAS_IPV6_HOME: u8 = 8;

mod kind {
    pub(super) const BLOCK_ALLOCATED: u8 = 1;
    pub(super) const BLOCK_RELEASED: u8 = 2;
    pub(super) const BLOCK_HELD: u8 = 3;
    pub(super) const SESSION_BEGUN: u8 = 4;
    pub(super) const SESSION_ENDED: u8 = 5;
    pub(super) const PORT_QUOTA: u8 = 6;
    pub(super) const SESSION_QUOTA: u8 = 7;
    pub(super) const PORTS_EXHAUSTED: u8 = 8;
    pub(super) const ADDRESSES_EXHAUSTED: u8 = 9;
    pub(super) const RECORDS_LOST: u8 = 10;
    pub(super) const PREFIX_CLAIMED: u8 = 11;
    pub(super) const PREFIX_RELEASED: u8 = 12;
    pub(super) const PREFIX_HELD: u8 = 13;
}

/// The bytes of a longer record without its checksum; of a shorter one the last are zero.
type SpoolRecord = [u8; LONG_RECORD_BYTES - SUM_BYTES];

/// Appends the event as a record of so many bytes: [`LONG_RECORD_BYTES`] for a home with an IPv6
/// address.
pub(crate) fn write(event: &NatEvent, bytes: usize, out: &mut Vec<u8>) {
    let record = &record(event)[..bytes - SUM_BYTES];
    out.extend_from_slice(record);
    out.extend_from_slice(&checksum(record).to_be_bytes());
}

fn record(event: &NatEvent) -> SpoolRecord {
    let mut record = [0; LONG_RECORD_BYTES - SUM_BYTES];
    put(&mut record, 0, event.time_ms.to_be_bytes());
    put(&mut record, 8, event.node.to_be_bytes());
    put(&mut record, 12, event.shard.to_be_bytes());
    record[16] = event.lane;
    put(&mut record, 20, event.epoch.to_be_bytes());
    put(&mut record, 28, event.index.to_be_bytes());
    if let Some(home) = event.kind.home() {
        match home.address {
            IpAddr::V4(address) => put(&mut record, HOME_AT, address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, rest @ ..] = address.octets();
                record[19] |= HAS_IPV6_HOME;
                put(&mut record, HOME_AT, [a, b, c, d]);
                put(&mut record, HOME_REST_AT, rest);
            }
        }
        if let Some(key) = home.gre_key {
            record[19] |= HAS_GRE_KEY;
            put(&mut record, 40, key.to_be_bytes());
        }
    }
    record[17] = write_kind(&event.kind, &mut record);
    record
}

/// Writes the fields of the kind and returns its number.
fn write_kind(event_kind: &NatEventKind, record: &mut SpoolRecord) -> u8 {
    match event_kind {
        NatEventKind::BlockAllocated(block) => {
            write_block(block, record);
            kind::BLOCK_ALLOCATED
        }
        NatEventKind::BlockReleased(block) => {
            write_block(block, record);
            kind::BLOCK_RELEASED
        }
        NatEventKind::BlockHeld { block, since_ms } => {
            write_block(block, record);
            if let Some(since_ms) = since_ms {
                record[19] |= HAS_SINCE;
                put(record, KIND_AT + 8, since_ms.to_be_bytes());
            }
            kind::BLOCK_HELD
        }
        NatEventKind::PrefixClaimed(prefix) => {
            write_prefix(prefix, record);
            kind::PREFIX_CLAIMED
        }
        NatEventKind::PrefixReleased(prefix) => {
            write_prefix(prefix, record);
            kind::PREFIX_RELEASED
        }
        NatEventKind::PrefixHeld(prefix) => {
            write_prefix(prefix, record);
            kind::PREFIX_HELD
        }
        NatEventKind::SessionBegun(session) => {
            write_session(session, record);
            kind::SESSION_BEGUN
        }
        NatEventKind::SessionEnded(session) => {
            write_session(session, record);
            kind::SESSION_ENDED
        }
        NatEventKind::QuotaExceeded { quota, limit, .. } => {
            put(record, KIND_AT, limit.to_be_bytes());
            match quota {
                Quota::PortsPerHome => kind::PORT_QUOTA,
                Quota::SessionsPerHome => kind::SESSION_QUOTA,
            }
        }
        NatEventKind::PortsExhausted { public, protocol, .. } => {
            put(record, KIND_AT, public.octets());
            record[18] = *protocol;
            kind::PORTS_EXHAUSTED
        }
        NatEventKind::AddressesExhausted { .. } => kind::ADDRESSES_EXHAUSTED,
        NatEventKind::RecordsLost { count, total } => {
            put(record, KIND_AT, count.to_be_bytes());
            put(record, KIND_AT + 8, total.to_be_bytes());
            kind::RECORDS_LOST
        }
    }
}

fn write_block(block: &ExportedBlock, record: &mut SpoolRecord) {
    put(record, KIND_AT, block.public.octets());
    put(record, KIND_AT + 4, block.port_first.to_be_bytes());
    put(record, KIND_AT + 6, block.port_last.to_be_bytes());
}

fn write_prefix(prefix: &ExportedPrefix, record: &mut SpoolRecord) {
    put(record, KIND_AT, prefix.prefix64.to_be_bytes());
}

fn write_session(session: &ExportedSession, record: &mut SpoolRecord) {
    record[18] = session.protocol;
    write_endpoint(session.inside, record, KIND_AT);
    write_endpoint(session.public, record, KIND_AT + 6);
    if let Some(remote) = session.remote {
        record[19] |= HAS_REMOTE;
        write_endpoint(remote, record, KIND_AT + 12);
    }
}

fn write_endpoint(endpoint: SocketAddrV4, record: &mut SpoolRecord, at: usize) {
    put(record, at, endpoint.ip().octets());
    put(record, at + 4, endpoint.port().to_be_bytes());
}

fn put<const N: usize>(record: &mut SpoolRecord, at: usize, bytes: [u8; N]) {
    record[at..at + N].copy_from_slice(&bytes);
}

/// Returns the event of a record, of either length; `None` if its checksum or its kind is wrong.
pub(crate) fn read(bytes: &[u8]) -> Option<NatEvent> {
    let (body, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
    if checksum(body).to_be_bytes() != *sum {
        return None;
    }
    let mut record = [0; LONG_RECORD_BYTES - SUM_BYTES];
    record.get_mut(..body.len())?.copy_from_slice(body);
    let record = &record;
    let flags = record[19];
    let home = read_home(record);
    let session = || ExportedSession {
        home,
        inside: read_endpoint(record, KIND_AT),
        public: read_endpoint(record, KIND_AT + 6),
        remote: (flags & HAS_REMOTE != 0).then(|| read_endpoint(record, KIND_AT + 12)),
        protocol: record[18],
    };
    let block = || ExportedBlock {
        home,
        public: read_address(record, KIND_AT),
        port_first: u16::from_be_bytes(get(record, KIND_AT + 4)),
        port_last: u16::from_be_bytes(get(record, KIND_AT + 6)),
    };
    let prefix = || ExportedPrefix { home, prefix64: u64::from_be_bytes(get(record, KIND_AT)) };
    let quota = |quota| {
        let limit = u32::from_be_bytes(get(record, KIND_AT));
        NatEventKind::QuotaExceeded { home, quota, limit }
    };
    let kind = match record[17] {
        kind::BLOCK_ALLOCATED => NatEventKind::BlockAllocated(block()),
        kind::BLOCK_RELEASED => NatEventKind::BlockReleased(block()),
        kind::BLOCK_HELD => NatEventKind::BlockHeld {
            block: block(),
            since_ms: (flags & HAS_SINCE != 0)
                .then(|| u64::from_be_bytes(get(record, KIND_AT + 8))),
        },
        kind::PREFIX_CLAIMED => NatEventKind::PrefixClaimed(prefix()),
        kind::PREFIX_RELEASED => NatEventKind::PrefixReleased(prefix()),
        kind::PREFIX_HELD => NatEventKind::PrefixHeld(prefix()),
        kind::SESSION_BEGUN => NatEventKind::SessionBegun(session()),
        kind::SESSION_ENDED => NatEventKind::SessionEnded(session()),
        kind::PORT_QUOTA => quota(Quota::PortsPerHome),
        kind::SESSION_QUOTA => quota(Quota::SessionsPerHome),
        kind::PORTS_EXHAUSTED => NatEventKind::PortsExhausted {
            home,
            public: read_address(record, KIND_AT),
            protocol: record[18],
        },
        kind::ADDRESSES_EXHAUSTED => NatEventKind::AddressesExhausted { home },
        kind::RECORDS_LOST => NatEventKind::RecordsLost {
            count: u64::from_be_bytes(get(record, KIND_AT)),
            total: u64::from_be_bytes(get(record, KIND_AT + 8)),
        },
        _ => return None,
    };
    Some(NatEvent {
        time_ms: u64::from_be_bytes(get(record, 0)),
        node: u32::from_be_bytes(get(record, 8)),
        shard: u32::from_be_bytes(get(record, 12)),
        lane: record[16],
        epoch: u64::from_be_bytes(get(record, 20)),
        index: u64::from_be_bytes(get(record, 28)),
        kind,
    })
}

fn read_home(record: &SpoolRecord) -> ExportedHome {
    let flags = record[19];
    let gre_key = (flags & HAS_GRE_KEY != 0).then(|| u32::from_be_bytes(get(record, 40)));
    let address = match flags & HAS_IPV6_HOME {
        0 => read_address(record, HOME_AT).into(),
        _ => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&get::<4>(record, HOME_AT));
            octets[4..].copy_from_slice(&get::<12>(record, HOME_REST_AT));
            Ipv6Addr::from(octets).into()
        }
    };
    ExportedHome { address, gre_key }
}

fn read_address(record: &SpoolRecord, at: usize) -> Ipv4Addr {
    Ipv4Addr::from(get::<4>(record, at))
}

fn read_endpoint(record: &SpoolRecord, at: usize) -> SocketAddrV4 {
    SocketAddrV4::new(read_address(record, at), u16::from_be_bytes(get(record, at + 4)))
}

fn get<const N: usize>(record: &SpoolRecord, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

/// Returns the CRC-32 as used by Ethernet and gzip (RFC 1952, section 8).
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| CRC_TABLE[usize::from(sum as u8 ^ byte)] ^ (sum >> 8))
}

static CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 != 0 { 0xEDB8_8320 ^ (sum >> 1) } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat_event::any_event;

    #[test]
    fn checksum_is_the_one_of_rfc_1952() {
        assert_eq!(checksum(b"123456789"), 0xCBF4_3926);
    }

    fn long(event: &NatEvent) -> Vec<u8> {
        let mut record = Vec::new();
        write(event, LONG_RECORD_BYTES, &mut record);
        record
    }

    #[test]
    fn every_event_is_read_back_from_its_record() {
        bolero::check!().with_type::<[u8; 64]>().for_each(|choices| {
            let event = any_event(choices);
            assert_eq!(read(&long(&event)), Some(event));
            let mut short = Vec::new();
            write(&event, RECORD_BYTES, &mut short);
            assert_eq!(read(&short) == Some(event), !event.kind.is_over_ipv6());
        });
    }

    #[test]
    fn any_bytes_are_refused_or_are_an_event() {
        bolero::check!().with_type::<([u8; 32], [u8; 36], Option<[u8; 12]>)>().for_each(
            |(first, second, rest)| {
                let mut body = [&first[..], second].concat();
                body.extend(rest.iter().flatten());
                let record = |sum: u32| [&body[..], &sum.to_be_bytes()].concat();
                let sum = checksum(&body);
                assert!(read(&record(!sum)).is_none());
                if let Some(event) = read(&record(sum)) {
                    assert_eq!(read(&long(&event)), Some(event));
                }
            },
        );
    }

    #[test]
    fn one_flipped_bit_is_noticed() {
        let record = long(&any_event(&[7; 64]));
        for bit in 0..LONG_RECORD_BYTES * 8 {
            let mut other = record.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&other), None, "bit {bit}");
        }
    }
}
