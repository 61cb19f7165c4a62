//! A session: the keys that two boots of two workers share, found in one round trip.
//!
//! Each side draws a challenge and accepts the other's HELLO as current only if it repeats that
//! challenge. The keys are derived from both boot ids and both challenges, so a recording of an
//! earlier session opens nothing, and a recorded HELLO sets nothing up.
//!
//! ```text
//!   A                                   B
//!   | HELLO a, no echo                  |
//!   |---------------------------------->|   knows a
//!   |                  HELLO b, echo a  |
//!   |<----------------------------------|
//!   | session (a, b); HELLO a, echo b, "has it"; datagrams of the session
//!   |---------------------------------->|   session (a, b)
//! ```
//!
//! A worker without a session repeats its HELLO; a worker that gets a HELLO without "has it"
//! answers, unless its own session is alive: then the HELLO is an old one. A challenge serves one
//! session.

use std::ops::RangeInclusive;

use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use weir_ids::{BootId, PeerId};

use crate::cluster_keys::{ClusterKey, ClusterKeys, expand};
use crate::fingerprint::{Fingerprint, FingerprintPart};
use crate::hello::{Challenge, Hello};
use crate::replay_window::ReplayWindow;
use crate::seal::SealKey;

/// The upper bits of a HELLO's number count how often its sender has added the receiver.
const INCARNATION_SHIFT: u32 = 40;

/// Returns how often the sender of a HELLO of this number had added its receiver: its streams
/// restart each time.
pub(crate) fn incarnation_of(hello_number: u64) -> u64 {
    hello_number >> INCARNATION_SHIFT
}

const NO_CHALLENGE: Challenge = [0; 16];

/// Identity of this end. The secret must be random and new in each boot: challenges are derived
/// from it.
#[derive(Clone)]
pub struct Identity {
    /// This worker.
    pub worker: PeerId,
    /// The incarnation of its process.
    pub boot: BootId,
    /// 32 random bytes.
    pub secret: [u8; 32],
}

/// The secret stays out of logs.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({}, boot {})", self.worker, self.boot)
    }
}

/// Keys and numbers of a session.
#[derive(Debug)]
pub(crate) struct PeerSession {
    pub(crate) peer_boot: BootId,
    pub(crate) version: u8,
    pub(crate) send_id: u32,
    pub(crate) receive_id: u32,
    send_key: SealKey,
    pub(crate) receive_key: SealKey,
    pub(crate) window: ReplayWindow,
    last_number: u64,
    own: Challenge,
    peer: Challenge,
    /// Names of the cluster keys it was derived from.
    key_names: [[u8; 8]; 2],
    /// A HELLO may still confirm it: our first cluster key is the one it was derived from.
    is_confirmable: bool,
}

impl PeerSession {
    /// Returns the number of the next datagram, and the key.
    #[inline]
    pub(crate) fn next_number(&mut self) -> (u64, &SealKey) {
        self.last_number += 1;
        (self.last_number, &self.send_key)
    }
}

/// Outcome of a HELLO.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HelloOutcome {
    /// A session was set up.
    Session,
    /// Nothing new.
    Nothing,
    /// No version in common.
    Version,
    /// This part of the configuration differs.
    Differs(FingerprintPart),
}

/// One end of the handshake with one peer.
#[derive(Debug)]
pub(crate) struct Handshake {
    versions: RangeInclusive<u8>,
    challenges: Challenges,
    next: Challenge,
    peer: Challenge,
    hello_number: u64,
    /// The next HELLO is to confirm the session.
    is_confirming: bool,
}

/// A stream of unpredictable numbers.
#[derive(Debug)]
struct Challenges {
    root: Prk,
    drawn: u64,
}

impl Challenges {
    fn draw(&mut self) -> Challenge {
        self.drawn += 1;
        let mut challenge = NO_CHALLENGE;
        expand(&self.root, &[b"challenge", &self.drawn.to_be_bytes()], &mut challenge);
        challenge
    }
}

impl Handshake {
    pub(crate) fn new(
        versions: RangeInclusive<u8>,
        identity: &Identity,
        peer: PeerId,
        incarnation: u64,
    ) -> Self {
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&peer.0.to_be_bytes());
        salt[8..].copy_from_slice(&incarnation.to_be_bytes());
        let root = Salt::new(HKDF_SHA256, &salt).extract(&identity.secret);
        let mut challenges = Challenges { root, drawn: 0 };
        // A peer that was removed and added again: its HELLO numbers continue above all earlier
        // ones.
        let hello_number = incarnation << INCARNATION_SHIFT;
        let next = challenges.draw();
        let (peer, is_confirming) = (NO_CHALLENGE, false);
        Self { versions, challenges, next, peer, hello_number, is_confirming }
    }

    /// Restarts a handshake that is under way, since the keys have changed.
    pub(crate) fn keys_changed(&mut self) {
        self.next = self.challenges.draw();
        self.peer = NO_CHALLENGE;
        self.is_confirming = false;
    }

    /// Returns the HELLO to send now, and its number.
    pub(crate) fn hello(
        &mut self,
        identity: &Identity,
        receiver: PeerId,
        fingerprint: &Fingerprint,
        session: Option<&PeerSession>,
    ) -> (u64, Hello) {
        self.hello_number += 1;
        let confirmed = session.filter(|_| std::mem::take(&mut self.is_confirming));
        let hello = Hello {
            version_min: *self.versions.start(),
            version_max: *self.versions.end(),
            has_session: confirmed.is_some(),
            receiver,
            boot: identity.boot,
            challenge: confirmed.map_or(self.next, |session| session.own),
            echo: confirmed.map_or(self.peer, |session| session.peer),
            fingerprint: *fingerprint,
        };
        (self.hello_number, hello)
    }

    /// Takes an authentic HELLO of the peer; `key` is the cluster key that opened it. `is_wanted`:
    /// a HELLO that knows nothing of us is answered. Returns its outcome and whether a HELLO is
    /// due.
    pub(crate) fn on_hello(
        &mut self,
        hello: &Hello,
        worker: PeerId,
        key: &ClusterKey,
        context: (&Identity, &ClusterKeys, &Fingerprint),
        session: &mut Option<PeerSession>,
        is_wanted: bool,
    ) -> (HelloOutcome, bool) {
        let (identity, keys, fingerprint) = context;
        let (version_min, version_max) = (*self.versions.start(), *self.versions.end());
        if hello.version_min > version_max || hello.version_max < version_min {
            return (HelloOutcome::Version, false);
        }
        let differs = |part: &FingerprintPart| hello.fingerprint.of(*part) != fingerprint.of(*part);
        if let Some(part) = FingerprintPart::ALL.into_iter().find(differs) {
            return (HelloOutcome::Differs(part), false);
        }
        if hello.echo != self.next {
            return (HelloOutcome::Nothing, self.answers(hello, session.as_ref(), is_wanted));
        }
        let version = hello.version_max.min(version_max);
        let ends = Ends { own: (identity, self.next), peer: (worker, hello.boot, hello.challenge) };
        *session = Some(ends.session(keys.first(), key, version));
        self.next = self.challenges.draw();
        self.peer = NO_CHALLENGE;
        self.is_confirming = !hello.has_session;
        (HelloOutcome::Session, !hello.has_session)
    }

    /// Returns whether a HELLO that sets nothing up is to be answered.
    fn answers(&mut self, hello: &Hello, session: Option<&PeerSession>, is_wanted: bool) -> bool {
        match session {
            Some(session) if session.peer_boot == hello.boot && session.peer == hello.challenge => {
                // The peer lacks our confirmation; or this HELLO is late.
                let is_lacking = hello.echo == session.own && !hello.has_session;
                self.is_confirming |= is_lacking && session.is_confirmable;
                self.is_confirming
            }
            _ if is_wanted => {
                self.peer = hello.challenge;
                true
            }
            _ => false,
        }
    }
}

/// All inputs of a session's keys, except the cluster keys.
struct Ends<'a> {
    own: (&'a Identity, Challenge),
    peer: (PeerId, BootId, Challenge),
}

impl Ends<'_> {
    /// Derives the session: each direction from the key that its sender uses first.
    fn session(&self, own_key: &ClusterKey, peer_key: &ClusterKey, version: u8) -> PeerSession {
        let (identity, own) = self.own;
        let (peer_worker, peer_boot, peer) = self.peer;
        let near = (identity.worker, identity.boot, own);
        let (send_key, send_id) = direction(own_key, near, self.peer);
        let (receive_key, receive_id) = direction(peer_key, (peer_worker, peer_boot, peer), near);
        PeerSession {
            peer_boot,
            version,
            send_id,
            receive_id,
            send_key,
            receive_key,
            window: ReplayWindow::default(),
            last_number: 0,
            own,
            peer,
            key_names: [own_key.name, peer_key.name],
            is_confirmable: true,
        }
    }
}

impl PeerSession {
    /// Takes new cluster keys. Returns whether the session may go on.
    pub(crate) fn keys_changed(&mut self, keys: &ClusterKeys) -> bool {
        self.is_confirmable = self.key_names[0] == keys.first().name;
        self.key_names.iter().all(|name| keys.has(*name))
    }

    /// True if the peer's direction is derived from this key.
    pub(crate) fn is_of(&self, peer_key: &ClusterKey) -> bool {
        self.key_names[1] == peer_key.name
    }

    /// True if a new session should replace it: it was not made with our first key.
    pub(crate) fn is_outdated(&self) -> bool {
        !self.is_confirmable
    }
}

pub(crate) type SessionEnd = (PeerId, BootId, Challenge);

/// Returns key and id of the direction from one end to the other.
pub(crate) fn direction(key: &ClusterKey, from: SessionEnd, to: SessionEnd) -> (SealKey, u32) {
    let words = [from.0.0.to_be_bytes(), to.0.0.to_be_bytes()];
    let boots = [from.1.0.to_be_bytes(), to.1.0.to_be_bytes()];
    let info = |label: &'static [u8]| -> [&[u8]; 7] {
        [label, &words[0], &words[1], &boots[0], &boots[1], &from.2, &to.2]
    };
    let mut id = [0; 4];
    expand(&key.root, &info(b"id of the session"), &mut id);
    // 0 is the session of a HELLO.
    (SealKey::derive(key, &info(b"session")), u32::from_be_bytes(id).max(1))
}

/// Returns the key of the HELLOs of one boot of a worker to another worker.
pub(crate) fn hello_key(key: &ClusterKey, from: PeerId, boot: BootId, to: PeerId) -> SealKey {
    let (from, boot, to) = (from.0.to_be_bytes(), boot.0.to_be_bytes(), to.0.to_be_bytes());
    SealKey::derive(key, &[b"hello", &from, &boot, &to])
}
