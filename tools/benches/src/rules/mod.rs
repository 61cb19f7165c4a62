//! The rules beside other searches for the first that fits.

pub mod quick_nat;
pub mod rte_acl;

use weir_rules::{
    Classifier, IpAddress, NO_RULE, Question, QuestionWalks, RuleFilter, TOGETHER, first_match,
};

/// A compiled list of rules of a family that answers bursts of questions.
pub trait RuleTable<A> {
    /// Answers at most [`TOGETHER`] questions, into as many places: the number of the rule, or
    /// [`NO_RULE`].
    fn find(&mut self, questions: &[Question<A>], found: &mut [u32]);

    /// Returns the bytes of memory of the table, if it is known.
    fn bytes(&self) -> Option<usize> {
        None
    }
}

/// The rules as weir asks them.
#[derive(Debug)]
pub struct CompiledRules<A: IpAddress> {
    pub classifier: Classifier<A>,
    pub walks: QuestionWalks<A>,
}

impl<A: IpAddress> RuleTable<A> for CompiledRules<A> {
    fn find(&mut self, questions: &[Question<A>], found: &mut [u32]) {
        self.classifier.find_all(questions.iter().copied(), &mut self.walks, found);
    }

    fn bytes(&self) -> Option<usize> {
        Some(self.classifier.bytes())
    }
}

/// Looks at one rule after the other.
#[derive(Debug)]
pub struct LinearList<A>(pub Vec<RuleFilter<A>>);

impl<A: IpAddress> RuleTable<A> for LinearList<A> {
    fn find(&mut self, questions: &[Question<A>], found: &mut [u32]) {
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
pub fn check<A: IpAddress>(
    table: &mut dyn RuleTable<A>,
    name: &str,
    filters: &[RuleFilter<A>],
    questions: &[Question<A>],
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
