//! Where the time of a request went: its items, laid over the time from ready to the last send.
//!
//! Slices come first: what a thread did for the request counts with the causes of that thread's
//! meter; a thread that has handed the request on comes after the one that has it. Between slices it waited: for another server until the answer was there, then for a thread.
//! The rest is unknown.

use std::net::SocketAddr;

use tailscope_signals::row::Row;

use super::link::{Asked, Links};
use super::work::{Behind, Item, Request, Segment, Work};
use crate::stacks::Part;

/// A request that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Its times and causes.
    pub(crate) row: Row,
    /// What it is called.
    pub(crate) name: Option<String>,
    /// Whom it asked, and waited for the longest; the inner `None`: over a Unix socket.
    pub(crate) asked: Option<Option<SocketAddr>>,
    /// What joins it with other records.
    pub(crate) links: Links,
    /// What it queued behind the longest.
    pub(crate) behind: Option<Behind>,
    /// Some of its time may be another request's, or the other way round.
    pub(crate) ambiguous: bool,
    /// Which threads worked for it, and when; each moment once.
    pub(crate) parts: Vec<Part>,
}

/// The parts of a time that nothing has been found for yet: intervals in order, apart.
struct Gaps(Vec<(u64, u64)>);

impl Gaps {
    /// What of this interval is still there.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.0.partition_point(|gap| gap.1 <= from);
        let within = self.0[first..].iter().take_while(move |gap| gap.0 < to);
        within.map(move |gap| (gap.0.max(from), gap.1.min(to)))
    }

    /// Takes what of this interval is still there; returns how long that is.
    fn take(&mut self, from: u64, to: u64) -> u64 {
        if from >= to {
            return 0;
        }
        let first = self.0.partition_point(|gap| gap.1 <= from);
        let last = self.0.partition_point(|gap| gap.0 < to);
        if first >= last {
            return 0;
        }
        let (start, end) = (self.0[first].0, self.0[last - 1].1);
        let taken = self.0[first..last]
            .iter()
            .map(|gap| gap.1.min(to) - gap.0.max(from))
            .sum();
        let left = [(start, from), (to, end)];
        let left = left.into_iter().filter(|(from, to)| from < to);
        self.0.splice(first..last, left);
        taken
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }
}

/// Adds the causes of a segment of which `part` ns count.
fn add_causes(row: &mut Row, largest: &mut [u64], segment: &Segment, part: u64) {
    let whole = segment.to - segment.from;
    for share in &segment.shares {
        let cause = usize::from(share.cause);
        let ns = if part == whole {
            share.ns
        } else {
            (u128::from(share.ns) * u128::from(part) / u128::from(whole.max(1))) as u64
        };
        row.ns[cause] += ns;
        row.n[cause] += share.n;
        if share.who != 0 && ns > largest[cause] {
            largest[cause] = ns;
            row.who[cause] = share.who;
        }
    }
}

/// Makes the row of a request that has been answered.
pub(super) fn account(request: &Request, work: &Work) -> Finished {
    let (ready, ended) = (request.ready, request.ended);
    let mut finished = Finished {
        name: request.name.clone(),
        ambiguous: work.ambiguous,
        links: Links {
            connection: request.connection,
            asked: None,
            trace: request.trace,
        },
        ..Finished::default()
    };
    let row = &mut finished.row;
    row.begin = ready;
    row.wall = ended.saturating_sub(ready);
    (row.pid, row.tid, row.cpu) = (request.pid, request.tid, request.cpu);
    let mut gaps = Gaps(vec![(ready, ended.max(ready))]);
    let mut largest = vec![0; row.ns.len()];
    for item in &work.items {
        if let Item::Slice(segment) = item {
            let tid = segment.tid;
            let within = gaps.within(segment.from, segment.to);
            finished
                .parts
                .extend(within.map(|(from, to)| Part { tid, from, to }));
            let part = gaps.take(segment.from, segment.to);
            if part > 0 {
                add_causes(row, &mut largest, segment, part);
            }
        }
    }
    for item in &work.items {
        if let Item::Tail(segment) = item {
            let tid = segment.tid;
            let within = gaps.within(segment.from, segment.to);
            finished
                .parts
                .extend(within.map(|(from, to)| Part { tid, from, to }));
            let part = gaps.take(segment.from, segment.to);
            if part > 0 {
                add_causes(row, &mut largest, segment, part);
            }
        }
    }
    let mut longest = 0;
    for item in &work.items {
        if let Item::Downstream {
            sent,
            ready,
            peer,
            connection,
            ..
        } = *item
        {
            let part = gaps.take(sent, ready);
            row.request.downstream_ns += part;
            row.request.downstreams += 1;
            if part > longest {
                longest = part;
                finished.asked = Some(peer);
                finished.links.asked = connection.map(|connection| Asked {
                    connection,
                    sent,
                    ready,
                });
            }
        }
    }
    longest = 0;
    for item in &work.items {
        let (from, to, behind) = match item {
            Item::Downstream {
                ready, received, ..
            } => (*ready, *received, &None),
            Item::Queue { from, to, behind } => (*from, *to, behind),
            Item::Slice(_) | Item::Tail(_) => continue,
        };
        let part = gaps.take(from, to);
        row.queue_ns += part;
        if part > longest && behind.is_some() {
            longest = part;
            finished.behind.clone_from(behind);
        }
    }
    row.request.unknown_ns = gaps.sum();
    finished
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailscope_signals::slice::Share;

    use super::*;

    fn slice(from: u64, to: u64) -> Item {
        Item::Slice(Segment {
            tid: 1,
            from,
            to,
            shares: Vec::new(),
        })
    }

    fn downstream(sent: u64, ready: u64, received: u64) -> Item {
        Item::Downstream {
            sent,
            ready,
            received,
            peer: None,
            connection: Some(4),
            guess: false,
        }
    }

    fn request(ready: u64, ended: u64) -> Request {
        Request {
            ready,
            ended,
            ..Request::default()
        }
    }

    fn work(items: Vec<Item>) -> Work {
        Work {
            items,
            ..Work::default()
        }
    }

    #[test]
    fn time_between_slices_is_what_it_waited_for() {
        let items = vec![
            slice(100, 200),
            downstream(200, 500, 560),
            slice(560, 600),
            Item::Queue {
                from: 40,
                to: 100,
                behind: None,
            },
        ];
        let row = account(&request(50, 700), &work(items)).row;
        assert_eq!((row.begin, row.wall), (50, 650));
        assert_eq!(row.request.downstream_ns, 300);
        assert_eq!(row.queue_ns, 50 + 60);
        assert_eq!(row.request.unknown_ns, 100);
    }

    #[test]
    fn the_call_that_took_longest_is_remembered() {
        let items = vec![downstream(100, 110, 120), downstream(200, 500, 560)];
        let links = account(&request(50, 700), &work(items)).links;
        let (sent, ready) = (200, 500);
        let connection = 4;
        assert_eq!(
            links.asked,
            Some(Asked {
                connection,
                sent,
                ready
            })
        );
    }

    #[test]
    fn causes_of_a_slice_that_reaches_out_count_in_part() {
        let share = Share {
            cause: 3,
            who: 9,
            n: 1,
            ns: 80,
        };
        let segment = Segment {
            tid: 1,
            from: 0,
            to: 100,
            shares: vec![share],
        };
        let row = account(&request(50, 100), &work(vec![Item::Slice(segment)])).row;
        assert_eq!((row.ns[3], row.n[3], row.who[3]), (40, 1, 9));
        assert_eq!(row.request.unknown_ns, 0);
    }

    proptest! {
        #[test]
        fn every_moment_counts_once(
            ready in 0u64..1000, wall in 0u64..1000,
            parts in proptest::collection::vec((0u8..3, 0u64..2000, 0u64..500, 0u64..500), 0..20),
        ) {
            let items = parts.iter().map(|&(kind, from, a, b)| match kind {
                0 => slice(from, from + a),
                1 => downstream(from, from + a, from + a + b),
                _ => Item::Queue { from, to: from + a, behind: None },
            });
            let items: Vec<_> = items.collect();
            let row = account(&request(ready, ready + wall), &work(items.clone())).row;
            let covered = |at: u64| items.iter().any(|item| match item {
                Item::Slice(s) => s.from <= at && at < s.to,
                _ => false,
            });
            let running = (ready..ready + wall).filter(|at| covered(*at)).count() as u64;
            let waited = row.queue_ns + row.request.downstream_ns + row.request.unknown_ns;
            prop_assert_eq!(running + waited, wall);
        }
    }
}
