//! Public addresses and ports that are not for all homes: static mappings, and addresses out of
//! service.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::Ipv4Net;
use serde::{Serialize, Serializer};

/// `[public]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PublicSettings {
    /// In order of public endpoints.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub statics: Vec<StaticSettings>,
    /// File with further ones, a line each; an absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_file: Option<PathBuf>,
    /// No mapping begins on these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drain: Vec<Ipv4Net>,
    /// As `drain`, and mappings on these end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quarantine: Vec<Ipv4Net>,
}

impl PublicSettings {
    /// Whether the file has nothing of it. It is written only then: earlier versions do not know
    /// the section.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Puts in one order what has none, so that equal settings are equal values.
    pub(crate) fn sorted(mut self) -> Self {
        self.statics.sort_by_key(|it| (it.public, it.public_port, it.protocol, it.subscriber));
        self.drain.sort_unstable();
        self.quarantine.sort_unstable();
        self
    }
}

/// A static mapping. In text `SUBSCRIBER PROTOCOL INSIDE PUBLIC`: `10.200.1.5 tcp 192.168.1.20:443
/// 203.0.113.1:443`, or `10.200.1.6 all 192.168.1.10 203.0.113.9` for all ports of an address; the
/// subscriber with its GRE key as `10.200.1.5,7`, with a tunnel over IPv6 as `2001:db8:e::5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticSettings {
    pub subscriber: IpAddr,
    /// Present if it tells homes apart.
    pub gre_key: Option<u32>,
    pub protocol: StaticProtocol,
    pub inside: Ipv4Addr,
    /// 0 with [`StaticProtocol::All`], as the public port.
    pub inside_port: u16,
    pub public: Ipv4Addr,
    pub public_port: u16,
}

/// Protocol of a static mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StaticProtocol {
    /// A whole address: all protocols and ports.
    All,
    Tcp,
    Udp,
}

impl fmt::Display for StaticSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subscriber, gre_key, protocol, inside, inside_port, public, public_port } = self;
        write!(f, "{subscriber}")?;
        if let Some(key) = gre_key {
            write!(f, ",{key}")?;
        }
        let protocol = match protocol {
            StaticProtocol::All => return write!(f, " all {inside} {public}"),
            StaticProtocol::Tcp => "tcp",
            StaticProtocol::Udp => "udp",
        };
        write!(f, " {protocol} {inside}:{inside_port} {public}:{public_port}")
    }
}

impl Serialize for StaticSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for StaticSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [subscriber, protocol, inside, public] = words[..] else {
            return Err(format!("{} words, not 4", words.len()));
        };
        let (subscriber, gre_key) = home(subscriber)?;
        let protocol = match protocol {
            "tcp" => StaticProtocol::Tcp,
            "udp" => StaticProtocol::Udp,
            "all" => StaticProtocol::All,
            other => return Err(format!("{other:?} is not tcp, udp or all")),
        };
        let (inside, inside_port) = endpoint(inside, protocol)?;
        let (public, public_port) = endpoint(public, protocol)?;
        Ok(Self { subscriber, gre_key, protocol, inside, inside_port, public, public_port })
    }
}

/// Reads a home: its address, of either family, or `ADDRESS,KEY` with its GRE key.
pub(crate) fn home(text: &str) -> Result<(IpAddr, Option<u32>), String> {
    let (home, key) = match text.split_once(',') {
        Some((home, key)) => (home, Some(number(key, "GRE key")?)),
        None => (text, None),
    };
    let of_ipv6 = home.parse::<Ipv6Addr>().map(IpAddr::from);
    Ok((of_ipv6.or_else(|_| address(home).map(IpAddr::from))?, key))
}

fn endpoint(text: &str, protocol: StaticProtocol) -> Result<(Ipv4Addr, u16), String> {
    match (protocol, text.split_once(':')) {
        (StaticProtocol::All, None) => Ok((address(text)?, 0)),
        (StaticProtocol::All, Some(_)) => Err(format!("{text} has a port: all are meant")),
        (_, None) => Err(format!("{text} has no port")),
        (_, Some((host, port))) => match number::<u16>(port, "port")? {
            0 => Err(format!("{text}: there is no port 0")),
            port => Ok((address(host)?, port)),
        },
    }
}

fn address(text: &str) -> Result<Ipv4Addr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an IPv4 address"))
}

fn number<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    let number = text.parse().ok().filter(|_| !text.starts_with('+'));
    number.ok_or_else(|| format!("{text:?} is not a {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_mapping_reads_as_it_is_written() {
        for text in [
            "10.200.1.5 tcp 192.168.1.20:443 203.0.113.1:8443",
            "10.200.1.5,4294967295 udp 192.168.1.20:1 203.0.113.1:65535",
            "10.200.1.6 all 192.168.1.10 203.0.113.9",
            "2001:db8:e::1 tcp 192.168.1.20:443 203.0.113.1:8443",
            "2001:db8:e::1,7 all 192.168.1.10 203.0.113.9",
        ] {
            let settings: StaticSettings = text.parse().unwrap();
            assert_eq!(settings.to_string(), text);
        }
    }

    #[test]
    fn line_that_is_no_static_mapping_says_why() {
        for (text, why) in [
            ("10.200.1.5 tcp 192.168.1.20:443", "3 words, not 4"),
            ("10.200.1 tcp 192.168.1.20:443 203.0.113.1:1", "\"10.200.1\" is not an IPv4"),
            ("10.200.1.5 sctp 192.168.1.20:1 203.0.113.1:1", "\"sctp\" is not tcp, udp or all"),
            ("10.200.1.5 tcp 192.168.1.20 203.0.113.1:1", "192.168.1.20 has no port"),
            ("10.200.1.5 all 192.168.1.20:1 203.0.113.1", "has a port: all are meant"),
            ("10.200.1.5 tcp 192.168.1.20:0 203.0.113.1:1", "there is no port 0"),
            ("10.200.1.5 tcp 192.168.1.20:65536 203.0.113.1:1", "\"65536\" is not a port"),
            ("10.200.1.5,x tcp 192.168.1.20:1 203.0.113.1:1", "\"x\" is not a GRE key"),
        ] {
            let error = text.parse::<StaticSettings>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
