//! `GET /rules`: what each rule has decided, in the order of the rules.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_admin::api::RuleCount;
use weir_process::http::RefusedRequest;
use weir_rules::RuleAction;

use crate::node::Node;
use crate::request::{RuleCounts, WorkerRequest};

pub(super) async fn hits(
    State(node): State<Arc<Node>>,
) -> Result<Json<Vec<RuleCount>>, RefusedRequest> {
    let (generation, rules) = node.generations.rules();
    let mut counts = RuleCounts { generation, hits: vec![0; rules.len()], is_whole: true };
    for worker in &node.workers {
        let make = |reply| WorkerRequest::RuleHits { counts, reply };
        counts = worker.requester.ask(make).await?;
    }
    if !counts.is_whole || node.generations.rules().0 != counts.generation {
        let error = "the rules are being changed: ask again".to_owned();
        return Err(RefusedRequest::new(StatusCode::CONFLICT, error));
    }
    let counted = rules.iter().zip(counts.hits).map(|(rule, hits_total)| RuleCount {
        rule: rule.name.clone(),
        action: match rule.action {
            RuleAction::Accept => "accept",
            RuleAction::Drop => "drop",
            RuleAction::Reject => "reject",
        }
        .to_owned(),
        hits_total,
    });
    Ok(Json(counted.collect()))
}
