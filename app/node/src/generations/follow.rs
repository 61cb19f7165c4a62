//! Takes what is applied to the cluster.

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use weir_admin::api::SettingsSource;
use weir_config::{Desired, MemberFile, difference};

use super::build;
use crate::node::Node;

/// Cluster settings and their revision, from the roles thread.
#[derive(Debug)]
pub(crate) struct AppliedSettings {
    pub number: u64,
    pub desired: Box<Desired>,
}

/// The roles thread's end and that of [`follow`].
pub(crate) fn applied_settings()
-> (UnboundedSender<AppliedSettings>, UnboundedReceiver<AppliedSettings>) {
    unbounded_channel()
}

/// Takes the settings of the cluster, one generation after the other, until the roles thread ends.
/// `desired`: those that the node began with.
pub(crate) async fn follow(
    node: Arc<Node>,
    member: MemberFile,
    mut desired: Desired,
    mut applied: UnboundedReceiver<AppliedSettings>,
) {
    while let Some(mut next) = applied.recv().await {
        // Those in between have been replaced already.
        while let Ok(newer) = applied.try_recv() {
            next = newer;
        }
        let AppliedSettings { number, desired: new } = next;
        let changes = difference(&desired, &new).len();
        let generations = &node.generations;
        match build(&generations.built_for, new.config_of(&member, []), number).await {
            Ok(built) => {
                let source = SettingsSource::Cluster(new.to_json());
                generations.take(&node.workers, number, built, source).await;
                let for_restart = generations.status().for_restart.join("; ");
                tracing::info!(
                    event = "generation-taken",
                    number,
                    changes,
                    for_restart,
                    "settings are in force"
                );
                desired = *new;
            }
            Err(why) => generations.note_refused(&why),
        }
    }
}
