//! Holds back the EAL's output on stdout and stderr while it starts: usage texts and a second copy
//! of each fatal error.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{dup2_stderr, dup2_stdout};

/// Redirects both streams to memory until it is finished or dropped. Only the thread that starts
/// the process may use it.
#[derive(Debug)]
pub(crate) struct OutputCapture {
    /// The original streams, and the memory to which they go meanwhile. `None` if redirecting
    /// failed: the output is not captured.
    redirected: Option<(OwnedFd, OwnedFd, File)>,
}

impl OutputCapture {
    pub(crate) fn start() -> OutputCapture {
        OutputCapture { redirected: redirect().ok() }
    }

    /// Restores the streams and returns what was printed meanwhile.
    pub(crate) fn finish(mut self) -> String {
        let mut text = Vec::new();
        if let Some(mut file) = self.restore() {
            // Output that cannot be read back only costs an explanation.
            let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut text));
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    fn restore(&mut self) -> Option<File> {
        let (stdout, stderr, file) = self.redirected.take()?;
        let _ = dup2_stdout(&stdout);
        let _ = dup2_stderr(&stderr);
        Some(file)
    }
}

impl Drop for OutputCapture {
    fn drop(&mut self) {
        self.restore();
    }
}

fn redirect() -> io::Result<(OwnedFd, OwnedFd, File)> {
    io::stdout().flush()?;
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    let stderr = io::stderr().as_fd().try_clone_to_owned()?;
    let memory = memfd_create("eal-output", MFdFlags::MFD_CLOEXEC)?;
    dup2_stdout(&memory)?;
    dup2_stderr(&memory)?;
    Ok((stdout, stderr, File::from(memory)))
}
