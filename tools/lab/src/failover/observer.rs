//! Observes homes and map around a fault.
//!
//! Windows follow each other without a gap, so events between two faults are seen too.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::observation::{Around, BIN, Observation, OfVersion, Side};
use super::route_history::Departures;
use super::route_watch::RouteWatch;
use super::timeline::{MapSample, Timeline, most_moves};
use crate::cluster::{ClusterLab, Map, MapReader, worker6};
use crate::condition::wait_for;
use crate::load::{
    Clock, Connections, FlowReport, IpVersion, Micros, Mixture, PauseWatch, Probes, Window,
};
use crate::steering::Network;
use crate::threads::Threads;

/// Time between two reads of the map.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Pause after a read, in multiples of its duration: reading a large map takes time itself.
const SAMPLE_PAUSE: u32 = 9;
const SAMPLE_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time that packets have to arrive before they count as lost.
const LATE: Duration = Duration::from_millis(1_500);
/// Time before and after a fault whose packets are kept for its picture.
const BEFORE: Micros = 1_000_000;
const AFTER: Micros = 3_000_000;

/// The load, and how long it is observed.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The connections.
    pub mixture: Mixture,
    /// Time between two probes of a flow and direction.
    pub probe_interval: Duration,
    /// Time observed before each fault.
    pub before: Duration,
    /// How long idle connections are idle at least before they are called.
    pub idle: Duration,
}

impl Pace {
    /// Returns the full load: a thousand connections, a hundred of them idle for 30 s; a probe each
    /// millisecond.
    pub fn full() -> Self {
        let mixture =
            Mixture { trickles: 480, streams: 8, dialogues: 412, idle: 100, short_per_sec: 10 };
        Self {
            mixture,
            probe_interval: Duration::from_millis(1),
            before: Duration::from_secs(2),
            idle: Duration::from_secs(30),
        }
    }

    /// Returns a smaller load, for tests on a machine that runs other work, too.
    pub fn short() -> Self {
        let mixture =
            Mixture { trickles: 60, streams: 4, dialogues: 100, idle: 36, short_per_sec: 5 };
        Self {
            mixture,
            probe_interval: Duration::from_millis(5),
            before: Duration::from_secs(1),
            idle: Duration::from_secs(5),
        }
    }
}

impl Pace {
    /// Estimates the duration of an observation whose act takes `act` and whose consequences take
    /// `settle` at least; the idle connections are idle meanwhile, from the previous observation
    /// on.
    pub fn estimate(&self, act: Duration, settle: Duration) -> Duration {
        (self.before + act.max(settle) + LATE).max(self.idle)
    }
}

/// Load on a cluster, and what is known of it.
#[derive(Debug)]
pub struct Observer {
    clock: Clock,
    pace: Pace,
    /// Time until every shard has its copies again.
    whole_deadline: Duration,
    connections: Connections,
    probes: Probes,
    pauses: PauseWatch,
    watch: Option<Watch>,
    /// Routes of each switch; empty for a stand-alone node.
    routes: Vec<(Network, RouteWatch)>,
    timeline: Timeline,
    /// End of the last window.
    covered: Micros,
}

impl Observer {
    /// Starts the load; returns when all of it works.
    pub fn start(lab: &ClusterLab, pace: Pace) -> Result<Self> {
        let clock = Clock::start();
        let reader = lab
            .map
            .is_some()
            .then(|| MapReader::open(&lab.network.management, lab.options.replicas));
        let shards = usize::from(lab.options.shards);
        let watch =
            reader.transpose()?.map(|reader| Watch::start(clock, reader, shards)).transpose()?;
        let pauses = PauseWatch::start(clock).context("watch of pauses")?;
        let connections = lab.connect(clock, pace.mixture)?;
        let probes = lab.probe(clock, pace.probe_interval)?;
        let sides = [Network::Access, Network::Internet].into_iter().zip(&lab.switches);
        let routes = sides.map(|(side, switch)| {
            Ok((side, RouteWatch::start(clock, &switch.namespace).context("routes of a switch")?))
        });
        let routes = routes.collect::<Result<_>>()?;
        let covered = clock.now();
        let timeline = Timeline::default();
        let whole_deadline = lab.options.whole_deadline();
        Ok(Self {
            whole_deadline,
            clock,
            pace,
            connections,
            probes,
            pauses,
            watch,
            routes,
            timeline,
            covered,
        })
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> usize {
        self.connections.ledger().open(None)
    }

    /// Runs `act` and observes it and its consequences, for `settle` at least and, if
    /// `until_whole`, until every shard has its copies; also the routes of node `victim`.
    ///
    /// # Errors
    /// When `act` fails. What homes see is never an error.
    pub fn observe(
        &mut self,
        name: &str,
        settle: Duration,
        until_whole: bool,
        victim: Option<u8>,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<Observation> {
        thread::sleep(self.pace.before);
        let fault = self.clock.now();
        self.timeline.marks.push(fault);
        act()?;
        let done_after = self.clock.now() - fault;
        self.settle(fault, settle, until_whole);
        let idle_for = self.wait_idle();
        let answered = self.connections.call();
        // All connections are open again before the next observation begins.
        let is_answered = answered.and_then(|()| self.connections.wait_open()).is_ok();
        // A move for the balance may have begun meanwhile.
        self.wait_whole(until_whole);
        let window = Window { start: self.covered, end: self.clock.now() };
        thread::sleep(LATE);
        let flows = self.probes.report(window);
        if let Some(watch) = &self.watch {
            self.timeline.samples.append(&mut watch.samples());
        }
        let whole_after = match &self.watch {
            Some(_) if until_whole => self.timeline.whole_after(window, fault),
            Some(_) => None,
            None => Some(0),
        };
        let moves = self.timeline.moves(Window { start: fault, ..window });
        let node = victim.map(|number| format!("node{number}")).unwrap_or_default();
        let near = Window {
            start: fault.saturating_sub(BEFORE).max(window.start),
            end: (fault + AFTER).min(window.end),
        };
        let observation = Observation {
            name: name.to_owned(),
            kind: "",
            is_repeated: false,
            fault,
            around: Around { start: near.start, bins: self.probes.bins(near, BIN) },
            done_after,
            up: Side::of(&flows, |flow| flow.up),
            down: Side::of(&flows, |flow| flow.down),
            versions: self.versions(&flows, window, fault),
            moved_endpoints: flows.iter().flat_map(|flow| flow.moved.clone()).collect(),
            connections: self.connections.ledger().report(window, fault, None),
            idle_for,
            is_answered,
            moves: moves.len(),
            moves_of_one: most_moves(&moves, &node),
            moves_max: None,
            routes: victim.map(|victim| self.departures(victim, fault)).transpose()?,
            whole_after,
            has_waited: until_whole,
            lost_at: self.probes.lost(window),
            pauses: self.pauses.within(window),
            silence_max: None,
        };
        self.routes.iter().for_each(|(_, watch)| watch.forget_before(window.end));
        self.probes.forget_before(window.end);
        self.pauses.forget_before(window.end);
        self.connections.ledger().forget_before(window.end);
        self.covered = window.end;
        Ok(observation)
    }

    /// Returns what was seen of each family; nothing if homes have one alone.
    fn versions(&self, flows: &[FlowReport], window: Window, fault: Micros) -> Vec<OfVersion> {
        let of = |version| {
            let flows = flows.iter().filter(|flow| flow.version == version).cloned();
            let flows: Vec<FlowReport> = flows.collect();
            OfVersion {
                version,
                up: Side::of(&flows, |flow| flow.up),
                down: Side::of(&flows, |flow| flow.down),
                connections: self.connections.ledger().report(window, fault, Some(version)),
            }
        };
        if flows.iter().all(|flow| flow.version == IpVersion::V4) {
            return Vec::new();
        }
        IpVersion::ALL.map(of).to_vec()
    }

    /// Sums up the departed routes of both switches, of both families.
    fn departures(&self, victim: u8, fault: Micros) -> Result<Departures> {
        let mut sum = Departures::default();
        for (side, watch) in &self.routes {
            let next_hops = [IpAddr::V4(side.worker(victim, 0)), worker6(victim).into()];
            for next_hop in next_hops {
                sum = sum.and(watch.departures(next_hop, fault)?);
            }
        }
        Ok(sum)
    }

    /// Waits for the consequences. Copies that never come are recorded in the observation.
    fn settle(&self, fault: Micros, settle: Duration, until_whole: bool) {
        let left = (fault + settle.as_micros() as Micros).saturating_sub(self.clock.now());
        thread::sleep(Duration::from_micros(left));
        self.wait_whole(until_whole);
    }

    fn wait_whole(&self, until_whole: bool) {
        if let (Some(watch), true) = (&self.watch, until_whole) {
            let since = self.clock.now();
            let is_whole = || watch.is_whole(since).then_some(());
            let _ = wait_for("all copies", self.whole_deadline, is_whole);
        }
    }

    /// Waits until the idle connections have been idle for long enough. Returns for how long.
    fn wait_idle(&self) -> Micros {
        let idle = || self.connections.ledger().idle_for(self.clock.now());
        let wanted = self.pace.idle.as_micros() as Micros;
        while self.pace.mixture.idle > 0 && idle() < wanted {
            thread::sleep(SAMPLE_INTERVAL);
        }
        idle()
    }

    /// Returns all samples of the map.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Clears the timeline, so that an observation of hours does not need ever more memory.
    pub fn forget_timeline(&mut self) {
        self.timeline = Timeline::default();
    }
}

/// Reads the map all the time.
#[derive(Debug)]
struct Watch {
    shared: Arc<Shared>,
    _threads: Threads,
}

#[derive(Debug, Default)]
struct Shared {
    samples: Mutex<Vec<MapSample>>,
    /// When the map was read last, if it was whole then; 0 if not.
    whole_at: AtomicU64,
}

impl Watch {
    fn start(clock: Clock, reader: MapReader, shards: usize) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let mut threads = Threads::default();
        threads.spawn("map", move |stop| {
            let mut last: Option<Map> = None;
            let mut pause = SAMPLE_INTERVAL;
            while !stop.is_set() {
                thread::sleep(pause);
                let (begun, at) = (Instant::now(), clock.now());
                let map = reader.read();
                pause = SAMPLE_INTERVAL.max(SAMPLE_PAUSE * begun.elapsed()).min(SAMPLE_PAUSE_MAX);
                // Nothing is known while etcd is down.
                let Ok(map) = map else { continue };
                let sample = sample(clock.now(), &map, shards, last.as_ref());
                let whole_at = if sample.is_whole { at } else { 0 };
                of_thread.whole_at.store(whole_at, Ordering::Relaxed);
                lock(&of_thread.samples).push(sample);
                last = Some(map);
            }
        })?;
        Ok(Self { shared, _threads: threads })
    }

    /// True if the map was whole when it was read last, and that was later than `since`: a read
    /// from before a fault, or before etcd was lost, proves nothing.
    fn is_whole(&self, since: Micros) -> bool {
        self.shared.whole_at.load(Ordering::Relaxed) > since
    }

    /// Takes the samples since the last call.
    fn samples(&self) -> Vec<MapSample> {
        std::mem::take(&mut lock(&self.shared.samples))
    }
}

fn sample(at: Micros, map: &Map, shards: usize, last: Option<&Map>) -> MapSample {
    let mut primaries: BTreeMap<String, usize> =
        map.nodes.iter().map(|node| (node.clone(), 0)).collect();
    for shard in map.shards.values() {
        *primaries.entry(shard.primary.clone()).or_default() += 1;
    }
    MapSample {
        at,
        primaries,
        whole: map.shards.values().filter(|shard| shard.is_whole).count(),
        is_whole: map.is_whole(shards),
        moves: last.map(|last| map.moved_since(last)).unwrap_or_default(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
