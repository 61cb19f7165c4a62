//! A folder for one test, a clock it sets, and waiting for what the writer thread does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_records::{BlockEvent, BlockEventKind, Clock};

/// Removed when the test ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("weir-records-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A wall clock that stands where the test puts it, in milliseconds since 1970.
#[derive(Clone, Default)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::SeqCst);
    }

    pub(crate) fn as_clock(&self) -> Clock {
        let clock = self.clone();
        Box::new(move || time(clock.0.load(Ordering::SeqCst)))
    }
}

pub(crate) fn time(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// Block number `block` of 203.0.113.`public`, 256 ports each, given to 10.200.0.`subscriber`.
pub(crate) fn block(kind: BlockEventKind, subscriber: u8, public: u8, block: u16) -> BlockEvent {
    BlockEvent {
        kind,
        shard: 1,
        subscriber: [10, 200, 0, subscriber].into(),
        gre_key: None,
        public: [203, 0, 113, public].into(),
        port_first: 1024 + 256 * block,
        port_last: 1024 + 256 * block + 255,
    }
}
