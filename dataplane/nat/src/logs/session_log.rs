//! Sessions that begin and end, and refusals to homes, for collectors: two rings of fixed size
//! between the data path and their reader.
//!
//! The owner of a mapping logs it, and the worker that made a further session logs that. A session
//! that goes on at another worker has not ended: the worker that ends it logs the end.

use std::collections::VecDeque;

use weir_flow::RecordId;
use weir_ids::{Epoch, ShardId};

use crate::admin::facet::{Admin, AdminMut};
use crate::endpoint::{Endpoint, Home, OuterAddress, Protocol};
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::replication::lane::lane_of;
use crate::sessions::mapping::Remote;

/// Sessions that can wait to be read. A worker's turn begins and ends fewer.
const SESSIONS_MAX: usize = 16_384;
/// Refusals that can wait to be read: more in a turn are a flood, and a part of them is enough to
/// show it.
const REFUSALS_MAX: usize = 256;

/// Which sessions are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionLog {
    #[default]
    None,
    /// Mappings, without their remotes. RFC 6888 REQ-12: "A CGN SHOULD NOT log destination
    /// addresses or ports unless required to do so for administrative reasons."
    Mappings,
    /// Every session with its remote.
    Destinations,
}

/// Event: a mapping, or with `remote` a session of one, has begun or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEvent {
    pub is_begin: bool,
    pub shard: ShardId,
    pub lane: u8,
    pub epoch: Epoch,
    pub subscriber: LoggedSubscriber,
    pub inside: Endpoint,
    pub public: Endpoint,
    pub remote: Option<Endpoint>,
    pub protocol: Protocol,
}

/// A home, as a log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoggedSubscriber {
    Address {
        /// Outer address; the inside address where homes have no tunnel.
        address: OuterAddress,
        /// Present if it tells homes apart.
        gre_key: Option<u32>,
    },
    /// The IPv6 prefix that a home without a tunnel is.
    Prefix {
        /// The first 64 bits of its addresses; those behind the length are 0.
        bits: u64,
        /// Up to 64.
        length: u8,
    },
}

/// A refusal: a home got no mapping or session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeRefused {
    pub shard: ShardId,
    pub subscriber: LoggedSubscriber,
    pub protocol: Protocol,
    pub why: HomeLimit,
}

/// The limit that a home has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeLimit {
    /// `ports_per_subscriber`.
    Ports { limit: u32 },
    /// `flows_per_subscriber` or `sessions_per_subscriber`.
    Sessions { limit: u32 },
    /// No block is free on the home's public address.
    AddressPorts { public_address: u32 },
    /// No public address of the shard has room for a home.
    Addresses,
}

#[derive(Debug)]
pub(crate) struct SessionEvents {
    sessions: VecDeque<SessionEvent>,
    refusals: VecDeque<HomeRefused>,
    pub(crate) lost_total: u64,
}

impl SessionEvents {
    pub(crate) fn new(log: SessionLog) -> Self {
        let sessions = if log == SessionLog::None { 0 } else { SESSIONS_MAX };
        Self {
            sessions: VecDeque::with_capacity(sessions),
            refusals: VecDeque::with_capacity(REFUSALS_MAX),
            lost_total: 0,
        }
    }
}

impl Admin<'_> {
    /// Returns the number of session events that were not read in time.
    #[inline]
    pub fn session_events_lost(self) -> u64 {
        self.nat.session_events.lost_total
    }
}

impl AdminMut<'_> {
    /// Returns the oldest session event that has not been read.
    #[inline]
    pub fn next_session_event(&mut self) -> Option<SessionEvent> {
        self.nat.session_events.sessions.pop_front()
    }

    /// Returns the oldest refusal that has not been read.
    #[inline]
    pub fn next_refusal(&mut self) -> Option<HomeRefused> {
        self.nat.session_events.refusals.pop_front()
    }
}

impl Nat {
    /// Logs that a mapping has begun, or has ended with its last session; called while the record
    /// still holds that session.
    pub(crate) fn log_mapping(&mut self, is_begin: bool, id: RecordId) {
        let remote = match self.policy.session_log {
            SessionLog::None => return,
            SessionLog::Mappings => None,
            SessionLog::Destinations => Some(self.mappings.get(id).first.endpoint()),
        };
        self.log_session(is_begin, id, remote);
    }

    /// Logs that a session of a mapping has begun or ended while the mapping goes on.
    pub(crate) fn log_remote(&mut self, is_begin: bool, mapping: RecordId, remote: Remote) {
        if self.policy.session_log == SessionLog::Destinations {
            self.log_session(is_begin, mapping, Some(remote.endpoint()));
        }
    }

    fn log_session(&mut self, is_begin: bool, id: RecordId, remote: Option<Endpoint>) {
        if self.session_events.sessions.len() == SESSIONS_MAX {
            self.session_events.lost_total += 1;
            return;
        }
        let mapping = self.mappings.get(id);
        let slab = self.mappings.slab_of(id);
        let (shard, lane) = lane_of(slab);
        let event = SessionEvent {
            is_begin,
            shard: self.shards.id(shard),
            lane,
            epoch: self.events.epoch(slab),
            subscriber: self.logged_home(&mapping.home()),
            inside: mapping.inside(),
            public: mapping.public(),
            remote,
            protocol: mapping.protocol,
        };
        self.session_events.sessions.push_back(event);
    }

    pub(crate) fn logged_home(&self, home: &Home) -> LoggedSubscriber {
        match self.prefix_of(home) {
            Some(bits) => {
                let length = self.policy.home_mask.count_ones() as u8;
                LoggedSubscriber::Prefix { bits, length }
            }
            None => {
                let gre_key = home.gre_key.filter(|_| self.policy.by_key);
                LoggedSubscriber::Address { address: self.outer_address(home), gre_key }
            }
        }
    }

    /// Counts that a home was refused a mapping or session, and logs it if that was for lack of
    /// ports, sessions or addresses.
    pub fn note_refused(&mut self, refusal: Refusal, home: &Home, protocol: Protocol) {
        let slot = self.subscribers.find(home);
        if let Some(slot) = slot {
            self.subscribers.count_refused(slot);
        }
        if self.session_events.refusals.len() == REFUSALS_MAX {
            return;
        }
        let allowance = || self.policy.live.allowances.of(self.group_of(home)).home;
        let why = match refusal {
            Refusal::FlowsPerSubscriber => HomeLimit::Sessions { limit: allowance().flows },
            Refusal::SessionsPerSubscriber => HomeLimit::Sessions { limit: allowance().sessions },
            Refusal::PortsExhausted => self.ports_missing(slot, allowance().ports),
            _ => return,
        };
        let refused = HomeRefused {
            shard: self.shards.id(home.shard),
            subscriber: self.logged_home(home),
            protocol,
            why,
        };
        self.session_events.refusals.push_back(refused);
    }

    /// Returns which ports a home lacks, whose slot this is if it is a subscriber.
    fn ports_missing(&self, slot: Option<u32>, quota: u32) -> HomeLimit {
        let Some(slot) = slot else { return HomeLimit::Addresses };
        match self.has_all_its_blocks(slot) {
            true => HomeLimit::Ports { limit: quota },
            false => HomeLimit::AddressPorts {
                public_address: self
                    .ports
                    .public_address(self.subscribers.get(slot).paired_address),
            },
        }
    }
}
