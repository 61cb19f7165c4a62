//! Hot: authentication and encryption of datagrams by AES-256-GCM.
//!
//! The header is authenticated, the body authenticated and, if configured, encrypted. Keys are
//! derived (HKDF-SHA256) from a cluster key and everything that names a direction of a session, so
//! no two sessions share one and a number can be the nonce. Encryption is cheaper: 365 ns for 1,368
//! bytes against 987 ns for the tag alone, since GCM's fast path is the one that encrypts.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use crate::cluster_keys::{ClusterKey, expand};
use crate::datagram::{HEADER_LEN, TAG_LEN};

/// The key of one direction of one session, or of one worker's HELLOs.
#[derive(Debug)]
pub(crate) struct SealKey(LessSafeKey);

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl SealKey {
    /// Derives the key for what `info` names; its parts have fixed lengths.
    pub(crate) fn derive(key: &ClusterKey, info: &[&[u8]]) -> Self {
        let mut bytes = [0; 32];
        expand(&key.root, info, &mut bytes);
        let key = UnboundKey::new(&AES_256_GCM, &bytes).expect("the key has the cipher's length");
        Self(LessSafeKey::new(key))
    }

    /// Seals a datagram whose header and body lie in `buffer`, with room for the tag behind them.
    /// Returns its length.
    #[inline]
    pub(crate) fn seal(
        &self,
        number: u64,
        is_encrypted: bool,
        body_len: usize,
        buffer: &mut [u8],
    ) -> usize {
        let length = HEADER_LEN + body_len;
        let clear_len = if is_encrypted { HEADER_LEN } else { length };
        let (clear, rest) = buffer.split_at_mut(clear_len);
        let (secret, rest) = rest.split_at_mut(length - clear_len);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce(number), Aad::from(&*clear), secret)
            .expect("a datagram is shorter than what GCM can seal");
        rest[..TAG_LEN].copy_from_slice(tag.as_ref());
        length + TAG_LEN
    }

    /// Returns the body in the clear, if the datagram is authentic.
    #[inline]
    pub(crate) fn open<'a>(
        &self,
        number: u64,
        is_encrypted: bool,
        datagram: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let length = datagram.len().checked_sub(TAG_LEN)?;
        let clear_len = if is_encrypted { HEADER_LEN } else { length };
        let (clear, sealed) = datagram.split_at_mut_checked(clear_len)?;
        self.0.open_in_place(nonce(number), Aad::from(&*clear), sealed).ok()?;
        datagram.get(HEADER_LEN..length)
    }
}
