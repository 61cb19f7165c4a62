//! The network on which controllers ask nodes for their reports: late, and with losses.
//!
//! A question that is lost, or whose answer is, is not repeated: the controller asks again a second
//! later.

use std::collections::{BTreeMap, BTreeSet};

use weir_controller::process::ReportQuestion;
use weir_controller::state::NodeReport;
use weir_map::NodeId;

use crate::dice::Dice;

/// A message that has arrived. `controller` is the number that its owner gave it.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// May be answered by [`Management::answer`].
    Question {
        controller: usize,
        question: ReportQuestion,
    },
    Answer {
        controller: usize,
        number: u64,
        report: NodeReport,
    },
}

#[derive(Debug)]
pub struct Management {
    dice: Dice,
    /// Delay in one direction, least and most.
    delay_us: (u64, u64),
    /// One in `loss` messages is lost; 0: none.
    loss: u64,
    cut: BTreeSet<NodeId>,
    flights: BTreeMap<(u64, u64), Delivery>,
    flown: u64,
}

impl Management {
    pub fn new(delay_us: (u64, u64), loss: u64, seed: u64) -> Self {
        let (cut, flights) = (BTreeSet::new(), BTreeMap::new());
        Self { dice: Dice::new(seed), delay_us, loss, cut, flights, flown: 0 }
    }

    /// Sets whether a node is unreachable for questions.
    pub fn cut(&mut self, node: &NodeId, is_cut: bool) {
        if is_cut {
            self.cut.insert(node.clone());
        } else {
            self.cut.remove(node);
        }
    }

    pub fn ask(&mut self, now_us: u64, controller: usize, question: ReportQuestion) {
        let is_cut = self.cut.contains(&question.node);
        self.send(now_us, is_cut, Delivery::Question { controller, question });
    }

    pub fn answer(&mut self, now_us: u64, controller: usize, number: u64, report: NodeReport) {
        let is_cut = self.cut.contains(&report.node);
        self.send(now_us, is_cut, Delivery::Answer { controller, number, report });
    }

    fn send(&mut self, now_us: u64, is_cut: bool, delivery: Delivery) {
        let due_us = now_us + self.dice.between(self.delay_us);
        if !is_cut && (self.loss == 0 || !self.dice.one_in(self.loss)) {
            self.flown += 1;
            self.flights.insert((due_us, self.flown), delivery);
        }
    }

    pub fn next_us(&self) -> Option<u64> {
        self.flights.first_key_value().map(|((due_us, _), _)| *due_us)
    }

    /// Returns the messages that have arrived, in their order.
    pub fn poll(&mut self, now_us: u64) -> Vec<Delivery> {
        let later = self.flights.split_off(&(now_us + 1, 0));
        std::mem::replace(&mut self.flights, later).into_values().collect()
    }
}
