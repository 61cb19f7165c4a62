//! `weir check`: finds errors in the files of a node or a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use weir_config::{
    Access, AccessSetting, Checked, Config, ConfigFile, DelegationMode, Desired, Diagnostic,
    Ipv6Settings, MemberFile, Parsed, PortShare, REDIRECT_BYTES,
};
use weir_node_core::TableMemory;

use crate::rules::{LoadedPolicy, print_policy};

/// Check configuration files: all errors and warnings at once, each with line and column.
///
/// Says how much memory the tables of each worker will take, and how homes share public addresses
/// and ports; how many shards serve IPv6; of a cluster file which shards it makes and what the
/// replicas' reserve lanes cost.
/// The files of nodes are checked to fit their cluster file and each other, in whatever order they
/// are given. Needs no root and touches no device.
/// Reads the files of the sets and compiles the rules: rules that are never reached, what a packet
/// costs at most, memory.
///
///   weir check /etc/weir/weir.toml
///   weir check cluster.toml node-1.toml node-2.toml node-3.toml
///
/// A file with [cluster] or [[pool]], but without [node] and [[worker]], is a cluster file.
///
/// Exit codes: 0 valid (there may be warnings), 1 errors, 2 a file cannot be read.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The files; of a cluster its cluster file and the files of its nodes.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// A readable file, and the result of its parser.
struct CheckedFile {
    name: String,
    text: String,
    parsed: Parsed<ConfigFile>,
    /// The rules of a valid file that has some.
    policy: Option<LoadedPolicy>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut inputs = Vec::new();
    for file in &args.files {
        let name = file.display().to_string();
        match std::fs::read_to_string(file) {
            Ok(text) => {
                let parsed = weir_config::parse_file(&text, &name);
                inputs.push(CheckedFile { name, text, parsed, policy: None });
            }
            Err(error) => {
                eprintln!("weir: {name}: {error}");
                return ExitCode::from(2);
            }
        }
    }
    inputs.iter_mut().for_each(fill);
    inputs.iter_mut().for_each(compile_policy);
    let cluster = take_one_cluster(&mut inputs);
    if let Some((_, desired)) = &cluster {
        compare(desired, &mut inputs);
    }
    let is_valid = |input: &CheckedFile| input.parsed.is_ok();
    let are_valid = inputs.iter().all(is_valid);
    if let (Some((index, desired)), true) = (&cluster, are_valid) {
        compare_nodes(*index, desired, &mut inputs);
    }
    let access = cluster.as_ref().map(|(_, desired)| &desired.access);
    inputs.iter().for_each(|input| report(input, access));
    match &cluster {
        Some((_, desired)) if are_valid => print_workers(desired, &inputs),
        None if inputs.iter().any(is_member) && inputs.len() > 1 => println!(
            "note: each node's file was checked alone: there is no valid cluster file among these files"
        ),
        _ => {}
    }
    if are_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads the files that a valid file names. Their errors are the file's.
fn fill(input: &mut CheckedFile) {
    let Ok((file, _)) = &mut input.parsed else { return };
    let read = |path: &std::path::Path| std::fs::read_to_string(path);
    let filled = match &mut *file {
        ConfigFile::Single(config) => {
            config.clone().with_files(read).map(|config| ConfigFile::Single(Box::new(config)))
        }
        ConfigFile::Cluster(desired) => {
            desired.clone().with_files(read).map(|desired| ConfigFile::Cluster(Box::new(desired)))
        }
        ConfigFile::Member(_) => return,
    };
    match filled {
        Ok(filled) => *file = filled,
        Err(errors) => input.parsed = Err(errors),
    }
}

/// Compiles the rules of a valid file. Their errors and warnings are the file's.
fn compile_policy(input: &mut CheckedFile) {
    let Ok((file, warnings)) = &mut input.parsed else { return };
    match LoadedPolicy::of(file, &input.text, &input.name) {
        Some(Ok(policy)) if !policy.settings.is_empty() => {
            warnings.extend(policy.warnings());
            warnings.sort_by_key(|found| (found.line, found.column));
            input.policy = Some(policy);
        }
        Some(Err(errors)) => input.parsed = Err(errors),
        Some(Ok(_)) | None => {}
    }
}

fn is_member(input: &CheckedFile) -> bool {
    matches!(input.parsed, Ok((ConfigFile::Member(_), _)))
}

/// Returns the valid cluster file with its index among the files. A further one is an error.
fn take_one_cluster(inputs: &mut [CheckedFile]) -> Option<(usize, Desired)> {
    let mut found: Option<(usize, Desired)> = None;
    let mut first_name = String::new();
    for (index, input) in inputs.iter_mut().enumerate() {
        let Ok((ConfigFile::Cluster(desired), _)) = &input.parsed else { continue };
        if found.is_none() {
            (found, first_name) = (Some((index, (**desired).clone())), input.name.clone());
            continue;
        }
        input.parsed = Err(vec![Diagnostic {
            file: input.name.clone(),
            line: 1,
            column: 1,
            key: "cluster".to_owned(),
            message: format!("{first_name} is the cluster file of these nodes already"),
            fix: "check each cluster with the files of its own nodes".to_owned(),
        }]);
    }
    found
}

/// Checks each node's file beside the cluster file and the nodes' files before it.
fn compare(desired: &Desired, inputs: &mut [CheckedFile]) {
    let mut members: Vec<(String, MemberFile)> = Vec::new();
    for input in inputs.iter_mut().filter(|input| is_member(input)) {
        let parsed = weir_config::parse_member(&input.text, &input.name, desired, &members);
        input.parsed = parsed.map(|(member, warnings)| {
            members.push((input.name.clone(), member.clone()));
            (ConfigFile::Member(Box::new(member)), warnings)
        });
    }
}

/// Checks all nodes' files together; `index` is that of the cluster file.
fn compare_nodes(index: usize, desired: &Desired, inputs: &mut [CheckedFile]) {
    let cluster = Checked { name: &inputs[index].name, text: &inputs[index].text, value: desired };
    let nodes = inputs.iter().filter_map(|input| match &input.parsed {
        Ok((ConfigFile::Member(member), _)) => {
            Some(Checked { name: &input.name, text: &input.text, value: &**member })
        }
        _ => None,
    });
    let warnings = weir_config::check_nodes(cluster, &nodes.collect::<Vec<_>>());
    for warning in warnings {
        let input = inputs.iter_mut().find(|input| input.name == warning.file);
        if let Some(CheckedFile { parsed: Ok((_, warnings)), .. }) = input {
            warnings.push(warning);
            warnings.sort_by_key(|found| (found.line, found.column));
        }
    }
}

/// Prints the findings, then the line with the verdict. `access`: access settings of the cluster,
/// if they are known.
fn report(input: &CheckedFile, access: Option<&Access>) {
    let name = &input.name;
    let print = |kind: &str, found: &[Diagnostic]| {
        found.iter().for_each(|found| println!("{kind}: {found}"));
        found.len()
    };
    match &input.parsed {
        Ok((file, warnings)) => {
            let counts = print_file(file, access);
            input.policy.iter().for_each(print_policy);
            let warnings = print("warning", warnings);
            println!("{name}: valid; {counts}, warnings: {warnings}");
        }
        Err(errors) => {
            let errors = print("error", errors);
            println!("{name}: not valid; errors: {errors}");
        }
    }
}

/// Prints the figures that follow from the file, and returns a summary of its contents.
fn print_file(file: &ConfigFile, access: Option<&Access>) -> String {
    match file {
        ConfigFile::Single(config) => {
            print_tables(config);
            let shards = config.shards.iter();
            print_port_shares(shards.map(|shard| (shard.id, config.port_share(shard))));
            let public6 = config.shards.iter().map(|shard| &shard.public6[..]);
            print_ipv6(public6, &config.access, &config.ipv6);
            format!("workers: {}, shards: {}", config.workers.len(), config.shards.len())
        }
        ConfigFile::Cluster(desired) => {
            print_cluster(desired);
            format!("cluster: {}, shards: {}", desired.cluster.name, desired.shards.len())
        }
        ConfigFile::Member(member) => {
            print_redirects(member, access);
            format!("node of cluster {}, workers: {}", member.cluster.name, member.workers.len())
        }
    }
}

/// Bytes of a tunnel's headers with a GRE key.
const TUNNEL_BYTES_MAX: u16 = 28;

/// Prints the size up to which a packet fits into a sealed redirect as a whole. A larger packet is
/// fragmented, or its sender gets an ICMP error.
fn print_redirects(member: &MemberFile, access: Option<&Access>) {
    let overhead = REDIRECT_BYTES + access.map_or(TUNNEL_BYTES_MAX, Access::tunnel_bytes);
    for (index, worker) in member.workers.iter().enumerate() {
        let whole = worker.access.mtu.saturating_sub(overhead);
        println!(
            "worker {index}: packets redirected to other workers are sealed with AES-256-GCM, under a microsecond each at either end; up to {whole} bytes go whole, {overhead} less than the access MTU"
        );
    }
}

fn print_tables(config: &Config) {
    for worker in 0..config.workers.len() {
        println!("worker {worker}: {}", TableMemory::of(config, worker));
    }
}

fn print_cluster(desired: &Desired) {
    for run in desired.shards.chunk_by(|one, next| next.id - one.id == 1) {
        println!("{}", numbers(run[0].id, run[run.len() - 1].id));
    }
    let (addresses, replicas) = (desired.public_addresses(), desired.cluster.replicas);
    println!("public addresses: {addresses}, for {} homes at once", desired.homes());
    println!(
        "reserve lanes: {replicas} of 8, whose ports are those of {} addresses",
        desired.reserved_addresses()
    );
    print_port_shares(desired.shards.iter().map(|shard| (shard.id, desired.port_share(shard))));
    let public6 = desired.shards.iter().map(|shard| &shard.public6[..]);
    print_ipv6(public6, &desired.access, &desired.ipv6);
    println!(
        "routes: {} on the access switch, {} on the internet switch",
        desired.access_routes(),
        desired.internet_routes()
    );
}

fn numbers(first: u32, last: u32) -> String {
    if first == last { format!("shard {first}") } else { format!("shards {first}..={last}") }
}

/// Prints how many shards serve IPv6, and what homes may send from. `public6` are the prefixes of
/// each shard.
fn print_ipv6<'s>(
    public6: impl Iterator<Item = &'s [ipnet::Ipv6Net]>,
    access: &Access,
    settings: &Ipv6Settings,
) {
    let counts: Vec<usize> = public6.map(<[_]>::len).filter(|count| *count > 0).collect();
    if counts.is_empty() {
        return;
    }
    let homes = match (access.mode, settings.delegation) {
        (AccessSetting::Plain, _) => format!("a /{} is one home", settings.home_length6),
        (_, DelegationMode::Claim) => {
            format!("homes claim a /64, held {} s after its last flow", settings.claim_hold_sec)
        }
        (_, DelegationMode::Static) => {
            format!("homes have {} static prefixes", settings.delegations.len())
        }
    };
    let prefixes: usize = counts.iter().sum();
    println!("IPv6 shards: {}, prefixes: {prefixes}; {homes}", counts.len());
}

/// Prints a line for each run of shards that are alike.
fn print_port_shares(shards: impl Iterator<Item = (u32, Option<PortShare>)>) {
    let shards: Vec<_> = shards.filter_map(|(id, share)| Some((id, share?))).collect();
    let is_same = |one: &(u32, PortShare), next: &(u32, PortShare)| {
        next.0.checked_sub(one.0) == Some(1) && next.1 == one.1
    };
    for run in shards.chunk_by(is_same) {
        let ((first, share), last) = (run[0], run[run.len() - 1].0);
        let each = if first == last { "" } else { "each of the " };
        println!("ports of {each}{}: {share}", numbers(first, last));
    }
}

/// Prints the memory of each worker's tables if the shards and their copies are shared out by
/// weight.
fn print_workers(desired: &Desired, inputs: &[CheckedFile]) {
    let nodes = inputs.iter().filter_map(|input| match &input.parsed {
        Ok((ConfigFile::Member(member), _)) => Some((&input.name, &**member)),
        _ => None,
    });
    let nodes: Vec<(&String, &MemberFile)> = nodes.collect();
    let members: Vec<&MemberFile> = nodes.iter().map(|(_, member)| *member).collect();
    for (name, member) in nodes {
        for (index, worker) in member.workers.iter().enumerate() {
            let share = desired.share(worker, &members);
            let shards = desired.shards.iter().take(share);
            let config = desired.config_of(member, shards.map(|shard| (shard.id, index)));
            let memory = TableMemory::of(&config, index);
            println!("{name}: worker {index}: about {share} shards, copies included; {memory}");
        }
    }
}
