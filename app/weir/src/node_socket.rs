//! Finds the node that a command asks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use weir_admin::client::{Client, ClientError, PATIENCE, SOCKET_FOLDER};
use weir_config::ConfigFile;

/// The admin socket, for every command that asks a node.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeSocket {
    /// Admin socket of the node; without it, the only one in /run/weir.
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Give up when the node has said nothing for so many seconds.
    #[arg(
        long, value_name = "SEC", global = true, default_value_t = PATIENCE.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    timeout: u64,
}

impl NodeSocket {
    /// Whether the command line names a socket.
    pub(crate) fn is_given(&self) -> bool {
        self.socket.is_some()
    }

    /// # Errors
    /// When no socket is named and there is not exactly one.
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        let client = match &self.socket {
            Some(path) => Client::new(path.clone()),
            None => Client::find(Path::new(SOCKET_FOLDER))?,
        };
        Ok(self.patient(client))
    }

    fn patient(&self, client: Client) -> Client {
        client.with_patience(Duration::from_secs(self.timeout))
    }

    /// Returns a client of the node whose file this is.
    ///
    /// # Errors
    /// When the file cannot be read, is not valid or not that of a node.
    pub(crate) fn of_file(&self, path: &Path) -> anyhow::Result<Client> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| name.clone())?;
        match weir_config::parse_file(&text, &name) {
            Ok((ConfigFile::Single(config), _)) => {
                Ok(self.patient(Client::new(config.node.admin_socket)))
            }
            Ok((ConfigFile::Member(member), _)) => {
                Ok(self.patient(Client::new(member.node.admin_socket)))
            }
            Ok((ConfigFile::Cluster(_), _)) => {
                bail!("{name} is the file of a cluster, not of a node")
            }
            Err(errors) => {
                bail!("{name} is not valid: {}; see `weir check {name}`", errors[0])
            }
        }
    }
}
