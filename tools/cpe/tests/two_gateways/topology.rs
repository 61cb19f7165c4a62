//! The namespaces of the test: two homes and a router, removed when dropped.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, setns};
use weir_cpe::{Config, Gateway, OpenError};

/// Time limit for a change that must follow.
const DEADLINE: Duration = Duration::from_secs(5);
/// Time between two looks.
const POLL: Duration = Duration::from_millis(10);

/// The addresses of both sides in one family.
pub(crate) struct Pair {
    pub(crate) left: IpAddr,
    pub(crate) right: IpAddr,
}

pub(crate) const INSIDE: Pair = Pair {
    left: IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1)),
    right: IpAddr::V4(Ipv4Addr::new(192, 168, 1, 2)),
};
pub(crate) const INSIDE6: Pair = Pair {
    left: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1)),
    right: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2)),
};
const OUTSIDE: Pair = Pair {
    left: IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)),
    right: IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1)),
};
const OUTSIDE6: Pair = Pair {
    left: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1)),
    right: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 2, 0, 0, 0, 1)),
};

/// The family of the tunnel's endpoints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outer {
    V4,
    V6,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A namespace.
pub(crate) struct Side {
    name: String,
    is_left: bool,
}

/// Two homes whose gateways run, and the router between them.
pub(crate) struct Topology {
    pub(crate) left: Side,
    pub(crate) right: Side,
    router: Side,
}

impl Topology {
    /// Makes the namespaces and starts both gateways in this process.
    pub(crate) fn start(outer: Outer, key: Option<u32>, mtu: u16) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let side = |role: &str| Side::create(number, role);
        let net = Self { left: side("left")?, right: side("right")?, router: side("router")? };
        for (home, link, middle) in [(&net.left, "left0", 1), (&net.right, "right0", 2)] {
            net.router
                .ip(&format!("link add {link} type veth peer name wan0 netns {}", home.name))?;
            home.ip("link set wan0 up")?;
            net.router.ip(&format!("link set {link} up"))?;
            home.ip(&format!("addr add 10.0.{middle}.1/24 dev wan0"))?;
            home.ip(&format!("addr add fd00:0:0:{middle}::1/64 dev wan0 nodad"))?;
            net.router.ip(&format!("addr add 10.0.{middle}.254/24 dev {link}"))?;
            net.router.ip(&format!("addr add fd00:0:0:{middle}::fe/64 dev {link} nodad"))?;
            home.ip(&format!("route add 10.0.0.0/16 via 10.0.{middle}.254"))?;
            home.ip(&format!("route add fd00::/32 via fd00:0:0:{middle}::fe"))?;
        }
        net.router.sysctl("ipv4/ip_forward", "1")?;
        net.router.sysctl("ipv6/conf/all/forwarding", "1")?;
        for home in [&net.left, &net.right] {
            let gateway = home.open(&home.config(outer, key, mtu))?;
            // It ends with this process; an earlier end fails the test, and this says why.
            home.spawn(move || eprintln!("gateway ended: {:?}", gateway.run()))?;
        }
        Ok(net)
    }

    /// Makes the path carry only `mtu` bytes, both ways. The links keep their MTU, so the homes
    /// learn of it from the router alone.
    pub(crate) fn narrow(&self, mtu: u16) -> Result<()> {
        for (link, middle) in [("left0", 1), ("right0", 2)] {
            let router = &self.router;
            router.ip(&format!("route change 10.0.{middle}.0/24 dev {link} mtu lock {mtu}"))?;
            let net = format!("fd00:0:0:{middle}::/64");
            // The kernel's own route to the prefix, which has a smaller metric, cannot be changed.
            router.ip(&format!("-6 route del {net} dev {link}"))?;
            router.ip(&format!("-6 route add {net} dev {link} mtu lock {mtu}"))?;
        }
        Ok(())
    }
}

impl Side {
    fn create(number: u32, role: &str) -> Result<Self> {
        let name = format!("weir-cpe-{}-{number}-{role}", std::process::id());
        let side = Self { name, is_left: role == "left" };
        let made = run("ip", &["netns", "add", &side.name]);
        made.context("network namespaces need root")?;
        side.ip("link set lo up")?;
        Ok(side)
    }

    /// Returns the configuration of this home's gateway.
    pub(crate) fn config(&self, outer: Outer, key: Option<u32>, mtu: u16) -> Config {
        let pick = |pair: &Pair, left: bool| if left { pair.left } else { pair.right };
        let ends = if outer == Outer::V4 { &OUTSIDE } else { &OUTSIDE6 };
        let (IpAddr::V4(address), IpAddr::V6(address6)) =
            (pick(&INSIDE, self.is_left), pick(&INSIDE6, self.is_left))
        else {
            unreachable!("the pairs are of these families")
        };
        Config {
            tun: "tun0".to_owned(),
            tun_address: Some(ipnet::Ipv4Net::new_assert(address, 24)),
            tun_address6: Some(ipnet::Ipv6Net::new_assert(address6, 64)),
            local: pick(ends, self.is_left),
            remote: pick(ends, !self.is_left),
            key,
            mtu,
            routes: vec!["default".to_owned()],
        }
    }

    /// Opens a gateway in this namespace.
    pub(crate) fn open(&self, config: &Config) -> Result<Gateway, OpenError> {
        let mut opened = None;
        let entered = self.enter(|| {
            opened = Some(Gateway::open(config));
            Ok(())
        });
        entered.expect("the namespace exists");
        opened.expect("it was opened, or not")
    }

    /// Runs `body` on a thread in this namespace. Its sockets stay there.
    pub(crate) fn enter<T: Send>(&self, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let file = self.file()?;
        let joined = thread::scope(|scope| {
            scope
                .spawn(move || {
                    setns(file, CloneFlags::CLONE_NEWNET)?;
                    body()
                })
                .join()
        });
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn spawn(&self, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let file = self.file()?;
        thread::spawn(move || setns(file, CloneFlags::CLONE_NEWNET).map(|()| body()));
        Ok(())
    }

    fn file(&self) -> Result<File> {
        File::open(format!("/run/netns/{}", self.name)).with_context(|| self.name.clone())
    }

    /// Opens a TCP server.
    pub(crate) fn listen(&self, local: SocketAddr) -> Result<TcpListener> {
        self.enter(|| Ok(TcpListener::bind(local)?))
    }

    /// Pings with `size` bytes of data; one answer must come. The first request may be lost: the
    /// neighbours of the routers are not known yet.
    pub(crate) fn ping(&self, address: IpAddr, size: u16) -> Result<()> {
        let (size, address) = (size.to_string(), address.to_string());
        let args = ["-n", "-c", "1", "-w", "10", "-i", "0.2", "-s", &size, &address];
        self.run("ping", &args).map(|_| ())
    }

    /// Runs a program to its end and returns its output.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> Result<Vec<u8>> {
        run("ip", &[&["netns", "exec", &self.name, program], args].concat())
    }

    /// Runs `ip` with the words of `line`.
    pub(crate) fn ip(&self, line: &str) -> Result<()> {
        let mut args = vec!["-n", &self.name];
        args.extend(line.split_whitespace());
        run("ip", &args).map(|_| ())
    }

    /// Sets a key below `net`.
    pub(crate) fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.enter(|| {
            fs::write(format!("/proc/sys/net/{key}"), value).with_context(|| key.to_owned())
        })
    }

    /// Waits until the MTU of the TUN device is `mtu`.
    pub(crate) fn wait_tun_mtu(&self, mtu: u16) -> Result<()> {
        let end = Instant::now() + DEADLINE;
        loop {
            let link = String::from_utf8(self.run("ip", &["link", "show", "tun0"])?)?;
            if link.contains(&format!("mtu {mtu} ")) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "not {mtu}: {link}");
            thread::sleep(POLL);
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // What cannot be removed here does no harm to the next test.
        let _ = run("ip", &["netns", "delete", &self.name]);
    }
}

fn run(program: &str, args: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(args).output().with_context(|| program.to_owned())?;
    ensure!(
        output.status.success(),
        "{program} {}: {}{}",
        args.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}
