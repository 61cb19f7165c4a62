//! One line about a datagram, in the style of tcpdump: for captures of workers that do not encrypt.

use std::fmt::Write;

use crate::control::{Field, fields};
use crate::datagram::{DatagramHeader, DatagramKind, HEADER_LEN, StreamHeader, TAG_LEN};
use crate::fingerprint::Fingerprint;
use crate::hello::Hello;
use crate::record::{Item, Items};

/// Describes a datagram (UDP payload) in one line, without a check whether it is authentic.
pub fn describe(datagram: &[u8]) -> String {
    let header = match DatagramHeader::parse(datagram) {
        Ok(header) => header,
        Err(refusal) => return format!("no replication datagram: {}", refusal.name()),
    };
    let DatagramHeader { version, kind, is_encrypted, session, sender, number } = header;
    let mut line = format!(
        "weir replication {version}, sender {sender}, session {session:#010x}, number {number}: "
    );
    let body = &datagram[HEADER_LEN..datagram.len() - TAG_LEN];
    let text = match kind {
        _ if is_encrypted => Some(format!("{kind:?}, {} bytes encrypted", body.len())),
        DatagramKind::Hello => describe_hello(body),
        DatagramKind::Records => describe_records(body),
        DatagramKind::Control => Some(describe_control(body)),
        DatagramKind::Redirect => Some(format!("redirected packet, {} bytes", body.len())),
    };
    line += text.as_deref().unwrap_or("malformed");
    line
}

fn describe_hello(body: &[u8]) -> Option<String> {
    let hello = Hello::parse(body, &Fingerprint::default())?;
    let Hello { version_min, version_max, receiver, boot, has_session, .. } = hello;
    let state = if has_session { "has the session" } else { "has no session" };
    Some(format!(
        "hello to {receiver}, versions {version_min} to {version_max}, boot {boot}, {state}"
    ))
}

fn describe_records(body: &[u8]) -> Option<String> {
    let (StreamHeader { lane, epoch, sequence }, items) = StreamHeader::parse(body)?;
    let mut text = format!("lane {lane}, epoch {epoch}, sequence {sequence}");
    let mut items = Items::new(items);
    let (mut records, mut marks) = (0, 0);
    for item in items.by_ref() {
        match item {
            Item::Record(_) => records += 1,
            _ => marks += 1,
        }
    }
    let skipped = items.skipped;
    write!(text, ", {records} records, {marks} marks, {skipped} unknown").ok()?;
    Some(text)
}

fn describe_control(body: &[u8]) -> String {
    let mut text = "control".to_owned();
    for field in fields(body) {
        let part = match field {
            Field::Position(at) => format!(", lane {} sent {}:{}", at.lane, at.epoch, at.last),
            Field::Acknowledgement(ack) => {
                format!(", lane {} has {}:{}", ack.lane, ack.epoch, ack.cumulative)
            }
            Field::Sightings(nodes) => format!(", hears {} nodes", nodes.iter().count()),
            Field::Comebacks(shards) => format!(", came back to {} shards", shards.iter().count()),
            Field::Accepts(bytes_per_sec) => {
                format!(", accepts {bytes_per_sec} bytes/s of copies")
            }
        };
        text += &part;
    }
    text
}
