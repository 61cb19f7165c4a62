//! Orders: the checks before one is given, and the keys that it writes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use weir_etcd::{Error, Key, KeyRange, Outcome, Store, Swap, SwapChange};
use weir_map::{BootId, NodeId, ShardId};

use super::map::{ShardLine, lines};
use super::words;
use crate::records::{
    Control, DrainOrder, EventRecord, FenceOrder, FreezeOrder, Intent, OrderAuthor,
};
use crate::state::{CUT_OFF, View};

/// Attempts to write an order while other writers interfere.
pub(super) const TRIES: usize = 5;

/// Why an order was not given.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    #[error(transparent)]
    Etcd(#[from] Error),
    #[error("others wrote at the same time, {TRIES} times: try again")]
    Busy,
    #[error("there is no node {node}; there are: {known}")]
    NoNode { node: String, known: String },
    #[error(
        "draining {node} would leave too few nodes, {left}, for {copies} copies of each shard, so shards \
         would lose their second copy. Start or undrain another node first, or accept it with --force"
    )]
    TooFewNodes { node: String, left: usize, copies: usize },
    #[error(
        "{0} is the only node that can hold shards: there is nowhere to move them. Start another node"
    )]
    LastNode(String),
    #[error(
        "{0} is registered, so it runs. A fence gives its ports to others, and two nodes would use \
         them. Stop the node or cut its power, wait until its lease has ended (10 s), then fence it; \
         to empty a node that runs, `weir drain {0}`"
    )]
    StillRegistered(String),
    #[error(
        "{node} may still run: {why}. A fence gives its ports to others, and two nodes would use \
         them. Cut its power first; --force if you have"
    )]
    MayRun { node: String, why: String },
    #[error(
        "shard {0} is still desired, so it would come back at once. Take it out of the cluster file \
         and `weir apply` first"
    )]
    StillDesired(u32),
    #[error(
        "there is no shard {shard}, so nothing was written; served, and not in the cluster file: {known}"
    )]
    NoShard { shard: u32, known: String },
    #[error("no cluster file has been applied: `weir apply` the cluster file first")]
    NothingDesired,
    #[error("the key `{0}` was written by a newer version of weir: use that version")]
    Newer(&'static str),
    #[error("the file is of cluster {file}, and these are the keys of cluster {keys}")]
    OtherCluster { file: String, keys: String },
    #[error(
        "live flows would end by {0} of these changes, so nothing was written; accept it with --force"
    )]
    Strands(usize),
    #[error(
        "what is wanted now cannot be read ({0}), so nobody can say which flows would end, and nothing was \
         written; accept it with --force"
    )]
    Unreadable(String),
    #[error(
        "{by} has applied another cluster file meanwhile, so nothing was written; run it again to see what \
         this one changes now"
    )]
    Outrun { by: String },
}

/// A source of orders: an operator, or a node that orders something for itself.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(super) store: Store,
    pub(super) by: String,
}

impl Operator {
    /// Creates an operator; `by` is the name that orders and events will show.
    pub fn new(store: Store, by: &str) -> Self {
        Self { store, by: by.to_owned() }
    }

    /// Orders the node to be emptied, and to stay empty until [`undrain`](Self::undrain).
    ///
    /// # Errors
    /// When shards would be left with fewer copies than wanted (`force` accepts that), or no other
    /// node can take them.
    pub async fn drain(&self, node: &NodeId, force: bool, at_ms: u64) -> Result<(), OperateError> {
        self.intend(node, |view, intent| {
            let id = known(view, node)?;
            if intent.drain.is_none() || force {
                check_room(view, &id, force)?;
                intent.drain = Some(DrainOrder { order: self.order(at_ms), force });
            }
            Ok(Vec::new())
        })
        .await
    }

    /// Lets the node hold shards again.
    ///
    /// # Errors
    /// When etcd could not be written.
    pub async fn undrain(&self, node: &NodeId) -> Result<(), OperateError> {
        self.intend(node, |_, intent| {
            intent.drain = None;
            Ok(Vec::new())
        })
        .await
    }

    /// True if there is no order to drain the node.
    ///
    /// # Errors
    /// When etcd could not be read.
    pub async fn is_undrained(&self, node: &NodeId) -> Result<bool, OperateError> {
        let held = self.store.get(&Key::Intent(node.clone())).await?;
        let intent = held.and_then(|held| serde_json::from_slice::<Intent>(&held.value).ok());
        Ok(intent.is_none_or(|intent| intent.drain.is_none()))
    }

    /// States that every incarnation of the node that a shard names has certainly ended. Returns
    /// the number of these incarnations.
    ///
    /// # Errors
    /// When the node is registered; or when it may still run according to the leader's report, and
    /// `force` is not set.
    pub async fn fence(
        &self,
        node: &NodeId,
        force: bool,
        at_ms: u64,
    ) -> Result<usize, OperateError> {
        let mut count = 0;
        self.intend(node, |view, intent| {
            let id = known(view, node)?;
            if view.nodes.contains_key(&id) {
                return Err(OperateError::StillRegistered(node.to_string()));
            }
            check_silence(view, &id, force)?;
            let boot_ids = lives_of(view, &id);
            count = boot_ids.len();
            if count > 0 {
                let boot_ids = boot_ids.into_iter().collect();
                intent.fence = Some(FenceOrder { order: self.order(at_ms), boot_ids });
            }
            // The order is not given if the node registers meanwhile.
            Ok(vec![Swap {
                key: Key::Node(node.clone()),
                expected: None,
                change: SwapChange::Keep,
            }])
        })
        .await?;
        Ok(count)
    }

    /// States that these incarnations of the node's own workers have ended and move no packet. The
    /// node calls this as its last action. The statement counts once the node is not registered.
    ///
    /// # Errors
    /// When etcd could not be written.
    pub async fn declare_ended(
        &self,
        node: &NodeId,
        boot_ids: &[BootId],
        at_ms: u64,
    ) -> Result<(), OperateError> {
        self.intend(node, |_, intent| {
            let (order, boot_ids) = (self.order(at_ms), boot_ids.to_vec());
            intent.fence = Some(FenceOrder { order, boot_ids });
            Ok(Vec::new())
        })
        .await
    }

    /// Forbids moving, copying or retiring anything until [`unfreeze`](Self::unfreeze).
    ///
    /// # Errors
    /// When etcd could not be written.
    pub async fn freeze(&self, why: &str, at_ms: u64) -> Result<(), OperateError> {
        self.control(|_, control| {
            if !control.freeze.as_ref().is_some_and(|freeze| freeze.is_total) {
                let (order, why) = (self.order(at_ms), why.to_owned());
                control.freeze = Some(FreezeOrder { order, why, is_total: false });
            }
            Ok(())
        })
        .await
    }

    /// Takes a freeze back, also a total one.
    ///
    /// # Errors
    /// When etcd could not be written.
    pub async fn unfreeze(&self) -> Result<(), OperateError> {
        self.control(|_, control| {
            control.freeze = None;
            Ok(())
        })
        .await
    }

    /// Orders a rebalance at once, without waiting for the imbalance to last.
    ///
    /// # Errors
    /// When etcd could not be written.
    pub async fn rebalance(&self, at_ms: u64) -> Result<(), OperateError> {
        self.control(|_, control| {
            control.rebalance = Some(self.order(at_ms));
            Ok(())
        })
        .await
    }

    /// Orders that shards in doubt continue with the newest entries that nodes hold, although a
    /// node that has not answered may have seen newer ones. A shard is in doubt when nodes have
    /// seen a newer entry of it than etcd holds.
    ///
    /// # Errors
    /// When etcd could not be written.
    pub async fn rebase(&self, at_ms: u64) -> Result<(), OperateError> {
        self.control(|_, control| {
            control.rebase = Some(self.order(at_ms));
            Ok(())
        })
        .await
    }

    /// Orders the entries of these shards to be deleted: their flows end.
    ///
    /// # Errors
    /// When one of them is still desired, or does not exist.
    pub async fn retire(&self, shards: &[u32]) -> Result<(), OperateError> {
        self.control(|view, control| {
            let desired = view.desired.as_ref().ok_or(OperateError::NothingDesired)?;
            let desired = desired.value.as_ref().ok_or(OperateError::Newer("desired"))?;
            if let Some(&id) = shards.iter().find(|id| desired.has(**id)) {
                return Err(OperateError::StillDesired(id));
            }
            let is_there = |id: &&u32| view.shards.contains_key(&ShardId(**id));
            if let Some(&shard) = shards.iter().find(|id| !is_there(id)) {
                let leftover = view.shards.keys().map(|id| id.0).filter(|id| !desired.has(*id));
                let known = words::ids(&leftover.collect::<Vec<_>>(), ", ");
                let known = if known.is_empty() { "none".to_owned() } else { known };
                return Err(OperateError::NoShard { shard, known });
            }
            control.retire.extend(shards);
            control.retire.sort_unstable();
            control.retire.dedup();
            Ok(())
        })
        .await
    }

    /// Returns every shard that exists or is desired, ordered by number.
    ///
    /// # Errors
    /// When etcd could not be read.
    pub async fn shards(&self) -> Result<Vec<ShardLine>, OperateError> {
        Ok(lines(&self.look().await?))
    }

    /// Returns the last events, oldest first.
    ///
    /// # Errors
    /// When etcd could not be read.
    pub async fn events(&self) -> Result<Vec<EventRecord>, OperateError> {
        let (_, found) = self.store.list(KeyRange::Events).await?;
        let events = found.iter().filter_map(|(_, held)| serde_json::from_slice(&held.value).ok());
        let mut events: Vec<EventRecord> = events.collect();
        events.sort_by_key(|event| event.number);
        Ok(events)
    }

    /// Returns the last events about `node`, oldest first.
    ///
    /// # Errors
    /// When neither an event nor the cluster knows the node, or etcd could not be read.
    pub async fn events_of(&self, node: &NodeId) -> Result<Vec<EventRecord>, OperateError> {
        let mut events = self.events().await?;
        events.retain(|event| event.node.as_deref() == Some(node.as_str()));
        if events.is_empty() {
            known(&self.look().await?, node)?;
        }
        Ok(events)
    }

    /// Reads every key, at one revision.
    pub(super) async fn look(&self) -> Result<View, OperateError> {
        Ok(View::of(&self.store.list(KeyRange::All).await?.1))
    }

    pub(super) fn order(&self, at_ms: u64) -> OrderAuthor {
        OrderAuthor { by: self.by.clone(), at_ms }
    }

    async fn intend(
        &self,
        node: &NodeId,
        mut change: impl FnMut(&View, &mut Intent) -> Result<Vec<Swap>, OperateError>,
    ) -> Result<(), OperateError> {
        let key = Key::Intent(node.clone());
        self.write(key, |view| {
            let held = view.intents.get(node);
            let mut intent = match held {
                Some(held) => held.value.clone().ok_or(OperateError::Newer("intents"))?,
                None => Intent::default(),
            };
            let before = intent.clone();
            let conditions = change(view, &mut intent)?;
            if intent == before {
                return Ok(None);
            }
            let is_empty = intent.is_empty();
            Ok(Some((if is_empty { SwapChange::Delete } else { put(&intent) }, conditions)))
        })
        .await
    }

    async fn control(
        &self,
        change: impl Fn(&View, &mut Control) -> Result<(), OperateError>,
    ) -> Result<(), OperateError> {
        self.write(Key::Control, |view| {
            // An unreadable value is replaced: it would freeze everything as long as it stays.
            let mut control = view.control().unwrap_or_default();
            change(view, &mut control)?;
            Ok(Some((put(&control), Vec::new())))
        })
        .await
    }

    /// Reads, decides and writes, and starts over when another writer was faster. A write of
    /// unknown outcome is an error: giving an order twice does no harm.
    async fn write(
        &self,
        key: Key,
        mut decide: impl FnMut(&View) -> Result<Option<(SwapChange, Vec<Swap>)>, OperateError>,
    ) -> Result<(), OperateError> {
        for _ in 0..TRIES {
            let view = self.look().await?;
            let Some((change, conditions)) = decide(&view)? else { return Ok(()) };
            let expected = view.revision(&key);
            if expected.is_none() && change == SwapChange::Delete {
                return Ok(());
            }
            let mut swaps = vec![Swap { key: key.clone(), expected, change }];
            swaps.extend(conditions);
            match self.store.transact(&swaps, None).await {
                Outcome::Done(_) => return Ok(()),
                Outcome::LostRace(_) | Outcome::NotLeader => {}
                Outcome::Unavailable(error) | Outcome::Unknown(error) | Outcome::Refused(error) => {
                    return Err(error.into());
                }
            }
        }
        Err(OperateError::Busy)
    }
}

pub(super) fn put(value: &impl Serialize) -> SwapChange {
    SwapChange::Put(serde_json::to_vec(value).expect("texts and numbers serialize to JSON"))
}

/// Returns the node if it is registered, named by a shard, or has orders.
fn known(view: &View, node: &NodeId) -> Result<NodeId, OperateError> {
    let members = view.entries().flat_map(|(_, entry)| entry.members());
    let named = members.map(|member| &member.incarnation.worker.node);
    let missing = missing(view);
    let all: BTreeSet<&NodeId> =
        view.nodes.keys().chain(view.intents.keys()).chain(named).chain(missing.keys()).collect();
    if all.contains(node) {
        return Ok(node.clone());
    }
    let known: Vec<&str> = all.iter().map(|node| node.as_str()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(OperateError::NoNode { node: node.to_string(), known })
}

/// Checks that enough nodes stay to hold all copies.
fn check_room(view: &View, drained: &NodeId, force: bool) -> Result<(), OperateError> {
    let is_open = |node: &&NodeId| {
        let is_drained = view.intent(node).is_some_and(|intent| intent.drain.is_some());
        *node != drained && !is_drained
    };
    let left = view.nodes.keys().filter(is_open).count();
    let copies = 1 + view.desired().map_or(0, |it| usize::from(it.cluster.replicas.min(4)));
    match left {
        0 => Err(OperateError::LastNode(drained.to_string())),
        _ if left < copies && !force => {
            Err(OperateError::TooFewNodes { node: drained.to_string(), left, copies })
        }
        _ => Ok(()),
    }
}

/// Checks that the leader reports the node as dead or fenced, so no peer hears it.
fn check_silence(view: &View, node: &NodeId, force: bool) -> Result<(), OperateError> {
    let report = view.report.as_ref().and_then(|held| held.value.as_ref());
    let seen = report.and_then(|it| it.nodes.iter().find(|seen| seen.node == node.as_str()));
    let why = match seen {
        Some(seen) if ["alive", CUT_OFF, "stopping", "suspect"].contains(&seen.life.as_str()) => {
            seen.why.clone()
        }
        Some(_) => return Ok(()),
        None => "no controller has seen it gone".to_owned(),
    };
    if force { Ok(()) } else { Err(OperateError::MayRun { node: node.to_string(), why }) }
}

fn lives_of(view: &View, node: &NodeId) -> BTreeSet<BootId> {
    let members = view.entries().flat_map(|(_, entry)| entry.members());
    let lives = members.filter(|member| member.incarnation.worker.node == *node);
    let mut lives: BTreeSet<BootId> = lives.map(|member| member.incarnation.boot_id).collect();
    lives.extend(missing(view).remove(node).unwrap_or_default());
    lives
}

/// Returns the incarnations that the leader reports as missing: only entries that etcd has
/// forgotten name them.
fn missing(view: &View) -> BTreeMap<NodeId, Vec<BootId>> {
    let report = view.report.as_ref().and_then(|held| held.value.as_ref());
    let missing = report.into_iter().flat_map(|report| &report.missing);
    missing.filter_map(|(node, lives)| Some((NodeId::new(node).ok()?, lives.clone()))).collect()
}
