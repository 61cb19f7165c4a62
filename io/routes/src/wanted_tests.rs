//! The wanted routes against their stated properties, for any cluster.

use std::collections::BTreeMap;

use super::*;
use crate::difference::is_ordered;

const NO_LIMITS: RouteLimits = RouteLimits { max_routes: usize::MAX, max_next_hops: usize::MAX };

fn worker(number: usize, sides: u8) -> RouteWorker {
    RouteWorker {
        access: Ipv4Addr::from(0x0a09_0000 + number as u32),
        internet: Ipv4Addr::from(0x0a0a_0000 + number as u32),
        is_access_up: sides & 1 != 0,
        is_internet_up: sides & 2 != 0,
    }
}

/// Addresses of shard `number`; no other shard has them.
struct Addresses {
    endpoints: Vec<Ipv4Addr>,
    prefixes: Vec<Ipv4Net>,
}

fn addresses(number: usize, prefixes: u8) -> Addresses {
    let number = number as u32;
    Addresses {
        endpoints: vec![Ipv4Addr::from(0x0a64_0000 + number)],
        prefixes: (0..u32::from(prefixes % 4))
            .map(|at| {
                Ipv4Net::new(Ipv4Addr::from(0xcb00_0000 + number * 1024 + at * 256), 24).unwrap()
            })
            .collect(),
    }
}

fn shard(
    addresses: &Addresses,
    worker: WorkerIndex,
    metric: Option<u32>,
    is_last_copy: bool,
) -> ServedShard<'_> {
    ServedShard {
        endpoints: &addresses.endpoints,
        prefixes: &addresses.prefixes,
        worker,
        metric,
        is_last_copy,
        is_held_off: false,
    }
}

#[test]
fn a_shard_that_is_held_off_is_announced_as_a_last_resort_on_both_sides() {
    let workers = [worker(1, 3)];
    let (one, other) = (addresses(5, 1), addresses(6, 1));
    let held = ServedShard { is_held_off: true, ..shard(&one, 0, Some((1 << 31) - 8), false) };
    let lists = wanted(&workers, &[held, shard(&other, 0, Some(7), false)], NO_LIMITS).unwrap();
    let metrics: Vec<u32> = lists[0].iter().map(|route| route.metric).collect();
    assert_eq!(metrics, [u32::MAX - 23, 7, u32::MAX - 23, 7]);
}

#[test]
fn a_primary_announces_its_endpoint_and_its_prefixes_each_on_its_side() {
    let workers = [worker(1, 3), worker(2, 3)];
    let own = addresses(5, 2);
    let lists = wanted(&workers, &[shard(&own, 1, Some((1 << 31) - 8), false)], NO_LIMITS).unwrap();
    let shown: Vec<String> = lists[1].iter().map(Route::to_string).collect();
    assert!(lists[0].is_empty());
    assert_eq!(
        shown,
        [
            "access: 10.100.0.5/32 via 10.9.0.2 metric 2147483640",
            "internet: 203.0.20.0/24 via 10.10.0.2 metric 2147483640",
            "internet: 203.0.21.0/24 via 10.10.0.2 metric 2147483640",
        ]
    );
}

#[test]
fn both_sides_of_a_worker_share_fate_and_others_are_untouched() {
    type Case = (Vec<u8>, Vec<(u8, u8, Option<u32>, bool)>);
    bolero::check!().with_type::<Case>().for_each(|(sides, shards)| {
        let workers: Vec<RouteWorker> =
            sides.iter().enumerate().map(|(at, up)| worker(at, *up)).collect();
        if workers.is_empty() {
            return;
        }
        let all_addresses: Vec<Addresses> = shards
            .iter()
            .enumerate()
            .map(|(at, (_, prefixes, ..))| addresses(at, *prefixes))
            .collect();
        let shards: Vec<ServedShard<'_>> = shards
            .iter()
            .zip(&all_addresses)
            .map(|((at, _, metric, is_last_copy), addresses)| {
                shard(
                    addresses,
                    WorkerIndex::from(*at) % workers.len() as WorkerIndex,
                    *metric,
                    *is_last_copy,
                )
            })
            .collect();
        let lists = wanted(&workers, &shards, NO_LIMITS).unwrap();
        assert_eq!(lists.len(), workers.len());
        assert!(lists.iter().all(|list| is_ordered(list)));
        let mut rest: BTreeMap<_, _> = lists
            .iter()
            .zip(&workers)
            .flat_map(|(list, worker)| {
                list.iter().map(move |route| (route.key(), (*route, *worker)))
            })
            .collect();
        for shard in &shards {
            let worker = workers[usize::from(shard.worker)];
            let up = usize::from(worker.is_access_up) + usize::from(worker.is_internet_up);
            let is_announced = up == 2 || (up == 1 && shard.is_last_copy);
            let keys = shard
                .endpoints
                .iter()
                .map(|endpoint| (RouteSide::Access, Ipv4Net::from(*endpoint)))
                .chain(shard.prefixes.iter().map(|prefix| (RouteSide::Internet, *prefix)));
            for (side, prefix) in keys {
                let Some(metric) = shard.metric.filter(|_| is_announced) else { continue };
                let (route, owner) = rest.remove(&(side, prefix, metric)).expect("announced");
                let own = if side == RouteSide::Access { owner.access } else { owner.internet };
                assert_eq!(route.next_hop, own);
                assert_eq!(owner.access, worker.access);
            }
        }
        // No route is announced without a shard that announces it.
        assert!(rest.is_empty());
    });
}

#[test]
fn an_exceeded_limit_is_named_with_the_wanted_number() {
    let workers = [worker(1, 3), worker(2, 3)];
    let (one, other) = (addresses(1, 3), addresses(2, 1));
    let shards = [shard(&one, 0, Some(7), false), shard(&other, 1, Some(7), false)];
    let with = |max_routes, max_next_hops| {
        wanted(&workers, &shards, RouteLimits { max_routes, max_next_hops })
    };
    assert!(with(4, 2).is_ok());
    assert_eq!(
        with(3, 2),
        Err(WantedError::TooManyRoutes { side: RouteSide::Internet, wanted: 4, max: 3 })
    );
    assert_eq!(
        with(4, 1),
        Err(WantedError::TooManyNextHops { side: RouteSide::Access, wanted: 2, max: 1 })
    );
    let text = with(1, 2).unwrap_err().to_string();
    assert!(
        text.starts_with("2 routes for the access switch, which holds 1 (max_routes)"),
        "{text}"
    );
}

#[test]
fn a_prefix_of_two_shards_and_an_unknown_worker_are_refused() {
    let workers = [worker(1, 3), worker(2, 3)];
    let own = addresses(1, 1);
    let twice = [shard(&own, 0, Some(7), false), shard(&own, 1, Some(7), false)];
    assert!(matches!(wanted(&workers, &twice, NO_LIMITS), Err(WantedError::Twice { .. })));
    // With different metrics it is one shard that is moving from one worker to the other.
    let moving = [shard(&own, 0, Some(7), false), shard(&own, 1, Some(8), false)];
    assert!(wanted(&workers, &moving, NO_LIMITS).is_ok());
    let nowhere = [shard(&own, 2, Some(7), false)];
    assert_eq!(
        wanted(&workers, &nowhere, NO_LIMITS),
        Err(WantedError::NoWorker { worker: 2, workers: 2 })
    );
}

#[test]
fn bits_beyond_the_prefix_length_do_not_reach_the_kernel() {
    let own =
        Addresses { endpoints: Vec::new(), prefixes: vec!["203.0.113.9/24".parse().unwrap()] };
    let lists = wanted(&[worker(1, 3)], &[shard(&own, 0, Some(7), false)], NO_LIMITS).unwrap();
    assert_eq!(lists[0][0].prefix.to_string(), "203.0.113.0/24");
}
