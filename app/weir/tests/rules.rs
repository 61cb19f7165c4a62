//! Tests `weir rules`, and what `weir check` says of rules, as processes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

const NODE_FILE: &str = r#"[[worker]]
core = 0
access = { device = "net_null0", address = "10.1.0.1/24", gateway = "10.1.0.2", mtu = 1524 }
internet = { device = "net_null1", address = "10.2.0.1/24", gateway = "10.2.0.2" }

[access]
subscribers = ["10.200.0.0/16"]

[[shard]]
id = 7
endpoint = "10.100.0.1"
public = ["203.0.113.0/28"]

[[set]]
name = "blocked"
file = "SET"

[[group]]
name = "business"
subscribers = ["10.200.16.0/20"]

[[rule]]
name = "no-smtp"
protocol = "tcp"
remote_port = [25, "465-587"]
action = "reject"

[[rule]]
name = "court-orders"
from = "any"
remote = "@blocked"
action = "drop"
"#;

/// A folder with `node.toml` and the file of its set.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write("set.txt", "# of 2026\n192.0.2.0/24\n198.51.100.7\n");
        folder.write("node.toml", &folder.node_file());
        folder
    }

    fn node_file(&self) -> String {
        NODE_FILE.replace("SET", self.path("set.txt").to_str().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs the command in the folder. Returns the exit code and what it wrote.
    fn run(&self, words: &str) -> (Option<i32>, String, String) {
        let mut command = Command::new(WEIR);
        let output = command.current_dir(self.0.path()).args(words.split(' ')).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn rules_of_a_node_are_asked_for_without_a_file_and_one_that_is_away_is_named() {
    let folder = Folder::new();
    for command in ["rules show", "rules test home 10.200.1.5 icmp 192.0.2.7"] {
        let (code, out, error) = folder.run(&format!("{command} --socket n.sock"));
        assert_eq!((code, out.as_str()), (Some(2), ""));
        assert!(error.contains("n.sock"), "{error}");
    }
    let (code, _, error) = folder.run("rules show -c node.toml --socket n.sock");
    assert_eq!(code, Some(2), "{error}");
}

#[test]
fn deciding_rule_is_named_with_its_line_and_the_other_candidates() {
    let folder = Folder::new();
    let test = |flow: &str| folder.run(&format!("rules test -c node.toml {flow}"));
    let (code, out, _) = test("home 10.200.1.5 tcp 40000 192.0.2.7:25");
    assert_eq!(code, Some(1));
    assert_eq!(
        out,
        "reject: rule no-smtp (node.toml:22)\n\
         would decide without those before it: court-orders (drop, line 28)\n"
    );
    let (code, out, _) = test("home 10.200.16.1 udp 40000 1.1.1.1:53");
    assert_eq!(code, Some(0));
    assert!(out.starts_with("accept: no rule fits, and flows from homes are accepted\n"), "{out}");
    assert!(out.contains("group of the home: business\n"), "{out}");
    let (code, out, _) = test("internet 10.200.1.5 icmp 1.1.1.1");
    assert_eq!(code, Some(1));
    let expected = "filtering: no rule fits, and nat.filtering = \"address-and-port-dependent\"";
    assert!(out.starts_with(expected), "{out}");
    let (code, out, _) = test("--json internet 10.200.1.5 icmp 192.0.2.1");
    assert_eq!(code, Some(1));
    let answer = json(&out);
    assert_eq!(
        (&answer["verdict"], &answer["rule"], &answer["line"]),
        (&"drop".into(), &"court-orders".into(), &28.into())
    );
    let (code, out, error) = test("home 10.200.1.5 tcp 40000 192.0.2.7");
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(error.contains("\"192.0.2.7\" is no remote: write it as 198.51.100.7:53"), "{error}");
}

#[test]
fn rules_are_asked_about_flows_of_ipv6_and_their_tunnels() {
    let folder = Folder::new();
    folder.write("set.txt", "192.0.2.0/24\n2001:db8:bad::/48\n");
    let business = "\n[[rule]]\nname = \"office\"\ngroups = \"business\"\naction = \"reject\"\n";
    folder.write("node.toml", &(folder.node_file() + business));
    let test = |flow: &str| folder.run(&format!("rules test -c node.toml {flow}"));
    let (code, out, _) = test("home 2001:db8::1@10.200.1.5 udp 40000 2001:db8:bad::9 53");
    assert_eq!(code, Some(1));
    assert!(out.starts_with("drop: rule court-orders (node.toml:28)\n"), "{out}");
    let (code, out, _) = test("home 2001:db8::1@10.200.16.1 icmp 2001:db8:9::2");
    assert_eq!(code, Some(1));
    assert!(out.starts_with("reject: rule office (node.toml:"), "{out}");
    assert!(out.contains("group of the home: business\n"), "{out}");
    let (code, out, _) = test("--json home 2001:db8::1@10.200.1.5 tcp 4000 [2001:db8:9::2]:443");
    assert_eq!(code, Some(0));
    assert_eq!(json(&out)["flow"], "home 2001:db8::1@10.200.1.5 tcp 4000 [2001:db8:9::2]:443");
    let (code, _, error) = test("home 2001:db8::1 icmp 2001:db8:9::2");
    assert_eq!(code, Some(2));
    let expected = "2001:db8::1: the outer address of its tunnel decides on the group of the home: \
                    write it behind @, as 2001:db8::1@10.200.1.5";
    assert!(error.contains(expected), "{error}");
    let over6 =
        folder.node_file().replace("[access]", "[access]\nsubscribers6 = [\"2001:db8:e::/48\"]");
    let over6 = over6.replace("[\"10.200.16.0/20\"]", "[\"2001:db8:e:1::/64\"]") + business;
    folder.write("over6.toml", &over6);
    for flow in [
        "home 2001:db8:e:1::5 udp 40000 198.51.100.9:53",
        "home 2001:db8::1@2001:db8:e:1::5 icmp 2001:db8:9::2",
    ] {
        let (code, out, error) = folder.run(&format!("rules test -c over6.toml {flow}"));
        assert_eq!(code, Some(1), "{error}");
        assert!(out.starts_with("reject: rule office (over6.toml:"), "{out}");
    }
    let (code, out, _) = folder.run("rules diff node.toml over6.toml");
    assert_eq!(code, Some(1));
    assert!(out.contains("accept without a rule -> reject by office"), "{out}");
    let plain = folder.node_file().replace("[access]", "[access]\nmode = \"plain\"");
    let plain = plain.replace("endpoint = \"10.100.0.1\"", "subscribers = [\"10.200.0.0/20\"]");
    folder.write("plain.toml", &plain);
    let (code, _, error) =
        folder.run("rules test -c plain.toml home 2001:db8::1@10.200.1.5 icmp 2001:db8:9::2");
    assert_eq!(code, Some(2));
    assert!(error.contains("these homes have no tunnels: write 2001:db8::1"), "{error}");
    let (code, _, error) =
        folder.run("rules test -c plain.toml home 2001:db8:e::1 icmp 198.51.100.9");
    assert_eq!(code, Some(2));
    assert!(error.contains("these homes have no tunnels: write an IPv4 address"), "{error}");
    folder.write(
        "cases.txt",
        "home 2001:db8::1@10.200.1.5 udp 40000 2001:db8:bad::9 53 drop court-orders\n\
         home 2001:db8::1@10.200.1.5 tcp 40000 [2001:db8:9::9]:25 reject no-smtp\n",
    );
    let (code, out, _) = folder.run("rules test -c node.toml --table cases.txt");
    assert_eq!((code, out.as_str()), (Some(0), "flows: 2, failed: 0\n"));
    let (code, out, _) = folder.run("check node.toml");
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("and [2001:db8:bad::]:25: no-smtp, court-orders\n"), "{out}");
}

#[test]
fn table_of_expected_verdicts_fails_with_the_lines_that_differ() {
    let folder = Folder::new();
    folder.write(
        "cases.txt",
        "# mail\nhome 10.200.1.5 tcp 40000 1.1.1.1:25 reject no-smtp\n\
         home 10.200.1.5 tcp 40000 1.1.1.1:443 accept -\n\
         internet 10.200.1.5 icmp 192.0.2.1 drop\ninternet 10.200.1.5 icmp 1.1.1.1 filtering\n",
    );
    let run = || folder.run("rules test -c node.toml --table cases.txt");
    assert_eq!(run(), (Some(0), "flows: 4, failed: 0\n".to_owned(), String::new()));
    folder.write("set.txt", "192.0.3.0/24\n");
    let (code, out, _) = run();
    assert_eq!(code, Some(1));
    assert_eq!(
        out,
        "cases.txt:4: internet 10.200.1.5 icmp 192.0.2.1: expected drop, found filtering by no rule\n\
         flows: 4, failed: 1\n"
    );
    let (code, out, _) = folder.run("rules test --json -c node.toml --table cases.txt");
    assert_eq!((code, &json(&out)["failed"][0]["line"]), (Some(1), &4.into()));
    folder.write("cases.txt", "home 10.200.1.5 icmp 1.1.1.1 allow\n");
    let (code, _, error) = run();
    assert_eq!(code, Some(2));
    assert!(error.contains("cases.txt:1: \"allow\" is no verdict"), "{error}");
}

#[test]
fn rules_are_shown_with_their_filters_sets_and_bound() {
    let folder = Folder::new();
    let (code, out, _) = folder.run("rules show -c node.toml");
    assert_eq!(code, Some(0));
    for line in [
        "  22  no-smtp       reject        4  protocol tcp, remote_port 25 465-587",
        "  28  court-orders  drop          2  from any, remote @blocked",
        "business  10.200.16.0/20  as all",
    ] {
        assert!(out.lines().any(|it| it == line), "{line}\n{out}");
    }
    assert!(out.lines().any(|it| it.starts_with("blocked        2  /")), "{out}");
    assert!(out.contains("at most 2 comparisons and "), "{out}");
    let answer = json(&folder.run("rules show -c node.toml --json").1);
    assert_eq!(
        (&answer["rules"][1]["filters"], &answer["sets"][0]["entries"]),
        (&2.into(), &2.into())
    );
    assert_eq!(answer["comparisons_max"], 2);
}

#[test]
fn difference_of_two_files_has_their_changes_and_flows_decided_otherwise() {
    let folder = Folder::new();
    let (code, out, _) = folder.run("rules diff node.toml node.toml");
    assert_eq!(code, Some(0));
    assert!(out.ends_with("flows decided otherwise: 0\n"), "{out}");
    folder.write("other.txt", "192.0.2.0/24\n");
    let new = folder.node_file().replace("set.txt", "other.txt").replace("[25, \"", "[\"");
    folder.write("new.toml", &new);
    let (code, out, _) = folder.run("rules diff node.toml new.toml");
    assert_eq!(code, Some(1));
    for line in [
        "set blocked: 1 entry removed (198.51.100.7/32)",
        "rule no-smtp: remote_port: 25 removed",
        "drop by court-orders -> accept without a rule:",
        "reject by no-smtp -> accept without a rule:",
    ] {
        assert!(out.lines().any(|it| it == line), "{line}\n{out}");
    }
    let (code, out, _) = folder.run("rules diff node.toml new.toml --json");
    assert_eq!(code, Some(1));
    assert_eq!(json(&out)["changes"].as_array().map(Vec::len), Some(2));
}

#[test]
fn check_compiles_the_rules_and_warns_of_them() {
    let folder = Folder::new();
    let (code, out, _) = folder.run("check node.toml");
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("rules: 2, with 6 filters; at most 2 comparisons and "), "{out}");
    let worst = "most for home 0.0.0.0, port 0, and 192.0.2.0:25: no-smtp, court-orders\n";
    assert!(out.contains(worst), "{out}");
    let late = "[[rule]]\nname = \"late\"\nremote = \"192.0.2.9\"\naction = \"accept\"\n";
    folder.write("late.toml", &(folder.node_file() + late));
    let (code, out, _) = folder.run("check late.toml");
    assert_eq!(code, Some(0), "{out}");
    let warning = "warning: late.toml:33:1: rule late: never reached: court-orders before it fits";
    assert!(out.contains(warning), "{out}");
}

#[test]
fn wrong_and_missing_set_files_are_refused_with_file_and_line() {
    let folder = Folder::new();
    folder.write("set.txt", "192.0.2.0/24\nnonsense\n192.0.2.1/24\n");
    for command in ["check node.toml", "rules show -c node.toml", "rules diff node.toml node.toml"]
    {
        let (code, out, error) = folder.run(command);
        assert!(code == Some(1) || code == Some(2), "{code:?}");
        let all = out + &error;
        assert!(all.contains("set.txt:2:1: set blocked: \"nonsense\" is not an address"), "{all}");
        assert!(all.contains("set.txt:3:1: set blocked: 192.0.2.1/24 has host bits"), "{all}");
    }
    fs::remove_file(folder.path("set.txt")).unwrap();
    let (code, out, _) = folder.run("check node.toml");
    assert_eq!(code, Some(1));
    assert!(out.contains("set.txt:1:1: set blocked: cannot be read: No such file"), "{out}");
}

#[test]
fn apply_refuses_rules_that_nodes_could_not_take() {
    let folder = Folder::new();
    let cluster = folder.node_file().replace("[access]", "[cluster]\nname = \"north\"\n[access]");
    let shard = cluster.find("[cluster]").unwrap();
    folder.write("cluster.toml", &cluster[shard..]);
    let apply = || folder.run("apply cluster.toml --dry-run --etcd http://127.0.0.1:9");
    let (code, out, error) = apply();
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(error.contains("etcd http://127.0.0.1:9"), "a good file goes to etcd: {error}");
    folder.write("set.txt", "nonsense\n");
    let (code, _, error) = apply();
    assert_eq!(code, Some(1));
    assert!(error.contains("set.txt:1:1: set blocked: \"nonsense\""), "{error}");
    assert!(error.contains("so nothing was written"), "{error}");
}

/// Behind the 32 lines of the node's file.
const GIVEN: &str = r#"
[[source_pool]]
name = "mail"
public = ["203.0.113.8/31"]

[[rule]]
name = "servers"
protocol = "tcp"
remote_port = 24
action = "accept"
source_pool = "mail"

[[rule]]
name = "dns"
protocol = "udp"
remote_port = 53
action = "redirect"
to = "192.0.2.53"
source_pool = "mail"
log = true
"#;

#[test]
fn source_pool_and_destination_of_a_flow_are_named() {
    let folder = Folder::new();
    folder.write("given.toml", &(folder.node_file() + GIVEN));
    let test = |flow: &str| folder.run(&format!("rules test -c given.toml {flow}"));
    let (code, out, _) = test("home 10.200.1.5 udp 40000 1.1.1.1:53");
    let expected =
        "redirect: rule dns (given.toml:45)\nredirected to 192.0.2.53:53\nsource pool: mail\n";
    assert_eq!((code, out.as_str()), (Some(0), expected));
    let (code, out, _) = test("home 10.200.1.5 tcp 40000 1.1.1.1:24");
    let expected = "accept: rule servers (given.toml:38)\nsource pool: mail\n";
    assert_eq!((code, out.as_str()), (Some(0), expected));
    let answer = json(&test("--json home 10.200.1.5 udp 40000 1.1.1.1:53").1);
    assert_eq!(
        (&answer["verdict"], &answer["source_pool"], &answer["redirected_to"]),
        (&"redirect".into(), &"mail".into(), &"192.0.2.53:53".into())
    );
    let answer = json(&test("--json home 10.200.1.5 udp 40000 1.1.1.1:80").1);
    assert!(answer["source_pool"].is_null() && answer["redirected_to"].is_null(), "{answer}");
    folder.write(
        "cases.txt",
        "home 10.200.1.5 udp 40000 1.1.1.1:53 redirect dns\n\
         home 10.200.1.5 udp 40000 192.0.2.1:53 redirect\nhome 10.200.1.5 icmp 1.1.1.1 redirect\n",
    );
    let (code, out, _) = folder.run("rules test -c given.toml --table cases.txt");
    assert_eq!(code, Some(1));
    assert_eq!(
        out,
        "cases.txt:2: home 10.200.1.5 udp 40000 192.0.2.1:53: expected redirect, found drop by rule court-orders\n\
         cases.txt:3: home 10.200.1.5 icmp 1.1.1.1: expected redirect, found accept by no rule\n\
         flows: 3, failed: 2\n"
    );
}

#[test]
fn source_pools_and_destinations_are_shown_and_their_changes_are_differences() {
    let folder = Folder::new();
    folder.write("given.toml", &(folder.node_file() + GIVEN));
    let (code, out, _) = folder.run("rules show -c given.toml");
    assert_eq!(code, Some(0));
    let lines: Vec<String> =
        out.lines().map(|it| it.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "38 servers accept from source pool mail 1 protocol tcp, remote_port 24",
        "45 dns redirect to 192.0.2.53 from source pool mail, logged 1 protocol udp, remote_port 53",
        "source pool public",
        "mail 203.0.113.8/31",
    ] {
        assert!(lines.iter().any(|it| it == line), "{line}\n{out}");
    }
    let answer = json(&folder.run("rules show -c given.toml --json").1);
    assert_eq!(answer["source_pools"][0]["public"][0], "203.0.113.8/31");
    assert_eq!(answer["rules"][3]["to"], "192.0.2.53");
    let new = folder.node_file()
        + &GIVEN.replace("\"mail\"", "\"post\"").replace("\"192.0.2.53\"", "\"192.0.2.53:5353\"");
    folder.write("new.toml", &new);
    let (code, out, _) = folder.run("rules diff given.toml new.toml");
    assert_eq!(code, Some(1));
    for line in [
        "source_pool mail: removed",
        "source_pool post: added with 203.0.113.8/31",
        "rule servers: source_pool \"mail\" -> \"post\"",
        "rule dns: to \"192.0.2.53\" -> \"192.0.2.53:5353\"",
        "accept from source pool mail by servers -> accept from source pool post by servers:",
        "redirect to 192.0.2.53 from source pool mail by dns -> redirect to 192.0.2.53:5353 from source pool post by dns:",
    ] {
        assert!(out.lines().any(|it| it == line), "{line}\n{out}");
    }
    let answer = json(&folder.run("rules diff given.toml new.toml --json").1);
    let sides: Vec<_> =
        answer["decisions"].as_array().unwrap().iter().map(|it| &it["new"]).collect();
    let has = |key: &str, value: &str| sides.iter().any(|side| side[key] == value);
    assert!(has("source_pool", "post") && has("to", "192.0.2.53:5353"), "{answer}");
}

#[test]
fn check_warns_of_shards_without_an_address_of_a_source_pool() {
    let folder = Folder::new();
    let second = "[[shard]]\nid = 8\nendpoint = \"10.100.0.2\"\npublic = [\"203.0.113.16/28\"]\n";
    folder.write("given.toml", &(folder.node_file() + GIVEN + second));
    let (code, out, _) = folder.run("check given.toml");
    assert_eq!(code, Some(0), "{out}");
    let warning = "warning: given.toml:36:10: source_pool[0].public: shard 8 has no address of it: \
        homes there are refused the flows of rules servers, dns (ports-exhausted)";
    assert!(out.contains(warning), "{out}");
}
