//! `weir check`: what is wrong with the files of a node or a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use weir_config::{Config, Desired, Diagnostic, File, Member, Parsed};
use weir_node::TableMemory;

/// Check configuration files: all errors and warnings at once, each with line and column.
///
/// Says how much memory the tables of each worker will take; of a cluster file which shards it
/// makes and what the replicas' reserve lanes cost. The files of nodes after their cluster file are
/// checked to fit it and each other.
/// Needs no root and touches no device.
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
    /// The files; of a cluster the cluster file first.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// The cluster file and the nodes' files so far.
#[derive(Default)]
struct Checked {
    cluster: Option<Desired>,
    members: Vec<(String, Member)>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut checked = Checked::default();
    let mut are_valid = true;
    for file in &args.files {
        let name = file.display().to_string();
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("weir: {name}: {error}");
                return ExitCode::from(2);
            }
        };
        are_valid &= report(&name, checked.check(&text, &name));
    }
    if let (Some(cluster), true) = (&checked.cluster, are_valid) {
        print_workers(cluster, &checked.members);
    }
    if are_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the file is valid. What it says stands before the line with the verdict.
fn report(name: &str, parsed: Parsed<String>) -> bool {
    let print = |kind: &str, found: &[Diagnostic]| {
        found.iter().for_each(|found| println!("{kind}: {found}"));
        found.len()
    };
    match parsed {
        Ok((counts, warnings)) => {
            let warnings = print("warning", &warnings);
            println!("{name}: valid; {counts}, warnings: {warnings}");
            true
        }
        Err(errors) => {
            let errors = print("error", &errors);
            println!("{name}: not valid; errors: {errors}");
            false
        }
    }
}

impl Checked {
    /// What there is in the file, in numbers.
    fn check(&mut self, text: &str, name: &str) -> Parsed<String> {
        let (file, warnings) = weir_config::parse_file(text, name)?;
        match (file, &self.cluster) {
            (File::Single(config), _) => {
                print_tables(&config);
                let (workers, shards) = (config.workers.len(), config.shards.len());
                Ok((format!("workers: {workers}, shards: {shards}"), warnings))
            }
            (File::Cluster(desired), _) => {
                print_cluster(&desired);
                let counts =
                    format!("cluster: {}, shards: {}", desired.cluster.name, desired.shards.len());
                self.cluster = Some(*desired);
                Ok((counts, warnings))
            }
            (File::Member(member), None) => {
                print_redirects(&member);
                let counts = counts(&member);
                self.members.push((name.to_owned(), *member));
                Ok((counts, warnings))
            }
            (File::Member(_), Some(cluster)) => {
                let (member, warnings) =
                    weir_config::parse_member(text, name, cluster, &self.members)?;
                print_redirects(&member);
                let counts = counts(&member);
                self.members.push((name.to_owned(), member));
                Ok((counts, warnings))
            }
        }
    }
}

fn counts(member: &Member) -> String {
    format!("node of cluster {}, workers: {}", member.cluster.name, member.workers.len())
}

/// Headers and tag that a packet redirected to another worker gets on the access network, the tunnel's and its key included.
const REDIRECT_OVERHEAD: u16 = 28 + 24 + 16 + 28;

/// What fits a sealed redirect whole; what is larger is cut, or its sender told.
fn print_redirects(member: &Member) {
    for (index, worker) in member.workers.iter().enumerate() {
        let whole = worker.access.mtu.saturating_sub(REDIRECT_OVERHEAD);
        println!(
            "worker {index}: packets redirected to other workers are sealed with AES-256-GCM, under a microsecond each at either end; up to {whole} bytes go whole, {REDIRECT_OVERHEAD} less than the access MTU"
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
        match run {
            [shard] => println!("shard {}", shard.id),
            [first, .., last] => println!("shards {}..={}", first.id, last.id),
            [] => {}
        }
    }
    let (addresses, replicas) = (desired.public_addresses(), desired.cluster.replicas);
    println!("public addresses: {addresses}, for {} homes at once", desired.homes());
    println!(
        "reserve lanes: {replicas} of 8, whose ports are those of {} addresses",
        desired.reserved_addresses()
    );
    println!(
        "routes: {} on the access switch, {} on the internet switch",
        desired.access_routes(),
        desired.internet_routes()
    );
}

/// What the tables of each worker take when the shards and their copies are shared out by weight.
fn print_workers(desired: &Desired, members: &[(String, Member)]) {
    let weights = members.iter().flat_map(|(_, member)| &member.workers);
    let sum: u64 = weights.map(|worker| u64::from(worker.weight)).sum();
    let copies = 1 + u64::from(desired.cluster.replicas);
    for (name, member) in members {
        for (index, worker) in member.workers.iter().enumerate() {
            let all = desired.shards.len() as u64;
            let share = (all * copies * u64::from(worker.weight)).div_ceil(sum.max(1)).min(all);
            let shards = desired.shards.iter().take(share as usize);
            let config = desired.config_of(member, shards.map(|shard| (shard.id, index)));
            let memory = TableMemory::of(&config, index);
            println!("{name}: worker {index}: about {share} shards, copies included; {memory}");
            let room = desired.shard_room(worker);
            if share > room as u64 {
                println!(
                    "warning: {name}: worker[{index}].shards_max: room for {room} shards, fewer than its share (raise \
                     it, or add workers)"
                );
            }
        }
    }
}
