//! Drives the kernel's real NAT: needs root, nft and Linux 5.18.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_traffic::linux_nat::{LinuxNatPlan, LinuxRules, Skipped, measure, observe};
use weir_wire::{ipv4, udp, verify};

const PLAN: LinuxNatPlan = LinuxNatPlan {
    flows: 1000,
    seconds: Duration::from_millis(500),
    core: 0,
    rules: LinuxRules { count: 0, are_sets: false },
};

/// Held by each test: one test would see the threads of another as leftovers.
static ALONE: Mutex<()> = Mutex::new(());

/// Everything that a run could leave on the host or in this process.
#[derive(Debug, PartialEq)]
struct Host {
    interfaces: BTreeSet<String>,
    ruleset: String,
    forwards: String,
    /// The namespaces of this process's threads.
    namespaces: BTreeSet<String>,
    /// Open descriptors that belong to BPF or to a namespace.
    descriptors: usize,
}

/// Far longer than the kernel takes to remove a thread that has been joined.
const PATIENCE: Duration = Duration::from_secs(30);

impl Host {
    /// Waits until the host is as it was: a thread that has been joined may still be listed for a
    /// moment.
    fn assert_is_again(before: &Host) {
        let start = Instant::now();
        while Host::look() != *before && start.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        assert_eq!(Host::look(), *before);
    }

    fn look() -> Host {
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let ruleset = Command::new("nft").args(["list", "ruleset"]).output().unwrap();
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = descriptors.flat_map(|entry| fs::read_link(entry.path()));
        Host {
            interfaces: fs::read_dir("/proc/sys/net/ipv4/conf")
                .unwrap()
                .flatten()
                .map(name)
                .collect(),
            ruleset: String::from_utf8(ruleset.stdout).unwrap(),
            forwards: fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap(),
            // A thread may end between the listing and the look.
            namespaces: fs::read_dir("/proc/self/task")
                .unwrap()
                .flatten()
                .flat_map(|task| fs::read_link(task.path().join("ns/net")))
                .map(|link| link.display().to_string())
                .collect(),
            descriptors: targets
                .map(|target| target.display().to_string())
                .filter(|target| target.contains("bpf") || target.starts_with("net:"))
                .count(),
        }
    }
}

#[test]
fn packets_come_out_translated_and_nothing_stays_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = Host::look();
    let (result, samples) = observe(&PLAN).expect("device tests run as root");
    Host::assert_is_again(&before);

    assert!(result.packets > 0);
    assert!(result.mpps > 0.0 && result.cycles_per_packet > 0.0);
    assert_eq!(result.sessions, 1000);
    assert!(!samples.is_empty());
    let mut flows = BTreeSet::new();
    for frame in &samples {
        // Lengths and checksums of IPv4 and UDP.
        verify::frame(frame).unwrap();
        let (ip, header_len, total_len) = ipv4::parse(&frame[14..]).unwrap();
        let udp = udp::parse(&frame[14 + header_len..14 + total_len]).unwrap();
        assert_ne!(udp.checksum.get(), 0);
        assert_eq!(ip.source.get().to_be_bytes(), [198, 18, 0, 1], "the public address");
        assert_eq!(ip.destination.get().to_be_bytes()[..2], [198, 19]);
        assert_eq!(ip.ttl, 63, "a router has forwarded it");
        flows.insert((ip.destination.get(), udp.source_port.get()));
    }
    assert!(flows.len() > samples.len() / 2, "many flows, not few: {}", flows.len());
}

#[test]
fn rules_of_either_form_let_all_flows_of_the_flood_begin() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cycles = [(0, false), (20_000, false), (20_000, true)].map(|(count, are_sets)| {
        let plan = LinuxNatPlan { rules: LinuxRules { count, are_sets }, ..PLAN };
        let result = measure(&plan).expect("device tests run as root");
        assert_eq!(result.sessions, 1000);
        result.opening_cycles_per_packet
    });
    // A list is looked through for each flow; a set is not.
    assert!(cycles[1] > 2.0 * cycles[0] && cycles[1] > 2.0 * cycles[2], "{cycles:?}");
}

#[test]
fn missing_prerequisite_is_named() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = Host::look().interfaces;
    let why = |plan: LinuxNatPlan| {
        let Err(Skipped(why)) = measure(&plan) else { panic!("{plan:?} was measured") };
        why
    };
    assert!(why(LinuxNatPlan { core: 1000, ..PLAN }).contains("core 1000"));
    assert!(why(LinuxNatPlan { flows: 0, ..PLAN }).contains("1 to"));
    let max: u32 = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    if (1..4_194_304).contains(&max) {
        let too_many = why(LinuxNatPlan { flows: max + 1, ..PLAN });
        assert!(too_many.contains("nf_conntrack_max"), "{too_many}");
    }
    assert_eq!(Host::look().interfaces, before);
}
