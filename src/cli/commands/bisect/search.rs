//! The search for the first state at which a command fails: a value without a clock or a disk.
//!
//! States are numbered from the oldest one. Between the newest known good state and the oldest
//! known bad one, several can be tried at once. A state that cannot be tried is skipped, and its
//! neighbors are tried instead.

/// The outcome of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The command succeeded.
    Good,
    /// The command failed.
    Bad,
    /// The state cannot be tried.
    Skipped,
}

/// The end of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The newest state at which the command succeeded.
    pub(super) good: usize,
    /// The oldest state at which it failed.
    pub(super) bad: usize,
}

/// States between a good one and a bad one.
#[derive(Debug)]
pub(super) struct Search {
    good: usize,
    bad: usize,
    skipped: Vec<bool>,
}

impl Search {
    /// The command succeeds at `good`, and fails at the later state `bad`.
    pub(super) fn new(good: usize, bad: usize) -> Self {
        Self { good, bad, skipped: vec![false; bad + 1] }
    }

    /// The next states to try, at most so many; none at the end.
    pub(super) fn next(&self, jobs: usize) -> Vec<usize> {
        let left: Vec<usize> = (self.good + 1..self.bad).filter(|&at| !self.skipped[at]).collect();
        let jobs = jobs.min(left.len());
        let mut next: Vec<usize> = (1..=jobs)
            .map(|job| left[(left.len() * job / (jobs + 1)).min(left.len() - 1)])
            .collect();
        next.dedup();
        next
    }

    /// Notes what came of a try. Where two verdicts contradict each other, the first failure after
    /// a success counts.
    pub(super) fn note(&mut self, at: usize, verdict: Verdict) {
        match verdict {
            Verdict::Good if at < self.bad => self.good = self.good.max(at),
            Verdict::Bad if at > self.good => self.bad = self.bad.min(at),
            Verdict::Skipped => self.skipped[at] = true,
            _ => {}
        }
    }

    /// How many tries are left at most, one after the other.
    pub(super) fn remaining(&self) -> u32 {
        let left = (self.good + 1..self.bad).filter(|&at| !self.skipped[at]).count();
        usize::BITS - left.leading_zeros()
    }

    /// The result so far: the end, once no state is left to try.
    pub(super) fn found(&self) -> Found {
        Found { good: self.good, bad: self.bad }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(count: usize, first_bad: usize, jobs: usize, cannot: &[usize]) -> (Found, usize) {
        let mut search = Search::new(0, count - 1);
        let mut rounds = 0;
        loop {
            let next = search.next(jobs);
            if next.is_empty() {
                return (search.found(), rounds);
            }
            rounds += 1;
            assert!(next.len() <= jobs && rounds <= count, "{next:?}");
            for at in next {
                let verdict = match () {
                    () if cannot.contains(&at) => Verdict::Skipped,
                    () if at < first_bad => Verdict::Good,
                    () => Verdict::Bad,
                };
                search.note(at, verdict);
            }
        }
    }

    #[test]
    fn a_thousand_states_need_ten_tries_and_fewer_rounds_with_more_jobs() {
        let (found, rounds) = run(1000, 700, 1, &[]);
        assert_eq!((found, rounds <= 10), (Found { good: 699, bad: 700 }, true), "{rounds}");
        let (found, rounds) = run(1000, 700, 7, &[]);
        assert_eq!((found, rounds <= 4), (Found { good: 699, bad: 700 }, true), "{rounds}");
    }

    #[test]
    fn states_that_cannot_be_tried_are_between_the_two_that_were() {
        let (found, _) = run(10, 5, 1, &[4, 5]);
        assert_eq!(found, Found { good: 3, bad: 6 });
    }

    proptest! {
        #[test]
        fn the_first_bad_state_is_found_or_lies_among_the_skipped_ones(
            count in 2..60usize,
            at in 0..59usize,
            jobs in 1..6usize,
            cannot in prop::collection::vec(1..58usize, 0..10),
        ) {
            let first_bad = 1 + at % (count - 1);
            let (Found { good, bad }, _) = run(count, first_bad, jobs, &cannot);
            prop_assert!(good < first_bad && first_bad <= bad);
            prop_assert!((good + 1..bad).all(|at| cannot.contains(&at)));
        }
    }
}
