//! Values of a wrong type, range or form.

use crate::base::{BASE, check_errors};

#[test]
fn values() {
    check_errors(
        BASE,
        &[
            (
                "core = 1",
                "core = \"1\"",
                &["5:8: worker[0].core: a string is not valid here (must be an integer 0..=1023)"],
            ),
            (
                "core = 1",
                "core = 1024",
                &["5:8: worker[0].core: 1024 is out of range (must be an integer 0..=1023)"],
            ),
            ("core = 1", "core = -1", &["5:8: worker[0].core: an integer is not valid here"]),
            ("core = 1\n", "", &["4:1: worker[0].core: missing (must be an integer 0..=1023)"]),
            ("core = 1", "core = 1.5", &["5:8: worker[0].core: a float is not valid here"]),
            (
                "port_block = 256",
                "port_block = 300",
                &["18:14: nat.port_block: 300 is not a power of two (write 256 or 512)"],
            ),
            (
                "port_block = 256",
                "port_block = 4",
                &["18:14: nat.port_block: 4 is out of range (must be an integer 64..=8192 ports)"],
            ),
            (
                "port_block = 256",
                "enabled = 1",
                &["18:11: nat.enabled: an integer is not valid here (must be true or false)"],
            ),
            (
                "port_block = 256",
                "mss_clamp = 100",
                &[
                    "18:13: nat.mss_clamp: an integer is not valid here (must be a boolean or integer: true, false, 536..=9176)",
                ],
            ),
            (
                "port_block = 256",
                "filtering = \"eif\"",
                &[
                    "18:13: nat.filtering: \"eif\" is not valid (must be one of \"address-and-port-dependent\", ",
                ],
            ),
            (
                "profile = \"rfc\"",
                "udp_sec = 0",
                &["21:11: timeouts.udp_sec: 0 is out of range (must be an integer 1..=604800 s)"],
            ),
            (
                "name = \"n1\"",
                "name = \"n 1\"",
                &["2:8: node.name: \"n 1\" is not valid (must be a string: 1 to 63 letters"],
            ),
            ("name = \"n1\"", "name = \"../x\"", &["2:8: node.name: "]),
            (
                "name = \"n1\"",
                "metrics = \"9105\"",
                &["2:11: node.metrics: \"9105\" is not valid (must be a string: \"address:port\""],
            ),
            ("name = \"n1\"", "admin_socket = \"weir.sock\"", &["2:16: node.admin_socket: "]),
            (
                "name = \"n1\"",
                "control_cores = [0, 0]",
                &["2:21: node.control_cores[1]: core 0 is listed twice"],
            ),
            ("name = \"n1\"", "control_cores = [-1]", &["2:18: node.control_cores[0]: not a core"]),
            (
                "name = \"n1\"",
                "control_cores = []",
                &["2:17: node.control_cores: an array is not valid here"],
            ),
            ("name = \"n1\"", "eal = [\"--x\", 3]", &["2:15: node.eal[1]: not an EAL argument"]),
            ("name = \"n1\"", "block_log = \"\"", &["2:13: node.block_log: \"\" is not valid"]),
            (
                "core = 1",
                "core = 1\nrx_descriptors = 1000",
                &["6:18: worker[0].rx_descriptors: 1000 is not a power of two (write 1024)"],
            ),
            (
                "mtu = 1524",
                "mtu = 500",
                &[
                    "6:100: worker[0].access.mtu: 500 is out of range (must be an integer 576..=9216 bytes)",
                ],
            ),
            (
                "port_block = 256",
                "flows_max = 5000\nsessions_max = 6000",
                &[
                    "19:16: nat.sessions_max: 6000 are more than all sessions, nat.flows_max = 5000 (write at most 5000",
                ],
            ),
            (
                "port_block = 256",
                "sessions_max = 1000",
                &["18:16: nat.sessions_max: 1000 is out of range"],
            ),
            (
                "port_block = 256",
                "flows_per_subscriber = 100\n[limits]\nflows = 200",
                &[
                    "18:24: nat.flows_per_subscriber: the former name of limits.flows, which is written too (remove it)",
                ],
            ),
            (
                "port_block = 256",
                "port_block = 256\n[limits]\nfragments_percent = 0",
                &[
                    "20:21: limits.fragments_percent: 0 is out of range (must be an integer 1..=100 %)",
                ],
            ),
            ("mtu = 1524", "vlan = 4095", &["6:101: worker[0].access.vlan: 4095 is out of range"]),
            ("mtu = 1524", "mac = \"01:00:5e:00:00:01\"", &["6:100: worker[0].access.mac: "]),
            (
                "\"net_af_xdp0,iface=acc0\"",
                "\"\"",
                &["6:21: worker[0].access.device: \"\" is not valid"],
            ),
            (
                "gateway = \"10.1.0.2\"",
                "gateway = []",
                &["6:82: worker[0].access.gateway: an array is not valid here"],
            ),
            (
                "gateway = \"10.1.0.2\"",
                "gateway = [\"10.1.0.2\", \"x\"]",
                &["6:95: worker[0].access.gateway[1]: not an IPv4 address"],
            ),
        ],
    );
}
