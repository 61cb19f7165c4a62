//! `net_null`: a device that produces frames and discards frames. Ownership of buffers is counted
//! exactly.

mod setup;

use std::thread;

use weir_dpdk::{Mbuf, Port, pin_current_thread, register_worker_thread, tsc, tsc_hz};
use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};

#[test]
fn a_worker_receives_and_sends_and_every_buffer_comes_back() {
    let eal = setup::eal();
    assert!(!eal.uses_huge_pages());
    assert!(eal.memory().contains("huge pages are turned off"), "{}", eal.memory());
    assert!(tsc_hz() > 0);
    let pool = setup::pool();
    let port = setup::attach(&eal, "net_null0", &pool);
    let idle = pool.in_use();
    let (mut rx, mut tx) = port.queues();
    let mut worker_pool = pool.clone();

    let worker = thread::spawn(move || {
        pin_current_thread(0).expect("core 0 exists");
        let registration = register_worker_thread().expect("DPDK takes a worker");
        let started = tsc();
        let mut frames = Vec::with_capacity(64);
        for _ in 0..100 {
            assert_eq!(rx.burst(&mut frames, 32), 32);
            frames.truncate(20);
            frames.push(worker_pool.alloc().expect("the pool has buffers"));
            assert_eq!(tx.burst(&mut frames), 21);
            assert!(frames.is_empty());
        }
        assert_eq!(frames.capacity(), 64, "bursts allocate nothing");
        assert_eq!(tx.dropped(), 0);
        assert!(tsc() > started);
        rx.burst(&mut frames, 32);
        Mbuf::free_all(&mut frames);
        drop(registration);
        (rx, tx)
    });
    let queues = worker.join().expect("the worker ends well");

    assert_eq!(pool.in_use(), idle);
    assert_eq!(port.stats().rx_packets, 101 * 32);
    assert_eq!(port.stats().tx_packets, 100 * 21);
    drop((port, queues));

    // The device is free again, and accepts an address.
    let mac: Mac = "02:00:00:00:00:07".parse().expect("is an address");
    let config = weir_dpdk::PortConfig { mac: Some(mac), ..setup::port_config(&pool) };
    let again = Port::attach(&eal, "net_null0", config).expect("was detached");
    assert_eq!((again.mac(), again.driver()), (mac, "net_null"));
    let twice =
        Port::attach(&eal, "net_null0", setup::port_config(&pool)).expect_err("is attached");
    assert!(twice.to_string().contains("attached already"), "{twice}");

    let mut pool = pool;
    let frame = pool.alloc().expect("the pool has buffers");
    assert!(frame.data().is_empty() && frame.is_contiguous());
    assert_eq!(pool.in_use(), 1);
    drop(frame);
    assert_eq!(pool.in_use(), 0);
}
