//! The verdict on a node's membership in its cluster: which conditions could end flows at the next
//! failure, or set the node apart?
//!
//! It judges this node's knowledge alone. `weir cluster status` asks etcd for the state of the
//! whole cluster.

use weir_admin::api::{
    BirdSideStatus, HeldOffStatus, MemberStatus, MembershipStatus, OutsideStatus, PeerStatus,
    RoleStatus,
};

/// A disk that works has taken the epochs long before.
const EPOCHS_UNSAVED_MS: u64 = 5_000;
/// By then a hundred heartbeats were lost.
const PEER_SILENT_MS: u64 = 1_000;
/// By then the lease of a silent node has ended.
const ETCD_SILENT_MS: u64 = 10_000;
/// Shards or peers that a sentence names.
const NAMED_MAX: usize = 10;
/// Roles in the order in which they are shown.
const ROLES: [&str; 6] = ["primary", "acting", "leaving", "synced", "syncing", "out-of-sync"];

/// Returns the summary of a membership for `weir status`.
pub(crate) fn membership(member: &MemberStatus) -> MembershipStatus {
    let count = |count: usize| count as u64;
    let roles = ROLES.map(|role| {
        let shards = member.shards.iter().filter(|shard| shard.role == role);
        (role.to_owned(), count(shards.count()))
    });
    let copies = || member.replication.iter();
    MembershipStatus {
        cluster: member.cluster.clone(),
        risks: risks(member),
        is_registered: member.is_registered,
        etcd_silent_ms: member.etcd_silent_ms,
        is_map_fresh: member.is_map_fresh,
        shards: roles.into_iter().filter(|(_, count)| *count > 0).collect(),
        copies_missing: copies()
            .map(|it| {
                let [waiting, copying, _] = it.copies;
                waiting + copying
            })
            .sum(),
        copies_awaited: copies().map(|it| it.lanes_awaited.saturating_sub(it.lanes_followed)).sum(),
        peers: count(member.peers.len()),
        peers_silent: count(silent_peers(member).count()),
        routes: count(member.routes.len()),
        routes_not_set: count(member.routes.iter().filter(|route| !route.is_set).count()),
        bird: member.bird.clone(),
    }
}

/// Returns conditions that need attention without being a risk: shards that are not served as the
/// cluster file says.
pub(crate) fn troubles(member: &MemberStatus) -> Vec<String> {
    let shards = member.shards.iter().filter(|shard| !shard.is_set_back);
    let shards = shards.filter_map(|shard| Some((shard.shard, shard.trouble.as_ref()?)));
    let mut by_words: Vec<(&String, Vec<u32>)> = Vec::new();
    for (shard, words) in shards {
        match by_words.iter_mut().find(|(known, _)| *known == words) {
            Some((_, ids)) => ids.push(shard),
            None => by_words.push((words, vec![shard])),
        }
    }
    by_words.into_iter().map(|(words, ids)| format!("{}: {words}", shards_named(&ids))).collect()
}

/// True if the shard is served here and no other node has a synced copy. A cluster that wants no
/// copies misses none.
pub(crate) fn is_unprotected(member: &MemberStatus, shard: &RoleStatus) -> bool {
    member.replicas > 0 && is_served(shard) && shard.others_synced == 0
}

/// Returns a sentence for each worker whose routes are held off because it stalls repeatedly.
pub(crate) fn held_off(member: &MemberStatus) -> impl Iterator<Item = String> {
    member.held_off.iter().map(|HeldOffStatus { worker, left_ms, .. }| {
        let seconds = left_ms.div_ceil(1000);
        format!(
            "worker {worker} stands still again and again: its routes are held off for {seconds} s"
        )
    })
}

fn is_served(shard: &RoleStatus) -> bool {
    ["primary", "acting"].contains(&shard.role.as_str())
}

fn risks(member: &MemberStatus) -> Vec<String> {
    let mut risks = Vec::new();
    let bare = ids(member, |shard| is_unprotected(member, shard));
    if !bare.is_empty() {
        risks.push(format!(
            "{}: served here, and no other member has a synced copy",
            shards_named(&bare)
        ));
    }
    let set_back = ids(member, |shard| shard.is_set_back);
    if !set_back.is_empty() {
        risks.push(format!(
            "{}: etcd was set back and has forgotten what was seen here",
            shards_named(&set_back)
        ));
    }
    if let Some(outside) = &member.without_etcd {
        risks.push(started_outside(outside));
    } else if !member.is_registered {
        risks.push("not registered in etcd: the cluster counts this node as gone".to_owned());
    }
    let silent_sec = member.etcd_silent_ms / 1000;
    match &member.etcd_error {
        Some(error) => risks.push(format!("etcd does not answer: {error}")),
        None if member.etcd_silent_ms >= ETCD_SILENT_MS => {
            risks.push(format!("etcd has been silent for {silent_sec} s"));
        }
        None => {}
    }
    if let Some(error) = &member.key_file_error {
        risks.push(format!("the cluster keys are those of before: {error}"));
    }
    let guard = member.guard_trouble.iter();
    risks.extend(guard.map(|trouble| format!("the guard of the routes {trouble}")));
    risks.extend(held_off(member));
    risks.extend(unsaved_epochs(member));
    risks.extend(silence(&silent_peers(member).collect::<Vec<_>>()));
    risks.extend(missing_routes(member));
    risks.extend(member.bird.iter().filter_map(unannounced));
    risks
}

/// Returns one reason for a node that was started without etcd: until it joins it is not registered
/// either.
fn started_outside(outside: &OutsideStatus) -> String {
    let serves = match outside.shards.as_slice() {
        [] => "it serves nothing".to_owned(),
        shards => {
            format!(
                "of {}, which its disk names it for, it translates what other members give it and makes no new flows",
                shards_named(shards)
            )
        }
    };
    let until = match &outside.other_cluster {
        None => "until etcd answers".to_owned(),
        Some(found) => format!(
            "until it is restarted: etcd holds another cluster than the node knows, of the id {found}"
        ),
    };
    format!("started without etcd: {serves} {until}")
}

/// Returns the reason of a side whose routes BIRD does not announce: their traffic goes to the
/// members with copies, and ends if those fail.
fn unannounced(side: &BirdSideStatus) -> Option<String> {
    let BirdSideStatus { side, state, why, .. } = side;
    let is = match state.as_str() {
        "down" => "is down",
        "not-exporting" => "does not export all routes",
        "unknown" if !why.is_empty() => "cannot be asked",
        _ => return None,
    };
    Some(format!("BIRD {is} on the {side} side: {why}"))
}

/// Returns the reason if epochs are not on disk, where they keep a restored etcd from undoing newer
/// entries.
pub(crate) fn unsaved_epochs(member: &MemberStatus) -> Option<String> {
    let seconds = member.epochs_unsaved_ms / 1000;
    match &member.epochs_error {
        Some(error) => Some(format!("epochs are not kept: {error}")),
        None if member.epochs_unsaved_ms >= EPOCHS_UNSAVED_MS => {
            Some(format!("epochs are not kept: the disk has taken nothing for {seconds} s"))
        }
        None => None,
    }
}

fn silent_peers(member: &MemberStatus) -> impl Iterator<Item = &PeerStatus> {
    member.peers.iter().filter(|peer| peer.silent_ms >= PEER_SILENT_MS)
}

fn silence(peers: &[&PeerStatus]) -> Option<String> {
    let names = peers.iter().take(NAMED_MAX).map(|peer| {
        format!("{} for {} s (by worker {})", peer.peer, peer.silent_ms / 1000, peer.worker)
    });
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| format!("not heard: {}{}", names.join(", "), more(peers.len())))
}

/// Returns the reason if routes are missing. A list that the kernel refused in part is not set at
/// all, as far as the node knows; a list that cannot be made leaves shards without their routes.
fn missing_routes(member: &MemberStatus) -> Option<String> {
    let count = member.routes.iter().filter(|route| !route.is_set).count();
    if count > 0 {
        let all = member.routes.len();
        return Some(format!("{count} of {all} routes are not set in the kernel: `weir routes`"));
    }
    let shards = ids(member, |shard| shard.metric.is_some() && !shard.is_route_out);
    let words = "its routes are not out as wanted: `weir routes`";
    (!shards.is_empty()).then(|| format!("{}: {words}", shards_named(&shards)))
}

/// Returns the numbers of the matching shards, sorted and without duplicates.
fn ids(member: &MemberStatus, is_it: impl Fn(&RoleStatus) -> bool) -> Vec<u32> {
    let found = member.shards.iter().filter(|shard| is_it(shard)).map(|shard| shard.shard);
    let mut ids: Vec<u32> = found.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn shards_named(ids: &[u32]) -> String {
    let names: Vec<String> = ids.iter().take(NAMED_MAX).map(u32::to_string).collect();
    let word = if ids.len() == 1 { "shard" } else { "shards" };
    format!("{word} {}{}", names.join(" "), more(ids.len()))
}

fn more(count: usize) -> String {
    let more = count.saturating_sub(NAMED_MAX);
    if more > 0 { format!(" and {more} more") } else { String::new() }
}

#[cfg(test)]
#[path = "member_verdict_tests.rs"]
mod tests;
