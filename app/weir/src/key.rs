//! `weir key`: the secret that the nodes of a cluster share.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Subcommand;
use nix::unistd::{Uid, User, geteuid};
use weir_stream::ClusterKeys;

use crate::etcd::random;

/// The user of the packaged services.
const SERVICE_USER: &str = "weir";

/// Make the key that all nodes of a cluster share.
///
/// Workers authenticate and encrypt the copies of their flows with it. Every node needs the same
/// one, in the file that `[cluster] key_file` names.
///
///   weir key new
///   weir key new /etc/weir/north.key
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    order: KeyOrder,
}

#[derive(Debug, Subcommand)]
enum KeyOrder {
    /// Write a new random key to a file that does not exist yet, readable for its owner alone.
    ///
    /// Root gives the file to the user weir, where the machine has one. An existing file is never
    /// changed.
    New {
        #[arg(value_name = "FILE", default_value = "/etc/weir/cluster.key")]
        file: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let KeyOrder::New { file } = &args.order;
    let text = format!("{:032x}{:032x}\n", random()?, random()?);
    let names = ClusterKeys::parse(&text)?.names();
    // The nodes' files name the key file by its whole path.
    let path = std::path::absolute(file)?;
    write_new(&path, &text)?;
    print(&path, &names.join(", "))
}

/// Writes a new file. Nothing is left of a file that could not be written.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let name = path.display();
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
            "{name} exists, and a cluster may use the key in it: nothing was changed. Name another file; how a \
             cluster changes its key is in docs/security.md, \"Change of the cluster key\""
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{name}: its folder does not exist: make it first (`mkdir -p`)")
        }
        Err(error) => return Err(error).context(name.to_string()),
    };
    let written = give_to_service(&file).and_then(|()| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.or_else(|error| {
        fs::remove_file(path)?;
        Err(error).context(name.to_string())
    })
}

/// Gives the file to the user of the services: a node refuses a key file of another user, and as
/// the user weir it cannot read one of root.
fn give_to_service(file: &File) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    match User::from_name(SERVICE_USER).map_err(io::Error::from)? {
        Some(user) => fchown(file, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
        None => Ok(()),
    }
}

fn print(path: &Path, key_name: &str) -> anyhow::Result<()> {
    let (file, uid) = (path.display(), fs::metadata(path)?.uid());
    let owner = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let owner = owner.map_or_else(|| uid.to_string(), |user| user.name);
    let mut out = io::stdout().lock();
    writeln!(out, "{file}: a new cluster key, mode 0600, owner {owner}")?;
    writeln!(out, "its name, which tells nothing of it and which nodes log: {key_name}")?;
    writeln!(out, "next:")?;
    writeln!(out, "  1. write key_file = \"{file}\" in [cluster] of every node's file")?;
    writeln!(
        out,
        "  2. copy this same file to every node; each node with a key of its own hears no other"
    )?;
    writeln!(out, "  3. on every node: chown {SERVICE_USER}: {file} && chmod 600 {file}")?;
    Ok(writeln!(
        out,
        "nodes that run already: docs/security.md, \"Change of the cluster key\", has the steps"
    )?)
}
