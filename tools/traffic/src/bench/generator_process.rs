//! The generator of one round, in its own process: DPDK has one EAL per process, and every round
//! starts alike.
//!
//! It reports its progress on standard output, one JSON object a line, and stays connected until
//! its input ends.
//!
//! From the time when its ports listen until the device has started it is stopped, so that both
//! ports connect at the same time. DPDK's memif driver needs that of a zero-copy client: when a
//! port has connected, the driver closes the file of the client's packet memory. A port that
//! connects later offers the same descriptor, which is closed or belongs to another file by then:
//! it gets no link, or the generator maps a file that is too short and ends with SIGBUS.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use super::BenchError;
use super::address_plan::{self, DEVICE, GATEWAY};
use super::context::BenchContext;
use super::load::Load;
use super::process::tail;
use crate::generator::AttackAccount;
use crate::ledger::Account;
use crate::table::Device;

/// The lines of `weir-lab traffic flood --json` that the benchmark reads.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
enum Event {
    Started {},
    Learned(Learned),
    Progress(Progress),
    Finished(Box<Finished>),
    #[serde(other)]
    Other,
}

/// Reported while it runs; the phases but one are for people.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "phase")]
enum Progress {
    Settled,
    #[serde(other)]
    Other,
}

/// Reported when all flows are established.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Learned {
    /// Flows per second, from the first packet to the last translation.
    #[serde(default)]
    pub(super) rate: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Finished {
    /// Length of the measured window.
    seconds: f64,
    /// Packets that came back correct within the window.
    right_upstream: u64,
    right_downstream: u64,
    /// Accounts of the whole flood, warm-up and last packets included.
    upstream: Account,
    downstream: Account,
    #[serde(default)]
    opened_per_second: Option<f64>,
    #[serde(default)]
    latency: Option<Latency>,
    #[serde(default)]
    offered_pps: Option<f64>,
    #[serde(default)]
    attack: Option<AttackAccount>,
}

/// Percentiles of the latency through the device, µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p99_9_us: f64,
}

/// The sum over all generators of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flooded {
    pub(super) mpps: f64,
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) wrong: u64,
    pub(super) opened_per_second: Option<f64>,
    /// The worst value of each percentile.
    pub(super) latency: Option<Latency>,
    /// Packets per second that were sent, if a rate was requested.
    pub(super) offered_pps: Option<f64>,
    /// Account of the generator that has an attacker; at most one has.
    pub(super) attack: Option<AttackAccount>,
}

impl Flooded {
    pub(super) fn of(all: &[Finished]) -> Self {
        all.iter().fold(Flooded::default(), |sum, one| {
            let accounts = [one.upstream, one.downstream];
            let right = (one.right_upstream + one.right_downstream) as f64;
            Flooded {
                mpps: sum.mpps + right / one.seconds / 1e6,
                sent: sum.sent + accounts.iter().map(|account| account.sent).sum::<u64>(),
                lost: sum.lost + accounts.iter().map(Account::lost).sum::<u64>(),
                wrong: sum.wrong + accounts.iter().map(Account::wrong).sum::<u64>(),
                opened_per_second: join(sum.opened_per_second, one.opened_per_second, |a, b| a + b),
                latency: join(sum.latency, one.latency, Latency::worse),
                offered_pps: join(sum.offered_pps, one.offered_pps, |a, b| a + b),
                attack: sum.attack.or(one.attack),
            }
        })
    }

    pub(super) fn loss_percent(&self) -> f64 {
        100.0 * self.lost as f64 / self.sent.max(1) as f64
    }
}

impl Latency {
    fn worse(self, other: Latency) -> Latency {
        Latency {
            p50_us: self.p50_us.max(other.p50_us),
            p99_us: self.p99_us.max(other.p99_us),
            p99_9_us: self.p99_9_us.max(other.p99_9_us),
        }
    }
}

fn join<T>(a: Option<T>, b: Option<T>, both: impl Fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(a, b)),
        (a, b) => a.or(b),
    }
}

/// A running generator; dropping it ends the process.
#[derive(Debug)]
pub(super) struct Generator {
    child: Child,
    events: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

/// A generator whose ports listen, and do not answer until it is released.
#[derive(Debug)]
pub(super) struct HeldGenerator(Generator);

impl HeldGenerator {
    /// Lets it answer the device, which has opened all its ports.
    pub(super) fn release(self) -> Generator {
        self.0.signal(Signal::SIGCONT);
        self.0
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Generator {
    /// Starts the generator of a worker, counted from 0, and holds it once its ports listen.
    pub(super) fn start(
        context: &BenchContext<'_>,
        load: &Load,
        device: Device,
        worker: usize,
    ) -> Result<HeldGenerator, BenchError> {
        let log = context.folder.join(format!("generator-{worker}.log"));
        Generator::run(command(context, load, device, worker), log)
    }

    fn run(mut command: Command, log: PathBuf) -> Result<HeldGenerator, BenchError> {
        let errors = File::create(&log)
            .map_err(|source| BenchError::io(log.display().to_string(), source))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(|source| BenchError::io("the generator does not start", source))?;
        let output = child.stdout.take().map(BufReader::new);
        let Some(output) = output else { unreachable!("the generator's output is a pipe") };
        let mut generator = Generator { child, events: output.lines(), log };
        generator.wait(|event| matches!(event, Event::Started {}).then_some(()))?;
        generator.signal(Signal::SIGSTOP);
        Ok(HeldGenerator(generator))
    }

    fn signal(&self, signal: Signal) {
        // A child that has not been waited for still owns its process id.
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }

    pub(super) fn learned(&mut self) -> Result<Learned, BenchError> {
        self.wait(|event| if let Event::Learned(learned) = event { Some(learned) } else { None })
    }

    /// Waits for the end of the warm-up of a load that settles its flows.
    pub(super) fn settled(&mut self) -> Result<(), BenchError> {
        self.wait(|event| matches!(event, Event::Progress(Progress::Settled)).then_some(()))
    }

    pub(super) fn finished(&mut self) -> Result<Finished, BenchError> {
        self.wait(|event| if let Event::Finished(flood) = event { Some(*flood) } else { None })
    }

    /// Closes the generator's input, which makes it end, and waits for its end.
    pub(super) fn close(mut self) -> Result<(), BenchError> {
        drop(self.child.stdin.take());
        let status = self.child.wait().map_err(|source| BenchError::io("the generator", source))?;
        if status.success() { Ok(()) } else { Err(self.ended()) }
    }

    fn wait<T>(&mut self, wanted: impl Fn(Event) -> Option<T>) -> Result<T, BenchError> {
        for line in self.events.by_ref() {
            let line = line.map_err(|source| BenchError::io("the generator", source))?;
            let event = serde_json::from_str(&line).map_err(|error| {
                BenchError::io(format!("the generator said {line:?}"), error.into())
            })?;
            if let Some(found) = wanted(event) {
                return Ok(found);
            }
        }
        Err(self.ended())
    }

    fn ended(&mut self) -> BenchError {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
        BenchError::Generator {
            status,
            tail: tail(&std::fs::read_to_string(&self.log).unwrap_or_default()),
        }
    }
}

fn command(context: &BenchContext<'_>, load: &Load, device: Device, worker: usize) -> Command {
    let plan = context.plan;
    let mut command = Command::new(&plan.generator);
    command.args(["traffic", "flood", "--json"]);
    for (side, index) in [("access", 0), ("internet", 1)] {
        command.args([format!("--{side}"), context.generator_port(worker, side, index)]);
    }
    command.args(load.arguments());
    if worker > 0 {
        command.args(["--first-shard", &load.first_shard(worker).to_string()]);
        for (side, network) in [("access", 1), ("internet", 2)] {
            command.args([format!("--{side}-address"), format!("10.{network}.{worker}.1")]);
            command.args([format!("--{side}-gateway"), format!("10.{network}.{worker}.2")]);
            for (name, station) in [("address6", DEVICE), ("gateway6", GATEWAY)] {
                let address = address_plan::link6(network, worker, station).to_string();
                command.args([format!("--{side}-{name}"), address]);
            }
        }
    }
    command.args(["--core", &plan.generator_core_of(worker).to_string()]);
    match device {
        Device::Translates => {}
        Device::TranslatesPerRemote => drop(command.arg("--translates-per-remote")),
        Device::PassesThrough => drop(command.arg("--pass-through")),
    }
    command
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::{Duration, Instant};

    use super::*;

    fn event(line: &str) -> Event {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn event_lines_are_read_despite_unknown_fields() {
        assert!(matches!(event(r#"{"event":"started","huge_pages":true}"#), Event::Started {}));
        let learning = event(r#"{"event":"progress","phase":"learn","learned":3,"of":9}"#);
        assert!(matches!(learning, Event::Progress(Progress::Other)));
        let settled = event(r#"{"event":"progress","phase":"settled"}"#);
        assert!(matches!(settled, Event::Progress(Progress::Settled)));
        assert!(matches!(event(r#"{"event":"step","rate":3.0}"#), Event::Other));
        let learned = event(r#"{"event":"learned","sent":9,"wrong":0,"seconds":0.5,"rate":18.0}"#);
        assert!(matches!(learned, Event::Learned(Learned { rate: Some(_) })));
        let old = event(r#"{"event":"learned","sent":9,"wrong":0}"#);
        assert!(matches!(old, Event::Learned(Learned { rate: None })));
    }

    /// Returns the state of a process: `T` when it is stopped.
    fn state(process: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }

    #[test]
    fn generator_is_stopped_from_its_start_until_it_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        let script =
            r#"echo '{"event":"started"}'; read go; echo '{"event":"learned","rate":7.0}'"#;
        shell.args(["-c", script]);
        let held = Generator::run(shell, folder.path().join("log")).unwrap();
        let process = held.0.child.id();
        let give_up = Instant::now() + Duration::from_secs(30);
        while state(process) != 'T' && Instant::now() < give_up {
            std::thread::yield_now();
        }
        assert_eq!(state(process), 'T');
        let mut generator = held.release();
        writeln!(generator.child.stdin.as_ref().unwrap(), "go").unwrap();
        assert_eq!(generator.learned().unwrap().rate, Some(7.0));
        generator.close().unwrap();
    }

    const FINISHED: &str = r#"{"event":"finished","seconds":2.0,"right_upstream":3000000,
        "right_downstream":1000000,"upstream":{"sent":10,"right":8,"wrong_address":1,"bad_checksum":0,"duplicate":0},
        "downstream":{"sent":10,"right":10,"wrong_address":0,"bad_checksum":0,"duplicate":1},"foreign":0,
        "offered_pps":null,"opened":5,"opened_per_second":2.5,
        "latency":{"samples":9,"min_us":1.0,"p50_us":2.0,"p90_us":3.0,"p99_us":4.0,"p99_9_us":5.0,"max_us":6.0}}"#;

    #[test]
    fn generators_are_summed() {
        let Event::Finished(one) = event(FINISHED) else { panic!("finished") };
        let mut slow = one.as_ref().clone();
        slow.latency = Some(Latency { p50_us: 9.0, p99_us: 1.0, p99_9_us: 1.0 });
        let both = Flooded::of(&[*one, slow]);
        assert!((both.mpps - 4.0).abs() < 1e-9);
        assert_eq!((both.sent, both.lost, both.wrong), (40, 2, 4));
        assert_eq!(both.opened_per_second, Some(5.0));
        assert_eq!(both.latency, Some(Latency { p50_us: 9.0, p99_us: 4.0, p99_9_us: 5.0 }));
        assert!((both.loss_percent() - 5.0).abs() < 1e-9);
    }
}
