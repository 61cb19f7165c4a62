//! Bugs that are planted are found within 1,000 histories that are green without them.

use std::sync::Mutex;
use std::thread;

use weir_planted::Bug;
use weir_sim::planted::find;

/// Histories that must be enough for each bug.
const SEEDS: u64 = 1_000;

#[test]
fn planted_bugs_are_found() {
    // Panics are what some are found by.
    std::panic::set_hook(Box::new(|_| {}));
    let bugs = Mutex::new(Bug::ALL.iter());
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&bug) = { bugs.lock().unwrap().next() } {
                    let said = match find(bug, 0..SEEDS) {
                        Some(found) => {
                            println!("{bug:?}: {} seeds: {}", found.played, found.violation);
                            None
                        }
                        None => Some(format!("not within {SEEDS} seeds")),
                    };
                    wrong.lock().unwrap().extend(said.map(|said| format!("{bug:?}: {said}")));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
