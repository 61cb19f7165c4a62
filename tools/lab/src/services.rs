//! The internet's daemons: web server, DNS, iperf3, STUN, and the laboratory's own echo servers.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::condition::wait_for;
use crate::lab::Lab;
use crate::namespace::Namespace;

/// The server's addresses; the second one exists for STUN (RFC 5780).
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// See [`SERVER`].
pub const SERVER_ALTERNATE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The server's IPv6 address, where the laboratory has IPv6.
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);

/// Time limit for a daemon to open its port.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// A name whose TXT answer is longer than any Ethernet frame.
pub const BIG_NAME: &str = "big.weir.test";
/// A name whose address, in an A or AAAA record, is that of the server that answers.
pub const WWW_NAME: &str = "www.weir.test";
/// Length of the text of `BIG_NAME`: 9 strings of 250 characters.
pub const BIG_TEXT_LEN: usize = 9 * 250;

/// A file on the web server.
#[derive(Clone, Debug)]
pub struct Download {
    /// URL of the file.
    pub url: String,
    /// Its SHA-256, hexadecimal.
    pub sha256: String,
}

/// Starts nginx on [`SERVER`] with one file of `length` bytes.
pub fn start_http(lab: &Lab, internet: &Namespace, length: usize) -> Result<Download> {
    start_http_at(lab, internet, SERVER, length)
}

/// Like [`start_http`], on an address of either family. One server at a time in a laboratory.
pub fn start_http_at(
    lab: &Lab,
    internet: &Namespace,
    address: impl Into<IpAddr>,
    length: usize,
) -> Result<Download> {
    let local = SocketAddr::new(address.into(), 80);
    let root = lab.directory().join("www");
    fs::create_dir_all(&root)?;
    let file = root.join("file");
    write_noise(&file, length)?;
    let sum = internet.run(START_DEADLINE, "sha256sum", &[&file.to_string_lossy()])?.success()?;
    let sha256 = sum.stdout.split_whitespace().next().unwrap_or_default();
    let config = lab.directory().join("nginx.conf");
    fs::write(&config, nginx_config(lab.directory(), local))?;
    let mut command = internet.command("nginx");
    command.arg("-e").arg("stderr").arg("-c").arg(&config);
    lab.start("nginx", &mut command)?;
    wait_listening(internet, "-ltn", &local.to_string())?;
    Ok(Download { url: format!("http://{local}/file"), sha256: sha256.to_owned() })
}

fn nginx_config(directory: &Path, local: SocketAddr) -> String {
    let directory = directory.display();
    format!(
        r#"daemon off;
master_process off;
user root;
pid {directory}/nginx.pid;
error_log stderr;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {directory}/nginx-body;
    proxy_temp_path {directory}/nginx-proxy;
    fastcgi_temp_path {directory}/nginx-fastcgi;
    uwsgi_temp_path {directory}/nginx-uwsgi;
    scgi_temp_path {directory}/nginx-scgi;
    server {{
        listen {local};
        root {directory}/www;
    }}
}}
"#
    )
}

/// Writes a file that no link can compress and that is the same in every run (xorshift64).
fn write_noise(path: &Path, length: usize) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..length.div_ceil(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes())?;
    }
    file.flush()?;
    file.get_ref().set_len(length as u64)?;
    Ok(())
}

/// Starts dnsmasq with [`WWW_NAME`] and [`BIG_NAME`]; it answers over UDP with up to 4096 bytes.
pub fn start_dns(lab: &Lab, internet: &Namespace) -> Result<()> {
    start_dns_at(lab, internet, SERVER)
}

/// Like [`start_dns`], on an address of either family.
pub fn start_dns_at(lab: &Lab, internet: &Namespace, address: impl Into<IpAddr>) -> Result<()> {
    let local = SocketAddr::new(address.into(), 53);
    let strings = vec!["x".repeat(250); BIG_TEXT_LEN / 250].join(",");
    let mut command = internet.command("dnsmasq");
    command
        .args(["--keep-in-foreground", "--log-facility=-"])
        .args(["--conf-file=/dev/null", "--no-resolv", "--no-hosts"])
        .args(["--user=root", "--bind-interfaces", "--edns-packet-max=4096"])
        .arg(format!("--listen-address={}", local.ip()))
        .arg("--except-interface=none")
        .arg("--pid-file=")
        .arg(format!("--address=/{WWW_NAME}/{}", local.ip()))
        .arg(format!("--txt-record={BIG_NAME},{strings}"));
    lab.start("dnsmasq", &mut command)?;
    wait_listening(internet, "-lun", &local.to_string())
}

/// Ports of the iperf3 servers, for tests towards the server and towards the home. Between two
/// tests a server closes its port for a moment, in which another client may be reset; so each
/// direction has its own server.
pub const IPERF3_PORTS: [u16; 2] = [5201, 5202];

/// Starts the iperf3 servers.
pub fn start_iperf3(lab: &Lab, internet: &Namespace) -> Result<()> {
    start_iperf3_at(lab, internet, SERVER)
}

/// Like [`start_iperf3`], on an address of either family.
pub fn start_iperf3_at(lab: &Lab, internet: &Namespace, address: impl Into<IpAddr>) -> Result<()> {
    let address = address.into();
    for port in IPERF3_PORTS {
        let mut command = internet.command("iperf3");
        command.args(["--server", "--bind", &address.to_string(), "--port", &port.to_string()]);
        lab.start(&format!("iperf3-{port}"), &mut command)?;
        wait_listening(internet, "-ltn", &SocketAddr::new(address, port).to_string())?;
    }
    Ok(())
}

/// Starts coturn as a STUN server of RFC 5780: two addresses by two ports.
pub fn start_stun(lab: &Lab, internet: &Namespace) -> Result<()> {
    let directory = lab.directory().display();
    let mut command = internet.command("turnserver");
    command
        .args(["-n", "--stun-only", "--no-auth", "--no-tls", "--no-dtls"])
        .args(["--no-cli", "--log-file=stdout"])
        .arg(format!("--listening-ip={SERVER}"))
        .arg(format!("--listening-ip={SERVER_ALTERNATE}"))
        .arg(format!("--pidfile={directory}/turnserver.pid"))
        .arg(format!("--userdb={directory}/turnserver.db"));
    lab.start("turnserver", &mut command)?;
    wait_listening(internet, "-lun", &format!("{SERVER_ALTERNATE}:3479"))
}

/// Waits until a socket listens on `address:port`; `kind` is the option of `ss`.
pub fn wait_listening(namespace: &Namespace, kind: &str, local: &str) -> Result<()> {
    wait_for(&format!("listener on {local}"), START_DEADLINE, || {
        let finished = namespace.run(START_DEADLINE, "ss", &["-H", kind]).ok()?;
        finished.stdout.split_whitespace().any(|word| word == local).then_some(())
    })
    .context("a daemon did not start")
}
