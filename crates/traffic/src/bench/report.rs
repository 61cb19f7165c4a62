//! The result of a benchmark, for people (Markdown) and for programs (JSON).

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use serde::Serialize;

use super::machine::Machine;
use super::rounds::{Series, Spread};
use super::{BenchError, BenchPlan};

#[derive(Debug, Serialize)]
pub struct Report {
    machine: Machine,
    huge_pages: String,
    generator_core: usize,
    device_core: usize,
    seconds_per_round: f64,
    summaries: Vec<Summary>,
    series: Vec<Series>,
}

/// The figures of one scenario, over the rounds that count.
#[derive(Debug, Serialize)]
struct Summary {
    flows: u32,
    rounds_kept: usize,
    rounds_run: usize,
    raw_mpps: Option<Spread>,
    weir_mpps: Option<Spread>,
    ratio: Option<Spread>,
    /// Raw cycles per packet by weir's: the share of raw speed where the device's core is the limit of both.
    cycles_ratio: Option<Spread>,
    raw_cycles_per_packet: Option<Spread>,
    weir_cycles_per_packet: Option<Spread>,
    weir_loss: f64,
    wrong: u64,
}

impl Summary {
    fn of(series: &Series) -> Self {
        Summary {
            flows: series.flows,
            rounds_kept: series.kept().count(),
            rounds_run: series.weir.len(),
            raw_mpps: Spread::of(series.kept().map(|pair| pair.raw_mpps)),
            weir_mpps: Spread::of(series.kept().map(|pair| pair.weir_mpps)),
            ratio: Spread::of(series.kept().map(|pair| pair.ratio())),
            cycles_ratio: Spread::of(series.kept().map(|pair| pair.raw_cycles / pair.weir_cycles)),
            raw_cycles_per_packet: Spread::of(series.kept().map(|pair| pair.raw_cycles)),
            weir_cycles_per_packet: Spread::of(series.kept().map(|pair| pair.weir_cycles)),
            weir_loss: series.weir_loss(),
            wrong: series.wrong(),
        }
    }
}

impl Report {
    pub(super) fn new(
        plan: &BenchPlan,
        machine: Machine,
        huge_pages: &str,
        series: Vec<Series>,
    ) -> Self {
        Report {
            machine,
            huge_pages: huge_pages.to_owned(),
            generator_core: plan.generator_core,
            device_core: plan.device_core,
            seconds_per_round: plan.flood.measured.as_secs_f64(),
            summaries: series.iter().map(Summary::of).collect(),
            series,
        }
    }

    /// Packets that came back wrong, in all rounds.
    pub fn wrong(&self) -> u64 {
        self.summaries.iter().map(|summary| summary.wrong).sum()
    }

    /// Whether every series has rounds that count.
    pub fn is_conclusive(&self) -> bool {
        self.summaries.iter().all(|summary| summary.rounds_kept > 0)
    }

    /// Writes `report.md` and `report.json` into `folder`.
    pub fn write(&self, folder: &Path) -> Result<(), BenchError> {
        let write = || -> io::Result<()> {
            fs::create_dir_all(folder)?;
            fs::write(folder.join("report.md"), self.markdown())?;
            fs::write(folder.join("report.json"), serde_json::to_vec_pretty(self)?)
        };
        write().map_err(|source| BenchError::io(folder.display().to_string(), source))
    }

    pub fn markdown(&self) -> String {
        let mut text = String::from("# weir beside raw packet I/O\n\n");
        text.push_str(&self.table());
        text.push_str(&self.conditions());
        for series in &self.series {
            text.push_str(&rounds(series));
        }
        text
    }

    /// The table of results: one line per scenario.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| flows | raw Mpps | weir Mpps | weir / raw | raw cycles/packet | weir cycles/packet | raw / weir cycles | lost | \
             wrong | rounds |\n\
             |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        );
        for summary in &self.summaries {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {:.3} % | {} | {} of {} |",
                summary.flows,
                cell(summary.raw_mpps, 2),
                cell(summary.weir_mpps, 2),
                cell(summary.ratio, 3),
                cell(summary.raw_cycles_per_packet, 0),
                cell(summary.weir_cycles_per_packet, 0),
                cell(summary.cycles_ratio, 3),
                100.0 * summary.weir_loss,
                summary.wrong,
                summary.rounds_kept,
                summary.rounds_run,
            );
        }
        text
    }

    fn conditions(&self) -> String {
        format!(
            "\nMedian (least to most) of the rounds that count: those between two raw rounds that differ by at most 20 %.\n\n\
             - Machine: {}, {} cores, Linux {}; generator on core {}, device on core {}; load \
             before: {:.2}; huge pages: {}.\n\
             - Packets: UDP with checksums, 64 bytes with FCS on the internet side, 24 more (IPv4, GRE) on the access side; half \
             upstream, half downstream, all flows established, visited in another order than they were created.\n\
             - Rate: packets of both directions that came back right (as learned, to the right home, checksums verified), over \
             {} s. Lost and wrong packets do not count.\n\
             - Raw: dpdk-testpmd in io mode between the same two memif ports, the same packets unchanged. Where its core is not \
             busy all the time, the generator is the limit of the raw rate, and weir / raw flatters weir; the ratio of the \
             cycles does not.\n\
             - Cycles: TSC cycles of the device's core in polls that brought packets, per packet received, I/O included.\n",
            self.machine.cpu,
            self.machine.cores,
            self.machine.kernel,
            self.generator_core,
            self.device_core,
            self.machine.load,
            self.huge_pages,
            self.seconds_per_round,
        )
    }
}

fn cell(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        Some(Spread { median, min, max }) => {
            format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
        }
        None => "none".into(),
    }
}

/// All rounds of a scenario, the discarded ones too.
fn rounds(series: &Series) -> String {
    let mut text = format!(
        "\n## {} flows, {} subscribers, {} shards\n\n\
         | raw Mpps (mean of before and after) | change | weir Mpps | ratio | raw cycles | weir cycles | counts |\n\
         |--:|--:|--:|--:|--:|--:|---|\n",
        series.flows, series.subscribers, series.shards
    );
    for pair in series.pairs() {
        let _ = writeln!(
            text,
            "| {:.2} | {:.0} % | {:.2} | {:.3} | {:.0} | {:.0} | {} |",
            pair.raw_mpps,
            100.0 * pair.baseline_change,
            pair.weir_mpps,
            pair.ratio(),
            pair.raw_cycles,
            pair.weir_cycles,
            if pair.is_kept() { "yes" } else { "no: the machine changed its speed" },
        );
    }
    text
}
