//! How the cluster of a node's file is reached: etcd, and the key of replication.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;
use weir_cluster::{Cluster, ClusterName, NodeName, Options, TlsFiles, User};
use weir_config::Membership;
use weir_replica::ClusterKeys;

use crate::failure::Failure;

/// Starts the thread that talks to etcd; does not wait for it.
///
/// # Errors
/// When a file cannot be read or something is wrong with the options.
pub(super) fn start_cluster(
    membership: &Membership,
    seed: u64,
    on_thread_start: impl Fn() + Send + Sync + 'static,
) -> Result<Cluster, Failure> {
    let name: ClusterName = parse(&membership.name)?;
    let mut options = Options::new(name, membership.etcd.clone(), seed);
    options.tls = membership.tls.as_ref().map(|files| TlsFiles {
        ca: files.ca.clone(),
        client: files.client.clone(),
        server_name: files.server_name.clone(),
    });
    if let Some(user) = &membership.user {
        let path = &user.password_file;
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::Cluster(format!("{}: {error}", path.display())))?;
        let password = text.trim_end_matches(['\r', '\n']).to_owned();
        options.user = Some(User { name: user.name.clone(), password });
    }
    Cluster::start(options, on_thread_start).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::Cluster(errors.join("; "))
    })
}

/// A node's name as a key of etcd.
///
/// # Errors
/// When it cannot be one.
pub(super) fn node_name(name: &str) -> Result<NodeName, Failure> {
    parse(name)
}

fn parse<T: std::str::FromStr<Err = weir_cluster::NameError>>(name: &str) -> Result<T, Failure> {
    name.parse().map_err(|error: weir_cluster::NameError| Failure::Cluster(error.to_string()))
}

/// The keys of the file, which nobody else may read.
///
/// # Errors
/// When it cannot be read, others may read it, or it holds no key.
pub(super) fn read_keys(path: &Path) -> Result<ClusterKeys, Failure> {
    let failure = |reason: String| Failure::Cluster(format!("{}: {reason}", path.display()));
    let mut file = File::open(path).map_err(|error| failure(error.to_string()))?;
    // Of the file that is open, not of whatever the path names by now.
    let metadata = file.metadata().map_err(|error| failure(error.to_string()))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| failure(error.to_string()))?;
    ClusterKeys::parse(&text, metadata.mode(), metadata.uid(), geteuid().as_raw())
        .map_err(|error| failure(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_file_that_others_can_read_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        std::fs::write(&path, "1".repeat(64)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let error = read_keys(&path).unwrap_err().to_string();
        assert!(error.contains("cluster.key") && error.contains("0600"), "{error}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        read_keys(&path).unwrap();
        let error = read_keys(&folder.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none: No such file"), "{error}");
    }
}
