//! Reads the source tree as text and fails on what its rules do not allow. See the crate's
//! documentation.

mod documents;
mod lengths;
mod licences;
mod source;
mod specification;
mod test_modules;
mod tiers;
mod type_names;
mod words;
