//! What BIRD announces: its control socket asked, its answer read.
//!
//! The socket is spoken to directly, as birdc does: a line asks; each line of the answer starts with a code of four
//! digits and `-` (more follows) or a space (the last one), or with a space, which repeats the code before.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipnet::Ipv4Net;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// BIRD 2 of Debian listens here.
pub const SOCKET: &str = "/run/bird/bird.ctl";

/// BIRD answers at once unless it is stuck.
const DEADLINE: Duration = Duration::from_secs(5);
/// Longest answers read in one conversation: far more than the routes that fit a switch.
const ANSWER_LINES_MAX: usize = 1 << 20;
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A route as the switch gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExportedRoute {
    /// Where to.
    pub prefix: Ipv4Net,
    /// MED; `None` if the filter sets none.
    pub med: Option<u32>,
    /// The next hop announced; `None` if it is left to BGP.
    pub next_hop: Option<Ipv4Addr>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum BirdError {
    /// Nobody listens on the socket.
    #[error("BIRD does not run here ({socket}: {source}): nothing is announced to the switches")]
    NotRunning {
        /// The path tried.
        socket: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The socket may not be used.
    #[error("no right to ask BIRD ({socket}): run as root or as a member of the group bird")]
    NotAllowed {
        /// The path tried.
        socket: PathBuf,
    },
    /// BIRD refuses the question: no such protocol, or it is down.
    #[error("BIRD on {protocol}: {reason}")]
    Refused {
        /// The protocol asked about.
        protocol: String,
        /// BIRD's own words.
        reason: String,
    },
    /// The answer broke off or makes no sense.
    #[error("BIRD's answer: {0}")]
    Answer(#[from] io::Error),
}

/// What BIRD announces to the peer of the BGP protocol `protocol`, sorted.
///
/// # Errors
/// [`BirdError`], in words for an operator.
pub fn exported(socket: &Path, protocol: &str) -> Result<Vec<ExportedRoute>, BirdError> {
    if !is_protocol_name(protocol) {
        let reason = "not the name of a protocol".to_owned();
        return Err(BirdError::Refused { protocol: protocol.to_owned(), reason });
    }
    let mut bird = Conversation::begin(socket, DEADLINE)?;
    // A protocol that is down exports nothing, but would name what it might export.
    let refused = |reason| BirdError::Refused { protocol: protocol.to_owned(), reason };
    // For a name it does not know BIRD blames the syntax.
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

/// Whether a word can be the name of a protocol. What can is safe in a question.
pub(crate) fn is_protocol_name(word: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !word.is_empty() && word.bytes().all(is_name)
}

/// Questions and answers over one connection, which ends in time whatever BIRD does.
#[derive(Debug)]
pub(crate) struct Conversation(BufReader<io::Take<Timed>>);

impl Conversation {
    /// Connects and reads the greeting. From now on everything together takes `time` at most.
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

    /// The inner error is a refusal in BIRD's words.
    pub(crate) fn ask(&mut self, question: &str) -> io::Result<Result<Vec<String>, String>> {
        self.0.get_mut().get_mut().write_all(format!("{question}\n").as_bytes())?;
        read_answer(&mut self.0)
    }
}

/// A BIRD that stands still takes no connections: when its queue is full this is an error, not a wait.
pub(crate) fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A stream with one end of time for all that is read and written, however slowly it comes.
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

/// The kernel's word for a time-out of a socket says nothing to an operator.
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

/// The lines of an answer without their codes; the inner error is a refusal in BIRD's words.
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
        // 8xxx: it cannot be done; 9xxx: the question is wrong.
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

/// Why the protocol of `show protocols` announces nothing: its line is name, type, table, state, since, information.
fn not_up(lines: &[String]) -> Option<String> {
    let line = lines.iter().find(|line| line.split_whitespace().nth(1) == Some("BGP"));
    let Some(line) = line else { return Some("it is no BGP protocol".to_owned()) };
    let fields: Vec<&str> = line.split_whitespace().collect();
    let is_up = fields.get(3) == Some(&"up");
    (!is_up).then(|| format!("not established: {}", fields.get(3..).unwrap_or(&[]).join(" ")))
}

/// A route is a line that starts with its prefix, then lines of attributes, indented.
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
                "BGP.next_hop" => route.next_hop = value.trim().parse().ok(),
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
