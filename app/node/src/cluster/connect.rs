//! Connects a node to the cluster of its file: etcd, and the keys of replication.

use std::path::Path;

use weir_config::MembershipSettings;
use weir_etcd::{
    ClusterName, EtcdCluster, EtcdOptions, NodeId, Password, TlsFiles, User, read_secret,
};
use weir_stream::ClusterKeys;

use super::inbox::InboxSender;
use crate::failure::Failure;

/// Starts the thread that talks to etcd; does not wait for it.
///
/// # Errors
/// When a file cannot be read or something is wrong with the options.
pub(super) fn start_cluster(
    membership: &MembershipSettings,
    seed: u64,
    on_thread_start: impl Fn() + Send + Sync + 'static,
) -> Result<EtcdCluster, Failure> {
    let name: ClusterName = parse(&membership.name)?;
    let mut options = EtcdOptions::new(name, membership.etcd.clone(), seed);
    options.tls = membership.tls.as_ref().map(|files| TlsFiles {
        ca: files.ca.clone(),
        client: files.client.clone(),
        server_name: files.server_name.clone(),
    });
    options.user = membership.user.as_ref().map(|user| User {
        name: user.name.clone(),
        password: Password::File(user.password_file.clone()),
    });
    EtcdCluster::start(options, on_thread_start).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::Cluster(errors.join("; "))
    })
}

/// Returns the node's name in the cluster.
///
/// # Errors
/// When the name is not valid.
pub(super) fn node_name(name: &str) -> Result<NodeId, Failure> {
    parse(name)
}

fn parse<T: std::str::FromStr<Err = weir_etcd::NameError>>(name: &str) -> Result<T, Failure> {
    name.parse().map_err(|error: weir_etcd::NameError| Failure::Cluster(error.to_string()))
}

/// Reads the keys of the file, which no other user may read.
///
/// # Errors
/// When it cannot be read, other users may read it, or it holds no key.
pub(super) fn read_keys(path: &Path) -> Result<ClusterKeys, Failure> {
    let text = read_secret(path).map_err(|error| Failure::Cluster(error.to_string()))?;
    ClusterKeys::parse(&String::from_utf8_lossy(&text))
        .map_err(|error| Failure::Cluster(format!("{}: {error}", path.display())))
}

/// Reads the key file again and sends the keys to the roles thread, which gives them to the
/// workers, or the reason why the former ones stay in use.
pub(super) fn reload_keys(path: &Path, inbox: &InboxSender) {
    let keys = read_keys(path).map_err(|error| error.to_string());
    match &keys {
        Ok(keys) => {
            let names = keys.names().join(", ");
            tracing::info!(event = "cluster-keys-read", keys = names, "cluster keys read");
        }
        Err(error) => {
            tracing::error!(
                event = "cluster-keys-refused",
                "{error}; the former cluster keys stay in use"
            );
        }
    }
    // A node that ends has closed its inbox.
    let _ = inbox.send_keys(keys);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::inbox::{Inbox, inbox};
    use super::*;

    #[test]
    fn a_key_file_that_others_can_read_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        std::fs::write(&path, "1".repeat(64)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let error = read_keys(&path).unwrap_err().to_string();
        assert!(error.contains("cluster.key") && error.contains("chmod 600"), "{error}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        read_keys(&path).unwrap();
        let error = read_keys(&folder.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none: No such file"), "{error}");
    }

    #[test]
    fn a_reload_reads_the_keys_and_reports_why_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let (inbox, mut messages) = inbox();
        let mut reload = |text: &str| {
            std::fs::write(&path, text).unwrap();
            reload_keys(&path, &inbox);
            match messages.try_recv() {
                Some(Inbox::Keys(keys)) => keys.map(|keys| keys.names()),
                other => panic!("{other:?}"),
            }
        };
        let (old, new) = ("5a".repeat(32), "c3".repeat(32));
        std::fs::write(&path, "").unwrap();
        mode(0o600);
        let one = reload(&old).unwrap();
        let two = reload(&format!("{new}\n{old}\n")).unwrap();
        assert_eq!((two.len(), &two[1]), (2, &one[0]));
        let error = reload(&format!("{new}\n{old}\nrubbish\n")).unwrap_err();
        assert!(error.contains("cluster.key: line 3") && !error.contains(&new), "{error}");
        mode(0o644);
        let error = reload(&new).unwrap_err();
        assert!(error.ends_with(&format!("chmod 600 {}", path.display())), "{error}");
        mode(0o600);
        assert_eq!(reload(&new).unwrap(), two[..1]);
    }
}
