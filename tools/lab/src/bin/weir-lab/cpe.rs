//! `weir-lab cpe`: a home gateway in user space.

use std::net::IpAddr;

use clap::Args as ClapArgs;
use ipnet::{Ipv4Net, Ipv6Net};
use weir_cpe::tunnel::{self, Ends};
use weir_cpe::{Config, Gateway};

/// MTU of an Ethernet access network, bytes.
const ACCESS_MTU: u16 = 1500;

/// Be a home gateway where the kernel has no GRE: TUN on one side, GRE on the other.
///
/// The tunnel goes over IPv4 or IPv6, whichever the endpoints are, and carries the families of the
/// inside addresses: IPv4, IPv6 or both.
///
/// Run it where the home's programs run (a namespace, a machine): they use the TUN device like any
/// interface. Needs root (CAP_NET_ADMIN and CAP_NET_RAW). Prints `ready` when packets flow and
/// goes on until SIGTERM; the device, its addresses and its routes go with it.
///
///   weir-lab cpe --tun-address 192.168.1.2/24 --local 10.200.0.1 --remote 10.100.0.1 --route
///   weir-lab cpe --tun-address 192.168.1.2/24 --tun-address6 2001:db8:1000::1/64 \
///     --local 10.200.0.1 --remote 10.100.0.1 --route
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Name of the TUN device to make.
    #[arg(long, default_value = "weir-cpe0")]
    tun: String,

    /// The home's inside IPv4 address, with the length of its network.
    #[arg(long, value_name = "A/LEN", required_unless_present = "tun_address6")]
    tun_address: Option<Ipv4Net>,

    /// The home's inside IPv6 address, with the length of its prefix.
    #[arg(long, value_name = "A/LEN")]
    tun_address6: Option<Ipv6Net>,

    /// Outer source: this home's address on the access network, IPv4 or IPv6.
    #[arg(long, value_name = "A")]
    local: IpAddr,

    /// Outer destination: the tunnel endpoint of the home's shard, of the same family.
    #[arg(long, value_name = "A")]
    remote: IpAddr,

    /// GRE key (RFC 2890), sent and expected.
    #[arg(long, value_name = "N")]
    key: Option<u32>,

    /// MTU of the tunnel in bytes, at least 1280 with IPv6 inside. Default: what an Ethernet access
    /// network leaves, 1500 - 24 over IPv4, 1500 - 44 over IPv6, 4 less with a key.
    #[arg(long, value_parser = clap::value_parser!(u16).range(68..))]
    mtu: Option<u16>,

    /// Route PREFIX through the tunnel; without a value, everything in the families of the inside
    /// addresses. May be repeated.
    #[arg(long, value_name = "PREFIX", num_args = 0..=1, default_missing_value = "default")]
    route: Vec<String>,
}

/// Runs the gateway until a signal ends it.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    // `Gateway::open` refuses endpoints of two families.
    let default_mtu = Ends::new(args.local, args.remote)
        .map_or(ACCESS_MTU, |ends| ACCESS_MTU - tunnel::headroom(ends, args.key) as u16);
    let gateway = Gateway::open(&Config {
        tun: args.tun,
        tun_address: args.tun_address,
        tun_address6: args.tun_address6,
        local: args.local,
        remote: args.remote,
        key: args.key,
        mtu: args.mtu.unwrap_or(default_mtu),
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
