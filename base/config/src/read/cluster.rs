//! `[cluster]`: in the cluster file the settings of all nodes, in a node's file the access to the
//! cluster.

use std::path::PathBuf;

use weir_ids::is_name;

use crate::cluster_types::{
    BalanceSetting, Bird, ClusterSettings, Commit, CommitOnTimeout, MembershipSettings,
    TlsSettings, UserSettings,
};
use crate::findings::Findings;
use crate::read::node::is_printable;
use crate::section::Section;

const ETCD_MAX: usize = 32;
const BIRD_PROTOCOLS_MAX: usize = 16;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> ClusterSettings {
    ClusterSettings {
        name: name(section, findings),
        replicas: section.integer("replicas", findings),
        balance: match section.choice("balance", findings) {
            "load" => BalanceSetting::Load,
            _ => BalanceSetting::Shards,
        },
        commit: commit(section, findings),
        commit_replicas: section.optional_integer("commit_replicas", findings),
        commit_timeout_ms: section.integer("commit_timeout_ms", findings),
        commit_on_timeout: match section.choice("commit_on_timeout", findings) {
            "drop" => CommitOnTimeout::Drop,
            _ => CommitOnTimeout::Release,
        },
        replication_port: section.integer("replication_port", findings),
        max_routes: section.optional_integer("max_routes", findings),
        max_next_hops: section.optional_integer("max_next_hops", findings),
    }
}

fn commit(section: &Section<'_>, findings: &mut Findings<'_>) -> Commit {
    match section.choice("commit", findings) {
        "replicated" => Commit::Replicated,
        _ => Commit::Async,
    }
}

/// Returns the `commit` of a shard or a pool; none where the file has none.
pub(super) fn optional_commit(
    section: &Section<'_>,
    findings: &mut Findings<'_>,
) -> Option<Commit> {
    let commit = commit(section, findings);
    findings.is_given(&section.path_of("commit")).then_some(commit)
}

pub(crate) fn membership(section: &Section<'_>, findings: &mut Findings<'_>) -> MembershipSettings {
    let etcd = etcd(section, findings);
    let is_https = etcd.first().is_some_and(|address| address.starts_with("https://"));
    MembershipSettings {
        name: name(section, findings),
        tls: tls(section, is_https, findings),
        user: user(section, is_https, findings),
        key_file: path(section, "key_file", findings).unwrap_or_default(),
        bird: bird(section, findings),
        etcd,
    }
}

fn name(section: &Section<'_>, findings: &mut Findings<'_>) -> String {
    section.text("name", findings, is_name).unwrap_or_default().to_owned()
}

fn path(section: &Section<'_>, name: &str, findings: &mut Findings<'_>) -> Option<PathBuf> {
    section.text(name, findings, is_printable).map(PathBuf::from)
}

fn etcd(section: &Section<'_>, findings: &mut Findings<'_>) -> Vec<String> {
    let Some(entry) = section.entry("etcd", findings) else { return Vec::new() };
    let Some(elements) = entry.elements(findings) else { return Vec::new() };
    if elements.is_empty() || elements.len() > ETCD_MAX {
        entry.refuse(findings);
    }
    let mut addresses: Vec<String> = Vec::new();
    for (path, element) in elements {
        let Some(address) = element.as_str().filter(|text| is_address(text)) else {
            let fix = "write it as \"https://host:port\" or \"http://host:port\"";
            findings.error(&path, "not an address of etcd", fix);
            continue;
        };
        let first = addresses.first();
        if addresses.iter().any(|before| before == address) {
            findings.error(&path, format!("{address} is listed twice"), "remove one");
        } else if let Some(first) = first.filter(|first| scheme(first) != scheme(address)) {
            let fix = "use one scheme for all members";
            findings.error(&path, format!("{first} before it has another scheme"), fix);
        }
        addresses.push(address.to_owned());
    }
    addresses
}

fn scheme(address: &str) -> &str {
    address.split("://").next().unwrap_or(address)
}

/// Whether a text is a scheme, a host and a port.
fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(is_host_and_port)
}

/// Whether a text is a host (a name, an IPv4 address or an IPv6 address in brackets) and a port.
pub(super) fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0) && !port.starts_with('+');
    let is_name = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    is_port && (is_name || ipv6.is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok()))
}

fn tls(section: &Section<'_>, is_https: bool, findings: &mut Findings<'_>) -> Option<TlsSettings> {
    let ca = path(section, "tls_ca", findings);
    let cert = path(section, "tls_cert", findings);
    let key = path(section, "tls_key", findings);
    let server_name = section.text("tls_server_name", findings, is_printable).map(str::to_owned);
    if !findings.is_whole(&section.path_of("etcd")) {
        return None;
    }
    if !is_https {
        for name in ["tls_ca", "tls_cert", "tls_key", "tls_server_name"] {
            let path = section.path_of(name);
            if findings.is_given(&path) {
                let fix = "write https:// in etcd, or remove it";
                findings.error(&path, "etcd is reached without TLS", fix);
            }
        }
        return None;
    }
    refuse_half(section, ["tls_cert", "tls_key"], findings);
    if !findings.is_given(&section.path_of("tls_ca")) && findings.is_given(&section.path_of("etcd"))
    {
        let fix = "write the file with the authority of etcd's certificate";
        findings.error(&section.path_of("tls_ca"), "missing: etcd is reached with TLS", fix);
    }
    Some(TlsSettings { ca: ca.unwrap_or_default(), client: cert.zip(key), server_name })
}

fn user(
    section: &Section<'_>,
    is_https: bool,
    findings: &mut Findings<'_>,
) -> Option<UserSettings> {
    let name = section.text("user", findings, is_printable).map(str::to_owned);
    let password_file = path(section, "password_file", findings);
    refuse_half(section, ["user", "password_file"], findings);
    let (name, password_file) = name.zip(password_file)?;
    if !is_https && findings.is_whole(&section.path_of("etcd")) {
        let message = "the password goes over the network as it is";
        findings.warning(&section.path_of("user"), message, "reach etcd with https://");
    }
    Some(UserSettings { name, password_file })
}

fn bird(section: &Section<'_>, findings: &mut Findings<'_>) -> Option<Bird> {
    let socket = path(section, "bird_socket", findings);
    let access = bird_protocols(section, "bird_access", "access_switch", findings);
    let internet = bird_protocols(section, "bird_internet", "internet_switch", findings);
    if !findings.is_given(&section.path_of("bird_socket")) {
        for name in ["bird_access", "bird_internet"] {
            let path = section.path_of(name);
            if findings.is_given(&path) {
                findings.error(&path, "bird_socket is missing", "write bird_socket, or remove it");
            }
        }
    }
    let both = section.path_of("bird_internet");
    if let Some(name) = internet.iter().find(|name| access.contains(name)) {
        let message = format!("{name} is also in bird_access");
        findings.error(&both, message, "a BGP protocol leads to the switch of one side");
    }
    Some(Bird { socket: socket?, access, internet })
}

/// Returns the names of BGP protocols; those of weir's package where the file has none.
fn bird_protocols(
    section: &Section<'_>,
    name: &str,
    packaged: &str,
    findings: &mut Findings<'_>,
) -> Vec<String> {
    let Some(entry) = section.entry(name, findings) else { return vec![packaged.to_owned()] };
    let Some(elements) = entry.elements(findings) else { return Vec::new() };
    if elements.len() > BIRD_PROTOCOLS_MAX {
        entry.refuse(findings);
    }
    let is_name = |text: &&str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (1..=63).contains(&text.len()) && text.bytes().all(is_allowed)
    };
    let mut names: Vec<String> = Vec::new();
    for (path, element) in elements {
        let Some(word) = element.as_str().filter(is_name) else {
            let fix = "write the name of a protocol as in BIRD's configuration";
            findings.error(&path, "not the name of a BGP protocol", fix);
            continue;
        };
        if names.iter().any(|before| before == word) {
            findings.error(&path, format!("{word} is listed twice"), "remove one");
        }
        names.push(word.to_owned());
    }
    names
}

/// Reports a key that requires another one which is absent.
pub(super) fn refuse_half(section: &Section<'_>, pair: [&str; 2], findings: &mut Findings<'_>) {
    let [one, other] = pair.map(|name| section.path_of(name));
    let (given, missing) = match (findings.is_given(&one), findings.is_given(&other)) {
        (true, false) => (one, pair[1]),
        (false, true) => (other, pair[0]),
        _ => return,
    };
    findings.error(
        &given,
        format!("{missing} is missing"),
        format!("write {missing}, or remove it"),
    );
}
