//! The roles of docs/security.md in a real etcd: each suffices for its work and allows nothing
//! else.

use weir_etcd::{
    Cause, ClaimEvent, EtcdCluster, EtcdOptions, Key, KeyRange, NodeId, Outcome, Password, ShardId,
    Swap, SwapChange, User,
};

use crate::bench::{
    Copy, done, leader_record, next_of_election, next_of_session, node_record, options, start,
    wait, write,
};
use crate::etcd::{Etcd, wait_for};

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");

/// Starts an etcd with the roles and users of the guide; each user's password is its name. `edge10`
/// is created in the same way as `edge1`.
fn protected() -> Etcd {
    let mut etcd = Etcd::start();
    let guide = std::fs::read_to_string(GUIDE).unwrap();
    let (_, rest) = guide.split_once("<!-- begin rights").expect("the start is marked");
    let (commands, _) = rest.split_once("<!-- end rights").expect("the end is marked");
    let commands: Vec<&str> =
        commands.lines().filter_map(|line| line.strip_prefix("etcdctl ")).collect();
    assert!(commands.len() >= 20, "{commands:?}");
    let of_node = commands.iter().filter(|command| command.contains("edge1"));
    let of_other: Vec<String> = of_node.map(|command| command.replace("edge1", "edge10")).collect();
    for command in commands.into_iter().chain(of_other.iter().map(String::as_str)) {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            // Without a password the command would prompt for one.
            ["user", "add", name] => {
                drop(etcd.control(&["user", "add", &format!("{name}:{name}")]))
            }
            _ => drop(etcd.control(&words)),
        }
    }
    for command in [
        &["user", "add", "root:root"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.control(command);
    }
    etcd.control_option("--user=root:root".to_owned());
    etcd
}

fn options_of(etcd: &Etcd, name: &str) -> EtcdOptions {
    let user = User { name: name.to_owned(), password: Password::Given(name.to_owned()) };
    EtcdOptions { user: Some(user), ..options(&[etcd.endpoint()]) }
}

fn as_user(etcd: &Etcd, name: &str) -> EtcdCluster {
    start(options_of(etcd, name))
}

fn name(node: &str) -> NodeId {
    node.parse().unwrap()
}

/// Overwrites a key at its current revision, or creates it.
fn put(cluster: &EtcdCluster, key: Key) -> Outcome {
    let store = cluster.store();
    wait(cluster, "answer", async {
        let found = store.get(&key).await.unwrap();
        store.put(key, found.map(|found| found.mod_revision), b"{}".to_vec()).await
    })
}

fn assert_refused(cluster: &EtcdCluster, key: Key) {
    let outcome = put(cluster, key.clone());
    let Outcome::Refused(error) = outcome else { panic!("{key:?}: {outcome:?}") };
    assert_eq!(error.cause, Cause::PermissionDenied, "{key:?}");
}

#[test]
fn the_role_of_a_node_suffices_for_all_its_work() {
    let mut etcd = protected();
    let operator = as_user(&etcd, "weir-operator");
    done(put(&operator, Key::Desired));
    done(put(&operator, Key::Meta));

    let node = as_user(&etcd, "weir-edge1");
    assert!(wait(&node, "file", node.store().get(&Key::Desired)).unwrap().is_some());
    let mut session = node.session(name("edge1"), &node_record("b1"));
    let event = wait(&node, "registration", next_of_session(&mut session));
    assert!(matches!(event, ClaimEvent::Held { .. }), "{event:?}");
    session.update(&weir_etcd::NodeRecord { is_stopping: true, ..node_record("b1") });
    let mut mirror = node.mirror(KeyRange::All, None);
    let mut copy = Copy::default();
    write(&node, 1, "a");
    write(&node, 1, "b");
    copy.until(&node, &mut mirror, "change", |copy| copy.has(1, "b"));
    let own = Key::Node(name("edge1"));
    copy.until(&node, &mut mirror, "record", |copy| {
        let record = copy.keys.get(&own).map(|value| String::from_utf8_lossy(value).into_owned());
        record.is_some_and(|record| record.contains("\"is_stopping\":true"))
    });

    // The node's process is killed, and its successor knows that; then etcd is away for a while.
    drop(session);
    let next = as_user(&etcd, "weir-edge1");
    let mut successor = next.session_after(name("edge1"), &node_record("b2"), vec!["b1".into()]);
    let event = wait(&next, "take-over", next_of_session(&mut successor));
    assert!(matches!(event, ClaimEvent::Held { .. }), "{event:?}");
    etcd.kill();
    copy.until(&node, &mut mirror, "notice", |copy| copy.is_stale);
    etcd.run();
    copy.until(&node, &mut mirror, "list", |copy| !copy.is_stale);

    // The node states its own end, and ends its registration.
    done(put(&next, Key::Intent(name("edge1"))));
    wait(&next, "end", successor.close()).unwrap();
    assert_eq!(wait(&next, "answer", next.store().get(&own)), Ok(None));
}

#[test]
fn a_node_may_write_neither_keys_of_other_nodes_nor_cluster_keys() {
    let etcd = protected();
    let other = as_user(&etcd, "weir-edge10");
    let mut session = other.session(name("edge10"), &node_record("b9"));
    wait(&other, "registration", next_of_session(&mut session));
    let held = wait(&other, "record", other.store().get(&Key::Node(name("edge10"))));
    let lease = held.unwrap().unwrap().lease.unwrap();

    let stolen = as_user(&etcd, "weir-edge1");
    let keys = [
        Key::Node(name("edge10")),
        Key::Node(name("edge")),
        Key::Intent(name("edge10")),
        Key::Desired,
        Key::Meta,
        Key::Control,
        Key::Report,
        Key::Event(0),
        Key::Leader,
    ];
    for key in keys {
        assert_refused(&stolen, key);
    }
    // It may neither delete the other node's key nor end its lease.
    let as_stolen = ["--user=weir-edge1:weir-edge1"];
    for command in
        [&["del", "/weir/north/nodes/edge10"][..], &["lease", "revoke", &format!("{:x}", lease.0)]]
    {
        let error = etcd.refused(&[&as_stolen[..], command].concat());
        assert!(error.contains("permission denied"), "{command:?}: {error}");
    }
    let still = wait(&other, "record", other.store().get(&Key::Node(name("edge10"))));
    assert_eq!(still.unwrap().unwrap().lease, Some(lease));
    // The keys of another cluster in the same etcd are refused.
    let foreign =
        EtcdOptions { cluster: "south".parse().unwrap(), ..options_of(&etcd, "weir-edge1") };
    let foreign = start(foreign);
    let outcome = wait(&foreign, "refusal", foreign.store().get(&Key::Meta));
    assert_eq!(outcome.unwrap_err().cause, Cause::PermissionDenied);
}

#[test]
fn the_role_of_a_controller_suffices_and_excludes_nodes_and_desired() {
    let etcd = protected();
    let controller = as_user(&etcd, "weir-controller");
    let mut election = controller.election(&leader_record("c1"));
    let event = wait(&controller, "election", next_of_election(&mut election));
    assert!(matches!(event, ClaimEvent::Held { .. }), "{event:?}");
    let intent = Key::Intent(name("edge1"));
    for key in [Key::Meta, Key::Control, Key::Report, Key::Shard(ShardId(7)), Key::Event(511)] {
        done(put(&controller, key));
    }
    // A node that ends leaves a statement, which the controller deletes when it is processed.
    done(put(&as_user(&etcd, "weir-edge1"), intent.clone()));
    let store = controller.store();
    let word = wait(&controller, "last word", store.get(&intent)).unwrap().unwrap();
    let swap = Swap { key: intent, expected: Some(word.mod_revision), change: SwapChange::Delete };
    done(wait(&controller, "answer", store.transact(&[swap], None)));
    for key in [Key::Desired, Key::Node(name("edge1"))] {
        assert_refused(&controller, key);
    }
}

/// The password file is read for each connection, so a password can be changed without a restart.
#[test]
fn a_password_is_changed_while_the_node_runs() {
    use std::os::unix::fs::PermissionsExt;

    let mut etcd = protected();
    let file = etcd.directory().join("password");
    std::fs::write(&file, "weir-edge1\n").unwrap();
    let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);
    let user = User { name: "weir-edge1".to_owned(), password: Password::File(file.clone()) };
    let options = EtcdOptions { user: Some(user), ..options(&[etcd.endpoint()]) };
    let errors = EtcdCluster::start(options.clone(), || ()).unwrap_err();
    let chmod = format!("chmod 600 {}", file.display());
    assert!(errors[0].to_string().ends_with(&chmod), "{errors:?}");
    mode(0o600);
    let node = start(options);
    write(&node, 1, "a");
    etcd.control(&["user", "delete", "weir-edge1"]);
    etcd.control(&["user", "add", "weir-edge1:another"]);
    etcd.control(&["user", "grant-role", "weir-edge1", "weir-north-edge1"]);
    etcd.kill();
    etcd.run();
    wait_for("refusal", || {
        let answer = wait(&node, "answer", node.store().get(&Key::Meta));
        answer.is_err_and(|error| error.cause == Cause::NotAuthenticated)
    });
    std::fs::write(&file, "another\n").unwrap();
    wait_for("answer", || wait(&node, "answer", node.store().get(&Key::Meta)).is_ok());
}
