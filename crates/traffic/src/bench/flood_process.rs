//! The generator of one round, in a process of its own: DPDK has one EAL per process, and every round starts alike.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::process::tail;
use super::{BenchError, Place};
use crate::generator::Flood;
use crate::run::Event;
use crate::scenario::Scenario;
use crate::table::Device;

/// Ends the generator if it still runs.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Floods the device. `on_event` is called with every event of the run; the generator stays connected until it returns.
pub(super) fn run(
    place: &Place<'_>,
    scenario: &Scenario,
    device: Device,
    mut on_event: impl FnMut(&Event) -> Result<(), BenchError>,
) -> Result<Flood, BenchError> {
    let output = place.folder.join("generator.log");
    let errors = File::create(&output)
        .map_err(|source| BenchError::io(output.display().to_string(), source))?;
    let mut child = command(place, scenario, device)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .map_err(|source| BenchError::io("the generator does not start", source))?;
    let events = child.stdout.take().map(BufReader::new);
    let mut running = Running(child);
    let flood = events.map(|events| listen(events, &mut on_event)).transpose()?.flatten();
    // Closes its input, for which it waits.
    drop(running.0.stdin.take());
    let status = running.0.wait().map_err(|source| BenchError::io("the generator", source))?;
    place.plan.check_interrupted()?;
    match flood {
        Some(flood) if status.success() => Ok(flood),
        _ => Err(BenchError::Ended {
            name: "the generator".into(),
            status: status.to_string(),
            tail: tail(&std::fs::read_to_string(&output).unwrap_or_default()),
        }),
    }
}

fn listen(
    events: BufReader<ChildStdout>,
    on_event: &mut impl FnMut(&Event) -> Result<(), BenchError>,
) -> Result<Option<Flood>, BenchError> {
    for line in events.lines() {
        let line = line.map_err(|source| BenchError::io("the generator", source))?;
        let event = serde_json::from_str(&line).map_err(|error| {
            BenchError::io(format!("the generator said {line:?}"), error.into())
        })?;
        on_event(&event)?;
        if let Event::Finished(flood) = event {
            return Ok(Some(flood));
        }
    }
    Ok(None)
}

fn command(place: &Place<'_>, scenario: &Scenario, device: Device) -> Command {
    let plan = place.plan;
    let mut command = Command::new(&plan.weir);
    command.args(["traffic", "flood", "--json"]);
    command.args(["--access", &place.client(0, &place.access_socket())]);
    command.args(["--internet", &place.client(1, &place.internet_socket())]);
    command.args(["--flows", &scenario.flows().to_string()]);
    command.args(["--flows-per-subscriber", &scenario.flows_per_subscriber().to_string()]);
    command.args(["--warm-up", &plan.flood.warm_up.as_secs_f64().to_string()]);
    command.args(["--seconds", &plan.flood.measured.as_secs_f64().to_string()]);
    command.args(["--core", &plan.generator_core.to_string()]);
    if device == Device::PassesThrough {
        command.arg("--pass-through");
    }
    command
}
