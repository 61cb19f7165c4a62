//! Plain access, and the firewall without translation.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_lab::clients::{self, Direction};
use weir_lab::services::{self, SERVER};
use weir_lab::{Access, Echo, OneNode, Options, WeirConfig, exchange, wait_for};

/// Time until a drop must be counted.
const DROP_DEADLINE: Duration = Duration::from_secs(5);

#[test]
fn plain_access_translates_too() {
    let options = Options {
        config: WeirConfig {
            access: Access::Plain,
            subscribers: "100.64.0.0/24",
            ..WeirConfig::default()
        },
        inside: |number| (Ipv4Addr::new(100, 64, 0, number), 32),
        ..Options::default()
    };
    OneNode::test(&options, |net| {
        let home = &net.homes[0];
        let file = services::start_http(&net.lab, &net.internet, 10_000_000)?;
        services::start_iperf3(&net.lab, &net.internet)?;
        services::start_stun(&net.lab, &net.internet)?;
        clients::download(home, &file)?;
        clients::iperf3(home, Direction::Up, 1)?;
        clients::iperf3(home, Direction::Down, 1)?;
        clients::ping(home, SERVER, 3, 56)?;
        let behaviour = clients::nat_behaviour(home)?;
        ensure!(behaviour.mapping == "Endpoint Independent Mapping", "{behaviour:?}");
        let server = SocketAddrV4::new(SERVER, 7000);
        let echo = Echo::udp(&net.internet, server)?;
        ensure!(exchange::udp(&home.udp(0)?, server, b"hello")?);
        let seen = echo.peers()[0].ip().to_string();
        ensure!(seen.starts_with("203.0.113."), "the server sees {seen}");
        Ok(())
    });
}

fn firewall(inside: fn(u8) -> (Ipv4Addr, u8)) -> Options {
    Options {
        config: WeirConfig { nat_enabled: false, ..WeirConfig::default() },
        inside,
        ..Options::default()
    }
}

#[test]
fn firewall_keeps_addresses_and_drops_unsolicited_packets() {
    let options = firewall(|number| (Ipv4Addr::new(203, 0, 113, number), 32));
    OneNode::test(&options, |net| {
        let server = SocketAddrV4::new(SERVER, 7000);
        let udp = Echo::udp(&net.internet, server)?;
        let tcp = Echo::tcp(&net.internet, server)?;
        let home = &net.homes[0];
        let socket = home.udp(40_000)?;
        ensure!(exchange::udp(&socket, server, b"out and back")?);
        let mut stream = home.tcp(40_000, server)?;
        exchange::tcp(&mut stream, b"out and back")?;
        let own = SocketAddrV4::new(home.inside, 40_000).into();
        ensure!(udp.peers() == [own] && tcp.peers() == [own], "an address was changed");
        let dropped =
            || -> Result<u64> { Ok(net.weir.drops("no-mapping")? + net.weir.drops("filtered")?) };
        let before = dropped()?;
        let stranger = net.internet.enter(|| Ok(std::net::UdpSocket::bind((SERVER, 7001))?))?;
        stranger.send_to(b"let me in", (home.inside, 5000))?;
        stranger.send_to(b"let me in", (home.inside, 40_000))?;
        wait_for("drop of strangers", DROP_DEADLINE, || {
            (dropped().ok()? >= before + 2).then_some(())
        })?;
        ensure!(exchange::udp(&socket, server, b"still")?);
        Ok(())
    });
}

#[test]
fn the_firewall_gives_an_address_to_one_home_only() {
    let options = firewall(|_| (Ipv4Addr::new(203, 0, 113, 5), 32));
    OneNode::test(&options, |net| {
        let server = SocketAddrV4::new(SERVER, 7000);
        let _echo = Echo::udp(&net.internet, server)?;
        ensure!(exchange::udp(&net.homes[0].udp(40_000)?, server, b"first")?);
        ensure!(!exchange::udp(&net.homes[1].udp(40_000)?, server, b"second")?);
        ensure!(net.weir.drops("address-conflict")? > 0, "not counted");
        Ok(())
    });
}
