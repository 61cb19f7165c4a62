//! Waiting for a condition instead of for a fixed time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Time between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Calls `look` until it returns a value; fails when `deadline` has passed without one.
pub fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = look() {
            return Ok(value);
        }
        if Instant::now() >= end {
            bail!("no {what} within {} s", deadline.as_secs_f32());
        }
        thread::sleep(POLL_INTERVAL);
    }
}
