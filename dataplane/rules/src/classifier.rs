//! Hot. The compiled rules.

use crate::address::{IpAddress, Prefix};
use crate::doors::{ByDoor, TooManyFilters, port_lists};
use crate::filter::{Question, RuleFilter};
use crate::lists::{EMPTY, FilterLists, ListMaker, ListStart};
use crate::packed::{AskedFlow, kind_and_group};
use crate::ports::PortLists;
use crate::prefix_lists::{AddressDoor, DoorValue, address_lists};
use crate::trie::{PrefixTrie, TrieWalk};
use crate::wide_rules::WideRules;

/// Most questions that are answered together.
pub const TOGETHER: usize = 64;

/// What [`Classifier::find_all`] finds where no rule fits.
pub const NO_RULE: u32 = u32::MAX;

/// A question on its way to its lists.
#[derive(Clone, Copy, Debug, Default)]
struct QuestionWalk<A> {
    asked: AskedFlow<A>,
    remote: TrieWalk,
    local: TrieWalk,
}

/// Room for the questions of [`Classifier::find_all`], which is worth keeping: to clear it takes as
/// long as to answer a question.
#[derive(Debug)]
pub struct QuestionWalks<A>(Box<[QuestionWalk<A>; TOGETHER]>);

impl<A: IpAddress> Default for QuestionWalks<A> {
    fn default() -> Self {
        Self(Box::new([QuestionWalk::default(); TOGETHER]))
    }
}

/// Questions whose walks through a trie have not ended, by their places.
struct OpenWalks {
    places: [u8; TOGETHER],
    len: usize,
}

impl OpenWalks {
    const NONE: Self = Self { places: [0; TOGETHER], len: 0 };

    #[inline(always)]
    fn push(&mut self, place: u8) {
        self.places[self.len % TOGETHER] = place;
        self.len += 1;
    }
}

/// Finds the first rule that fits a flow.
#[derive(Clone, Debug)]
pub struct Classifier<A: IpAddress> {
    remote: PrefixTrie<A>,
    /// Leads to a group, too.
    local: PrefixTrie<A>,
    has_groups: bool,
    remote_port: Option<PortLists>,
    local_port: Option<PortLists>,
    wide: WideRules,
    lists: FilterLists<A>,
    bound: Bound,
    worst: WorstPacket<A>,
}

/// What a question costs at most, whatever the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Filters that are compared.
    pub comparisons: usize,
    /// Steps of the walks to the lists: one for each root, node and page of ports.
    pub steps: usize,
}

/// What the packet has that is compared with as many filters as [`Bound`] says. Its protocol, side
/// and group may be any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorstPacket<A> {
    pub local: A,
    pub local_port: u16,
    pub remote: A,
    pub remote_port: u16,
}

impl<A: IpAddress> Classifier<A> {
    /// Compiles filters, in any order.
    ///
    /// # Errors
    /// [`TooManyFilters`], if too many have the same addresses and ports.
    pub fn new(filters: &[RuleFilter<A>]) -> Result<Self, TooManyFilters> {
        Self::with_groups(filters, &[])
    }

    /// Compiles filters and the groups, below 16, of local addresses: of prefixes that lie in each
    /// other the longest decides. Questions then have group 0.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_groups(
        filters: &[RuleFilter<A>],
        groups: &[(Prefix<A>, u8)],
    ) -> Result<Self, TooManyFilters> {
        let mut maker = ListMaker::new();
        let doors = ByDoor::new(filters);
        let door = AddressDoor { name: "remote address", prefix: |filter| &mut filter.remote };
        let (remote, by_remote) = address_lists(doors.remote, &[], &mut maker, door)?;
        let door = AddressDoor { name: "local address", prefix: |filter| &mut filter.local };
        let (local, by_local) = address_lists(doors.local, groups, &mut maker, door)?;
        let (remote_port, by_remote_port) =
            port_lists(&doors.remote_port, &mut maker, "remote port", |f| &mut f.remote_ports)?;
        let (local_port, by_local_port) =
            port_lists(&doors.local_port, &mut maker, "local port", |f| &mut f.local_ports)?;
        let compared = [
            by_remote.compared,
            by_local.compared,
            by_remote_port.compared,
            by_local_port.compared,
        ];
        let bound = Bound {
            comparisons: compared.iter().sum(),
            steps: 4 + (remote.depth() + local.depth()) as usize,
        };
        let worst = WorstPacket {
            local: by_local.at,
            local_port: by_local_port.at,
            remote: by_remote.at,
            remote_port: by_remote_port.at,
        };
        Ok(Self {
            remote,
            local,
            has_groups: !groups.is_empty(),
            remote_port,
            local_port,
            wide: doors.wide,
            lists: maker.finish(),
            bound,
            worst,
        })
    }

    /// Whether a local address may have a group.
    #[inline(always)]
    pub fn has_groups(&self) -> bool {
        self.has_groups
    }

    /// Returns the group of a local address.
    #[inline(always)]
    pub fn group_of(&self, local: A) -> u8 {
        if self.has_groups { self.find_group(local) } else { 0 }
    }

    #[inline(never)]
    fn find_group(&self, local: A) -> u8 {
        DoorValue::from_word(self.local.find(local)).group() as u8
    }

    /// Answers questions, at most [`TOGETHER`], as [`find`](Self::find) does, into as many places;
    /// [`NO_RULE`]: no rule fits. The steps of all questions interleave, so that none waits for its
    /// cache lines.
    ///
    /// # Panics
    /// If there are more places.
    #[inline]
    pub fn find_all(
        &self,
        questions: impl Iterator<Item = Question<A>>,
        QuestionWalks(walks): &mut QuestionWalks<A>,
        found: &mut [u32],
    ) {
        let count = found.len();
        for (walk, question) in walks[..count].iter_mut().zip(questions) {
            self.remote.prefetch(question.remote);
            self.local.prefetch(question.local);
            walk.asked.set(&question);
        }
        let (mut remotes, mut locals) = (OpenWalks::NONE, OpenWalks::NONE);
        for (place, walk) in (0..).zip(&mut walks[..count]) {
            walk.remote = self.remote.begin(walk.asked.remote);
            self.prefetch(&self.remote, walk.remote, place, &mut remotes);
            walk.local = self.local.begin(walk.asked.local);
            self.prefetch(&self.local, walk.local, place, &mut locals);
        }
        let remote = |walk: &mut QuestionWalk<A>, depth| {
            walk.remote = self.remote.step(walk.remote, walk.asked.remote, depth);
            walk.remote
        };
        self.end_walks(&self.remote, remotes, walks, remote);
        let local = |walk: &mut QuestionWalk<A>, depth| {
            walk.local = self.local.step(walk.local, walk.asked.local, depth);
            walk.local
        };
        self.end_walks(&self.local, locals, walks, local);
        for (walk, found) in walks.iter().zip(found) {
            *found = self.decide(&walk.asked, walk.remote.value(), walk.local.value());
        }
    }

    /// Takes the further steps of the walks that are open.
    #[inline(always)]
    fn end_walks(
        &self,
        trie: &PrefixTrie<A>,
        mut open: OpenWalks,
        walks: &mut [QuestionWalk<A>; TOGETHER],
        step: impl Fn(&mut QuestionWalk<A>, u32) -> TrieWalk,
    ) {
        let mut depth = trie.first_depth();
        while open.len > 0 {
            let mut left = OpenWalks { len: 0, ..open };
            for &place in &open.places[..open.len.min(TOGETHER)] {
                let walk = step(&mut walks[usize::from(place) % TOGETHER], depth);
                self.prefetch(trie, walk, place, &mut left);
            }
            open = left;
            depth = PrefixTrie::<A>::next_depth(depth);
        }
    }

    /// Prefetches what a walk has come to: a node, with which the walk is open, or a list.
    #[inline(always)]
    fn prefetch(&self, trie: &PrefixTrie<A>, walk: TrieWalk, place: u8, open: &mut OpenWalks) {
        if walk.is_at_node() {
            trie.prefetch_node(walk);
            open.push(place);
        } else {
            self.lists.prefetch(DoorValue::from_word(walk.value()).list());
        }
    }

    /// Returns the lowest number of the rules that fit, as [`first_match`](crate::first_match)
    /// does.
    pub fn find(&self, question: &Question<A>) -> Option<u32> {
        let remote = self.remote.find(question.remote);
        let local = self.local.find(question.local);
        let found = self.decide(&AskedFlow::from(question), remote, local);
        (found != NO_RULE).then_some(found)
    }

    /// Returns the rule for a question whose walks have ended with these values.
    #[inline(always)]
    fn decide(&self, asked: &AskedFlow<A>, remote: u32, local: u32) -> u32 {
        let local = DoorValue::from_word(local);
        let group = asked.group() | local.group();
        let bits = kind_and_group(asked.kind(), group);
        let search = |list, best| self.lists.search(list, asked, bits, best);
        let mut best = self.wide.find(asked.kind(), group);
        best = search(remote, best);
        best = search(local.list(), best);
        if let Some(lists) = &self.remote_port {
            best = search(lists.find(asked.remote_port), best);
        }
        if let Some(lists) = &self.local_port {
            best = search(lists.find(asked.local_port), best);
        }
        best
    }

    /// Returns the lists in which a question is searched.
    fn lists_of(&self, packet: &WorstPacket<A>) -> [ListStart; 4] {
        let of_port = |lists: &Option<PortLists>, port| match lists {
            Some(lists) => lists.find(port),
            None => EMPTY,
        };
        [
            self.remote.find(packet.remote),
            DoorValue::from_word(self.local.find(packet.local)).list(),
            of_port(&self.remote_port, packet.remote_port),
            of_port(&self.local_port, packet.local_port),
        ]
    }

    /// Returns what a question costs at most.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// Returns the packet that costs most, and the numbers of the rules that it is compared with.
    pub fn worst(&self) -> (WorstPacket<A>, Vec<u32>) {
        let worst = self.worst;
        let lists = self.lists_of(&worst);
        let mut rules: Vec<u32> = lists.iter().flat_map(|&list| self.lists.rules(list)).collect();
        rules.sort_unstable();
        rules.dedup();
        (worst, rules)
    }

    /// Returns the bytes of memory that the rules take.
    pub fn bytes(&self) -> usize {
        let ports = [&self.remote_port, &self.local_port].into_iter().flatten();
        self.remote.bytes()
            + self.local.bytes()
            + ports.map(PortLists::bytes).sum::<usize>()
            + self.wide.bytes()
            + self.lists.bytes()
    }
}

#[cfg(test)]
#[path = "classifier_tests.rs"]
mod tests;
