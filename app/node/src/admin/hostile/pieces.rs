//! Builds requests, and bytes that resemble requests, from words that weir knows.

use bolero::TypeGenerator;

use weir_admin::client::query_value;

const METHODS: [&str; 8] = ["GET", "GET", "GET", "HEAD", "POST", "DELETE", "OPTIONS", "get"];

const PATHS: [&str; 14] = [
    "/status",
    "/shards",
    "/member",
    "/drops",
    "/sessions",
    "/metrics",
    "/report",
    "/capture",
    "/trace",
    "/subscriber/",
    "/subscribers",
    "/",
    "//status",
    "/status/",
];

const KEYS: [&str; 17] = [
    "family",
    "subscriber",
    "public",
    "remote",
    "inside",
    "protocol",
    "state",
    "older",
    "younger",
    "shard",
    "limit",
    "worker",
    "side",
    "inner",
    "filter",
    "count",
    "colour",
];

/// Values as they stand in a query: each is valid for one key and invalid for most others.
const VALUES: [&str; 27] = [
    "6",
    "2001:db8:1000:100::/56",
    "[2001:db8:9::1]:443",
    "10.200.0.1",
    "10.9.9.9",
    "203.0.113.1:4000",
    "203.0.113.1:65536",
    "203.0.113.0/28",
    "203.0.113.1/33",
    "udp",
    "stream",
    "::1",
    "0",
    "1",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "true",
    "false",
    "access",
    "internet",
    "%61ccess",
    "",
    "%",
    "%ff%fe",
    "%00",
    "+",
];

/// Words of libpcap's language, and none that it would ask DNS for.
const FILTER: [&str; 24] = [
    "udp",
    "tcp",
    "port",
    "53",
    "host",
    "net",
    "10.0.0.2",
    "and",
    "or",
    "not",
    "(",
    ")",
    "[0]",
    "[2:4]",
    "vlan",
    "ip6",
    "ip",
    "proto",
    "portrange",
    "1-65535",
    "len",
    ">",
    "&",
    "=",
];

#[derive(Clone, Debug, TypeGenerator)]
pub(super) enum Value {
    Known(u8),
    Any(String),
    Filter(Vec<u8>),
}

#[derive(Clone, Debug, TypeGenerator)]
pub(super) struct Asked {
    method: u8,
    path: u8,
    /// The address behind `/subscriber/`.
    address: Value,
    is_flush: bool,
    query: Vec<(u8, Value)>,
    pub(super) body: Vec<u8>,
    pub(super) is_root: bool,
}

impl Asked {
    pub(super) fn method(&self) -> &'static str {
        METHODS[usize::from(self.method) % METHODS.len()]
    }

    pub(super) fn path(&self) -> String {
        // Captures are rare, since each takes megabytes of buffers.
        let at = usize::from(self.path) % (8 * PATHS.len());
        let path = match PATHS.get(at) {
            Some(path) => path,
            None => {
                let mut others = PATHS.iter().filter(|path| **path != "/capture");
                others.nth(at % (PATHS.len() - 1)).unwrap_or(&"/")
            }
        };
        if *path != "/subscriber/" {
            return (*path).to_owned();
        }
        format!("{path}{}{}", text("", &self.address), if self.is_flush { "/flush" } else { "" })
    }

    /// Returns the text of the query, and its keys and values as the server reads them.
    pub(super) fn query(&self) -> (String, Vec<(&'static str, String)>) {
        let mut pairs = Vec::new();
        let mut query = String::new();
        for (key, value) in self.query.iter().take(4) {
            let key = KEYS[usize::from(*key) % KEYS.len()];
            let value = text(key, value);
            query += if query.is_empty() { "?" } else { "&" };
            query += &format!("{key}={value}");
            pairs.push((key, value));
        }
        (query, pairs)
    }

    pub(super) fn uid(&self) -> u32 {
        if self.is_root { 0 } else { 1000 }
    }
}

fn text(key: &str, value: &Value) -> String {
    match value {
        Value::Known(known) => VALUES[usize::from(*known) % VALUES.len()].to_owned(),
        Value::Any(any) if key != "filter" => {
            query_value(&any.chars().take(40).collect::<String>())
        }
        Value::Any(_) => String::new(),
        Value::Filter(words) => {
            let words = words.iter().take(8).map(|at| FILTER[usize::from(*at) % FILTER.len()]);
            query_value(&words.collect::<Vec<_>>().join(" "))
        }
    }
}

/// A part of the bytes sent over a connection.
#[derive(Clone, Debug, TypeGenerator)]
pub(super) enum Part {
    /// A request whose declared length may be wrong.
    Asked(Asked, u8),
    Header(u8, Value),
    Word(u8),
    Bytes(Vec<u8>),
}

const HEADERS: [&str; 11] = [
    "Accept",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Host",
    "Expect",
    "Upgrade",
    "TE",
    "Content-Type",
    "X",
    "",
];

const WORDS: [&str; 24] = [
    "GET ",
    "POST ",
    "/status",
    " HTTP/1.1",
    " HTTP/1.0",
    " HTTP/2.0",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "chunked",
    "close",
    "keep-alive",
    "100-continue",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "ffffffffffffffff\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http://x/status",
    "*",
    "?",
    "#",
    ": ",
    "\0",
    "\u{e9}",
];

/// Appends the bytes of `part` to `out`.
pub(super) fn put(out: &mut Vec<u8>, part: &Part) {
    match part {
        Part::Asked(asked, kind) => {
            let (method, path, (query, _)) = (asked.method(), asked.path(), asked.query());
            let length = match kind % 4 {
                0 => String::new(),
                1 => "Transfer-Encoding: chunked\r\n".into(),
                2 => format!("Content-Length: {}\r\n", u32::from(*kind) * 1000),
                _ => format!("Content-Length: {}\r\n", asked.body.len()),
            };
            let head = format!("{method} {path}{query} HTTP/1.1\r\nHost: x\r\n{length}\r\n");
            out.extend(head.as_bytes());
            out.extend(&asked.body);
        }
        Part::Header(name, value) => {
            let name = HEADERS[usize::from(*name) % HEADERS.len()];
            out.extend(format!("{name}: {}\r\n", text("", value)).as_bytes());
        }
        Part::Word(word) => out.extend(WORDS[usize::from(*word) % WORDS.len()].as_bytes()),
        Part::Bytes(bytes) => out.extend(bytes),
    }
}
