//! The files as a user of the crate sees them: text in, values or findings out.

mod address_errors;
mod base;
mod bypass;
mod classes;
mod cluster_file;
mod collectors;
mod commit;
mod defaults;
mod desired;
mod difference;
mod examples;
mod member_file;
mod no_panic;
mod node_difference;
mod nodes_together;
mod policy;
mod policy_limits;
mod public;
mod redirect_rules;
mod reference;
mod relative_paths;
mod section_errors;
mod shard_errors;
mod source_pools;
mod value_errors;
mod warnings;
