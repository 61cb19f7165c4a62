//! HTTP/1 for the listeners of a process: a bounded number of connections, each with bounded times
//! and sizes.

mod connection;
mod limits;
mod listen;
mod peer;
mod problem;
mod refusals;
mod server;
mod table;
mod text_server;
mod timed_stream;

pub use limits::ListenerLimits;
pub use listen::{in_format, listen};
pub use peer::PeerUser;
pub use problem::RefusedRequest;
pub use refusals::{ConnectionRefusal, HttpNumbers, ListenerNumbers};
pub use server::Server;
pub use table::ConnectionRemote;
pub(crate) use text_server::serve_text;
