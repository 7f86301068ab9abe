//! What a thread does most often: where it waits for something to do, when it works for a request,
//! and whether it answers what it receives.

use super::Thread;

/// From this number of new futexes on, a thread counts as one that waits for something to do at ever new ones.
const CHANGES_ITS_PLACE: u8 = 3;

/// How many requests show whether a thread answers what it receives, and how many are counted.
const LEAST_COUNTED: u16 = 8;
const MOST_COUNTED: u16 = 256;

/// Votes for when a thread works for a request, less those against it, from which on that is known,
const SURE_VOTES: i8 = 3;
/// and from which on more are not counted: it may change its ways.
const MOST_VOTES: i8 = 8;

/// A condition variable of glibc has two futexes, the halves of a word of this size
/// (`__g_signals` of `bits/thread-shared-types.h`). The mutex for it often lies right behind them.
const TWO_FUTEXES_BYTES: u64 = 8;
/// How large a condition variable is. A thread of the JVM waits for something to do at one of two that lie
/// side by side, of which one is for waits until a moment (`Parker` of `os_posix.hpp`). A worker of a
/// `ForkJoinPool` waits now at the one, now at the other.
const CONDVAR_BYTES: u64 = 48;

impl Thread {
    /// Whether it waits where it waits for something to do.
    pub(in crate::requests) fn is_idle_at(&self, futex: u64) -> bool {
        let is_beside = self.is_idle_beside && self.is_beside(futex);
        self.idle_at != 0
            && (is_beside || self.idle_at / TWO_FUTEXES_BYTES == futex / TWO_FUTEXES_BYTES)
    }

    /// Whether that is a condition variable next to the one at which it waits for something to do.
    fn is_beside(&self, futex: u64) -> bool {
        let apart = (self.idle_at / TWO_FUTEXES_BYTES).abs_diff(futex / TWO_FUTEXES_BYTES);
        apart == CONDVAR_BYTES / TWO_FUTEXES_BYTES
    }

    /// Whether it serves nobody and waits for something to do at ever new futexes, as with a new event for
    /// each piece of work.
    pub(in crate::requests) fn changes_its_place(&self) -> bool {
        self.idle_votes == 0 && self.idle_moves >= CHANGES_ITS_PLACE && self.serves_nobody()
    }

    /// It has waited there without work.
    pub(in crate::requests) fn vote_idle_at(&mut self, futex: u64) {
        if futex == 0 {
            return;
        }
        if self.is_idle_at(futex) {
            self.idle_votes = (self.idle_votes + 1).min(8);
            self.idle_moves = self.idle_moves.saturating_sub(1);
        } else if self.idle_votes > 0 && self.is_beside(futex) {
            self.is_idle_beside = true;
        } else if self.idle_votes == 0 {
            self.idle_at = futex;
            self.is_idle_beside = false;
            self.idle_moves = self.idle_moves.saturating_add(1);
        } else {
            self.idle_votes -= 1;
        }
    }

    /// It has worked for long between two receives, for the first.
    pub(in crate::requests) fn has_worked_at_receive(&mut self) {
        self.works_at_receive = (self.works_at_receive + 1).min(MOST_VOTES);
    }

    /// It has worked for long for a request that it had received before it answered another.
    pub(in crate::requests) fn has_worked_later(&mut self) {
        self.works_at_receive = (self.works_at_receive - 2).max(-MOST_VOTES);
    }

    /// Whether it does what a request asks for where it receives it, and not later; `None`: not known.
    pub(in crate::requests) fn works_at_receive(&self) -> Option<bool> {
        let is_sure = self.works_at_receive.abs() >= SURE_VOTES;
        is_sure.then_some(self.works_at_receive > 0)
    }

    /// It has received a request.
    pub(in crate::requests) fn count_received(&mut self) {
        if self.received >= MOST_COUNTED {
            self.received /= 2;
            self.answered /= 2;
        }
        self.received += 1;
    }

    /// Whether it leaves its requests to other threads.
    pub(in crate::requests) fn only_receives(&self) -> bool {
        self.received >= LEAST_COUNTED && self.answered <= self.received / 16
    }

    /// Whether it has received requests.
    pub(in crate::requests) fn receives_requests(&self) -> bool {
        self.received > 0
    }

    /// Whether it neither receives nor answers requests.
    pub(in crate::requests) fn serves_nobody(&self) -> bool {
        self.received == 0 && self.answered == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_place_counts_once_it_was_met_and_only_next_to_the_first() {
        let mut thread = Thread::default();
        (0..2).for_each(|_| thread.vote_idle_at(0x1000));
        assert!(thread.is_idle_at(0x1004), "the other half of the same one");
        assert!(!thread.is_idle_at(0x1030), "a mutex may lie there");
        thread.vote_idle_at(0x1030);
        assert!(thread.is_idle_at(0x1000) && thread.is_idle_at(0x1030));
        assert!(!thread.is_idle_at(0x1008) && !thread.is_idle_at(0x1060));
    }
}
