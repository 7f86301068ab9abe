//! When what is remembered is forgotten: it is of no more use, or there is no more room.

use super::Requests;
use super::newest::newest_from;
use super::request::Held;
use super::socket::Socket;

/// After so long without a send or a receive an answer counts as complete.
const COMPLETE_AFTER_NS: u64 = 2_000_000_000;
/// Work that is nobody's is forgotten after so long, and an answer counts as complete whose end TCP has
/// kept back until then.
const FORGET_AFTER_NS: u64 = 20_000_000_000;
/// Where there is too much work, what is nobody's is forgotten earlier.
const FORGET_EARLIER_NS: [u64; 3] = [COMPLETE_AFTER_NS, 200_000_000, 20_000_000];
/// More sockets or pieces of work than this are not remembered.
const MOST_REMEMBERED: usize = 65_536;
/// The same of threads, which are larger.
const MOST_THREADS: usize = 16_384;
/// What requests and threads did in more parts than this, all together, is not remembered: some 90 MB.
const MOST_ITEMS: usize = 500_000;
/// Where there is no more room, so much stays.
const STAYS: f64 = 0.75;

fn stays(most: usize) -> usize {
    (most as f64 * STAYS) as usize
}

impl Requests {
    /// Keeps what is remembered within its bounds at this moment (`CLOCK_MONOTONIC`, ns).
    pub(super) fn bound(&mut self, now: u64) {
        if now.saturating_sub(self.expired) > 1_000_000_000 {
            let seen = self.writes_seen_from;
            if seen.is_some_and(|from| from >= self.expired) {
                self.lose_streams_over_tls();
            }
            self.expired = now;
            self.expire(now);
            self.bound_items(MOST_ITEMS);
        }
        if self.works.len() > MOST_REMEMBERED {
            self.bound_works(now, MOST_REMEMBERED);
        }
        if self.sockets.len() > MOST_REMEMBERED {
            self.bound_sockets(now, MOST_REMEMBERED);
        }
        if self.threads.len() > MOST_THREADS {
            self.bound_threads(MOST_THREADS);
        }
    }

    /// What has not gone on for long has ended.
    fn expire(&mut self, now: u64) {
        let old = now.saturating_sub(COMPLETE_AFTER_NS);
        let long_ago = now.saturating_sub(FORGET_AFTER_NS);
        self.bound_tables(old);
        // Answers of those that ended lately may not have been gone through yet.
        let latest = std::mem::take(&mut self.ended[0]);
        let ended = std::mem::replace(&mut self.ended[1], latest);
        let mut complete = Vec::new();
        for socket in self.sockets.values_mut().filter(|s| s.stream == 0) {
            socket.datagrams.retain(|work| {
                let of = self.works.get(*work).and_then(|of| of.request.as_ref());
                let goes = of.is_none_or(|of| ended.contains(&of.pid) || of.ready < long_ago);
                complete.extend(goes.then_some(*work));
                !goes
            });
            let Some(work) = socket.open else { continue };
            let request = self.works.get(work).and_then(|work| work.request.as_ref());
            let is_over = request.is_none_or(|request| match (request.ended, request.held) {
                (0, _) => ended.contains(&request.pid),
                (at, Some(Held::Still { .. })) => at < long_ago,
                (at, _) => at < old,
            });
            if is_over {
                complete.push(work);
                socket.open = None;
            }
        }
        for work in complete {
            self.complete(work, false);
        }
        self.forget_closed(old, long_ago);
        self.works.forget_until(long_ago);
        self.inboxes
            .retain(|_, inbox| inbox.back().is_some_and(|(_, at)| *at >= long_ago));
    }

    /// Sockets that were closed before `old`, or `long_ago` where an answer may still have come in.
    fn forget_closed(&mut self, old: u64, long_ago: u64) {
        self.sockets.retain(|_, socket| {
            let until = match socket.calls.is_empty() {
                true => old,
                false => long_ago,
            };
            !socket.closed || socket.touched >= until
        });
    }

    fn bound_works(&mut self, now: u64, most: usize) {
        for age in FORGET_EARLIER_NS {
            self.works.forget_until(now.saturating_sub(age));
            if self.works.len() <= stays(most) {
                return;
            }
        }
        let before = self.works.len();
        self.works.forget_oldest(stays(most));
        self.missed.forgotten += (before - self.works.len()) as u64;
    }

    /// Forgets the work of the most parts, and the earlier parts of what threads do.
    fn bound_items(&mut self, most: usize) {
        if self.works.items() > most {
            self.missed.forgotten += self.works.forget_largest(stays(most));
        }
        while self.threads.values().map(|t| t.parts()).sum::<usize>() > most {
            self.threads.values_mut().for_each(|thread| {
                thread.forget_waits();
                thread.forget_earlier();
            });
        }
    }

    /// Forgets those on which nothing is under way, and then the others, the longest idle first. Streams
    /// go with their connections.
    fn bound_sockets(&mut self, now: u64, most: usize) {
        let old = now.saturating_sub(COMPLETE_AFTER_NS);
        self.forget_closed(old, old);
        for busy_too in [false, true] {
            let is_one = |socket: &Socket| busy_too || !socket.is_under_way();
            let all = self.sockets.values().filter(|socket| socket.stream == 0);
            let surplus = all.count().saturating_sub(stays(most));
            self.forget_sockets(surplus, is_one);
        }
        // Most are streams, then: of few connections.
        while self.sockets.len() > most {
            let is_one = |socket: &Socket| socket.frames.is_some();
            let connections = self.sockets.values().filter(|socket| is_one(socket));
            self.forget_sockets(connections.count().div_ceil(4), is_one);
        }
    }

    /// Forgets that many of these sockets, and the streams of such connections.
    fn forget_sockets(&mut self, surplus: usize, is_one: impl Fn(&Socket) -> bool) {
        if surplus == 0 {
            return;
        }
        let is_one = |socket: &Socket| socket.stream == 0 && is_one(socket);
        let candidates = self.sockets.values().filter(|socket| is_one(socket));
        let touched: Vec<u64> = candidates.map(|socket| socket.touched).collect();
        let stay = touched.len().saturating_sub(surplus);
        let from = newest_from(touched, stay);
        let mut gone = Vec::new();
        self.sockets.retain(|_, socket| {
            let goes = is_one(socket) && socket.touched <= from;
            if goes {
                gone.push(std::mem::take(socket));
            }
            !goes
        });
        let kept = self.followed_streams();
        self.sockets.retain(|number, socket| {
            let goes = socket.stream != 0 && !kept.contains(number);
            if goes {
                gone.push(std::mem::take(socket));
            }
            !goes
        });
        for socket in gone {
            self.give_up(&socket);
        }
    }

    /// What is under way on a socket that is forgotten. An answer that has begun may be complete, but for
    /// a stream's, which says when it is.
    fn give_up(&mut self, socket: &Socket) {
        self.missed.forgotten += socket.calls.len() as u64;
        for work in &socket.datagrams {
            self.missed.forgotten += u64::from(self.works.end(*work).is_some());
        }
        let Some(work) = socket.open else { return };
        let request = self.works.get(work).and_then(|work| work.request.as_ref());
        if socket.stream == 0 && request.is_some_and(|request| request.ended != 0) {
            self.complete(work, false);
        } else {
            self.missed.forgotten += u64::from(self.works.end(work).is_some());
        }
    }

    fn bound_threads(&mut self, most: usize) {
        let last = self.threads.values().map(|thread| thread.last).collect();
        let from = newest_from(last, stays(most));
        let forgotten = &mut self.missed.forgotten;
        self.threads.retain(|_, thread| {
            let goes = thread.last <= from;
            *forgotten += u64::from(goes && (thread.owner.is_some() || !thread.pending.is_empty()));
            !goes
        });
    }
}
