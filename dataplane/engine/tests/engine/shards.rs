//! Shards that are added and removed between two bursts.

use weir_engine::{AccessMode, DropReason, EngineConfig, EngineError, ShardConfig, Side};
use weir_nat::{NatError, ShardId, ShardIndex, ShardRoom};
use weir_wire::{build, ipv4};

use crate::world::*;

const ENDPOINT_3: &str = "10.100.0.3";
const GUEST: ShardIndex = ShardIndex(2);

/// Room for one shard more than the configured ones.
fn roomy() -> EngineConfig {
    let mut config = config();
    config.nat.room = ShardRoom { shards: 3, public_addresses: 24, subscribers: 48 };
    config
}

fn tunnel(id: u32, endpoint: &str) -> ShardConfig {
    let endpoint = Some(endpoint.to_bits());
    ShardConfig { id: ShardId(id), endpoint, endpoint6: None, subscribers: vec![] }
}

fn pool(id: u32, public: &str) -> weir_nat::NatShardConfig {
    let public = vec![public.parse().unwrap()];
    weir_nat::NatShardConfig { id: ShardId(id), public, public6: Vec::new(), subscribers_max: 16 }
}

impl World {
    fn add(&mut self, shard: &ShardConfig, public: &str) -> Result<ShardIndex, EngineError> {
        self.engine.setup().add_shard(shard, &pool(shard.id.0, public), 0xff, self.now)
    }

    fn remove(&mut self) {
        self.engine.setup().remove_shard(GUEST);
        assert!(!self.engine.nat().replica().is_removed(GUEST), "not before the next call of tick");
        self.pass_sec(1);
        assert!(self.engine.nat().replica().is_removed(GUEST));
    }

    fn up_to(&mut self, endpoint: &str, inner: impl AsRef<[u8]>) -> Out {
        self.packet(Side::Access, &build::ipv4(HOME_A, endpoint).gre(build::gre(), inner))
    }
}

fn query(port: u16) -> Vec<u8> {
    build::ipv4(PC, SERVER).udp(port, 53, b"question")
}

/// Returns the endpoint from which a packet to a home was encapsulated.
fn endpoint_of(packet: &[u8]) -> String {
    dotted(ipv4::parse(packet).unwrap().0.source.get())
}

#[test]
fn a_shard_serves_from_the_moment_it_came_until_it_goes() {
    let mut world = World::new(roomy());
    let stays = ends(&world.up(HOME_A, query(5000)).into_internet());
    for round in 0..3 {
        let endpoint = ["10.100.7.1", "10.100.7.2", "10.100.7.1"][round];
        assert!(world.up_to(endpoint, query(5000)).is_nothing());
        assert_eq!(world.add(&tunnel(7, endpoint), "203.0.113.64/29").unwrap(), GUEST);
        let sent = ends(&world.up_to(endpoint, query(5000)).into_internet());
        assert_eq!(sent.0 & !7, "203.0.113.64".to_bits());
        let answer = build::ipv4(SERVER, sent.0).udp(53, sent.1, b"answer");
        let packet = world.down(&answer).into_access();
        assert_eq!(endpoint_of(&packet), endpoint);
        // A packet of another shard's home turns around and is filtered: no packet went to that
        // home before.
        assert!(world.up(HOME_B, build::ipv4(PC, sent.0).udp(5001, sent.1, b"x")).is_nothing());
        let drops = world.drops();
        world.remove();
        assert!(world.up_to(endpoint, query(5000)).is_nothing());
        assert!(world.down(&answer).is_nothing());
        assert_eq!(world.drops(), drops + 2);
    }
    let answer = build::ipv4(SERVER, stays.0).udp(53, stays.1, b"answer");
    assert_eq!(endpoint_of(&world.down(answer).into_access()), ENDPOINT);
}

/// Translations of first fragments are not used by the next shard with the same index.
#[test]
fn fragments_do_not_outlive_their_shard() {
    let payload = vec![7; 4000];
    let mut world = World::new(roomy());
    world.add(&tunnel(7, ENDPOINT_3), "203.0.113.64/29").unwrap();
    let sent = ends(&world.up_to(ENDPOINT_3, query(5000)).into_internet());
    let down = build::ipv4(SERVER, sent.0).identification(9).udp(53, sent.1, &payload);
    let down = build::fragments(&down, 1400);
    let up = build::ipv4(PC, SERVER).identification(9).udp(5000, 53, &payload);
    let up = build::fragments(&up, 1400);
    assert_eq!(world.down(&down[0]).access.len(), 1);
    assert_eq!(world.up_to(ENDPOINT_3, &up[0]).internet.len(), 1);
    world.remove();
    world.add(&tunnel(8, "10.100.0.4"), "203.0.113.64/29").unwrap();
    assert!(world.down(&down[1]).is_nothing(), "it waits for a first fragment");
    assert!(world.up_to("10.100.0.4", &up[1]).is_nothing());
    world.up_to("10.100.0.4", &up[0]);
    world.pass_sec(6);
    assert_eq!(world.dropped(DropReason::FragmentTimeout), 1);
}

#[test]
fn refused_shard_leaves_no_state_behind() {
    let mut world = World::new(roomy());
    let error = world.add(&tunnel(7, ENDPOINT), "203.0.113.64/29").unwrap_err();
    assert_eq!(
        error.to_string(),
        "tunnel endpoint 10.100.0.1 belongs to two shards, ShardId(1) and ShardId(7)"
    );
    let without = ShardConfig { endpoint: None, ..tunnel(7, ENDPOINT_3) };
    let error = world.add(&without, "203.0.113.64/29").unwrap_err();
    assert!(matches!(error, EngineError::NoEndpoint(ShardId(7))));
    let error = world.add(&tunnel(7, ENDPOINT_3), "203.0.113.64/28").unwrap_err();
    assert!(matches!(error, EngineError::Nat(NatError::NoRoomForAddresses { .. })));
    assert!(world.up_to(ENDPOINT_3, query(5000)).is_nothing(), "its endpoint belongs to no shard");
    assert_eq!(world.add(&tunnel(7, ENDPOINT_3), "203.0.113.64/29").unwrap(), GUEST);
    world.up_to(ENDPOINT_3, query(5000)).into_internet();
    let error = world.add(&tunnel(8, "10.100.0.4"), "203.0.113.72/29").unwrap_err();
    assert!(matches!(error, EngineError::Nat(NatError::NoRoomForShard { .. })));
}

/// Without tunnels the prefix of a home determines its shard.
#[test]
fn plain_mode_prefixes_come_and_go_with_their_shard() {
    let mut config = roomy();
    config.mode = AccessMode::Plain;
    config.nat.subscribers = vec!["100.64.0.0/10".parse().unwrap()];
    config.shards[0].subscribers = vec!["100.64.0.0/24".parse().unwrap()];
    config.shards[1].subscribers = vec!["100.64.1.0/24".parse().unwrap()];
    let mut world = World::new(config);
    let packet = |home: &str| build::ipv4(home, SERVER).udp(5000, 53, b"question");
    let guest = |prefix: &str| ShardConfig {
        subscribers: vec![prefix.parse().unwrap(), "100.64.9.0/24".parse().unwrap()],
        ..tunnel(7, ENDPOINT_3)
    };
    let error = world.add(&guest("100.64.0.128/25"), "203.0.113.64/29").unwrap_err();
    let wanted = "prefix 100.64.0.128/25 of the homes of ShardId(7) overlaps one of ShardId(1): a home is of one shard";
    assert_eq!(error.to_string(), wanted);
    for _ in 0..2 {
        for home in ["100.64.2.1", "100.64.9.1"] {
            assert!(world.packet(Side::Access, &packet(home)).is_nothing());
        }
        world.add(&guest("100.64.2.0/24"), "203.0.113.64/29").unwrap();
        for home in ["100.64.2.1", "100.64.9.1"] {
            let sent = world.packet(Side::Access, &packet(home)).into_internet();
            assert_eq!(ends(&sent).0 & !7, "203.0.113.64".to_bits());
        }
        let sent = world.packet(Side::Access, &packet("100.64.1.1")).into_internet();
        assert_eq!(ends(&sent).0 & !7, "203.0.113.8".to_bits());
        world.remove();
    }
}
