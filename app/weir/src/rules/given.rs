//! What a rule gives the flows that it lets begin, in words.

use std::net::Ipv4Addr;

use weir_config::RedirectSetting;
use weir_policy::{CompiledPolicy, FlowQuestion};
use weir_rules::{Destination, FlowPolicy};

/// Names of a class and a source pool, and a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GivenWords<'p> {
    pub(super) class: Option<&'p str>,
    pub(super) source_pool: Option<&'p str>,
    /// Address and port; no port if it stays.
    destination: Option<(Ipv4Addr, Option<u16>)>,
}

impl<'p> GivenWords<'p> {
    pub(super) fn of(policy: &'p CompiledPolicy, given: FlowPolicy) -> Self {
        Self::new(
            policy.class_name(given.class),
            policy.source_pool_name(given.source),
            given.destination,
        )
    }

    pub(super) fn new(
        class: Option<&'p str>,
        source_pool: Option<&'p str>,
        destination: Option<Destination>,
    ) -> Self {
        let destination = destination.map(|it| (it.address.into(), it.port));
        Self { class, source_pool, destination }
    }

    /// Returns the destination as the file has it.
    pub(super) fn destination(&self) -> Option<String> {
        self.destination.map(|(address, port)| RedirectSetting { address, port }.to_string())
    }

    /// Returns where the packets of a flow go in place of their own destination.
    pub(super) fn destination_of(&self, flow: &FlowQuestion) -> Option<String> {
        self.destination.map(|(address, port)| {
            let stays = Some(flow.remote_port).filter(|_| flow.has_ports());
            RedirectSetting { address, port: port.or(stays) }.to_string()
        })
    }

    /// Returns a part of a sentence behind the verdict: empty, or beginning with a space.
    pub(super) fn phrase(&self) -> String {
        phrase(self.destination().as_deref(), self.class, self.source_pool)
    }
}

/// Returns what a rule gives as a part of a sentence behind its action.
pub(super) fn phrase(to: Option<&str>, class: Option<&str>, pool: Option<&str>) -> String {
    let parts = [(" to ", to), (" in class ", class), (" from source pool ", pool)];
    let given = parts.into_iter().filter_map(|(word, name)| Some([word, name?]));
    given.flatten().collect()
}
