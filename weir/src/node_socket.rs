//! Which node a command asks.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use weir_config::File;
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

    /// The node whose file this is.
    ///
    /// # Errors
    /// When it cannot be read, is not valid or not of a node.
    pub(crate) fn of_file(path: &Path) -> anyhow::Result<Client> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| name.clone())?;
        match weir_config::parse_file(&text, &name) {
            Ok((File::Single(config), _)) => Ok(Client::new(config.node.admin_socket)),
            Ok((File::Member(member), _)) => Ok(Client::new(member.node.admin_socket)),
            Ok((File::Cluster(_), _)) => bail!("{name} is the file of a cluster, not of a node"),
            Err(errors) => {
                bail!("{name} is not valid: {}; see `weir check {name}`", errors[0])
            }
        }
    }
}
