//! `[node]`.

use std::path::PathBuf;

use weir_ids::is_name;

use crate::file_kind::FileKind;
use crate::findings::Findings;
use crate::section::{self, Section};
use crate::types::{HugePagesSetting, LogFormat, LogLevel, NodeSettings, Poll, SessionLogSetting};

/// `sun_path` of a Unix socket has 108 bytes with its final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
const CONTROL_CORES_MAX: usize = 1024;
const CORE_MAX: u64 = 1023;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> NodeSettings {
    let name = section.text("name", findings, is_name).unwrap_or("weir").to_owned();
    let admin_socket = section
        .text("admin_socket", findings, is_socket_path)
        .map_or_else(|| PathBuf::from(format!("/run/weir/{name}.sock")), PathBuf::from);
    let (rack, drain) = match section.file() {
        FileKind::Member => (
            section.text("rack", findings, is_printable).map(str::to_owned),
            section.boolean("drain", findings),
        ),
        _ => (None, false),
    };
    NodeSettings {
        rack,
        drain,
        poll: match section.choice("poll", findings) {
            "busy" => Poll::Busy,
            _ => Poll::Adaptive,
        },
        control_cores: control_cores(section, findings),
        hugepages: match section.choice("hugepages", findings) {
            "prefer" => HugePagesSetting::Prefer,
            "never" => HugePagesSetting::Never,
            _ => HugePagesSetting::Auto,
        },
        memory_mb: section.optional_integer("memory_mb", findings),
        eal: eal(section, findings),
        admin_group: section.text("admin_group", findings, is_printable).map(str::to_owned),
        metrics: section
            .text("metrics", findings, |text| text.parse::<std::net::SocketAddr>().is_ok())
            .and_then(|text| text.parse().ok()),
        log_level: match section.choice("log_level", findings) {
            "error" => LogLevel::Error,
            "warn" => LogLevel::Warn,
            "debug" => LogLevel::Debug,
            "trace" => LogLevel::Trace,
            _ => LogLevel::Info,
        },
        log_format: match section.choice("log_format", findings) {
            "json" => LogFormat::Json,
            _ => LogFormat::Text,
        },
        block_log: section.text("block_log", findings, is_printable).map(PathBuf::from),
        session_log: match section.choice("session_log", findings) {
            "mappings" => SessionLogSetting::Mappings,
            "destinations" => SessionLogSetting::Destinations,
            _ => SessionLogSetting::None,
        },
        collectors: Vec::new(),
        name,
        admin_socket,
    }
}

fn control_cores(section: &Section<'_>, findings: &mut Findings<'_>) -> Option<Vec<usize>> {
    let entry = section.entry("control_cores", findings)?;
    let elements = entry.elements(findings)?;
    if elements.is_empty() || elements.len() > CONTROL_CORES_MAX {
        entry.refuse(findings);
    }
    let mut cores: Vec<usize> = Vec::new();
    for (path, element) in elements {
        match section::integer(element).filter(|core| *core <= CORE_MAX) {
            Some(core) if cores.contains(&(core as usize)) => {
                findings.error(&path, format!("core {core} is listed twice"), "remove one");
            }
            Some(core) => cores.push(core as usize),
            None => findings.error(&path, "not a core", format!("must be 0..={CORE_MAX}")),
        }
    }
    Some(cores)
}

fn eal(section: &Section<'_>, findings: &mut Findings<'_>) -> Vec<String> {
    let Some(entry) = section.entry("eal", findings) else { return Vec::new() };
    let mut arguments = Vec::new();
    for (path, element) in entry.elements(findings).unwrap_or_default() {
        match element.as_str().filter(|text| is_printable(text)) {
            Some(argument) => arguments.push(argument.to_owned()),
            None => {
                findings.error(&path, "not an EAL argument", "must be a string that is not empty")
            }
        }
    }
    arguments
}

fn is_socket_path(text: &str) -> bool {
    text.starts_with('/') && text.len() <= SOCKET_PATH_BYTES_MAX && is_printable(text)
}

pub(crate) fn is_printable(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_control)
}
