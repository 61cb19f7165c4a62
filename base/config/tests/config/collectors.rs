//! `[[collector]]`: the destinations of the NAT log.

use weir_config::{
    CollectorFormat, CollectorSettings, Config, SessionLogSetting, SpoolSettings, TlsSettings,
    parse,
};

use crate::base::BASE;

fn collectors(text: &str) -> Vec<CollectorSettings> {
    let (config, _): (Config, _) =
        parse(&format!("{BASE}{text}"), "weir.toml").expect("the file is valid");
    config.node.collectors
}

#[test]
fn collectors_of_every_format() {
    let text = r#"
[[collector]]
name = "flows"
address = "[2001:db8::1]:4739"
format = "ipfix-udp"
enterprise = 32473
ipv6_prefixes = false
mtu = 9000
spool = "/var/lib/weir/spool/flows"

[[collector]]
name = "syslog"
address = "log.example:6514"
format = "syslog-tls"
facility = 0
tls_ca = "/etc/weir/ca.pem"
tls_cert = "/etc/weir/n1.pem"
tls_key = "/etc/weir/n1.key"
tls_server_name = "collector"
spool = "/var/lib/weir/spool/syslog"
spool_mb = 16
"#;
    let spool = |name: &str, megabytes_max| {
        Some(SpoolSettings { folder: format!("/var/lib/weir/spool/{name}").into(), megabytes_max })
    };
    let tls = TlsSettings {
        ca: "/etc/weir/ca.pem".into(),
        client: Some(("/etc/weir/n1.pem".into(), "/etc/weir/n1.key".into())),
        server_name: Some("collector".to_owned()),
    };
    let expected = [
        CollectorSettings {
            name: "flows".to_owned(),
            address: "[2001:db8::1]:4739".to_owned(),
            format: CollectorFormat::IpfixUdp { mtu: 9000 },
            enterprise: Some(32473),
            has_prefixes: false,
            spool: spool("flows", 1024),
        },
        CollectorSettings {
            name: "syslog".to_owned(),
            address: "log.example:6514".to_owned(),
            format: CollectorFormat::SyslogTls { facility: 16, tls },
            enterprise: None,
            has_prefixes: true,
            spool: spool("syslog", 16),
        },
    ];
    assert_eq!(collectors(text), expected);
    assert_eq!(collectors(""), []);
}

#[test]
fn every_error_of_a_collector_is_reported() {
    let text = r#"
[[collector]]
name = "a"
address = "log.example"
format = "ipfix-tcp"
mtu = 1400
tls_ca = "/etc/weir/ca.pem"
spool_mb = 5

[[collector]]
name = "a"
address = "log.example:514"
format = "syslog-tls"
spool = "spool"
"#;
    let errors = parse(&format!("{BASE}{text}"), "weir.toml").expect_err("a bad file");
    let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
    for expected in [
        "collector[0].address: \"log.example\" is not valid",
        "collector[0].mtu: has no meaning with format = \"ipfix-tcp\" (remove it)",
        "collector[0].tls_ca: the collector is reached without TLS",
        "collector[0].spool_mb: spool is missing",
        "collector[1].name: a is the name of two collectors",
        "collector[1].tls_ca: missing: the collector is reached with TLS",
        "collector[1].spool: \"spool\" is not valid",
    ] {
        assert!(found.iter().any(|it| it.contains(expected)), "{expected}: {found:#?}");
    }
    assert_eq!(found.len(), 7, "{found:#?}");
}

#[test]
fn a_collector_without_a_spool_is_warned_of() {
    let text = "[[collector]]\nname = \"a\"\naddress = \"10.0.0.1:4739\"\nformat = \"ipfix-udp\"\n";
    let (_, warnings) = parse(&format!("{BASE}{text}"), "weir.toml").expect("the file is valid");
    assert!(warnings.iter().any(|it| it.to_string().contains("is lost while it is away")));
}

#[test]
fn sessions_are_logged_where_there_is_a_collector() {
    let collector = r#"
[[collector]]
name = "flows"
address = "192.0.2.1:4739"
format = "ipfix-tcp"
spool = "/var/lib/weir/spool/flows"
"#;
    let with =
        |word: &str| BASE.replacen("[node]", &format!("[node]\nsession_log = \"{word}\""), 1);
    let read = |text: &str| parse(text, "weir.toml").map(|(it, _)| it.node.session_log);
    for (word, expected) in [
        ("none", SessionLogSetting::None),
        ("mappings", SessionLogSetting::Mappings),
        ("destinations", SessionLogSetting::Destinations),
    ] {
        let text = format!("{}{collector}", with(word));
        assert_eq!(read(&text).expect("the file is valid"), expected);
        let lone = read(&with(word));
        assert_eq!(lone.is_ok(), expected == SessionLogSetting::None, "without a collector");
        if let Err(error) = lone {
            let text = format!("{error:?}");
            assert!(text.contains("node.session_log") && text.contains("[[collector]]"), "{text}");
        }
    }
}
