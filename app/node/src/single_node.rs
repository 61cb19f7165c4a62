//! The settings of a single node: its file, the files that it names, and the copy of them all that
//! the node keeps on disk.
//!
//! A node that finds its file broken when it starts, say after a loss of power, serves with the
//! settings that it took last, and says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use weir_admin::api::SettingsTexts;
use weir_config::{Config, ConfigFile, Diagnostic, parse_file};

use crate::state_folder::{replace_file, state_folder};

/// The settings of a single node.
#[derive(Clone, Debug)]
pub struct SingleNode {
    pub(crate) config: Config,
    pub(crate) texts: SettingsTexts,
    /// Findings of the check.
    pub(crate) warnings: Vec<Diagnostic>,
    /// Why the file was refused, where the settings are those that the node kept.
    pub(crate) refused: Vec<Diagnostic>,
}

impl SingleNode {
    /// Reads the files that a node's file names. `text`: that of `path`.
    ///
    /// # Errors
    /// All errors in these files.
    pub fn new(
        config: Config,
        warnings: Vec<Diagnostic>,
        path: &Path,
        text: String,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut named = BTreeMap::new();
        let config = config.with_files(|path| {
            let text = fs::read_to_string(path)?;
            named.insert(path.to_owned(), text.clone());
            Ok(text)
        })?;
        // Without a working directory there is no other way to say which file it is.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let texts = SettingsTexts { path, text, named };
        Ok(Self { config, texts, warnings, refused: Vec::new() })
    }

    /// Returns the settings that a node with this file took last; none if it kept none, or this
    /// build does not take them. `refused`: why the file itself cannot be taken.
    pub fn kept(path: &Path, refused: Vec<Diagnostic>) -> Option<Self> {
        Self::kept_in(&state_folder(), path, refused)
    }

    fn kept_in(folder: &Path, path: &Path, refused: Vec<Diagnostic>) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        let content = fs::read(kept_path(folder, &path)).ok()?;
        let texts: SettingsTexts = serde_json::from_slice(&content).ok()?;
        if texts.path != path {
            return None;
        }
        let (file, warnings) = parse_file(&texts.text, &path.display().to_string()).ok()?;
        let ConfigFile::Single(config) = file else { return None };
        let of_kept =
            |path: &Path| texts.named.get(path).cloned().ok_or(io::ErrorKind::NotFound.into());
        let config = config.with_files(of_kept).ok()?;
        Some(Self { config, texts, warnings, refused })
    }
}

/// Keeps settings for a start at which the file is broken. A node without a place for them goes on.
pub(crate) fn keep(texts: &SettingsTexts) {
    let path = kept_path(&state_folder(), &texts.path);
    if let Err(error) = keep_at(&path, texts) {
        tracing::warn!(
            event = "settings-not-kept",
            path = %path.display(),
            "a restart needs a valid {}: {error}", texts.path.display()
        );
    }
}

fn keep_at(path: &Path, texts: &SettingsTexts) -> io::Result<()> {
    replace_file(path, &serde_json::to_vec(texts)?)
}

/// Returns where the settings of a node's file are kept: `NAME.settings` for `NAME.toml`.
fn kept_path(folder: &Path, path: &Path) -> PathBuf {
    folder.join(path.file_name().unwrap_or_default()).with_extension("settings")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_node::SAMPLE_FILE;

    fn with_set(folder: &Path) -> String {
        let set = folder.join("blocked.txt");
        fs::write(&set, "192.0.2.0/24\n").unwrap();
        format!("{SAMPLE_FILE}[[set]]\nname = \"blocked\"\nfile = \"{}\"\n", set.display())
    }

    fn read(path: &Path, text: &str) -> Result<SingleNode, Vec<Diagnostic>> {
        let (file, warnings) = parse_file(text, &path.display().to_string())?;
        let ConfigFile::Single(config) = file else { panic!("a single node's file") };
        SingleNode::new(*config, warnings, path, text.to_owned())
    }

    #[test]
    fn kept_settings_need_none_of_the_files_that_they_came_from() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge1.toml");
        let node = read(&path, &with_set(folder.path())).unwrap();
        let kept = folder.path().join("state");
        keep_at(&kept_path(&kept, &path), &node.texts).unwrap();
        assert!(kept.join("edge1.settings").is_file());

        fs::remove_file(folder.path().join("blocked.txt")).unwrap();
        let refused = read(&path, &node.texts.text).unwrap_err();
        let again = SingleNode::kept_in(&kept, &path, refused.clone()).unwrap();
        assert_eq!((&again.config, &again.texts), (&node.config, &node.texts));
        assert_eq!(again.refused.len(), 1);
    }

    #[test]
    fn nothing_is_taken_from_a_copy_of_another_file_or_a_damaged_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge1.toml");
        let kept = |path: &Path| SingleNode::kept_in(folder.path(), path, Vec::new());
        assert!(kept(&path).is_none());
        let node = read(&path, SAMPLE_FILE).unwrap();
        let copy = kept_path(folder.path(), &path);
        keep_at(&copy, &node.texts).unwrap();
        assert!(kept(&path).is_some());
        assert!(kept(&folder.path().join("other/edge1.toml")).is_none());
        let whole = fs::read(&copy).unwrap();
        fs::write(&copy, &whole[..whole.len() / 2]).unwrap();
        assert!(kept(&path).is_none());
        assert_eq!(
            kept_path(Path::new("lib"), Path::new("/etc/edge1.north.toml")),
            Path::new("lib/edge1.north.settings")
        );
        let other_build = String::from_utf8(whole).unwrap().replace("subscribers", "homes_of");
        fs::write(&copy, other_build).unwrap();
        assert!(kept(&path).is_none());
    }

    #[test]
    fn folder_that_cannot_be_made_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge1.toml");
        fs::write(folder.path().join("state"), "no folder").unwrap();
        let node = read(&path, SAMPLE_FILE).unwrap();
        let copy = kept_path(&folder.path().join("state"), &path);
        assert!(keep_at(&copy, &node.texts).is_err());
    }
}
