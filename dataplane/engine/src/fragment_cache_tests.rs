//! The fragment table under floods, and compared with a simple model of its limits.

use std::collections::HashMap;

use bolero::{TypeGenerator, check};
use weir_nat::Endpoint;

use super::*;

const HOME: Home = Home { shard: ShardIndex(0), outer: 7, gre_key: None };

/// Returns what takes a packet to a home.
fn down(home: Home) -> Translation {
    let to = Delivery { home, inside: Endpoint::new(1, 1) };
    Translation::Down(Translated::plain(to))
}

/// Returns what takes a packet to the internet, from this address with this identification.
fn up_as(number: u16) -> Translation {
    Translation::Up(FragmentsUp {
        public: number.into(),
        destination: None,
        identification: number,
        class: FlowClass::NONE,
    })
}

/// Returns the key of a datagram from the internet.
fn from(source: u32, identification: u16) -> DatagramKey {
    let ends = DatagramEnds::Ipv4 { source, destination: 2, identification, protocol: 17 };
    DatagramKey { home: None, ends }
}

fn key(identification: u16) -> DatagramKey {
    from(1, identification)
}

fn of_home(outer: u32, identification: u16) -> DatagramKey {
    DatagramKey { home: Some(Home { outer, ..HOME }), ..key(identification) }
}

fn limits() -> FragmentLimits {
    FragmentLimits {
        datagrams_max: 16,
        held_max: 16,
        held_per_datagram_max: 2,
        timeout_ms: 2000,
        percent: 50,
    }
}

const SEED: [u64; 2] = [1, 2];

/// Returns a home of group 0.
fn party_of(home: Home) -> LimitedParty {
    LimitedParty { party: Party::Home(home), group: 0 }
}

fn hold<F>(
    cache: &mut FragmentCache<F>,
    key: DatagramKey,
    frame: F,
    now_ms: u64,
) -> Result<u64, F> {
    cache.hold(key, 0, frame, now_ms)
}

fn cache() -> FragmentCache<u32> {
    FragmentCache::new(limits(), SEED)
}

fn up(cache: &mut FragmentCache<u32>, key: DatagramKey, now_ms: u64) -> Vec<u32> {
    let mut early = cache.learn(key, key.sender(0), up_as(9), Dependency::Nothing, now_ms);
    std::iter::from_fn(|| cache.release(&mut early)).collect()
}

fn audit(cache: &FragmentCache<u32>) {
    cache.rooms.iter().for_each(Room::audit);
    let held: u32 = cache.rooms[RoomKind::EarlyUp as usize..].iter().map(Room::used).sum();
    assert_eq!(cache.slots.iter().filter(|slot| slot.frame.is_some()).count(), held as usize);
    assert_eq!(cache.index.len() + cache.free.len(), cache.datagrams.len());
}

#[test]
fn held_fragments_come_back_in_order_of_arrival() {
    let mut cache = cache();
    hold(&mut cache, key(1), 10, 0).unwrap();
    hold(&mut cache, key(2), 20, 0).unwrap();
    hold(&mut cache, key(1), 11, 0).unwrap();
    assert!(cache.translation(&key(1)).is_none());
    assert_eq!(up(&mut cache, key(1), 1), [10, 11]);
    assert!(cache.translation(&key(1)).is_some());
    assert_eq!(up(&mut cache, key(2), 1), [20]);
    audit(&cache);
}

#[test]
fn datagram_is_forgotten_at_its_time_out_and_holds_a_limited_number() {
    let mut cache = cache();
    hold(&mut cache, key(1), 10, 0).unwrap();
    hold(&mut cache, key(1), 11, 0).unwrap();
    assert_eq!(hold(&mut cache, key(1), 12, 0), Err(12), "per datagram");
    up(&mut cache, of_home(1, 2), 500);
    assert_eq!(cache.expire(1999, 10), 0);
    assert_eq!(cache.expire(2000, 10), 2);
    assert!(cache.translation(&of_home(1, 2)).is_some());
    assert_eq!(cache.expire(2500, 10), 0);
    assert!(cache.translation(&of_home(1, 2)).is_none());
    assert!(cache.index.is_empty());
    audit(&cache);
}

#[test]
fn a_party_beyond_its_share_loses_its_own_oldest_datagram() {
    let mut cache = cache();
    // The room of early fragments from homes has 8 slots; the share is 4.
    assert_eq!(hold(&mut cache, of_home(2, 0), 99, 0), Ok(0));
    for n in 0..4 {
        assert_eq!(hold(&mut cache, of_home(1, n), n.into(), 0), Ok(0));
    }
    assert_eq!(hold(&mut cache, of_home(1, 4), 4, 0), Ok(1), "its own first one is dropped");
    assert_eq!(up(&mut cache, of_home(1, 0), 0), []);
    assert_eq!(up(&mut cache, of_home(1, 1), 0), [1]);
    assert_eq!(up(&mut cache, of_home(2, 0), 0), [99]);
    audit(&cache);
}

#[test]
fn in_a_full_room_the_greediest_party_gives_way() {
    let mut cache = cache();
    for (home, count) in [(1, 3), (2, 4), (3, 1)] {
        for n in 0..count {
            assert_eq!(hold(&mut cache, of_home(home, n), home, 0), Ok(0));
        }
    }
    assert_eq!(hold(&mut cache, of_home(4, 0), 4, 0), Ok(1));
    assert_eq!(up(&mut cache, of_home(2, 0), 0), [], "the oldest of home 2, which had four");
    assert_eq!(up(&mut cache, of_home(3, 0), 0), [3]);
    audit(&cache);
}

#[test]
fn forged_remotes_displace_remotes_only() {
    let mut cache = cache();
    for n in 0..2 {
        let _ = cache.learn(key(n), party_of(HOME), down(HOME), Dependency::Nothing, 0);
    }
    hold(&mut cache, of_home(1, 0), 1, 0).unwrap();
    up(&mut cache, of_home(1, 1), 0);
    for remote in 0..10_000 {
        let forged = from(1000 + remote, 0);
        hold(&mut cache, forged, 5, 0).unwrap();
        let away = from(1000 + remote, 1);
        let _ = cache.learn(away, away.sender(0), Translation::Away, Dependency::Nothing, 0);
    }
    assert!((0..2).all(|n| cache.translation(&key(n)).is_some()));
    assert!(cache.translation(&of_home(1, 1)).is_some());
    assert_eq!(up(&mut cache, of_home(1, 0), 0), [1]);
    audit(&cache);
}

#[test]
fn datagram_that_fills_its_partys_share_does_not_displace_itself() {
    let mut cache = FragmentCache::new(
        FragmentLimits { held_max: 8, held_per_datagram_max: 64, percent: 1, ..limits() },
        SEED,
    );
    for frame in 0..4 {
        assert_eq!(hold(&mut cache, key(1), frame, 0), Ok(0), "the share is the whole room");
    }
    assert_eq!(hold(&mut cache, key(1), 4, 0), Err(4));
    assert_eq!(up(&mut cache, key(1), 0), [0, 1, 2, 3]);
    audit(&cache);
}

#[test]
fn without_room_first_fragments_pass_and_early_ones_are_given_back() {
    let mut cache =
        FragmentCache::new(FragmentLimits { datagrams_max: 0, held_max: 0, ..limits() }, SEED);
    assert_eq!(up(&mut cache, key(1), 0), []);
    assert_eq!(hold(&mut cache, key(1), 1, 0), Err(1));
    assert!(cache.translation(&key(1)).is_none());
}

/// One event for the table.
#[derive(Debug, TypeGenerator)]
enum Act {
    Hold { home: u8, identification: u8 },
    First { home: u8, identification: u8 },
    Deliver { source: u8, identification: u8, home: u8 },
    Away { home: u8, identification: u8 },
    Pass { ms: u16 },
    Forget { shard: u8 },
}

fn any_key(home: u8, identification: u8) -> DatagramKey {
    let shard = ShardIndex(u16::from(home % 2));
    match home % 16 {
        0..8 => from(u32::from(home % 16), identification.into()),
        _ => DatagramKey {
            home: Some(Home { shard, outer: u32::from(home % 16), gre_key: None }),
            ..key(identification.into())
        },
    }
}

#[derive(Debug, TypeGenerator)]
struct Sizes {
    datagrams: u8,
    held: u8,
    per_datagram: u8,
    percent: u8,
}

/// In any order of events every room keeps its limit, each held fragment is returned exactly once
/// or counted as dropped, and nothing is left after all time-outs.
#[test]
fn table() {
    check!().with_type::<(Sizes, Vec<Act>)>().for_each(|(sizes, acts)| {
        let mut cache = FragmentCache::new(
            FragmentLimits {
                datagrams_max: usize::from(sizes.datagrams % 40),
                held_max: usize::from(sizes.held % 40),
                held_per_datagram_max: usize::from(sizes.per_datagram % 8),
                timeout_ms: 2000,
                percent: sizes.percent,
            },
            SEED,
        );
        let (mut now_ms, mut frame, mut inside) = (0, 0, 0_u64);
        let mut waiting: HashMap<DatagramKey, Vec<u32>> = HashMap::new();
        for act in acts {
            let mut learn = |key: DatagramKey, party, translation| {
                let mut early = cache.learn(key, party, translation, Dependency::Nothing, now_ms);
                let frames: Vec<_> = std::iter::from_fn(|| cache.release(&mut early)).collect();
                inside -= frames.len() as u64;
                let held = waiting.remove(&key).unwrap_or_default();
                assert!(frames.is_empty() || held.ends_with(&frames), "{held:?} {frames:?}");
            };
            match *act {
                Act::Hold { home, identification } => {
                    let key = any_key(home, identification);
                    if cache.translation(&key).is_some() {
                        continue;
                    }
                    frame += 1;
                    if let Ok(fallen) = hold(&mut cache, key, frame, now_ms) {
                        inside = inside + 1 - fallen;
                        waiting.entry(key).or_default().push(frame);
                    }
                }
                Act::First { home, identification } => {
                    let key = any_key(home | 8, identification);
                    learn(key, key.sender(0), up_as(1));
                }
                Act::Deliver { source, identification, home } => {
                    let key = any_key(source & 7, identification);
                    let home = Home {
                        shard: ShardIndex(u16::from(home % 2)),
                        outer: home.into(),
                        gre_key: None,
                    };
                    learn(key, party_of(home), down(home));
                }
                Act::Away { home, identification } => {
                    let key = any_key(home, identification);
                    learn(key, key.sender(0), Translation::Away);
                }
                Act::Pass { ms } => {
                    now_ms += u64::from(ms);
                    inside -= cache.expire(now_ms, 8);
                }
                Act::Forget { shard } => cache.forget(ShardIndex(u16::from(shard % 2))),
            }
            audit(&cache);
            assert_eq!(
                cache.slots.iter().filter(|slot| slot.frame.is_some()).count() as u64,
                inside
            );
        }
        assert_eq!(cache.expire(now_ms + 2000, 1000), inside);
        assert!(cache.index.is_empty());
        audit(&cache);
    });
}
