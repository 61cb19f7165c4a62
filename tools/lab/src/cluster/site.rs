//! The restart of a whole site while etcd is away.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;

use super::lab::ClusterLab;
use super::node::ClusterNode;
use crate::condition::wait_for;

/// Time until a node reports when it opens its shards, and until all are open, the quarantine not
/// counted.
const DEADLINE: Duration = Duration::from_secs(120);

impl ClusterLab {
    /// Kills etcd and all nodes at once. The nodes restart without etcd; returns when every shard
    /// has a primary.
    ///
    /// # Errors
    /// When a shard has a primary before the quarantine can have ended, when no node reports when
    /// it opens, or when a shard gets no primary.
    pub fn restart_without_store(&self) -> Result<()> {
        let quarantine = self.options.quarantine()?;
        let starts: Vec<u32> = self.nodes.iter().map(|node| node.weir.starts()).collect();
        self.control()?.kill_store()?;
        let killed = Instant::now();
        self.nodes.iter().try_for_each(|node| node.weir.signal(Signal::SIGKILL))?;
        for (node, starts) in self.nodes.iter().zip(starts) {
            node.wait_ready(starts)?;
        }
        let mut opened = None;
        let mut primaries = || {
            let primaries: usize = self.nodes.iter().filter_map(ClusterNode::primaries).sum();
            if primaries > 0 {
                opened.get_or_insert(killed.elapsed());
            }
            primaries
        };
        // One node is enough: a node need not be a member of any shard.
        wait_for("a node that says when it opens", DEADLINE, || {
            let shows_opening = |node: &ClusterNode| {
                let status = node.cli(&["status"]).ok()?;
                status.stdout.contains("it makes new flows in").then_some(())
            };
            primaries();
            self.nodes.iter().find_map(shows_opening)
        })?;
        let shards = usize::from(self.options.shards);
        wait_for("a primary of every shard, without etcd", quarantine + DEADLINE, || {
            (primaries() == shards).then_some(())
        })?;
        let opened = opened.unwrap_or_default();
        ensure!(opened >= quarantine, "a shard is open {opened:?} after the kill: ports must rest");
        Ok(())
    }

    /// Starts etcd again; returns when all nodes are registered, every shard has its copies and
    /// `weir cluster status` says OK.
    ///
    /// # Errors
    /// When one of these conditions is not met in time.
    pub fn regain_store(&self) -> Result<()> {
        self.control()?.restart_store()?;
        // Until the nodes register, the map names their previous incarnations: it looks whole
        // before and after.
        self.nodes.iter().try_for_each(ClusterNode::wait_registered)?;
        self.wait_whole()?;
        self.wait_ok()
    }
}
