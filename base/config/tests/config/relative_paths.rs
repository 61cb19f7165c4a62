//! Relative paths, which refer to another file when the service starts in another directory.

use weir_config::Diagnostic;

use crate::base::{BASE, assert_found, changed};

const MEMBER: &str = r#"[node]
name = "n1"
block_log = "blocks.jsonl"

[cluster]
name = "edge"
etcd = ["https://e1:2379"]
tls_ca = "ca.pem"
tls_cert = "tls/client.pem"
tls_key = "/etc/weir/client.key"
user = "weir-n1"
password_file = "password"
key_file = "./cluster.key"
bird_socket = "bird.ctl"

[[worker]]
core = 1
access = { device = "net_af_xdp0,iface=acc0", address = "10.1.0.1/24", gateway = "10.1.0.2" }
internet = { device = "net_af_xdp1,iface=net0", address = "10.2.0.1/24", gateway = "10.2.0.2" }
"#;

fn warnings(text: &str) -> Vec<Diagnostic> {
    weir_config::parse_file(text, "t.toml").expect("valid").1
}

#[test]
fn relative_paths_are_warned_of_with_an_absolute_one() {
    let expected = [
        "3:13: node.block_log: \"blocks.jsonl\" is relative: a service is started in / (write \"/var/log/weir/blocks.jsonl\" or",
        "8:10: cluster.tls_ca: \"ca.pem\" is relative: a service is started in / (write \"/etc/weir/ca.pem\" or",
        "9:12: cluster.tls_cert: \"tls/client.pem\" is relative: a service is started in / (write \"/etc/weir/client.pem\" or",
        "12:17: cluster.password_file: \"password\" is relative: a service is started in / (write \"/etc/weir/password\" or",
        "13:12: cluster.key_file: \"./cluster.key\" is relative: a service is started in / (write \"/etc/weir/cluster.key\" or",
        "14:15: cluster.bird_socket: \"bird.ctl\" is relative: a service is started in / (write \"/run/bird/bird.ctl\" or",
    ];
    assert_found("a node of a cluster", &warnings(MEMBER), &expected);
    let log = changed(BASE, "name = \"n1\"", "block_log = \"log/blocks.jsonl\"");
    let expected = [
        "2:13: node.block_log: \"log/blocks.jsonl\" is relative: a service is started in / (write \"/var/log/weir/blocks.jsonl\" or",
    ];
    assert_found("a single node", &warnings(&log), &expected);
    let absolute = changed(&log, "log/blocks", "/log/blocks");
    assert_found("absolute", &warnings(&absolute), &[]);
}
