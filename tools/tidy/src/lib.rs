//! What must hold of the source tree itself. All of it is tests, in `tests/tidy`:
//!
//! - `tiers`: a crate uses crates of its own tier and of lower ones, and ARCHITECTURE.md names
//!   every crate;
//! - `documents`: links and quoted paths in documents lead to files;
//! - `lengths`: columns of a comment, lines of a file and of a function, with the exceptions that
//!   are listed there;
//! - `licences`: what weir is built from has a licence that binds its users to nothing;
//! - `words`: openings and pronouns that comments do not use;
//! - `specification`: every promise of SPECIFICATION.md names a test that exists, and so does the
//!   list of fuzz targets.

#![forbid(unsafe_code)]
