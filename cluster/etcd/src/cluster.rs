//! The thread for etcd, and the clients that it serves.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::{Builder, Handle, Runtime};
use weir_ids::NodeId;

use crate::contact::Contact;
use crate::counters::Counts;
use crate::election::{Election, LeaderRecord};
use crate::error::Error;
use crate::keys::{KeyRange, Keys};
use crate::options::{EtcdOptions, OptionsError};
use crate::owner::Mirror;
use crate::revision::HistoryPosition;
use crate::session::{NodeRecord, NodeSession, registration};
use crate::store::Store;
use crate::tasks::{Commands, Tasks};
use crate::transport::read_tls;

/// Access to one cluster's keys, on a thread of its own. Sessions, elections and mirrors end with
/// it.
#[derive(Debug)]
pub struct EtcdCluster {
    options: EtcdOptions,
    contact: Arc<Contact>,
    commands: Commands,
    /// Taken on drop.
    runtime: Option<Runtime>,
}

impl EtcdCluster {
    /// Starts the thread; does not wait for etcd. `on_thread_start` runs first on each thread made
    /// here, to keep it off the cores of workers.
    ///
    /// # Errors
    /// All errors in the options, or a file of TLS or of the password that cannot be read.
    pub fn start(
        options: EtcdOptions,
        on_thread_start: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Vec<OptionsError>> {
        options.check()?;
        if let Some(files) = &options.tls {
            read_tls(files).map_err(|error| vec![error])?;
        }
        if let Some(user) = &options.user {
            user.password.read().map_err(|error| vec![error.into()])?;
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            // For name look-ups.
            .max_blocking_threads(1)
            .thread_name("etcd")
            .on_thread_start(on_thread_start)
            .enable_all()
            .build()
            .map_err(|error| vec![OptionsError::Thread(error.to_string())])?;
        let contact = Contact::new(Instant::now());
        let (commands, receiver) = Commands::new();
        let tasks = Tasks::new(options.clone(), Arc::clone(&contact));
        runtime.spawn(tasks.run(receiver));
        Ok(Self { options, contact, commands, runtime: Some(runtime) })
    }

    /// Registers a node.
    pub fn session(&self, name: NodeId, record: &NodeRecord) -> NodeSession {
        self.session_after(name, record, Vec::new())
    }

    /// Registers a node whose processes of these boot ids have certainly ended: their key is taken
    /// over without waiting for the end of their lease.
    pub fn session_after(
        &self,
        name: NodeId,
        record: &NodeRecord,
        ended: Vec<String>,
    ) -> NodeSession {
        let registration = registration(&self.options, name, record, ended, Instant::now());
        NodeSession::open(self.commands.clone(), &self.options, registration)
    }

    /// Stands for election.
    pub fn election(&self, record: &LeaderRecord) -> Election {
        Election::open(self.commands.clone(), &self.options, record)
    }

    /// Mirrors a range. `seen` is the last position that an earlier process stored: it reveals an
    /// etcd restored since.
    pub fn mirror(&self, range: KeyRange, seen: Option<HistoryPosition>) -> Mirror {
        Mirror::open(self.commands.clone(), &self.options, range, seen)
    }

    /// Returns access to single keys.
    pub fn store(&self) -> Store {
        let keys = Keys::new(self.options.cluster.clone());
        let contact = Arc::clone(&self.contact);
        Store::new(self.commands.clone(), keys, self.options.keys_max, contact)
    }

    /// Returns the options, for a client with a link of its own.
    pub fn options(&self) -> &EtcdOptions {
        &self.options
    }

    /// Returns the counters that the links of this process share.
    pub fn contact(&self) -> &Arc<Contact> {
        &self.contact
    }

    /// Returns the current counters.
    pub fn counts(&self) -> Counts {
        self.contact.counts(Instant::now())
    }

    /// Returns the last failure, if nothing has succeeded since.
    pub fn last_error(&self) -> Option<Error> {
        self.contact.last_error()
    }

    /// Returns a handle to run the owner's tasks on this thread.
    pub fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("the runtime is taken only on drop").handle()
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // This works inside another runtime too, where waiting would panic.
            runtime.shutdown_background();
        }
    }
}
