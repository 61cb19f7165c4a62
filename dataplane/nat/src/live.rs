//! The settings that change while packets pass.
//!
//! What the tables were sized for at the start bounds three of them: the flows of all homes, the
//! blocks of a home, and whether the remote addresses of sessions are counted.
//! [`LiveNatSettings::fit`] compares beforehand, beside the worker, so that the worker only swaps.

use weir_rules::{CLASSES, FlowClass};

use crate::admin::facet::AdminMut;
use crate::config::{Filtering, NatConfig, Pooling};
use crate::config_check::{self, NatError};
use crate::ipv6::Delegation;
use crate::nat::{Nat, quota_blocks};
use crate::ports::address_ranges::AddressRanges;
use crate::sessions::class_timeouts::{ClassTimeouts, by_class};
use crate::subscribers::allowance::{GroupAllowance, GroupAllowances};
use crate::subscribers::outer_addresses::HomePrefixes;

/// The settings of a NAT that may change while packets pass; see [`NatConfig`] for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveNatSettings {
    pub(crate) filtering: Filtering,
    pub(crate) pooling: Pooling,
    pub(crate) udp_inbound_refresh: bool,
    pub(crate) inbound_sessions_max: u16,
    pub(crate) flows_max: u32,
    pub(crate) new_homes_per_sec: Option<u32>,
    pub(crate) quarantine_sec: u32,
    pub(crate) timeouts: ClassTimeouts,
    /// The codepoint of the packets of each class.
    pub(crate) dscp: [Option<u8>; CLASSES],
    pub(crate) allowances: GroupAllowances,
    pub(crate) delegation: Option<Delegation>,
    /// Whether homes may have tunnels over IPv6.
    has_outer_ipv6: bool,
}

/// A setting that tables take only when they are built again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsRestart {
    /// The tables were built for fewer flows.
    FlowsMax { built_for: u32 },
    /// The homes' lists of blocks were built for a smaller quota.
    PortsPerSubscriber { built_for: u32 },
    /// The remote addresses of the sessions were not counted.
    AddressDependent,
    /// The worker began without IPv6, or the homes' prefixes had another length.
    Ipv6,
    /// The worker began without homes whose tunnels are over IPv6.
    OuterIpv6,
}

impl NeedsRestart {
    /// Returns the key of the section `nat`.
    pub const fn key(self) -> &'static str {
        match self {
            Self::FlowsMax { .. } => "flows_max",
            Self::PortsPerSubscriber { .. } => "ports_per_subscriber",
            Self::AddressDependent => "filtering",
            Self::Ipv6 => "ipv6",
            Self::OuterIpv6 => "subscribers6",
        }
    }
}

impl std::fmt::Display for NeedsRestart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FlowsMax { built_for } => {
                write!(f, "the tables were built for {built_for} flows")
            }
            Self::PortsPerSubscriber { built_for } => {
                write!(
                    f,
                    "the lists of the homes were built for {built_for} ports each, the largest quota of nat and of all groups"
                )
            }
            Self::Ipv6 => f.write_str("the tables know homes by other prefixes, or have no IPv6"),
            Self::OuterIpv6 => f.write_str("the tables have no outer IPv6 addresses of homes"),
            Self::AddressDependent => {
                f.write_str("the remote addresses of the live sessions were not counted")
            }
        }
    }
}

impl LiveNatSettings {
    /// Returns the part of a configuration that may change at run time.
    ///
    /// # Errors
    /// As [`Nat::new`], but for the memory.
    pub fn of(config: &NatConfig) -> Result<Self, NatError> {
        config_check::check(config)?;
        let quotas = quota_blocks(config)?;
        Ok(Self {
            filtering: config.filtering,
            pooling: config.pooling,
            udp_inbound_refresh: config.udp_inbound_refresh,
            inbound_sessions_max: config.inbound_sessions_max,
            flows_max: config.flows_max,
            new_homes_per_sec: config.new_homes_per_sec,
            quarantine_sec: config.quarantine_sec,
            timeouts: ClassTimeouts::new(|class| config.class(class).timeouts),
            dscp: by_class(|class| config.class(class).dscp),
            delegation: config.delegation,
            has_outer_ipv6: !config.subscribers6.is_empty(),
            allowances: GroupAllowances::new(|group| GroupAllowance {
                home: config.allowance(group),
                quota_blocks: quotas[usize::from(group)],
            }),
        })
    }

    /// Limits these settings to what tables that were built for `start` can take, and returns what
    /// is left for a restart.
    ///
    /// A node that began with address-dependent filtering counts remote addresses all its life, so
    /// it may leave that filtering and return to it.
    pub fn fit(&mut self, start: &Self) -> Vec<NeedsRestart> {
        let mut left = Vec::new();
        if self.flows_max > start.flows_max {
            left.push(NeedsRestart::FlowsMax { built_for: start.flows_max });
            self.flows_max = start.flows_max;
        }
        // Whether homes are prefixes, and of which length, is in the tables.
        let are_prefixes =
            |it: &Self| it.delegation.filter(|it| matches!(it, Delegation::Prefix { .. }));
        if self.delegation.is_some() != start.delegation.is_some()
            || are_prefixes(self) != are_prefixes(start)
        {
            left.push(NeedsRestart::Ipv6);
            self.delegation = start.delegation;
        }
        if self.has_outer_ipv6 && !start.has_outer_ipv6 {
            left.push(NeedsRestart::OuterIpv6);
            self.has_outer_ipv6 = false;
        }
        if self.allowances.limit_quotas(&start.allowances) {
            let built_for = start.allowances.ports_max();
            left.push(NeedsRestart::PortsPerSubscriber { built_for });
        }
        let is_counted = start.filtering == Filtering::AddressDependent;
        if self.filtering == Filtering::AddressDependent && !is_counted {
            left.push(NeedsRestart::AddressDependent);
            self.filtering = start.filtering;
        }
        left
    }
}

impl AdminMut<'_> {
    /// Puts the settings in force, from the next packet on, and leaves the former ones in their
    /// place: allocates and frees nothing. Live flows stay; their timers are the new ones. What a
    /// home may begin follows from the next second on: it keeps the tokens of this one.
    ///
    /// # Panics
    /// If the settings do not [`fit`](LiveNatSettings::fit) the tables.
    pub fn swap_live(&mut self, settings: &mut LiveNatSettings) {
        self.nat.check_fit(settings);
        self.nat.subscribers.set_limits(settings);
        if let Some(Delegation::Claim { hold_sec }) = settings.delegation {
            self.nat.claims.set_hold_sec(hold_sec);
        }
        std::mem::swap(&mut self.nat.policy.live, settings);
    }

    /// Puts other prefixes of homes in force and leaves the former ones in their place: allocates
    /// and frees nothing. Live flows of homes outside them stay; they begin no more.
    pub fn swap_homes(&mut self, homes: &mut AddressRanges) {
        std::mem::swap(&mut self.nat.homes, homes);
    }

    /// As [`swap_homes`](Self::swap_homes), of outer IPv6 addresses.
    pub fn swap_homes6(&mut self, homes: &mut HomePrefixes) {
        self.nat.subscribers.outers.swap_homes(homes);
    }
}

impl Nat {
    /// Returns the codepoint that the packets of a class get (DSCP, RFC 2474 section 3).
    pub fn dscp_of(&self, class: FlowClass) -> Option<u8> {
        self.policy.live.dscp[usize::from(class.number())]
    }

    fn check_fit(&self, settings: &LiveNatSettings) {
        let is_counted = settings.filtering != Filtering::AddressDependent;
        assert!(is_counted || self.policy.counts_addresses, "remote addresses are counted");
        let slots = self.mappings.capacity();
        assert!(settings.flows_max as usize <= slots, "{slots} flows have a slot");
    }
}
