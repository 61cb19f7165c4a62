//! The home's end of a connection: its request to the server, and how it detects a broken
//! connection.

use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::clock::Clock;
use super::content::{Content, Sender};
use super::ip_version::IpVersion;
use super::ledger::{Ledger, Pattern};
use super::server_address::ServerAddress;

/// Bytes of the greeting, with which a home requests a task.
pub(super) const GREETING_LEN: usize = 16;
/// Bytes of a question, and of an answer.
pub(super) const MESSAGE_LEN: usize = 100;
/// A connection that receives nothing for this time, though it should, is broken.
pub(super) const SILENCE: Duration = Duration::from_secs(12);
/// Questions of a short connection, and the time between them.
const SHORT_QUESTIONS: usize = 3;
const SHORT_INTERVAL: Duration = Duration::from_millis(100);

/// The server's task on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Answer each question.
    Answer,
    /// Send this many bytes at each interval.
    Send { bytes: u32, interval: Duration },
}

impl Task {
    /// Returns the greeting that requests this task.
    pub(super) fn greeting(self, number: u32) -> [u8; GREETING_LEN] {
        let (bytes, interval) = match self {
            Task::Answer => (0, Duration::ZERO),
            Task::Send { bytes, interval } => (bytes, interval),
        };
        let mut greeting = [0; GREETING_LEN];
        greeting[..4].copy_from_slice(&number.to_be_bytes());
        greeting[4..8].copy_from_slice(&bytes.to_be_bytes());
        greeting[8..].copy_from_slice(&(interval.as_micros() as u64).to_be_bytes());
        greeting
    }

    /// Returns the number of the connection and the requested task.
    pub(super) fn from_greeting(greeting: [u8; GREETING_LEN]) -> Result<(u32, Self)> {
        let word = |at: usize| {
            u32::from_be_bytes([greeting[at], greeting[at + 1], greeting[at + 2], greeting[at + 3]])
        };
        let micros = u64::from(word(8)) << 32 | u64::from(word(12));
        let task = match word(4) {
            0 => Task::Answer,
            1_000_001.. => bail!("too much asked for"),
            bytes => Task::Send { bytes, interval: Duration::from_micros(micros) },
        };
        Ok((word(0), task))
    }
}

/// State shared by all connections.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    /// Number of calls to idle connections so far.
    pub(super) calls: watch::Receiver<u64>,
    pub(super) server: ServerAddress,
}

impl Shared {
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection from its start to its end, recorded in the ledger.
pub(super) struct Client {
    pub(super) shared: Shared,
    pub(super) number: u32,
    pub(super) pattern: Pattern,
    pub(super) task: Task,
    /// Address of the home.
    pub(super) local: IpAddr,
    /// Time between two questions.
    pub(super) interval: Duration,
}

impl Client {
    /// Runs the connection to its end. Returns whether it was closed as intended.
    pub(super) async fn live(mut self) -> bool {
        let begun = self.shared.clock.now();
        let stream = match timeout(SILENCE, self.connect()).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(_)) | Err(_) => {
                self.shared.ledger().unopened(begun, self.local.into());
                return false;
            }
        };
        let ended = self.talk(stream).await;
        let now = self.shared.clock.now();
        match &ended {
            Ok(()) => self.shared.ledger().closed(self.number, now),
            Err(error) => self.shared.ledger().broke(self.number, now, &cause(error)),
        }
        ended.is_ok()
    }

    /// Opens a connection from the home's address. It counts as established at the end of the
    /// home's TCP handshake.
    async fn connect(&self) -> Result<TcpStream, Error> {
        let version = IpVersion::from(self.local);
        let socket = match version {
            IpVersion::V4 => TcpSocket::new_v4()?,
            IpVersion::V6 => TcpSocket::new_v6()?,
        };
        socket.bind(SocketAddr::new(self.local, 0))?;
        let mut stream = socket.connect(self.shared.server.reached_from(self.local)).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&self.task.greeting(self.number)).await?;
        let now = self.shared.clock.now();
        self.shared.ledger().established(self.number, self.pattern, version, now);
        Ok(stream)
    }

    async fn talk(&mut self, stream: TcpStream) -> Result<(), Error> {
        if let Task::Send { .. } = self.task {
            return self.listen(stream).await;
        }
        let mut dialogue = Dialogue {
            stream,
            to_server: Content::of(self.number, Sender::Home),
            from_server: Content::of(self.number, Sender::Server),
        };
        let mut asked = 0;
        loop {
            match self.pattern {
                Pattern::Short if asked == SHORT_QUESTIONS => {
                    dialogue.stream.shutdown().await?;
                    return Ok(());
                }
                Pattern::Short => sleep(SHORT_INTERVAL).await,
                // The server never ends a connection, so only a break can be seen meanwhile.
                Pattern::Idle if asked > 0 => {
                    dialogue.silent_until(self.shared.calls.changed()).await?;
                }
                Pattern::Idle => {}
                Pattern::Dialogue | Pattern::Download => {
                    dialogue.silent_until(sleep(self.interval)).await?;
                }
            }
            within(SILENCE, dialogue.ask()).await?;
            asked += 1;
            self.good();
        }
    }

    async fn listen(&self, mut stream: TcpStream) -> Result<(), Error> {
        let mut content = Content::of(self.number, Sender::Server);
        let mut buffer = vec![0; 16_384];
        loop {
            let len = within(SILENCE, stream.read(&mut buffer)).await?;
            if len == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            content.check(&buffer[..len]).map_err(|_| wrong_bytes())?;
            self.good();
        }
    }

    fn good(&self) {
        self.shared.ledger().good(self.number, self.shared.clock.now());
    }
}

struct Dialogue {
    stream: TcpStream,
    to_server: Content,
    from_server: Content,
}

impl Dialogue {
    async fn ask(&mut self) -> Result<(), Error> {
        let mut message = [0; MESSAGE_LEN];
        self.to_server.fill(&mut message);
        self.stream.write_all(&message).await?;
        self.stream.read_exact(&mut message).await?;
        self.from_server.check(&message).map_err(|_| wrong_bytes())
    }

    /// Waits for `end`; fails if the connection ends or receives anything meanwhile.
    async fn silent_until<T>(&mut self, end: impl Future<Output = T>) -> Result<(), Error> {
        let mut byte = [0];
        tokio::select! {
            _ = end => Ok(()),
            read = self.stream.read(&mut byte) => match read? {
                0 => Err(ErrorKind::UnexpectedEof.into()),
                _ => Err(wrong_bytes()),
            },
        }
    }
}

async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout(time, work).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

fn wrong_bytes() -> Error {
    ErrorKind::InvalidData.into()
}

fn cause(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionReset => "reset".into(),
        ErrorKind::UnexpectedEof => "ended by the server".into(),
        ErrorKind::InvalidData => "wrong bytes".into(),
        ErrorKind::TimedOut => "no answer".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_carries_number_and_task() {
        for task in
            [Task::Answer, Task::Send { bytes: 1_000, interval: Duration::from_millis(250) }]
        {
            assert_eq!(Task::from_greeting(task.greeting(77)).unwrap(), (77, task));
        }
        let greedy = Task::Send { bytes: u32::MAX, interval: Duration::ZERO };
        assert!(Task::from_greeting(greedy.greeting(1)).is_err());
    }
}
