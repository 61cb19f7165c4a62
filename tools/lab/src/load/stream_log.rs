//! The fate of the numbered packets of one direction of one flow. Pure.
//!
//! Numbers begin at 0 and increase by one. A packet is lost when it has not arrived by the time of
//! the report: leave it a second or two.

use std::collections::VecDeque;

use super::clock::{Micros, Window};

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Micros,
    /// Time of arrival. 0: not arrived yet.
    arrived: Micros,
}

/// The packets of one direction of one flow.
#[derive(Clone, Debug, Default)]
pub struct StreamLog {
    /// Number of the first packet that is still recorded.
    first: u64,
    packets: VecDeque<Sent>,
    /// Times at which a packet arrived again.
    doubled: Vec<Micros>,
}

/// What happened to the packets that were sent within a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamReport {
    /// Packets sent.
    pub sent: u64,
    /// Packets of these that never arrived.
    pub lost: u64,
    /// Repeated arrivals of a packet.
    pub doubled: u64,
    /// Longest time without an arrival.
    pub gap: Micros,
    /// Start of that gap.
    pub gap_start: Micros,
    /// Longest time without a transmission: a shorter gap is not significant.
    pub pause: Micros,
}

/// Packets of a slice of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Packets sent in it.
    pub sent: u64,
    /// Packets that arrived in it, whenever they were sent: a silence is a hole, with late packets
    /// after it.
    pub arrived: u64,
}

impl StreamLog {
    /// Records that a packet is being sent. Returns its number.
    pub fn send(&mut self, now: Micros) -> u64 {
        self.packets.push_back(Sent { at: now, arrived: 0 });
        self.first + self.packets.len() as u64 - 1
    }

    /// Records the arrival of a packet. A packet that was never sent, or is forgotten, is ignored.
    pub fn arrive(&mut self, number: u64, now: Micros) {
        let position = number.checked_sub(self.first).map(|position| position as usize);
        let Some(packet) = position.and_then(|position| self.packets.get_mut(position)) else {
            return;
        };
        if packet.arrived != 0 {
            self.doubled.push(now);
            return;
        }
        packet.arrived = now;
    }

    /// Returns the fate of the packets sent within the window.
    pub fn report(&self, window: Window) -> StreamReport {
        let inside = || self.packets.iter().filter(|packet| window.contains(packet.at));
        let mut arrivals: Vec<Micros> =
            inside().map(|packet| packet.arrived).filter(|&at| at != 0).collect();
        arrivals.sort_unstable();
        let sendings: Vec<Micros> = inside().map(|packet| packet.at).collect();
        let sent = sendings.len() as u64;
        let (gap_start, gap) = longest_pause(&arrivals, window);
        StreamReport {
            sent,
            lost: sent - arrivals.len() as u64,
            doubled: self.doubled.iter().filter(|&&at| window.contains(at)).count() as u64,
            gap,
            gap_start,
            pause: longest_pause(&sendings, window).1,
        }
    }

    /// Returns the send times of the packets of a window that never arrived.
    pub fn lost(&self, window: Window) -> impl Iterator<Item = Micros> {
        let is_lost = move |it: &&Sent| window.contains(it.at) && it.arrived == 0;
        self.packets.iter().filter(is_lost).map(|packet| packet.at)
    }

    /// Adds the packets sent and arrived within the window to bins of `width`, the first of which
    /// begins with the window.
    pub fn add_to_bins(&self, window: Window, width: Micros, bins: &mut [Bin]) {
        let position =
            |at: Micros| window.contains(at).then(|| ((at - window.start) / width) as usize);
        for packet in &self.packets {
            if let Some(bin) = position(packet.at).and_then(|at| bins.get_mut(at)) {
                bin.sent += 1;
            }
            let arrived = position(packet.arrived).filter(|_| packet.arrived != 0);
            if let Some(bin) = arrived.and_then(|at| bins.get_mut(at)) {
                bin.arrived += 1;
            }
        }
    }

    /// Forgets packets that were sent before `time`.
    pub fn forget_before(&mut self, time: Micros) {
        while self.packets.front().is_some_and(|packet| packet.at < time) {
            self.packets.pop_front();
            self.first += 1;
        }
        self.doubled.retain(|&at| at >= time);
    }
}

/// Returns start and length of the longest time between two neighbours of `times` (in order), or to
/// an end of the window.
fn longest_pause(times: &[Micros], window: Window) -> (Micros, Micros) {
    let mut last = window.start;
    let mut longest = (last, 0);
    for &time in times.iter().chain([&window.end]) {
        let length = time.saturating_sub(last);
        if length > longest.1 {
            longest = (last, length);
        }
        last = last.max(time);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { start: 10_000, end: 110_000 };

    /// Returns a log with a packet each millisecond for 120 ms, each `delay` on its way, except
    /// those for which `is_lost` is true.
    fn log(delay: Micros, is_lost: impl Fn(u64) -> bool) -> StreamLog {
        let mut log = StreamLog::default();
        for millisecond in 0..120 {
            let number = log.send(1_000 * millisecond + 1);
            if !is_lost(number) {
                log.arrive(number, 1_000 * millisecond + 1 + delay);
            }
        }
        log
    }

    #[test]
    fn complete_stream_has_no_loss_and_no_gap_but_the_interval() {
        let report = log(300, |_| false).report(WINDOW);
        assert_eq!((report.sent, report.lost, report.doubled), (100, 0, 0));
        assert_eq!((report.gap, report.pause), (1_000, 1_000));
    }

    #[test]
    fn a_gap_goes_from_arrival_to_arrival() {
        let report = log(300, |number| (50..70).contains(&number)).report(WINDOW);
        assert_eq!((report.lost, report.gap, report.gap_start), (20, 21_000, 49_301));
        let log = log(300, |number| (50..70).contains(&number));
        let lost: Vec<Micros> = log.lost(WINDOW).collect();
        assert_eq!((lost.len(), lost[0], lost[19]), (20, 50_001, 69_001));
        assert_eq!(log.lost(Window { start: 69_001, end: 69_002 }).count(), 1);
    }

    #[test]
    fn a_flow_that_does_not_come_back_is_silent_to_the_end_of_the_window() {
        let report = log(300, |number| number >= 60).report(WINDOW);
        assert_eq!((report.lost, report.gap), (50, 110_000 - 59_301));
        assert_eq!(log(300, |_| true).report(WINDOW).gap, 100_000);
    }

    #[test]
    fn a_late_packet_is_a_gap_and_no_loss_and_order_does_not_matter() {
        let mut log = log(300, |number| (50..70).contains(&number));
        for number in (50..70).rev() {
            log.arrive(number, 90_001);
        }
        let report = log.report(WINDOW);
        assert_eq!((report.lost, report.doubled, report.gap), (0, 0, 21_000));
    }

    #[test]
    fn doubled_packet_is_reported_and_unknown_one_is_not_counted() {
        let mut log = log(300, |_| false);
        log.arrive(40, 41_000);
        log.arrive(1_000_000, 41_000);
        assert_eq!((log.report(WINDOW).doubled, log.report(WINDOW).lost), (1, 0));
    }

    #[test]
    fn pause_of_the_sender_is_reported() {
        let mut log = StreamLog::default();
        for at in [10_000, 11_000, 31_000, 32_000, 109_000] {
            let number = log.send(at);
            log.arrive(number, at + 100);
        }
        assert_eq!(log.report(WINDOW).pause, 77_000);
    }

    #[test]
    fn forgotten_packets_count_nowhere_and_the_numbers_go_on() {
        let mut log = log(300, |_| false);
        log.forget_before(60_000);
        assert_eq!(log.report(WINDOW).sent, 50);
        let number = log.send(130_000);
        assert_eq!(number, 120);
        log.arrive(3, 130_000);
        log.arrive(number, 130_100);
        assert_eq!(log.report(Window { start: 130_000, end: 131_000 }).lost, 0);
    }

    #[test]
    fn bins_count_packets_sent_and_arrived_in_them() {
        let mut log = log(300, |number| (35..40).contains(&number));
        // The packet was sent in the second bin, and arrives in the fourth.
        log.arrive(37, 90_001);
        let mut bins = [Bin::default(); 4];
        log.add_to_bins(WINDOW, 25_000, &mut bins);
        assert_eq!(bins.map(|bin| bin.sent), [25; 4]);
        assert_eq!(bins.map(|bin| bin.arrived), [25, 20, 25, 26]);
    }
}
