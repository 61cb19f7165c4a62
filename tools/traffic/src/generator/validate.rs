//! RFC 9693's validation of connection establishment: one packet downstream for each established
//! flow, all of which must be delivered.

use std::ops::Range;
use std::time::Duration;

use weir_dpdk::{tsc, tsc_hz};

use super::{Deadline, Generator};
use crate::families::FamilySet;
use crate::ledger::Account;
use crate::pacing::Pace;
use crate::packet::Mark;
use crate::side::BURST;

const SILENCE: Duration = Duration::from_millis(100);

/// The result of a validation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Validated {
    pub account: Account,
    /// Number of validated flows.
    pub flows: u32,
}

impl Validated {
    pub fn is_complete(&self) -> bool {
        self.account.right == u64::from(self.flows) && self.account.wrong() == 0
    }
}

impl Generator {
    /// Sends one packet to each flow at these positions of the order of creation, at `rate` packets
    /// per second.
    pub fn validate(&mut self, range: Range<usize>, rate: f64) -> Validated {
        in_form!(self.traffic, self.validate_as(range, rate))
    }

    fn validate_as<S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        range: Range<usize>,
        rate: f64,
    ) -> Validated {
        let mut account = Account::default();
        let mut pace = Pace::new(rate, tsc_hz(), tsc());
        let (flows, mut next) = (range.len() as u32, range.start);
        let mut silent = Deadline::after(SILENCE);
        while !silent.is_over() {
            if next < range.end && self.internet.is_clear() {
                let due = pace.take(tsc(), BURST as u32) as usize;
                let end = range.end.min(next + due);
                for position in next..end {
                    let table = &self.table;
                    let flow = table.creation_order()[position];
                    let lap = table.laps_seen(flow)[1] + 1;
                    let (mark, template) =
                        (Mark { flow, lap, stamp: 0 }, self.downstream.of::<S>(flow));
                    self.internet.append(&mut self.spare, template.len(), |bytes| {
                        table.write_downstream::<S, TCP>(template, mark, bytes)
                    });
                }
                next = end;
            }
            let sent = self.internet.send();
            account.sent += sent;
            let table = &mut self.table;
            let received = self.access.receive(&mut self.spare, |frame| {
                table
                    .judge_downstream::<S, TUNNEL, TCP>(frame)
                    .map(|(verdict, _)| account.enter(verdict))
                    .is_some()
            });
            self.internet.receive(&mut self.spare, |_| false);
            // Waiting until the next packet is due does not count as silence; waiting for the
            // device to accept one does.
            let is_due = next < range.end && self.internet.is_clear();
            if sent > 0 || received > 0 || is_due {
                silent = Deadline::after(SILENCE);
            }
        }
        Validated { account, flows }
    }
}
