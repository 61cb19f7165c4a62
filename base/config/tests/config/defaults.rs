//! Values of keys that the file does not contain.

use std::net::Ipv4Addr;

use weir_config::{
    Config, FilteringSetting, GreKey, HugePagesSetting, LogFormat, LogLevel, MssClampSetting, Poll,
    PoolingSetting, TimeoutProfile, TimeoutSettings,
};

const MINIMAL: &str = r#"
[[worker]]
core = 1
access = { device = "net_af_xdp0,iface=acc0", address = "10.1.0.1/24", gateway = "10.1.0.2" }
internet = { device = "net_af_xdp1,iface=net0", address = "10.2.0.1/24", gateway = "10.2.0.2" }
[access]
subscribers = ["10.200.0.0/16"]
[[shard]]
id = 1
endpoint = "10.100.0.1"
public = ["203.0.113.0/28"]
"#;

/// A file that states every default that can be written.
const EXPLICIT: &str = r#"
[node]
name = "weir"
poll = "adaptive"
hugepages = "auto"
eal = []
admin_socket = "/run/weir/weir.sock"
log_level = "info"
log_format = "text"
[[worker]]
core = 1
rx_descriptors = 1024
tx_descriptors = 1024
access = { device = "net_af_xdp0,iface=acc0", address = "10.1.0.1/24", gateway = ["10.1.0.2"], mtu = 1500 }
internet = { device = "net_af_xdp1,iface=net0", address = "10.2.0.1/24", gateway = ["10.2.0.2"], mtu = 1500 }
[access]
mode = "gre"
subscribers = ["10.200.0.0/16"]
gre_key = "ignore"
[nat]
enabled = true
filtering = "address-and-port-dependent"
port_block = 256
ports_per_subscriber = 2048
flows_max = 4_000_000
quarantine_sec = 120
pooling = "hard"
udp_inbound_refresh = false
inbound_sessions_max = 256
forward_source_routes = false
mss_clamp = true
[ipv6]
delegation = "claim"
claim_hold_sec = 600
[timeouts]
profile = "rfc"
tcp_syn_sent_sec = 240
tcp_syn_received_sec = 240
tcp_established_sec = 7440
tcp_fin_wait_sec = 7440
tcp_close_wait_sec = 7440
tcp_last_ack_sec = 240
tcp_time_wait_sec = 240
tcp_close_sec = 240
tcp_reset_sec = 1800
udp_sec = 300
udp_stream_sec = 300
icmp_sec = 60
[fragments]
datagrams_max = 4096
held_max = 512
held_per_datagram_max = 16
timeout_sec = 5
[limits]
new_flows_per_sec = 500
new_flows_burst = 4096
fragments_percent = 25
icmp_errors_per_sec = 20
icmp_errors_to_homes = true
icmp_errors_to_internet = true
worker_icmp_errors_per_sec = 1000
redirects_per_sec = 10_000
slow_path_packets_per_sec = 200_000
[[shard]]
id = 1
endpoint = "10.100.0.1"
public = ["203.0.113.0/28"]
subscribers_max = 256
worker = 1
"#;

fn valid(text: &str) -> Config {
    weir_config::parse(text, "weir.toml").expect("valid").0
}

#[test]
fn an_absent_key_has_the_default_of_the_reference() {
    assert_eq!(valid(MINIMAL), valid(EXPLICIT));
}

#[test]
fn defaults() {
    let config = valid(MINIMAL);
    assert_eq!(config.node.poll, Poll::Adaptive);
    assert_eq!(config.node.hugepages, HugePagesSetting::Auto);
    assert_eq!((config.node.log_level, config.node.log_format), (LogLevel::Info, LogFormat::Text));
    assert_eq!(
        (config.node.metrics, &config.node.block_log, &config.node.control_cores),
        (None, &None, &None)
    );
    assert_eq!(config.access.gre_key, GreKey::Ignore);
    assert_eq!(config.nat.filtering, FilteringSetting::AddressAndPortDependent);
    assert_eq!(
        (config.nat.pooling, config.nat.mss_clamp),
        (PoolingSetting::Hard, MssClampSetting::Auto)
    );
    assert_eq!(config.timeouts, TimeoutSettings::of(TimeoutProfile::Rfc));
    assert_eq!(config.shards[0].endpoint, Some(Ipv4Addr::new(10, 100, 0, 1)));
}

#[test]
fn a_plain_firewall_knows_the_homes_addresses() {
    let firewall = MINIMAL
        .replace("[access]", "[nat]\nenabled = false\n[access]\nmode = \"plain\"")
        .replace("endpoint = \"10.100.0.1\"", "subscribers = [\"10.200.1.0/24\"]")
        .replace("public = [\"203.0.113.0/28\"]\n", "");
    let config = valid(&firewall);
    assert_eq!(config.shards[0].public, config.shards[0].subscribers);
}

#[test]
fn the_socket_has_the_name_of_the_node() {
    let config = valid(&format!("node.name = \"edge-1\"\n{MINIMAL}"));
    assert_eq!(config.node.admin_socket.to_str(), Some("/run/weir/edge-1.sock"));
}

#[test]
fn a_timer_overrides_its_profile() {
    let timeouts = "[timeouts]\nprofile = \"carrier\"\nudp_sec = 45\n";
    let timeouts = valid(&format!("{MINIMAL}{timeouts}")).timeouts;
    assert_eq!(
        (timeouts.udp_sec, timeouts.udp_stream_sec, timeouts.tcp_close_wait_sec),
        (45, 60, 45)
    );
}

#[test]
fn mss_clamp_takes_three_forms_and_is_off_in_plain_mode() {
    let clamp = |line: &str| valid(&format!("{MINIMAL}[nat]\n{line}\n")).nat.mss_clamp;
    assert_eq!(clamp("mss_clamp = true"), MssClampSetting::Auto);
    assert_eq!(clamp("mss_clamp = false"), MssClampSetting::Off);
    assert_eq!(clamp("mss_clamp = 1300"), MssClampSetting::Max(1300));
    let plain = MINIMAL
        .replace("[access]", "[access]\nmode = \"plain\"")
        .replace("endpoint = \"10.100.0.1\"", "subscribers = [\"10.200.1.0/24\"]");
    assert_eq!(valid(&plain).nat.mss_clamp, MssClampSetting::Off);
}

#[test]
fn shards_go_round_the_workers_unless_one_is_named() {
    let mut text = MINIMAL.to_owned();
    text.push_str(
        "[[worker]]\ncore = 7\n\
         access = { device = \"0000:01:00.0\", address = \"10.1.0.3/24\", gateway = \"10.1.0.2\", mac = \"02:00:00:00:00:0A\" }\n\
         internet = { device = \"0000:01:00.1\", address = \"10.2.0.3/24\", gateway = \"10.2.0.2\", vlan = 7 }\n",
    );
    for (id, owner) in [(2, ""), (3, ""), (4, "worker = 1")] {
        text.push_str(&format!(
            "[[shard]]\nid = {id}\nendpoint = \"10.100.0.{id}\"\npublic = [\"203.0.113.{}/28\"]\n{owner}\n",
            16 * id
        ));
    }
    let config = valid(&text);
    assert_eq!(config.shards.iter().map(|shard| shard.worker).collect::<Vec<_>>(), [0, 1, 0, 0]);
    assert_eq!(config.workers[1].access.mac, Some([2, 0, 0, 0, 0, 10]));
    assert_eq!(config.workers[1].internet.vlan, Some(7));
}
