//! SIGINT and SIGTERM: every open lab is removed before the process ends.

use std::sync::{Mutex, Once, PoisonError, Weak};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::lab::Contents;

static OPEN: Mutex<Vec<Weak<Contents>>> = Mutex::new(Vec::new());
static HANDLER: Once = Once::new();

/// Exit status of a process that a signal ended, as shells write it.
const SIGNALLED: i32 = 128;

/// Registers `contents` for removal when a signal ends the process.
pub(crate) fn guard(contents: Weak<Contents>) {
    HANDLER.call_once(|| {
        // Without a handler a signal leaves the lab behind; the next start removes it.
        if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) {
            thread::spawn(move || {
                if let Some(signal) = signals.forever().next() {
                    eprintln!("\ninterrupted: removing the laboratory");
                    remove_all();
                    std::process::exit(SIGNALLED + signal);
                }
            });
        }
    });
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|contents| contents.strong_count() > 0);
    open.push(contents);
}

fn remove_all() {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    for contents in open.iter().filter_map(Weak::upgrade) {
        contents.remove();
    }
}
