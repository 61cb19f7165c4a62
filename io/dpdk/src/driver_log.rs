//! The cause of a failure, out of what DPDK and its drivers logged while they failed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_dpdk_sys as sys;

/// One watched operation at a time: the captured lines belong to it.
static ONE_OPERATION: Mutex<()> = Mutex::new(());

/// These come with any failure and explain none. (Without a BPF file system libxdp attaches its program directly.)
const NOISE: [&str; 6] = [
    "Failed to attach device on primary process",
    "Driver cannot attach the device",
    "Failed to init internals",
    "Failed to configure xdp socket",
    "No bpffs found",
    "Can't use dispatcher without a working bpffs",
];
/// The kernel's own words (extended netlink acknowledgement) explain more than any driver.
const KERNEL_WORDS: &str = "Kernel error message: ";
const CAUSE_LINES_MAX: usize = 3;

/// Watches the log from its creation on.
#[derive(Debug)]
pub(crate) struct DriverLog {
    _alone: MutexGuard<'static, ()>,
}

/// Forgets what was captured so far. Hold the result during the operation. Not re-entrant.
pub(crate) fn start() -> DriverLog {
    let alone = ONE_OPERATION.lock().unwrap_or_else(PoisonError::into_inner);
    // JUSTIFICATION: the lines are kept by the shim.
    // SAFETY: takes no argument and locks its own state.
    unsafe { sys::weir_log_clear() };
    DriverLog { _alone: alone }
}

impl DriverLog {
    /// What was logged since [`start`], the explaining lines in one.
    pub(crate) fn cause(&self) -> Option<String> {
        let mut buffer = [0u8; 4096];
        // JUSTIFICATION: the lines are kept by the shim.
        // SAFETY: the shim writes at most `len` bytes to the buffer.
        let len = unsafe { sys::weir_log_read(buffer.as_mut_ptr().cast(), buffer.len()) };
        explain(&String::from_utf8_lossy(&buffer[..len]))
    }
}

/// The first lines that say something: a driver logs the cause first and the consequences after it.
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

/// Without the function name that some drivers put in front (`memif_socket_create(): Failed`) and without a full stop.
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
    fn keeps_the_cause_and_drops_the_consequences() {
        let log = "memif_socket_create(): Failed to setup socket /run/x: Permission denied\n\
                   EAL: Driver cannot attach the device (net_memif0)\n\
                   EAL: Failed to attach device on primary process\n";
        assert_eq!(
            explain(log).as_deref(),
            Some("Failed to setup socket /run/x: Permission denied")
        );
    }

    #[test]
    fn the_words_of_the_kernel_are_enough() {
        let log = "libxdp: No bpffs found at /sys/fs/bpf\n\
                   libbpf: Kernel error message: veth: too few queues\n\
                   xsk_configure(): Failed to create xsk socket.\n";
        assert_eq!(explain(log).as_deref(), Some("the kernel says: veth: too few queues"));
    }

    #[test]
    fn nothing_logged_is_no_cause() {
        assert_eq!(explain("\n \n"), None);
    }
}
