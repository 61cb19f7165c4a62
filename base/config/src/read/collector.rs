//! `[[collector]]`.

use std::path::PathBuf;

use weir_ids::is_name;

use crate::cluster_types::TlsSettings;
use crate::findings::Findings;
use crate::read::cluster::{is_host_and_port, refuse_half};
use crate::read::node::is_printable;
use crate::section::Section;
use crate::types::{CollectorFormat, CollectorSettings, SpoolSettings};

/// First local facility, as numbered in RFC 5424 section 6.2.1.
const FACILITY_LOCAL0: u8 = 16;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> CollectorSettings {
    let name = section.text("name", findings, is_name).unwrap_or_default().to_owned();
    let address = section.text("address", findings, is_host_and_port);
    let word = section.choice("format", findings);
    CollectorSettings {
        address: address.unwrap_or_default().to_owned(),
        format: format(word, section, findings),
        enterprise: section.optional_integer("enterprise", findings),
        has_prefixes: section.boolean("ipv6_prefixes", findings),
        spool: spool(section, &name, findings),
        name,
    }
}

fn format(word: &str, section: &Section<'_>, findings: &mut Findings<'_>) -> CollectorFormat {
    let mtu = section.integer("mtu", findings);
    let facility = section.integer::<u8>("facility", findings) + FACILITY_LOCAL0;
    let tls = tls(section, word == "syslog-tls", findings);
    let foreign: &[&str] = match word {
        "ipfix-udp" => &["facility"],
        "ipfix-tcp" => &["mtu", "facility"],
        _ => &["mtu"],
    };
    for name in foreign {
        let path = section.path_of(name);
        if findings.is_given(&path) {
            let message = format!("has no meaning with format = \"{word}\"");
            findings.error(&path, message, "remove it");
        }
    }
    match word {
        "ipfix-udp" => CollectorFormat::IpfixUdp { mtu },
        "ipfix-tcp" => CollectorFormat::IpfixTcp,
        "syslog-tcp" => CollectorFormat::SyslogTcp { facility },
        _ => CollectorFormat::SyslogTls { facility, tls },
    }
}

fn tls(section: &Section<'_>, is_tls: bool, findings: &mut Findings<'_>) -> TlsSettings {
    let mut path = |name| section.text(name, findings, is_printable).map(PathBuf::from);
    let (ca, cert, key) = (path("tls_ca"), path("tls_cert"), path("tls_key"));
    let server_name = section.text("tls_server_name", findings, is_printable).map(str::to_owned);
    if is_tls {
        let path = section.path_of("tls_ca");
        if !findings.is_given(&path) {
            let fix = "write the file with the authority of the collector's certificate";
            findings.error(&path, "missing: the collector is reached with TLS", fix);
        }
    } else {
        for name in ["tls_ca", "tls_cert", "tls_key", "tls_server_name"] {
            let path = section.path_of(name);
            if findings.is_given(&path) {
                let fix = "write format = \"syslog-tls\", or remove it";
                findings.error(&path, "the collector is reached without TLS", fix);
            }
        }
    }
    refuse_half(section, ["tls_cert", "tls_key"], findings);
    TlsSettings { ca: ca.unwrap_or_default(), client: cert.zip(key), server_name }
}

fn spool(section: &Section<'_>, name: &str, findings: &mut Findings<'_>) -> Option<SpoolSettings> {
    let is_folder = |text: &str| text.starts_with('/') && is_printable(text);
    let folder = section.text("spool", findings, is_folder).map(PathBuf::from);
    let megabytes_max = section.integer("spool_mb", findings);
    let (spool, size) = (section.path_of("spool"), section.path_of("spool_mb"));
    if findings.is_given(&size) && !findings.is_given(&spool) {
        findings.error(&size, "spool is missing", "write spool, or remove it");
    }
    if !findings.is_given(&spool) {
        let message = format!("what collector {name} cannot take is lost while it is away");
        let fix = "write a folder of its own, e.g. spool = \"/var/lib/weir/spool/north\"";
        findings.warning(&section.path_of("name"), message, fix);
    }
    Some(SpoolSettings { folder: folder?, megabytes_max })
}

/// Checks that each collector has a name and a spool of its own.
pub(crate) fn check_twice(collectors: &[CollectorSettings], findings: &mut Findings<'_>) {
    for (index, collector) in collectors.iter().enumerate() {
        let before = &collectors[..index];
        let path = |key: &str| format!("collector[{index}].{key}");
        if before.iter().any(|other| other.name == collector.name && !other.name.is_empty()) {
            let message = format!("{} is the name of two collectors", collector.name);
            findings.error(&path("name"), message, "give each a name of its own");
        }
        let folder = |it: &CollectorSettings| it.spool.as_ref().map(|spool| spool.folder.clone());
        if folder(collector).is_some() && before.iter().any(|it| folder(it) == folder(collector)) {
            let message = "another collector has this spool";
            findings.error(&path("spool"), message, "give each a folder of its own");
        }
    }
}
