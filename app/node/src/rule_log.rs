//! The log lines of rules with `log`: asked of the workers, which write no log.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use weir_nat::{LoggedFlow, Protocol, RULE_LOG_MAX};
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
    let protocol = match flow.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Icmp => "icmp",
    };
    let at = |address, port| format!("{}:{port}", Ipv4Addr::from(address));
    tracing::info!(
        event = "rule-log",
        rule = rule.name,
        action = rule.action_word(),
        from,
        protocol,
        subscriber = %Ipv4Addr::from(flow.subscriber),
        inside = at(flow.inside.address, flow.inside.port),
        remote = at(flow.remote.address, flow.remote.port),
        "a rule has decided on a flow"
    );
}
