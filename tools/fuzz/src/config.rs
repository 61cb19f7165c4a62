use bolero::{TypeGenerator, check};
use weir_config::{ConfigFile, Desired};

const EXAMPLES: [&str; 8] = [
    include_str!("../../../examples/af_xdp.toml"),
    include_str!("../../../examples/cluster.toml"),
    include_str!("../../../examples/ipv6-cluster.toml"),
    include_str!("../../../examples/ipv6.toml"),
    include_str!("../../../examples/memif.toml"),
    include_str!("../../../examples/nic-vf.toml"),
    include_str!("../../../examples/node-1.toml"),
    include_str!("../../../examples/pcap.toml"),
];

/// Any text is a valid file of some kind, or is refused with reasons whose positions exist.
#[test]
fn text() {
    check!().for_each(|bytes: &[u8]| parse(&String::from_utf8_lossy(bytes)));
}

/// The same for files that people write: a working file with mistakes in it.
#[test]
fn edited_example() {
    check!().with_type::<(u8, Vec<Edit>)>().for_each(|(example, edits)| {
        let mut text = EXAMPLES[usize::from(*example) % EXAMPLES.len()].to_owned();
        for edit in edits.iter().take(8) {
            edit.apply(&mut text);
        }
        parse(&text);
    });
}

#[derive(Clone, Debug, TypeGenerator)]
enum Edit {
    RemoveLine(u16),
    DoubleLine(u16, u16),
    RemoveBytes(u16, u8),
    Insert(u16, char),
    Number(u16, i64),
    Value(u16, u8),
}

/// Values that are valid for one key and invalid for most others.
const VALUES: [&str; 12] = [
    "0",
    "-1",
    "65536",
    "4294967296",
    "1e400",
    "true",
    "\"\"",
    "\"10.0.0.0/33\"",
    "\"::1/0\"",
    "[]",
    "{}",
    "[[[[[[]]]]]]",
];

impl Edit {
    fn apply(&self, text: &mut String) {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.is_empty() {
            return;
        }
        let index = |at: u16| usize::from(at) % lines.len();
        match *self {
            Edit::RemoveLine(at) => drop(lines.remove(index(at))),
            Edit::DoubleLine(from, to) => lines.insert(index(to), lines[index(from)].clone()),
            Edit::RemoveBytes(at, count) => {
                let at = usize::from(at) % text.len().max(1);
                let kept = text
                    .char_indices()
                    .filter(|(index, _)| !(at..at + usize::from(count)).contains(index));
                *text = kept.map(|(_, character)| character).collect();
                return;
            }
            Edit::Insert(at, character) => {
                let at = usize::from(at) % (text.len() + 1);
                let at = text.char_indices().map(|(index, _)| index).find(|&index| index >= at);
                text.insert(at.unwrap_or(text.len()), character);
                return;
            }
            Edit::Number(at, number) => replace_value(&mut lines, at, &number.to_string()),
            Edit::Value(at, value) => {
                replace_value(&mut lines, at, VALUES[usize::from(value) % VALUES.len()]);
            }
        }
        *text = lines.join("\n");
    }
}

/// Sets another value in the `at`-th line of the form `key = value`.
fn replace_value(lines: &mut [String], at: u16, value: &str) {
    let mut assignments: Vec<&mut String> =
        lines.iter_mut().filter(|line| line.contains('=')).collect();
    if assignments.is_empty() {
        return;
    }
    let index = usize::from(at) % assignments.len();
    let line = &mut assignments[index];
    let key_len = line.find('=').expect("the line contains an equals sign");
    line.truncate(key_len);
    line.push_str("= ");
    line.push_str(value);
}

fn parse(text: &str) {
    let lines = text.lines().count().max(1);
    let findings = match weir_config::parse_file(text, "weir.toml") {
        Ok((file, warnings)) => {
            if let ConfigFile::Cluster(desired) = file {
                stored(&desired);
            }
            warnings
        }
        Err(errors) => {
            assert!(!errors.is_empty(), "a refusal has a reason");
            errors
        }
    };
    for finding in findings {
        assert!((1..=lines + 1).contains(&finding.line), "{finding}");
        assert!(finding.column >= 1, "{finding}");
        assert!(!finding.message.is_empty());
    }
}

/// The document written to etcd is read back equal, and without a difference.
fn stored(desired: &Desired) {
    let read =
        Desired::from_json(&desired.to_json()).expect("a document that was written can be read");
    assert_eq!(&read, desired);
    assert_eq!(weir_config::difference(desired, &read), []);
    assert_eq!(read.fingerprint(), desired.fingerprint());
}

/// Any document in etcd is a valid cluster or is refused.
#[test]
fn desired() {
    check!().for_each(|bytes: &[u8]| {
        if let Ok(read) = Desired::from_json(&String::from_utf8_lossy(bytes)) {
            stored(&read);
        }
    });
}
