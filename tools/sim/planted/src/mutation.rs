//! A mutation: a bug that the simulator has to find, as a patch of the source tree in
//! `tools/sim/mutations/NAME.patch`.
//!
//! ```text
//!  a stream goes on behind a gap                  the wrong behaviour, in one sentence
//!
//!  +++ b/cluster/stream/src/receive_stream.rs     as `git diff` writes it, for any number of files
//!  @@                                             line numbers are not read
//!  +        if PLANTED {                          PLANTED: true if this bug is planted
//!  +            ...                               in the calling thread
//! ```
//!
//! The lines without `+` must occur in the file exactly once; their indentation does not matter.
//! All mutations are applied to one tree: no two may remove the same line.

mod tree;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

pub use tree::Tree;

/// Stands for the condition under which the bug is present.
const PLANTED: &str = "PLANTED";

/// A patch of the source tree that adds a bug which can be planted.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// The name of its file.
    pub name: &'static str,
    /// The wrong behaviour.
    pub what: String,
    /// A history that has found the bug before.
    pub found_by: Option<u64>,
    hunks: Vec<Hunk>,
}

/// Adjacent lines of one file, before and after the patch.
#[derive(Clone, Debug, Default)]
struct Hunk {
    file: String,
    before: Vec<String>,
    after: Vec<String>,
}

impl Mutation {
    /// Reads the patches of a folder, ordered by name. The names stay in memory until the process
    /// ends.
    ///
    /// # Errors
    /// Names the patch that is no mutation.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>> {
        let mut mutations = Vec::new();
        for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let (Some(name), true) = (name, path.extension().is_some_and(|it| it == "patch"))
            else {
                continue;
            };
            let text = std::fs::read_to_string(&path);
            let mutation = text
                .map_err(Into::into)
                .and_then(|text| Self::parse(name, &text))
                .with_context(|| path.display().to_string())?;
            mutations.push(mutation);
        }
        ensure!(!mutations.is_empty(), "{}: no mutation", folder.display());
        mutations.sort_by_key(|mutation| mutation.name);
        Ok(mutations)
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let mut lines = text.trim_end().lines();
        let what = lines.next().unwrap_or_default().trim().to_owned();
        ensure!(
            !what.is_empty() && !what.starts_with(['-', '+', '@']) && !what.starts_with("diff "),
            "the first line says in one sentence what is done wrong"
        );
        let (mut file, mut hunks, mut found_by) = (None, Vec::<Hunk>::new(), None);
        let mut is_in_hunk = false;
        for line in lines {
            if let Some(path) = line.strip_prefix("+++ ") {
                file = Some(path.strip_prefix("b/").unwrap_or(path).to_owned());
            }
            let is_header =
                ["+++ ", "--- ", "diff ", "index "].iter().any(|it| line.starts_with(it));
            if let (Some(seed), None) = (line.strip_prefix("seed: "), &file) {
                found_by = Some(seed.parse().context("a seed is a number")?);
            } else if line.starts_with("@@") {
                let file = file.clone().context("a hunk before the name of its file")?;
                hunks.push(Hunk { file, ..Hunk::default() });
                is_in_hunk = true;
            } else if is_header {
                is_in_hunk = false;
            } else if let (true, Some(hunk)) = (is_in_hunk, hunks.last_mut()) {
                hunk.push(line)?;
            } else {
                ensure!(line.is_empty(), "neither header nor hunk: {line}");
            }
        }
        ensure!(!hunks.is_empty(), "no hunk: lines behind @@");
        for Hunk { file, before, after } in &hunks {
            ensure!(!before.is_empty(), "{file}: no line says where");
            let is_switched = after.iter().any(|line| line.contains(PLANTED));
            ensure!(
                is_switched,
                "{file}: no added line of a hunk asks whether the bug is {PLANTED}; \
                 what it needs is named by its full path"
            );
        }
        Ok(Self { name: String::from(name).leak(), what, found_by, hunks })
    }
}

impl Hunk {
    fn push(&mut self, line: &str) -> Result<()> {
        let (mark, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
        match mark {
            " " => {
                self.before.push(rest.to_owned());
                self.after.push(rest.to_owned());
            }
            "-" => self.before.push(rest.to_owned()),
            "+" => self.after.push(rest.to_owned()),
            // "No newline at end of file".
            "\\" => {}
            _ => bail!("a line of a hunk begins with a blank, - or +: {line}"),
        }
        Ok(())
    }

    /// Returns the first line of each place in `text` where the lines of the hunk occur, whatever
    /// their indentation.
    fn positions(&self, text: &str) -> Vec<usize> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let is_here = |window: &[&str]| {
            window.iter().zip(&self.before).all(|(line, wanted)| *line == wanted.trim())
        };
        let windows = lines.windows(self.before.len()).enumerate();
        windows.filter(|(_, window)| is_here(window)).map(|(line, _)| line).collect()
    }

    /// Replaces the lines of the hunk; returns `None` unless they occur exactly once.
    fn replace(&self, text: &str, bug: &str) -> Option<String> {
        let [position] = self.positions(text)[..] else { return None };
        let switch = format!("weir_planted::is({bug:?})");
        let after = self.after.iter().map(|line| line.replace(PLANTED, &switch));
        let lines = text.lines().map(str::to_owned);
        let rest = lines.clone().skip(position + self.before.len());
        let changed = lines.take(position).chain(after).chain(rest);
        Some(changed.map(|line| line + "\n").collect())
    }
}

/// Returns the tree with all bugs in it, each behind its switch, and with the switch among the
/// dependencies of the changed crates.
///
/// # Errors
/// Lists every mutation that does not apply: its name, the file, the lines, and the remedy.
pub fn mutate(original: &Tree, mutations: &[Mutation]) -> Result<Tree> {
    let mut tree = original.clone();
    let mut wrong = Vec::new();
    for mutation in mutations {
        for hunk in &mutation.hunks {
            let text = tree.text(&hunk.file);
            match text.and_then(|text| hunk.replace(text, mutation.name)) {
                Some(changed) => {
                    tree.set(&hunk.file, changed);
                    tree.add_dependency(&hunk.file)?;
                }
                None => wrong.push(explain(original, mutation, hunk)),
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(tree)
}

/// Returns why a hunk does not apply, and the remedy.
fn explain(original: &Tree, mutation: &Mutation, hunk: &Hunk) -> String {
    let found = original.text(&hunk.file).map(|text| hunk.positions(text).len());
    let elsewhere: Vec<&str> = original
        .sources()
        .filter(|(file, text)| *file != hunk.file && hunk.positions(text).len() == 1)
        .map(|(file, _)| file)
        .collect();
    let (state, remedy) = match found {
        Some(1) => (
            "are changed by another mutation, too".to_owned(),
            "let one of the two insert lines beside them instead",
        ),
        Some(count) if count > 1 => (
            format!("stand there {count} times, not once"),
            "add a neighbouring line that tells the places apart",
        ),
        _ if !elsewhere.is_empty() => {
            (format!("have moved to {}", elsewhere.join(" or ")), "name that file behind +++")
        }
        None => ("have no such file".to_owned(), "name the file where they stand now behind +++"),
        Some(_) => (
            "are not there any more".to_owned(),
            "write the lines that begin with a blank or - as they are now",
        ),
    };
    let lines: String = hunk.before.iter().map(|line| format!("    {line}\n")).collect();
    let (name, file) = (mutation.name, &hunk.file);
    format!(
        "mutation {name}: {file}: these lines {state}:\n{lines}  in tools/sim/mutations/{name}.patch: {remedy}"
    )
}

#[cfg(test)]
#[path = "mutation_tests.rs"]
mod tests;
