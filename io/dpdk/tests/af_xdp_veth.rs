//! `net_af_xdp` on one end of a veth pair, a packet socket of the kernel on the other.

mod setup;
#[path = "setup/veth.rs"]
mod veth;

use weir_dpdk::{Port, PortConfig};
use weir_wire::ethernet::Mac;

const FRAMES: usize = 300;

#[test]
fn frames_pass_both_ways_and_nothing_stays_behind() {
    veth::create();
    let eal = setup::eal();
    let mut pool = setup::pool();
    let mac: Mac = "02:00:00:00:00:0a".parse().expect("is an address");
    let config = PortConfig { mac: Some(mac), mtu: 1400, ..setup::port_config(&pool) };
    let xdp = Port::attach(&eal, "net_af_xdp0,iface=wa", config)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(xdp.mac(), mac);
    assert_eq!(
        xdp.warnings().len(),
        1,
        "the interface keeps its own address: {:?}",
        xdp.warnings()
    );
    assert!(veth::has_xdp_program("wa"));
    assert!(veth::run("ip link show wa").contains("mtu 1400"));
    veth::run("ip link set wa mtu 1500");
    let kernel = setup::attach(&eal, "net_af_packet0,iface=wb", &pool);
    assert!(xdp.link_up());

    let (xdp_queues, kernel_queues) = (xdp.queues(), kernel.queues());
    let (mut xdp_rx, mut xdp_tx) = xdp_queues;
    let (mut kernel_rx, mut kernel_tx) = kernel_queues;
    for (tx, rx) in [(&mut xdp_tx, &mut kernel_rx), (&mut kernel_tx, &mut xdp_rx)] {
        let mut received = Vec::new();
        let mut frames = Vec::new();
        for first in (0..FRAMES).step_by(25) {
            frames.extend(
                (first..first + 25).map(|number| setup::frame(&mut pool, &setup::bytes(number))),
            );
            assert_eq!(tx.burst(&mut frames), 25);
            received.extend(setup::receive(rx, 25));
        }
        let expected: Vec<Vec<u8>> = (0..FRAMES).map(setup::bytes).collect();
        assert!(received == expected, "frames differ");
    }
    assert!(xdp.stats().rx_packets >= FRAMES as u64);

    let busy = Port::attach(&eal, "net_af_xdp1,iface=wa", setup::port_config(&pool))
        .expect_err("its queue is taken");
    assert!(
        busy.to_string().contains("queue 0 of interface wa is in use by another port"),
        "{busy}"
    );
    assert!(veth::has_xdp_program("wa"), "the port in use lost its program");

    drop((xdp, xdp_rx, xdp_tx));
    assert!(!veth::has_xdp_program("wa"));
    drop((kernel, kernel_rx, kernel_tx));
    // DPDK's driver keeps the buffers of the two kernel-side rings of a closed port.
    assert!(pool.in_use() <= 2 * 2048, "{} buffers are lost", pool.in_use());
}
