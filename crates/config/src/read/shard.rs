//! `[[shard]]`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::findings::Findings;
use crate::read::address;
use crate::section::Section;
use crate::types::{Shard, Worker};

/// `index`: the shard's position in the file.
pub(crate) fn read(
    section: &Section<'_>,
    index: usize,
    workers: &[Worker],
    findings: &mut Findings<'_>,
) -> Shard {
    Shard {
        id: section.integer("id", findings),
        endpoint: endpoint(section, findings),
        subscribers: address::prefixes(section, "subscribers", findings),
        public: address::prefixes(section, "public", findings),
        subscribers_max: section.integer("subscribers_max", findings),
        worker: owner(section, index, workers, findings),
    }
}

fn endpoint(section: &Section<'_>, findings: &mut Findings<'_>) -> Option<Ipv4Addr> {
    let text = section.text("endpoint", findings, |text| text.parse::<Ipv4Addr>().is_ok())?;
    let endpoint: Ipv4Addr = text.parse().ok()?;
    if let Some(kind) = address::special(endpoint.into()) {
        let message = format!("{endpoint} is {kind}");
        findings.error(&section.path_of("endpoint"), message, "use a unicast address");
    }
    Some(endpoint)
}

/// The worker on the core the file names; else the shards go round the workers.
fn owner(
    section: &Section<'_>,
    index: usize,
    workers: &[Worker],
    findings: &mut Findings<'_>,
) -> usize {
    let round_robin = index % workers.len().max(1);
    let Some(core) = section.optional_integer::<usize>("worker", findings) else {
        return round_robin;
    };
    workers.iter().position(|worker| worker.core == core).unwrap_or_else(|| {
        let cores: BTreeSet<_> = workers.iter().map(|worker| worker.core).collect();
        let cores: Vec<_> = cores.iter().map(ToString::to_string).collect();
        let fix = format!("cores with a worker: {}", cores.join(", "));
        findings.error(&section.path_of("worker"), format!("no worker has core {core}"), fix);
        round_robin
    })
}
