//! Which node a command asks.

use std::path::{Path, PathBuf};

use weir_node::client::{Client, ClientError, SOCKET_FOLDER};

/// The admin socket, for every command that asks a node.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeSocket {
    /// Admin socket of the node; without it, the only one in /run/weir.
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
}

impl NodeSocket {
    /// Whether the command line names one.
    pub(crate) fn is_given(&self) -> bool {
        self.socket.is_some()
    }

    /// # Errors
    /// When none is named and there is not exactly one.
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        match &self.socket {
            Some(path) => Ok(Client::new(path.clone())),
            None => Client::find(Path::new(SOCKET_FOLDER)),
        }
    }
}
