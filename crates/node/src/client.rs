//! The asking side of the admin API, for the commands: one request per connection on the Unix socket.

use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use crate::api::Problem;

/// Where admin sockets are when none is named.
pub const SOCKET_FOLDER: &str = "/run/weir";

/// Speaks to one node.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
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
    /// The node's own words.
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
        Self { socket }
    }

    /// The one socket in `folder`; of several, the one that is not left over from a killed process.
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
    ///
    /// # Errors
    /// When the node does not answer with 200, or the connection breaks.
    pub fn stream(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> io::Result<ControlFlow<()>>,
    ) -> Result<(), ClientError> {
        block_on(async {
            let mut response = self.send(Method::GET, path).await?;
            loop {
                let frame = tokio::select! {
                    frame = response.frame() => frame,
                    _ = tokio::signal::ctrl_c() => return Ok(()),
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
            read_whole(response).await
        })
    }

    async fn send(&self, method: Method, path: &str) -> Result<Response<Incoming>, ClientError> {
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

/// The answer to one request, if it is 200.
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

/// A socket file that no process listens on.
fn is_left_over(path: &Path) -> bool {
    let connected = std::os::unix::net::UnixStream::connect(path);
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// A value for a query string: what is not unreserved (RFC 3986 section 2.3) as percent and hexadecimal.
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
    fn a_socket_left_over_does_not_stand_in_the_way() {
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
    fn a_cause_is_told_once() {
        let error = Client::new("/nonexistent.sock".into()).get_text("/status").unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
        assert!(std::error::Error::source(&error).is_none());
    }

    /// What one who is no weir may answer: pieces of HTTP in any order.
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
            // Nobody answers before it was asked.
            let _ = theirs.read(&mut asked).await;
            let _ = theirs.write_all(&answer).await;
            let _ = theirs.shutdown().await;
        });
        read_whole(exchange(ours, Method::GET, "/status").await?).await
    }

    /// Whatever answers, there is an answer or a sentence for people.
    #[test]
    fn answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(words, any)| {
            let words = words.iter().map(|word| WORDS[usize::from(*word) % WORDS.len()]);
            let answer = words.take(12).collect::<String>().into_bytes();
            for answer in [[&answer, &any[..]].concat(), [&any[..], &answer].concat()] {
                let refused = runtime.block_on(async {
                    let patience = std::time::Duration::from_secs(20);
                    tokio::time::timeout(patience, ask(answer)).await.expect("an end").err()
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
