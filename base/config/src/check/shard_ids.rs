//! Every shard of a cluster has its own number.

use crate::cluster_types::ClusterFile;
use crate::findings::Findings;

/// The numbers of a shard or a pool.
#[derive(Debug)]
struct ShardNumbers {
    key: String,
    first: u64,
    last: u64,
}

/// Checks numbers; `are_cut` is whether the sizes of the pools are known.
pub(crate) fn check(file: &ClusterFile, are_cut: bool, findings: &mut Findings<'_>) {
    let pools = file.pools.iter().enumerate().filter(|_| are_cut);
    let pools = pools.map(|(index, pool)| ShardNumbers {
        key: format!("pool[{index}].first_id"),
        first: u64::from(pool.first_id),
        last: (u64::from(pool.first_id) + pool.shard_count()).saturating_sub(1),
    });
    let shards = file.shards.iter().enumerate().map(|(index, shard)| ShardNumbers {
        key: format!("shard[{index}].id"),
        first: u64::from(shard.id),
        last: u64::from(shard.id),
    });
    let mut all: Vec<ShardNumbers> = pools.chain(shards).collect();
    all.retain(|numbers| numbers.last >= numbers.first && findings.is_good(&numbers.key));
    for numbers in &all {
        if numbers.last > u64::from(u32::MAX) {
            let message = format!("its last shard would have the number {}", numbers.last);
            findings.error(&numbers.key, message, format!("numbers end at {}", u32::MAX));
        }
    }
    refuse_shared(&all, findings);
}

fn refuse_shared(all: &[ShardNumbers], findings: &mut Findings<'_>) {
    let free = 1 + all.iter().map(|numbers| numbers.last).max().unwrap_or_default();
    let fix = match u32::try_from(free) {
        Ok(free) => format!("a number is permanent: give the newer one {free}"),
        Err(_) => "a number is permanent: change the newer one".to_owned(),
    };
    let mut sorted: Vec<usize> = (0..all.len()).collect();
    sorted.sort_by_key(|index| (all[*index].first, *index));
    let mut reach: Option<usize> = None;
    for index in sorted {
        match reach.filter(|before| all[*before].last >= all[index].first) {
            Some(before) => {
                let (first, second) = (&all[before.min(index)], &all[before.max(index)]);
                let message = format!("{} of {}", taken(second, first), first.key);
                findings.error(&second.key, message, fix.clone());
                if all[index].last > all[before].last {
                    reach = Some(index);
                }
            }
            None => reach = Some(index),
        }
    }
}

fn taken(second: &ShardNumbers, first: &ShardNumbers) -> String {
    match (words(second), words(first)) {
        (own, other) if own == other => format!("{own} is also the number"),
        (own, other) => format!("{own} overlaps {other}"),
    }
}

fn words(numbers: &ShardNumbers) -> String {
    if numbers.first == numbers.last {
        format!("shard {}", numbers.first)
    } else {
        format!("shards {}..={}", numbers.first, numbers.last)
    }
}
