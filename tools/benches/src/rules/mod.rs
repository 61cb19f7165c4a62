//! The rules beside other searches for the first that fits.

pub mod quick_nat;
pub mod rte_acl;

use weir_rules::{Classifier, NO_RULE, Question, QuestionWalks, RuleFilter, TOGETHER, first_match};

/// A compiled list of rules that answers bursts of questions.
pub trait RuleTable {
    /// Answers at most [`TOGETHER`] questions, into as many places: the number of the rule, or
    /// [`NO_RULE`].
    fn find(&mut self, questions: &[Question<u32>], found: &mut [u32]);

    /// Returns the bytes of memory of the table, if it is known.
    fn bytes(&self) -> Option<usize> {
        None
    }
}

/// The rules as weir asks them.
#[derive(Debug)]
pub struct CompiledRules {
    pub classifier: Classifier<u32>,
    pub walks: QuestionWalks<u32>,
}

impl RuleTable for CompiledRules {
    fn find(&mut self, questions: &[Question<u32>], found: &mut [u32]) {
        self.classifier.find_all(questions.iter().copied(), &mut self.walks, found);
    }

    fn bytes(&self) -> Option<usize> {
        Some(self.classifier.bytes())
    }
}

/// Looks at one rule after the other.
#[derive(Debug)]
pub struct LinearList(pub Vec<RuleFilter<u32>>);

impl RuleTable for LinearList {
    fn find(&mut self, questions: &[Question<u32>], found: &mut [u32]) {
        for (question, found) in questions.iter().zip(found) {
            // Sorted by rule number, so the first that fits is the lowest.
            let first = self.0.iter().find(|filter| filter.fits(question));
            *found = first.map_or(NO_RULE, |filter| filter.rule);
        }
    }

    fn bytes(&self) -> Option<usize> {
        Some(size_of_val(&*self.0))
    }
}

/// Checks that a table answers as the plain search does.
///
/// # Panics
/// If it does not.
pub fn check(
    table: &mut dyn RuleTable,
    name: &str,
    filters: &[RuleFilter<u32>],
    questions: &[Question<u32>],
) {
    for questions in questions.chunks(TOGETHER) {
        let mut found = [0; TOGETHER];
        table.find(questions, &mut found);
        for (question, found) in questions.iter().zip(found) {
            let expected = first_match(filters, question).unwrap_or(NO_RULE);
            assert_eq!(found, expected, "{name}: {question:x?}");
        }
    }
}
