//! Streams between endpoints that a simulated network joins.

mod convergence;
mod copies;
mod hostile;
mod network;
mod sessions;
mod witness;
mod world;
