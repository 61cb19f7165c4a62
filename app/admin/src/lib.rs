//! The admin socket of a node, for its server and its clients: [`api`] lists requests and answers,
//! [`client`] asks a node, [`CaptureTally`] counts what a capture brings.

#![forbid(unsafe_code)]

pub mod api;
pub mod client;
mod home_name;
mod reload;
mod session;
mod subscriber;
mod tally;
mod trace;

pub use home_name::{HomeName, HomeNameError};
pub use tally::CaptureTally;
pub use trace::{TraceStep, TracedPacket};
