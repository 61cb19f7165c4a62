//! Tracks the phase of one connection and its deadlines. Pure: the clock is an argument.
//!
//! ```text
//!   (accepted) -> Head --whole request--> Making --head of answer--> Taking --all flushed--> Idle
//!                  ^                                                                          |
//!                  +------------------------------- first byte -------------------------------+
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::limits::ListenerLimits;
use super::refusals::ConnectionRefusal;

/// The step that the server waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// The rest of a request that has begun, or the first request of the connection.
    Head,
    /// The head of the answer.
    Making,
    /// The client, which reads the answer. An answer of unknown length, such as a capture, may take
    /// any time as long as it is read.
    Taking { is_open_ended: bool },
    /// The next request.
    Idle,
}

#[derive(Debug)]
struct ConnectionState {
    phase: ConnectionPhase,
    since: Instant,
    /// Whether the whole body of the answer has been produced; parts of it may still be buffered.
    is_body_done: bool,
    /// When the client began to take too few bytes.
    blocked_since: Option<Instant>,
    /// Bytes taken since then.
    taken: usize,
    ended: Option<ConnectionRefusal>,
}

/// State of a connection, shared by its stream, its requests, its deadlines and the table of
/// connections.
#[derive(Debug)]
pub(super) struct ClientConnection {
    state: Mutex<ConnectionState>,
    displaced: Notify,
}

impl ClientConnection {
    pub(super) fn new(now: Instant) -> Self {
        let state = ConnectionState {
            phase: ConnectionPhase::Head,
            since: now,
            is_body_done: false,
            blocked_since: None,
            taken: 0,
            ended: None,
        };
        Self { state: Mutex::new(state), displaced: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that bytes have arrived.
    pub(super) fn has_read(&self, now: Instant) {
        let mut state = self.state();
        if state.phase == ConnectionPhase::Idle {
            state.enter(ConnectionPhase::Head, now);
        }
    }

    /// Notes that a request has arrived with its body.
    pub(super) fn begin_answer(&self, now: Instant) {
        let mut state = self.state();
        state.is_body_done = false;
        state.enter(ConnectionPhase::Making, now);
    }

    /// Notes that the head of the answer is made.
    pub(super) fn begin_body(&self, is_open_ended: bool, now: Instant) {
        self.state().enter(ConnectionPhase::Taking { is_open_ended }, now);
    }

    /// Notes that the whole body of the answer has been produced.
    pub(super) fn end_body(&self) {
        self.state().is_body_done = true;
    }

    /// Notes that the kernel took `taken` bytes, or had no room (`None`). The client is no longer
    /// blocked once it has taken `bytes_min` bytes.
    pub(super) fn has_written(&self, taken: Option<usize>, bytes_min: usize, now: Instant) {
        let mut state = self.state();
        match taken {
            None => state.blocked_since = state.blocked_since.or(Some(now)),
            Some(bytes) => {
                state.taken += bytes;
                if state.taken >= bytes_min {
                    state.unblock();
                }
            }
        }
    }

    /// Notes that all written bytes are with the kernel.
    pub(super) fn has_flushed(&self, now: Instant) {
        let mut state = self.state();
        state.unblock();
        if state.is_body_done && matches!(state.phase, ConnectionPhase::Taking { .. }) {
            state.enter(ConnectionPhase::Idle, now);
        }
    }

    /// Returns since when the connection may be displaced by another, because nothing is being made
    /// for it.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let state = self.state();
        match state.phase {
            ConnectionPhase::Head | ConnectionPhase::Idle => Some(state.since),
            ConnectionPhase::Making | ConnectionPhase::Taking { .. } => state.blocked_since,
        }
    }

    /// Ends the connection in favour of another.
    pub(super) fn displace(&self) {
        self.state().ended = Some(ConnectionRefusal::Displaced);
        self.displaced.notify_one();
    }

    /// Returns when the connection is displaced.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }

    /// Returns when the deadlines have to be checked again, or why the connection ends.
    pub(super) fn deadline(
        &self,
        limits: &ListenerLimits,
        now: Instant,
    ) -> Result<Instant, ConnectionRefusal> {
        let state = self.state();
        if let Some(ended) = state.ended {
            return Err(ended);
        }
        let of_phase = match state.phase {
            ConnectionPhase::Head => Some((limits.head_timeout, ConnectionRefusal::HeadTimeout)),
            ConnectionPhase::Idle => Some((limits.idle_timeout, ConnectionRefusal::Idle)),
            // `Server::make` applies `answer_timeout` first and answers with an error by itself.
            ConnectionPhase::Making => {
                Some((2 * limits.answer_timeout, ConnectionRefusal::AnswerTimeout))
            }
            ConnectionPhase::Taking { is_open_ended: true } => None,
            ConnectionPhase::Taking { is_open_ended: false } => {
                Some((limits.answer_timeout, ConnectionRefusal::AnswerTimeout))
            }
        };
        let of_phase = of_phase.map(|(time, refusal)| (state.since + time, refusal));
        let blocked = state.blocked_since;
        let of_reader =
            blocked.map(|since| (since + limits.stall_timeout, ConnectionRefusal::SlowReader));
        // The phase may change at any time; no later phase needs an earlier check than this.
        let shortest = limits.head_timeout.min(limits.idle_timeout).min(limits.stall_timeout);
        let mut next = now + shortest.min(limits.answer_timeout);
        for (end, refusal) in of_phase.into_iter().chain(of_reader) {
            if now >= end {
                return Err(refusal);
            }
            next = next.min(end);
        }
        Ok(next)
    }
}

impl ConnectionState {
    fn enter(&mut self, phase: ConnectionPhase, now: Instant) {
        self.phase = phase;
        self.since = now;
    }

    fn unblock(&mut self) {
        self.blocked_since = None;
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: ListenerLimits = ListenerLimits::ADMIN;

    /// Returns why a connection ends at the time `at`, if it does.
    fn end(connection: &ClientConnection, at: Instant) -> Option<ConnectionRefusal> {
        connection.deadline(&LIMITS, at).err()
    }

    #[test]
    fn a_head_sent_byte_by_byte_times_out_from_its_first_byte() {
        let start = Instant::now();
        let connection = ClientConnection::new(start);
        for second in 0..9 {
            connection.has_read(start + Duration::from_secs(second));
            assert_eq!(end(&connection, start + Duration::from_secs(second)), None);
        }
        assert_eq!(
            end(&connection, start + LIMITS.head_timeout),
            Some(ConnectionRefusal::HeadTimeout)
        );
    }

    #[test]
    fn a_connection_between_requests_is_idle_until_the_first_byte_of_the_next() {
        let start = Instant::now();
        let connection = ClientConnection::new(start);
        connection.begin_answer(start);
        connection.begin_body(false, start);
        connection.has_flushed(start);
        connection.end_body();
        assert_eq!(connection.waits_since(), None, "the answer is not flushed");
        connection.has_flushed(start);
        assert_eq!(connection.waits_since(), Some(start));
        let later = start + LIMITS.idle_timeout - Duration::from_millis(1);
        assert_eq!(end(&connection, later), None);
        connection.has_read(later);
        assert_eq!(
            end(&connection, later + LIMITS.head_timeout),
            Some(ConnectionRefusal::HeadTimeout)
        );
    }

    #[test]
    fn an_open_ended_answer_takes_any_time_while_it_is_read() {
        let start = Instant::now();
        let connection = ClientConnection::new(start);
        connection.begin_answer(start);
        connection.begin_body(true, start);
        let later = start + Duration::from_secs(86_400);
        assert_eq!(end(&connection, later), None);
        connection.has_written(None, LIMITS.stall_bytes_min, later);
        assert_eq!(connection.waits_since(), Some(later));
        // A trickle does not count as reading.
        connection.has_written(Some(LIMITS.stall_bytes_min - 1), LIMITS.stall_bytes_min, later);
        let stalled = later + LIMITS.stall_timeout;
        assert_eq!(end(&connection, stalled), Some(ConnectionRefusal::SlowReader));
        connection.has_written(Some(1), LIMITS.stall_bytes_min, stalled);
        assert_eq!(end(&connection, stalled), None);
    }

    #[test]
    fn an_answer_of_known_length_has_to_be_taken_in_time() {
        let start = Instant::now();
        let connection = ClientConnection::new(start);
        connection.begin_answer(start);
        assert_eq!(end(&connection, start + LIMITS.answer_timeout), None, "the server answers");
        let made = start + LIMITS.answer_timeout;
        connection.begin_body(false, made);
        assert_eq!(
            end(&connection, made + LIMITS.answer_timeout),
            Some(ConnectionRefusal::AnswerTimeout)
        );
    }

    #[test]
    fn the_next_check_is_no_later_than_the_end_of_any_later_phase() {
        let start = Instant::now();
        let connection = ClientConnection::new(start);
        connection.begin_answer(start);
        connection.begin_body(true, start);
        let next = connection.deadline(&LIMITS, start).unwrap();
        assert!(next <= start + LIMITS.head_timeout);
    }
}
