//! Paths must be valid wherever the process is started.

use std::path::Path;

use crate::cluster_types::MembershipSettings;
use crate::findings::Findings;
use crate::types::NodeSettings;

/// Checks paths; `cluster` is set for a cluster's node.
pub(crate) fn check(
    node: &NodeSettings,
    cluster: Option<&MembershipSettings>,
    findings: &mut Findings<'_>,
) {
    let log = node.block_log.as_deref();
    warn_of_relative("node.block_log", log, "/var/log/weir", findings);
    let Some(cluster) = cluster else { return };
    let tls = cluster.tls.as_ref();
    let client = tls.and_then(|tls| tls.client.as_ref());
    let files = [
        ("cluster.tls_ca", tls.map(|tls| tls.ca.as_path())),
        ("cluster.tls_cert", client.map(|(cert, _)| cert.as_path())),
        ("cluster.tls_key", client.map(|(_, key)| key.as_path())),
        ("cluster.password_file", cluster.user.as_ref().map(|user| user.password_file.as_path())),
        ("cluster.key_file", Some(cluster.key_file.as_path())),
    ];
    for (key, path) in files {
        warn_of_relative(key, path, "/etc/weir", findings);
    }
    let bird = cluster.bird.as_ref().map(|bird| bird.socket.as_path());
    warn_of_relative("cluster.bird_socket", bird, "/run/bird", findings);
}

fn warn_of_relative(key: &str, path: Option<&Path>, folder: &str, findings: &mut Findings<'_>) {
    let path = path.filter(|_| findings.is_given(key) && findings.is_good(key));
    let Some(path) = path.filter(|path| path.is_relative()) else { return };
    let message = format!("\"{}\" is relative: a service is started in /", path.display());
    let name = path.file_name().unwrap_or(path.as_os_str());
    let fix =
        format!("write \"{}\" or another absolute path", Path::new(folder).join(name).display());
    findings.warning(key, message, fix);
}
