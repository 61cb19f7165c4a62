//! Hot. The compiled rules.

use crate::address::Address;
use crate::doors::{ByDoor, TooManyFilters, address_lists, port_lists};
use crate::filter::{Filter, Question};
use crate::lists::{FilterLists, ListMaker, NO_RULE};
use crate::ports::PortLists;
use crate::trie::PrefixTrie;

/// Finds the first rule that fits a flow.
#[derive(Clone, Debug)]
pub struct Classifier<A> {
    remote: PrefixTrie,
    local: PrefixTrie,
    remote_port: PortLists,
    local_port: PortLists,
    lists: FilterLists<A>,
    bound: Bound,
}

/// What a question costs at most, whatever the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Filters that are compared.
    pub comparisons: usize,
    /// Steps of the walks to the lists: one for each root, node and class of ports.
    pub steps: usize,
}

impl<A: Address> Classifier<A> {
    /// Compiles filters, in any order.
    ///
    /// # Errors
    /// [`TooManyFilters`], if too many have the same addresses and ports.
    pub fn new(filters: &[Filter<A>]) -> Result<Self, TooManyFilters> {
        let mut maker = ListMaker::new();
        let doors = ByDoor::new(filters);
        let remote = address_lists(doors.remote, &mut maker, "remote address", |f| &mut f.remote)?;
        let local = address_lists(doors.local, &mut maker, "local address", |f| &mut f.local)?;
        let (remote_port, by_remote_port) =
            port_lists(&doors.remote_port, &mut maker, "remote port", |f| &mut f.remote_ports)?;
        let (local_port, by_local_port) =
            port_lists(&doors.local_port, &mut maker, "local port", |f| &mut f.local_ports)?;
        let bound = Bound {
            comparisons: remote.compared + local.compared + by_remote_port + by_local_port,
            steps: 4 + (remote.trie.depth() + local.trie.depth()) as usize,
        };
        let (remote, local) = (remote.trie, local.trie);
        Ok(Self { remote, local, remote_port, local_port, lists: maker.finish(), bound })
    }

    /// Step 1 of a burst of questions: prefetches where the walks begin.
    #[inline(always)]
    pub fn prefetch(&self, question: &Question<A>) {
        self.remote.prefetch(question.remote);
        self.local.prefetch(question.local);
        self.remote_port.prefetch(question.remote_port);
        self.local_port.prefetch(question.local_port);
    }

    /// Returns the lowest number of the rules that fit, as [`first_match`](crate::first_match)
    /// does.
    #[inline]
    pub fn find(&self, question: &Question<A>) -> Option<u32> {
        let lists = [
            self.remote_port.find(question.remote_port),
            self.local_port.find(question.local_port),
            self.remote.find(question.remote),
            self.local.find(question.local),
        ];
        lists.iter().for_each(|&list| self.lists.prefetch(list));
        let search = |best, list: u32| self.lists.search(list, question, best);
        let best = lists.into_iter().fold(NO_RULE, search);
        (best != NO_RULE).then_some(best)
    }

    /// Returns what a question costs at most.
    pub fn bound(&self) -> Bound {
        self.bound
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
