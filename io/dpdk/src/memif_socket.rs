//! The socket file of a memif server: a killed process leaves it behind, and a new server could not
//! listen on it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::os::fd::AsRawFd;

use crate::device::Device;
use crate::error::DpdkError;

/// DPDK's own default.
const DEFAULT_SOCKET: &str = "/run/memif.sock";

/// Checks the socket of a memif device and removes a stale file. Abstract sockets (DPDK's default)
/// have no file.
pub(crate) fn prepare(device: &Device) -> Result<(), DpdkError> {
    if device.option("socket-abstract") != Some("no") {
        return Ok(());
    }
    let path = Path::new(device.option("socket").unwrap_or(DEFAULT_SOCKET));
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        return Err(device.error(
            format!("the folder {} of its socket does not exist", folder.display()),
            None,
            "create it",
        ));
    }
    if !matches!(device.option("role"), Some("server" | "master")) {
        return Ok(());
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(metadata) if metadata.file_type().is_socket() => remove_stale(device, path),
        _ => Err(device.error(
            format!("{} exists and is not a socket", path.display()),
            None,
            "choose another socket path",
        )),
    }
}

fn remove_stale(device: &Device, path: &Path) -> Result<(), DpdkError> {
    if is_served(path) {
        return Err(device.error(
            format!("another process listens on {}", path.display()),
            None,
            "stop it or choose another socket path",
        ));
    }
    fs::remove_file(path).map_err(|error| {
        device.error(
            format!("the stale socket {} cannot be removed", path.display()),
            Some(error.to_string()),
            "remove it",
        )
    })
}

/// True unless a refused connection proves that no process listens. (A listener of another type
/// answers with EPROTOTYPE.)
fn is_served(path: &Path) -> bool {
    let probe = || -> nix::Result<()> {
        let client = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            None,
        )?;
        connect(client.as_raw_fd(), &UnixAddr::new(path)?)
    };
    probe() != Err(Errno::ECONNREFUSED)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn server(path: &Path) -> Device {
        Device::parse(&format!(
            "net_memif0,role=server,socket-abstract=no,socket={}",
            path.display()
        ))
        .expect("is well formed")
    }

    #[test]
    fn socket_without_a_listener_is_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("memif.sock");
        drop(UnixListener::bind(&path).expect("binds"));
        prepare(&server(&path)).expect("is stale");
        assert!(!path.exists());
    }

    #[test]
    fn live_socket_and_other_files_are_not_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("memif.sock");
        let listener = UnixListener::bind(&path).expect("binds");
        let error = prepare(&server(&path)).expect_err("is in use").to_string();
        assert!(error.contains("another process listens"), "{error}");
        drop(listener);
        let file = folder.path().join("notes.txt");
        fs::write(&file, "keep").expect("writes");
        assert!(
            prepare(&server(&file)).expect_err("is a file").to_string().contains("not a socket")
        );
        assert!(path.exists() && file.exists());
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = prepare(&server(Path::new("/nonexistent/memif.sock")))
            .expect_err("has no folder")
            .to_string();
        assert!(error.contains("/nonexistent"), "{error}");
    }
}
