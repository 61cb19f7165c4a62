//! The files of the source tree that cargo needs, in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The sources, manifests and mutations below a folder: relative path and text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

/// Whether a build of the simulator, or its binary, may read the file.
fn is_wanted(name: &str) -> bool {
    name.ends_with(".rs") || name.ends_with(".patch") || matches!(name, "Cargo.toml" | "Cargo.lock")
}

impl Tree {
    /// Reads the tree at `root`, without its folder `target` and hidden ones.
    ///
    /// # Errors
    /// Names the file or folder that cannot be read.
    pub fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{prefix}{name}");
            if path == "target" || name.starts_with('.') {
                continue;
            }
            if entry.file_type()?.is_dir() {
                self.read_folder(&entry.path(), &format!("{path}/"))?;
            } else if is_wanted(&name) {
                let text = fs::read_to_string(entry.path());
                self.set(&path, text.with_context(|| entry.path().display().to_string())?);
            }
        }
        Ok(())
    }

    /// Makes the folder `root` equal to this tree. Files that are equal already keep their time, so
    /// that cargo builds only the changed ones.
    ///
    /// # Errors
    /// Names the file or folder that cannot be written.
    pub fn write(&self, root: &Path) -> Result<()> {
        fs::create_dir_all(root).with_context(|| root.display().to_string())?;
        let there = Self::read(root)?;
        for file in there.files.keys().filter(|file| !self.files.contains_key(*file)) {
            fs::remove_file(root.join(file)).with_context(|| file.clone())?;
        }
        for (file, text) in &self.files {
            if there.files.get(file) == Some(text) {
                continue;
            }
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap_or(root))
                .and_then(|()| fs::write(&path, text))
                .with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    pub(super) fn text(&self, file: &str) -> Option<&str> {
        self.files.get(file).map(String::as_str)
    }

    pub(super) fn set(&mut self, file: &str, text: String) {
        self.files.insert(file.to_owned(), text);
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().map(|(file, text)| (file.as_str(), text.as_str()));
        files.filter(|(file, _)| file.ends_with(".rs"))
    }

    /// Adds the switch to the dependencies of this source file's package.
    pub(super) fn add_dependency(&mut self, file: &str) -> Result<()> {
        let folders = Path::new(file).ancestors().skip(1);
        let manifests = folders.map(|it| it.join("Cargo.toml").to_string_lossy().into_owned());
        let manifest = manifests.into_iter().find(|it| self.files.contains_key(it));
        let manifest = manifest.with_context(|| format!("{file}: in no package"))?;
        let text = &self.files[&manifest];
        if text.contains("weir-planted") {
            return Ok(());
        }
        const HEAD: &str = "[dependencies]\n";
        let (front, behind) = text
            .split_once(HEAD)
            .with_context(|| format!("{manifest}: no line [dependencies] for the switch"))?;
        let text = format!("{front}{HEAD}weir-planted.workspace = true\n{behind}");
        self.set(&manifest, text);
        Ok(())
    }
}
