//! The rules of a configuration file, with the files of its sets, compiled.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::bail;
use ipnet::{Ipv4Net, Ipv6Net};
use weir_admin::api::{RunningSettings, SettingsSource, SettingsTexts};
use weir_admin::client::Client;
use weir_config::{
    Access, AccessSetting, Config, ConfigFile, Desired, Diagnostic, FilteringSetting, LoadedSet,
    NatSettings, PolicyLines, PolicySettings, load_sets,
};
use weir_policy::{CompiledPolicy, FlowAddresses, FlowQuestion, PolicySubject, compile, warnings};
use weir_rules::{Bound, IpAddress, WorstPacket};

/// Most rules that a sentence names.
const NAMED_MAX: usize = 8;

/// A policy that has been compiled.
#[derive(Debug)]
pub(crate) struct LoadedPolicy {
    pub(crate) settings: PolicySettings,
    pub(crate) sets: Vec<LoadedSet>,
    pub(crate) compiled: CompiledPolicy,
    /// Name of the configuration file.
    pub(crate) file: String,
    lines: PolicyLines,
    pub(crate) filtering: FilteringSetting,
    /// The prefixes of homes: of their tunnels, or their own.
    pub(crate) homes: Vec<Ipv4Net>,
    /// Prefixes of tunnels over IPv6.
    pub(crate) homes6: Vec<Ipv6Net>,
    /// Whether homes have tunnels.
    pub(crate) are_in_tunnels: bool,
}

impl LoadedPolicy {
    /// Loads the sets of a valid file, and compiles its rules. `None` for the file of a cluster's
    /// node, which has no rules.
    ///
    /// # Errors
    /// All errors in the files of the sets; else why the rules cannot be compiled.
    pub(crate) fn of(
        config: &ConfigFile,
        text: &str,
        file: &str,
    ) -> Option<Result<Self, Vec<Diagnostic>>> {
        let loaded = match config {
            ConfigFile::Single(config) => Self::of_single(config, text, file, read_file),
            ConfigFile::Cluster(desired) => Self::of_cluster(desired, text, file),
            ConfigFile::Member(_) => return None,
        };
        Some(loaded)
    }

    fn of_single(
        config: &Config,
        text: &str,
        file: &str,
        read: impl FnMut(&Path) -> io::Result<String>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let parts = (&config.policy, &config.nat, &config.access);
        Self::new(parts, Some(text), file, read)
    }

    /// Does the same for a cluster file.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub(crate) fn of_cluster(
        desired: &Desired,
        text: &str,
        file: &str,
    ) -> Result<Self, Vec<Diagnostic>> {
        let parts = (&desired.policy, &desired.nat, &desired.access);
        Self::new(parts, Some(text), file, read_file)
    }

    /// Loads what a node has in force.
    ///
    /// # Errors
    /// When the node does not answer, or its settings cannot be read here.
    pub(crate) fn running(client: &Client) -> anyhow::Result<Self> {
        let RunningSettings { generation, source } = client.get("/settings")?;
        let (texts, named) = match source {
            SettingsSource::File(SettingsTexts { path, text, named }) => ((path, text), named),
            SettingsSource::Cluster(json) => {
                let desired = Desired::from_json(&json)?;
                let file = format!("the cluster's settings, revision {generation}");
                let parts = (&desired.policy, &desired.nat, &desired.access);
                return Self::new(parts, None, &file, read_file).map_err(|errors| told(&errors));
            }
        };
        let (path, text) = texts;
        let file = path.display().to_string();
        let (config, _) = weir_config::parse_file(&text, &file).map_err(|errors| told(&errors))?;
        let ConfigFile::Single(config) = config else { bail!("{file} is not of a single node") };
        let read = |path: &Path| named.get(path).cloned().ok_or(io::ErrorKind::NotFound.into());
        Self::of_single(&config, &text, &file, read).map_err(|errors| told(&errors))
    }

    /// `text`: that of the file, if there is one.
    fn new(
        (settings, nat, access): (&PolicySettings, &NatSettings, &Access),
        text: Option<&str>,
        file: &str,
        read: impl FnMut(&Path) -> io::Result<String>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let lines = text.map(PolicyLines::of).unwrap_or_default();
        Self::compile(settings, &lines, file, read).map(|(sets, compiled)| Self {
            settings: settings.clone(),
            sets,
            compiled,
            file: file.to_owned(),
            lines,
            filtering: nat.filtering,
            homes: access.subscribers.clone(),
            homes6: access.subscribers6.clone(),
            are_in_tunnels: access.mode == AccessSetting::Gre,
        })
    }

    fn compile(
        settings: &PolicySettings,
        lines: &PolicyLines,
        file: &str,
        read: impl FnMut(&Path) -> io::Result<String>,
    ) -> Result<(Vec<LoadedSet>, CompiledPolicy), Vec<Diagnostic>> {
        let sets = load_sets(settings, read)?;
        let compiled = compile(settings, &sets).map_err(|error| {
            let rule = error.rule();
            let line = lines.rule(rule).unwrap_or(1);
            vec![diagnostic(file, line, format!("rule {rule}"), error.to_string())]
        })?;
        Ok((sets, compiled))
    }

    /// Reads a file and all that belongs to its rules. Errors go to stderr, each on a line.
    ///
    /// # Errors
    /// When the file cannot be read, is not valid, or belongs to a node of a cluster.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let file = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|error| anyhow::anyhow!("{file}: {error}"))?;
        let errors = match weir_config::parse_file(&text, &file) {
            Ok((config, _)) => match Self::of(&config, &text, &file) {
                Some(Ok(policy)) => return Ok(policy),
                Some(Err(errors)) => errors,
                None => {
                    bail!("{file} is the file of a cluster's node: rules are in the cluster file")
                }
            },
            Err(errors) => errors,
        };
        told(&errors);
        bail!("{file} is not valid")
    }

    /// Returns the warnings about sets and rules, with their lines.
    pub(crate) fn warnings(&self) -> Vec<Diagnostic> {
        let found = warnings(&self.settings, &self.sets, &self.compiled);
        found
            .into_iter()
            .map(|warning| {
                let (line, key) = match &warning.subject {
                    PolicySubject::Set(name) => (self.lines.set(name), format!("set {name}")),
                    PolicySubject::Rule(name) => (self.lines.rule(name), format!("rule {name}")),
                };
                diagnostic(&self.file, line.unwrap_or(1), key, warning.message)
            })
            .collect()
    }

    /// Returns the name of a rule.
    pub(crate) fn name(&self, rule: u32) -> &str {
        self.compiled.name(rule)
    }

    /// Returns the line on which a rule begins, from 1; none for the settings of a cluster's node.
    pub(crate) fn line(&self, rule: u32) -> Option<usize> {
        self.lines.rule(self.name(rule))
    }

    /// Returns where a rule stands.
    pub(crate) fn place(&self, rule: u32) -> String {
        match self.line(rule) {
            Some(line) => format!("{}:{line}", self.file),
            None => self.file.clone(),
        }
    }

    /// Reads the words of a flow.
    ///
    /// # Errors
    /// A sentence that says which word is wrong, or that the flow's home has no group without the
    /// outer address of its tunnel, or no tunnel.
    pub(crate) fn flow(&self, words: &[&str]) -> Result<FlowQuestion, String> {
        let flow = FlowQuestion::from_words(words)?;
        let (inside, tunnel) = match flow.addresses {
            FlowAddresses::Ipv4 { subscriber: IpAddr::V6(outer), .. } if !self.are_in_tunnels => {
                return Err(format!("{outer}: these homes have no tunnels: write an IPv4 address"));
            }
            FlowAddresses::Ipv4 { .. } => return Ok(flow),
            FlowAddresses::Ipv6 { inside, tunnel, .. } => (inside, tunnel),
        };
        match (tunnel, self.are_in_tunnels) {
            (None, true) if !self.settings.groups.is_empty() => Err(format!(
                "{inside}: the outer address of its tunnel decides on the group of the home: \
                 write it behind @, as {inside}@10.200.1.5"
            )),
            (Some(outer), false) => {
                Err(format!("{inside}@{outer}: these homes have no tunnels: write {inside}"))
            }
            _ => Ok(flow),
        }
    }

    /// Returns the word of `nat.filtering`.
    pub(crate) fn filtering_name(&self) -> &'static str {
        match self.filtering {
            FilteringSetting::AddressAndPortDependent => "address-and-port-dependent",
            FilteringSetting::AddressDependent => "address-dependent",
            FilteringSetting::EndpointIndependent => "endpoint-independent",
        }
    }

    /// Returns what a question costs at most, as a sentence.
    pub(crate) fn bound(&self) -> String {
        let rules = &self.compiled.rules;
        let words = |bound: Bound| {
            format!("at most {} comparisons and {} steps", bound.comparisons, bound.steps)
        };
        let (ipv4, ipv6) = (words(rules.bound()), words(rules.bound6()));
        match self.compiled.names_ipv6() && ipv4 != ipv6 {
            true => format!("{ipv4} for any packet that begins a flow, {ipv6} in IPv6"),
            false => format!("{ipv4} for any packet that begins a flow"),
        }
    }

    /// Returns what the packet has that costs most in IPv4, and, if a rule or group has prefixes
    /// of IPv6, in IPv6, with the rules that it is compared with; none without rules about
    /// addresses or ports.
    pub(crate) fn worst(&self) -> [Option<String>; 2] {
        let rules = &self.compiled.rules;
        let ((packet4, rules4), (packet6, rules6)) = (rules.worst(), rules.worst6());
        let of_ipv6 = || self.worst_words(packet6, &rules6).filter(|_| self.compiled.names_ipv6());
        [self.worst_words(packet4, &rules4), of_ipv6()]
    }

    fn worst_words<A: IpAddress>(&self, packet: WorstPacket<A>, rules: &[u32]) -> Option<String> {
        let names: Vec<&str> = rules.iter().take(NAMED_MAX).map(|&rule| self.name(rule)).collect();
        let more = match rules.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let WorstPacket { local, local_port, remote, remote_port } = packet;
        let remote = SocketAddr::new(remote.to_ip(), remote_port);
        (!rules.is_empty()).then(|| {
            format!(
                "most for home {}, port {local_port}, and {remote}: {}{more}",
                local.to_ip(),
                names.join(", ")
            )
        })
    }

    /// Returns the memory that each worker shares, as a part of a sentence.
    pub(crate) fn memory(&self) -> String {
        let bytes = self.compiled.rules.bytes();
        match bytes {
            0..1_000 => format!("{bytes} B"),
            1_000..1_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
            _ => format!("{:.1} MB", bytes as f64 / 1e6),
        }
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path)
}

/// Writes errors to stderr, each on a line.
fn told(errors: &[Diagnostic]) -> anyhow::Error {
    errors.iter().for_each(|error| eprintln!("error: {error}"));
    anyhow::anyhow!("the settings are not valid here")
}

fn diagnostic(file: &str, line: usize, key: String, message: String) -> Diagnostic {
    Diagnostic { file: file.to_owned(), line, column: 1, key, message, fix: String::new() }
}

/// Prints the figures of a policy that has rules, for `weir check`.
pub(crate) fn print_policy(policy: &LoadedPolicy) {
    let filters: usize = policy.compiled.filters_by_rule().iter().sum();
    println!(
        "rules: {}, with {filters} filters; {}; memory: {}",
        policy.settings.rules.len(),
        policy.bound(),
        policy.memory()
    );
    for worst in policy.worst().into_iter().flatten() {
        println!("       {worst}");
    }
}
