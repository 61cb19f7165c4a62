//! Nodes that start while the store is unreachable: they take copies from members that know them as
//! another incarnation of a member.

use weir_map::*;
use weir_roles::role::{RoleEvent, RoleMachine, RoleOptions};

use crate::cluster::{Cluster, NODES};

/// A mistake of such a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The node takes the member slot of its former incarnation.
    ResumesUnasked,
    /// The node goes on with the copies that it has, whatever entry names it.
    KeepsCopies,
}

/// Returns the same entry, with another incarnation of a member.
fn with_life(entry: &ShardEntry, former: BootId, boot_id: BootId) -> ShardEntry {
    let text = entry.to_json().replace(&former.to_string(), &boot_id.to_string());
    ShardEntry::from_json(text.as_bytes()).expect("an entry")
}

impl Cluster {
    pub(crate) fn is_guest(&self, node: usize) -> bool {
        self.nodes[node].machine.as_ref().is_some_and(RoleMachine::is_guest)
    }

    /// True if the store knows only former incarnations of the node.
    pub(crate) fn is_unknown(&self, node: usize) -> bool {
        self.is_guest(node) && !self.nodes[node].has_joined
    }

    /// Restarts the process with the newest entry that it has obeyed.
    pub(crate) fn start_without_store(&mut self, node: usize) {
        let Some(entry) = self.nodes[node].disk.clone().filter(|_| !self.was_set_back()) else {
            return;
        };
        self.start(node);
        self.nodes[node].has_joined = false;
        let me = self.running(node).expect("started");
        let Some(host) = entry.host_of(&me).map(|host| host.incarnation.clone()) else { return };
        if self.wrong == Some(Wrong::ResumesUnasked) {
            let resumed = with_life(&entry, host.boot_id, me.boot_id);
            self.handle_event(node, RoleEvent::Entry(Box::new(resumed)));
        }
        self.handle_event(node, RoleEvent::Guest(Box::new(entry)));
    }

    /// Makes the node known to the store; the node hears of every change, one after another.
    pub(crate) fn join(&mut self, node: usize) {
        self.nodes[node].has_joined = true;
        for index in 0..self.history.len() {
            if self.is_guest(node) {
                self.deliver_to_guest(node, self.history[index].clone());
            }
        }
    }

    /// True if a member takes a guest for one of its own entry, and the guest knows the member.
    fn gives_to(&self, giver: usize, guest: usize) -> bool {
        let (Some(giver), Some(guest)) = (&self.nodes[giver].machine, &self.nodes[guest].machine)
        else {
            return false;
        };
        let me = giver.incarnation();
        let is_member = |it: &ShardEntry| it.member(me).is_some();
        let gives = |it: &ShardEntry| is_member(it) && it.host_of(guest.incarnation()).is_some();
        !giver.is_guest()
            && giver.entry().is_some_and(gives)
            && guest.is_guest()
            && guest.stored_entry().is_some_and(is_member)
    }

    /// Returns the nodes that receive records of this writer without being members.
    pub(crate) fn guests_of(&self, writer: usize) -> Vec<usize> {
        (0..NODES).filter(|&node| self.gives_to(writer, node)).collect()
    }

    /// Copies all that a member has to a guest.
    pub(crate) fn copy_to_guest(&mut self, giver: usize, guest: usize) {
        if !self.gives_to(giver, guest) {
            return;
        }
        for lane in 0..LANES {
            let copy = self.knowledge.of(giver, lane);
            self.knowledge.learn(guest, lane, copy);
        }
        self.handle_event(guest, RoleEvent::CopyDone);
        self.seen.guests += 1;
    }

    /// Delivers an entry to a guest, as a node's roles take it.
    pub(crate) fn deliver_to_guest(&mut self, node: usize, entry: ShardEntry) {
        let Some(machine) = &self.nodes[node].machine else { return };
        let held = machine.stored_entry().map(ShardEntry::epoch);
        if self.is_unknown(node) || held >= Some(entry.epoch()) {
            return;
        }
        let me = machine.incarnation().clone();
        let keeps = machine.keeps_copies_under(&entry) || self.wrong == Some(Wrong::KeepsCopies);
        if entry.host_of(&me).is_some() {
            return self.handle_event(node, RoleEvent::Guest(Box::new(entry)));
        }
        if keeps {
            self.seen.guests_that_stayed += 1;
        } else {
            self.seen.guests_that_forgot += 1;
            self.knowledge.forget(node);
            let anew = RoleMachine::new(me, RoleOptions::default());
            self.nodes[node].machine = Some(anew);
        }
        self.handle_event(node, RoleEvent::Entry(Box::new(entry)));
    }

    /// True if this node may not know more than a lane's writer: a member, or a guest whose former
    /// incarnation is one. A guest that has registered hears of the entry soon, or forgets its
    /// copies.
    pub(crate) fn is_to_be_asked(&self, node: usize) -> bool {
        let Some(running) = self.running(node) else { return false };
        let newest = self.newest();
        if self.is_guest(node) {
            return newest.host_of(&running).is_some();
        }
        newest.member(&running).is_some()
    }
}
