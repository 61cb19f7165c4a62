//! The cores of the machine, and the threads that run on them.

use std::fs;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Returns the cores that this process may run workers on: those that are online.
///
/// # Errors
/// When `/sys` cannot be read.
pub(crate) fn online() -> std::io::Result<Vec<usize>> {
    Ok(parse_list(&fs::read_to_string("/sys/devices/system/cpu/online")?))
}

/// Returns the cores of the control threads: the configured ones, else those that no worker uses,
/// else the first.
pub(crate) fn control(
    configured: Option<&[usize]>,
    online: &[usize],
    workers: &[usize],
) -> Vec<usize> {
    if let Some(cores) = configured {
        return cores.to_vec();
    }
    let free: Vec<usize> = online.iter().copied().filter(|core| !workers.contains(core)).collect();
    if free.is_empty() { online.first().copied().into_iter().collect() } else { free }
}

/// Keeps the calling thread, and those that it starts, to these cores.
pub(crate) fn keep_to(cores: &[usize]) {
    let mut set = CpuSet::new();
    // A thread that cannot be pinned costs time, not correctness.
    let _ = cores.iter().try_for_each(|&core| set.set(core));
    let _ = sched_setaffinity(Pid::from_raw(0), &set);
}

/// Parses a kernel list of cores such as `0-3,8,10-11`.
fn parse_list(text: &str) -> Vec<usize> {
    let mut cores = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse()) {
            cores.extend::<std::ops::RangeInclusive<usize>>(first..=last);
        }
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_are_read() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list("0\n"), [0]);
        assert!(parse_list("").is_empty());
    }

    #[test]
    fn control_threads_stay_off_worker_cores_where_they_can() {
        assert_eq!(control(None, &[0, 1, 2, 3], &[1, 2]), [0, 3]);
        assert_eq!(control(None, &[0, 1], &[0, 1]), [0]);
        assert_eq!(control(Some(&[1]), &[0, 1], &[1]), [1]);
    }

    #[test]
    fn this_machine_has_a_core() {
        assert!(!online().unwrap().is_empty());
    }
}
