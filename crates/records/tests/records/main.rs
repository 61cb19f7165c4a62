//! The block log from outside: workers hand in events, a search over the files answers.

mod folder;
mod replay;
mod trouble;
mod writing;
