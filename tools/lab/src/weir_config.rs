//! The configuration of the weir under test, as an operator would write its file.

use std::fmt::Write;
use std::path::Path;

use crate::one_node::Access;
use crate::one_node::ipv6::{ENDPOINT6, HOMES, OUTERS};

/// Port of `/metrics` on the loopback of weir's namespace.
pub const METRICS_PORT: u16 = 9477;

/// weir's IPv6 address and its gateway on each side.
const ACCESS6: [&str; 2] = ["2001:db8:1::1/64", "2001:db8:1::2"];
const INTERNET6: [&str; 2] = ["2001:db8:2::1/64", "2001:db8:2::2"];

/// IPv6 of the weir under test.
#[derive(Clone, Debug)]
pub struct WeirIpv6 {
    /// `public6` of the shard.
    pub public: &'static str,
    /// Keys of `[ipv6]`, as TOML.
    pub settings: Vec<(&'static str, &'static str)>,
    /// Whether the homes' tunnels are over IPv6, not over IPv4.
    pub has_tunnels: bool,
}

impl Default for WeirIpv6 {
    fn default() -> Self {
        Self { public: HOMES, settings: Vec::new(), has_tunnels: false }
    }
}

/// Keys that tests set; every other key keeps weir's default.
#[derive(Clone, Debug)]
pub struct WeirConfig {
    /// gre or plain.
    pub access: Access,
    /// Devargs of the access port.
    pub access_device: String,
    /// Devargs of the internet port.
    pub internet_device: String,
    /// Prefixes of the homes' outer (gre) or inside (plain) addresses.
    pub subscribers: &'static str,
    /// Public prefix of the shard.
    pub public: &'static str,
    /// IPv6 of weir and of its shard. Default: none.
    pub ipv6: Option<WeirIpv6>,
    /// `worker.internet.mtu`, bytes.
    pub internet_mtu: u16,
    /// `nat.enabled`: false is a firewall without translation.
    pub nat_enabled: bool,
    /// `nat.filtering`.
    pub filtering: &'static str,
    /// `nat.flows_max`: small, so that tables are made quickly.
    pub flows_max: u32,
    /// More keys of `[nat]`, as TOML: `("port_block", "64")`.
    pub nat: Vec<(&'static str, &'static str)>,
    /// Keys of `[limits]`, as TOML.
    pub limits: Vec<(&'static str, &'static str)>,
    /// Keys of `[timeouts]` in seconds.
    pub timeouts: Vec<(&'static str, u32)>,
    /// `session_log` of `[node]`.
    pub session_log: &'static str,
    /// Further sections, as `[[collector]]`; `{directory}` is replaced by the directory of sockets
    /// and logs.
    pub collectors: &'static str,
}

impl Default for WeirConfig {
    fn default() -> Self {
        Self {
            access: Access::Gre,
            access_device: "net_af_xdp0,iface=acc0".to_owned(),
            internet_device: "net_af_xdp1,iface=net0".to_owned(),
            subscribers: "10.200.0.0/16",
            public: "203.0.113.0/28",
            ipv6: None,
            internet_mtu: 1500,
            nat_enabled: true,
            filtering: "address-and-port-dependent",
            flows_max: 200_000,
            nat: Vec::new(),
            limits: Vec::new(),
            timeouts: Vec::new(),
            session_log: "none",
            collectors: "",
        }
    }
}

impl WeirConfig {
    /// Returns the file. Sockets and logs go to `directory`.
    pub fn render(&self, directory: &Path) -> String {
        let mut text = format!(
            r#"[node]
name = "lab"
poll = "adaptive"
admin_socket = "{directory}/weir.sock"
block_log = "{directory}/blocks.jsonl"
metrics = "127.0.0.1:{METRICS_PORT}"
session_log = "{session_log}"

[[worker]]
core = 1
access   = {{ device = "{access_device}", address = "10.1.0.1/24", gateway = "10.1.0.2"{access6} }}
internet = {{ device = "{internet_device}", address = "10.2.0.1/24", gateway = "10.2.0.2", mtu = {internet_mtu}{internet6} }}

[nat]
enabled = {nat_enabled}
filtering = "{filtering}"
flows_max = {flows_max}
"#,
            directory = directory.display(),
            access_device = self.access_device,
            access6 = match self.access == Access::Plain || self.has_tunnels6() {
                true => self.interface6(ACCESS6),
                false => String::new(),
            },
            internet_device = self.internet_device,
            internet_mtu = self.internet_mtu,
            internet6 = self.interface6(INTERNET6),
            nat_enabled = self.nat_enabled,
            filtering = self.filtering,
            flows_max = self.flows_max,
            session_log = self.session_log,
        );
        let write_keys = |text: &mut String, keys: &[(&str, &str)]| {
            keys.iter().for_each(|(key, value)| _ = writeln!(text, "{key} = {value}"));
        };
        write_keys(&mut text, &self.nat);
        let _ = writeln!(text, "\n[limits]");
        write_keys(&mut text, &self.limits);
        let _ = writeln!(text, "\n[timeouts]");
        for (key, seconds) in &self.timeouts {
            let _ = writeln!(text, "{key} = {seconds}");
        }
        if let Some(ipv6) = &self.ipv6 {
            let _ = writeln!(text, "\n[ipv6]");
            write_keys(&mut text, &ipv6.settings);
        }
        let (mode, shard) = match self.access {
            Access::Gre if self.has_tunnels6() => {
                ("gre", format!("endpoint = \"10.100.0.1\"\nendpoint6 = \"{ENDPOINT6}\""))
            }
            Access::Gre => ("gre", "endpoint = \"10.100.0.1\"".to_owned()),
            Access::Plain => ("plain", format!("subscribers = [\"{}\"]", self.subscribers)),
        };
        let _ = write!(
            text,
            "\n[access]\nmode = \"{mode}\"\nsubscribers = [\"{}\"]\n",
            self.subscribers
        );
        if self.has_tunnels6() {
            let _ = writeln!(text, "subscribers6 = [\"{OUTERS}\"]");
        }
        let _ = write!(text, "\n[[shard]]\nid = 1\n{shard}\npublic = [\"{}\"]\n", self.public);
        if let Some(ipv6) = &self.ipv6 {
            let _ = writeln!(text, "public6 = [\"{}\"]", ipv6.public);
        }
        text.push_str(&self.collectors.replace("{directory}", &directory.to_string_lossy()));
        text
    }

    /// Whether the homes' tunnels are over IPv6.
    pub fn has_tunnels6(&self) -> bool {
        self.ipv6.as_ref().is_some_and(|ipv6| ipv6.has_tunnels)
    }

    /// Returns the IPv6 keys of a side of the worker, behind others.
    fn interface6(&self, [address, gateway]: [&str; 2]) -> String {
        match self.ipv6 {
            Some(_) => format!(", address6 = \"{address}\", gateways6 = [\"{gateway}\"]"),
            None => String::new(),
        }
    }
}
