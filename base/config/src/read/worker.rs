//! `[[worker]]`.

use std::net::Ipv4Addr;

use crate::file_kind::FileKind;
use crate::findings::Findings;
use crate::read::interface;
use crate::section::Section;
use crate::types::WorkerSettings;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> WorkerSettings {
    let access = section.section("access", "interface", findings);
    let internet = section.section("internet", "interface", findings);
    let access = interface::read(&access, findings);
    let own = access.address.addr();
    let (weight, shards_max, load_max, replication_address) = match section.file() {
        FileKind::Member => (
            section.integer("weight", findings),
            section.integer("shards_max", findings),
            section.optional_integer("load_max", findings),
            replication_address(section, findings).unwrap_or(own),
        ),
        _ => (0, 0, None, own),
    };
    WorkerSettings {
        core: section.integer("core", findings),
        access,
        internet: interface::read(&internet, findings),
        rx_descriptors: descriptors(section, "rx_descriptors", findings),
        tx_descriptors: descriptors(section, "tx_descriptors", findings),
        weight,
        shards_max,
        load_max,
        replication_address,
    }
}

fn replication_address(section: &Section<'_>, findings: &mut Findings<'_>) -> Option<Ipv4Addr> {
    const NAME: &str = "replication_address";
    let text = section.text(NAME, findings, |text| text.parse::<Ipv4Addr>().is_ok())?;
    text.parse().ok()
}

/// Reads a number of descriptors: rings of drivers have a power of two.
fn descriptors(section: &Section<'_>, name: &str, findings: &mut Findings<'_>) -> u16 {
    let count: u16 = section.integer(name, findings);
    if !count.is_power_of_two() {
        let fix = format!("write {}", count.next_power_of_two());
        findings.error(&section.path_of(name), format!("{count} is not a power of two"), fix);
    }
    count
}
