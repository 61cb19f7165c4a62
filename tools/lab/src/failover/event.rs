//! What is done to a cluster, and what homes may see of it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::act;
use super::observation::Observation;
use super::observer::{Observer, Pace};
use super::promise::Promise;
use super::repetition::{TRIES_MAX, reason_to_repeat};
use super::upgrade;
use crate::cluster::{ClusterLab, ClusterOptions};
use crate::load::Micros;
use crate::steering::SwitchKind;

/// Longer than the lease of a node in etcd, after which etcd reports a silent node as gone.
const LEASE: Duration = Duration::from_secs(15);
const SHORT: Duration = Duration::from_secs(6);
/// How long etcd is lost before a node is lost, and after.
const BEFORE_KILL: Duration = Duration::from_secs(20);
const AFTER_KILL: Duration = Duration::from_secs(40);
/// A node that stalls again and again in turn with another is fenced twice before its routes are
/// held off, and gets its routes back in the end.
const STALL_MOVES_MAX: usize = 10;
/// Silence that FRR adds to every other change of routes, in ms (docs/failover.md).
const FRR_MS: u64 = 75;

/// A report of a running event.
#[derive(Clone, Copy, Debug)]
pub enum RunProgress<'a> {
    /// This is done next.
    Begins(&'a str),
    /// A moment is over: what was promised, and what was seen.
    Seen(Promise, &'a Observation),
    /// The event is tried again from its first moment on: number of observations that do not count,
    /// and the reason.
    Again(usize, &'a str),
}

/// Something that happens to a cluster, in one moment or several.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Name on the command line.
    pub name: &'static str,
    /// Whether the demonstration shows it by default.
    pub is_shown: bool,
    /// Its moments, one after the other, each watched separately.
    pub moments: &'static [Moment],
}

/// One thing that is done to the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Description of the act; `{}` is the node that it is done to, if any.
    pub what: &'static str,
    /// What homes may see of it.
    pub promise: Promise,
    /// How long its consequences take at least.
    settle: Duration,
    /// How long the act itself takes, roughly.
    takes: Duration,
    /// Whether a node is chosen at this moment: the one with the most primaries. If not, the node
    /// of the moment before is used.
    is_first: bool,
    /// Whether every shard has its copies in the end: not possible without etcd.
    ends_whole: bool,
    /// How often a shard may move to the node or away from it. None: without a limit.
    moves_max: Option<usize>,
    /// How long a home may be silent, pauses of the machine not counted. None: without a limit.
    silence_max: Option<Silence>,
    act: fn(&mut ClusterLab, u8) -> Result<()>,
}

const fn moment(
    what: &'static str,
    promise: Promise,
    settle: Duration,
    act: fn(&mut ClusterLab, u8) -> Result<()>,
) -> Moment {
    Moment {
        what,
        promise,
        settle,
        takes: Duration::ZERO,
        is_first: true,
        ends_whole: true,
        moves_max: None,
        silence_max: None,
        act,
    }
}

const fn then(
    what: &'static str,
    promise: Promise,
    settle: Duration,
    act: fn(&mut ClusterLab, u8) -> Result<()>,
) -> Moment {
    Moment { is_first: false, ..moment(what, promise, settle, act) }
}

/// The longest silence of a home that is promised.
#[derive(Clone, Copy, Debug)]
enum Silence {
    /// The node itself notices the fault, and the silence lasts this many ms.
    Millis(u64),
    /// The switches notice the fault by BFD; the rest takes this many ms.
    BfdAnd(u64),
    /// No worker has copies, so all ports are in quarantine first; the rest takes this many ms.
    QuarantineAnd(u64),
}

impl Silence {
    fn micros(self, options: &ClusterOptions) -> Result<Micros> {
        let frr = if options.switches == SwitchKind::Frr { FRR_MS } else { 0 };
        let bfd = 3 * options.bfd.as_millis() as u64;
        let millis = match self {
            Silence::Millis(millis) => frr + millis,
            Silence::BfdAnd(millis) => frr + bfd + millis,
            Silence::QuarantineAnd(millis) => options.quarantine()?.as_millis() as u64 + millis,
        };
        Ok(1_000 * millis)
    }
}

impl Moment {
    const fn silent(self, most: Silence) -> Self {
        Self { silence_max: Some(most), ..self }
    }

    const fn copies_later(self) -> Self {
        Self { ends_whole: false, ..self }
    }

    const fn takes(self, sec: u64) -> Self {
        Self { takes: Duration::from_secs(sec), ..self }
    }

    /// Estimates how long the act and the observation of its consequences take.
    pub fn estimate(&self, pace: &Pace) -> Duration {
        pace.estimate(self.takes, self.settle)
    }

    const fn moves(self, most: usize) -> Self {
        Self { moves_max: Some(most), ..self }
    }
}

const fn shown(name: &'static str, moments: &'static [Moment]) -> Event {
    Event { name, is_shown: true, moments }
}

const fn asked(name: &'static str, moments: &'static [Moment]) -> Event {
    Event { name, is_shown: false, moments }
}

use Promise::{NothingBroken, NothingLost, OpenAgain};

/// Every event, in an order in which each leaves the cluster whole for the next.
pub const EVENTS: &[Event] = &[
    shown("nothing", &[moment("nothing", NothingLost, SHORT, act::nothing)]),
    shown(
        "drain",
        &[
            moment("drain {}", NothingLost, SHORT, act::drain),
            then("undrain {}, rebalance", NothingLost, SHORT, act::undrain),
        ],
    ),
    shown(
        "kill",
        &[moment("kill -9 {}", NothingBroken, LEASE, act::kill).silent(Silence::Millis(50))],
    ),
    shown(
        "silence",
        &[
            moment("{} drops all frames", NothingBroken, LEASE, act::silence)
                .silent(Silence::BfdAnd(100)),
            then("{} is heard again", NothingBroken, LEASE, act::end_silence),
        ],
    ),
    shown(
        "stop",
        &[moment("SIGSTOP {}", NothingBroken, LEASE, act::stop).silent(Silence::Millis(250))],
    ),
    shown(
        "stuck",
        &[moment("worker of {} stands still", NothingBroken, LEASE, act::stuck)
            .silent(Silence::Millis(250))],
    ),
    shown(
        "freeze",
        &[moment("SIGSTOP {} and its guard", NothingBroken, LEASE, act::freeze)
            .silent(Silence::Millis(400))],
    ),
    asked(
        "stalls",
        &[moment("{} and the next node stop in turn", NothingBroken, SHORT, act::stalls)
            .takes(45)
            .moves(STALL_MOVES_MAX)
            .silent(Silence::Millis(400))],
    ),
    shown(
        "cut",
        &[
            moment("access link of {} down", NothingBroken, LEASE, act::cut),
            then("access link of {} up", NothingBroken, LEASE, act::uncut),
        ],
    ),
    asked(
        "cut-internet",
        &[
            moment("internet link of {} down", NothingBroken, LEASE, act::cut_internet),
            then("internet link of {} up", NothingBroken, LEASE, act::uncut_internet),
        ],
    ),
    asked(
        "one-way",
        &[
            moment("nothing from {} on access", NothingBroken, LEASE, act::lose_access),
            then("{} is heard again on access", NothingBroken, LEASE, act::regain_access),
        ],
    ),
    asked(
        "one-way-internet",
        &[
            moment("nothing from {} on internet", NothingBroken, LEASE, act::lose_internet),
            then("{} is heard again on internet", NothingBroken, LEASE, act::regain_internet),
        ],
    ),
    asked(
        "bird",
        &[
            moment("kill -9 BIRD of {}", NothingBroken, LEASE, act::kill_bird),
            then("BIRD of {} is back", NothingBroken, LEASE, act::start_bird),
        ],
    ),
    shown(
        "flap",
        &[moment("link of {} flaps", NothingBroken, LEASE, act::flap).takes(10).moves(1)],
    ),
    shown(
        "etcd-cut",
        &[moment("{} without etcd for 60 s", NothingLost, SHORT, act::without_store)
            .takes(62)
            .moves(0)],
    ),
    shown(
        "etcd-kill",
        &[moment("etcd killed for 20 s", NothingLost, LEASE, act::store_killed).takes(22)],
    ),
    asked(
        "etcd-lost",
        &[
            moment("etcd killed", NothingLost, BEFORE_KILL, act::lose_store).copies_later(),
            then("kill -9 {} without etcd", NothingBroken, AFTER_KILL, act::kill).copies_later(),
            then("etcd is back", NothingBroken, LEASE, act::regain_store),
        ],
    ),
    asked(
        "swap",
        &[
            moment("kill -9 {}, replicas serve", NothingBroken, LEASE, act::kill),
            then("rebalance: {} serves again", NothingLost, SHORT, act::rebalance),
        ],
    ),
    shown("term", &[moment("SIGTERM {}, restart", NothingLost, LEASE, act::terminate)]),
    asked(
        "stalled-log",
        &[
            moment("log of {} unread from a restart on", NothingLost, SHORT, act::leave_log_unread),
            then("kill -9 {}, its log unread", NothingBroken, LEASE, act::kill)
                .silent(Silence::Millis(50)),
            then("SIGTERM {}, its log unread", NothingLost, LEASE, act::terminate_with_log_unread),
        ],
    ),
    asked(
        "upgrade",
        &[
            moment("downgrade, node by node", NothingLost, LEASE, upgrade::downgrade).takes(20),
            moment("upgrade, node by node", NothingLost, LEASE, upgrade::upgrade).takes(20),
        ],
    ),
    shown(
        "second",
        &[
            moment("kill -9 {}, for good", NothingBroken, LEASE, act::kill_for_good),
            moment("kill -9 {}, the second", NothingBroken, LEASE, act::kill),
            then("weir fence of the first", NothingLost, SHORT, act::fence_the_dead),
            then("the first is back, rebalance", NothingLost, LEASE, act::start_the_dead),
        ],
    ),
    asked(
        "site",
        &[
            moment("site restarts without etcd", OpenAgain, SHORT, act::restart_site)
                .takes(130)
                .silent(Silence::QuarantineAnd(10_000))
                .copies_later(),
            then("site serves without etcd", NothingLost, SHORT, act::nothing).copies_later(),
            then("site has etcd again", NothingBroken, LEASE, act::restore_store),
        ],
    ),
    shown("add", &[moment("one more node", NothingLost, LEASE, act::add)]),
];

/// Events that change the number of nodes, concern two of them or all, or do nothing.
const LEFT_OUT: [&str; 5] = ["nothing", "second", "upgrade", "site", "add"];

/// Returns the events that may happen to any node, in any order and repeatedly.
pub fn repeatable() -> Vec<&'static Event> {
    EVENTS.iter().filter(|event| !LEFT_OUT.contains(&event.name)).collect()
}

/// The negative control, for a node or cluster without copies.
pub const CONTROL: Event = Event {
    name: "control",
    is_shown: true,
    moments: &[moment("kill -9 {}, no copies", Promise::Broken, LEASE, act::kill)],
};

impl Event {
    /// Returns the event with a name.
    ///
    /// # Errors
    /// For an unknown name, with the list of known ones.
    pub fn named(name: &str) -> Result<Self> {
        let names = || EVENTS.iter().map(|event| event.name).collect::<Vec<_>>().join(", ");
        let found = EVENTS.iter().find(|event| event.name == name);
        found.copied().with_context(|| format!("no event \"{name}\"; there are: {}", names()))
    }

    /// Runs the event on the node with the most primaries. Returns the promise and the observation
    /// of each moment.
    ///
    /// # Errors
    /// When something could not be done.
    pub fn run(
        &self,
        lab: &mut ClusterLab,
        observer: &mut Observer,
        progress: impl Fn(&str),
    ) -> Result<Vec<(Promise, Observation)>> {
        self.run_on(busiest, lab, observer, progress)
    }

    /// Like [`run`](Self::run), on the nodes that `choose` returns.
    ///
    /// # Errors
    /// When something could not be done.
    pub fn run_on(
        &self,
        choose: impl FnMut(&ClusterLab) -> Result<u8>,
        lab: &mut ClusterLab,
        observer: &mut Observer,
        progress: impl Fn(&str),
    ) -> Result<Vec<(Promise, Observation)>> {
        let mut report = |step: RunProgress<'_>| match step {
            RunProgress::Begins(what) => progress(what),
            RunProgress::Again(_, reason) => progress(&format!("  again: {reason}")),
            RunProgress::Seen(..) => {}
        };
        self.run_on_and_report(choose, lab, observer, &mut report)
    }

    /// Like [`run`](Self::run), and reports each step at once.
    ///
    /// # Errors
    /// When something could not be done.
    pub fn run_and_report(
        &self,
        lab: &mut ClusterLab,
        observer: &mut Observer,
        report: &mut impl FnMut(RunProgress<'_>),
    ) -> Result<Vec<(Promise, Observation)>> {
        self.run_on_and_report(busiest, lab, observer, report)
    }

    /// Tries the event again while there is a reason to. The observations of the last try count.
    fn run_on_and_report(
        &self,
        mut choose: impl FnMut(&ClusterLab) -> Result<u8>,
        lab: &mut ClusterLab,
        observer: &mut Observer,
        report: &mut impl FnMut(RunProgress<'_>),
    ) -> Result<Vec<(Promise, Observation)>> {
        for tries in 1..TRIES_MAX {
            let seen = self.run_once(&mut choose, lab, observer, report)?;
            let Some(reason) = reason_to_repeat(&seen, tries) else { return Ok(seen) };
            report(RunProgress::Again(seen.len(), &reason));
        }
        self.run_once(choose, lab, observer, report)
    }

    fn run_once(
        &self,
        mut choose: impl FnMut(&ClusterLab) -> Result<u8>,
        lab: &mut ClusterLab,
        observer: &mut Observer,
        report: &mut impl FnMut(RunProgress<'_>),
    ) -> Result<Vec<(Promise, Observation)>> {
        let mut seen = Vec::new();
        let mut victim = 1;
        for moment in self.moments {
            if moment.is_first {
                victim = choose(lab)?;
            }
            let what = moment.what.replace("{}", &format!("node{victim}"));
            report(RunProgress::Begins(&what));
            let watched = moment.what.contains("{}").then_some(victim);
            let promise = moment.promise.with(lab.options.commit);
            let until_whole = moment.ends_whole && promise != Promise::Broken;
            let silence_max = moment.silence_max.map(|it| it.micros(&lab.options)).transpose()?;
            let observation = observer
                .observe(&what, moment.settle, until_whole, watched, || (moment.act)(lab, victim))
                .with_context(|| what.clone())?;
            let observation = Observation {
                kind: moment.what,
                moves_max: moment.moves_max,
                silence_max,
                ..observation
            };
            report(RunProgress::Seen(promise, &observation));
            seen.push((promise, observation));
        }
        Ok(seen)
    }
}

/// Returns the number of the node that is primary of the most shards.
fn busiest(lab: &ClusterLab) -> Result<u8> {
    let Some(reader) = &lab.map else { return Ok(1) };
    let map = reader.read()?;
    let nodes = lab.nodes.iter().max_by_key(|node| map.primaries(&node.name()));
    Ok(nodes.context("no nodes")?.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_may_be_silent_for_the_quarantine_of_its_ports_and_ten_seconds() {
        let silence = Event::named("site").unwrap().moments[0].silence_max.unwrap();
        let mut options = ClusterOptions { quarantine_sec: Some(10), ..ClusterOptions::default() };
        assert_eq!(silence.micros(&options).unwrap(), 20_000_000);
        options.quarantine_sec = None;
        assert_eq!(silence.micros(&options).unwrap(), 130_000_000);
    }

    #[test]
    fn an_estimate_has_the_time_of_the_act_and_of_the_idle_connections() {
        let seconds = |name: &str, pace: &Pace| {
            Event::named(name).unwrap().moments[0].estimate(pace).as_secs()
        };
        assert_eq!(seconds("kill", &Pace::full()), 30);
        assert_eq!(seconds("etcd-cut", &Pace::full()), 65);
        assert_eq!(seconds("kill", &Pace::short()), 17);
    }

    #[test]
    fn each_event_has_a_name_of_its_own_and_chooses_its_node() {
        for (position, event) in EVENTS.iter().enumerate() {
            assert!(!EVENTS[..position].iter().any(|other| other.name == event.name));
            assert!(event.moments[0].is_first);
            assert_eq!(Event::named(event.name).unwrap().name, event.name);
        }
        let unknown = Event::named("fire").unwrap_err().to_string();
        assert!(unknown.contains("drain, kill"), "{unknown}");
    }
}
