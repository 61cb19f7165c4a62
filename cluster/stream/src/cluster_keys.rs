//! The cluster's secret: one key, or two while they are being changed.
//!
//! A key file holds a key a line, 64 hexadecimal digits; empty lines and lines that begin with `#`
//! do not count. The first key is used to send, all are accepted, so a change is: add the new key
//! as second everywhere, make it first everywhere, remove the old one. This module reads no file;
//! its caller checks that no other user can read the file.

use std::fmt;

use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use thiserror::Error;

/// Largest number of keys.
pub(crate) const KEYS_MAX: usize = 2;

/// One or two keys. Only values derived from them are kept.
#[derive(Clone)]
pub struct ClusterKeys(Vec<ClusterKey>);

/// A key's root of derivation, and a name that reveals nothing of the key.
#[derive(Clone)]
pub(crate) struct ClusterKey {
    pub(crate) root: Prk,
    pub(crate) name: [u8; 8],
}

/// Why a key file is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum KeyFileError {
    /// A line that is not a key.
    #[error("line {0}: a key is 64 hexadecimal digits")]
    Line(usize),
    /// No key, or more than two.
    #[error("the key file holds {0} keys: one, or two while they are being changed")]
    Count(usize),
    /// The same key twice, or one of zeros.
    #[error("line {0}: a key that was there before, or of zeros only")]
    Weak(usize),
}

impl ClusterKeys {
    /// Reads the text of a key file.
    ///
    /// # Errors
    /// A [`KeyFileError`], which never shows a key.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let mut secrets: Vec<[u8; 32]> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let (number, line) = (index + 1, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let secret = from_hex(line).ok_or(KeyFileError::Line(number))?;
            if secret == [0; 32] || secrets.contains(&secret) {
                return Err(KeyFileError::Weak(number));
            }
            secrets.push(secret);
        }
        if !(1..=KEYS_MAX).contains(&secrets.len()) {
            return Err(KeyFileError::Count(secrets.len()));
        }
        Ok(Self(secrets.iter().map(ClusterKey::new).collect()))
    }

    /// Returns a name for each key, in their order, which reveals nothing of the key: for logs, to
    /// compare nodes by.
    pub fn names(&self) -> Vec<String> {
        let hex = |key: &ClusterKey| key.name.iter().map(|byte| format!("{byte:02x}")).collect();
        self.0.iter().map(hex).collect()
    }

    /// Returns all keys, the one to send with first.
    pub(crate) fn all(&self) -> &[ClusterKey] {
        &self.0
    }

    pub(crate) fn first(&self) -> &ClusterKey {
        &self.0[0]
    }

    pub(crate) fn has(&self, name: [u8; 8]) -> bool {
        self.0.iter().any(|key| key.name == name)
    }
}

impl ClusterKey {
    fn new(secret: &[u8; 32]) -> Self {
        let root = Salt::new(HKDF_SHA256, b"weir replication").extract(secret);
        let mut name = [0; 8];
        expand(&root, &[b"name of the key"], &mut name);
        Self { root, name }
    }
}

/// HKDF-Expand (RFC 5869 section 2.3) of the concatenated parts, each of fixed length.
pub(crate) fn expand<const N: usize>(root: &Prk, info: &[&[u8]], output: &mut [u8; N]) {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    root.expand(info, Length(N))
        .and_then(|material| material.fill(output))
        .expect("the output is shorter than 255 hashes");
}

/// Keys stay out of logs.
impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKeys({})", self.0.len())
    }
}

fn from_hex(digits: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = digits.as_bytes().try_into().ok()?;
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ClusterKeys, KeyFileError> {
        ClusterKeys::parse(text)
    }

    #[test]
    fn a_key_file_holds_one_or_two_keys() {
        let (a, b) = ("0f".repeat(32), "F0".repeat(32));
        let one = parse(&format!("# cluster lab\n\n  {a}\n")).unwrap();
        let two = parse(&format!("{b}\n{a}\n")).unwrap();
        assert_eq!((one.all().len(), two.all().len()), (1, 2));
        assert_eq!(one.first().name, two.all()[1].name);
        assert_ne!(one.first().name, two.first().name);
        assert!(two.has(one.first().name) && !one.has(two.first().name));
        assert_eq!(format!("{two:?}"), "ClusterKeys(2)");
        assert_eq!(two.names()[1], one.names()[0]);
        assert!(two.names().iter().all(|name| name.len() == 16 && !a.contains(name.as_str())));
    }

    #[test]
    fn key_files_with_mistakes_are_refused() {
        let key = |digit: &str| digit.repeat(64);
        let a = key("a");
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(error(""), KeyFileError::Count(0));
        assert_eq!(error(&[key("a"), key("b"), key("c")].join("\n")), KeyFileError::Count(3));
        assert_eq!(error(&a[1..]), KeyFileError::Line(1));
        assert_eq!(error(&format!("\n{}g", &a[1..])), KeyFileError::Line(2));
        assert_eq!(error(&format!("{a}\n{a}")), KeyFileError::Weak(2));
        assert_eq!(error(&key("0")), KeyFileError::Weak(1));
    }
}
