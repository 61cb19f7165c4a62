//! Random homes, forged and real, at a shard of small capacity and small limits: all counts agree
//! after every step, and no answered flow ends.

use std::collections::HashMap;

use bolero::{TypeGenerator, check};
use weir_ids::ShardId;

use crate::config::{Filtering, NatConfig, NatShardConfig};
use crate::endpoint::{Endpoint, Home, Protocol, ShardIndex, Tick};
use crate::nat::Nat;
use crate::packet::{Inbound, Outbound};

const CAPACITY: u32 = 6;
const SESSIONS: u32 = 5;
const FLOWS: u32 = 9;

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Step {
    Send { home: u8, inside: u8, remote: u8 },
    Answer { flow: u8 },
    Wait { seconds: u8 },
    Walk { slots: u16 },
    Flush { home: u8 },
}

fn config(filtering: Filtering, replicas: u8) -> NatConfig {
    NatConfig {
        filtering,
        flows_max: 200,
        flows_per_subscriber: FLOWS,
        sessions_per_subscriber: SESSIONS,
        new_flows_per_sec: 3,
        new_flows_burst: 6,
        new_homes_per_sec: Some(4),
        port_block: 64,
        ports_per_subscriber: 64,
        replicas,
        subscribers: vec!["10.200.0.0/16".parse().unwrap()],
        shards: vec![NatShardConfig {
            id: ShardId(1),
            public: vec!["203.0.113.0/31".parse().unwrap()],
            public6: Vec::new(),
            subscribers_max: CAPACITY,
        }],
        seed: [1, 2, 3, 4],
        ..NatConfig::default()
    }
}

#[test]
fn counts_agree_and_answered_flows_stay_whatever_homes_come() {
    check!().with_type::<(bool, bool, Vec<Step>)>().for_each(
        |(by_address, is_replicated, steps)| {
            let filtering = match by_address {
                true => Filtering::AddressDependent,
                false => Filtering::AddressAndPortDependent,
            };
            play(&config(filtering, u8::from(*is_replicated)), steps);
        },
    );
}

fn play(config: &NatConfig, steps: &[Step]) {
    let mut nat = Nat::new(config.clone()).unwrap();
    let mut now = Tick(1000);
    // Flows that were let in, by home, inside endpoint and remote: the public endpoint, when it was
    // last used, and whether it was answered.
    let mut flows: HashMap<(u8, u8, u8), (Endpoint, Tick, bool)> = HashMap::new();
    for &step in steps {
        match step {
            Step::Send { home, inside, remote } => {
                let (inside, remote) = (inside % 4, remote % 16);
                let packet = Outbound {
                    home: home_of(home),
                    inside: Endpoint::new(0xc0a8_0001, inside.into()),
                    remote: remote_of(remote),
                    protocol: Protocol::Udp,
                    tcp_flags: 0,
                };
                let hash = nat.outbound_hash(&packet.home, packet.inside, packet.protocol);
                let key = (home, inside, remote);
                let is_answered = flows
                    .get(&key)
                    .is_some_and(|&(_, seen, is_answered)| is_answered && now.since(seen) < 300);
                match nat.outbound(hash, &packet, now) {
                    Ok(opened) => {
                        flows.insert(key, (opened.to, now, is_answered));
                    }
                    Err(refusal) => assert!(!is_answered, "{refusal:?}"),
                }
            }
            Step::Answer { flow } => {
                let Some(key) = flows.keys().copied().nth(usize::from(flow) % flows.len().max(1))
                else {
                    continue;
                };
                let (public, seen, was_answered) = flows[&key];
                let hash = nat.inbound_hash(public, Protocol::Udp);
                let packet = Inbound {
                    public,
                    remote: remote_of(key.2),
                    protocol: Protocol::Udp,
                    tcp_flags: 0,
                };
                match nat.inbound(hash, &packet, now) {
                    Ok(found) if found.to.home == home_of(key.0) => {
                        flows.insert(key, (public, seen, true));
                    }
                    _ => assert!(!was_answered || now.since(seen) >= 300, "{key:?}"),
                }
            }
            Step::Wait { seconds } => now = Tick(now.0 + u32::from(seconds)),
            Step::Walk { slots } => {
                nat.expire(now, slots.into(), usize::MAX);
            }
            Step::Flush { home } => {
                if home % 8 == 0 {
                    nat.admin_mut().flush_subscriber(home_of(home).outer, now);
                    flows.retain(|key, _| key.0 != home);
                }
            }
        }
        nat.admin().audit();
        let shard = ShardIndex(0);
        let (admitted, displaced) =
            (nat.subscribers.count(shard), nat.subscribers.displaced(shard));
        // A displaced home that is answered is admitted again, even beyond the shard's capacity.
        assert!(displaced <= CAPACITY / 2 && admitted + displaced <= CAPACITY + CAPACITY / 2);
        for slot in (0..=u8::MAX).filter_map(|home| nat.subscribers.find(&home_of(home))) {
            let home = nat.subscribers.get(slot);
            assert!(home.sessions <= SESSIONS && home.flows <= FLOWS);
        }
    }
    now = Tick(now.0 + 300);
    nat.expire(now, usize::MAX, usize::MAX);
    now = Tick(now.0 + 300);
    nat.expire(now, usize::MAX, usize::MAX);
    now = Tick(now.0 + 300);
    nat.expire(now, usize::MAX, usize::MAX);
    nat.admin().audit();
    assert_eq!((nat.admin().gauges().subscribers, nat.subscribers.displaced), (0, 0));
}

fn home_of(number: u8) -> Home {
    Home { shard: ShardIndex(0), outer: 0x0ac8_0000 + u32::from(number), gre_key: None }
}

fn remote_of(number: u8) -> Endpoint {
    Endpoint::new(0xc000_0200 + u32::from(number / 2), 53 + u16::from(number % 2))
}
