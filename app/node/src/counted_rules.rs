//! What each rule has decided: asked of the workers, which count on their own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use weir_admin::api::RuleCount;

use crate::node::Node;
use crate::request::{AskError, RuleCounts, WorkerRequest};

/// Time between two looks for the metrics.
const LOOK: Duration = Duration::from_secs(5);

/// Most rules that have a metric each.
const SERIES_MAX: usize = 1024;

/// The counts that the metrics show.
#[derive(Debug, Default)]
pub(crate) struct CountedRules(Mutex<Vec<RuleCount>>);

impl CountedRules {
    /// Returns the counts of the last look, in the order of the rules; none if there are too many
    /// rules for metrics.
    pub(crate) fn last(&self) -> Vec<RuleCount> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, counts: Vec<RuleCount>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// Looks at the rules for the metrics, as long as the node runs.
pub(crate) async fn look(node: Arc<Node>) {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if !(1..=SERIES_MAX).contains(&node.generations.rules().1.len()) {
            node.counted_rules.set(Vec::new());
        } else if let Ok(counts) = count(&node).await {
            node.counted_rules.set(counts);
        }
        // A worker that does not answer, or a change meanwhile, leaves the last counts.
    }
}

/// Why the rules cannot be counted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CountError {
    #[error(transparent)]
    Worker(AskError),
    #[error("the rules are being changed: ask again")]
    Changing,
}

/// Asks the workers what each rule has decided since its generation came into force.
///
/// # Errors
/// Says which worker does not answer, or that the rules are being changed.
pub(crate) async fn count(node: &Node) -> Result<Vec<RuleCount>, CountError> {
    let (generation, rules) = node.generations.rules();
    let mut counts = RuleCounts { generation, hits: vec![0; rules.len()], is_whole: true };
    for worker in &node.workers {
        let make = |reply| WorkerRequest::RuleHits { counts, reply };
        counts = worker.requester.ask(make).await.map_err(CountError::Worker)?;
    }
    if !counts.is_whole || node.generations.rules().0 != counts.generation {
        return Err(CountError::Changing);
    }
    let counted = rules.iter().zip(counts.hits).map(|(rule, hits_total)| RuleCount {
        rule: rule.name.clone(),
        action: rule.action_word().to_owned(),
        hits_total,
    });
    Ok(counted.collect())
}
