//! `net_memif`: server and client in one process, over a socket file that a killed server left
//! behind.

mod setup;

use std::os::unix::net::UnixListener;

use weir_wire::ethernet::Mac;

const FRAMES: usize = 500;

#[test]
fn both_ends_exchange_frames_over_a_stale_socket_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("memif.sock");
    drop(UnixListener::bind(&socket).expect("the temporary folder takes a socket"));
    let eal = setup::eal();
    let mut pool = setup::pool();
    let devargs = |name: &str, role: &str| {
        format!("{name},role={role},socket={},socket-abstract=no", socket.display())
    };
    let server = setup::attach(&eal, &devargs("net_memif0", "server"), &pool);
    let client = setup::attach(&eal, &devargs("net_memif1", "client"), &pool);
    setup::wait_until("the pair is connected", || server.link_up() && client.link_up());
    assert_ne!(server.mac(), Mac::ZERO);

    let (server_queues, client_queues) = (server.queues(), client.queues());
    let (mut server_rx, mut server_tx) = server_queues;
    let (mut client_rx, mut client_tx) = client_queues;
    // A client lends its buffers to the server when it polls: before that the server cannot send.
    client_rx.burst(&mut Vec::new(), 32);
    for (tx, rx) in [(&mut server_tx, &mut client_rx), (&mut client_tx, &mut server_rx)] {
        let mut frames = Vec::new();
        let mut received = Vec::new();
        for first in (0..FRAMES).step_by(50) {
            frames.extend(
                (first..first + 50).map(|number| setup::frame(&mut pool, &setup::bytes(number))),
            );
            assert_eq!(tx.burst(&mut frames), 50);
            received.extend(setup::receive(rx, 50));
        }
        let expected: Vec<Vec<u8>> = (0..FRAMES).map(setup::bytes).collect();
        assert_eq!(received, expected);
    }

    // Without its peer an end drops bursts and frees them instead of blocking.
    drop((client, client_tx, client_rx));
    setup::wait_until("the server notices", || !server.link_up());
    let in_use = pool.in_use();
    let mut frames: Vec<_> =
        (0..50).map(|number| setup::frame(&mut pool, &setup::bytes(number))).collect();
    assert_eq!(server_tx.burst(&mut frames), 0);
    assert_eq!(server_tx.dropped(), 50);
    assert_eq!(pool.in_use(), in_use);
}
