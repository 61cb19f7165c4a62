//! A flow as an operator writes it.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use weir_config::ProtocolSetting;
use weir_rules::{DecidingRule, FlowKind, FlowOrigin, RuleAction};

use crate::expand::number;

/// A flow that begins. In text `home 10.200.1.5 udp 40000 198.51.100.7:53`, or for ICMP, which has
/// no ports, `home 10.200.1.5 icmp 198.51.100.7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowQuestion {
    /// The side that begins it.
    pub from: FlowOrigin,
    /// Address of the home: of its tunnel, or its own where there is none.
    pub subscriber: Ipv4Addr,
    pub protocol: ProtocolSetting,
    /// 0 for ICMP, as the port of the remote.
    pub inside_port: u16,
    pub remote: Ipv4Addr,
    pub remote_port: u16,
}

impl FlowQuestion {
    /// Reads the words of the text form.
    ///
    /// # Errors
    /// A sentence that says which word is wrong, and how it should be.
    pub fn from_words(words: &[&str]) -> Result<Self, String> {
        let form =
            "write FROM SUBSCRIBER tcp|udp INSIDE_PORT REMOTE:PORT, or FROM SUBSCRIBER icmp REMOTE";
        let [from, subscriber, protocol, rest @ ..] = words else {
            return Err(format!("a flow has more words: {form}"));
        };
        let from = match *from {
            "home" => FlowOrigin::Home,
            "internet" => FlowOrigin::Internet,
            other => return Err(format!("{other:?} is no side: write home or internet")),
        };
        let address = |text: &str, what: &str| {
            text.parse().map_err(|_| format!("{text:?} is no IPv4 address of a {what}"))
        };
        let subscriber = address(subscriber, "home")?;
        let protocol = match *protocol {
            "tcp" => ProtocolSetting::Tcp,
            "udp" => ProtocolSetting::Udp,
            "icmp" => ProtocolSetting::Icmp,
            other => return Err(format!("{other:?} is no protocol: write tcp, udp or icmp")),
        };
        let flow = Self {
            from,
            subscriber,
            protocol,
            inside_port: 0,
            remote: Ipv4Addr::UNSPECIFIED,
            remote_port: 0,
        };
        match (protocol, rest) {
            (ProtocolSetting::Icmp, [remote]) => {
                Ok(Self { remote: address(remote, "remote")?, ..flow })
            }
            (ProtocolSetting::Tcp | ProtocolSetting::Udp, [port, remote]) => {
                let inside_port =
                    port.parse().map_err(|_| format!("{port:?} is no port of the home"))?;
                let endpoint: SocketAddrV4 = remote
                    .parse()
                    .map_err(|_| format!("{remote:?} is no remote: write it as 198.51.100.7:53"))?;
                let (remote, remote_port) = (*endpoint.ip(), endpoint.port());
                Ok(Self { inside_port, remote, remote_port, ..flow })
            }
            _ => Err(format!("the flow has {} words: {form}", words.len())),
        }
    }

    /// Whether its protocol has ports.
    pub fn has_ports(&self) -> bool {
        self.protocol != ProtocolSetting::Icmp
    }

    /// Returns origin and protocol.
    pub fn kind(&self) -> FlowKind {
        FlowKind::new(self.from, number(self.protocol)).expect("rules are about each protocol")
    }
}

impl fmt::Display for FlowQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subscriber, inside_port, remote, remote_port, .. } = self;
        let from = match self.from {
            FlowOrigin::Home => "home",
            FlowOrigin::Internet => "internet",
        };
        let protocol = match self.protocol {
            ProtocolSetting::Tcp => "tcp",
            ProtocolSetting::Udp => "udp",
            ProtocolSetting::Icmp => return write!(f, "{from} {subscriber} icmp {remote}"),
        };
        write!(f, "{from} {subscriber} {protocol} {inside_port} {remote}:{remote_port}")
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
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            assert_eq!(FlowQuestion::from_words(&words).unwrap().to_string(), text);
        }
    }

    #[test]
    fn wrong_flow_is_refused_with_its_wrong_word() {
        for (text, error) in [
            ("home", "a flow has more words"),
            ("here 10.200.1.5 icmp 1.1.1.1", "\"here\" is no side"),
            ("home 10.200.1 icmp 1.1.1.1", "\"10.200.1\" is no IPv4 address of a home"),
            ("home 10.200.1.5 sctp 1 1.1.1.1:1", "\"sctp\" is no protocol"),
            ("home 10.200.1.5 icmp ::1", "\"::1\" is no IPv4 address of a remote"),
            ("home 10.200.1.5 tcp x 1.1.1.1:1", "\"x\" is no port of the home"),
            ("home 10.200.1.5 tcp 1 1.1.1.1", "\"1.1.1.1\" is no remote: write it as"),
            ("home 10.200.1.5 tcp 1.1.1.1:53", "the flow has 4 words: write FROM"),
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            let refused = FlowQuestion::from_words(&words).unwrap_err();
            assert!(refused.starts_with(error), "{text}: {refused}");
        }
    }
}
