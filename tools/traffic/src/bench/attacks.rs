//! Homes beside an attacker: its flood alternates with harmless packets of the same home at the
//! same rate.
//!
//! ```text
//!   harmless   flood   harmless   flood   harmless ...      a new weir and generator each
//!       └─ before ─┘└─ after ─┘
//! ```
//!
//! A flood is judged by the two harmless phases around it. The rate is one at which harmless
//! packets cost no home anything: beyond it the rings overflow whatever the packets are.

use super::figure::{Figure, Figures};
use std::time::Duration;

use super::context::BenchContext;
use super::generator_process::Flooded;
use super::listener_garbage::ListenerGarbage;
use super::load::{Attacked, Load, VICTIMS_PPS};
use super::metrics::{self, CLAIMS_REFUSED, Reading};
use super::rounds::{Measured, Round, State};
use super::{BenchError, Run};
use crate::attack::Attack;
use crate::generator::AttackAccount;

/// Shares of the rate that an unpaced attacker reaches with harmless packets; the first share that
/// costs no home anything is used.
const SHARES: [f64; 5] = [0.8, 0.65, 0.5, 0.35, 0.2];
/// Longest time for which a rate is tried.
const TRIAL_MAX: Duration = Duration::from_secs(5);
/// Part of its rate by which a load may fall behind and still count as that load.
const BEHIND_MAX: f64 = 0.1;
/// Largest ratio of the p99 of two harmless phases; beyond it the machine has changed its speed.
const P99_CHANGE_MAX: f64 = 1.5;
/// Descriptors of a ring. While the generator reads none, weir fills a ring and then drops packets,
/// as any device does.
const RING: f64 = 1024.0;
/// Number of drop reasons that the report names.
const REASONS_SHOWN: usize = 4;

/// One flood, or the harmless packets beside one.
#[derive(Debug)]
struct Phase {
    flooded: Flooded,
    attack: AttackAccount,
    /// Packets that the attacker should send in a second.
    pps: Option<f64>,
    cycles: f64,
    drops: Vec<(String, f64)>,
}

impl Run<'_> {
    /// Runs rounds of one attack, until enough count or twice as many have run.
    pub(super) fn attack(
        &mut self,
        attack: Attack,
        rounds: usize,
        measured: &mut Measured,
    ) -> Result<(), BenchError> {
        match self.attack_rounds(attack, rounds, measured) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.context.plan.check_interrupted()?;
                (self.print)(&format!("{attack:>12}  failed: {error}"));
                measured.state = State::Failed(error.to_string());
                Ok(())
            }
        }
    }

    fn attack_rounds(
        &mut self,
        attack: Attack,
        rounds: usize,
        measured: &mut Measured,
    ) -> Result<(), BenchError> {
        let load = measured.point.load;
        let known = self.harmless_pps;
        let mut pps = known.map_or_else(|| self.harmless_rate(&load), Ok)?;
        let mut before = self.phase(&load, attack, Attack::Harmless, Some(pps))?;
        let mut drops = Vec::new();
        for _ in 0..2 * rounds {
            if measured.kept() >= rounds {
                break;
            }
            if !before.is_harmless() {
                // The machine has become slower.
                pps = self.harmless_rate(&load)?;
                before = self.phase(&load, attack, Attack::Harmless, Some(pps))?;
            }
            let flood = self.phase(&load, attack, attack, Some(pps))?;
            flood.check_effect(attack)?;
            let after = self.phase(&load, attack, Attack::Harmless, Some(pps))?;
            let round = round(&before, &flood, &after);
            (self.print)(&format!("{attack:>12}  round {}", round.sentence()));
            measured.enter(round);
            (before, drops) = (after, flood.drops);
        }
        if !drops.is_empty() {
            measured.note(format!("dropped in the last flood: {}", shown(&drops)));
        }
        Ok(())
    }

    /// Returns a rate at which harmless packets of the attacker's home cost the others nothing.
    fn harmless_rate(&mut self, load: &Load) -> Result<f64, BenchError> {
        let load = &load.lasting(load.measured.min(TRIAL_MAX));
        let most = self.phase(load, Attack::Harmless, Attack::Harmless, None)?;
        for share in SHARES {
            let pps = share * most.attack.sent_per_second;
            if self.phase(load, Attack::Harmless, Attack::Harmless, Some(pps))?.is_harmless() {
                self.harmless_pps = Some(pps);
                return Ok(pps);
            }
        }
        Err(BenchError::NoHarmlessRate)
    }

    /// Runs a flood of packets of the kind `sent`, in the rounds of `attack`.
    fn phase(
        &mut self,
        load: &Load,
        attack: Attack,
        sent: Attack,
        pps: Option<f64>,
    ) -> Result<Phase, BenchError> {
        let load = Load { attacked: Some(Attacked { attack: sent, pps }), ..*load };
        let phase = self.context.attack_phase(&load, attack, sent, pps)?;
        (self.print)(&format!("{sent:>12}  weir  {}", phase.sentence()));
        Ok(phase)
    }
}

impl BenchContext<'_> {
    fn attack_phase(
        &self,
        load: &Load,
        attack: Attack,
        sent: Attack,
        pps: Option<f64>,
    ) -> Result<Phase, BenchError> {
        let run = self.attacked(load, |weir| {
            // In rounds of garbage packets the listeners get garbage, too, alternating with as many
            // valid requests.
            let is_sound = sent == Attack::Harmless;
            (attack == Attack::Garbage).then(|| {
                let core = self.plan.generator_core;
                ListenerGarbage::start(weir.admin_socket(), weir.metrics_address(), core, is_sound)
            })
        })?;
        let (flooded, before, after) = run;
        let attack = flooded.attack.unwrap_or_default();
        let (cycles, drops) = (after.cycles_since(&before), after.drops_since(&before));
        Ok(Phase { flooded, attack, pps, cycles, drops })
    }

    /// Runs a flood while the value made by `beside` lives; returns it with the readings before and
    /// after. All listeners must answer in the end.
    fn attacked<T>(
        &self,
        load: &Load,
        beside: impl FnOnce(&super::weir::Weir) -> T,
    ) -> Result<(Flooded, Reading, Reading), BenchError> {
        let mut filled = self.fill(load, super::weir::Settings::default())?;
        let guard = beside(&filled.weir);
        let before = filled.weir.reading()?;
        let finished = filled.finished()?;
        let after = filled.weir.reading()?;
        drop(guard);
        metrics::get_from(filled.weir.metrics_address(), "/metrics")
            .map_err(|source| BenchError::io("weir's metrics over TCP", source))?;
        filled.close()?;
        Ok((finished, before, after))
    }
}

impl Phase {
    fn lost(&self) -> u64 {
        self.flooded.lost.saturating_sub(self.attack.refused)
    }

    fn p99_us(&self) -> f64 {
        self.flooded.latency.map_or(f64::NAN, |latency| latency.p99_us)
    }

    /// Part of the others' load that was not sent, since the ports accepted no more.
    fn held_back(&self) -> f64 {
        1.0 - self.flooded.offered_pps.unwrap_or(0.0) / VICTIMS_PPS
    }

    /// Part of the attacker's load that was not sent.
    fn attack_behind(&self) -> f64 {
        self.pps.map_or(0.0, |pps| 1.0 - self.attack.sent_per_second / pps)
    }

    /// True if no packet was lost, except losses that a pause of the generator explains, and both
    /// loads were sent at their rates.
    fn is_harmless(&self) -> bool {
        (self.flooded.lost == 0 || self.overflowed())
            && self.flooded.wrong == 0
            && self.held_back() <= BEHIND_MAX
            && self.attack_behind() <= BEHIND_MAX
    }

    /// True if the generator read nothing for so long that a ring overflowed, however correct weir
    /// was.
    fn overflowed(&self) -> bool {
        let pps = VICTIMS_PPS / 2.0 + self.attack.sent_per_second;
        self.attack.longest_pause_sec * pps > RING / 2.0
    }

    fn check_effect(&self, attack: Attack) -> Result<(), BenchError> {
        let wanted = effects(attack);
        let is_there = |(reason, _): &(String, f64)| wanted.contains(&reason.as_str());
        if wanted.is_empty() || self.drops.iter().any(is_there) {
            return Ok(());
        }
        Err(BenchError::NoEffect { attack: attack.to_string(), reasons: wanted.join(", ") })
    }

    fn sentence(&self) -> String {
        format!(
            "{:.2} Mpps of it, lost {}, refused {}, held back {:.1} %, p99 {:.1} µs, {:.0} cycles/packet, longest pause {:.2} ms; \
             dropped: {}",
            self.attack.sent_per_second / 1e6,
            self.lost(),
            self.attack.refused,
            100.0 * self.held_back(),
            self.p99_us(),
            self.cycles,
            1e3 * self.attack.longest_pause_sec,
            shown(&self.drops),
        )
    }
}

/// Returns the drop reasons of which an attack must show at least one; empty where weir passes all
/// its packets.
fn effects(attack: Attack) -> &'static [&'static str] {
    match attack {
        Attack::Harmless => &[],
        Attack::Syn | Attack::Remotes | Attack::Fragments => &["slow-path-limit"],
        Attack::Ttl => &["ttl-exceeded"],
        // Not new-homes: under it the homes themselves are refused while they are set up.
        Attack::Forged => &["subscribers-max"],
        Attack::Arp => &[CLAIMS_REFUSED],
        Attack::Hello => &["local-protocol"],
        Attack::Garbage => &["gre-malformed", "inner-malformed", "gre-protocol"],
    }
}

fn shown(drops: &[(String, f64)]) -> String {
    if drops.is_empty() {
        return "nothing".into();
    }
    let shown: Vec<String> = drops
        .iter()
        .take(REASONS_SHOWN)
        .map(|(reason, count)| format!("{reason} {count:.0}"))
        .collect();
    shown.join(", ")
}

/// Makes the round of a flood between two harmless phases.
fn round(before: &Phase, flood: &Phase, after: &Phase) -> Round {
    let mut figures = Figures::default();
    let p99 = f64::midpoint(before.p99_us(), after.p99_us());
    let cycles = f64::midpoint(before.cycles, after.cycles);
    let held_back = flood.held_back() - f64::midpoint(before.held_back(), after.held_back());
    figures.set(Figure::WeirCycles, flood.cycles);
    figures.set(Figure::P99Us, flood.p99_us());
    figures.set(Figure::AttackMpps, flood.attack.sent_per_second / 1e6);
    figures.set(Figure::VictimsLost, flood.lost() as f64);
    figures.set(Figure::VictimsRefused, flood.attack.refused as f64);
    figures.set(Figure::HeldBackPercent, 100.0 * held_back.max(0.0));
    figures.set(Figure::HarmlessP99Us, p99);
    figures.set(Figure::P99Ratio, flood.p99_us() / p99);
    figures.set(Figure::HarmlessCycles, cycles);
    figures.set(Figure::AttackCycles, attack_cycles(flood, cycles));
    let phases = [before, flood, after];
    Round {
        figures,
        wrong: phases.iter().map(|phase| phase.flooded.wrong).sum(),
        spoilt: spoilt(before, flood, after),
        ..Round::default()
    }
}

/// Returns the cycles of an attacker's packet, if a packet of the others costs as much as beside
/// harmless packets.
fn attack_cycles(flood: &Phase, harmless: f64) -> Option<f64> {
    let (attack, others) = (flood.attack.sent as f64, flood.flooded.sent as f64);
    let all = attack + others;
    (attack > 0.0).then(|| (flood.cycles * all - harmless * others) / attack)
}

/// Returns why a round says nothing about weir.
fn spoilt(before: &Phase, flood: &Phase, after: &Phase) -> Option<&'static str> {
    let (least, most) = (before.p99_us().min(after.p99_us()), before.p99_us().max(after.p99_us()));
    if !before.is_harmless() || !after.is_harmless() {
        Some("harmless packets cost others some, too")
    } else if most > P99_CHANGE_MAX * least {
        Some("the latency beside harmless packets changed")
    } else if flood.flooded.lost > 0 && flood.overflowed() {
        Some("the generator stood still and a ring overflowed")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::generator_process::Latency;
    use super::*;

    /// Makes a phase of a second with this p99 and number of lost packets, and 4 Mpps of the
    /// attacker.
    fn phase(p99_us: f64, lost: u64) -> Phase {
        Phase {
            flooded: Flooded {
                sent: 1_000_000,
                lost,
                latency: Some(Latency { p99_us, ..Latency::default() }),
                offered_pps: Some(VICTIMS_PPS),
                ..Flooded::default()
            },
            attack: AttackAccount {
                sent: 4_000_000,
                sent_per_second: 4e6,
                opening: 1000,
                ..AttackAccount::default()
            },
            pps: Some(4e6),
            cycles: 200.0,
            drops: Vec::new(),
        }
    }

    #[test]
    fn a_flood_is_compared_with_the_harmless_phases_around_it() {
        let mut flood = phase(30.0, 7);
        flood.attack.refused = 3;
        flood.cycles = 240.0;
        let round = round(&phase(18.0, 0), &flood, &phase(22.0, 0));
        assert!(round.is_kept());
        let figure = |figure| round.figures.get(figure).unwrap();
        assert_eq!((figure(Figure::VictimsLost), figure(Figure::VictimsRefused)), (4.0, 3.0));
        assert!((figure(Figure::P99Ratio) - 1.5).abs() < 1e-9);
        // One packet in five belongs to the others: (5 x 240 - 200) / 4.
        assert!((figure(Figure::AttackCycles) - 250.0).abs() < 1e-9);
        assert!(figure(Figure::HeldBackPercent).abs() < 1e-9);
    }

    #[test]
    fn round_does_not_count_if_its_harmless_packets_cost_other_homes_any() {
        let flood = phase(20.0, 0);
        let of = |before: Phase, after: Phase| round(&before, &flood, &after).is_kept();
        assert!(of(phase(20.0, 0), phase(20.0, 0)));
        assert!(!of(phase(20.0, 1), phase(20.0, 0)));
        assert!(!of(phase(20.0, 0), phase(20.0, 1)));
        assert!(!of(phase(20.0, 0), phase(31.0, 0)));
        let mut slow = phase(20.0, 0);
        slow.attack.sent_per_second = 3.5e6;
        assert!(!of(slow, phase(20.0, 0)));
        let mut held = phase(20.0, 0);
        held.flooded.offered_pps = Some(0.85 * VICTIMS_PPS);
        assert!(!of(phase(20.0, 0), held));
    }

    #[test]
    fn losses_are_excused_only_if_the_generator_paused_long_enough() {
        let calm = || phase(20.0, 0);
        let lost = |pause| {
            let mut flood = phase(20.0, 5);
            flood.attack.longest_pause_sec = pause;
            round(&calm(), &flood, &calm()).is_kept()
        };
        assert!(lost(50e-6));
        assert!(!lost(500e-6));
        let mut before = phase(20.0, 5);
        before.attack.longest_pause_sec = 500e-6;
        assert!(round(&before, &phase(20.0, 0), &calm()).is_kept());
        let mut whole = phase(20.0, 0);
        whole.attack.longest_pause_sec = 500e-6;
        assert!(round(&calm(), &whole, &calm()).is_kept());
    }

    #[test]
    fn attack_without_its_drop_reasons_fails_the_run() {
        let mut flood = phase(20.0, 0);
        assert!(flood.check_effect(Attack::Harmless).is_ok());
        assert!(flood.check_effect(Attack::Ttl).is_err());
        flood.drops.push(("ttl-exceeded".into(), 1.0));
        assert!(flood.check_effect(Attack::Ttl).is_ok());
        assert!(
            flood.check_effect(Attack::Syn).unwrap_err().to_string().contains("slow-path-limit")
        );
    }
}
