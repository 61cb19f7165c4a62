//! Long lists in the JSON form: the entries of sets, the static mappings and the delegations. A
//! value of etcd has no room for a hundred thousand of them as text, so they are compressed:
//!
//! ```json
//! {"deflate":"..."}
//! ```
//!
//! in place of the list: its JSON, compressed (RFC 1951), as base64 (RFC 4648). Short lists stay as
//! they are, so that earlier versions can read them.

use std::io::{Read, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde_json::{Value, json};

/// Bytes of JSON from which a list is compressed.
const COMPRESSED_FROM: usize = 64 << 10;
/// Most bytes of a list's JSON: a million static mappings have fewer.
const JSON_BYTES_MAX: u64 = 128 << 20;
const KEY: &str = "deflate";

/// Compresses a list of an object, if it is long.
pub(super) fn compress(object: &mut Value, name: &str) {
    let Some(list) = object.get_mut(name).filter(|list| list.is_array()) else { return };
    let text = list.to_string();
    if text.len() < COMPRESSED_FROM {
        return;
    }
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    let bytes = written.expect("writing to memory does not fail");
    *list = json!({ KEY: BASE64_STANDARD.encode(bytes) });
}

/// Returns the list of an object to what it was before [`compress`].
///
/// # Errors
/// When it is compressed, and not a list that can be read.
pub(super) fn decompress(object: &mut Value, name: &str) -> Result<(), String> {
    let Some(list) = object.get_mut(name) else { return Ok(()) };
    let Some(text) = list.get(KEY).and_then(Value::as_str) else { return Ok(()) };
    let wrong = |reason: &dyn std::fmt::Display| format!("{name}: a compressed list: {reason}");
    let bytes = BASE64_STANDARD.decode(text).map_err(|error| wrong(&error))?;
    let mut json = Vec::new();
    let mut decoder = DeflateDecoder::new(&bytes[..]).take(JSON_BYTES_MAX + 1);
    decoder.read_to_end(&mut json).map_err(|error| wrong(&error))?;
    if json.len() as u64 > JSON_BYTES_MAX {
        return Err(wrong(&format!("more than {JSON_BYTES_MAX} bytes")));
    }
    let value: Value = serde_json::from_slice(&json).map_err(|error| wrong(&error))?;
    if !value.is_array() {
        return Err(wrong(&"it holds something else"));
    }
    *list = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_list_is_compressed_and_read_back_and_a_short_one_stays() {
        for (entries, is_compressed) in [(10, false), (20_000, true)] {
            let list: Vec<String> =
                (0..entries).map(|at| format!("192.0.{}.{at}", at % 7)).collect();
            let before = json!({"name": "s", "prefixes": list});
            let mut value = before.clone();
            compress(&mut value, "prefixes");
            assert_eq!(value["prefixes"].is_object(), is_compressed);
            assert!(!is_compressed || value.to_string().len() < before.to_string().len() / 2);
            decompress(&mut value, "prefixes").unwrap();
            assert_eq!(value, before);
        }
    }

    #[test]
    fn compressed_list_that_cannot_be_read_is_an_error() {
        let deflated = |text: &[u8]| {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(text).unwrap();
            BASE64_STANDARD.encode(encoder.finish().unwrap())
        };
        let bomb = deflated(&vec![b' '; JSON_BYTES_MAX as usize + 1]);
        for (text, reason) in [
            ("*", "Invalid symbol"),
            ("AAAA", "deflate"),
            (&deflated(b"[1"), "EOF"),
            (&deflated(b"{}"), "something else"),
            (&bomb, "more than"),
        ] {
            let mut value = json!({"prefixes": {KEY: text}});
            let error = decompress(&mut value, "prefixes").unwrap_err();
            assert!(
                error.contains("prefixes: a compressed list") && error.contains(reason),
                "{error}"
            );
        }
    }
}
