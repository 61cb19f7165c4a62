//! docs/operations.md names every event, exit code and drop reason, with its meaning.

use weir_engine::DropReason;
use weir_node::EXIT_CODES;
use weir_process::EVENTS;

#[test]
fn the_operators_guide_is_complete() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let events = EVENTS.iter().map(|(name, help)| format!("| `{name}` | {help} |"));
    let codes = EXIT_CODES.iter().map(|(code, help)| format!("| {code} | {help} |"));
    let reasons =
        DropReason::ALL.iter().map(|reason| format!("| `{}` | {} |", reason.name(), reason.help()));
    let missing: Vec<_> =
        events.chain(codes).chain(reasons).filter(|row| !guide.contains(row)).collect();
    assert!(missing.is_empty(), "rows missing in docs/operations.md:\n{}", missing.join("\n"));
}
