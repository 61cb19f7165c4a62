//! The cores on which a thread may run, and the NUMA node of a core.

use std::fs;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::DpdkError;

/// Pins the calling thread to one core. Threads that it starts later inherit the pinning.
pub fn pin_current_thread(core: usize) -> Result<(), DpdkError> {
    pin_current_thread_to(&[core])
}

/// Lets the calling thread run on these cores only. An empty list changes nothing.
pub fn pin_current_thread_to(cores: &[usize]) -> Result<(), DpdkError> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core).map_err(|_| DpdkError::Core {
            core: core.to_string(),
            cause: "no such core number".into(),
        })?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(|errno| {
        let list = cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        DpdkError::Core {
            core: list,
            cause: format!("cannot run there ({})", errno.desc().to_lowercase()),
        }
    })
}

/// Returns the NUMA node of a core; 0 on a machine without NUMA.
pub fn socket_of_core(core: usize) -> i32 {
    let Ok(entries) = fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}")) else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .next()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_does_not_exist_is_named() {
        let error = pin_current_thread(1000).expect_err("no test machine has core 1000");
        assert!(error.to_string().starts_with("core 1000: "), "{error}");
    }

    #[test]
    fn an_absent_core_is_on_node_0() {
        assert_eq!(socket_of_core(100_000), 0);
    }
}
