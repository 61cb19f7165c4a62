//! Start, end, and faults in between.

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddrV4, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use weir_lab::services::SERVER;
use weir_lab::weir_config::METRICS_PORT;
use weir_lab::{Echo, Lab, Namespace, OneNode, Options, Weir, WeirConfig, exchange, wait_for};

/// Time limit for weir to end, whatever the cause.
const END_DEADLINE: Duration = Duration::from_secs(20);

fn server() -> SocketAddrV4 {
    SocketAddrV4::new(SERVER, 7000)
}

#[test]
fn sigterm_ends_the_node_cleanly() {
    OneNode::test(&Options::default(), |net| {
        net.weir.process().signal(Signal::SIGTERM)?;
        let status = net.weir.process().wait(END_DEADLINE)?;
        ensure!(status.success(), "{status}");
        ensure!(!net.lab.directory().join("weir.sock").exists(), "the socket is still there");
        Ok(())
    });
}

/// The reader of the node's log has stopped: the pipe is full before the first line.
#[test]
fn unread_log_stops_neither_the_node_nor_its_end() {
    OneNode::test(&Options::default(), |net| {
        net.weir.process().signal(Signal::SIGTERM)?;
        net.weir.process().wait(END_DEADLINE)?;
        let path = net.lab.directory().join("log.fifo");
        mkfifo(&path, Mode::S_IRWXU)?;
        let mut options = File::options();
        let options = options.read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let mut pipe = options.open(&path)?;
        while pipe.write(&[b'x'; 4096]).is_ok() {}
        net.weir.restart_with_log(&net.lab, &path)?;

        // The node forwards and answers; the deciding threads keep turning while the log is
        // blocked.
        let echo = Echo::udp(&net.internet, server())?;
        ensure!(exchange::udp(&net.homes[0].udp(0)?, echo.local(), b"unread")?);
        let age = |thread: &str| -> Result<(u64, bool)> {
            // The exit code is the verdict, so it is not checked.
            let output = net.weir.cli(&["status", "--json"])?.stdout;
            let status: serde_json::Value = serde_json::from_str(&output)?;
            let threads = status["threads"].as_array().context("no threads")?;
            let thread = threads.iter().find(|it| it["thread"] == thread).context("no thread")?;
            let age_ms = thread["turn_age_ms"].as_u64().context("no age")?;
            Ok((age_ms, thread["is_late"] == true))
        };
        wait_for("the log is said to stand still", END_DEADLINE, || {
            age("log").ok().filter(|(_, is_late)| *is_late)
        })?;
        let (age_ms, is_late) = age("control")?;
        ensure!(!is_late, "the control thread has not turned for {age_ms} ms");
        let status = net.weir.cli(&["status"])?;
        ensure!(status.stdout.contains("log: its reader has taken nothing for"), "{status:?}");

        net.weir.process().signal(Signal::SIGTERM)?;
        let status = net.weir.process().wait(END_DEADLINE)?;
        ensure!(status.success(), "{status}");
        Ok(())
    });
}

#[test]
fn a_restart_after_sigkill_works_at_once() {
    OneNode::test(&Options::default(), |net| {
        let _echo = Echo::udp(&net.internet, server())?;
        ensure!(exchange::udp(&net.homes[0].udp(0)?, server(), b"before")?);
        for _ in 0..2 {
            net.weir.process().signal(Signal::SIGKILL)?;
            net.weir.process().wait(END_DEADLINE)?;
            net.weir.restart(&net.lab)?;
            ensure!(exchange::udp(&net.homes[0].udp(0)?, server(), b"after")?);
        }
        Ok(())
    });
}

#[test]
fn a_second_process_with_the_same_name_is_refused() {
    OneNode::test(&Options::default(), |net| {
        let echo = Echo::udp(&net.internet, server())?;
        let second = net.weir.second()?;
        ensure!(!second.status.success(), "two at once:\n{}", second.stdout);
        ensure!(exchange::udp(&net.homes[0].udp(0)?, echo.local(), b"undisturbed")?);
        net.weir.cli(&["status"])?.success()?;
        Ok(())
    });
}

/// Starts weir in a namespace without the interfaces it needs. Returns its output.
fn fails_to_start(config: &WeirConfig) -> Result<String> {
    let lab = Lab::open()?;
    let node = lab.namespace("weir")?;
    let output = refusal(&lab, &node, config)?;
    let socket = lab.directory().join("weir.sock");
    ensure!(!socket.exists(), "a socket was left behind");
    Ok(output)
}

/// Returns weir's output when it ends with an error, which it must.
fn refusal(lab: &Lab, node: &Namespace, config: &WeirConfig) -> Result<String> {
    let weir = Weir::start(lab, node, &config.render(lab.directory()))?;
    let status = weir.process().wait(END_DEADLINE)?;
    ensure!(!status.success(), "it ended with {status}");
    Ok(weir.process().log())
}

#[test]
fn a_missing_device_is_named() -> Result<()> {
    let config = WeirConfig {
        access_device: "net_af_xdp0,iface=nosuch0".to_owned(),
        ..WeirConfig::default()
    };
    let output = fails_to_start(&config)?;
    ensure!(output.contains("nosuch0"), "{output}");
    ensure!(!output.contains("panicked"), "{output}");
    Ok(())
}

#[test]
fn a_wrong_configuration_is_named_with_its_place() -> Result<()> {
    let config = WeirConfig { filtering: "everybody", ..WeirConfig::default() };
    let output = fails_to_start(&config)?;
    ensure!(output.contains("weir.toml:") && output.contains("everybody"), "{output}");
    Ok(())
}

#[test]
fn a_busy_admin_socket_is_named_and_left_alone() -> Result<()> {
    let lab = Lab::open()?;
    let node = lab.namespace("weir")?;
    let path = lab.directory().join("weir.sock");
    let _owner = UnixListener::bind(&path)?;
    let output = refusal(&lab, &node, &WeirConfig::default())?;
    ensure!(output.contains("weir.sock"), "{output}");
    ensure!(UnixStream::connect(&path).is_ok(), "the owner lost its socket");
    Ok(())
}

#[test]
fn a_busy_metrics_port_is_named() -> Result<()> {
    let lab = Lab::open()?;
    let node = lab.namespace("weir")?;
    let _owner = node.enter(|| Ok(TcpListener::bind(("127.0.0.1", METRICS_PORT))?))?;
    let output = refusal(&lab, &node, &WeirConfig::default())?;
    ensure!(output.contains(&METRICS_PORT.to_string()), "{output}");
    Ok(())
}
