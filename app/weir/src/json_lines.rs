//! Answers of a node that are JSON lines.

use std::io;
use std::ops::ControlFlow;

use serde::de::DeserializeOwned;
use weir_admin::api::Problem;
use weir_admin::client::{Client, ClientError};

/// Hands over each line of an answer as it comes, as a value and as text. A line that reports what
/// is missing goes to stderr; an empty one is a heartbeat.
///
/// # Errors
/// When the node does not answer, or falls silent, or `take` fails.
pub(crate) fn read_lines<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    mut take: impl FnMut(T, &[u8]) -> io::Result<()>,
) -> Result<(), ClientError> {
    let mut pending = Vec::new();
    client.stream(path, Some(client.patience()), |bytes| {
        pending.extend_from_slice(bytes);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            match line[..end].trim_ascii() {
                b"" => {}
                line => take_line(line, &mut take)?,
            }
        }
        Ok(ControlFlow::Continue(()))
    })
}

fn take_line<T: DeserializeOwned>(
    line: &[u8],
    take: &mut impl FnMut(T, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    match serde_json::from_slice(line) {
        Ok(value) => take(value, line),
        Err(error) => {
            let problem = serde_json::from_slice::<Problem>(line);
            eprintln!("weir: {}", problem.map_or_else(|_| error.to_string(), |it| it.error));
            Ok(())
        }
    }
}
