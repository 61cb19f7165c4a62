//! The verdict on a packet without a mapping, generic over the name of the worker to which it may
//! go.

/// Handling of a packet without a mapping. `T` names another worker: an incarnation in the role of
/// a worker, a peer in replication, an access address in the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misses<T> {
    /// From a home: a mapping is created in a lane of this worker. From the internet: the packet is
    /// dropped.
    Create,
    /// The packet goes to this worker, once.
    Redirect(T),
    /// The packet is dropped.
    Refuse,
}

impl<T> Misses<T> {
    /// Returns the same verdict with another name for the worker. Without such a name a redirect
    /// becomes a refusal.
    pub fn map<U>(&self, name: impl FnOnce(&T) -> Option<U>) -> Misses<U> {
        match self {
            Self::Create => Misses::Create,
            Self::Redirect(to) => name(to).map_or(Misses::Refuse, Misses::Redirect),
            Self::Refuse => Misses::Refuse,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_to_a_worker_without_a_name_becomes_refuse() {
        let even = |number: &u32| number.is_multiple_of(2).then_some(*number / 2);
        assert_eq!(Misses::Redirect(8).map(even), Misses::Redirect(4));
        assert_eq!(Misses::Redirect(7).map(even), Misses::Refuse);
        assert_eq!(Misses::Create.map(even), Misses::Create);
        assert_eq!(Misses::Refuse.map(even), Misses::Refuse);
    }
}
