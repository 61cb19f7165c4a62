//! The ends of a claim and of a mirror that their owners on other threads hold.

use tokio::sync::{mpsc, watch};

use crate::claim::Claim;
use crate::claim::state::{ClaimEvent, HeldKey};
use crate::error::Error;
use crate::keys::KeyRange;
use crate::mirror::event::MirrorEvent;
use crate::options::EtcdOptions;
use crate::revision::HistoryPosition;
use crate::tasks::{Commands, TaskCommand};

/// Owns a claim. The claim ends when this is dropped; its lease then expires.
#[derive(Debug)]
pub(crate) struct ClaimOwner {
    number: u64,
    commands: Commands,
    events: mpsc::Receiver<ClaimEvent>,
    held: watch::Receiver<Option<HeldKey>>,
}

impl ClaimOwner {
    pub(crate) fn open(commands: Commands, options: &EtcdOptions, claim: Claim) -> Self {
        let (events_sender, events) = mpsc::channel(options.queue_len);
        let (held_sender, held) = watch::channel(None);
        let number = commands.next_number();
        let claim = Box::new(claim);
        commands.send(TaskCommand::Claim {
            number,
            claim,
            events: events_sender,
            held: held_sender,
        });
        Self { number, commands, events, held }
    }

    pub(crate) async fn next_event(&mut self) -> Option<ClaimEvent> {
        self.events.recv().await
    }

    /// Returns the key, if it is held. The caller must compare `valid_until` with the clock.
    pub(crate) fn held(&self) -> Option<HeldKey> {
        *self.held.borrow()
    }

    /// Replaces the value; it is written at the next opportunity.
    pub(crate) fn replace(&self, value: Vec<u8>) {
        self.commands.send(TaskCommand::Replace { number: self.number, value });
    }

    /// Gives the key up at once.
    ///
    /// # Errors
    /// When the lease could not be revoked; the key then goes when the lease ends.
    pub(crate) async fn close(self) -> Result<(), Error> {
        self.commands.revoke(self.number).await
    }
}

impl Drop for ClaimOwner {
    fn drop(&mut self) {
        self.commands.send(TaskCommand::End(self.number));
    }
}

/// A copy of a range of keys, reported as events. Ends when dropped.
///
/// An owner that does not take its events holds the mirror up: etcd then retains further changes,
/// and if it compacts them, everything is listed again. So memory is bounded by one list and the
/// queue.
#[derive(Debug)]
pub struct Mirror {
    number: u64,
    events: mpsc::Receiver<MirrorEvent>,
    commands: Commands,
}

impl Mirror {
    pub(crate) fn open(
        commands: Commands,
        options: &EtcdOptions,
        range: KeyRange,
        seen: Option<HistoryPosition>,
    ) -> Self {
        let (sender, events) = mpsc::channel(options.queue_len);
        let number = commands.next_number();
        commands.send(TaskCommand::Mirror { number, range, seen, events: sender });
        Self { number, events, commands }
    }

    /// Returns the next event. Cancel safe.
    pub async fn next_event(&mut self) -> Option<MirrorEvent> {
        self.events.recv().await
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.commands.send(TaskCommand::End(self.number));
    }
}
