//! Turns the configuration file into the configuration of one worker's engine.

use std::fs::File;
use std::io::{self, Read};

use weir_config::{Config, InterfaceSettings};
use weir_engine::{AccessMode, EngineConfig, Side6Config, SideConfig};
use weir_nat::{AddressRanges, ShardIndex};
use weir_node_core::ClusterRoom;
use weir_node_core::live::{fragment_limits, live_engine_settings};
use weir_node_core::nat_setup::{nat_config, shards_of};
use weir_node_core::setup::engine_shard;
use weir_wire::ethernet::Mac;

/// Returns the configuration of the engine of worker `worker`, with its shards in file order. The
/// MACs are known only when the ports are attached, after the tables are built.
///
/// # Errors
/// When the system has no randomness.
pub(crate) fn engine_config(
    config: &Config,
    worker: usize,
    room: Option<&ClusterRoom>,
) -> io::Result<EngineConfig> {
    let interfaces = &config.workers[worker];
    let live = live_engine_settings(config);
    Ok(EngineConfig {
        mode: match config.access.mode {
            weir_config::AccessSetting::Gre => AccessMode::Gre,
            weir_config::AccessSetting::Plain => AccessMode::Plain,
        },
        access: side(&interfaces.access),
        internet: side(&interfaces.internet),
        mss_clamp: live.mss_clamp,
        shards: shards_of(config, worker).map(engine_shard).collect(),
        nat: nat_config(config, worker, room, seed()?),
        peers_max: room.map_or(0, |room| room.peers),
        replication_port: room.map(|room| room.replication_port),
        fragments: fragment_limits(config),
        limits: live.limits,
        forward_source_routes: live.forward_source_routes,
    })
}

/// Returns the public addresses of all shards, whichever worker has them.
pub(crate) fn all_public(config: &Config) -> AddressRanges {
    let public = config.shards.iter().flat_map(|shard| &shard.public);
    AddressRanges::new(public.map(|&net| (net, ShardIndex(0))))
}

fn side(interface: &InterfaceSettings) -> SideConfig {
    SideConfig {
        mac: Mac::ZERO,
        address: interface.address,
        gateways: interface.gateways.clone(),
        gateway_macs: interface.gateway_macs.iter().copied().map(Mac).collect(),
        ipv6: interface
            .ipv6
            .as_ref()
            .map(|ipv6| Side6Config { address: ipv6.address, gateways: ipv6.gateways.clone() }),
        vlan: interface.vlan,
        mtu: interface.mtu,
    }
}

/// Returns fresh randomness for hashes and ports, so that neither can be guessed from outside
/// (RFC 6056 section 3.1).
fn seed() -> io::Result<[u64; 4]> {
    let (one, other) = (random()?, random()?);
    Ok([one as u64, (one >> 64) as u64, other as u64, (other >> 64) as u64])
}

/// Returns 128 bits that no attacker can guess.
///
/// # Errors
/// When the system has none.
pub(crate) fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_ne_bytes(bytes))
}
