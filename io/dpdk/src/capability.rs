//! The capabilities of this thread, as `/proc/thread-self/status` reports them.

use std::fs;

/// CAP_SYS_ADMIN of linux/capability.h.
const SYS_ADMIN: u64 = 1 << 21;

/// True if CAP_SYS_ADMIN is not among the effective capabilities. False if these cannot be read.
pub(crate) fn lacks_sys_admin() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    effective(&status).is_some_and(|effective| effective & SYS_ADMIN == 0)
}

/// Returns the value of the line `CapEff` of proc(5): 16 hexadecimal digits.
fn effective(status: &str) -> Option<u64> {
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(digits.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_set_is_read() {
        let status = "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000203000\nCapBnd:\t0\n";
        assert_eq!(effective(status), Some(SYS_ADMIN | 0x3000));
        assert_eq!(effective("CapPrm:\t0000000000000000\n"), None);
    }
}
