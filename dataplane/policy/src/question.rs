//! A flow as an operator writes it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_config::ProtocolSetting;
use weir_rules::{DecidingRule, FlowKind, FlowOrigin, IpAddress, Question, RuleAction};

use crate::expand::number;

/// A flow that begins. In text `home 10.200.1.5 udp 40000 198.51.100.7:53`, or for ICMP, which has
/// no ports, `home 10.200.1.5 icmp 198.51.100.7`; of IPv6
/// `home 2001:db8::1 udp 40000 [2001:db8:9::2]:53`, or, in a tunnel,
/// `home 2001:db8::1@10.200.1.5 udp 40000 [2001:db8:9::2]:53`. The outer address may be of IPv6 in
/// both: `home 2001:db8:e::5 udp 40000 198.51.100.7:53` is of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowQuestion {
    /// The side that begins it.
    pub from: FlowOrigin,
    /// Of an IPv6 flow `Icmp` is ICMPv6.
    pub protocol: ProtocolSetting,
    pub addresses: FlowAddresses,
    /// 0 for ICMP, as the port of the remote.
    pub inside_port: u16,
    pub remote_port: u16,
}

/// Both ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowAddresses {
    Ipv4 {
        /// Address of the home: of its tunnel, or its own where there is none. Of IPv6 only a
        /// tunnel's.
        subscriber: IpAddr,
        remote: Ipv4Addr,
    },
    Ipv6 {
        /// The home's own address.
        inside: Ipv6Addr,
        remote: Ipv6Addr,
        /// Outer address of the home's tunnel, which decides on its group.
        tunnel: Option<IpAddr>,
    },
}

const FORM: &str = "write FROM SUBSCRIBER tcp|udp INSIDE_PORT REMOTE:PORT, or FROM SUBSCRIBER icmp \
                    REMOTE; of IPv6 the remote as [2001:db8::1]:53 or 2001:db8::1 53";

/// Address of a home as text has it.
struct WrittenHome {
    address: IpAddr,
    tunnel: Option<IpAddr>,
}

impl FlowQuestion {
    /// Reads the words of the text form. A remote endpoint may be two words, too:
    /// `2001:db8:9::2 53`.
    ///
    /// # Errors
    /// A sentence that says which word is wrong, and how it should be.
    pub fn from_words(words: &[&str]) -> Result<Self, String> {
        let [from, subscriber, protocol, rest @ ..] = words else {
            return Err(format!("a flow has more words: {FORM}"));
        };
        let from = match *from {
            "home" => FlowOrigin::Home,
            "internet" => FlowOrigin::Internet,
            other => return Err(format!("{other:?} is no side: write home or internet")),
        };
        let home = home(subscriber)?;
        let protocol = match *protocol {
            "tcp" => ProtocolSetting::Tcp,
            "udp" => ProtocolSetting::Udp,
            "icmp" => ProtocolSetting::Icmp,
            other => return Err(format!("{other:?} is no protocol: write tcp, udp or icmp")),
        };
        let (inside_port, remote, remote_port) = match (protocol, rest) {
            (ProtocolSetting::Icmp, [remote]) => (0, address(remote, "remote")?, 0),
            (ProtocolSetting::Tcp | ProtocolSetting::Udp, [inside, remote @ ..])
                if (1..=2).contains(&remote.len()) =>
            {
                let (address, port) = endpoint(remote)?;
                (port_of(inside, "home")?, address, port)
            }
            _ => return Err(format!("the flow has {} words: {FORM}", words.len())),
        };
        let addresses = addresses(&home, remote)?;
        Ok(Self { from, protocol, addresses, inside_port, remote_port })
    }

    /// Returns how many of the first words are those of a flow; what follows is something else.
    pub fn count_words(words: &[&str]) -> usize {
        let has_address_alone = words.get(4).is_some_and(|remote| remote.parse::<IpAddr>().is_ok());
        let count = match words.get(2) {
            Some(&"icmp") => 4,
            _ if has_address_alone => 6,
            _ => 5,
        };
        count.min(words.len())
    }

    /// Whether its protocol has ports.
    pub fn has_ports(&self) -> bool {
        self.protocol != ProtocolSetting::Icmp
    }

    /// Returns origin and protocol.
    pub fn kind(&self) -> FlowKind {
        FlowKind::new(self.from, number(self.protocol)).expect("rules are about each protocol")
    }

    /// Returns the question about such a flow between two addresses.
    pub(crate) fn between<A: IpAddress>(&self, group: u8, local: A, remote: A) -> Question<A> {
        Question {
            kind: self.kind(),
            group,
            local,
            remote,
            local_port: self.inside_port,
            remote_port: self.remote_port,
        }
    }
}

fn address(text: &str, what: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is no address of a {what}"))
}

fn home(text: &str) -> Result<WrittenHome, String> {
    let (own, outer) = match text.split_once('@') {
        Some((own, outer)) => (own, Some(outer)),
        None => (text, None),
    };
    let home = WrittenHome {
        address: address(own, "home")?,
        tunnel: outer
            .map(|outer| outer.parse().map_err(|_| format!("{outer:?} is no address of a tunnel")))
            .transpose()?,
    };
    match home {
        WrittenHome { address: IpAddr::V4(_), tunnel: Some(outer) } => {
            Err(format!("{text:?}: an IPv4 flow has the outer address alone: write {outer}"))
        }
        _ => Ok(home),
    }
}

fn port_of(text: &str, what: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{text:?} is no port of the {what}"))
}

/// Reads the remote's address and port: one word, or two.
fn endpoint(words: &[&str]) -> Result<(IpAddr, u16), String> {
    match words {
        [remote, port] => Ok((address(remote, "remote")?, port_of(port, "remote")?)),
        _ => {
            let text = words.join(" ");
            let endpoint: SocketAddr = text.parse().map_err(|_| {
                format!("{text:?} is no remote: write it as 198.51.100.7:53 or [2001:db8:9::2]:53")
            })?;
            Ok((endpoint.ip(), endpoint.port()))
        }
    }
}

fn addresses(home: &WrittenHome, remote: IpAddr) -> Result<FlowAddresses, String> {
    match (home.address, remote) {
        (subscriber, IpAddr::V4(remote)) if home.tunnel.is_none() => {
            Ok(FlowAddresses::Ipv4 { subscriber, remote })
        }
        (IpAddr::V6(inside), IpAddr::V6(remote)) => {
            Ok(FlowAddresses::Ipv6 { inside, remote, tunnel: home.tunnel })
        }
        (home, remote) => Err(format!("{home} and {remote}: a flow has both ends in one family")),
    }
}

impl fmt::Display for FlowQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { from, protocol, addresses, inside_port, remote_port } = self;
        let from = match from {
            FlowOrigin::Home => "home",
            FlowOrigin::Internet => "internet",
        };
        write!(f, "{from} ")?;
        let remote = match addresses {
            FlowAddresses::Ipv4 { subscriber, remote } => {
                write!(f, "{subscriber} ")?;
                IpAddr::from(remote)
            }
            FlowAddresses::Ipv6 { inside, remote, tunnel } => {
                match tunnel {
                    Some(outer) => write!(f, "{inside}@{outer} ")?,
                    None => write!(f, "{inside} ")?,
                }
                IpAddr::from(remote)
            }
        };
        let protocol = match protocol {
            ProtocolSetting::Tcp => "tcp",
            ProtocolSetting::Udp => "udp",
            ProtocolSetting::Icmp => return write!(f, "icmp {remote}"),
        };
        write!(f, "{protocol} {inside_port} {}", SocketAddr::new(remote, remote_port))
    }
}

/// What happens to a flow, with or without a rule that fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleVerdict {
    Accept,
    Drop,
    Reject,
    /// The packet passes as it is.
    Bypass,
    /// The flow begins, and its packets go to another destination.
    Redirect,
    /// No rule fits, and `nat.filtering` decides: of packets from the internet.
    Filtering,
}

impl RuleVerdict {
    /// Returns the verdict on a flow from this side. `deciding` is the rule that fits.
    pub fn of(from: FlowOrigin, deciding: Option<DecidingRule>) -> Self {
        if deciding.is_some_and(|rule| rule.policy.destination.is_some()) {
            return Self::Redirect;
        }
        match (deciding.map(|rule| rule.action), from) {
            (Some(RuleAction::Accept), _) | (None, FlowOrigin::Home) => Self::Accept,
            (Some(RuleAction::Drop), _) => Self::Drop,
            (Some(RuleAction::Reject), _) => Self::Reject,
            (Some(RuleAction::Bypass), _) => Self::Bypass,
            (None, FlowOrigin::Internet) => Self::Filtering,
        }
    }

    /// Returns its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
            Self::Reject => "reject",
            Self::Bypass => "bypass",
            Self::Redirect => "redirect",
            Self::Filtering => "filtering",
        }
    }

    /// Returns the verdict with this word.
    pub fn from_name(name: &str) -> Option<Self> {
        let all =
            [Self::Accept, Self::Drop, Self::Reject, Self::Bypass, Self::Redirect, Self::Filtering];
        all.into_iter().find(|verdict| verdict.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_is_read_as_it_is_written() {
        for text in [
            "home 10.200.1.5 udp 40000 198.51.100.7:53",
            "internet 10.200.1.5 tcp 80 198.51.100.7:0",
            "home 10.200.1.5 icmp 198.51.100.7",
            "home 2001:db8::1 udp 40000 [2001:db8:9::2]:53",
            "internet 2001:db8::1@10.200.1.5 tcp 80 [2001:db8:9::2]:0",
            "home 2001:db8::1 icmp 2001:db8:9::2",
            "home 2001:db8:e::1 udp 40000 198.51.100.7:53",
            "home 2001:db8::1@2001:db8:e::1 udp 40000 [2001:db8:9::2]:53",
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            assert_eq!(FlowQuestion::from_words(&words).unwrap().to_string(), text);
            let more = [&words[..], &["drop"]].concat();
            assert_eq!(FlowQuestion::count_words(&more), words.len(), "{text}");
        }
    }

    #[test]
    fn remote_port_may_be_a_word_of_its_own() {
        for (one, two) in [
            (
                "home 2001:db8::1 udp 1000 [2001:db8:9::2]:53",
                "home 2001:db8::1 udp 1000 2001:db8:9::2 53",
            ),
            ("home 10.200.1.5 tcp 1000 192.0.2.1:25", "home 10.200.1.5 tcp 1000 192.0.2.1 25"),
        ] {
            let words: Vec<&str> = two.split(' ').collect();
            assert_eq!(FlowQuestion::from_words(&words).unwrap().to_string(), one);
            assert_eq!(FlowQuestion::count_words(&[&words[..], &["drop", "r"]].concat()), 6);
        }
    }

    #[test]
    fn wrong_flow_is_refused_with_its_wrong_word() {
        for (text, error) in [
            ("home", "a flow has more words"),
            ("here 10.200.1.5 icmp 1.1.1.1", "\"here\" is no side"),
            ("home 10.200.1 icmp 1.1.1.1", "\"10.200.1\" is no address of a home"),
            ("home 10.200.1.5 sctp 1 1.1.1.1:1", "\"sctp\" is no protocol"),
            ("home 10.200.1.5 icmp ::1", "10.200.1.5 and ::1: a flow has both ends in one family"),
            (
                "home 2001:db8::1@2001:db8:e::1 icmp 1.1.1.1",
                "2001:db8::1 and 1.1.1.1: a flow has both ends in one family",
            ),
            ("home 2001:db8::1 icmp x", "\"x\" is no address of a remote"),
            ("home 2001:db8::1@x icmp ::1", "\"x\" is no address of a tunnel"),
            (
                "home 192.168.0.1@10.200.1.5 icmp 1.1.1.1",
                "\"192.168.0.1@10.200.1.5\": an IPv4 flow has the outer address alone: write \
                 10.200.1.5",
            ),
            ("home 10.200.1.5 tcp x 1.1.1.1:1", "\"x\" is no port of the home"),
            ("home 10.200.1.5 tcp 1 1.1.1.1", "\"1.1.1.1\" is no remote: write it as"),
            ("home 10.200.1.5 tcp 1 1.1.1.1 x", "\"x\" is no port of the remote"),
            ("home 2001:db8::1 tcp 1 2001:db8::2", "\"2001:db8::2\" is no remote: write it as"),
            ("home 10.200.1.5 tcp 1.1.1.1:53", "the flow has 4 words: write FROM"),
            ("home 10.200.1.5 tcp 1 1.1.1.1 5 5", "the flow has 7 words: write FROM"),
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            let refused = FlowQuestion::from_words(&words).unwrap_err();
            assert!(refused.starts_with(error), "{text}: {refused}");
        }
    }
}
