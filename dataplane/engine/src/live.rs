//! The settings that change while packets pass: one value, built beside the worker and swapped
//! between two turns.

use std::sync::Arc;

use weir_nat::{
    ActiveRules, AddressRanges, Delegations, HomePrefixes, LiveNatSettings, PrefixOutOfService,
    StaticMappings,
};
use weir_wire::frame::Frame;
use weir_wire::gre::Gre;
use weir_wire::ipv4::Ipv4;
use weir_wire::ipv6::Ipv6;

use crate::config::{AccessMode, EngineConfig, FragmentLimits, MssClamp, ResourceLimits};
use crate::engine::Engine;
use crate::setup::EngineSetup;

/// A generation: everything that may change while packets pass.
#[derive(Debug)]
pub struct LiveSettings {
    /// Number of the generation; the settings of the start are number 0.
    pub number: u64,
    pub engine: LiveEngineSettings,
    pub nat: LiveNatSettings,
    /// See [`home_addresses`](weir_nat::home_addresses).
    pub homes: AddressRanges,
    /// The same of outer IPv6 addresses.
    pub homes6: HomePrefixes,
    pub rules: Box<ActiveRules>,
    pub statics: Arc<StaticMappings>,
    pub delegations: Arc<Delegations>,
    pub out_of_service: Box<[PrefixOutOfService]>,
}

/// The part of a generation that the steps around the NAT use; see [`EngineConfig`].
#[derive(Clone, Copy, Debug)]
pub struct LiveEngineSettings {
    pub mss_clamp: MssClamp,
    pub forward_source_routes: bool,
    /// See [`FragmentLimits::timeout_ms`].
    pub fragments_timeout_ms: u64,
    /// See [`FragmentLimits::percent`].
    pub fragments_percent: u8,
    pub limits: ResourceLimits,
}

impl LiveEngineSettings {
    /// Returns the part of a configuration that may change at run time.
    pub const fn of(config: &EngineConfig) -> Self {
        let FragmentLimits { timeout_ms, percent, .. } = config.fragments;
        Self {
            mss_clamp: config.mss_clamp,
            forward_source_routes: config.forward_source_routes,
            fragments_timeout_ms: timeout_ms,
            fragments_percent: percent,
            limits: config.limits,
        }
    }
}

impl<F: Frame> EngineSetup<'_, F> {
    /// Puts a generation in force, from the next packet on, and returns its box with the former
    /// one, for the caller to free: allocates and frees nothing. Live flows stay.
    ///
    /// # Panics
    /// If the settings do not [`fit`](LiveNatSettings::fit) the tables.
    #[must_use]
    pub fn swap_live(&mut self, mut live: Box<LiveSettings>) -> Box<LiveSettings> {
        let mut nat = self.engine.nat.admin_mut();
        nat.swap_live(&mut live.nat);
        nat.swap_homes(&mut live.homes);
        nat.swap_homes6(&mut live.homes6);
        live.rules = nat.swap_rules(live.rules);
        live.statics = nat.swap_statics(live.statics);
        nat.swap_delegations(&mut live.delegations);
        live.out_of_service = nat.swap_out_of_service(live.out_of_service);
        std::mem::swap(&mut self.engine.generation, &mut live.number);
        std::mem::swap(&mut self.engine.live, &mut live.engine);
        self.engine.apply_live();
        live
    }
}

impl<F: Frame> Engine<F> {
    /// Derives what the steps read from the live settings.
    fn apply_live(&mut self) {
        let live = self.live;
        let mtus = self.links.each_ref().map(|link| link.mtu);
        self.mss_max = mss_max(live.mss_clamp, self.mode, mtus);
        self.forwards_source_routes = live.forward_source_routes;
        let fragments = live.limits.fragments_of_groups(live.fragments_percent);
        self.fragments.set_limits(live.fragments_timeout_ms, &fragments);
        self.outer_fragments.cache.set_limits(live.fragments_timeout_ms, &fragments);
        self.errors.set_limits(&live.limits);
        self.redirects.set_party_rate(live.limits.redirects_per_sec);
        self.slow_path.set_rates(&live.limits.slow_path_of_groups());
    }

    /// Returns the largest MSS of a segment from or to a home with this outer address, bytes;
    /// `None`: any. Without tunnels it is the same for all.
    #[inline(always)]
    pub(crate) fn mss_max_of(&self, outer: u32) -> Option<u16> {
        let is_over_ipv6 = usize::from(weir_nat::is_outer_handle(outer));
        self.mss_max[is_over_ipv6][usize::from(self.nat.has_keyed_homes())]
    }
}

/// Bytes of a GRE key (RFC 2890), which is optional.
const KEY_LEN: usize = 4;

/// Returns the largest packet that fits a tunnel without a key and one with a key, in bytes.
pub(crate) fn tunnel_mtu(mode: AccessMode, access_mtu: usize) -> [usize; 2] {
    tunnel_mtu_behind(mode, access_mtu, Ipv4::LEN)
}

/// As [`tunnel_mtu`], with an outer header of this length.
fn tunnel_mtu_behind(mode: AccessMode, access_mtu: usize, outer_len: usize) -> [usize; 2] {
    [0, KEY_LEN].map(|key_len| match mode {
        AccessMode::Gre => access_mtu.saturating_sub(outer_len + Gre::LEN + key_len),
        AccessMode::Plain => access_mtu,
    })
}

/// Returns the largest MSS that SYNs may announce without a GRE key and with one, bytes, in tunnels
/// over IPv4 and in those over IPv6; `None`: they stay unchanged. `Auto` subtracts 20 bytes of IP
/// and 20 bytes of TCP header from the MTU. `mtus`: of the access side and of the internet side.
pub(crate) fn mss_max(
    clamp: MssClamp,
    mode: AccessMode,
    mtus: [usize; 2],
) -> [[Option<u16>; 2]; 2] {
    let [access, internet] = mtus;
    let of_mtu = |tunnel: usize| match clamp {
        MssClamp::Off => None,
        MssClamp::Max(mss) => Some(mss),
        MssClamp::Auto => Some(internet.min(tunnel).saturating_sub(40) as u16),
    };
    [Ipv4::LEN, Ipv6::LEN].map(|outer| tunnel_mtu_behind(mode, access, outer).map(of_mtu))
}
