//! The end of a claim that its owner on another thread has.

use tokio::sync::{mpsc, watch};

use crate::claim::Claim;
use crate::claim::state::{ClaimEvent, Held};
use crate::error::Error;
use crate::options::Options;
use crate::tasks::{Command, Commands};

/// The claim ends when this is dropped; its lease then ends by itself.
#[derive(Debug)]
pub(crate) struct ClaimOwner {
    number: u64,
    commands: Commands,
    events: mpsc::Receiver<ClaimEvent>,
    held: watch::Receiver<Option<Held>>,
}

impl ClaimOwner {
    pub(crate) fn open(commands: Commands, options: &Options, claim: Claim) -> Self {
        let (events_sender, events) = mpsc::channel(options.queue_len);
        let (held_sender, held) = watch::channel(None);
        let number = commands.next_number();
        let claim = Box::new(claim);
        commands.send(Command::Claim { number, claim, events: events_sender, held: held_sender });
        Self { number, commands, events, held }
    }

    pub(crate) async fn next_event(&mut self) -> Option<ClaimEvent> {
        self.events.recv().await
    }

    /// The key, if it is ours. It is up to the caller to compare `valid_until` with the clock.
    pub(crate) fn held(&self) -> Option<Held> {
        *self.held.borrow()
    }

    /// Writes another value at the next occasion.
    pub(crate) fn replace(&self, value: Vec<u8>) {
        self.commands.send(Command::Replace { number: self.number, value });
    }

    /// Gives the key up at once.
    ///
    /// # Errors
    /// When etcd could not be told; the key then goes when the lease ends.
    pub(crate) async fn close(self) -> Result<(), Error> {
        self.commands.revoke(self.number).await
    }
}

impl Drop for ClaimOwner {
    fn drop(&mut self) {
        self.commands.send(Command::End(self.number));
    }
}
