//! A folder for one test, a clock that the test sets, and a wait for the writer thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_nat_log::{AssignedBlock, NodeLife, WallClock};

/// A folder that is removed when the test ends.
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

/// A wall clock that shows the time set by the test, in milliseconds since 1970.
#[derive(Clone, Default)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::SeqCst);
    }

    pub(crate) fn as_clock(&self) -> WallClock {
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

/// A standalone node.
pub(crate) const N1: NodeLife<'static> = NodeLife { node: "n1", boot: 0xa1, is_clustered: false };

/// Block number `block` of 203.0.113.`public`, 256 ports each, of 10.200.0.`subscriber`.
pub(crate) fn block(subscriber: u8, public: u8, block: u16) -> AssignedBlock {
    AssignedBlock {
        subscriber: [10, 200, 0, subscriber].into(),
        gre_key: None,
        public: [203, 0, 113, public].into(),
        port_first: 1024 + 256 * block,
        port_last: 1024 + 256 * block + 255,
    }
}

/// xorshift64*: a repeatable sequence from a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    pub(crate) fn is_one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}
