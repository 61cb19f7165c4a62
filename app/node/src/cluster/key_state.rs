//! The cluster keys in use, as the roles thread knows them.

use weir_replication::WorkerCommand;
use weir_stream::ClusterKeys;

use super::thread_member::WorkerLink;

/// Names of the keys, and the result of the last reload.
#[derive(Debug)]
pub(super) struct KeyState {
    /// The sending key comes first.
    pub names: Vec<String>,
    /// Reason why the last read of the key file was refused.
    pub error: Option<String>,
}

impl KeyState {
    pub(super) fn new(keys: &ClusterKeys) -> Self {
        Self { names: keys.names(), error: None }
    }

    /// Takes the result of a reload: sends the keys to all workers, whose sessions with peers
    /// switch to them. A refused file changes nothing at the workers.
    pub(super) fn take(&mut self, keys: Result<ClusterKeys, String>, links: &[WorkerLink]) {
        match keys {
            Ok(keys) => {
                self.names = keys.names();
                self.error = None;
                links.iter().for_each(|link| link.command(WorkerCommand::SetKeys(keys.clone())));
            }
            Err(error) => self.error = Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(digits: &str) -> ClusterKeys {
        ClusterKeys::parse(&digits.repeat(32)).unwrap()
    }

    #[test]
    fn keys_go_to_every_worker_and_a_refused_file_leaves_the_former_ones() {
        let (links, commands): (Vec<_>, Vec<_>) = (0..2).map(|_| WorkerLink::for_test()).unzip();
        let mut state = KeyState::new(&keys("5a"));
        state.take(Err("mode 0644".into()), &links);
        assert_eq!(state.names, keys("5a").names());
        assert_eq!(state.error.as_deref(), Some("mode 0644"));
        assert!(commands.iter().all(|commands| commands.try_recv().is_err()), "no command is sent");
        state.take(Ok(keys("c3")), &links);
        assert_eq!((state.names, state.error), (keys("c3").names(), None));
        for commands in commands {
            let Ok(WorkerCommand::SetKeys(given)) = commands.try_recv() else { panic!("no keys") };
            assert_eq!(given.names(), keys("c3").names());
            assert!(commands.try_recv().is_err());
        }
    }
}
