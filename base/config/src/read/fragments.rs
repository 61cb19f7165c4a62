//! `[fragments]`.

use crate::findings::Findings;
use crate::section::Section;
use crate::types::Fragments;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> Fragments {
    Fragments {
        datagrams_max: section.integer("datagrams_max", findings),
        held_max: section.integer("held_max", findings),
        held_per_datagram_max: section.integer("held_per_datagram_max", findings),
        timeout_sec: section.integer("timeout_sec", findings),
    }
}
