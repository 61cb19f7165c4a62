//! Hot. The compiled rules.

use crate::address::IpAddress;
use crate::doors::{ByDoor, TooManyFilters, address_lists, port_lists};
use crate::filter::{Question, RuleFilter};
use crate::lists::{FilterLists, ListMaker, ListStart};
use crate::ports::PortLists;
use crate::trie::{PrefixTrie, TrieWalk, depths};

/// Most questions that are answered together.
pub const TOGETHER: usize = 64;

/// What [`Classifier::find_all`] finds where no rule fits.
pub const NO_RULE: u32 = u32::MAX;

/// A question on its way to its lists.
#[derive(Clone, Copy, Default)]
struct QuestionWalk {
    remote: TrieWalk,
    local: TrieWalk,
    lists: [ListStart; 4],
}

/// Finds the first rule that fits a flow.
#[derive(Clone, Debug)]
pub struct Classifier<A> {
    remote: PrefixTrie,
    local: PrefixTrie,
    remote_port: PortLists,
    local_port: PortLists,
    lists: FilterLists<A>,
    bound: Bound,
    worst: WorstPacket<A>,
}

/// What a question costs at most, whatever the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Filters that are compared.
    pub comparisons: usize,
    /// Steps of the walks to the lists: one for each root, node and class of ports.
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
        let mut maker = ListMaker::new();
        let doors = ByDoor::new(filters);
        let (remote, by_remote) =
            address_lists(doors.remote, &mut maker, "remote address", |f| &mut f.remote)?;
        let (local, by_local) =
            address_lists(doors.local, &mut maker, "local address", |f| &mut f.local)?;
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
        Ok(Self { remote, local, remote_port, local_port, lists: maker.finish(), bound, worst })
    }

    /// Answers questions, at most [`TOGETHER`], as [`find`](Self::find) does, into as many places;
    /// [`NO_RULE`]: no rule fits. The steps of all questions interleave, so that none waits for its
    /// cache lines.
    ///
    /// # Panics
    /// If there are more questions.
    #[inline(never)]
    pub fn find_all(&self, questions: &[Question<A>], found: &mut [u32]) {
        let mut walks = [QuestionWalk::default(); TOGETHER];
        let walks = &mut walks[..questions.len()];
        for question in questions {
            self.remote.prefetch(question.remote);
            self.local.prefetch(question.local);
            self.remote_port.prefetch(question.remote_port);
            self.local_port.prefetch(question.local_port);
        }
        for (walk, question) in walks.iter_mut().zip(questions) {
            walk.remote = self.remote.begin(question.remote);
            walk.local = self.local.begin(question.local);
            walk.lists[0] = self.remote_port.find(question.remote_port);
            walk.lists[1] = self.local_port.find(question.local_port);
        }
        // A walk that has ended stays where it is.
        for depth in depths(self.remote.depth().max(self.local.depth())) {
            for (walk, question) in walks.iter_mut().zip(questions) {
                walk.remote = self.remote.step(walk.remote, question.remote, depth);
                walk.local = self.local.step(walk.local, question.local, depth);
            }
        }
        for walk in walks.iter_mut() {
            walk.lists[2] = self.remote.end(walk.remote);
            walk.lists[3] = self.local.end(walk.local);
            walk.lists.iter().for_each(|&list| self.lists.prefetch(list));
        }
        for ((walk, question), found) in walks.iter().zip(questions).zip(found) {
            *found = self.search(walk.lists, question);
        }
    }

    /// Returns the lowest number of the rules that fit, as [`first_match`](crate::first_match)
    /// does.
    pub fn find(&self, question: &Question<A>) -> Option<u32> {
        let lists = [
            self.remote_port.find(question.remote_port),
            self.local_port.find(question.local_port),
            self.remote.find(question.remote),
            self.local.find(question.local),
        ];
        let found = self.search(lists, question);
        (found != NO_RULE).then_some(found)
    }

    #[inline(always)]
    fn search(&self, lists: [ListStart; 4], question: &Question<A>) -> u32 {
        let search = |best, list| self.lists.search(list, question, best);
        lists.into_iter().fold(NO_RULE, search)
    }

    /// Returns what a question costs at most.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// Returns the packet that costs most, and the numbers of the rules that it is compared with.
    pub fn worst(&self) -> (WorstPacket<A>, Vec<u32>) {
        let worst = self.worst;
        let lists = [
            self.remote_port.find(worst.remote_port),
            self.local_port.find(worst.local_port),
            self.remote.find(worst.remote),
            self.local.find(worst.local),
        ];
        let mut rules: Vec<u32> = lists.iter().flat_map(|&list| self.lists.rules(list)).collect();
        rules.sort_unstable();
        rules.dedup();
        (worst, rules)
    }

    /// Returns the bytes of memory that the rules take.
    pub fn bytes(&self) -> usize {
        self.remote.bytes()
            + self.local.bytes()
            + self.remote_port.bytes()
            + self.local_port.bytes()
            + self.lists.bytes()
    }
}

#[cfg(test)]
#[path = "classifier_tests.rs"]
mod tests;
