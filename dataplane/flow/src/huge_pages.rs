//! Checks whether the kernel provided the huge pages it was asked for: it may promise them and then
//! run out.

/// Whether at least half of the resident memory around `address` lies on transparent huge pages.
pub(crate) fn backs(address: usize) -> bool {
    std::fs::read_to_string("/proc/self/smaps").is_ok_and(|smaps| is_huge_in(&smaps, address))
}

/// Reads `smaps`, the text of proc_pid_smaps(5): a line `start-end perms ...` for each mapping,
/// then lines `Name:  n kB`.
fn is_huge_in(smaps: &str, address: usize) -> bool {
    let mut is_here = false;
    let mut resident_kb = 0;
    for line in smaps.lines() {
        if let Some(range) = range_of(line) {
            is_here = range.contains(&address);
        } else if is_here {
            if let Some(kb) = kb_of(line, "Rss:") {
                resident_kb = kb;
            } else if let Some(kb) = kb_of(line, "AnonHugePages:") {
                return kb > 0 && kb * 2 >= resident_kb;
            }
        }
    }
    false
}

pub(crate) fn range_of(line: &str) -> Option<std::ops::Range<usize>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

fn kb_of(line: &str, name: &str) -> Option<u64> {
    let value = line.strip_prefix(name)?.trim().strip_suffix("kB")?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
Rss:                4096 kB
AnonHugePages:      2048 kB
7f0000400000-7f0000800000 rw-p 00000000 00:00 0 
Rss:                4096 kB
AnonHugePages:         0 kB
";

    #[test]
    fn reads_the_mapping_that_holds_the_address() {
        assert!(is_huge_in(SMAPS, 0x7f00_0000_0000));
        assert!(is_huge_in(SMAPS, 0x7f00_003f_ffff));
        assert!(!is_huge_in(SMAPS, 0x7f00_0040_0000));
        assert!(!is_huge_in(SMAPS, 0x1000));
    }
}
