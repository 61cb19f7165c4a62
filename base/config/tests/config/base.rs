//! The file that the tables of errors and warnings change line by line, and the comparison of
//! findings.

/// Line numbers count from 1 at `[node]`.
pub(crate) const BASE: &str = r#"[node]
name = "n1"

[[worker]]
core = 1
access = { device = "net_af_xdp0,iface=acc0", address = "10.1.0.1/24", gateway = "10.1.0.2", mtu = 1524 }
internet = { device = "net_af_xdp1,iface=net0", address = "10.2.0.1/24", gateway = "10.2.0.2" }

[[worker]]
core = 2
access = { device = "net_af_xdp2,iface=acc1", address = "10.1.0.3/24", gateway = "10.1.0.2", mtu = 1524 }
internet = { device = "net_af_xdp3,iface=net1", address = "10.2.0.3/24", gateway = "10.2.0.2" }

[access]
subscribers = ["10.200.0.0/16"]

[nat]
port_block = 256

[timeouts]
profile = "rfc"

[[shard]]
id = 1
endpoint = "10.100.0.1"
public = ["203.0.113.0/28"]

[[shard]]
id = 2
endpoint = "10.100.0.2"
public = ["203.0.113.16/28"]
"#;

/// Returns a file with the same homes without tunnels.
pub(crate) fn plain() -> String {
    BASE.replace("[access]\n", "[access]\nmode = \"plain\"\n")
        .replace("endpoint = \"10.100.0.1\"", "subscribers = [\"10.200.1.0/24\"]")
        .replace("endpoint = \"10.100.0.2\"", "subscribers = [\"10.200.2.0/24\"]")
}

/// Returns `base` with the first `from` replaced.
pub(crate) fn changed(base: &str, from: &str, to: &str) -> String {
    assert!(base.contains(from), "{from:?} is in the base file");
    base.replacen(from, to, 1)
}

/// Compares findings with the starts of their lines, `line:column: key: message`.
pub(crate) fn assert_found(what: &str, found: &[weir_config::Diagnostic], expected: &[&str]) {
    let lines: Vec<_> = found.iter().map(ToString::to_string).collect();
    let is_as_expected = lines.len() == expected.len()
        && lines
            .iter()
            .zip(expected)
            .all(|(line, start)| line.starts_with(&format!("t.toml:{start}")));
    assert!(
        is_as_expected,
        "{what}\nexpected:\n  {}\nfound:\n  {}",
        expected.join("\n  "),
        lines.join("\n  ")
    );
}

/// Compares the errors of a policy with the first text of each row replaced. The policy comes
/// before the base file, so that its lines count from 1.
pub(crate) fn assert_refused(policy: &str, cases: &[(&str, &str, &[&str])]) {
    for (from, to, expected) in cases {
        let text = format!("{}{BASE}", changed(policy, from, to));
        let errors = weir_config::parse(&text, "t.toml").err().unwrap_or_default();
        assert_found(&format!("{from:?} -> {to:?}"), &errors, expected);
    }
}

/// One row of a table of errors: the first text of the base file, its replacement, and the expected
/// findings.
pub(crate) type Case = (&'static str, &'static str, &'static [&'static str]);

pub(crate) fn check_errors(base: &str, cases: &[Case]) {
    for (from, to, expected) in cases {
        let text = changed(base, from, to);
        let errors = weir_config::parse(&text, "t.toml").err().unwrap_or_default();
        assert_found(&format!("{from:?} -> {to:?}"), &errors, expected);
    }
}
