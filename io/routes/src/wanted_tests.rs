//! The wanted routes against their stated properties, for any cluster.

use std::collections::BTreeMap;

use super::*;
use crate::difference::is_ordered;

const NO_LIMITS: RouteLimits = RouteLimits { max_routes: usize::MAX, max_next_hops: usize::MAX };

fn worker(number: usize, sides: u8) -> RouteWorker {
    RouteWorker {
        access: Ipv4Addr::from(0x0a09_0000 + number as u32),
        internet: Ipv4Addr::from(0x0a0a_0000 + number as u32),
        access6: Some(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, number as u16)),
        internet6: Some(Ipv6Addr::new(0xfd0a, 0, 0, 0, 0, 0, 0, number as u16)),
        is_access_up: sides & 1 != 0,
        is_internet_up: sides & 2 != 0,
    }
}

/// Addresses of shard `number`; no other shard has them.
struct Addresses {
    endpoints: Vec<Ipv4Addr>,
    endpoints6: Vec<Ipv6Addr>,
    prefixes: Vec<Ipv4Net>,
    prefixes6: Vec<Ipv6Net>,
}

/// Has up to three IPv4 prefixes, and no IPv6.
fn addresses(number: usize, prefixes: u8) -> Addresses {
    let number = number as u32;
    Addresses {
        endpoints: vec![Ipv4Addr::from(0x0a64_0000 + number)],
        endpoints6: Vec::new(),
        prefixes6: Vec::new(),
        prefixes: (0..u32::from(prefixes % 4))
            .map(|at| {
                Ipv4Net::new(Ipv4Addr::from(0xcb00_0000 + number * 1024 + at * 256), 24).unwrap()
            })
            .collect(),
    }
}

/// Has an IPv6 endpoint and `prefixes6` IPv6 prefixes as well.
fn addresses_of_both(number: usize, prefixes: u8, prefixes6: u16) -> Addresses {
    let low = number as u16;
    let prefix = |at| Ipv6Addr::new(0x2001, 0xdb8, low, at, 0, 0, 0, 0);
    Addresses {
        endpoints6: vec![Ipv6Addr::new(0xfd64, 0, 0, 0, 0, 0, 0, low)],
        prefixes6: (0..prefixes6).map(|at| Ipv6Net::new(prefix(at), 64).unwrap()).collect(),
        ..addresses(number, prefixes)
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
        endpoints6: &addresses.endpoints6,
        prefixes: &addresses.prefixes,
        prefixes6: &addresses.prefixes6,
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
            .map(|(at, (_, prefixes, ..))| {
                addresses_of_both(at, *prefixes, u16::from(prefixes % 3))
            })
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
            for (side, prefix) in keys(shard) {
                let Some(metric) = shard.metric.filter(|_| is_announced) else { continue };
                let (route, owner) = rest.remove(&(side, prefix, metric)).expect("announced");
                let own: [Option<IpAddr>; 2] = match side {
                    RouteSide::Access => [Some(owner.access.into()), owner.access6.map(Into::into)],
                    RouteSide::Internet => {
                        [Some(owner.internet.into()), owner.internet6.map(Into::into)]
                    }
                };
                let family = usize::from(matches!(prefix, IpNet::V6(_)));
                assert_eq!(Some(route.next_hop), own[family]);
                assert_eq!(owner.access, worker.access);
            }
        }
        // No route is announced without a shard that announces it.
        assert!(rest.is_empty());
    });
}

/// Returns all that a shard may announce.
fn keys(shard: &ServedShard<'_>) -> Vec<(RouteSide, IpNet)> {
    let endpoints = shard.endpoints.iter().map(|it| Ipv4Net::from(*it).into());
    let endpoints = endpoints.chain(shard.endpoints6.iter().map(|it| Ipv6Net::from(*it).into()));
    let prefixes = shard.prefixes.iter().map(|it| IpNet::from(*it));
    let prefixes = prefixes.chain(shard.prefixes6.iter().map(|it| IpNet::from(*it)));
    let access = endpoints.map(|it| (RouteSide::Access, it));
    access.chain(prefixes.map(|it| (RouteSide::Internet, it))).collect()
}

#[test]
fn a_shard_of_both_families_is_announced_with_the_workers_address_of_each() {
    let own = addresses_of_both(5, 1, 1);
    let lists =
        wanted(&[worker(1, 3)], &[shard(&own, 0, Some(1 << 31), false)], NO_LIMITS).unwrap();
    let shown: Vec<String> = lists[0].iter().map(Route::to_string).collect();
    assert_eq!(
        shown,
        [
            "access: 10.100.0.5/32 via 10.9.0.1 metric 2147483648",
            "access: fd64::5/128 via fd09::1 metric 2147483648",
            "internet: 203.0.20.0/24 via 10.10.0.1 metric 2147483648",
            "internet: 2001:db8:5::/64 via fd0a::1 metric 2147483648",
        ]
    );
    assert!(lists[0].iter().all(Route::is_valid));
}

#[test]
fn an_ipv6_prefix_on_a_worker_without_an_ipv6_address_is_named() {
    let own = addresses_of_both(5, 1, 1);
    let announced = [shard(&own, 1, Some(7), false)];
    let with = |access6, internet6| {
        let second = RouteWorker { access6, internet6, ..worker(2, 3) };
        wanted(&[worker(1, 3), second], &announced, NO_LIMITS).map(drop)
    };
    let address = Some(Ipv6Addr::LOCALHOST);
    assert_eq!(with(address, address), Ok(()));
    let error = |side, prefix: &str| {
        Err(WantedError::NoAddress { worker: 1, side, prefix: prefix.parse().unwrap() })
    };
    assert_eq!(with(None, address), error(RouteSide::Access, "fd64::5/128"));
    assert_eq!(with(address, None), error(RouteSide::Internet, "2001:db8:5::/64"));
    assert_eq!(
        with(address, None).unwrap_err().to_string(),
        "2001:db8:5::/64 is to be announced to the internet switch, but worker 1 has no IPv6 \
         address on that side"
    );
    // A shard without IPv6 needs none.
    let own = addresses(5, 1);
    let plain = RouteWorker { access6: None, internet6: None, ..worker(1, 3) };
    assert!(wanted(&[plain], &[shard(&own, 0, Some(7), false)], NO_LIMITS).is_ok());
}

#[test]
fn both_families_count_together_for_the_limits_of_a_switch() {
    let own = addresses_of_both(1, 2, 1);
    let with = |max_routes, max_next_hops| {
        let limits = RouteLimits { max_routes, max_next_hops };
        wanted(&[worker(1, 3)], &[shard(&own, 0, Some(7), false)], limits).map(drop)
    };
    assert_eq!(with(3, 2), Ok(()));
    let side = RouteSide::Internet;
    assert_eq!(with(2, 2), Err(WantedError::TooManyRoutes { side, wanted: 3, max: 2 }));
    let side = RouteSide::Access;
    assert_eq!(with(3, 1), Err(WantedError::TooManyNextHops { side, wanted: 2, max: 1 }));
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
    let own = Addresses {
        endpoints: Vec::new(),
        endpoints6: Vec::new(),
        prefixes: vec!["203.0.113.9/24".parse().unwrap()],
        prefixes6: vec!["2001:db8::9/48".parse().unwrap()],
    };
    let lists = wanted(&[worker(1, 3)], &[shard(&own, 0, Some(7), false)], NO_LIMITS).unwrap();
    let prefixes: Vec<String> = lists[0].iter().map(|route| route.prefix.to_string()).collect();
    assert_eq!(prefixes, ["203.0.113.0/24", "2001:db8::/48"]);
}
