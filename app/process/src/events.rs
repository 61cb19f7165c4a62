//! The kinds of events in the operational log.

/// Every kind of event and its meaning.
pub const EVENTS: &[(&str, &str)] = &[
    ("admin-change", "Someone changed state through the admin API."),
    (
        "bird-down",
        "BIRD does not announce the routes of a side: it does not answer, has no session, or does not export them.",
    ),
    ("bird-up", "BIRD announces the routes of a side again."),
    ("block-log-failing", "The block log loses records or cannot be written."),
    ("block-log-recovered", "The block log is written again."),
    (
        "block-log-reopen-failed",
        "SIGHUP: the block log's path cannot be opened; the old file goes on.",
    ),
    ("block-log-reopened", "SIGHUP: the block log was closed and opened again."),
    ("capture-started", "Someone captures packets."),
    ("capture-stopped", "A capture ended."),
    (
        "checksums-wrong",
        "TCP SYNs come from a side with wrong checksums, so that no host answers them: an offload on a virtual link. Said once for a side.",
    ),
    (
        "cluster-awaited",
        "etcd does not answer and the node does not know its cluster, or no cluster file has been applied yet; it is waited for.",
    ),
    (
        "cluster-frozen",
        "Controller: nothing is moved, copied or repaired; says who froze it, and why.",
    ),
    (
        "cluster-halted",
        "Controller: more than a third of the nodes look gone or cut off, so nothing moves.",
    ),
    (
        "cluster-keys-read",
        "SIGHUP: the key file was read; says the names of its keys, to compare nodes by.",
    ),
    (
        "cluster-keys-refused",
        "SIGHUP: the key file cannot be read, or others can read it; the former cluster keys stay in use.",
    ),
    (
        "cluster-other",
        "The node was started without etcd, and etcd, which answers now, holds another cluster: the node stays outside.",
    ),
    ("cluster-resumed", "Controller: enough nodes are back, moves go on."),
    ("cluster-unfrozen", "Controller: moves and repairs go on."),
    ("config-warning", "The configuration works but will hurt, as `weir check` says."),
    ("controller-deposed", "Controller: it leads no more."),
    ("controller-elected", "Controller: it leads now."),
    ("controller-starting", "Controller: the process starts."),
    ("controller-stopped", "Controller: the process ends."),
    ("dpdk-started", "DPDK runs; says whether huge pages are used."),
    ("drain-begun", "Controller: a node is to be emptied; says by whose order."),
    ("drain-done", "Controller: a drained node holds no shard any more."),
    ("drain-ended", "Controller: the order to empty a node was taken back."),
    ("drain-waits", "Controller: a drain does not go on; says why."),
    (
        "duplicate-address",
        "Another station has, or claims, an IPv6 address of a side: one of the two must change.",
    ),
    (
        "end-forced",
        "The process did not end in time after it was asked to, and is ended where it stands.",
    ),
    ("end-late", "A part of the node did not end in time; the end goes on without it."),
    (
        "end-not-reported",
        "The guard could not be given the means to see a thread's end at once; it sees its silence.",
    ),
    (
        "epochs-not-kept",
        "The newest of the map cannot be written: entries are obeyed that a restart would forget, and a restored etcd could undo.",
    ),
    ("etcd-back", "Controller: etcd answers again."),
    ("etcd-found", "The node was started without etcd; etcd answers now, and the node takes part."),
    (
        "etcd-lost",
        "etcd does not answer; traffic and failovers go on, nothing is repaired or moved.",
    ),
    ("export-abandoned", "A collector's thread did not end: the disk of its spool stands still."),
    ("export-broken", "The connection to a collector broke; it is tried again."),
    ("export-connected", "Records of the NAT log go to a collector."),
    ("export-losing", "A collector will not get some records; the metrics say why."),
    ("export-not-connected", "A collector cannot be reached; it is tried again."),
    ("export-spool-failing", "The spool of a collector cannot be used; it is tried again."),
    ("export-spool-not-removed", "A segment of a spool that was sent cannot be removed."),
    ("export-spool-unreadable", "A file of a spool is none of this version; it was set aside."),
    (
        "gateway-down",
        "A side cannot forward any more: no gateway of a family answers, or another station has its address.",
    ),
    (
        "gateway-moved",
        "A gateway answers at another MAC than before: a router took over, or was replaced.",
    ),
    (
        "gateway-silent",
        "A side could not forward since start; the worker keeps asking. The line says why.",
    ),
    ("gateway-up", "A gateway of each family of a side answers."),
    (
        "generation-late",
        "A worker has not taken new settings within 5 s; it takes them when it turns again.",
    ),
    ("generation-refused", "New settings were refused, and the former ones go on; says why."),
    (
        "generation-taken",
        "New settings are in force; says their number, how many changes they have and, in a cluster, which keys wait for a restart.",
    ),
    ("guard-restarted", "The process that holds the routes ended and was restarted."),
    ("guard-resumed", "The guard of the routes that stood still goes on."),
    (
        "guard-silent",
        "The guard of the routes stands still: the routes of a worker that ends would stay. It is replaced after 2 s.",
    ),
    ("hand-over-late", "Some shards could not be handed over before the node ended."),
    ("handed-over", "Other nodes serve all shards that they have copies of; the node ends."),
    (
        "life-unsaid",
        "The node cannot write which process of it runs; after a kill the next one waits for the end of a lease.",
    ),
    ("link-down", "A port lost its link."),
    ("link-up", "A port has its link."),
    ("log-lines-lost", "The reader of the log stood still; so many lines are missing here."),
    ("map-set-back", "etcd tells another history than before, as after a restore from a backup."),
    ("map-unreadable", "A key of the cluster cannot be read by this version."),
    ("map-unwritten", "Controller: a decision could not be written to etcd; it is taken again."),
    ("map-write-refused", "etcd refuses to write a shard's entry."),
    (
        "member-fenced",
        "Controller: a member of a shard has certainly ended, its lanes go to others.",
    ),
    (
        "neighbor-claim-refused",
        "ARP named another MAC for a gateway or another worker, which answers at its own: forged, or two stations have one address.",
    ),
    (
        "node-judged",
        "Controller: a node is alive, stopping, suspect, dead or fenced now, or a worker of it is cut off or back; says why.",
    ),
    ("node-name-taken", "Another process is registered under this node's name."),
    ("node-ready", "All ports are up and all gateways answer."),
    ("node-registered", "The cluster knows this node."),
    ("node-starting", "The process starts."),
    ("node-stopped", "The process ends."),
    ("node-unregistered", "The node's lease has ended: the cluster counts it as gone."),
    ("order-done", "Controller: what an operator ordered or applied is carried out or taken."),
    ("panic", "A control thread hit a broken invariant."),
    (
        "port-on-other-numa-node",
        "A worker's core and the device of its port lie on different NUMA nodes: each packet crosses between them.",
    ),
    ("port-warning", "A device works less well than asked."),
    ("primary-promoted", "Controller: a worker becomes primary of a shard; says why."),
    (
        "recording-ended",
        "The recording of the node's events has ended: it is as long as it may be, or cannot be written.",
    ),
    ("role-changed", "A worker has another role for a shard."),
    (
        "routes-held-off",
        "A worker stood still again and again: its routes stay a last resort for so many seconds.",
    ),
    ("routes-refused", "Routes are not in the kernel as they should be; they are tried again."),
    ("rule-log", "A rule with `log` has decided on a flow."),
    (
        "rule-log-lost",
        "A worker's rules with `log` decided on more flows than the log has room for; so many are missing.",
    ),
    (
        "seats-resumed",
        "The node was started without etcd and has opened shards again with their other members; it tells etcd so.",
    ),
    (
        "settings-not-kept",
        "The settings that were taken could not be written to the state directory; the next start needs a valid file.",
    ),
    ("shard-created", "Controller: a new shard has its first primary."),
    (
        "shard-followed",
        "Controller: the map follows what has happened already to a copy or a lane of a shard.",
    ),
    ("shard-moved", "Controller: a move of a shard begins or ends: a drain, or balance."),
    ("shard-repaired", "Controller: a shard with too few copies gets one more."),
    ("shard-retired", "Controller: a shard is given up, as ordered; its flows end."),
    (
        "shutdown-notice-failed",
        "etcd could not learn that the node has ended; its lanes wait for its next start.",
    ),
    ("start-failed", "The process cannot start; the exit code says why."),
    (
        "started-without-etcd",
        "etcd does not answer: the node runs with what its disk knows of the cluster, takes copies of its shards and makes no new flows until etcd answers, or all members of a shard have been started so.",
    ),
    ("stop-requested", "A signal asked the process to end."),
    ("tables-built", "A worker has its tables; says how large and on which pages."),
    ("trace-started", "Someone traces packets."),
    ("trace-stopped", "A trace ended."),
    ("worker-fenced", "A worker stood still: its routes are a last resort until it goes on."),
    ("worker-hung", "A worker does not go round its loop."),
    ("worker-panic", "A worker hit a broken invariant; the process ends."),
    (
        "worker-rejoined",
        "A fenced worker goes on; says how many packets it threw away, too late to be forwarded.",
    ),
    ("worker-resumed", "A worker that hung goes round its loop again."),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn event_names_are_sorted_and_unique() {
        assert!(EVENTS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    fn sources(folder: &Path, found: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false => found.push_str(&std::fs::read_to_string(&path).unwrap()),
            }
        }
    }

    #[test]
    fn every_event_that_is_logged_has_its_row() {
        let mut text = String::new();
        for folder in [
            "src",
            "../node/src",
            "../weir/src",
            "../../cluster/node-core/src",
            "../../cluster/controller/src",
        ] {
            sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut text);
        }
        let logged = text.split("event = \"").skip(1).filter_map(|rest| rest.split('"').next());
        let names: Vec<&str> = logged.collect();
        assert!(names.len() > 40, "{names:?}");
        let unknown = names.iter().find(|name| EVENTS.iter().all(|(known, _)| known != *name));
        assert_eq!(unknown, None);
    }
}
