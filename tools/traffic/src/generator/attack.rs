//! The attacker's packets beside a paced load, in the same bursts. Hot path.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_dpdk::{tsc, tsc_hz};

use super::flood::State;
use super::{Deadline, Generator};
use crate::attack::{Attack, AttackHome, Attacker, Link, Side};
use crate::pacing::Pace;
use crate::side::BURST;

/// Longest time that the last packets may wait for room.
const FLUSH_PATIENCE: Duration = Duration::from_millis(100);

/// The load of the attacker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttackLoad {
    pub attack: Attack,
    /// Packets per second; `None`: as many as the ports accept.
    pub rate: Option<f64>,
    pub home: AttackHome,
}

/// The account of a flood beside an attack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttackAccount {
    /// The attacker's packets, warm-up included; and their rate within the measured window, per
    /// second.
    pub sent: u64,
    pub sent_per_second: f64,
    /// Packets of the others that opened a flow, and how many of them did not come through, over
    /// the whole flood.
    pub opening: u64,
    pub refused: u64,
    /// Longest time between two turns of the generator, s, within the window: rings that are not
    /// read meanwhile overflow.
    pub longest_pause_sec: f64,
}

/// An attack in progress.
#[derive(Debug)]
pub(super) struct UnderAttack {
    attacker: Attacker,
    pace: Option<Pace>,
    account: AttackAccount,
    sent_before: u64,
    last_turn: u64,
    longest_pause: u64,
}

impl UnderAttack {
    pub(super) fn begin_window(&mut self) {
        self.sent_before = self.account.sent;
        (self.last_turn, self.longest_pause) = (tsc(), 0);
    }

    pub(super) fn end_window(&mut self, seconds: f64) {
        self.account.sent_per_second = (self.account.sent - self.sent_before) as f64 / seconds;
        self.account.longest_pause_sec = self.longest_pause as f64 / tsc_hz() as f64;
    }

    /// Returns the account. `opened`: flows that the others opened.
    pub(super) fn account(&self, opened: u64) -> AttackAccount {
        AttackAccount { refused: self.account.opening.saturating_sub(opened), ..self.account }
    }

    #[inline]
    pub(super) fn turn(&mut self, now: u64) {
        self.longest_pause = self.longest_pause.max(now.saturating_sub(self.last_turn));
        self.last_turn = now;
    }
}

impl Generator {
    /// Starts an attack. `None` until the device is known.
    pub(super) fn attack(&self, load: AttackLoad) -> Option<UnderAttack> {
        let link = |side: &crate::side::Side| {
            Some(Link {
                device_mac: side.gateway.device_mac?,
                device_address: side.gateway.device_address,
                gateway_mac: side.gateway.mac,
                gateway_address: side.gateway.address,
            })
        };
        let (access, internet) = (link(&self.access)?, link(&self.internet)?);
        let mode = self.traffic.access;
        Some(UnderAttack {
            attacker: Attacker::new(load.attack, mode, load.home, access, internet),
            pace: load.rate.map(|rate| Pace::new(rate, tsc_hz(), tsc())),
            account: AttackAccount::default(),
            sent_before: 0,
            last_turn: tsc(),
            longest_pause: 0,
        })
    }

    /// Appends the attacker's packets to a burst of the others'. `written` counts these: first
    /// packets of flows, further ones upstream, and downstream.
    pub(super) fn write_attack(&mut self, now: u64, written: [u64; 3], state: &mut State) {
        let Some(attack) = &mut state.attack else { return };
        let [new, up, down] = written;
        state.flood.upstream.sent += new + up;
        state.flood.downstream.sent += down;
        attack.account.opening += new;
        let count = match &mut attack.pace {
            None => BURST as u32,
            Some(pace) => pace.take(now, BURST as u32),
        };
        for _ in 0..count {
            let next = attack.attacker.step();
            let side = match next.side {
                Side::Access => &mut self.access,
                Side::Internet => &mut self.internet,
            };
            let is_written = side.append(&mut self.spare, next.len, |bytes| {
                attack.attacker.write(&next, bytes);
            });
            attack.account.sent += u64::from(is_written);
        }
    }

    /// Sends all written packets: they are already in the accounts.
    pub(super) fn flush(&mut self) {
        let give_up = Deadline::after(FLUSH_PATIENCE);
        while !(give_up.is_over() || self.access.is_clear() && self.internet.is_clear()) {
            self.access.send();
            self.internet.send();
        }
    }
}
