//! Floods: packets that one home, or one station on either link, sends to harm others. Pure; hot
//! path: one packet is written per call.
//!
//! | attack | packets |
//! |---|---|
//! | harmless | UDP of 64 established flows of one home: the reference for the others |
//! | syn | a SYN for a new connection each |
//! | remotes | one UDP port to ever other remotes |
//! | fragments | first fragments whose rest never comes |
//! | ttl | the harmless ones with a time to live of 1 |
//! | forged | each from another home that does not exist |
//! | arp | on both links, the gateway's address claimed for another MAC |
//! | hello | HELLO datagrams of replication from stations on the access link |
//! | garbage | random bytes to tunnel endpoints, public addresses, and ports of the worker itself |
//!
//! Garbage goes to IPv4 addresses alone, also where homes have tunnels over IPv6.
//! Each packet carries its own mark, or none, so none counts as one of the generator's flows.

mod frames;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weir_wire::ethernet::Mac;

use self::frames::Fixed;
use crate::packet::{
    Addresses, Direction, GRE, GRE6, Ipv4, Kind, Mark, PLAIN, Segment, Template,
    first_fragment_len, identify,
};
use crate::permutation;
use crate::scenario::{Access, ENDPOINTS, FIRST_INSIDE_PORT, HOMES, REMOTE_PORT, REMOTES};

/// Established flows of the attacker's home.
const FLOWS: u64 = 64;
const REMOTES_MAX: u64 = 4096;
/// First of the homes that do not exist: the upper half of 10.128.0.0/9.
pub const FORGED_HOMES: u32 = HOMES + FORGED_HOMES_MAX;
const FORGED_HOMES_MAX: u32 = 1 << 22;
const FIRST_PORT: u64 = 1024;
const SEED: u64 = 0x7765_6972;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    Harmless,
    Syn,
    Remotes,
    Fragments,
    Ttl,
    Forged,
    Arp,
    Hello,
    Garbage,
}

impl Attack {
    pub const ALL: [Attack; 9] = [
        Attack::Harmless,
        Attack::Syn,
        Attack::Remotes,
        Attack::Fragments,
        Attack::Ttl,
        Attack::Forged,
        Attack::Arp,
        Attack::Hello,
        Attack::Garbage,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Attack::Harmless => "harmless",
            Attack::Syn => "syn",
            Attack::Remotes => "remotes",
            Attack::Fragments => "fragments",
            Attack::Ttl => "ttl",
            Attack::Forged => "forged",
            Attack::Arp => "arp",
            Attack::Hello => "hello",
            Attack::Garbage => "garbage",
        }
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Attack {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Attack::ALL.into_iter().find(|attack| attack.name() == text);
        found.ok_or_else(|| format!("none of {}", Attack::ALL.map(Attack::name).join(", ")))
    }
}

/// The attacking home, and the addresses around it, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttackHome {
    pub home: u32,
    pub tunnel: u32,
    pub inside: u32,
    /// A public address of its shard.
    pub public: u32,
    /// First shard of the device; the tunnel endpoints of the others follow it.
    pub first_shard: u32,
    pub shards: u32,
}

/// One link of the device: the device's end, and the gateway's end.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub device_mac: Mac,
    pub device_address: u32,
    pub gateway_mac: Mac,
    pub gateway_address: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Access,
    Internet,
}

/// The next packet: its side, its length, and the values written into it.
#[derive(Clone, Copy, Debug)]
pub struct Next {
    pub side: Side,
    pub len: usize,
    count: u64,
    random: u64,
}

/// Makes the packets of an attack, one after the other.
#[derive(Debug)]
pub struct Attacker {
    attack: Attack,
    access: Access,
    home: AttackHome,
    form: Form,
    count: u64,
    random: u64,
}

#[derive(Debug)]
enum Form {
    /// Packets of a home, from a template.
    Home(Template),
    /// Fixed frames, sent in turn.
    Frames(Vec<Fixed>),
}

impl Attacker {
    pub fn new(
        attack: Attack,
        access: Access,
        home: AttackHome,
        access_link: Link,
        internet_link: Link,
    ) -> Self {
        let form = match attack {
            Attack::Arp => Form::Frames(frames::arp(&access_link, &internet_link)),
            Attack::Hello => Form::Frames(frames::hello(&access_link)),
            Attack::Garbage => {
                Form::Frames(frames::garbage(access, &home, &access_link, &internet_link))
            }
            _ => {
                let template = match access {
                    Access::Gre => template::<GRE>(attack, &access_link),
                    Access::GreOverIpv6 => template::<GRE6>(attack, &access_link),
                    Access::Plain => template::<PLAIN>(attack, &access_link),
                };
                Form::Home(template)
            }
        };
        Attacker { attack, access, home, form, count: 0, random: SEED }
    }

    #[inline]
    pub fn step(&mut self) -> Next {
        let (count, random) = (self.count, permutation::next(&mut self.random));
        self.count += 1;
        let (side, len) = match &self.form {
            Form::Home(template) => (Side::Access, template.len()),
            Form::Frames(frames) => {
                let frame = &frames[count as usize % frames.len()];
                (frame.side(), frame.len())
            }
        };
        Next { side, len, count, random }
    }

    /// Writes a packet into `bytes`, whose length must be the one that [`Attacker::step`] returned.
    #[inline]
    pub fn write(&self, next: &Next, bytes: &mut [u8]) {
        match &self.form {
            Form::Frames(frames) => {
                frames[next.count as usize % frames.len()].write(next.random, bytes);
            }
            Form::Home(template) => match self.access {
                Access::Gre => self.write_home::<GRE>(template, next, bytes),
                Access::GreOverIpv6 => self.write_home::<GRE6>(template, next, bytes),
                Access::Plain => self.write_home::<PLAIN>(template, next, bytes),
            },
        }
    }

    #[inline(always)]
    fn write_home<const TUNNEL: usize>(&self, template: &Template, next: &Next, bytes: &mut [u8]) {
        match self.attack {
            Attack::Syn => self.write_packet::<TUNNEL, true>(template, next, bytes),
            _ => self.write_packet::<TUNNEL, false>(template, next, bytes),
        }
    }

    #[inline(always)]
    fn write_packet<const TUNNEL: usize, const TCP: bool>(
        &self,
        template: &Template,
        next: &Next,
        bytes: &mut [u8],
    ) {
        let mark = Mark { flow: next.random as u32, lap: 1, stamp: next.count as u32 };
        let segment = match TCP {
            true => Segment::new(Direction::Upstream, mark.flow, 1, 0, template.payload_len()),
            false => Segment::default(),
        };
        template.write::<Ipv4, TUNNEL, TCP>(bytes, self.addresses(next), mark, segment);
        if self.attack == Attack::Fragments {
            identify::<TUNNEL>(bytes, next.count as u16);
        }
    }

    #[inline]
    fn addresses(&self, next: &Next) -> Addresses<Ipv4> {
        let Next { count, random, .. } = *next;
        let AttackHome { mut home, mut tunnel, mut inside, .. } = self.home;
        let flow = count % FLOWS;
        let mut port = FIRST_INSIDE_PORT + flow as u16;
        let mut remote = (REMOTES + flow as u32, REMOTE_PORT);
        let any_remote = REMOTES + (random % REMOTES_MAX) as u32;
        let any_port = |random: u64| (FIRST_PORT + random % (0x1_0000 - FIRST_PORT)) as u16;
        match self.attack {
            Attack::Syn => {
                port = any_port(random >> 12);
                remote = (any_remote, REMOTE_PORT);
            }
            Attack::Remotes => {
                port = FIRST_INSIDE_PORT;
                remote = (any_remote, any_port(random >> 12));
            }
            Attack::Forged => {
                home = FORGED_HOMES + (random >> 12) as u32 % FORGED_HOMES_MAX;
                let shard = (random >> 40) as u32 % self.home.shards.max(1);
                tunnel = ENDPOINTS + self.home.first_shard + shard;
                if self.access == Access::Plain {
                    inside = home;
                }
            }
            _ => {}
        }
        let pair = |source: u32, destination: u32| {
            u64::from(source.swap_bytes()) | u64::from(destination.swap_bytes()) << 32
        };
        Addresses {
            outer: pair(home, tunnel),
            inner: pair(inside, remote.0),
            ports: u32::from(port.swap_bytes()) | u32::from(remote.1.swap_bytes()) << 16,
        }
    }
}

fn template<const TUNNEL: usize>(attack: Attack, link: &Link) -> Template {
    let (from, to, way) = (link.gateway_mac, link.device_mac, Direction::Upstream);
    let udp = |len| {
        Template::new::<Ipv4, TUNNEL, false>(from, to, way, len).of_no_flow::<TUNNEL, false>()
    };
    let shortest = Kind::<Ipv4, TUNNEL, false>::HEAD;
    match attack {
        Attack::Syn => {
            Template::new::<Ipv4, TUNNEL, true>(from, to, way, Kind::<Ipv4, TUNNEL, true>::HEAD)
                .of_no_flow::<TUNNEL, true>()
        }
        Attack::Fragments => udp(first_fragment_len::<TUNNEL>()).as_first_fragment::<TUNNEL>(),
        Attack::Ttl => udp(shortest).with_ttl::<TUNNEL, false>(1),
        _ => udp(shortest),
    }
}

#[cfg(test)]
mod tests;
