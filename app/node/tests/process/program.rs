//! What the tests of programs have in common: their output, and waits for it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Far longer than any step takes, so that only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the name that systemd gives the stream of a service's stderr.
pub(crate) fn journal_stream(stream: impl Into<OwnedFd>) -> String {
    let metadata = File::from(stream.into()).metadata().unwrap();
    format!("{}:{}", metadata.dev(), metadata.ino())
}
