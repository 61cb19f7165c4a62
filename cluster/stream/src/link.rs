//! One peer on the network: handshake, session, times, and the authentication of its datagrams.

use std::net::SocketAddr;

use weir_ids::PeerId;

use crate::cluster_keys::ClusterKeys;
use crate::control::Comeback;
use crate::counters::PeerCounters;
use crate::datagram::{
    DATAGRAM_MAX, DatagramHeader, DatagramKind, HEADER_LEN, SEALS_REDIRECTS, TAG_LEN, VERSION_MIN,
};
use crate::fingerprint::{Fingerprint, FingerprintPart};
use crate::hello::{HELLO_LEN, Hello};
use crate::options::StreamOptions;
use crate::refusal::DatagramRefusal;
use crate::round_trip::RoundTrip;
use crate::session::{Handshake, HelloOutcome, Identity, PeerSession, hello_key, incarnation_of};
use crate::traits::Transmit;

/// HELLOs of a peer that are checked per heartbeat interval: each costs a few key derivations, some
/// microseconds.
const HELLO_CHECKS: u32 = 16;

/// A peer that missed this many heartbeats may have lost the session.
const SILENT_BEATS: u64 = 3;

/// Least time between two HELLOs.
const HELLO_GAP_US: u64 = 1_000;

/// Ids of sessions that are over, kept to tell them from unknown ones.
const ENDED: usize = 4;

/// Settings that all peers of an endpoint share. Fingerprint, keys and comebacks can be replaced.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) options: StreamOptions,
    pub(crate) identity: Identity,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) keys: ClusterKeys,
    /// Reports that heartbeats carry on shards that this worker came back to.
    pub(crate) comebacks: Vec<Comeback>,
}

/// Everything that sending needs during one poll.
#[derive(Debug)]
pub(crate) struct SendContext<'a, T> {
    pub(crate) scratch: &'a mut [u8; DATAGRAM_MAX],
    pub(crate) transmit: &'a mut T,
    pub(crate) now_us: u64,
    /// Datagrams that may still be sent.
    pub(crate) budget: u32,
}

/// Form in which packets that a worker cannot serve reach a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectForm {
    /// Not at all: there is no session.
    Refused,
    /// In IPIP, in the clear: the peer speaks an earlier version.
    Plain,
    /// Sealed as a datagram of the session, with room in front of the packet and behind it.
    Sealed {
        /// Bytes of the header.
        front: usize,
        /// Bytes of the tag.
        behind: usize,
    },
}

#[derive(Debug)]
pub(crate) struct PeerLink {
    pub(crate) worker: PeerId,
    pub(crate) address: SocketAddr,
    pub(crate) session: Option<PeerSession>,
    /// How often the peer had added this worker when the session was set up.
    pub(crate) peer_incarnation: u64,
    pub(crate) round_trip: RoundTrip,
    pub(crate) counters: PeerCounters,
    /// The part of the fingerprint in which the peer's last HELLO differed.
    pub(crate) difference: Option<FingerprintPart>,
    /// When something authentic of a session came, or when the peer was added.
    pub(crate) received_us: u64,
    pub(crate) hello_due_us: u64,
    handshake: Handshake,
    hello_sent_us: Option<u64>,
    hello_checks: (u64, u32),
    ended: [u32; ENDED],
}

impl PeerLink {
    pub(crate) fn new(
        setting: &Setting,
        worker: PeerId,
        address: SocketAddr,
        incarnation: u64,
        now_us: u64,
    ) -> Self {
        Self {
            worker,
            address,
            session: None,
            peer_incarnation: 0,
            round_trip: RoundTrip::new(&setting.options),
            counters: PeerCounters::default(),
            difference: None,
            received_us: now_us,
            hello_due_us: now_us,
            handshake: Handshake::new(
                setting.options.versions.clone(),
                &setting.identity,
                worker,
                incarnation,
            ),
            hello_sent_us: None,
            hello_checks: (0, 0),
            ended: [0; ENDED],
        }
    }

    pub(crate) fn silent_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.received_us)
    }

    /// Takes new cluster keys. Sessions of a removed key end; others are replaced.
    pub(crate) fn keys_changed(&mut self, keys: &ClusterKeys, now_us: u64) {
        self.handshake.keys_changed();
        let may_go_on = self.session.as_mut().is_some_and(|session| session.keys_changed(keys));
        if !may_go_on {
            self.end_session();
        } else if !self.session.as_ref().is_some_and(PeerSession::is_outdated) {
            return;
        }
        self.hello_due_us = now_us;
    }

    fn end_session(&mut self) {
        if let Some(session) = self.session.take() {
            self.ended.rotate_right(1);
            self.ended[0] = session.receive_id;
        }
    }

    /// Schedules a HELLO if there is a reason for one and none is scheduled yet.
    pub(crate) fn plan_hello(&mut self, options: &StreamOptions, now_us: u64) {
        let wants = match &self.session {
            None => true,
            Some(session) => session.is_outdated() || self.silent_us(now_us) >= options.silence_us,
        };
        if wants && self.hello_due_us == u64::MAX {
            self.hello_due_us = self.hello_sent_us.map_or(now_us, |sent| sent + options.hello_us);
        }
    }

    fn hello_soon(&mut self, now_us: u64) {
        let earliest_us = self.hello_sent_us.map_or(0, |sent| sent + HELLO_GAP_US);
        self.hello_due_us = self.hello_due_us.min(earliest_us.max(now_us));
    }

    pub(crate) fn send_hello<T: Transmit>(
        &mut self,
        setting: &Setting,
        exit: &mut SendContext<'_, T>,
    ) {
        let Setting { identity, fingerprint, keys, .. } = setting;
        let session = self.session.as_ref();
        let (number, hello) = self.handshake.hello(identity, self.worker, fingerprint, session);
        let header = DatagramHeader {
            version: VERSION_MIN,
            kind: DatagramKind::Hello,
            is_encrypted: false,
            session: 0,
            sender: identity.worker,
            number,
        };
        header.emit(exit.scratch);
        hello.emit(&mut exit.scratch[HEADER_LEN..]);
        let key = hello_key(keys.first(), identity.worker, identity.boot, self.worker);
        let length = key.seal(number, false, HELLO_LEN, exit.scratch);
        self.hello_due_us = u64::MAX;
        self.hello_sent_us = Some(exit.now_us);
        self.pass_on(length, exit);
    }

    /// Seals a body and sends it. False if there is no session, or no room to send.
    #[inline]
    pub(crate) fn send<T: Transmit>(
        &mut self,
        kind: DatagramKind,
        setting: &Setting,
        body: &[u8],
        exit: &mut SendContext<'_, T>,
    ) -> bool {
        let Some(session) = &mut self.session else { return false };
        let is_encrypted = setting.options.is_encrypted;
        let (version, id) = (session.version, session.send_id);
        let (number, key) = session.next_number();
        let sender = setting.identity.worker;
        DatagramHeader { version, kind, is_encrypted, session: id, sender, number }
            .emit(exit.scratch);
        exit.scratch[HEADER_LEN..][..body.len()].copy_from_slice(body);
        let length = key.seal(number, is_encrypted, body.len(), exit.scratch);
        self.pass_on(length, exit)
    }

    /// Returns how packets that this worker cannot serve reach the peer now.
    pub(crate) fn redirects(&self) -> RedirectForm {
        match &self.session {
            None => RedirectForm::Refused,
            Some(session) if session.version < SEALS_REDIRECTS => RedirectForm::Plain,
            Some(_) => RedirectForm::Sealed { front: HEADER_LEN, behind: TAG_LEN },
        }
    }

    /// Seals a packet that lies in `buffer` between `front` bytes and the bytes of the tag. Returns
    /// false and does nothing if there is no session that seals, or the room in front does not fit.
    #[inline]
    pub(crate) fn seal_redirect(
        &mut self,
        setting: &Setting,
        front: usize,
        buffer: &mut [u8],
    ) -> bool {
        let is_fit =
            matches!(self.redirects(), RedirectForm::Sealed { front: it, .. } if it == front);
        let body_len = buffer.len().checked_sub(HEADER_LEN + TAG_LEN);
        let (Some(session), Some(body_len), true) = (&mut self.session, body_len, is_fit) else {
            return false;
        };
        let is_encrypted = setting.options.is_encrypted;
        let (version, id) = (session.version, session.send_id);
        let (number, key) = session.next_number();
        let (sender, kind) = (setting.identity.worker, DatagramKind::Redirect);
        DatagramHeader { version, kind, is_encrypted, session: id, sender, number }.emit(buffer);
        let length = key.seal(number, is_encrypted, body_len, buffer);
        self.counters.datagrams_sent += 1;
        self.counters.bytes_sent += length as u64;
        true
    }

    fn pass_on<T: Transmit>(&mut self, length: usize, exit: &mut SendContext<'_, T>) -> bool {
        self.counters.datagrams_sent += 1;
        self.counters.bytes_sent += length as u64;
        let is_taken = exit.transmit.send(self.address, &exit.scratch[..length]);
        exit.budget = if is_taken { exit.budget - 1 } else { 0 };
        is_taken
    }

    /// Opens a datagram of a session; returns the body in the clear.
    #[inline]
    pub(crate) fn open<'a>(
        &mut self,
        header: &DatagramHeader,
        datagram: &'a mut [u8],
        options: &StreamOptions,
        now_us: u64,
    ) -> Result<&'a [u8], DatagramRefusal> {
        let session = match &mut self.session {
            Some(session) if session.receive_id == header.session => session,
            _ => return Err(self.unknown_session(header, options, now_us)),
        };
        if header.version != session.version {
            return Err(DatagramRefusal::Version);
        }
        if !session.window.is_new(header.number) {
            return Err(DatagramRefusal::Replayed);
        }
        let body = session
            .receive_key
            .open(header.number, header.is_encrypted, datagram)
            .ok_or(DatagramRefusal::BadMac)?;
        session.window.note(header.number);
        self.note_received(options, now_us);
        Ok(body)
    }

    fn unknown_session(
        &mut self,
        header: &DatagramHeader,
        options: &StreamOptions,
        now_us: u64,
    ) -> DatagramRefusal {
        if header.session != 0 && self.ended.contains(&header.session) {
            return DatagramRefusal::OldBoot;
        }
        // Perhaps the peer's confirmation was lost. An attacker that forges such datagrams gains an
        // occasional HELLO.
        let is_silent = self.silent_us(now_us) >= SILENT_BEATS * options.heartbeat_us;
        let is_due = |sent| now_us >= sent + 2 * options.heartbeat_us;
        if (self.session.is_none() || is_silent) && self.hello_sent_us.is_none_or(is_due) {
            self.hello_soon(now_us);
        }
        DatagramRefusal::NoSession
    }

    fn note_received(&mut self, options: &StreamOptions, now_us: u64) {
        let beats = self.silent_us(now_us) / options.heartbeat_us;
        // A heartbeat may be late by up to its own interval.
        self.counters.heartbeats_missed += beats.saturating_sub(1);
        self.counters.datagrams_received += 1;
        self.received_us = now_us;
    }

    /// Takes a HELLO. Returns whether a session was set up.
    pub(crate) fn on_hello(
        &mut self,
        header: &DatagramHeader,
        datagram: &mut [u8],
        setting: &Setting,
        now_us: u64,
    ) -> Result<bool, DatagramRefusal> {
        let Setting { options, identity, fingerprint, keys, .. } = setting;
        let beat = now_us / options.heartbeat_us;
        let (checked_beat, checks) = &mut self.hello_checks;
        if *checked_beat != beat {
            (*checked_beat, *checks) = (beat, 0);
        }
        if *checks >= HELLO_CHECKS {
            return Err(DatagramRefusal::HelloRate);
        }
        *checks += 1;
        if header.is_encrypted {
            return Err(DatagramRefusal::Malformed);
        }
        let boot = Hello::boot_of(&datagram[HEADER_LEN..]).ok_or(DatagramRefusal::Truncated)?;
        let opens = |key: &&crate::cluster_keys::ClusterKey| {
            let key = hello_key(key, self.worker, boot, identity.worker);
            // Opening a tag alone leaves the input unchanged, so a second key can be tried.
            let mut copy = [0; DATAGRAM_MAX];
            let copy = &mut copy[..datagram.len()];
            copy.copy_from_slice(datagram);
            key.open(header.number, false, copy).is_some()
        };
        let key = keys.all().iter().find(opens).ok_or(DatagramRefusal::BadMac)?;
        let body = &datagram[HEADER_LEN..datagram.len() - TAG_LEN];
        let hello = Hello::parse(body, fingerprint)
            .filter(|hello| hello.receiver == identity.worker)
            .ok_or(DatagramRefusal::Malformed)?;
        let before = self.session.as_ref().map(|session| session.receive_id);
        let context = (identity, keys, fingerprint);
        // A peer that is heard has no reason to start again, unless its key changed.
        let is_alive = self.silent_us(now_us) < SILENT_BEATS * options.heartbeat_us;
        let is_wanted =
            !self.session.as_ref().is_some_and(|session| is_alive && session.is_of(key));
        let session = &mut self.session;
        let (outcome, is_due) =
            self.handshake.on_hello(&hello, self.worker, key, context, session, is_wanted);
        if is_due {
            self.hello_soon(now_us);
        }
        match outcome {
            HelloOutcome::Nothing => Ok(false),
            HelloOutcome::Version => Err(DatagramRefusal::Version),
            HelloOutcome::Differs(part) => {
                self.difference = Some(part);
                Err(DatagramRefusal::Fingerprint)
            }
            HelloOutcome::Session => {
                self.peer_incarnation = incarnation_of(header.number);
                self.ended.rotate_right(1);
                self.ended[0] = before.unwrap_or(0);
                self.difference = None;
                self.counters.sessions += 1;
                self.note_received(options, now_us);
                if !is_due {
                    self.hello_due_us = u64::MAX;
                }
                Ok(true)
            }
        }
    }
}
