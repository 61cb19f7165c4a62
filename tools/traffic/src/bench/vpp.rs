//! Another userspace NAT under the same load: VPP with its plugin nat44-ed, one thread on the
//! device's core.

use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::context::BenchContext;
use super::figure::{Figure, Figures};
use super::generator_process::{Flooded, Generator};
use super::load::Load;
use super::probe::{close, release};
use super::process::Process;
use super::{BenchError, address_plan};
use crate::table::Device;

const START_PATIENCE: Duration = Duration::from_secs(30);
/// Packet buffers, as many as the other devices have.
const BUFFERS: u32 = 16_384;
/// Main heap: a fixed part, and one for the sessions. The session index lies outside of it.
const HEAP_MB: u64 = 256;
const HEAP_BYTES_PER_SESSION: u64 = 400;
const INDEX_BYTES_PER_SESSION: u64 = 200;
/// The node of the graph that receives all packets.
const INPUT: &str = "memif-input";

/// Measures a flood of VPP; enters its figures and returns the packets that came back wrong.
pub(super) fn round(
    context: &BenchContext<'_>,
    load: &Load,
    figures: &mut Figures,
) -> Result<u64, BenchError> {
    let (flooded, cycles) = context.until_linked(|| flood(context, load))?;
    figures.set(Figure::VppMpps, flooded.mpps);
    figures.set(Figure::VppCycles, cycles);
    figures.set(Figure::VppRatio, figures.get(Figure::WeirMpps).map(|weir| weir / flooded.mpps));
    Ok(flooded.wrong)
}

/// Returns the bytes that VPP takes for its sessions, beside what any device takes.
pub(super) fn bytes(load: &Load) -> u64 {
    u64::from(load.flows_max()) * (HEAP_BYTES_PER_SESSION + INDEX_BYTES_PER_SESSION)
}

fn flood(context: &BenchContext<'_>, load: &Load) -> Result<(Flooded, f64), BenchError> {
    let generators = context.generators(load, Device::TranslatesPerRemote)?;
    let mut vpp = Vpp::start(context, load)?;
    let mut generators = release(generators);
    let learned: Result<Vec<_>, _> = generators.iter_mut().map(Generator::learned).collect();
    learned.map_err(|error| vpp.explain(error))?;
    vpp.command(&["clear", "runtime"])?;
    // Read within the flood: the clocks of polls without packets count, too.
    thread::sleep(load.warm_up + load.measured / 2);
    let runtime = vpp.command(&["show", "runtime"])?;
    let finished: Result<Vec<_>, _> = generators.iter_mut().map(Generator::finished).collect();
    let flooded = Flooded::of(&finished.map_err(|error| vpp.explain(error))?);
    close(generators)?;
    let cycles = cycles_per_packet(&runtime)
        .ok_or_else(|| vpp.process.silent("how many cycles a packet took"))?;
    Ok((flooded, cycles))
}

#[derive(Debug)]
struct Vpp {
    process: Process,
    /// The program that sends a command.
    control: PathBuf,
    socket: PathBuf,
}

impl Vpp {
    fn start(context: &BenchContext<'_>, load: &Load) -> Result<Self, BenchError> {
        let Some(program) = &context.plan.vpp else { return Err(BenchError::NoVpp) };
        let socket = context.folder.join("vpp.sock");
        // One that an earlier VPP left would seem to be ready.
        let _ = fs::remove_file(&socket);
        let files = [
            ("vpp.commands", commands(context, load)?),
            ("vpp.conf", startup(context, load, &socket)),
        ];
        for (name, text) in files {
            let file = context.folder.join(name);
            fs::write(&file, text)
                .map_err(|source| BenchError::io(file.display().to_string(), source))?;
        }
        let mut command = Command::new(program);
        command.arg("-c").arg(context.folder.join("vpp.conf"));
        let mut process = Process::start("vpp", command, context.folder.join("vpp.log"))?;
        process.wait_until(context.plan, START_PATIENCE, |_| socket.exists())?;
        Ok(Vpp { process, control: program.with_file_name("vppctl"), socket })
    }

    /// Returns VPP's own end as the cause of an error around it, if it has ended; otherwise the
    /// error.
    fn explain(&mut self, error: BenchError) -> BenchError {
        self.process.early_end().unwrap_or(error)
    }

    /// Returns the answer to a command.
    fn command(&self, words: &[&str]) -> Result<String, BenchError> {
        let output = Command::new(&self.control)
            .arg("-s")
            .arg(&self.socket)
            .args(words)
            .stdin(Stdio::null())
            .output()
            .map_err(|source| BenchError::io(self.control.display().to_string(), source))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the start-up configuration: one thread, only the plugins that take part, huge pages
/// where there are some.
fn startup(context: &BenchContext<'_>, load: &Load, socket: &Path) -> String {
    let heap_mb = HEAP_MB + u64::from(load.flows_max()) * HEAP_BYTES_PER_SESSION / (1 << 20);
    let pages = match weir_dpdk::free_huge_pages_mb() as u64 > heap_mb {
        true => "default-hugepage",
        false => "default",
    };
    let folder = context.folder.display();
    format!(
        "unix {{ nodaemon runtime-dir {folder}/vpp cli-listen {} exec {folder}/vpp.commands }}\n\
         cpu {{ main-core {} }}\n\
         memory {{ main-heap-size {heap_mb}M main-heap-page-size {pages} }}\n\
         buffers {{ buffers-per-numa {BUFFERS} page-size {pages} }}\n\
         plugins {{ plugin default {{ disable }} plugin memif_plugin.so {{ enable }} \
         plugin nat_plugin.so {{ enable }} }}\n",
        socket.display(),
        context.plan.device_core,
    )
}

/// Returns the commands that VPP runs once it is up. Its neighbours are found by ARP.
fn commands(context: &BenchContext<'_>, load: &Load) -> Result<String, BenchError> {
    let mut text = String::new();
    for (id, side) in [(1, "access"), (2, "internet")] {
        let socket = context.socket(0, side);
        let _ = writeln!(
            text,
            "create memif socket id {id} filename {}\n\
             create interface memif socket-id {id} id 0 slave\n\
             set interface ip address memif{id}/0 10.{id}.0.1/24",
            socket.display(),
        );
    }
    let scenario = load.scenario(0)?;
    let (first, _) = scenario.public_prefix(0);
    let (last, length) = scenario.public_prefix(scenario.shards() - 1);
    let last = Ipv4Addr::from_bits(last.to_bits() | (u32::MAX >> length));
    let _ = write!(
        text,
        "ip route add {} via 10.1.0.2 memif1/0\n\
         ip route add 0.0.0.0/0 via 10.2.0.2 memif2/0\n\
         nat44 plugin enable sessions {}\n\
         nat44 add address {first} - {last}\n\
         set interface nat44 in memif1/0 out memif2/0\n\
         set interface state memif1/0 up\n\
         set interface state memif2/0 up\n",
        address_plan::HOMES,
        load.flows_max(),
    );
    Ok(text)
}

/// Returns the clocks of all nodes by the packets received, from the table of `show runtime`:
/// name, state, calls, packets, suspends, clocks a packet, packets a call.
fn cycles_per_packet(runtime: &str) -> Option<f64> {
    let (mut clocks, mut received) = (0.0, None);
    for line in runtime.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, .., _, packets, _, per_packet, _] = words[..] else { continue };
        let (Ok(packets), Ok(per_packet)) = (packets.parse::<f64>(), per_packet.parse::<f64>())
        else {
            continue;
        };
        clocks += packets * per_packet;
        if name == INPUT {
            received = Some(packets);
        }
    }
    received.filter(|&packets| packets > 0.0).map(|packets| clocks / packets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::load::Access;
    use crate::bench::tests::plan;

    fn load(flows: u32) -> Load {
        Load { access: Access::Plain, ..Load::new(flows, Duration::from_secs(1)) }
    }

    #[test]
    fn vpp_gets_the_sockets_homes_and_public_addresses_of_the_generator() {
        let plan = plan("vpp", None);
        let context = BenchContext { plan: &plan, folder: Path::new("/run/bench") };
        let text = commands(&context, &load(1_000_000)).unwrap();
        assert_eq!(
            text,
            "create memif socket id 1 filename /run/bench/access-0.sock\n\
             create interface memif socket-id 1 id 0 slave\n\
             set interface ip address memif1/0 10.1.0.1/24\n\
             create memif socket id 2 filename /run/bench/internet-0.sock\n\
             create interface memif socket-id 2 id 0 slave\n\
             set interface ip address memif2/0 10.2.0.1/24\n\
             ip route add 10.128.0.0/9 via 10.1.0.2 memif1/0\n\
             ip route add 0.0.0.0/0 via 10.2.0.2 memif2/0\n\
             nat44 plugin enable sessions 1250000\n\
             nat44 add address 198.18.0.0 - 198.18.1.239\n\
             set interface nat44 in memif1/0 out memif2/0\n\
             set interface state memif1/0 up\n\
             set interface state memif2/0 up\n"
        );
    }

    #[test]
    fn vpp_runs_one_thread_on_the_core_of_the_device() {
        let plan = plan("vpp", None);
        let context = BenchContext { plan: &plan, folder: Path::new("/run/bench") };
        let text = startup(&context, &load(1_000_000), Path::new("/run/bench/vpp.sock"));
        assert!(text.contains("cpu { main-core 1 }\n"), "{text}");
        assert!(text.contains("main-heap-size 732M "), "{text}");
        assert!(text.contains("cli-listen /run/bench/vpp.sock exec /run/bench/vpp.commands"));
    }

    #[test]
    fn cycles_are_the_clocks_of_all_nodes_by_the_packets_received() {
        let runtime = "Time 2.0, 10 sec internal node vector rate 0.00 loops/sec 100.00\n  \
             vector rates in 1.0e6, out 1.0e6, drop 0.0e0, punt 0.0e0\n\
             Name       State     Calls  Vectors  Suspends  Clocks  Vectors/Call\n\
             ip4-lookup active    4      1000     0         2.50e1  250.00\n\
             memif-input polling  8      1000     0         7.50e1  125.00\n\
             nat44-ed-in2out active 4    500      0         1.00e2  125.00\n\
             ikev2-manager any wait 0    0        9         4.00e3  0.00\n";
        assert_eq!(cycles_per_packet(runtime), Some(150.0));
        assert_eq!(cycles_per_packet("no answer"), None);
        assert_eq!(cycles_per_packet("memif-input polling 8 0 0 7.50e1 0.00"), None);
    }
}
