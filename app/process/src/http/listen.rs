//! The listening socket and the answers of a metrics address.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use tokio::net::TcpSocket;

use crate::scrape_format::ScrapeFormat;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Sets the listener's backlog to 1024, room for the connections of some hundred milliseconds of a
/// flood: the client's kernel would retry a connection that finds no room only seconds later. The
/// standard library asks for 128.
///
/// # Errors
/// When the runtime cannot take the socket. Must be called inside the runtime.
pub fn listen(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    let socket = TcpStream::from(OwnedFd::from(listener));
    TcpSocket::from_std_stream(socket).listen(BACKLOG)
}

/// Returns the OpenMetrics text in the format that the headers of the request ask for.
pub fn in_format(headers: &HeaderMap, open_metrics: String) -> impl IntoResponse + use<> {
    let format = ScrapeFormat::asked_for(headers);
    ([(CONTENT_TYPE, format.content_type())], format.of(open_metrics))
}
