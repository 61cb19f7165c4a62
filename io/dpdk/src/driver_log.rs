//! Finds the cause of a failure in the log that DPDK and its drivers wrote meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_dpdk_sys as sys;

/// Allows one watched operation at a time: the captured lines belong to it.
static ONE_OPERATION: Mutex<()> = Mutex::new(());

/// Lines that come with any failure and explain none. (Without a BPF file system libxdp attaches
/// its program directly.)
const NOISE: [&str; 6] = [
    "Failed to attach device on primary process",
    "Driver cannot attach the device",
    "Failed to init internals",
    "Failed to configure xdp socket",
    "No bpffs found",
    "Can't use dispatcher without a working bpffs",
];
/// Prefix of the kernel's own message (extended netlink acknowledgement), which explains more than
/// any driver's.
const KERNEL_WORDS: &str = "Kernel error message: ";
const CAUSE_LINES_MAX: usize = 3;

/// A captured part of the log, from its creation on.
#[derive(Debug)]
pub(crate) struct DriverLog {
    _alone: MutexGuard<'static, ()>,
}

/// Discards the lines captured so far and starts a capture. Hold the result during the operation.
/// Not re-entrant.
pub(crate) fn start() -> DriverLog {
    let alone = ONE_OPERATION.lock().unwrap_or_else(PoisonError::into_inner);
    // JUSTIFICATION: the lines are kept by the shim.
    // SAFETY: takes no argument and locks its own state.
    unsafe { sys::weir_log_clear() };
    DriverLog { _alone: alone }
}

impl DriverLog {
    /// Returns the explaining lines logged since [`start`], joined to one line.
    pub(crate) fn cause(&self) -> Option<String> {
        let mut buffer = [0u8; 4096];
        // JUSTIFICATION: the lines are kept by the shim.
        // SAFETY: the shim writes at most `len` bytes to the buffer.
        let len = unsafe { sys::weir_log_read(buffer.as_mut_ptr().cast(), buffer.len()) };
        explain(&String::from_utf8_lossy(&buffer[..len]))
    }
}

/// Returns the first lines with a cause: a driver logs the cause first and the consequences after
/// it.
pub(crate) fn explain(log: &str) -> Option<String> {
    if let Some((_, words)) = log.lines().find_map(|line| line.split_once(KERNEL_WORDS)) {
        return Some(format!("the kernel says: {}", tidy(words)));
    }
    let mut lines: Vec<&str> = Vec::new();
    for line in log.lines().map(tidy) {
        if !line.is_empty()
            && !NOISE.iter().any(|noise| line.contains(noise))
            && !lines.contains(&line)
        {
            lines.push(line);
        }
    }
    lines.truncate(CAUSE_LINES_MAX);
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Removes the function name that some drivers put in front (`memif_socket_create(): Failed`), and
/// a full stop.
fn tidy(line: &str) -> &str {
    let line = line.trim();
    let text = match line.split_once("(): ") {
        Some((function, rest)) if !function.contains(' ') => rest,
        _ => line,
    };
    text.trim_end_matches(['.', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_kept_and_its_consequences_are_dropped() {
        let log = "memif_socket_create(): Failed to setup socket /run/x: Permission denied\n\
                   EAL: Driver cannot attach the device (net_memif0)\n\
                   EAL: Failed to attach device on primary process\n";
        assert_eq!(
            explain(log).as_deref(),
            Some("Failed to setup socket /run/x: Permission denied")
        );
    }

    #[test]
    fn message_of_the_kernel_replaces_all_other_lines() {
        let log = "libxdp: No bpffs found at /sys/fs/bpf\n\
                   libbpf: Kernel error message: veth: too few queues\n\
                   xsk_configure(): Failed to create xsk socket.\n";
        assert_eq!(explain(log).as_deref(), Some("the kernel says: veth: too few queues"));
    }

    #[test]
    fn empty_log_gives_no_cause() {
        assert_eq!(explain("\n \n"), None);
    }
}
