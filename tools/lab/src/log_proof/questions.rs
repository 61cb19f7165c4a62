//! Selects the datagrams of a server that the logs are asked about. Pure.

use super::log_book::LogBook;
use super::sample::Sample;
use crate::load::Use;

/// The question who had an endpoint at the time that a datagram came from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The datagram.
    pub used: Use,
    /// Whether its lane got another owner within a second.
    pub is_near_takeover: bool,
}

/// Selects `count` questions: half of them from times near a takeover, as far as there are such,
/// the others from other times.
pub fn select(sample: &Sample, book: &LogBook, count: usize, seed: u64) -> Vec<Question> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let question = |used: &Use| Question {
        used: *used,
        is_near_takeover: book.is_near_takeover(used.public, used.at_us),
    };
    let near = sample.of_moments().map(question).filter(|it| it.is_near_takeover).collect();
    let other = sample.all().iter().map(question).filter(|it| !it.is_near_takeover).collect();
    let mut draw = |mut those: Vec<Question>, most: usize| {
        dice.shuffle(&mut those);
        those.truncate(most);
        those
    };
    let near = draw(near, count / 2);
    let other = draw(other, count - near.len());
    [near, other].concat()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use super::*;

    #[test]
    fn half_of_the_questions_are_near_a_takeover() {
        let lane = "\"shard\":1,\"lane\":0,\"epoch\":1";
        let log = format!(
            "{{\"time\":\"1970-01-01T00:01:40.000Z\",\"event\":\"lane-taken\",{lane}}}\n\
             {{\"time\":\"1970-01-01T00:01:40.000Z\",\"event\":\"block-held\",{lane},\"public\":\"198.18.0.1\",\"ports\":\"1024-1087\"}}\n"
        );
        let mut book = LogBook::default();
        book.read(&log, false);
        let mut sample = Sample::new(400, 1);
        let home = Ipv4Addr::new(10, 200, 1, 0);
        let public = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 1030);
        for tenth in 0..2_000 {
            sample.add(Use { at_us: tenth * 100_000, public, home });
        }
        let questions = select(&sample, &book, 30, 1);
        let (near, other): (Vec<_>, Vec<_>) =
            questions.iter().partition(|question| question.is_near_takeover);
        assert_eq!((near.len(), other.len()), (15, 15));
        let is_near = |it: &Question| (99_000_000..=101_000_999).contains(&it.used.at_us);
        assert!(near.iter().all(&is_near) && !other.iter().any(is_near));
        // There are 21 datagrams near the only takeover.
        let many = select(&sample, &book, 100, 1);
        assert_eq!(many.iter().filter(|it| it.is_near_takeover).count(), 21);
        assert_eq!(many.len(), 100);
    }
}
