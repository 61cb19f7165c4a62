//! The block log from outside: workers hand in events, a search over the files answers.

mod cluster;
mod files;
mod folder;
mod histories;
mod lane_world;
mod node_log;
mod prefixes;
mod replay;
mod trouble;
mod writing;
