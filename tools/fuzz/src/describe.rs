use bolero::check;
use weir_wire::describe::{describe, describe_packet};
use weir_wire::verify;

use crate::layers::frames_around;

/// A description is one line of bounded length, whatever the frame; checking a frame in depth never
/// panics.
#[test]
fn frame() {
    check!().for_each(|bytes: &[u8]| {
        one_line(&describe(bytes));
        one_line(&describe_packet(bytes));
        let _ = verify::packet(bytes);
        let _ = verify::frame(bytes);
        for frame in frames_around(bytes) {
            one_line(&describe(&frame));
            let _ = verify::frame(&frame);
        }
    });
}

fn one_line(text: &str) {
    assert!(!text.is_empty());
    assert!(text.len() < 1024, "{} bytes of description", text.len());
    assert!(!text.contains(char::is_control), "{text:?}");
}
