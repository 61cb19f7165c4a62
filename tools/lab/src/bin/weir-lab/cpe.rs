//! `weir-lab cpe`: a home gateway in user space.

use std::net::Ipv4Addr;

use clap::Args as ClapArgs;
use ipnet::Ipv4Net;
use weir_cpe::{Config, Gateway};

/// Be a home gateway where the kernel has no GRE: TUN on one side, GRE over IPv4 on the other.
///
/// Run it where the home's programs run (a namespace, a machine): they use the TUN device like any
/// interface. Needs root (CAP_NET_ADMIN and CAP_NET_RAW). Prints `ready` when packets flow and
/// goes on until SIGTERM; the device, its address and its routes go with it.
///
///   weir-lab cpe --tun-address 192.168.1.2/24 --local 10.200.0.1 --remote 10.100.0.1 --route
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Name of the TUN device to make.
    #[arg(long, default_value = "weir-cpe0")]
    tun: String,

    /// The home's inside address, with the length of its network.
    #[arg(long, value_name = "A/LEN")]
    tun_address: Ipv4Net,

    /// Outer source: this home's address on the access network.
    #[arg(long, value_name = "A")]
    local: Ipv4Addr,

    /// Outer destination: the tunnel endpoint of the home's shard.
    #[arg(long, value_name = "A")]
    remote: Ipv4Addr,

    /// GRE key (RFC 2890), sent and expected.
    #[arg(long, value_name = "N")]
    key: Option<u32>,

    /// MTU of the tunnel in bytes: 1500 - 24 on an Ethernet access network, 4 less with a key.
    #[arg(long, default_value_t = 1476, value_parser = clap::value_parser!(u16).range(68..))]
    mtu: u16,

    /// Route PREFIX through the tunnel; without a value, everything. May be repeated.
    #[arg(long, value_name = "PREFIX", num_args = 0..=1, default_missing_value = "default")]
    route: Vec<String>,
}

/// Runs the gateway until a signal ends it.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let gateway = Gateway::open(&Config {
        tun: args.tun,
        tun_address: args.tun_address,
        local: args.local,
        remote: args.remote,
        key: args.key,
        mtu: args.mtu,
        routes: args.route,
    })?;
    println!("ready");
    let totals = gateway.run()?;
    println!(
        "stopped sent={} received={} dropped={}",
        totals.sent, totals.received, totals.dropped
    );
    Ok(())
}
