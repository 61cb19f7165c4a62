//! Two gateways back to back, each in a network namespace with a kernel's TCP/IP stack, and a
//! router between them. Needs root.
//!
//! ```text
//!   left: tun0 -- gateway -- wan0 ---- router ---- wan0 -- gateway -- tun0 :right
//!   192.168.1.1                                                    192.168.1.2
//!   2001:db8:1::1                                                  2001:db8:2::2
//! ```

mod topology;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use topology::{INSIDE, INSIDE6, Outer, Side, Topology};

/// Bytes of a transfer of many full segments.
const TRANSFER_LEN: usize = 3_000_000;
/// Time limit for a transfer, a probe or a change that must follow.
const DEADLINE: Duration = Duration::from_secs(20);
/// Bytes of an ICMP header, and of an IP header of each family.
const ICMP_LEN: u16 = 8;
const IPV4_LEN: u16 = 20;
const IPV6_LEN: u16 = 40;

#[test]
fn both_families_pass_through_a_tunnel_over_each_family() {
    for (outer, mtu) in [(Outer::V4, 1476), (Outer::V6, 1456)] {
        for key in [None, Some(4711)] {
            let mtu = if key.is_some() { mtu - 4 } else { mtu };
            let net = Topology::start(outer, key, mtu).unwrap();
            for address in [INSIDE.right, INSIDE6.right] {
                let header_len = if address.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
                net.left.ping(address, 56).unwrap();
                // The longest packet of the tunnel: it fills an outer packet of 1500 bytes.
                net.left.ping(address, mtu - header_len - ICMP_LEN).unwrap();
                // Several inner fragments.
                net.left.ping(address, 4000).unwrap();
                transfer(&net.left, &net.right, address).unwrap();
            }
            for address in [INSIDE.left, INSIDE6.left] {
                transfer(&net.right, &net.left, address).unwrap();
            }
        }
    }
}

#[test]
fn a_narrow_path_makes_the_tunnel_narrower_and_transfers_pass() {
    for (outer, headroom) in [(Outer::V4, 24), (Outer::V6, 44)] {
        let net = Topology::start(outer, None, 1500 - headroom).unwrap();
        net.narrow(1400).unwrap();
        for address in [INSIDE6.right, INSIDE.right] {
            transfer(&net.left, &net.right, address).unwrap();
        }
        net.left.wait_tun_mtu(1400 - headroom).unwrap();
    }
}

#[test]
fn the_tunnel_carries_1280_bytes_where_the_path_does_not() {
    // 1280 bytes of inner packet and the headers of the tunnel exceed the path: outer fragments.
    for (outer, headroom) in [(Outer::V4, 24), (Outer::V6, 44)] {
        let net = Topology::start(outer, None, 1500 - headroom).unwrap();
        net.narrow(1280).unwrap();
        transfer(&net.left, &net.right, INSIDE6.right).unwrap();
        net.left.wait_tun_mtu(1280).unwrap();
        net.left.ping(INSIDE6.right, 1280 - IPV6_LEN - ICMP_LEN).unwrap();
        transfer(&net.right, &net.left, INSIDE6.left).unwrap();
    }
}

#[test]
fn curl_downloads_over_ipv6_through_a_tunnel_over_ipv6() {
    let net = Topology::start(Outer::V6, None, 1456).unwrap();
    let server = net.right.listen(SocketAddr::new(INSIDE6.right, 80)).unwrap();
    let serve = thread::spawn(move || -> Result<()> {
        let (mut stream, _) = server.accept()?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let mut request = [0; 1000];
        let length = stream.read(&mut request)?;
        ensure!(request[..length].starts_with(b"GET / HTTP/1.1\r\n"), "another request");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {TRANSFER_LEN}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        Ok(stream.write_all(&content())?)
    });
    let url = format!("http://[{}]/", INSIDE6.right);
    let body = net.left.run("curl", &["-sS", "--fail", "--max-time", "20", &url]).unwrap();
    serve.join().unwrap().unwrap();
    assert!(body == content(), "{} bytes", body.len());
}

#[test]
fn a_gateway_with_a_setting_that_cannot_work_does_not_start() {
    let net = Topology::start(Outer::V6, None, 1456).unwrap();
    let refused = |change: &dyn Fn(&mut weir_cpe::Config)| {
        let mut config = net.left.config(Outer::V6, None, 1456);
        config.tun = "tun1".to_owned();
        change(&mut config);
        net.left.open(&config).unwrap_err().to_string()
    };
    let message = refused(&|config| config.mtu = 1279);
    assert!(message.contains("an MTU of 1279 is too small"), "{message}");
    let message = refused(&|config| config.remote = IpAddr::from([10, 0, 0, 1]));
    assert!(message.contains("of different families"), "{message}");
    let message = refused(&|config| (config.tun_address, config.tun_address6) = (None, None));
    assert!(message.contains("neither an IPv4 nor an IPv6 address"), "{message}");
    let message = refused(&|config| config.routes = vec!["2001:db8::/200".to_owned()]);
    assert!(message.contains("route 2001:db8::/200 via tun1"), "{message}");
    net.left.sysctl("ipv6/conf/default/disable_ipv6", "1").unwrap();
    let message = refused(&|_| ());
    assert!(message.contains("disable_ipv6 = 0"), "{message}");
}

/// Sends many full segments from one side to the other over TCP, and compares them.
fn transfer(from: &Side, to: &Side, address: IpAddr) -> Result<()> {
    let server = to.listen(SocketAddr::new(address, 0))?;
    let local = server.local_addr()?;
    let receive = thread::spawn(move || -> Result<Vec<u8>> {
        let (mut stream, _) = server.accept()?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let mut received = Vec::new();
        stream.read_to_end(&mut received)?;
        Ok(received)
    });
    let mut stream = from.enter(|| Ok(TcpStream::connect_timeout(&local, DEADLINE)?))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    let start = Instant::now();
    stream.write_all(&content()).with_context(|| format!("to {local}"))?;
    drop(stream);
    let received = receive.join().expect("the receiver does not panic");
    let received = received.with_context(|| format!("from {local} after {:?}", start.elapsed()))?;
    ensure!(received == content(), "{} bytes through {local}", received.len());
    Ok(())
}

fn content() -> Vec<u8> {
    (0..TRANSFER_LEN).map(|at| (at * 7 + at / 251) as u8).collect()
}
