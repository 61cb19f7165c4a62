//! The allocator against a set: no port twice, every port owned or free, ports come back, blocks
//! come back, lanes are correct.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use weir_ids::ShardId;

use super::*;
use crate::config::{NatShardConfig, ShardRoom};
use crate::replication::lane::ALL_LANES;

fn config(public: &str, port_block: u16) -> NatConfig {
    NatConfig {
        port_block,
        shards: vec![NatShardConfig {
            id: ShardId(1),
            public: vec![public.parse().unwrap()],
            public6: Vec::new(),
            subscribers_max: 256,
        }],
        ..NatConfig::default()
    }
}

fn pool(public: &str, port_block: u16, owned_lanes: u8) -> PortBlocks {
    let mut pool = PortBlocks::new(&config(public, port_block)).unwrap();
    pool.set_lanes(SHARD, owned_lanes);
    pool
}

const SHARD: ShardIndex = ShardIndex(0);

#[test]
fn a_block_gives_each_port_once_in_random_order() {
    let mut random = Random::new([7, 7]);
    let mut pool = pool("203.0.113.1/32", 256, ALL_LANES);
    let block = pool.open(0, 1, &mut random).unwrap();
    let ports: Vec<u16> = std::iter::from_fn(|| {
        pool.take(block, 1, Protocol::Udp, &mut random).map(|at| at.public.port)
    })
    .collect();
    let (first, last) = pool.port_range(block);
    assert_eq!(ports.iter().copied().collect::<HashSet<_>>(), (first..=last).collect());
    assert_eq!(ports.len(), 256);
    assert!(pool.is_full(block, Protocol::Udp));
    assert!(!ports.is_sorted(), "RFC 6056: not in sequence");
}

#[test]
fn tcp_udp_and_icmp_are_separate_spaces() {
    let mut random = Random::new([7, 7]);
    let mut pool = pool("203.0.113.1/32", 64, ALL_LANES);
    let block = pool.open(0, 1, &mut random).unwrap();
    for protocol in Protocol::ALL {
        assert_eq!((0..64).filter_map(|_| pool.take(block, 1, protocol, &mut random)).count(), 64);
    }
    assert_eq!(pool.ports_used(SHARD), 3 * 64);
}

#[test]
fn ports_below_port_min_are_never_given() {
    for port_block in [64, 256, 1024, 2048, 8192] {
        let mut random = Random::new([u64::from(port_block), 7]);
        let mut pool = pool("203.0.113.1/32", port_block, ALL_LANES);
        let mut given = HashSet::new();
        while let Some(block) = pool.open(0, 1, &mut random) {
            let before = given.len();
            while let Some(taken) = pool.take(block, 1, Protocol::Tcp, &mut random) {
                let port = taken.public.port;
                assert!(given.insert(port), "port {port} was given twice");
            }
            assert_eq!((given.len() - before) as u32, pool.capacity(block));
        }
        assert_eq!(given, (1024..=u16::MAX).collect(), "block size {port_block}");
        assert_eq!(pool.blocks_free(SHARD), 0);
    }
}

#[test]
fn a_lane_is_the_block_number_mod_8_and_foreign_lanes_stay_closed() {
    let mut random = Random::new([3, 4]);
    let owned_lanes = 0b0010_0001;
    let mut pool = pool("203.0.113.0/31", 256, owned_lanes);
    let total = pool.blocks_total(SHARD);
    let mut opened = 0;
    for address in 0..2 {
        while let Some(block) = pool.open(address, 1, &mut random) {
            let (first, _) = pool.port_range(block);
            assert_eq!(pool.lane(block), u32::from(first) / 256 % 8);
            assert!(owned_lanes >> pool.lane(block) & 1 == 1);
            opened += 1;
        }
    }
    // Of 256 blocks an eighth per lane; the four below port 1024 are of lanes 0 to 3.
    assert_eq!(opened, total);
    assert_eq!(opened, 2 * (31 + 32));
}

#[test]
fn u2_a_new_home_is_paired_with_the_address_with_most_free_blocks() {
    let mut random = Random::new([3, 4]);
    let mut pool = pool("203.0.113.0/30", 256, ALL_LANES);
    for _ in 0..4 * 252 {
        let address = pool.least_loaded(SHARD, &mut random).unwrap();
        pool.open(address, 1, &mut random).unwrap();
        let free: Vec<_> = pool.addresses.iter().map(|address| address.blocks_free).collect();
        let (min, max) = (free.iter().min().unwrap(), free.iter().max().unwrap());
        assert!(max - min <= 1, "{free:?}");
    }
    assert_eq!(pool.least_loaded(SHARD, &mut random), None);
}

#[test]
#[should_panic(expected = "a released block has no port in use")]
fn a_block_with_a_taken_port_cannot_be_released() {
    let mut random = Random::new([1, 1]);
    let mut pool = pool("203.0.113.1/32", 64, ALL_LANES);
    let block = pool.open(0, 1, &mut random).unwrap();
    pool.take(block, 1, Protocol::Tcp, &mut random).unwrap();
    pool.release(block);
}

/// Random takes, returns, opens and releases, compared with sets of the ports and blocks that are
/// out.
#[test]
fn u3_the_allocator_never_gives_a_port_twice() {
    for seed in 0..20 {
        let mut random = Random::new([seed, 99]);
        let mut pool = pool("203.0.113.0/31", 64, ALL_LANES);
        let total = pool.blocks_total(SHARD);
        let mut blocks: Vec<BlockId> = Vec::new();
        let mut taken: HashSet<(BlockId, Protocol, u16)> = HashSet::new();
        for _ in 0..4000 {
            match random.below(8) {
                0 => {
                    let address = random.below(2);
                    if let Some(block) = pool.open(address, 5, &mut random) {
                        assert!(!blocks.contains(&block), "an open block was opened again");
                        blocks.push(block);
                    }
                }
                1..=4 if !blocks.is_empty() => {
                    let block = blocks[random.below(blocks.len() as u32) as usize];
                    let protocol = Protocol::ALL[random.below(3) as usize];
                    if let Some(port) = pool.take(block, 5, protocol, &mut random) {
                        let Endpoint { address, port } = port.public;
                        assert_eq!(address, pool.public_address(pool.address_of(block)));
                        assert_eq!(pool.block_of(pool.address_of(block), port), block);
                        assert!(taken.insert((block, protocol, port)), "port given twice");
                    } else {
                        assert!(pool.is_full(block, protocol));
                    }
                }
                5..=7 => {
                    let Some(&(block, protocol, port)) = taken.iter().next() else { continue };
                    taken.remove(&(block, protocol, port));
                    let is_empty = pool.put(block, protocol, port);
                    assert_eq!(is_empty, !taken.iter().any(|held| held.0 == block));
                    if is_empty {
                        pool.release(block);
                        blocks.retain(|&open| open != block);
                    }
                }
                _ => {}
            }
            assert_eq!(pool.ports_used(SHARD) as usize, taken.len());
            assert_eq!(pool.blocks_free(SHARD) as usize + blocks.len(), total as usize);
        }
    }
}

#[test]
fn taken_ports_are_shown_as_public_endpoints() {
    let mut random = Random::new([1, 1]);
    let mut pool = pool("203.0.113.1/32", 64, ALL_LANES);
    let block = pool.open(0, 1, &mut random).unwrap();
    let mut taken: Vec<_> = (0..5)
        .map(|_| pool.take(block, 1, Protocol::Udp, &mut random).unwrap().public.port)
        .collect();
    taken.sort_unstable();
    let mut shown = Vec::new();
    pool.each_taken(block, Protocol::Udp, |public| shown.push(public));
    assert_eq!(
        shown,
        taken.iter().map(|&port| Endpoint::new(0xcb00_7101, port)).collect::<Vec<_>>()
    );
    pool.each_taken(block, Protocol::Tcp, |_| panic!("no TCP port is taken"));
}

#[test]
fn a_search_for_a_set_bit_wraps_around() {
    assert_eq!(first_set_from(&[0b1000, 0], 3, |word| word), Some(3));
    assert_eq!(first_set_from(&[0b1000, 0], 4, |word| word), Some(3));
    assert_eq!(first_set_from(&[0b1000, 1 << 63], 4, |word| word), Some(127));
    assert_eq!(first_set_from(&[0, 0], 64, |word| word), None);
    assert_eq!(first_set_from(&[1], 63, |word| word), Some(0));
}

/// Lanes change their owner while blocks are open: free blocks are counted again, open blocks stay
/// open.
#[test]
fn lanes_can_change_at_any_time() {
    let mut random = Random::new([5, 6]);
    let mut pool = pool("203.0.113.0/31", 64, ALL_LANES);
    let mut open: Vec<BlockId> =
        (0..300).map(|n| pool.open(n % 2, 1, &mut random).unwrap()).collect();
    let total = pool.blocks_total(SHARD);
    for lanes in [0b1000_0001, 0, 0b0111_1111, ALL_LANES] {
        pool.set_lanes(SHARD, lanes);
        let is_ours = |block: &&BlockId| lanes >> pool.lane(**block) & 1 != 0;
        let held = open.iter().filter(is_ours).count() as u32;
        assert_eq!(pool.blocks_free(SHARD) + held, pool.blocks_total(SHARD));
        let opened: Vec<_> = (0..6).filter_map(|n| pool.open(n % 2, 1, &mut random)).collect();
        assert_eq!(opened.len(), if lanes == 0 { 0 } else { 6 });
        assert!(opened.iter().all(|&block| lanes >> pool.lane(block) & 1 != 0));
        open.extend(opened);
        pool.release(open.swap_remove(0));
    }
    assert_eq!(pool.blocks_total(SHARD), total);
    assert_eq!(pool.blocks_free(SHARD) as usize + open.len(), total as usize);
}

#[test]
fn the_position_of_an_address_is_found() {
    let mut config = config("203.0.113.0/30", 64);
    config.shards[0].public.push("192.0.2.8/31".parse().unwrap());
    let pool = PortBlocks::new(&config).unwrap();
    for position in 0..6 {
        assert_eq!(pool.position_of(pool.public_address(position)), Some(position));
    }
    for stranger in [0, 0xcb00_7104, 0xc000_0207, 0xc000_020a, u32::MAX] {
        assert_eq!(pool.position_of(stranger), None);
    }
}

/// Shards with one to nine addresses are added and removed: no address is lost or in two shards,
/// and all are as at the start.
#[test]
fn addresses_are_added_and_removed_with_their_shards() {
    let room = ShardRoom { shards: 12, public_addresses: 40, subscribers: 0 };
    let base = NatConfig { room, shards: vec![], port_min: 1040, ..config("192.0.2.0/32", 64) };
    let mut random = Random::new([5, 8]);
    let mut pool = PortBlocks::new(&base).unwrap();
    let mut present: HashMap<u16, Vec<Ipv4Net>> = HashMap::new();
    for step in 0..3000 {
        let shard = ShardIndex(random.below(12) as u16);
        if present.remove(&shard.0).is_some() {
            pool.remove(shard);
            assert_eq!(pool.blocks_total(shard), 0);
        } else {
            let nets: Vec<Ipv4Net> = (0..=random.below(2))
                .map(|n| {
                    let address = 0xcb00_0000 | u32::from(shard.0) << 8 | n << 4;
                    Ipv4Net::new(address.into(), 32 - random.below(4) as u8).unwrap()
                })
                .collect();
            let count: u64 = nets.iter().map(|net| 1 << (32 - net.prefix_len())).sum();
            if count > pool.addresses_free() {
                continue;
            }
            let lanes = 1 << random.below(8);
            pool.add(shard, &nets, lanes);
            // Of 1,024 blocks of an address 16 lie below port 1,040.
            assert_eq!(pool.blocks_total(shard), count as u32 * 126);
            assert_eq!(pool.blocks_free(shard), pool.blocks_total(shard));
            let address = pool.least_loaded(shard, &mut random).unwrap();
            let block = pool.open(address, 1, &mut random).unwrap();
            let public = pool.take(block, 1, Protocol::Tcp, &mut random).unwrap().public;
            assert!(nets.iter().any(|net| net.contains(&Ipv4Addr::from(public.address))));
            assert!(pool.put(block, Protocol::Tcp, public.port));
            pool.release(block);
            present.insert(shard.0, nets);
        }
        if step % 50 == 0 {
            check_positions(&pool, &present);
        }
    }
}

fn check_positions(pool: &PortBlocks, present: &HashMap<u16, Vec<Ipv4Net>>) {
    let mut taken = HashSet::new();
    for (&shard, nets) in present {
        let range = |net: &Ipv4Net| net.network().to_bits()..=net.broadcast().to_bits();
        for address in nets.iter().flat_map(range) {
            let position = pool.position_of(address).unwrap();
            assert!(taken.insert(position));
            assert_eq!(pool.shard_at(position), ShardIndex(shard));
            assert_eq!(pool.public_address(position), address);
        }
    }
    assert_eq!(taken.len() as u64 + pool.addresses_free(), 40);
}
