//! From the document to values: each section's types, ranges and formats. What values mean together is checked after.

mod access;
pub(crate) mod address;
mod fragments;
mod interface;
mod nat;
mod node;
mod shard;
mod timeouts;
mod worker;

use toml::de::DeTable;

use crate::findings::Findings;
use crate::section::Section;
use crate::types::Config;

/// Reads the whole document. The result counts only if there are no errors.
pub(crate) fn config(document: &DeTable<'_>, findings: &mut Findings<'_>) -> Config {
    let root = Section::new("", String::new(), Some(document), findings);
    let node = node::read(&root.section("node", "node", findings), findings);
    let workers: Vec<_> = root
        .sections("worker", "worker", findings)
        .iter()
        .map(|section| worker::read(section, findings))
        .collect();
    let access = access::read(&root.section("access", "access", findings), findings);
    let nat = nat::read(&root.section("nat", "nat", findings), access.mode, findings);
    let timeouts = timeouts::read(&root.section("timeouts", "timeouts", findings), findings);
    let fragments = fragments::read(&root.section("fragments", "fragments", findings), findings);
    let sections = root.sections("shard", "shard", findings);
    let shards = sections
        .iter()
        .enumerate()
        .map(|(index, section)| shard::read(section, index, &workers, findings))
        .collect();
    Config { node, workers, access, nat, timeouts, fragments, shards }
}
