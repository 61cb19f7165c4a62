//! Claims on the AF_XDP queues of an interface, among all processes in this network namespace.
//!
//! The kernel does not report their users (its AF_XDP diagnostics are left out of many builds), so
//! each port holds an abstract Unix socket named after its queue. Such a name leaves no file,
//! belongs to the network namespace as the interface does, and is free again when its process is
//! dead, however it died.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};

const PREFIX: &str = "weir-xdp";
/// How long to wait for a killed process: it holds its sockets until the kernel has freed its
/// memory, which comes first.
const DYING_PROCESS_WAIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long to wait for the queue: the kernel releases a dead process's AF_XDP queue from a work
/// queue, some milliseconds after its sockets.
const QUEUE_RELEASE_WAIT: Duration = Duration::from_millis(100);

/// Claimed queues; the claim lasts as long as this lives.
#[derive(Debug)]
pub(crate) struct XdpClaim {
    _sockets: Vec<OwnedFd>,
}

/// Claims `count` queues of an interface from `first` on. Waits for a process that is being killed.
/// The error is the queue that another port holds.
pub(crate) fn claim(interface_index: u32, first: u32, count: u32) -> Result<XdpClaim, u32> {
    let mut sockets = Vec::new();
    for queue in first..first.saturating_add(count) {
        sockets.push(hold(&name(interface_index, queue)).ok_or(queue)?);
    }
    Ok(XdpClaim { _sockets: sockets })
}

/// Returns how many queues of the interface are claimed, including this process's.
pub(crate) fn claimed_queues(interface_index: u32) -> usize {
    // The calling thread may be in another network namespace than the process.
    let list = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    let names = list.lines().filter_map(|line| line.split_once(" @")).map(|(_, name)| name);
    let prefix = format!("{PREFIX}-{interface_index}-");
    names.filter(|name| name.starts_with(&prefix)).count()
}

fn name(interface_index: u32, queue: u32) -> String {
    format!("{PREFIX}-{interface_index}-{queue}")
}

fn hold(name: &str) -> Option<OwnedFd> {
    let address = UnixAddr::new_abstract(name.as_bytes()).ok()?;
    let deadline = Instant::now() + DYING_PROCESS_WAIT;
    let mut has_waited = false;
    loop {
        let holder =
            socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
        match bind(holder.as_raw_fd(), &address) {
            Ok(()) => {
                if has_waited {
                    thread::sleep(QUEUE_RELEASE_WAIT);
                }
                return Some(holder);
            }
            Err(Errno::EADDRINUSE) if Instant::now() < deadline => {
                has_waited = true;
                thread::sleep(POLL_INTERVAL);
            }
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No interface of a test machine has this index.
    const INDEX: u32 = 0x7fff_0001;

    #[test]
    fn a_claim_is_seen_and_ends_with_its_holder() {
        let claim = claim(INDEX, 2, 2).expect("no other process claims queues of this index");
        assert_eq!(claimed_queues(INDEX), 2);
        assert_eq!(claimed_queues(INDEX - 1), 0);
        drop(claim);
        assert_eq!(claimed_queues(INDEX), 0);
    }
}
