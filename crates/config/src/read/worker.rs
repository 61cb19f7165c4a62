//! `[[worker]]`.

use crate::findings::Findings;
use crate::read::interface;
use crate::section::Section;
use crate::types::Worker;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> Worker {
    let access = section.section("access", "interface", findings);
    let internet = section.section("internet", "interface", findings);
    Worker {
        core: section.integer("core", findings),
        access: interface::read(&access, findings),
        internet: interface::read(&internet, findings),
        rx_descriptors: descriptors(section, "rx_descriptors", findings),
        tx_descriptors: descriptors(section, "tx_descriptors", findings),
    }
}

/// Rings of drivers are powers of two.
fn descriptors(section: &Section<'_>, name: &str, findings: &mut Findings<'_>) -> u16 {
    let count: u16 = section.integer(name, findings);
    if !count.is_power_of_two() {
        let fix = format!("write {}", count.next_power_of_two());
        findings.error(&section.path_of(name), format!("{count} is not a power of two"), fix);
    }
    count
}
