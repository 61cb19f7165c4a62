use bolero::{TypeGenerator, check};
use weir_map::map::{Stand, Witness, needs_rebase, rebase};
use weir_map::*;
use weir_roles::role::{PortHealth, RoleEvent, RoleMachine, RoleOptions};

/// An entry as an operator could write it into etcd: mostly valid, with each field invalid now and
/// then.
#[derive(Clone, Debug, TypeGenerator)]
struct Entry {
    epoch: Number,
    term: Number,
    count: u8,
    members: [Seated; MEMBERS],
    /// Lane owners, used where an owner is not the rightful one.
    owners: [u8; LANES],
    moves: [Option<Moving>; 2],
    rebased: u8,
}

const MEMBERS: usize = 6;

#[derive(Clone, Debug, TypeGenerator)]
struct Seated {
    who: u8,
    slot: u8,
    state: u8,
    flags: u8,
}

#[derive(Clone, Debug, TypeGenerator)]
struct Moving {
    lane: u8,
    from: u8,
    ago: u8,
    then: u8,
}

/// A number that is mostly small, sometimes arbitrary, sometimes at an end of its type.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Number(u8, u64);

impl Number {
    fn value(self) -> u64 {
        const ENDS: [u64; 6] = [u64::MAX, u64::MAX - 1, 1 << 63, u32::MAX as u64, 1 << 28, 1 << 53];
        match self.0 {
            ..220 => 3 + u64::from(self.0 % 16),
            220..240 => self.1,
            end => ENDS[usize::from(end) % ENDS.len()],
        }
    }
}

/// Returns a term that is mostly 1 or 2.
fn term(number: Number) -> u64 {
    if number.0 < 200 { 1 + u64::from(number.0 % 2) } else { number.value() }
}

const STATES: [&str; 4] = ["synced", "synced", "syncing", "out-of-sync"];

fn who(any: u8) -> Incarnation {
    let node = NodeId::new(&format!("n{}", any % 6)).expect("`n` and a digit make a node name");
    let worker = WorkerId { node, index: u16::from(any >> 7) };
    Incarnation { worker, boot_id: BootId(u128::from(any % 12)) }
}

impl Entry {
    fn json(&self) -> String {
        let mut slots = Vec::new();
        let count = 1 + usize::from(self.count) % if self.count < 240 { 5 } else { MEMBERS };
        let members = self.members[..count].iter().enumerate().map(|(rank, member)| {
            // Mostly a distinct node and member slot for each member, and a synced primary.
            let is_sound = rank == 0 || member.slot < 235;
            let own = rank as u8;
            let node = if is_sound { own + member.who / 64 % 2 * 6 } else { member.who };
            let Incarnation { worker, boot_id } = who(node);
            let slot = if is_sound { (self.count / 6 + own) % 8 } else { member.slot % 9 };
            let state = if rank == 0 { 0 } else { usize::from(member.state) % STATES.len() };
            slots.push((slot, state));
            let state = STATES[state];
            let (is_yielding, is_leaving) = (member.flags >= 200, rank > 0 && member.flags >= 235);
            format!(
                r#"{{"worker":"{worker}","boot_id":"{boot_id}","seat":{slot},"state":"{state}","yielding":{is_yielding},"leaving":{is_leaving}}}"#
            )
        });
        let members: Vec<String> = members.collect();
        let owners = (0..LANES).map(|lane| {
            let is_of_lane =
                |(slot, state): &&(u8, usize)| usize::from(*slot) == lane && *state < 2;
            let of_lane = slots.iter().skip(1).find(is_of_lane);
            let (rightful, _) = of_lane.unwrap_or(&slots[0]);
            let owner = if self.owners[lane] < 245 { *rightful } else { self.owners[lane] % 9 };
            owner.to_string()
        });
        let owners: Vec<String> = owners.collect();
        let epoch = self.epoch.value();
        let slot =
            |any: u8| slots.get(usize::from(any) % (slots.len() + 1)).map_or(any % 9, |it| it.0);
        let moves = self.moves.iter().flatten().map(|Moving { lane, from, ago, then }| {
            let since = match ago {
                ..240 => epoch.saturating_sub(u64::from(ago % 4)),
                _ => u64::MAX - u64::from(*ago),
            };
            let then = match then {
                ..128 => String::new(),
                128..160 => r#","then":[]"#.to_owned(),
                then => format!(r#","then":[{}]"#, slot(*then)),
            };
            let lane = if *lane < 250 { lane % 8 } else { *lane };
            format!(r#"{{"lane":{lane},"from":{},"since":{since}{then}}}"#, slot(*from))
        });
        let moves: Vec<String> = moves.collect();
        let rebased = match self.rebased {
            ..200 => "null".to_owned(),
            200..250 => epoch.saturating_sub(self.rebased.into()).to_string(),
            _ => u64::MAX.to_string(),
        };
        format!(
            r#"{{"term":{},"epoch":{epoch},"members":[{}],"owners":[{}],"moves":[{}],"rebased":{rebased}}}"#,
            term(self.term),
            members.join(","),
            owners.join(","),
            moves.join(","),
        )
    }

    fn read(&self) -> Option<ShardEntry> {
        ShardEntry::from_json(self.json().as_bytes()).ok()
    }
}

fn stored(entry: &ShardEntry) {
    assert_eq!(entry.check(), Ok(()));
    assert_eq!(
        &ShardEntry::from_json(entry.to_json().as_bytes())
            .expect("an entry that was written can be read"),
        entry
    );
}

fn transitions(entry: &ShardEntry, any: u8, number: Number) -> Vec<Transition> {
    let member = &entry.members()[usize::from(any) % entry.members().len()].incarnation;
    let (member, other) = (member.clone(), who(any));
    vec![
        Transition::AddReplica(other.clone()),
        Transition::Replace { member: member.clone(), by: other.clone() },
        Transition::Resync(member.clone()),
        Transition::Synced(member.clone()),
        Transition::OutOfSync(member.clone()),
        Transition::Settle { by: member.clone(), lanes: LaneSet(any) },
        Transition::Promote(member.clone()),
        Transition::Retire(member.clone()),
        Transition::Remove(member.clone()),
        Transition::Fence(member.clone()),
        Transition::Restart { ended: member.clone(), boot_id: BootId(u128::from(any)) },
        Transition::TakeSlot { ended: member, to: other },
        Transition::Rebase { epoch: Epoch(number.value()), term: Term(number.value() as u32) },
    ]
}

/// For any entry in etcd, every transition is refused or gives a valid entry that is newer.
#[test]
fn entry() {
    check!().with_type::<(Entry, u8, Number)>().for_each(|(entry, any, number)| {
        let Some(entry) = entry.read() else { return };
        stored(&entry);
        for transition in transitions(&entry, *any, *number) {
            let Ok(next) = entry.after(entry.epoch(), &transition) else { continue };
            stored(&next);
            assert!(next.epoch() > entry.epoch() && next.term() >= entry.term(), "{transition:?}");
        }
    });
}

/// Any bytes are refused, or are an entry that is written back the same.
#[test]
fn entry_text() {
    check!().with_type::<(Entry, Vec<(u16, u8)>, Vec<u8>)>().for_each(|(entry, edits, any)| {
        let mut edited = entry.json().into_bytes();
        for (at, value) in edits.iter().take(4) {
            let at = usize::from(*at) % edited.len();
            edited[at] = *value;
        }
        for bytes in [&edited, any] {
            if let Ok(entry) = ShardEntry::from_json(bytes) {
                stored(&entry);
            }
        }
    });
}

/// Given the entry of an etcd that was set back and what the nodes report to have seen, a shard
/// continues with a valid entry that is newer than all of them, or not at all.
#[test]
fn set_back() {
    type Statement = (u8, Vec<u8>, Option<(Number, Option<Entry>)>);
    check!().with_type::<(Option<Entry>, Vec<Statement>, bool)>().for_each(
        |(entry, statements, has_ended)| {
            let entry = entry.as_ref().and_then(Entry::read);
            let nodes = statements.iter().take(4).map(|(node, boot_ids, doubt)| Witness {
                node: who(*node).worker.node,
                boot_ids: boot_ids.iter().map(|any| who(*any).boot_id).collect(),
                stand: match doubt {
                    None if node & 1 == 0 => Stand::Follows,
                    None => Stand::Silent,
                    Some((known, held)) => Stand::InDoubt {
                        known: Epoch(known.value()),
                        held: held.as_ref().and_then(Entry::read).map(Box::new),
                    },
                },
            });
            let nodes: Vec<Witness> = nodes.collect();
            let is_needed = needs_rebase(entry.as_ref(), &nodes);
            let Ok(rebased) = rebase(entry.as_ref(), &nodes, |_| *has_ended) else { return };
            stored(&rebased.entry);
            let newest = rebased.entry.epoch();
            assert!(entry.is_none_or(|entry| entry.epoch() < newest));
            for node in &nodes {
                if let (true, Stand::InDoubt { known, .. }) = (is_needed, &node.stand) {
                    assert!(*known < newest);
                }
            }
        },
    );
}

/// A name that is read is written back the same, up to leading zeros and capital letters; a name
/// that is written can be read.
#[test]
fn names() {
    check!().with_type::<(Vec<u8>, u16, u128)>().for_each(|(bytes, index, boot_id)| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(node) = NodeId::new(&text) {
            assert_eq!(node.as_str(), text);
            let worker = WorkerId { node, index: *index };
            assert_eq!(worker.to_string().parse(), Ok(worker));
        }
        let tail: String = text.chars().take(5).collect();
        for text in [text.clone().into_owned(), format!("n1/{tail}"), format!("{tail}/1")] {
            if let Ok(worker) = text.parse::<WorkerId>() {
                let (node, index) = text.split_once('/').expect("a worker name has two parts");
                assert_eq!(worker.node.as_str(), node);
                assert_eq!(worker.index, index.parse::<u16>().unwrap());
                assert_eq!(worker.to_string().parse(), Ok(worker));
            }
            let _ = BootId::try_from(text);
        }
        let boot_id = BootId(*boot_id);
        assert_eq!(BootId::try_from(boot_id.to_string()), Ok(boot_id));
        assert_eq!(BootId::try_from(boot_id.to_string().to_uppercase()), Ok(boot_id));
    });
}

#[derive(Clone, Debug, TypeGenerator)]
enum Input {
    Entry(Entry),
    Heartbeat(u8),
    Announced(u8),
    Slot(u32),
    CopyDone,
    StreamLost,
    Granted(u8, Number),
    Ports(u8),
    Time(u16),
    PrimaryLost,
}

/// Whatever entries arrive and in whatever order: the epoch of a worker's entry never falls, the
/// worker writes only lanes that its entry gives to it, and it grants no lane that it writes.
#[test]
fn role() {
    check!().with_type::<(u8, Vec<Input>)>().for_each(|(me, inputs)| {
        let me = who(*me);
        let mut machine = RoleMachine::new(me.clone(), RoleOptions::default());
        let (mut now_ms, mut epoch) = (1_000_u64, Epoch(0));
        for input in inputs {
            let event = match input {
                Input::Entry(entry) => match entry.read() {
                    Some(entry) => RoleEvent::Entry(Box::new(entry)),
                    None => continue,
                },
                Input::Heartbeat(from) => RoleEvent::Heartbeat { from: who(*from) },
                Input::Announced(term) => RoleEvent::Announced { term: Term(u32::from(term % 4)) },
                Input::Slot(packets) => RoleEvent::Slot { packets: packets % 3 },
                Input::CopyDone => RoleEvent::CopyDone,
                Input::StreamLost => RoleEvent::StreamLost,
                Input::Granted(lane, since) => RoleEvent::Granted {
                    lane: usize::from(*lane % 10),
                    since: Epoch(since.value()),
                },
                Input::Ports(any) => {
                    let ports = [PortHealth::NotReady, PortHealth::Ready, PortHealth::Broken];
                    RoleEvent::Ports(ports[usize::from(*any) % 3])
                }
                Input::Time(ms) => {
                    now_ms += u64::from(*ms);
                    RoleEvent::Tick
                }
                Input::PrimaryLost => RoleEvent::PrimaryLost,
            };
            machine.on(now_ms, event);
            let duties = machine.duties();
            let Some(entry) = machine.entry() else {
                assert!(duties.lanes.is_empty());
                continue;
            };
            assert!(entry.epoch() >= epoch);
            epoch = entry.epoch();
            let slot = entry.member(&me).map(|(_, member)| member.slot);
            for lane in duties.lanes.iter() {
                assert_eq!(Some(entry.lanes()[lane].owner), slot);
            }
            assert!(duties.grants.iter().all(|grant| !duties.lanes.contains(grant.lane)));
        }
    });
}
