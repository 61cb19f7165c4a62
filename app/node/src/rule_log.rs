//! The log lines of rules with `log`: asked of the workers, which write no log.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use weir_nat::{
    Endpoint, Endpoint6, FlowEnds, LoggedFlow, LoggedSubscriber, Protocol, RULE_LOG_MAX,
};
use weir_node_core::NamedRule;
use weir_rules::FlowOrigin;

use crate::node::Node;
use crate::request::{RuleLogPage, WorkerRequest};

/// Time between two looks: a worker has room for [`RULE_LOG_MAX`] flows meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// Writes the flows that rules log, as long as the node runs.
pub(crate) async fn look(node: Arc<Node>) {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let (generation, rules) = node.generations.rules();
        if !rules.iter().any(|rule| rule.is_logged) {
            continue;
        }
        for worker in &node.workers {
            let page = RuleLogPage { flows: Vec::with_capacity(RULE_LOG_MAX), lost: 0 };
            let make = |reply| WorkerRequest::RuleLog { page, reply };
            // A worker that does not answer is asked again.
            let Ok(mut page) = worker.requester.ask(make).await else { continue };
            // The numbers of the rules may be those of another generation.
            if node.generations.rules().0 != generation {
                page.lost += page.flows.drain(..).count() as u64;
            }
            page.flows.iter().for_each(|flow| write(flow, &rules));
            if page.lost > 0 {
                let (worker, flows) = (worker.worker, page.lost);
                tracing::warn!(event = "rule-log-lost", worker, flows, "flows of rules with log");
            }
        }
    }
}

fn write(flow: &LoggedFlow, rules: &[NamedRule]) {
    let Some(rule) = rules.get(flow.rule as usize) else { return };
    let from = match flow.origin {
        FlowOrigin::Home => "home",
        FlowOrigin::Internet => "internet",
    };
    let protocol = match (flow.protocol, flow.ends) {
        (Protocol::Tcp, _) => "tcp",
        (Protocol::Udp, _) => "udp",
        (Protocol::Icmp, FlowEnds::Ipv4 { .. }) => "icmp",
        (Protocol::Icmp, FlowEnds::Ipv6 { .. }) => "icmpv6",
    };
    let (subscriber, gre_key) = subscriber(flow.subscriber);
    let (inside, remote) = ends(flow.ends);
    tracing::info!(
        event = "rule-log",
        rule = rule.name,
        action = rule.action_word(),
        from,
        protocol,
        subscriber,
        gre_key,
        inside,
        remote,
        "a rule has decided on a flow"
    );
}

/// Returns the text of a home, and its key if it tells homes apart.
fn subscriber(subscriber: LoggedSubscriber) -> (String, Option<u32>) {
    match subscriber {
        LoggedSubscriber::Address { address, gre_key } => (address.to_string(), gre_key),
        LoggedSubscriber::Prefix { bits, length } => {
            let first = Ipv6Addr::from_bits(u128::from(bits) << 64);
            (format!("{first}/{length}"), None)
        }
    }
}

/// Returns the texts of the inside and the remote endpoint: IPv6 addresses are in brackets.
fn ends(ends: FlowEnds) -> (String, String) {
    let ipv4 = |it: Endpoint| SocketAddrV4::new(Ipv4Addr::from(it.address), it.port).to_string();
    let ipv6 =
        |it: Endpoint6| SocketAddrV6::new(Ipv6Addr::from(it.address), it.port, 0, 0).to_string();
    match ends {
        FlowEnds::Ipv4 { inside, remote } => (ipv4(inside), ipv4(remote)),
        FlowEnds::Ipv6 { inside, remote } => (ipv6(inside), ipv6(remote)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_ipv6_are_in_brackets() {
        let (inside, remote) = (Endpoint::new(0xc0a8_0102, 50_000), Endpoint::new(0x0808_0808, 53));
        let texts = ends(FlowEnds::Ipv4 { inside, remote });
        assert_eq!(texts, ("192.168.1.2:50000".to_owned(), "8.8.8.8:53".to_owned()));
        let inside = Endpoint6::new(0x2001_0db8_1000_0001_0000_0000_0000_0007, 50_000);
        let remote = Endpoint6::new(0x2001_0db8_9000_0000_0000_0000_0000_0001, 443);
        let texts = ends(FlowEnds::Ipv6 { inside, remote });
        let expected = ("[2001:db8:1000:1::7]:50000", "[2001:db8:9000::1]:443");
        assert_eq!((texts.0.as_str(), texts.1.as_str()), expected);
    }

    #[test]
    fn a_home_is_its_address_with_its_key_or_its_prefix() {
        let address = LoggedSubscriber::Address { address: 0x0ac8_0001.into(), gre_key: Some(7) };
        assert_eq!(subscriber(address), ("10.200.0.1".to_owned(), Some(7)));
        let prefix = LoggedSubscriber::Prefix { bits: 0x2001_0db8_1000_0100, length: 56 };
        assert_eq!(subscriber(prefix), ("2001:db8:1000:100::/56".to_owned(), None));
    }
}
