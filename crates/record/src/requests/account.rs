//! Where the time of a request went: its items, laid over the time from ready to the last send.
//!
//! Slices come first: what a thread did for the request counts with the causes of that thread's
//! meter. Of two threads, the one that works comes before the one that waits, and a thread that has
//! handed the request on comes after the one that has it. Between slices it waited: for another server
//! until the answer was there, then for a thread. If nothing but that answer was missing when it came,
//! no thread's wait before that has delayed it: all of that time counts as the other server's. What
//! threads did of which nothing shows that it was for the request counts where it did not wait for
//! another server. While such a thread waits, or one that has handed the request on, nobody waits for
//! that thread: these times come after all others but one. What is left until a timer let a thread go
//! on was a wait for that timer. The rest is unknown.

use std::net::SocketAddr;

use tailscope_kernel::BY_INTERRUPT;
use tailscope_signals::abi;
use tailscope_signals::row::{CAUSES, Row};

use super::gaps::Gaps;
use super::item::{Behind, Item, Segment};
use super::link::{Asked, Links};
use super::request::{Held, Request};
use super::work::Work;
use crate::stacks::Part;

/// A request that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Its times and causes.
    pub(crate) row: Row,
    /// What it is called.
    pub(crate) name: Option<String>,
    /// Whom it asked, and waited for the longest; the inner `None`: over a Unix socket. `None`: it
    /// asked nobody, or that is not known.
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

/// Causes for which a thread that could go on has no CPU, or can't go on.
const WAITS: [u32; 8] = [
    abi::TS_RUNQUEUE,
    abi::TS_PREEMPTED,
    abi::TS_THROTTLED,
    abi::TS_LOCK,
    abi::TS_IO,
    abi::TS_NETWORK,
    abi::TS_SLEEP,
    abi::TS_STOPPED,
];

/// Whether the thread waited for most of that time.
fn is_wait(segment: &Segment) -> bool {
    let waits = segment.shares.iter();
    let waits = waits.filter(|share| WAITS.contains(&u32::from(share.cause)));
    waits.map(|share| share.ns).sum::<u64>() * 2 > segment.to - segment.from
}

/// A request's time, as far as it has been laid out.
struct Layout {
    finished: Finished,
    gaps: Gaps,
    /// For each cause, the largest time that somebody is to blame for.
    largest: [u64; CAUSES],
    /// The longest time for which it waited for another server.
    longest: u64,
}

impl Layout {
    fn of(request: &Request, work: &Work) -> Self {
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
        Self {
            gaps: Gaps::of(ready, ended),
            largest: [0; CAUSES],
            longest: 0,
            finished,
        }
    }

    /// A thread had it.
    fn thread(&mut self, segment: &Segment) {
        let tid = segment.tid;
        let within = self.gaps.within(segment.from, segment.to);
        let parts = within.map(|(from, to)| Part { tid, from, to });
        self.finished.parts.extend(parts);
        let part = self.gaps.take(segment.from, segment.to);
        if part > 0 {
            add_causes(&mut self.finished.row, &mut self.largest, segment, part);
        }
    }

    /// It waited for other servers.
    fn downstream<'i>(&mut self, items: impl Iterator<Item = &'i Item>) {
        for item in items {
            if let Item::Downstream {
                sent,
                ready,
                peer,
                connection,
                again,
                ..
            } = *item
            {
                let part = self.gaps.take(sent, ready);
                self.finished.row.request.downstream_ns += part;
                self.finished.row.request.downstreams += u32::from(!again);
                if part > self.longest {
                    self.longest = part;
                    self.finished.asked = peer;
                    self.finished.links.asked = connection.map(|connection| Asked {
                        connection,
                        sent,
                        ready,
                    });
                }
            }
        }
    }

    /// It waited for a thread.
    fn queues(&mut self, items: &[Item]) {
        let mut longest = 0;
        for item in items {
            let (from, to, behind) = match item {
                Item::Downstream {
                    ready, received, ..
                } => (*ready, *received, &None),
                Item::Queue { from, to, behind } => (*from, *to, behind),
                Item::Accept { from, to } => {
                    self.finished.row.request.accept_ns += self.gaps.take(*from, *to);
                    continue;
                }
                Item::Slice(_) | Item::Tail(_) | Item::Beside(_) | Item::Timer { .. } => continue,
            };
            let part = self.gaps.take(from, to);
            self.finished.row.queue_ns += part;
            if part > longest && behind.is_some() {
                longest = part;
                self.finished.behind.clone_from(behind);
            }
        }
    }

    /// It waited for timers.
    fn timers(&mut self, items: &[Item]) {
        const SLEEP: usize = abi::TS_SLEEP as usize;
        for item in items {
            let Item::Timer { from, to } = item else {
                continue;
            };
            let part = self.gaps.take(*from, *to);
            let row = &mut self.finished.row;
            row.ns[SLEEP] += part;
            row.n[SLEEP] += u32::from(part > 0);
            if part > self.largest[SLEEP] {
                self.largest[SLEEP] = part;
                row.who[SLEEP] = BY_INTERRUPT;
            }
        }
    }
}

/// The segments that are picked: in which their threads waited, and in which they worked.
fn parted<'i>(
    items: &'i [Item],
    pick: fn(&'i Item) -> Option<&'i Segment>,
) -> (Vec<&'i Segment>, Vec<&'i Segment>) {
    items.iter().filter_map(pick).partition(|of| is_wait(of))
}

/// When something was under way for a request: a thread had it, or another server.
struct Busy {
    from: Vec<u64>,
    to: Vec<u64>,
    ended: u64,
}

impl Busy {
    fn of(request: &Request, items: &[Item]) -> Self {
        let times = items.iter().filter_map(|item| match item {
            Item::Slice(of) => Some((of.from, of.to)),
            Item::Downstream { sent, ready, .. } => Some((*sent, *ready)),
            _ => None,
        });
        let (mut from, mut to): (Vec<_>, Vec<_>) = times.filter(|(from, to)| from < to).unzip();
        from.sort_unstable();
        to.sort_unstable();
        let ended = request.ended;
        Self { from, to, ended }
    }

    fn at(&self, moment: u64) -> bool {
        let begun = self.from.partition_point(|from| *from < moment);
        let ended = self.to.partition_point(|to| *to <= moment);
        begun > ended
    }

    /// Whether nothing but this answer was missing when it came.
    fn was_awaited(&self, item: &Item) -> bool {
        let Item::Downstream {
            ready, received, ..
        } = item
        else {
            return false;
        };
        // An answer that came in while it was received has no moment of its own.
        ready < received && *ready < self.ended && !self.at(*ready)
    }
}

/// Makes the row of a request that has been answered.
pub(super) fn account(request: &Request, work: &Work) -> Finished {
    let items = &work.items;
    let (waited, worked) = parted(items, |item| match item {
        Item::Slice(segment) => Some(segment),
        _ => None,
    });
    let (tail_waits, tails) = parted(items, |item| match item {
        Item::Tail(segment) => Some(segment),
        _ => None,
    });
    let (waits_beside, beside) = parted(items, |item| match item {
        Item::Beside(segment) => Some(segment),
        _ => None,
    });
    let busy = Busy::of(request, items);
    let (awaited, other): (Vec<_>, Vec<_>) = items.iter().partition(|item| busy.was_awaited(item));
    let mut layout = Layout::of(request, work);
    // While one thread works for it, another one's wait delays nothing.
    worked.into_iter().for_each(|of| layout.thread(of));
    layout.downstream(awaited.into_iter());
    let threads = waited.into_iter().chain(tails);
    threads.for_each(|of| layout.thread(of));
    layout.downstream(other.into_iter());
    beside.into_iter().for_each(|of| layout.thread(of));
    layout.queues(items);
    let waits = tail_waits.into_iter().chain(waits_beside);
    waits.for_each(|of| layout.thread(of));
    layout.timers(items);
    let mut finished = layout.finished;
    finished.row.request.unknown_ns = layout.gaps.sum();
    if let Some(Held::Until { ns, why }) = request.held
        && ns > 0
    {
        finished.row.wall += ns;
        (finished.row.request.tcp_ns, finished.row.request.tcp_why) = (ns, why);
    }
    finished
}

#[cfg(test)]
mod tests;
