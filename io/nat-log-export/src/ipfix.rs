//! Messages of IPFIX (RFC 7011) with events of a NAT (RFC 8158).
//!
//! ```text
//!   message:  header  set 256: record, record  set 260: record  set 256: record ...  (MTU at most)
//!             |length, export time, sequence number, observation domain
//! ```
//!
//! The collector knows templates per observation domain of a transport session: they are sent once
//! on a TCP connection, and repeatedly over UDP, because a datagram may be lost (section 8.4).
//! Those of homes with an IPv6 address are sent from the first event of such a home on. The
//! sequence number counts data records of the domain in the session (section 3.1).

mod element;
mod template;

use crate::encoder::ExportTime;
use crate::nat_event::NatEvent;
use template::{FIRST_ID, TEMPLATES, Template, templates, templates_over_ipv6};

const VERSION: u16 = 10;
const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;

/// Smallest size of a message, bytes: every template and every record fits in it.
pub const MESSAGE_BYTES_MIN: usize = 512;
/// Largest size of a message, bytes: its length is a 16-bit number.
pub const MESSAGE_BYTES_MAX: usize = 65_535;

/// Options of the encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpfixOptions {
    /// Private enterprise number under which lane, epoch, index, GRE key and the time since which a
    /// block is held are sent; `None`: they are left out.
    pub enterprise: Option<u32>,
    /// Whether events of IPv6 prefixes are sent, and their templates. If not, none may be passed to
    /// the encoder.
    pub has_prefixes: bool,
    /// Largest message, bytes: over UDP the MTU without the IP and UDP headers.
    pub message_bytes_max: usize,
    /// Repetition of templates; `None`: once in a session, as over TCP.
    pub templates_repeat: Option<TemplatesRepeat>,
}

/// Templates are sent again after this many messages, or this long, whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplatesRepeat {
    pub messages: u32,
    pub ms: u64,
}

/// Encodes events as messages.
#[derive(Debug)]
pub struct IpfixEncoder {
    options: IpfixOptions,
    /// Length of a record in bytes, by template.
    record_bytes: [u16; TEMPLATES.len()],
    /// Those of homes with an IPv4 address, then those of homes with an IPv6 address.
    templates: [&'static [Template]; 2],
    domains: Vec<Domain>,
}

/// An observation domain in the present session.
#[derive(Debug)]
struct Domain {
    id: u32,
    /// Number of data records sent.
    sequence: u32,
    /// Templates that still have to be sent.
    templates_left: [&'static [Template]; 2],
    /// Whether there was an event of a home with an IPv6 address.
    has_ipv6: bool,
    templates_at_ms: u64,
    /// Messages with data since the templates.
    messages: u32,
}

impl IpfixEncoder {
    /// Makes an encoder. `message_bytes_max` is raised to [`MESSAGE_BYTES_MIN`] if it is less, and
    /// lowered to [`MESSAGE_BYTES_MAX`] if it is more.
    pub fn new(mut options: IpfixOptions) -> Self {
        options.message_bytes_max =
            options.message_bytes_max.clamp(MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX);
        let mut record_bytes = [0; TEMPLATES.len()];
        for (bytes, template) in record_bytes.iter_mut().zip(&TEMPLATES) {
            *bytes = template.record_bytes(options.enterprise.is_some()) as u16;
        }
        let templates = [templates, templates_over_ipv6].map(|of| of(options.has_prefixes));
        Self { options, record_bytes, templates, domains: Vec::new() }
    }

    /// Begins a transport session, in which templates are unknown and nothing has been counted.
    pub fn begin_session(&mut self) {
        self.domains.clear();
    }

    /// Appends one message and returns the number of events in it, from the first on: 0 if the
    /// message has templates. Appends nothing if there are no events.
    pub fn next<'a>(
        &mut self,
        events: impl IntoIterator<Item = &'a NatEvent>,
        now: ExportTime,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut events = events.into_iter().peekable();
        let Some(first) = events.peek() else { return 0 };
        let index = self.domain(first.node, now);
        let domain = &mut self.domains[index];
        let repeat = self.options.templates_repeat;
        if repeat.is_some_and(|repeat| domain.is_repeat_due(repeat, now)) {
            domain.renew_templates(&self.templates, now);
        }
        if first.kind.is_over_ipv6() && !domain.has_ipv6 {
            domain.has_ipv6 = true;
            domain.templates_left[1] = self.templates[1];
        }
        let begin = out.len();
        put_header(domain, now, out);
        let count = if domain.next_template().is_none() {
            let count = self.put_records(events, index, begin, out);
            let domain = &mut self.domains[index];
            domain.sequence = domain.sequence.wrapping_add(count as u32);
            domain.messages = domain.messages.saturating_add(1);
            count
        } else {
            let enterprise = self.options.enterprise;
            put_templates(domain, enterprise, begin + self.options.message_bytes_max, out);
            0
        };
        put_length(begin + 2, begin, out);
        count
    }

    /// Returns the index of the domain; begins a new one if necessary.
    fn domain(&mut self, id: u32, now: ExportTime) -> usize {
        if let Some(index) = self.domains.iter().position(|domain| domain.id == id) {
            return index;
        }
        let mut domain = Domain {
            id,
            sequence: 0,
            templates_left: [&[]; 2],
            has_ipv6: false,
            templates_at_ms: 0,
            messages: 0,
        };
        domain.renew_templates(&self.templates, now);
        self.domains.push(domain);
        self.domains.len() - 1
    }

    fn put_records<'a>(
        &self,
        events: impl Iterator<Item = &'a NatEvent>,
        index: usize,
        begin: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let end = begin + self.options.message_bytes_max;
        let has_enterprise = self.options.enterprise.is_some();
        let mut count = 0;
        let mut set: Option<(u16, usize)> = None;
        let domain = &self.domains[index];
        let is_known = |event: &NatEvent| domain.has_ipv6 || !event.kind.is_over_ipv6();
        for event in events.take_while(|event| event.node == domain.id && is_known(event)) {
            let template = Template::of(event);
            let bytes = usize::from(self.record_bytes[usize::from(template.id - FIRST_ID)]);
            let is_new_set = set.is_none_or(|(id, _)| id != template.id);
            if out.len() + bytes + if is_new_set { SET_HEADER_BYTES } else { 0 } > end {
                break;
            }
            if is_new_set {
                end_set(set, out);
                set = Some((template.id, begin_set(template.id, out)));
            }
            for element in template.elements(has_enterprise) {
                element.write(event, out);
            }
            count += 1;
        }
        end_set(set, out);
        count
    }
}

impl Domain {
    fn is_repeat_due(&self, repeat: TemplatesRepeat, now: ExportTime) -> bool {
        self.messages > 0
            && (self.messages >= repeat.messages
                || now.steady_ms.saturating_sub(self.templates_at_ms) >= repeat.ms)
    }

    /// Returns the next template to send.
    fn next_template(&self) -> Option<&'static Template> {
        self.templates_left.iter().find_map(|left| left.first())
    }

    /// Notes that the next template is sent.
    fn take_template(&mut self) {
        if let Some(left) = self.templates_left.iter_mut().find(|left| !left.is_empty()) {
            *left = &left[1..];
        }
    }

    fn renew_templates(&mut self, &[ipv4, ipv6]: &[&'static [Template]; 2], now: ExportTime) {
        self.templates_left = [ipv4, if self.has_ipv6 { ipv6 } else { &[] }];
        self.templates_at_ms = now.steady_ms;
        self.messages = 0;
    }
}

/// Writes as many templates as fit in the message.
fn put_templates(domain: &mut Domain, enterprise: Option<u32>, end: usize, out: &mut Vec<u8>) {
    let mut set: Option<(u16, usize)> = None;
    while let Some(template) = domain.next_template() {
        let before = out.len();
        let id = if template.scope > 0 { OPTIONS_TEMPLATE_SET } else { TEMPLATE_SET };
        let open = set;
        if set.is_none_or(|(open, _)| open != id) {
            end_set(set, out);
            set = Some((id, begin_set(id, out)));
        }
        template.specify(enterprise, out);
        if out.len() > end {
            out.truncate(before);
            set = open;
            break;
        }
        domain.take_template();
    }
    end_set(set, out);
}

/// Writes version, length, export time, sequence number, observation domain (RFC 7011, section
/// 3.1).
fn put_header(domain: &Domain, now: ExportTime, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&((now.unix_ms / 1000) as u32).to_be_bytes());
    out.extend_from_slice(&domain.sequence.to_be_bytes());
    out.extend_from_slice(&domain.id.to_be_bytes());
    debug_assert_eq!(out.len() - begin, HEADER_BYTES);
}

/// Begins a set and returns its offset.
fn begin_set(id: u16, out: &mut Vec<u8>) -> usize {
    let begin = out.len();
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    begin
}

fn end_set(set: Option<(u16, usize)>, out: &mut [u8]) {
    if let Some((_, begin)) = set {
        put_length(begin + 2, begin, out);
    }
}

/// Writes the length from `begin` to the end at offset `offset`.
fn put_length(offset: usize, begin: usize, out: &mut [u8]) {
    let length = u16::try_from(out.len() - begin).expect("a message has 65,535 bytes at most");
    out[offset..offset + 2].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
#[path = "ipfix_tests.rs"]
mod tests;
