//! The configuration file from outside: text in, values or findings out.

mod address_errors;
mod base;
mod defaults;
mod examples;
mod no_panic;
mod reference;
mod section_errors;
mod shard_errors;
mod value_errors;
mod warnings;
