//! Takes the settings of a single node from its file again.

use std::path::PathBuf;

use tokio::sync::Mutex;
use weir_admin::api::{Reload, ReloadChange, ReloadOutcome, SettingsSource};
use weir_config::{Config, ConfigFile, Diagnostic, SettingChange, node_difference};
use weir_nat::NeedsRestart;

use super::{BuiltGeneration, Generations, build};
use crate::node::WorkerHandle;
use crate::single_node::{SingleNode, keep};

/// The file of a single node, and what is in force of it.
#[derive(Debug)]
pub(super) struct ReloadedFile {
    path: PathBuf,
    /// The settings of the start, for which the tables were built.
    start: Config,
    /// Held while a reload is under way.
    in_force: Mutex<Config>,
}

impl ReloadedFile {
    pub(super) fn new(single: &SingleNode) -> Self {
        let start = single.config.clone();
        let path = single.texts.path.clone();
        Self { path, in_force: Mutex::new(start.clone()), start }
    }

    /// Reads the file and compares it with what is in force.
    ///
    /// # Errors
    /// All errors of the file.
    fn read(&self, in_force: &Config) -> Result<ReadFile, Vec<String>> {
        let name = self.path.display().to_string();
        let text = std::fs::read_to_string(&self.path)
            .map_err(|error| vec![format!("{name}: {error}")])?;
        let words = |findings: Vec<Diagnostic>| -> Vec<String> {
            findings.iter().map(ToString::to_string).collect()
        };
        let (file, warnings) = weir_config::parse_file(&text, &name).map_err(words)?;
        let ConfigFile::Single(config) = file else {
            return Err(vec![format!("{name}: this is not the file of a single node any more")]);
        };
        let single = SingleNode::new(*config, warnings, &self.path, text).map_err(words)?;
        let changes = node_difference(&self.start, in_force, &single.config);
        Ok(ReadFile { single, changes })
    }
}

/// A valid file.
struct ReadFile {
    single: SingleNode,
    changes: Vec<SettingChange>,
}

impl ReadFile {
    /// Returns why a running node cannot take the file.
    fn obstacles(&self, may_strand: bool) -> Vec<String> {
        let obstacle = |change: &SettingChange| {
            let SettingChange { subject, effect, .. } = change;
            match change.is_for_restarts {
                true => Some(format!("{subject} needs a restart of the node")),
                false if effect.is_stranding() && !may_strand => {
                    Some(format!("{subject} {effect}: only with --force"))
                }
                false => None,
            }
        };
        self.changes.iter().filter_map(obstacle).collect()
    }
}

/// How a file is to be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReloadWish {
    /// Change nothing.
    pub is_dry_run: bool,
    /// Although live flows end by it.
    pub may_strand: bool,
}

impl Generations {
    /// Takes the node's file, as a whole or not at all. `None`: the settings of the node are those
    /// of its cluster.
    pub(crate) async fn reload(
        &self,
        workers: &[WorkerHandle],
        wish: ReloadWish,
    ) -> Option<Reload> {
        let file = self.file.as_ref()?;
        let mut in_force = file.in_force.lock().await;
        let mut answer = Reload {
            outcome: ReloadOutcome::Refused,
            generation: self.number(),
            errors: Vec::new(),
            warnings: Vec::new(),
            changes: Vec::new(),
            lagging: Vec::new(),
        };
        let read = match file.read(&in_force) {
            Ok(read) => read,
            Err(errors) => return Some(self.refused(Reload { errors, ..answer }, wish)),
        };
        answer.changes = read.changes.iter().map(shown).collect();
        answer.errors = read.obstacles(wish.may_strand);
        let single = read.single;
        answer.warnings = single.warnings.iter().map(ToString::to_string).collect();
        if !answer.errors.is_empty() {
            return Some(self.refused(answer, wish));
        }
        if answer.changes.is_empty() {
            if !wish.is_dry_run {
                self.state().refused = None;
            }
            let (outcome, lagging) = (ReloadOutcome::Unchanged, self.lagging(workers));
            return Some(Reload { outcome, lagging, ..answer });
        }
        let next = self.number() + 1;
        let built = match build(&self.built_for, single.config.clone(), next).await {
            Ok(built) if built.left.is_empty() => built,
            Ok(BuiltGeneration { left, .. }) => {
                let needs =
                    |left: &NeedsRestart| format!("nat.{}: {left}: needs a restart", left.key());
                answer.errors = left.iter().map(needs).collect();
                return Some(self.refused(answer, wish));
            }
            Err(error) => {
                answer.errors = vec![error];
                return Some(self.refused(answer, wish));
            }
        };
        if wish.is_dry_run {
            return Some(Reload { outcome: ReloadOutcome::WouldApply, ..answer });
        }
        let changes = answer.changes.len();
        let source = SettingsSource::File(single.texts.clone());
        let lagging = self.take(workers, next, built, source).await;
        tracing::info!(event = "generation-taken", number = next, changes, "settings are in force");
        *in_force = single.config;
        // The disk may be slow.
        let texts = single.texts;
        let _kept = tokio::task::spawn_blocking(move || keep(&texts)).await;
        Some(Reload { outcome: ReloadOutcome::Applied, generation: next, lagging, ..answer })
    }

    fn refused(&self, answer: Reload, wish: ReloadWish) -> Reload {
        if !wish.is_dry_run {
            self.note_refused(&answer.errors.join("; "));
        }
        answer
    }
}

fn shown(change: &SettingChange) -> ReloadChange {
    ReloadChange {
        subject: change.subject.clone(),
        what: change.what.clone(),
        effect: change.effect.to_string(),
        is_stranding: change.effect.is_stranding(),
        needs_restart: change.is_for_restarts,
    }
}
