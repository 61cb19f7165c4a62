//! The files of a node and of a cluster: keys, defaults, ranges, errors with line and column.
//!
//! ```text
//!   text --toml--> document --read/--> values --check/--> Config, Member or Desired + warnings
//!                     |          key_table: ranges, defaults        |
//!                     +------------- findings: line, column --------+--> or every error at once
//! ```
//!
//! There are three kinds of files: a single node ([`Config`]), a node of a cluster ([`MemberFile`])
//! and the cluster file ([`Desired`]). Parsing is a pure function of the text: it examines no file,
//! device or core of the machine. Syntax errors are reported alone, since later errors would be
//! guesses; all others are reported together.

#![forbid(unsafe_code)]

mod check;
mod cluster_types;
mod desired;
mod diagnostic;
mod file_kind;
mod findings;
mod ipv6_types;
mod key;
mod key_table;
mod line_errors;
mod node_difference;
mod policy_lines;
mod policy_types;
mod pool;
mod port_share;
mod public_types;
mod read;
mod reference;
mod section;
mod section_table;
mod set_file;
mod static_file;
mod types;
mod with_files;

use toml::de::DeTable;

use check::fleet::NodeFile;
use file_kind::FileKind;
use findings::Findings;

pub use check::public::PublicContext;
pub use cluster_types::{
    BalanceSetting, Bird, ClusterSettings, ClusterShard, Commit, CommitOnTimeout, MemberFile,
    MembershipSettings, TlsSettings, UserSettings,
};
pub use desired::difference::{Effect, SettingChange, difference};
pub use desired::policy_difference::policy_difference;
pub use desired::{DESIRED_FORMAT, Desired, DesiredError, DesiredFingerprint};
pub use diagnostic::Diagnostic;
pub use ipv6_types::{DelegatedHome, DelegationMode, DelegationSettings, Interface6, Ipv6Settings};
pub use node_difference::node_difference;
pub use policy_lines::PolicyLines;
pub use policy_types::{
    ActionSetting, FlowClassSettings, GROUPS_MAX, GroupLimitSettings, GroupSettings, OriginSetting,
    PolicySettings, PortSpan, ProtocolSetting, RedirectSetting, RuleAddress, RuleSettings,
    SOURCE_POOLS_MAX, SetSettings, SetSource, SourcePoolSettings,
};
pub use port_share::PortShare;
pub use public_types::{PublicSettings, StaticProtocol, StaticSettings};
pub use reference::key_reference;
pub use set_file::{LoadedSet, load_sets, parse_set};
pub use static_file::load_statics;
pub use types::{
    Access, AccessSetting, CollectorFormat, CollectorSettings, Config, FilteringSetting, Fragments,
    GreKey, HugePagesSetting, InterfaceSettings, LogFormat, LogLevel, MssClampSetting, NatSettings,
    NodeSettings, Poll, PoolingSetting, SessionLogSetting, ShardSettings, SpoolSettings,
    TimeoutProfile, TimeoutSettings, WorkerSettings,
};

/// Bytes added to a packet that is redirected to another worker over the access side, without the
/// tunnel's: IPv4 and UDP headers, the replication header, the authentication tag.
pub const REDIRECT_BYTES: u16 = 28 + 24 + 16;

/// The value of a file with its warnings in file order; or all errors in file order, each with line
/// and column.
pub type Parsed<T> = Result<(T, Vec<Diagnostic>), Vec<Diagnostic>>;

/// A file of any kind, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigFile {
    /// Without `[cluster]` or `[[pool]]`: a node without a cluster.
    Single(Box<Config>),
    /// With `[cluster]`, and with `[node]` or `[[worker]]`: a node of a cluster.
    Member(Box<MemberFile>),
    /// With `[cluster]` or `[[pool]]`, without `[node]` and `[[worker]]`: the settings that all
    /// nodes of a cluster share.
    Cluster(Box<Desired>),
}

/// Parses and checks a file of any kind, which is determined by its sections. `file_name` is used
/// in findings only.
///
/// # Errors
/// All errors in the file.
pub fn parse_file(text: &str, file_name: &str) -> Parsed<ConfigFile> {
    let mut findings = Findings::new(text, file_name);
    let Some(document) = document(text, &mut findings) else { return Err(findings.into_parts().0) };
    let file = match FileKind::of(&document) {
        FileKind::Single => ConfigFile::Single(Box::new(single(&document, &mut findings))),
        FileKind::Member => ConfigFile::Member(Box::new(member(&document, &mut findings))),
        FileKind::Cluster | FileKind::Stored => match cluster(&document, &mut findings) {
            Some(desired) => ConfigFile::Cluster(Box::new(desired)),
            None => return Err(findings.into_parts().0),
        },
    };
    finished(file, findings)
}

/// Parses and checks the file of a single node.
///
/// # Errors
/// All errors in the file. The file of a cluster's node, or of the cluster, is refused as such.
pub fn parse(text: &str, file_name: &str) -> Parsed<Config> {
    match parse_file(text, file_name)? {
        (ConfigFile::Single(config), warnings) => Ok((*config, warnings)),
        (ConfigFile::Member(_) | ConfigFile::Cluster(_), _) => {
            let mut findings = Findings::new(text, file_name);
            let document = document(text, &mut findings).unwrap_or_default();
            let key = document.keys().find(|key| ["cluster", "pool"].contains(&&**key.get_ref()));
            let at = key.map_or(0, |key| key.span().start);
            let fix = "it has [access] and [[shard]] in its own file, and no [cluster]";
            findings.error_at(at, "cluster", "this is not the file of a single node", fix);
            Err(findings.into_parts().0)
        }
    }
}

/// Parses and checks the cluster file, and cuts its pools into shards.
///
/// # Errors
/// All errors in the file; keys that belong in the files of the nodes are refused.
pub fn parse_cluster(text: &str, file_name: &str) -> Parsed<Desired> {
    let mut findings = Findings::new(text, file_name);
    let desired =
        document(text, &mut findings).and_then(|document| cluster(&document, &mut findings));
    match desired {
        Some(desired) => finished(desired, findings),
        None => Err(findings.into_parts().0),
    }
}

/// Parses and checks the file of a cluster's node, against the desired state of the cluster and the
/// files of other nodes (with their names).
///
/// # Errors
/// All errors in the file itself, and all conflicts with the cluster and with the other nodes.
pub fn parse_member(
    text: &str,
    file_name: &str,
    desired: &Desired,
    others: &[(String, MemberFile)],
) -> Parsed<MemberFile> {
    let mut findings = Findings::new(text, file_name);
    let Some(document) = document(text, &mut findings) else { return Err(findings.into_parts().0) };
    let member = member(&document, &mut findings);
    check::together::check(&member, desired, others, &mut findings);
    finished(member, findings)
}

/// A valid file: its name, its text and its value.
#[derive(Debug)]
pub struct Checked<'t, T> {
    pub name: &'t str,
    pub text: &'t str,
    pub value: &'t T,
}

/// Returns the warnings that need the cluster file and all its nodes' files together; each names
/// the file that it concerns. `nodes` must fit the cluster file, as [`parse_member`] checks.
pub fn check_nodes(
    cluster: Checked<'_, Desired>,
    nodes: &[Checked<'_, MemberFile>],
) -> Vec<Diagnostic> {
    let mut in_cluster = places(&cluster, |document, findings| {
        read::cluster(document, FileKind::Cluster, findings);
    });
    let mut files: Vec<NodeFile<'_, '_>> = nodes
        .iter()
        .map(|node| {
            let findings = places(node, |document, findings| {
                read::member(document, findings);
            });
            NodeFile { name: node.name, member: node.value, findings }
        })
        .collect();
    check::fleet::check(cluster.value, &mut in_cluster, &mut files);
    let in_nodes = files.into_iter().map(|file| file.findings);
    [in_cluster].into_iter().chain(in_nodes).flat_map(|findings| findings.into_parts().1).collect()
}

/// Records the positions of the keys in a valid file.
fn places<'t, T>(
    file: &Checked<'t, T>,
    read: impl FnOnce(&DeTable<'_>, &mut Findings<'_>),
) -> Findings<'t> {
    let mut findings = Findings::new(file.text, file.name);
    if let Some(document) = document(file.text, &mut findings) {
        read(&document, &mut findings);
    }
    findings.forget();
    findings
}

/// Parses the document. `None` after syntax errors, which are reported.
fn document<'t>(text: &'t str, findings: &mut Findings<'_>) -> Option<DeTable<'t>> {
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        let at = error.span().map_or(0, |span| span.start);
        findings.error_at(at, "", error.message(), "");
    }
    syntax_errors.is_empty().then(|| document.into_inner())
}

fn single(document: &DeTable<'_>, findings: &mut Findings<'_>) -> Config {
    let mut config = read::single(document, findings);
    check::single(&config, findings);
    config.policy = config.policy.sorted();
    config.public = config.public.sorted();
    config.ipv6 = config.ipv6.sorted();
    for shard in config.shards.iter_mut().filter(|shard| shard.public.is_empty()) {
        shard.public.clone_from(&shard.subscribers);
    }
    config
}

fn member(document: &DeTable<'_>, findings: &mut Findings<'_>) -> MemberFile {
    let member = read::member(document, findings);
    check::member(&member, findings);
    member
}

/// Reads, checks and cuts a cluster file. `None` after an error: inconsistent pools cannot be cut.
fn cluster(document: &DeTable<'_>, findings: &mut Findings<'_>) -> Option<Desired> {
    let file = read::cluster(document, FileKind::Cluster, findings);
    check::cluster(&file, findings);
    if findings.has_errors() {
        return None;
    }
    let desired = Desired::of(file);
    let (bytes, max) = (desired.to_json().len(), desired::json::BYTES_MAX);
    if bytes > max {
        let message = format!("the cluster takes {bytes} bytes in etcd, at most {max} fit");
        let in_policy = serde_json::to_string(&desired.policy.rules).map_or(0, |json| json.len());
        let (key, fix) = match (in_policy > bytes / 2, desired.delegation_bytes() > bytes / 2) {
            (true, _) => ("rule", "write a [[set]] in place of many rules"),
            (_, true) => ("delegation", "delegate one prefix to a home, or write \"claim\""),
            _ => ("shard", "use fewer, larger prefixes or shards"),
        };
        findings.error(key, message, fix);
    }
    Some(desired)
}

fn finished<T>(value: T, findings: Findings<'_>) -> Parsed<T> {
    match findings.into_parts() {
        (errors, warnings) if errors.is_empty() => Ok((value, warnings)),
        (errors, _) => Err(errors),
    }
}
