//! The operator's texts: what is wrong, why, and what to do.

use crate::records::ReportedNode;

/// Most shards that a sentence names.
const NAMED_MAX: usize = 10;

pub(super) const NO_LEADER: &str = "no controller leads: traffic goes on, but nothing is repaired or moved; start `weir controller`";

pub(super) fn unprotected(count: usize, shards: usize) -> String {
    format!(
        "{count} of {shards} shards lack a synced copy: one more failure would end their flows; the \
         controller copies them as soon as it can"
    )
}

pub(super) fn in_doubt(count: usize, shards: usize) -> String {
    format!(
        "etcd has forgotten what nodes have seen of {count} of {shards} shards: they are served as before, \
         and go on by themselves when all is certain, or by `weir controller rebase --yes`"
    )
}

pub(super) fn map_frozen(why: &str) -> String {
    format!(
        "{why}; nothing at all is written to the map, also after a failure, until its shards go on \
         (`weir controller rebase`) and `weir controller unfreeze`"
    )
}

pub(super) fn missing(count: usize) -> String {
    format!(
        "shards of the cluster file that no worker serves yet: {count}; the controller creates them"
    )
}

pub(super) fn leftover(shards: &[u32]) -> String {
    let ids = ids(shards, " ");
    format!(
        "not in the cluster file any more, but served: {ids}; `weir controller retire {ids}` ends their flows"
    )
}

/// Joins the first numbers, followed by `...` if there are more.
pub(super) fn ids(shards: &[u32], separator: &str) -> String {
    let mut ids: Vec<String> = shards.iter().take(NAMED_MAX).map(u32::to_string).collect();
    if shards.len() > NAMED_MAX {
        ids.push("...".to_owned());
    }
    ids.join(separator)
}

pub(super) fn node(node: &ReportedNode) -> String {
    let name = &node.node;
    let what_to_do = match node.life.as_str() {
        "stopping" => "others take its shards over first".to_owned(),
        "suspect" => "nothing is decided on it yet".to_owned(),
        "dead" if node.shards > 0 => format!(
            "its share of the ports of {} shards is frozen; start it again, or if it has certainly \
             ended, `weir fence {name}`",
            node.shards
        ),
        _ if !node.cut_off.is_empty() => {
            "mend its links, gateways or BIRD, `weir status` there names them; its copies are made on other nodes \
             meanwhile"
                .to_owned()
        }
        _ => "its ports go to others".to_owned(),
    };
    format!("{name} is {}: {}; {what_to_do}", node.life, node.why)
}
