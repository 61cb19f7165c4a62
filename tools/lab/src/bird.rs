//! BIRD daemons with the configurations that weir ships.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::condition::wait_for;
use crate::lab::Lab;
use crate::namespace::Namespace;
use crate::process::Process;

/// Time limit for BIRD to open its control socket.
const START_DEADLINE: Duration = Duration::from_secs(10);
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// Reads a file below `packaging/`.
pub fn packaged(path: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Returns `config` with other values in its `define NAME = value;` lines. Each name must be
/// present.
pub fn with_settings(config: &str, settings: &[(&str, &str)]) -> Result<String> {
    let mut lines: Vec<String> = config.lines().map(str::to_owned).collect();
    for (name, value) in settings {
        let start = format!("define {name} = ");
        let line = lines
            .iter_mut()
            .find(|line| line.starts_with(&start))
            .with_context(|| format!("no setting {name}"))?;
        *line = format!("{start}{value};");
    }
    Ok(lines.join("\n") + "\n")
}

/// A running BIRD daemon.
#[derive(Debug)]
pub struct Bird {
    name: String,
    namespace: Namespace,
    config: PathBuf,
    socket: PathBuf,
    process: Process,
}

impl Bird {
    /// Starts BIRD in the namespace; returns once it answers.
    pub fn start(lab: &Lab, namespace: &Namespace, name: &str, config: &str) -> Result<Self> {
        let file = |end: &str| lab.directory().join(format!("{name}.{end}"));
        let (config_path, socket) = (file("conf"), file("ctl"));
        fs::write(&config_path, config)?;
        let process = Self::run(lab, namespace, name)?;
        let bird = Self {
            name: name.to_owned(),
            namespace: namespace.clone(),
            config: config_path,
            socket,
            process,
        };
        bird.wait_answer()?;
        Ok(bird)
    }

    /// Starts BIRD again after its end, with its first configuration; returns once it answers.
    pub fn start_again(&mut self, lab: &Lab) -> Result<()> {
        self.process = Self::run(lab, &self.namespace, &self.name)?;
        self.wait_answer()
    }

    /// Loads another configuration without ending the sessions. The file of the next start stays as
    /// it is.
    pub fn configure(&self, config: &str) -> Result<()> {
        let path = self.config.with_extension("other");
        fs::write(&path, config)?;
        let answer = self.ask(&format!("configure \"{}\"", path.display()))?;
        ensure!(answer.contains("Reconfigur"), "{answer}");
        Ok(())
    }

    /// Returns the configuration that BIRD was started with.
    pub fn config(&self) -> Result<String> {
        fs::read_to_string(&self.config).with_context(|| self.config.display().to_string())
    }

    fn run(lab: &Lab, namespace: &Namespace, name: &str) -> Result<Process> {
        let file = |end: &str| lab.directory().join(format!("{name}.{end}"));
        // A router has a processor for its BFD; here a busy neighbour process would look like a
        // dead router.
        let mut command = namespace.command("nice");
        command.args(["-n", "-15", "bird"]);
        command.arg("-f").arg("-c").arg(file("conf")).arg("-s").arg(file("ctl"));
        command.arg("-P").arg(file("pid"));
        lab.start(name, &mut command)
    }

    fn wait_answer(&self) -> Result<()> {
        let answered = wait_for(&format!("answer of {}", self.name), START_DEADLINE, || {
            self.ask("show status").ok().map(drop)
        });
        answered.with_context(|| self.process.log_tail())
    }

    /// The path of the control socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the output of birdc for a question.
    pub fn ask(&self, question: &str) -> Result<String> {
        let mut command = std::process::Command::new("birdc");
        command.arg("-s").arg(&self.socket).args(question.split_whitespace());
        let finished = crate::process::run(&mut command, ANSWER_DEADLINE)?.success()?;
        ensure!(!finished.stdout.contains("Unable to connect"), "{}", finished.stdout);
        Ok(finished.stdout)
    }
}
