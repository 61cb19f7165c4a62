//! Hot. Longest-prefix look-up: a poptrie, with as many roots as its prefixes need.
//!
//! The roots divide the addresses from the first to the last of all prefixes into blocks of equal
//! size. Each root is a value or a node. A node decides on six further bits: each of its 64 slots
//! is another node or a value.

use std::ops::Range;

use crate::address::{IpAddress, Prefix};

/// Bits that a node decides on.
const STRIDE: u32 = 6;
const SLOTS: usize = 1 << STRIDE;

/// There are about this many roots for each prefix, within these bounds.
const ROOTS_EACH: usize = 4;
const ROOTS_MIN: usize = 1 << 12;
const ROOTS_MAX: usize = 1 << 16;

/// Most roots that are not prefetched: 32 KB, which a core has in its second cache, if not in the
/// first, so that it waits no longer for them than other questions take.
const ROOTS_NEAR: usize = 1 << 13;

/// Marks a node: values are below.
const NODE: u32 = 1 << 31;

/// How far a look-up has come: a node, or the value that it ends at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrieWalk(u32);

impl TrieWalk {
    /// Whether the look-up has not come to a value.
    #[inline(always)]
    pub(crate) fn is_at_node(self) -> bool {
        self.0 & NODE != 0
    }

    /// Returns the value.
    #[inline(always)]
    pub(crate) fn value(self) -> u32 {
        self.0
    }
}

/// A node decides on six bits: each of 64 slots is a child node or a value.
#[derive(Clone, Copy, Debug, Default)]
struct TrieNode {
    /// The slots that are child nodes, bit by bit.
    children: u64,
    /// The slots at which a value begins that goes for the following slots, too, as far as they
    /// are no child nodes.
    starts: u64,
    first_child: u32,
    first_value: u32,
}

/// What a trie is made of: prefixes, sorted by address, the shorter of equal addresses first, so
/// that each one comes before those that lie in it. The first one is that of all addresses.
pub(crate) trait TrieEntries<A> {
    /// Returns the value of addresses of which prefix number `entry` is the longest, below 2^31.
    fn value(&mut self, entry: usize) -> u32;

    /// Returns a value that does for all addresses of a block: with what lies behind it the caller
    /// of the look-up tells apart the prefixes of numbers `entries`, the prefixes that lie in the
    /// block, and addresses in none of them, of which `outer` is the longest prefix.
    fn joint_value(&mut self, entries: Range<usize>, outer: usize) -> Option<u32>;
}

/// Maps each address to the value of the longest prefix that it is in.
#[derive(Clone, Debug)]
pub(crate) struct PrefixTrie<A> {
    /// Where the block of the first root begins.
    first: A,
    /// A block has 2^`below` addresses.
    below: u32,
    roots: Box<[u32]>,
    /// Whether the roots are more than caches near the core keep.
    has_many_roots: bool,
    /// The value of addresses outside of all blocks.
    outside: u32,
    nodes: Vec<TrieNode>,
    values: Vec<u32>,
    /// Most nodes on the way to a value.
    depth: u32,
}

impl<A: IpAddress> PrefixTrie<A> {
    /// Makes the trie of sorted prefixes, each of which occurs once.
    pub(crate) fn new(prefixes: &[Prefix<A>], entries: &mut impl TrieEntries<A>) -> Self {
        debug_assert!(prefixes.is_sorted() && prefixes.first().is_some_and(Prefix::is_all));
        let inner = &prefixes[1..];
        let last = inner.iter().map(Prefix::last).max();
        let first = inner.first().map(Prefix::address);
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        let (first, below) = blocks(first, last, inner.len());
        let mut trie = Self {
            first,
            below,
            roots: Box::default(),
            has_many_roots: false,
            outside: entries.value(0),
            nodes: Vec::new(),
            values: Vec::new(),
            depth: 0,
        };
        if !inner.is_empty() {
            trie.fill_roots(prefixes, entries, last.blocks_from(first, below) + 1);
        }
        assert!(trie.nodes.len().max(trie.values.len()) < NODE as usize, "31 bits number them");
        trie.nodes.shrink_to_fit();
        trie.values.shrink_to_fit();
        trie
    }

    fn fill_roots(
        &mut self,
        prefixes: &[Prefix<A>],
        entries: &mut impl TrieEntries<A>,
        roots: usize,
    ) {
        let (first, below) = (self.first, self.below);
        let slots = |prefix: &Prefix<A>| {
            let slot = |address: A| address.blocks_from(first, below);
            slot(prefix.address())..slot(prefix.last()) + 1
        };
        let end = A::BITS - below;
        let mut owners = vec![0; roots];
        let deeper = divide(prefixes, 1..prefixes.len(), &mut owners, end, slots);
        let mut filled = vec![None; roots];
        for (slot, inner) in deeper {
            filled[slot] =
                Some(entries.joint_value(inner.clone(), owners[slot]).unwrap_or_else(|| {
                    let node = self.nodes.len();
                    self.nodes.push(TrieNode::default());
                    self.fill(node, (prefixes, inner), entries, end, owners[slot]);
                    NODE | node as u32
                }));
        }
        let root = |(filled, owner): (Option<u32>, usize)| match filled {
            Some(root) => root,
            None => entries.value(owner),
        };
        self.roots = filled.into_iter().zip(owners).map(root).collect();
        self.has_many_roots = self.roots.len() > ROOTS_NEAR;
    }

    /// Fills the node that decides on the bits from `depth` on, among prefixes of these numbers.
    fn fill(
        &mut self,
        node: usize,
        (prefixes, numbers): (&[Prefix<A>], Range<usize>),
        entries: &mut impl TrieEntries<A>,
        depth: u32,
        outer: usize,
    ) {
        let end = depth + STRIDE;
        self.depth = self.depth.max((end - (A::BITS - self.below)) / STRIDE);
        let mut owners = [outer; SLOTS];
        let slots = |prefix: &Prefix<A>| {
            let first = prefix.address().bits(depth, STRIDE);
            first..first + (1 << end.saturating_sub(u32::from(prefix.bits())))
        };
        let deeper = divide(prefixes, numbers, &mut owners, end, slots);
        let mut joint = [None; SLOTS];
        let mut children = Vec::new();
        for (slot, inner) in deeper {
            match entries.joint_value(inner.clone(), owners[slot]) {
                Some(value) => joint[slot] = Some(value),
                None => children.push((slot, inner)),
            }
        }
        let mut filled = TrieNode {
            children: children.iter().fold(0, |set, (slot, _)| set | 1 << slot),
            first_child: self.nodes.len() as u32,
            first_value: self.values.len() as u32,
            ..TrieNode::default()
        };
        let mut last = None;
        for (at, &owner) in owners.iter().enumerate() {
            if filled.children >> at & 1 == 0 {
                let value = joint[at].unwrap_or_else(|| entries.value(owner));
                if last.replace(value) != Some(value) {
                    filled.starts |= 1 << at;
                    self.values.push(value);
                }
            }
        }
        self.nodes[node] = filled;
        self.nodes.resize(self.nodes.len() + children.len(), TrieNode::default());
        for (child, (slot, inner)) in (filled.first_child as usize..).zip(children) {
            self.fill(child, (prefixes, inner), entries, end, owners[slot]);
        }
    }

    /// Step 1 of a burst of look-ups: prefetches the root of an address, if it may be far.
    #[inline(always)]
    pub(crate) fn prefetch(&self, address: A) {
        if self.has_many_roots {
            weir_flow::prefetch(&self.roots, address.blocks_from(self.first, self.below));
        }
    }

    /// Step 2: begins the walk of an address.
    #[inline(always)]
    pub(crate) fn begin(&self, address: A) -> TrieWalk {
        let root = self.roots.get(address.blocks_from(self.first, self.below));
        TrieWalk(root.copied().unwrap_or(self.outside))
    }

    /// Prefetches the node that a walk has come to.
    #[inline(always)]
    pub(crate) fn prefetch_node(&self, walk: TrieWalk) {
        weir_flow::prefetch(&self.nodes, (walk.0 & !NODE) as usize);
    }

    /// The further steps: goes on from a node, which decides on the bits from `depth` on.
    #[inline(always)]
    pub(crate) fn step(&self, walk: TrieWalk, address: A, depth: u32) -> TrieWalk {
        let node = &self.nodes[(walk.0 & !NODE) as usize];
        let slot = address.bits(depth, STRIDE) as u32;
        let upto = u64::MAX >> (u64::BITS - 1 - slot);
        if node.children >> slot & 1 == 0 {
            let place = node.first_value + (node.starts & upto).count_ones() - 1;
            TrieWalk(self.values[place as usize])
        } else {
            TrieWalk(NODE | (node.first_child + (node.children & upto).count_ones() - 1))
        }
    }

    /// Returns the value of the longest prefix that the address is in.
    #[inline]
    pub(crate) fn find(&self, address: A) -> u32 {
        let mut walk = self.begin(address);
        let mut depth = self.first_depth();
        while walk.is_at_node() {
            walk = self.step(walk, address, depth);
            depth += STRIDE;
        }
        walk.value()
    }

    /// Returns the first bit that the nodes of the first step decide on.
    #[inline(always)]
    pub(crate) fn first_depth(&self) -> u32 {
        A::BITS - self.below
    }

    /// Returns the first bit that the next nodes decide on.
    #[inline(always)]
    pub(crate) fn next_depth(depth: u32) -> u32 {
        depth + STRIDE
    }

    /// Returns the largest number of nodes on the way to a value.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the bytes of memory that the trie takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.roots) + size_of_val(&*self.nodes) + size_of_val(&*self.values)
    }
}

/// Returns where the blocks of roots begin, for this many prefixes between two addresses, and how
/// many bits an address has below its block.
fn blocks<A: IpAddress>(first: A, last: A, prefixes: usize) -> (A, u32) {
    let most = (ROOTS_EACH * prefixes).clamp(ROOTS_MIN, ROOTS_MAX);
    let block = |below| first.network((A::BITS - below) as u8);
    let fits = |&below: &u32| last.blocks_from(block(below), below) < most;
    let below = (0..A::BITS).find(fits).expect("two blocks hold all addresses");
    (block(below), below)
}

/// Writes into each slot the number of the longest prefix, of at most `end` bits, that covers it,
/// and returns the slots with longer prefixes, and their numbers.
fn divide<A: IpAddress>(
    prefixes: &[Prefix<A>],
    numbers: Range<usize>,
    owners: &mut [usize],
    end: u32,
    slots: impl Fn(&Prefix<A>) -> Range<usize>,
) -> Vec<(usize, Range<usize>)> {
    let mut deeper: Vec<(usize, Range<usize>)> = Vec::new();
    for number in numbers {
        let prefix = &prefixes[number];
        let slots = slots(prefix);
        if u32::from(prefix.bits()) <= end {
            owners[slots].fill(number);
            continue;
        }
        // A shorter prefix comes before all those that begin in its first slot.
        match deeper.last_mut() {
            Some((slot, inner)) if *slot == slots.start => inner.end = number + 1,
            _ => deeper.push((slots.start, number..number + 1)),
        }
    }
    deeper
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Values(Vec<u32>);

    impl<A: IpAddress> TrieEntries<A> for Values {
        fn value(&mut self, entry: usize) -> u32 {
            self.0[entry]
        }

        fn joint_value(&mut self, _: Range<usize>, _: usize) -> Option<u32> {
            None
        }
    }

    fn trie<A: IpAddress>(entries: &[(Prefix<A>, u32)], other: u32) -> PrefixTrie<A> {
        let all = (Prefix::all(), other);
        let mut entries: Vec<_> = [all].iter().chain(entries).copied().collect();
        // A stable sort: of two prefixes of all addresses the second one decides.
        entries.sort_by_key(|&(prefix, _)| prefix);
        entries.dedup_by(|second, first| {
            let is_equal = second.0 == first.0;
            first.1 = if is_equal { second.1 } else { first.1 };
            is_equal
        });
        let (prefixes, values): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        PrefixTrie::new(&prefixes, &mut Values(values))
    }

    /// Returns the value of the longest prefix, by looking at all.
    fn longest<A: IpAddress>(entries: &[(Prefix<A>, u32)], address: A) -> Option<u32> {
        let found = entries.iter().filter(|(prefix, _)| prefix.contains(address));
        found.max_by_key(|(prefix, _)| prefix.bits()).map(|&(_, value)| value)
    }

    fn check<A: IpAddress>(random: impl Fn(&mut fastrand::Rng) -> A, near: impl Fn(A, u128) -> A) {
        for seed in 0..200 {
            let rng = &mut fastrand::Rng::with_seed(seed);
            let mut entries: Vec<(Prefix<A>, u32)> = Vec::new();
            for value in 0..rng.u32(0..200) {
                let address = match entries.is_empty() || rng.bool() {
                    true => random(rng),
                    false => entries[rng.usize(0..entries.len())].0.address(),
                };
                let prefix = Prefix::new(address, rng.u8(0..=A::BITS as u8));
                if entries.iter().all(|(other, _)| *other != prefix) {
                    entries.push((prefix, value));
                }
            }
            let trie = trie(&entries, 7777);
            for _ in 0..500 {
                let address = match entries.is_empty() || rng.u8(0..4) == 0 {
                    true => random(rng),
                    false => {
                        let prefix = entries[rng.usize(0..entries.len())].0;
                        near(prefix.address(), rng.u128(..) >> rng.u32(0..128))
                    }
                };
                let expected = longest(&entries, address).unwrap_or(7777);
                assert_eq!(trie.find(address), expected, "seed {seed}, {address:x?}");
            }
        }
    }

    #[test]
    fn the_longest_prefix_is_found() {
        check::<u32>(|rng| rng.u32(..), |address, change| address ^ change as u32);
        check::<u128>(|rng| rng.u128(..), |address, change| address ^ change);
    }

    #[test]
    fn a_trie_without_prefixes_is_small() {
        let trie = trie::<u32>(&[], 5);
        assert_eq!((trie.find(0), trie.find(u32::MAX), trie.bytes()), (5, 5, 0));
        assert_eq!(trie.depth(), 0);
    }
}
