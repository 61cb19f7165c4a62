//! Errors that an operator reads when a device cannot be used: one line with the device, the cause
//! and the fix; and the failed attempt leaves nothing behind.

mod setup;
#[path = "setup/veth.rs"]
mod veth;

use weir_dpdk::{Eal, EalConfig, MbufPool, Port, PortConfig};

#[test]
fn each_failure_is_one_sentence_and_leaves_the_rest_working() {
    veth::create();
    let eal = setup::eal();
    let pool = setup::pool();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let nowhere = folder.path().join("no-such-file.pcap");
    for (devargs, expected) in [
        ("net_af_xdp0,iface=nonexistent", "interface nonexistent does not exist; create it"),
        ("net_af_xdp0", "names no interface; add iface="),
        ("net_af_xdp0,iface=wa,no_such_option=1", "cannot be opened"),
        ("net_nosuchdriver0", "cannot be opened"),
        ("eth0", "is neither a PCI address nor a DPDK virtual device"),
        ("0000:00:1e.7", "no PCI device has this address"),
        (
            "net_memif0,role=server,socket-abstract=no,socket=/nonexistent/memif.sock",
            "the folder /nonexistent of its socket does not exist",
        ),
        (
            &format!("net_pcap0,rx_pcap={},tx_pcap=/dev/null", nowhere.display()),
            "no-such-file.pcap",
        ),
    ] {
        let error =
            Port::attach(&eal, devargs, setup::port_config(&pool)).expect_err(devargs).to_string();
        assert!(error.starts_with("device ") && error.contains(devargs), "{devargs}: {error}");
        assert!(error.contains(expected), "{devargs}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    too_small_buffers_and_pools(&eal, &pool);

    assert!(!veth::has_xdp_program("wa"));
    assert!(veth::run("ip link show wa").contains("state UP"));
    drop(setup::attach(&eal, "net_af_xdp0,iface=wa", &pool));
    assert!(
        Eal::init(EalConfig::default())
            .expect_err("one per process")
            .to_string()
            .contains("already been started")
    );
}

fn too_small_buffers_and_pools(eal: &Eal, pool: &MbufPool) {
    let config = PortConfig { mtu: 9000, ..setup::port_config(pool) };
    let error =
        Port::attach(eal, "net_null0", config).expect_err("9,000 bytes do not fit").to_string();
    assert!(error.contains("MTU 9000 do not fit in packet buffers of 2176 bytes"), "{error}");

    let jumbo = MbufPool::new("jumbo", 64, 9600, -1).expect("the pool fits");
    let config = PortConfig { mtu: 9000, ..setup::port_config(&jumbo) };
    let error = Port::attach(eal, "net_af_xdp0,iface=wa", config)
        .expect_err("more than a page")
        .to_string();
    assert!(error.contains("MTU of 9000") && error.contains("choose an MTU of 68 to"), "{error}");

    let small = MbufPool::new("small", 512, 2176, -1).expect("the pool fits");
    let error = Port::attach(eal, "net_af_xdp0,iface=wa", setup::port_config(&small))
        .expect_err("AF_XDP fills its ring")
        .to_string();
    assert!(
        error.contains("receive queue cannot be set up") && error.contains("4,096 buffers"),
        "{error}"
    );

    let error =
        MbufPool::new("huge", 1_000_000, 2176, -1).expect_err("the EAL has 256 MB").to_string();
    assert!(
        error.starts_with("not enough memory for the packet buffer pool huge")
            && error.contains("2259 MB asked"),
        "{error}"
    );
}
