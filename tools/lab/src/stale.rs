//! Finds labs of dead processes (SIGKILL, power failure) by name and removes them.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::lab::{PREFIX, parents};
use crate::namespace::Namespace;

/// Name of a file in a lab's directory: the process ended on purpose and left the lab running.
pub(crate) const KEPT: &str = "kept";

/// Removes labs whose process is gone, except those that were kept.
pub(crate) fn remove_abandoned() {
    remove(|lab| !parents().iter().any(|parent| parent.join(lab).join(KEPT).exists()));
}

/// Removes labs whose process is gone, also those that were kept.
pub fn remove_kept() {
    remove(|_| true);
}

fn remove(is_wanted: impl Fn(&str) -> bool) {
    let is_abandoned = |name: &String| {
        owner(name)
            .is_some_and(|(id, lab)| !Path::new(&format!("/proc/{id}")).exists() && is_wanted(&lab))
    };
    for name in names(Path::new("/run/netns")).into_iter().filter(is_abandoned) {
        let namespace = Namespace::existing(name);
        kill_all(&namespace);
        namespace.remove();
    }
    for parent in parents() {
        for name in names(&parent).into_iter().filter(is_abandoned) {
            // A directory that this process has no permission to remove stays.
            let _ = fs::remove_dir_all(parent.join(name));
        }
    }
}

/// Kills all processes in a namespace: only the lab that made it can have started them.
pub(crate) fn kill_all(namespace: &Namespace) {
    for id in namespace.process_ids() {
        // The process may have ended meanwhile.
        let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
    }
}

/// Returns the process id and the lab's name in `weir-lab-<process id>-<number>[-<role>]`.
fn owner(name: &str) -> Option<(u32, String)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let id: u32 = parts.next()?.parse().ok()?;
    let number: u32 = parts.next()?.parse().ok()?;
    Some((id, format!("{PREFIX}{id}-{number}")))
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn only_names_of_labs_have_an_owner() {
        let lab = "weir-lab-12-3".to_owned();
        assert_eq!(owner("weir-lab-12-3"), Some((12, lab.clone())));
        assert_eq!(owner("weir-lab-12-3-home1"), Some((12, lab)));
        assert_eq!(owner("weir-lab-x-3"), None);
        assert_eq!(owner("weir-lab-12"), None);
        assert_eq!(owner("other-12-3"), None);
    }
}
