//! Stops one thread of a process while the others go on, like a thread that the kernel does not
//! run.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Time between two checks.
const POLL: Duration = Duration::from_millis(5);

/// Stops the thread named `name` for `time`, then resumes it. Returns whether it ended meanwhile,
/// killed with its process.
///
/// # Errors
/// When no such thread exists, or it cannot be traced.
pub(crate) fn hold_thread(process: i32, name: &str, time: Duration) -> Result<bool> {
    let thread = thread_of(process, name)?;
    // Only the tracing thread may wait and detach, so all of it is done here.
    ptrace::seize(thread, ptrace::Options::empty())
        .with_context(|| format!("tracing {name} of process {process}"))?;
    ptrace::interrupt(thread)?;
    let end = Instant::now() + time;
    while Instant::now() < end {
        // A killed tracee stays a zombie until its tracer has waited for it.
        if has_ended(thread)? {
            return Ok(true);
        }
        thread::sleep(POLL);
    }
    ptrace::detach(thread, None)?;
    Ok(false)
}

fn has_ended(thread: Pid) -> Result<bool> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
    let status = waitpid(thread, Some(flags))?;
    Ok(matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)))
}

fn thread_of(process: i32, name: &str) -> Result<Pid> {
    let folder = format!("/proc/{process}/task");
    for entry in fs::read_dir(&folder).context(folder)?.flatten() {
        // A thread may have ended since the folder was read.
        let is_named =
            fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name);
        if is_named {
            return Ok(Pid::from_raw(entry.file_name().to_string_lossy().parse()?));
        }
    }
    anyhow::bail!("process {process} has no thread {name}")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::condition::wait_for;

    const DEADLINE: Duration = Duration::from_secs(10);

    /// Returns the state letter of proc_pid_stat(5), which follows the name in parentheses.
    fn state(process: i32) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    fn sleeper() -> (Child, i32) {
        let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let id = child.id() as i32;
        // The child has another name until it has executed the program.
        wait_for("the program", DEADLINE, || thread_of(id, "sleep").ok()).unwrap();
        (child, id)
    }

    #[test]
    fn held_thread_stops_and_resumes_unless_its_process_is_killed() {
        let (mut child, id) = sleeper();
        thread::scope(|scope| {
            let held = scope.spawn(|| hold_thread(id, "sleep", Duration::from_millis(300)));
            wait_for("a traced thread that stands still", DEADLINE, || {
                (state(id) == Some('t')).then_some(())
            })
            .unwrap();
            assert!(!held.join().unwrap().unwrap());
        });
        wait_for("a thread that sleeps", DEADLINE, || (state(id) == Some('S')).then_some(()))
            .unwrap();

        thread::scope(|scope| {
            let held = scope.spawn(|| hold_thread(id, "sleep", DEADLINE));
            wait_for("a traced thread that stands still", DEADLINE, || {
                (state(id) == Some('t')).then_some(())
            })
            .unwrap();
            child.kill().unwrap();
            assert!(held.join().unwrap().unwrap());
        });
        assert!(hold_thread(id, "sleep", DEADLINE).is_err());
    }
}
