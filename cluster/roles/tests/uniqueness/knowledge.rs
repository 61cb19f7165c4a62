//! The records of each lane that each worker has received: a writer's records reach some of the
//! members and are lost on the way to others.

use weir_map::LANES;

const WORDS: usize = 4;

/// The known records of a lane: a bit for each record that was ever made in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Records([u64; WORDS]);

impl Records {
    fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, word)| *own |= word);
    }

    pub(crate) fn has_all_of(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, word)| word & !own == 0)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Knowledge {
    /// By node and lane.
    known: Vec<[Records; LANES]>,
    made: [usize; LANES],
    luck: u64,
}

impl Knowledge {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { known: vec![Default::default(); nodes], made: [0; LANES], luck: 1 }
    }

    pub(crate) fn of(&self, node: usize, lane: usize) -> Records {
        self.known[node][lane]
    }

    /// Adds a copy of the lane that has come.
    pub(crate) fn learn(&mut self, node: usize, lane: usize, copy: Records) {
        self.known[node][lane].add(copy);
    }

    pub(crate) fn forget(&mut self, node: usize) {
        self.known[node] = Default::default();
    }

    /// Makes a record of the writer of a lane, which some of the members receive. The last records
    /// of very long histories are not made.
    pub(crate) fn make(&mut self, writer: usize, lane: usize, members: &[usize]) {
        let number = self.made[lane];
        let mut record = Records::default();
        let Some(word) = record.0.get_mut(number / 64) else { return };
        *word = 1 << (number % 64);
        self.made[lane] += 1;
        self.luck = self.luck.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let luck = self.luck >> 32;
        let receives = |&&node: &&usize| node == writer || luck >> node & 1 != 0;
        members.iter().filter(receives).for_each(|&node| self.learn(node, lane, record));
    }
}
