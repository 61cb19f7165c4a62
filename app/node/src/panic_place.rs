//! Records where and why a thread panicked, for the report of the code that catches it.

use std::cell::{Cell, RefCell};
use std::panic::{self, PanicHookInfo};

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// A panic that was caught or logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panic {
    /// `file:line`.
    pub place: String,
    pub message: String,
}

/// Sends panics to the log from then on, except in threads that [`catch`] their own. Replaces the
/// default hook.
pub(crate) fn install() {
    panic::set_hook(Box::new(|info| {
        let panic = describe(info);
        if IS_CAUGHT.get() {
            LAST.set(Some(panic));
        } else {
            let thread = std::thread::current();
            tracing::error!(
                event = "panic",
                thread = thread.name().unwrap_or("unnamed"),
                place = panic.place,
                "{}",
                panic.message
            );
        }
    }));
}

/// Runs `body`.
///
/// # Errors
/// When `body` panics, with the panic. Its place is known if [`install`] was called before.
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, Panic> {
    IS_CAUGHT.set(true);
    let result = panic::catch_unwind(panic::AssertUnwindSafe(body));
    IS_CAUGHT.set(false);
    result.map_err(|_| {
        LAST.take().unwrap_or_else(|| Panic { place: "unknown".into(), message: "panic".into() })
    })
}

fn describe(info: &PanicHookInfo<'_>) -> Panic {
    let place = info
        .location()
        .map_or_else(|| "unknown".into(), |place| format!("{}:{}", place.file(), place.line()));
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".into());
    Panic { place, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catcher_learns_place_and_message() {
        install();
        let line = line!() + 1;
        let caught = catch(|| panic!("slot {} is taken", 7)).unwrap_err();
        assert!(caught.place.ends_with(&format!("panic_place.rs:{line}")), "{}", caught.place);
        assert_eq!(caught.message, "slot 7 is taken");
        assert_eq!(catch(|| 5), Ok(5));
    }
}
