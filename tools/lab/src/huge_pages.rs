//! Huge pages of 2 MiB for the lifetime of a lab; the earlier number is restored when it is
//! removed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
const COMPACT: &str = "/proc/sys/vm/compact_memory";

/// A reservation; dropping it restores the earlier number of pages.
#[derive(Debug)]
pub(crate) struct HugePages {
    file: PathBuf,
    before: u64,
}

impl HugePages {
    /// Reserves `pages` pages beyond the existing ones.
    ///
    /// # Errors
    /// When the kernel cannot provide all of them: memory is in use, or fragmented.
    pub(crate) fn reserve(pages: u64) -> Result<Self> {
        Self::reserve_in(Path::new(RESERVED), pages)
    }

    fn reserve_in(file: &Path, pages: u64) -> Result<Self> {
        let before = read(file)?;
        // Compacts fragmented free memory; a kernel that cannot do so may still have enough.
        let _ = fs::write(COMPACT, "1");
        // From here on the value is dropped, and so the number restored, whatever fails.
        let reserved = Self { file: file.to_owned(), before };
        fs::write(file, (before + pages).to_string())
            .with_context(|| file.display().to_string())?;
        let got = read(file)?.saturating_sub(before);
        ensure!(got >= pages, "of {pages} huge pages only {got} can be had");
        Ok(reserved)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // A failure cannot be handled here.
        let _ = fs::write(&self.file, self.before.to_string());
    }
}

fn read(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Ok(text.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lab;

    #[test]
    fn earlier_reservation_of_huge_pages_is_restored() {
        let lab = Lab::open().unwrap();
        let file = lab.directory().join("nr_hugepages");
        fs::write(&file, "7\n").unwrap();
        let reserved = HugePages::reserve_in(&file, 20).unwrap();
        assert_eq!(read(&file).unwrap(), 27);
        drop(reserved);
        assert_eq!(read(&file).unwrap(), 7);
        assert!(HugePages::reserve_in(&lab.directory().join("none"), 20).is_err());
    }
}
