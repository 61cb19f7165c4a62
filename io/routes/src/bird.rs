//! Asks BIRD over its control socket which routes it announces, and reads the answer.
//!
//! The protocol is that of birdc: a question is one line; each line of the answer starts with a
//! code of four digits and `-` (more lines follow) or a space (the last line), or with a space,
//! which repeats the previous code.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// Control socket of BIRD 2 on Debian.
pub const SOCKET: &str = "/run/bird/bird.ctl";

/// Longest time for a whole conversation: BIRD answers at once unless it is stuck.
const DEADLINE: Duration = Duration::from_secs(5);
/// Most lines of one answer and most bytes of one conversation: far more than the routes that fit a
/// switch.
const ANSWER_LINES_MAX: usize = 1 << 20;
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A route as BIRD announces it to a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExportedRoute {
    /// Destination.
    pub prefix: IpNet,
    /// MED; `None` if the filter sets none.
    pub med: Option<u32>,
    /// The next hop announced; `None` if it is left to BGP.
    pub next_hop: Option<IpAddr>,
}

/// Why BIRD's routes are not known.
#[derive(Debug, thiserror::Error)]
pub enum BirdError {
    /// No process listens on the socket.
    #[error("BIRD does not run here ({socket}: {source}): nothing is announced to the switches")]
    NotRunning {
        /// The path tried.
        socket: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// This process lacks the right to use the socket.
    #[error("no right to ask BIRD ({socket}): run as root or as a member of the group bird")]
    NotAllowed {
        /// The path tried.
        socket: PathBuf,
    },
    /// BIRD refuses the question: the protocol does not exist or is down.
    #[error("BIRD on {protocol}: {reason}")]
    Refused {
        /// The protocol asked about.
        protocol: String,
        /// BIRD's reason, word for word.
        reason: String,
    },
    /// The answer broke off or cannot be parsed.
    #[error("BIRD's answer: {0}")]
    Answer(#[from] io::Error),
}

/// Returns the routes that BIRD announces to the peer of the BGP protocol `protocol`, sorted.
///
/// # Errors
/// [`BirdError`], worded for an operator.
pub fn exported(socket: &Path, protocol: &str) -> Result<Vec<ExportedRoute>, BirdError> {
    if !is_protocol_name(protocol) {
        let reason = "not the name of a protocol".to_owned();
        return Err(BirdError::Refused { protocol: protocol.to_owned(), reason });
    }
    let mut bird = Conversation::begin(socket, DEADLINE)?;
    // For a protocol that is down, BIRD would list the routes that it might export: refuse it
    // first.
    let refused = |reason| BirdError::Refused { protocol: protocol.to_owned(), reason };
    // BIRD answers an unknown name with a syntax error.
    let no_such = "its configuration has no such protocol".to_owned();
    let state = bird.ask(&format!("show protocols {protocol}"))?.map_err(|reason| {
        refused(if reason.contains("syntax error") { no_such } else { reason })
    })?;
    if let Some(reason) = not_up(&state) {
        return Err(refused(reason));
    }
    let text = bird.ask(&format!("show route export {protocol} all"))?;
    Ok(parse(&text.map_err(refused)?))
}

/// Whether `word` can be the name of a protocol. Such a word is safe to put into a question.
pub(crate) fn is_protocol_name(word: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !word.is_empty() && word.bytes().all(is_name)
}

/// Questions and answers over one connection with one deadline, whatever BIRD does.
#[derive(Debug)]
pub(crate) struct Conversation(BufReader<io::Take<Timed>>);

impl Conversation {
    /// Connects and reads the greeting. The connection, all questions and all answers together may
    /// take `time`.
    pub(crate) fn begin(socket: &Path, time: Duration) -> Result<Self, BirdError> {
        let stream = connect_to(socket).map_err(|source| match source.kind() {
            ErrorKind::PermissionDenied => BirdError::NotAllowed { socket: socket.to_owned() },
            _ => BirdError::NotRunning { socket: socket.to_owned(), source },
        })?;
        let timed = Timed { stream, ends: Instant::now() + time };
        let mut bird = Self(BufReader::new(timed.take(ANSWER_BYTES_MAX)));
        read_answer(&mut bird.0)?.map_err(io::Error::other)?;
        Ok(bird)
    }

    /// Sends a question and returns the lines of the answer; the inner error is BIRD's refusal,
    /// word for word.
    pub(crate) fn ask(&mut self, question: &str) -> io::Result<Result<Vec<String>, String>> {
        self.0.get_mut().get_mut().write_all(format!("{question}\n").as_bytes())?;
        read_answer(&mut self.0)
    }
}

/// Connects to a Unix socket without waiting: a stalled BIRD accepts no connections, and a full
/// queue is an error.
pub(crate) fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A stream with one deadline for everything read and written, however slowly the bytes arrive.
#[derive(Debug)]
struct Timed {
    stream: UnixStream,
    ends: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.ends.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left).ok_or_else(too_late)
    }
}

fn too_late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it does not answer in time")
}

/// Replaces the kernel's `WouldBlock` for an expired socket timeout by a sentence that an operator
/// understands.
fn in_words(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { too_late() } else { error }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes).map_err(in_words)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(in_words)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the lines of an answer, without their codes; the inner error is BIRD's refusal, word for
/// word.
pub(crate) fn read_answer(lines: &mut impl BufRead) -> io::Result<Result<Vec<String>, String>> {
    let mut answer = Vec::new();
    for _ in 0..ANSWER_LINES_MAX {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (code, mark) = (line.get(..4).unwrap_or(""), line.as_bytes().get(4));
        if code.len() < 4 || !code.bytes().all(|byte| byte.is_ascii_digit()) {
            answer.push(line.get(1..).unwrap_or("").to_owned());
            continue;
        }
        let text = line.get(5..).unwrap_or("");
        // 8xxx: the request cannot be carried out; 9xxx: the question is malformed.
        if code.starts_with(['8', '9']) {
            return Ok(Err(text.to_owned()));
        }
        if !text.is_empty() {
            answer.push(text.to_owned());
        }
        if mark != Some(&b'-') {
            return Ok(Ok(answer));
        }
    }
    Err(io::Error::new(ErrorKind::InvalidData, "it does not end"))
}

/// Returns why a protocol in the answer to `show protocols` is not established, if so. Its line is
/// name, type, table, state, since, information.
fn not_up(lines: &[String]) -> Option<String> {
    let line = lines.iter().find(|line| line.split_whitespace().nth(1) == Some("BGP"));
    let Some(line) = line else { return Some("it is no BGP protocol".to_owned()) };
    let fields: Vec<&str> = line.split_whitespace().collect();
    let is_up = fields.get(3) == Some(&"up");
    (!is_up).then(|| format!("not established: {}", fields.get(3..).unwrap_or(&[]).join(" ")))
}

/// Parses routes: a line that starts with the prefix, then indented lines of attributes.
pub(crate) fn parse(lines: &[String]) -> Vec<ExportedRoute> {
    let mut routes: Vec<ExportedRoute> = Vec::new();
    for line in lines {
        let start = line.split_whitespace().next().unwrap_or("");
        if let (false, Ok(prefix)) = (line.starts_with([' ', '\t']), start.parse()) {
            routes.push(ExportedRoute { prefix, med: None, next_hop: None });
        } else if let (Some(route), Some((name, value))) = (routes.last_mut(), line.split_once(':'))
        {
            match name.trim() {
                "BGP.med" => route.med = value.trim().parse().ok(),
                // A link-local address may follow the global one (RFC 2545 section 3).
                "BGP.next_hop" => {
                    let global = value.split_whitespace().next();
                    route.next_hop = global.and_then(|it| it.parse().ok());
                }
                _ => {}
            }
        }
    }
    routes.sort_unstable();
    routes
}

#[cfg(test)]
#[path = "bird_tests.rs"]
mod tests;
