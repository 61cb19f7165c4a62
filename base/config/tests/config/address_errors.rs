//! Invalid addresses, and values that must be unique.

use crate::base::{BASE, changed, check_errors};

#[test]
fn device_forms() {
    check_errors(
        BASE,
        &[
            (
                "net_af_xdp0,iface=acc0",
                "eth0",
                &[
                    "6:21: worker[0].access.device: \"eth0\" is neither a PCI address nor a DPDK virtual device (for a kernel interface write \"net_af_xdp0,iface=eth0\")",
                ],
            ),
            (
                "net_af_xdp0,iface=acc0",
                "net_af_xdp0,start_queue=1",
                &["6:21: worker[0].access.device: net_af_xdp0 names no interface (add iface=NAME)"],
            ),
        ],
    );
}

#[test]
fn addresses() {
    check_errors(
        BASE,
        &[
            (
                "10.1.0.1/24",
                "10.1.0.1",
                &[
                    "6:57: worker[0].access.address: \"10.1.0.1\" is not valid (must be a string: \"a.b.c.d/length\"",
                ],
            ),
            (
                "10.1.0.1/24",
                "10.1.0.0/24",
                &[
                    "6:57: worker[0].access.address: 10.1.0.0 is the network or broadcast address of 10.1.0.0/24",
                ],
            ),
            (
                "10.1.0.1/24",
                "127.0.0.1/24",
                &["6:57: worker[0].access.address: 127.0.0.1 is loopback (127.0.0.0/8)"],
            ),
            ("10.1.0.1/24", "10.1.0.1/32", &["6:57: worker[0].access.address: "]),
            (
                "10.1.0.3/24",
                "10.1.0.1/24",
                &[
                    "11:57: worker[1].access.address: address 10.1.0.1 is already at worker[0].access.address",
                ],
            ),
            (
                "10.2.0.1/24",
                "10.1.0.9/24",
                &[
                    "7:59: worker[0].internet.address: the connected prefixes of both sides overlap",
                    "7:84: worker[0].internet.gateway: 10.2.0.2 is not in the connected prefix 10.1.0.0/24",
                ],
            ),
            (
                "gateway = \"10.1.0.2\"",
                "gateway = \"10.1.0.1\"",
                &["6:82: worker[0].access.gateway: 10.1.0.1 is the worker's own address"],
            ),
            (
                "gateway = \"10.1.0.2\"",
                "gateway = \"10.1.0.3\"",
                &[
                    "6:82: worker[0].access.gateway: 10.1.0.3 is weir's own (worker[1].access.address)",
                ],
            ),
            (
                "gateway = \"10.1.0.2\"",
                "gateway = \"10.9.0.2\"",
                &[
                    "6:82: worker[0].access.gateway: 10.9.0.2 is not in the connected prefix 10.1.0.0/24",
                ],
            ),
            (
                "gateway = \"10.1.0.2\"",
                "gateway = \"10.1.0.255\"",
                &["6:82: worker[0].access.gateway: 10.1.0.255 is the network or broadcast address"],
            ),
            (
                "10.200.0.0/16",
                "10.200.0.1/16",
                &[
                    "15:16: access.subscribers[0]: 10.200.0.1/16 has host bits; its prefix is 10.200.0.0/16",
                ],
            ),
            (
                "10.200.0.0/16",
                "0.0.0.0/0",
                &["15:16: access.subscribers[0]: 0.0.0.0/0 contains \"this network\" (0.0.0.0/8)"],
            ),
            (
                "[\"10.200.0.0/16\"]",
                "\"10.200.0.0/16\"",
                &["15:15: access.subscribers: a string is not valid here"],
            ),
            ("[\"10.200.0.0/16\"]", "[]", &["15:15: access.subscribers: an empty list"]),
            (
                "[\"10.200.0.0/16\"]",
                "[\"10.200.0.0/16\", \"10.200.3.0/24\"]",
                &["15:33: access.subscribers[1]: 10.200.3.0/24 overlaps 10.200.0.0/16 before it"],
            ),
            (
                "203.0.113.0/28",
                "240.0.0.0/28",
                &["26:11: shard[0].public[0]: 240.0.0.0/28 is class E (240.0.0.0/4)"],
            ),
            (
                "203.0.113.0/28",
                "224.0.1.0/28",
                &["26:11: shard[0].public[0]: 224.0.1.0/28 is multicast"],
            ),
            ("203.0.113.0/28", "x", &["26:11: shard[0].public[0]: \"x\" is not an IPv4 prefix"]),
            (
                "\"10.100.0.1\"",
                "\"10.100.0\"",
                &["25:12: shard[0].endpoint: \"10.100.0\" is not valid"],
            ),
            (
                "\"10.100.0.1\"",
                "\"255.255.255.255\"",
                &["25:12: shard[0].endpoint: 255.255.255.255 is class E"],
            ),
        ],
    );
}

#[test]
fn repeated_cores_devices_and_addresses_are_refused() {
    check_errors(
        BASE,
        &[
            (
                "core = 2",
                "core = 1",
                &["10:8: worker[1].core: core 1 is already at worker[0].core"],
            ),
            (
                "net_af_xdp2,iface=acc1",
                "net_af_xdp0,iface=acc1",
                &[
                    "11:21: worker[1].access.device: device net_af_xdp0 is already at worker[0].access.device",
                ],
            ),
            (
                "net_af_xdp2,iface=acc1",
                "net_af_xdp2,iface=acc0",
                &[
                    "11:21: worker[1].access.device: queue 0 of acc0 is already at worker[0].access.device",
                ],
            ),
            ("net_af_xdp2,iface=acc1", "net_af_xdp2,iface=acc0,start_queue=1", &[]),
            ("id = 2", "id = 1", &["29:6: shard[1].id: shard 1 is already at shard[0].id"]),
            (
                "10.100.0.2",
                "10.100.0.1",
                &["30:12: shard[1].endpoint: address 10.100.0.1 is already at shard[0].endpoint"],
            ),
            (
                "10.100.0.2",
                "10.1.0.1",
                &[
                    "30:12: shard[1].endpoint: address 10.1.0.1 is already at worker[0].access.address",
                ],
            ),
        ],
    );
    let pci = changed(BASE, "net_af_xdp0,iface=acc0", "0000:01:00.0");
    check_errors(
        &pci,
        &[(
            "net_af_xdp2,iface=acc1",
            "01:00.0",
            &["11:21: worker[1].access.device: device 0000:01:00.0 is already"],
        )],
    );
    let mac = changed(BASE, "mtu = 1524", "mac = \"02:00:00:00:00:0a\", mtu = 1524");
    check_errors(
        &mac,
        &[(
            "\"10.1.0.2\", mtu",
            "\"10.1.0.2\", mac = \"02:00:00:00:00:0A\", mtu",
            &["11:100: worker[1].access.mac: MAC address 02:00:00:00:00:0a is already"],
        )],
    );
}

#[test]
fn macs_of_gateways() {
    check_errors(
        BASE,
        &[
            (
                "gateway = \"10.1.0.2\"",
                "gateway = \"10.1.0.2\", gateway_mac = \"02:00:00:00:00\"",
                &["6:108: worker[0].access.gateway_mac: not a unicast MAC address"],
            ),
            (
                "gateway = \"10.1.0.2\"",
                "gateway = \"10.1.0.2\", gateway_mac = \"01:00:5e:00:00:01\"",
                &["6:108: worker[0].access.gateway_mac: not a unicast MAC address"],
            ),
            (
                "gateway = \"10.1.0.2\"",
                "gateway = \"10.1.0.2\", mac = \"02:00:00:00:00:07\", gateway_mac = [\"02:00:00:00:00:07\"]",
                &["6:136: worker[0].access.gateway_mac[0]: the worker's own MAC address"],
            ),
            (
                "gateway = \"10.1.0.2\"",
                "gateway = \"10.1.0.2\", gateway_mac = [\"02:00:00:00:00:07\", \"02:00:00:00:00:08\"]",
                &["6:108: worker[0].access.gateway_mac: 2 MAC addresses for 1 gateways"],
            ),
            (
                "gateway = \"10.1.0.2\"",
                "gateway = \"10.1.0.2\", gateway_mac = []",
                &["6:108: worker[0].access.gateway_mac: "],
            ),
        ],
    );
    let pinned = "gateway = \"10.1.0.2\", gateway_mac = \"02:00:00:00:00:01\"";
    let text = changed(BASE, "gateway = \"10.1.0.2\"", pinned);
    let (config, _) = weir_config::parse(&text, "t.toml").expect("good");
    assert_eq!(config.workers[0].access.gateway_macs, [[2, 0, 0, 0, 0, 1]]);
    assert_eq!(config.workers[0].internet.gateway_macs, [[0; 6]; 0]);
}
