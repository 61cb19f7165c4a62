//! A network namespace, in which commands and closures can be run.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};

use crate::process::{self, Finished};

/// Time limit of set-up commands.
const SETUP_DEADLINE: Duration = Duration::from_secs(20);

/// A handle to a namespace; its [`Lab`](crate::Lab) removes it.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes the namespace, with a loopback that is up and no reverse path filter.
    pub(crate) fn create(name: String) -> Result<Self> {
        let namespace = Self { name };
        setup("ip", &["netns", "add", &namespace.name])?;
        namespace.ip("link set lo up")?;
        namespace.sysctl("ipv4/conf/all/rp_filter", 0)?;
        namespace.sysctl("ipv4/conf/default/rp_filter", 0)?;
        // Router solicitations and the like would only distort counters.
        namespace.sysctl("ipv6/conf/all/disable_ipv6", 1)?;
        namespace.sysctl("ipv6/conf/default/disable_ipv6", 1)?;
        Ok(namespace)
    }

    /// Returns the name as used by `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that will run in this namespace. `ip netns exec` replaces itself by the
    /// program, so the child's process id is the program's.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a program to its end; fails if it cannot start or exceeds the deadline. The caller
    /// judges its exit status.
    pub fn run(&self, deadline: Duration, program: &str, args: &[&str]) -> Result<Finished> {
        process::run(self.command(program).args(args), deadline)
            .with_context(|| format!("{program} {} in {}", args.join(" "), self.name))
    }

    /// Runs `ip` with the words of `line` in this namespace. Fails if the command fails.
    pub fn ip(&self, line: &str) -> Result<()> {
        let mut args = vec!["-n", &self.name];
        args.extend(line.split_whitespace());
        setup("ip", &args)
    }

    /// Sets a key below `net`, such as `ipv4/ip_forward`. A key that this kernel does not have is
    /// not an error.
    pub fn sysctl(&self, key: &str, value: u8) -> Result<()> {
        self.enter(|| {
            // This file belongs to the namespace of the thread that opens it.
            match fs::write(format!("/proc/sys/net/{key}"), value.to_string()) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            }
        })
        .with_context(|| format!("sysctl {key}"))
    }

    /// Runs `body` on a thread in this namespace. Sockets opened there stay in the namespace,
    /// whichever thread uses them later.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let file = File::open(self.path()).with_context(|| format!("namespace {}", self.name))?;
        let joined = thread::scope(|scope| {
            scope
                .spawn(move || {
                    setns(file, CloneFlags::CLONE_NEWNET)?;
                    body()
                })
                .join()
        });
        match joined {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Starts a thread in this namespace; threads that it starts are in the namespace, too.
    pub fn spawn(
        &self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<thread::JoinHandle<()>> {
        let file = File::open(self.path()).with_context(|| format!("namespace {}", self.name))?;
        let (entered, result) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let inside = setns(file, CloneFlags::CLONE_NEWNET);
            let is_inside = inside.is_ok();
            // The caller waits for this result.
            let _ = entered.send(inside);
            if is_inside {
                body();
            }
        })?;
        result.recv()??;
        Ok(thread)
    }

    /// Returns the ids of all processes in this namespace.
    pub(crate) fn process_ids(&self) -> Vec<i32> {
        let Ok(output) = Command::new("ip").args(["netns", "pids", &self.name]).output() else {
            return Vec::new();
        };
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    }

    /// Removes the name. The namespace ends with its last process.
    pub(crate) fn remove(&self) {
        if self.path().exists() {
            // A namespace that cannot be removed at this point is found by the next start.
            let _ = setup("ip", &["netns", "delete", &self.name]);
        }
    }

    pub(crate) fn existing(name: String) -> Self {
        Self { name }
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }
}

/// Runs a command that must succeed.
pub(crate) fn setup(program: &str, args: &[&str]) -> Result<()> {
    let finished = process::run(Command::new(program).args(args), SETUP_DEADLINE)?;
    if !finished.status.success() {
        bail!("{program} {}: {}", args.join(" "), finished.stderr.trim());
    }
    Ok(())
}
