//! The client of the admin API, for the commands: one request per connection on the Unix socket.

use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use crate::api::Problem;

/// Folder of the admin sockets if none is named.
pub const SOCKET_FOLDER: &str = "/run/weir";
/// Longest silence of a node that a client waits for, unless it asks for another: a node gives a
/// worker five seconds to answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A client of one node.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no node runs on this machine: {folder} has no socket (name one with --socket)")]
    NoSocket { folder: PathBuf },
    #[error("several nodes run on this machine, choose one with --socket: {found}")]
    SeveralSockets { found: String },
    #[error("{socket}: no weir process answers ({reason})")]
    Connect { socket: PathBuf, reason: io::Error },
    #[error("{socket}: {reason} (you must be root or in the socket's group)")]
    NotAllowed { socket: PathBuf, reason: io::Error },
    #[error(
        "{socket}: the node has said nothing for {seconds} s: its process stands still, or the machine is overloaded \
         (--timeout SEC waits longer)"
    )]
    Silent { socket: PathBuf, seconds: u64 },
    /// The error text of the node.
    #[error("{error}")]
    Refused { code: u16, error: String },
    #[error("the connection to the node broke: {0}")]
    Broken(String),
    #[error("the node's answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Client {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, patience: PATIENCE }
    }

    /// Returns the same client with another longest silence of the node.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns the longest silence of the node that is waited for.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Finds the one socket in `folder`; if there are several, sockets left over from killed
    /// processes do not count.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub fn find(folder: &Path) -> Result<Self, ClientError> {
        let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        found.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
        found.sort();
        if found.len() > 1 && found.iter().any(|path| !is_left_over(path)) {
            found.retain(|path| !is_left_over(path));
        }
        match found.len() {
            0 => Err(ClientError::NoSocket { folder: folder.into() }),
            1 => Ok(Self::new(found.remove(0))),
            _ => {
                let names: Vec<String> =
                    found.iter().map(|path| path.display().to_string()).collect();
                Err(ClientError::SeveralSockets { found: names.join(", ") })
            }
        }
    }

    /// # Errors
    /// When the node does not answer with 200 and a `T`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.whole(Method::GET, path).and_then(|body| Ok(serde_json::from_slice(&body)?))
    }

    /// # Errors
    /// When the node does not answer with 200 and a `T`.
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.whole(Method::POST, path).and_then(|body| Ok(serde_json::from_slice(&body)?))
    }

    /// # Errors
    /// When the node does not answer with 200 and text.
    pub fn get_text(&self, path: &str) -> Result<String, ClientError> {
        let body = self.whole(Method::GET, path)?;
        String::from_utf8(body).map_err(|error| ClientError::Broken(error.to_string()))
    }

    /// Hands over the answer piece by piece, until it ends, `take` breaks or SIGINT comes.
    /// `silence_max`: longest time between two pieces; none for an answer that is silent as long as
    /// nothing happens.
    ///
    /// # Errors
    /// When the node does not answer with 200, the connection breaks, or the node is silent for too
    /// long.
    pub fn stream(
        &self,
        path: &str,
        silence_max: Option<Duration>,
        mut take: impl FnMut(&[u8]) -> io::Result<ControlFlow<()>>,
    ) -> Result<(), ClientError> {
        block_on(async {
            let mut response = self.send(Method::GET, path).await?;
            loop {
                let silence = async {
                    match silence_max {
                        Some(time) => tokio::time::sleep(time).await,
                        None => std::future::pending().await,
                    }
                };
                let frame = tokio::select! {
                    frame = response.frame() => frame,
                    _ = tokio::signal::ctrl_c() => return Ok(()),
                    () = silence => return Err(self.silent(silence_max.unwrap_or_default())),
                };
                let Some(frame) = frame else { return Ok(()) };
                let frame = frame.map_err(|error| ClientError::Broken(error.to_string()))?;
                if let Some(bytes) = frame.data_ref() {
                    if take(bytes)?.is_break() {
                        return Ok(());
                    }
                }
            }
        })
    }

    fn whole(&self, method: Method, path: &str) -> Result<Vec<u8>, ClientError> {
        block_on(async {
            let response = self.send(method, path).await?;
            self.within_patience(read_whole(response)).await
        })
    }

    async fn send(&self, method: Method, path: &str) -> Result<Response<Incoming>, ClientError> {
        self.within_patience(self.ask(method, path)).await
    }

    async fn within_patience<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let answer = tokio::time::timeout(self.patience, answer).await;
        answer.unwrap_or_else(|_| Err(self.silent(self.patience)))
    }

    fn silent(&self, time: Duration) -> ClientError {
        ClientError::Silent { socket: self.socket.clone(), seconds: time.as_secs() }
    }

    async fn ask(&self, method: Method, path: &str) -> Result<Response<Incoming>, ClientError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|reason| {
            let socket = self.socket.clone();
            match reason.kind() {
                io::ErrorKind::PermissionDenied => ClientError::NotAllowed { socket, reason },
                _ => ClientError::Connect { socket, reason },
            }
        })?;
        exchange(stream, method, path).await
    }
}

/// Sends one request and returns the answer if it is 200.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    method: Method,
    path: &str,
) -> Result<Response<Incoming>, ClientError> {
    let broken = |error: hyper::Error| ClientError::Broken(error.to_string());
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    let uri: Uri = path.parse().map_err(|_| ClientError::Broken(format!("bad path {path}")))?;
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::HOST, "weir")
        .body(Empty::<Bytes>::new())
        .map_err(|error| ClientError::Broken(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(broken)?;
    let code = response.status();
    if code == StatusCode::OK {
        return Ok(response);
    }
    let body = read_whole(response).await?;
    let error = serde_json::from_slice::<Problem>(&body)
        .map_or_else(|_| String::from_utf8_lossy(&body).into_owned(), |problem| problem.error);
    let error = if error.is_empty() { format!("the node answered {code}") } else { error };
    Err(ClientError::Refused { code: code.as_u16(), error })
}

async fn read_whole(response: Response<Incoming>) -> Result<Vec<u8>, ClientError> {
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| ClientError::Broken(error.to_string()))?;
    Ok(body.to_bytes().to_vec())
}

fn block_on<T>(future: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

/// True if no process listens on a socket file. Does not wait for a process that accepts no
/// connections.
fn is_left_over(path: &Path) -> bool {
    let connected = block_on(async { Ok(UnixStream::connect(path).await?) });
    connected.is_err_and(|error| match error {
        ClientError::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        _ => false,
    })
}

/// Encodes a value for a query string: bytes that are not unreserved (RFC 3986 section 2.3) become
/// a percent sign and two hexadecimal digits.
pub fn query_value(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[test]
    fn the_one_socket_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let find = || Client::find(folder.path());
        assert!(matches!(find(), Err(ClientError::NoSocket { .. })));
        std::fs::write(folder.path().join("n1.sock"), "").unwrap();
        std::fs::write(folder.path().join("notes.txt"), "").unwrap();
        assert!(find().unwrap().socket.ends_with("n1.sock"));
        std::fs::write(folder.path().join("n2.sock"), "").unwrap();
        assert!(matches!(find(), Err(ClientError::SeveralSockets { .. })));
        assert!(matches!(
            Client::find(Path::new("/nonexistent")),
            Err(ClientError::NoSocket { .. })
        ));
    }

    #[test]
    fn a_left_over_socket_is_ignored_if_another_node_runs() {
        let folder = tempfile::tempdir().unwrap();
        let listen = |name| UnixListener::bind(folder.path().join(name)).unwrap();
        drop(listen("n1.sock"));
        let _running = listen("n2.sock");
        assert!(Client::find(folder.path()).unwrap().socket.ends_with("n2.sock"));
        drop(listen("n0.sock"));
        assert!(Client::find(folder.path()).unwrap().socket.ends_with("n2.sock"));
        let _second = listen("n3.sock");
        let error = Client::find(folder.path()).unwrap_err().to_string();
        assert!(error.contains("n2.sock") && error.contains("n3.sock"), "{error}");
        assert!(!error.contains("n1.sock"), "{error}");
    }

    #[test]
    fn a_node_that_takes_a_connection_and_never_answers_is_given_up_with_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.sock");
        // The kernel accepts connections for this listener.
        let _listener = UnixListener::bind(&path).unwrap();
        let client = Client::new(path).with_patience(Duration::from_millis(20));
        let errors = [
            client.get_text("/metrics").unwrap_err(),
            client.post::<()>("/subscriber/10.200.0.1/flush").unwrap_err(),
            client.stream("/capture", None, |_| unreachable!()).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, ClientError::Silent { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("n1.sock: the node has said nothing for"), "{text}");
        }
    }

    #[test]
    fn an_answer_that_stops_half_way_is_given_up_unless_it_may_be_silent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let node = std::thread::spawn(move || {
            let mut streams = Vec::new();
            for (mut stream, _) in std::iter::repeat_with(|| listener.accept().unwrap()).take(2) {
                // An answer before its request would not count.
                assert!(io::Read::read(&mut stream, &mut [0; 1024]).unwrap() > 0);
                let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
                io::Write::write_all(&mut stream, head).unwrap();
                streams.push(stream);
            }
            streams
        });
        let client = Client::new(path);
        let mut pieces = 0;
        let silence_max = Some(Duration::from_millis(20));
        let silent = client.stream("/sessions", silence_max, |_| {
            pieces += 1;
            Ok(ControlFlow::Continue(()))
        });
        assert!(matches!(silent, Err(ClientError::Silent { .. })), "{silent:?}");
        let client = client.with_patience(Duration::from_millis(500));
        let silent = client.get_text("/metrics").unwrap_err();
        assert!(matches!(silent, ClientError::Silent { .. }), "{silent:?}");
        assert_eq!(pieces, 1);
        node.join().unwrap();
    }

    #[test]
    fn a_cause_appears_once_in_the_error() {
        let error = Client::new("/nonexistent.sock".into()).get_text("/status").unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
        assert!(std::error::Error::source(&error).is_none());
    }

    /// Pieces of HTTP, in any order, that a server other than weir may answer with.
    const WORDS: [&str; 20] = [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 404 Not Found\r\n",
        "HTTP/1.0 500 \r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n",
        "HTTP/1.1 204 No Content\r\n",
        "Content-Length: 2\r\n",
        "Content-Length: 18446744073709551615\r\n",
        "Content-Length: -1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "\r\n",
        "\n",
        "{}",
        "[]",
        "{\"error\":\"\"}",
        "{\"error\":\"no\"}",
        "2\r\n{}\r\n",
        "0\r\n\r\n",
        "fffffffffffffffff\r\n",
    ];

    async fn ask(answer: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        let (ours, mut theirs) = duplex(64 << 10);
        tokio::spawn(async move {
            let mut asked = [0; 1024];
            // The server answers only after a request.
            let _ = theirs.read(&mut asked).await;
            let _ = theirs.write_all(&answer).await;
            let _ = theirs.shutdown().await;
        });
        read_whole(exchange(ours, Method::GET, "/status").await?).await
    }

    /// Whatever the server answers, the client returns an answer or a readable error.
    #[test]
    fn answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(words, any)| {
            let words = words.iter().map(|word| WORDS[usize::from(*word) % WORDS.len()]);
            let answer = words.take(12).collect::<String>().into_bytes();
            for answer in [[&answer, &any[..]].concat(), [&any[..], &answer].concat()] {
                let refused = runtime.block_on(async {
                    let patience = Duration::from_secs(20);
                    tokio::time::timeout(patience, ask(answer)).await.expect("ends in time").err()
                });
                let Some(error) = refused else { continue };
                assert!(!error.to_string().is_empty(), "{error:?}");
                assert!(!matches!(error, ClientError::Refused { code: 200, .. }));
            }
        });
    }

    #[test]
    fn query_values_are_escaped() {
        assert_eq!(query_value("udp port 53&x"), "udp%20port%2053%26x");
    }
}
