//! Phase 1: one packet of each flow upstream, in the order of creation; what comes out tells its public endpoint.

use std::time::Duration;

use super::{Deadline, Generator, GeneratorError};
use crate::side::BURST;
use crate::table::Lesson;

/// Packets under way at most: less than any ring, so that nothing is lost for want of room and creation is not hurried.
const WINDOW: u32 = 512;
/// Without an answer for so long, what is under way is lost.
const PATIENCE: Duration = Duration::from_millis(20);
const ATTEMPTS: u32 = 8;
/// Windows lost in a row after which the device counts as dead.
const LOST_WINDOWS_MAX: u32 = 50;
const TUNNEL_LEN: usize = 84;

/// What phase 1 took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Learned {
    pub sent: u64,
    pub wrong: u64,
}

impl Generator {
    /// Learns the public endpoint of every flow. Packets lost on the way are sent again: phase 1 sets up state, it measures nothing.
    pub fn learn(&mut self) -> Result<Learned, GeneratorError> {
        let mut learned = Learned::default();
        let flows = self.table.flows();
        let mut missing = flows;
        for _ in 0..ATTEMPTS {
            let count = self.pass(&mut learned);
            missing -= count;
            if missing == 0 || count == 0 {
                break;
            }
        }
        if missing > 0 {
            return Err(GeneratorError::NotLearned {
                missing,
                flows,
                attempts: ATTEMPTS,
                wrong: learned.wrong,
            });
        }
        match self.table.shared_endpoints() {
            0 => Ok(learned),
            count => Err(GeneratorError::SharedEndpoints { count }),
        }
    }

    /// One packet of each flow not yet learned; returns how many were learned.
    fn pass(&mut self, learned: &mut Learned) -> u32 {
        let flows = self.table.flows() as usize;
        let (mut next, mut under_way, mut count) = (0, 0, 0);
        let mut lost_windows = 0;
        let mut lost = Deadline::after(PATIENCE);
        while (next < flows || under_way > 0) && lost_windows < LOST_WINDOWS_MAX {
            let lessons = self.take_lessons(learned);
            count += lessons;
            under_way -= lessons.min(under_way);
            if lessons > 0 {
                lost_windows = 0;
                lost = Deadline::after(PATIENCE);
            } else if lost.is_over() {
                under_way = 0;
                lost_windows += 1;
                lost = Deadline::after(PATIENCE);
            }
            if under_way <= WINDOW - BURST as u32 {
                under_way += self.teach(&mut next, learned);
            }
        }
        count
    }

    /// Receives a burst on each side; returns how many flows were learned from it.
    fn take_lessons(&mut self, learned: &mut Learned) -> u32 {
        let table = &mut self.table;
        let mut count = 0;
        self.internet.receive(&mut self.spare, |frame| {
            let lesson = table.learn(frame);
            match lesson {
                Some(Lesson::Learned) => count += 1,
                Some(Lesson::Wrong) => learned.wrong += 1,
                Some(Lesson::Known) | None => {}
            }
            lesson.is_some()
        });
        self.access.receive(&mut self.spare, |_| false);
        count
    }

    /// Sends a burst of flows not yet learned, from creation index `next` on; returns how many were sent.
    fn teach(&mut self, next: &mut usize, learned: &mut Learned) -> u32 {
        let mut room = BURST;
        while let Some(&flow) = self.table.creation_order().get(*next) {
            if room == 0 {
                break;
            }
            *next += 1;
            if self.table.is_learned(flow) {
                continue;
            }
            let (table, template) = (&self.table, &self.upstream);
            self.access.append(&mut self.spare, TUNNEL_LEN, |bytes| {
                table.write_upstream(template, flow, 0, bytes)
            });
            room -= 1;
        }
        let sent = self.access.send();
        learned.sent += sent;
        sent as u32
    }
}
