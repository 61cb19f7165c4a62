//! What BIRD announces: its control socket asked, its answer read.
//!
//! The socket is spoken to directly, as birdc does: a line asks; each line of the answer starts with a code of four
//! digits and `-` (more follows) or a space (the last one), or with a space, which repeats the code before.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::Ipv4Net;

/// BIRD 2 of Debian listens here.
pub const SOCKET: &str = "/run/bird/bird.ctl";

/// BIRD answers at once unless it is stuck.
const DEADLINE: Duration = Duration::from_secs(5);
/// Longest answer read: far more than the routes that fit a switch.
const ANSWER_LINES_MAX: usize = 1 << 20;

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
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if protocol.is_empty() || !protocol.bytes().all(is_name) {
        let reason = "not the name of a protocol".to_owned();
        return Err(BirdError::Refused { protocol: protocol.to_owned(), reason });
    }
    let stream = connect(socket)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let mut lines = BufReader::new(&stream);
    // Its greeting.
    read_answer(&mut lines)?.map_err(io::Error::other)?;
    // A protocol that is down exports nothing, but would name what it might export.
    let refused = |reason| BirdError::Refused { protocol: protocol.to_owned(), reason };
    // For a name it does not know BIRD blames the syntax.
    let no_such = "its configuration has no such protocol".to_owned();
    let state =
        ask(&stream, &mut lines, &format!("show protocols {protocol}"))?.map_err(|reason| {
            refused(if reason.contains("syntax error") { no_such } else { reason })
        })?;
    if let Some(reason) = not_up(&state) {
        return Err(refused(reason));
    }
    let text = ask(&stream, &mut lines, &format!("show route export {protocol} all"))?;
    Ok(parse(&text.map_err(refused)?))
}

fn connect(socket: &Path) -> Result<UnixStream, BirdError> {
    UnixStream::connect(socket).map_err(|source| match source.kind() {
        ErrorKind::PermissionDenied => BirdError::NotAllowed { socket: socket.to_owned() },
        _ => BirdError::NotRunning { socket: socket.to_owned(), source },
    })
}

/// The inner error is a refusal in BIRD's words.
fn ask(
    mut stream: &UnixStream,
    lines: &mut impl BufRead,
    question: &str,
) -> io::Result<Result<Vec<String>, String>> {
    stream.write_all(format!("{question}\n").as_bytes())?;
    read_answer(lines)
}

/// The lines of an answer without their codes; the inner error is a refusal in BIRD's words.
fn read_answer(lines: &mut impl BufRead) -> io::Result<Result<Vec<String>, String>> {
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
fn parse(lines: &[String]) -> Vec<ExportedRoute> {
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
