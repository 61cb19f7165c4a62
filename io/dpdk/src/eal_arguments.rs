//! The command line that weir gives to the EAL. Operators never write one: `extra` only adds to it.

use std::fmt::Write;

use crate::eal::EalConfig;

/// A PCI address that no machine has. An allow list keeps the EAL from taking every NIC that is
/// bound to user space at start; a list without any real device takes none, and (unlike `--no-pci`)
/// still lets a port be attached by its address later.
const NO_DEVICE: &str = "ffff:ff:1f.7";

/// Returns the arguments, the program name first. `iova_mode` is added unless `extra` has its own.
pub(crate) fn build(
    config: &EalConfig,
    has_huge_pages: bool,
    iova_mode: Option<&str>,
) -> Vec<String> {
    let mut arguments = vec!["weir".to_owned()];
    arguments.push(format!("--lcores=0@({})", core_list(&config.control_cores)));
    arguments.push(format!("--file-prefix={}", config.file_prefix));
    arguments.extend(["-a", NO_DEVICE, "--no-telemetry"].map(str::to_owned));
    if has_huge_pages {
        arguments.push("--in-memory".to_owned());
    } else {
        // `--no-huge` excludes `--in-memory`; without shared configuration it leaves no file behind
        // either.
        arguments.extend(["--no-huge", "--no-shconf", "-m"].map(str::to_owned));
        arguments.push(config.memory_mb.to_string());
    }
    let has_iova_mode = config.extra.iter().any(|argument| argument.starts_with("--iova-mode"));
    if let Some(mode) = iova_mode.filter(|_| !has_iova_mode) {
        arguments.push(mode.to_owned());
    }
    arguments.extend(config.extra.iter().cloned());
    arguments
}

/// Whether the operator requested DPDK's log.
pub(crate) fn wants_log(extra: &[String]) -> bool {
    extra.iter().any(|argument| argument.starts_with("--log-level"))
}

fn core_list(cores: &[usize]) -> String {
    let mut list = String::new();
    for core in cores {
        let comma = if list.is_empty() { "" } else { "," };
        write!(list, "{comma}{core}").expect("writing to a String does not fail");
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eal::HugePages;

    fn config(extra: &[&str]) -> EalConfig {
        EalConfig {
            file_prefix: "weir-n1".into(),
            control_cores: vec![0, 3],
            memory_mb: 700,
            hugepages: HugePages::Auto,
            extra: extra.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn memory_is_either_huge_and_private_or_ordinary_and_sized() {
        let huge = build(&config(&[]), true, None).join(" ");
        assert_eq!(
            huge,
            "weir --lcores=0@(0,3) --file-prefix=weir-n1 -a ffff:ff:1f.7 --no-telemetry --in-memory"
        );
        let ordinary = build(&config(&[]), false, Some("--iova-mode=va")).join(" ");
        assert!(ordinary.ends_with("--no-huge --no-shconf -m 700 --iova-mode=va"), "{ordinary}");
    }

    #[test]
    fn an_iova_mode_of_the_operator_wins() {
        let arguments = build(&config(&["--iova-mode=pa"]), true, Some("--iova-mode=va"));
        assert_eq!(
            arguments.iter().filter(|argument| argument.starts_with("--iova-mode")).count(),
            1
        );
        assert!(arguments.contains(&"--iova-mode=pa".to_owned()));
    }
}
