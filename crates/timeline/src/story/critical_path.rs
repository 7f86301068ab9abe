//! Tells one request: its gaps, from the moments that it has and the intervals of its threads.

use tailscope_signals::event::Held;

use super::answers::Answers;
use super::classes::Classes;
use super::gaps::Gaps;
use super::{Cause, Gap, JvmMeanwhile, Kind, Stage, Story, losses, ms};
use crate::request::{Delivery, Request};
use crate::thread_timeline::{Interval, ThreadState, ThreadTimelines, Waker};
use crate::ticks::{self, Function};
use crate::trace::Trace;

/// Most steps from thread to thread: a way that is longer is not followed.
const MOST_HOPS: usize = 64;

/// So many servers that ask each other are followed.
const MOST_SERVERS: usize = 8;

pub(super) struct CriticalPath<'t> {
    pub(super) trace: &'t Trace,
    pub(super) timelines: &'t ThreadTimelines,
    pub(super) answers: &'t Answers<'t>,
}

/// Why TCP kept the answer back, in words.
fn held(why: Held) -> Option<&'static str> {
    match why {
        Held::Not => None,
        Held::Nagle => Some("kept back by TCP (Nagle) until the client acknowledged"),
        Held::Cork => Some("kept back by TCP until an interval was full (TCP_CORK)"),
        Held::Window => Some("kept back by TCP: the client's receive window was full"),
        Held::Congestion => Some("kept back by TCP: the congestion window was full"),
        Held::Other => Some("kept back by TCP (pacing or a full device queue)"),
    }
}

impl CriticalPath<'_> {
    pub(super) fn story(&self, request: &Request) -> Story {
        let begin = request.begin();
        let mut merged: Vec<Gap> = Vec::new();
        for gap in self.gaps(request, 0) {
            match merged.last_mut() {
                Some(last) if (last.stage, &last.name) == (gap.stage, &gap.name) => {
                    last.ns += gap.ns;
                    ticks::add(&mut last.functions, &gap.functions);
                }
                _ => merged.push(gap),
            }
        }
        for gap in &mut merged {
            gap.words = gap.name.clone() + &ticks::words(&gap.functions);
        }
        let mut causes: Vec<Cause> = Vec::new();
        for gap in &merged {
            match causes.iter_mut().find(|cause| cause.name == gap.name) {
                Some(cause) => {
                    cause.ns += gap.ns;
                    cause.gaps += 1;
                    ticks::add(&mut cause.functions, &gap.functions);
                }
                None => causes.push(Cause {
                    kind: gap.kind,
                    name: gap.name.clone(),
                    ns: gap.ns,
                    gaps: 1,
                    functions: gap.functions.clone(),
                }),
            }
        }
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.ns));
        let jvms = JvmMeanwhile::of(self.trace, self.timelines, &merged, begin, request.end());
        let sentence = causes.first().map_or_else(String::new, |cause| {
            let ran = merged
                .iter()
                .find(|gap| gap.kind == Kind::Running && gap.name == cause.name);
            let process = ran.and_then(|gap| self.timelines.process(gap.tid));
            let jvm = jvms.iter().find(|jvm| Some(jvm.process) == process);
            format!(
                "{} of {}: {}{}{}",
                ms(cause.ns),
                ms(request.latency()),
                cause.name,
                ticks::words(&cause.functions),
                jvm.map(JvmMeanwhile::beside_running).unwrap_or_default()
            )
        });
        Story {
            sentence,
            begin_ns: begin,
            latency_ns: request.latency(),
            tid: request.tid,
            thread: self.trace.thread(request.tid),
            span: request.span.map(|source| self.trace.span(source)),
            socket: request.socket.0,
            from_packet: request.arrival.is_some(),
            received_ns: request.received - begin,
            sent_ns: request.last_send().at.saturating_sub(begin),
            left_ns: request.transmitted - begin,
            to_client: request.delivery.is_some(),
            causes,
            jvms,
            gaps: merged,
            sent_again_ns: request.sent_again,
            losses: losses::of_request(self.trace, begin, request.end()),
            picture: None,
        }
    }

    /// The gaps of a request that a watched server is asked: by its client, or by so many others, one
    /// behind the other, that wait for it.
    fn gaps(&self, request: &Request, servers: usize) -> Vec<Gap> {
        let begin = request.begin();
        let mut gaps = Gaps::new(begin);
        if let Some(arrival) = request.arrival {
            if let (Some((_, tid)), Some(left)) = (arrival.asked, arrival.left) {
                self.client(tid, Stage::Arrival, left, &mut gaps);
            }
            let wire = "on the way from the client's device";
            gaps.upto(arrival.packet, Stage::Arrival, Kind::Wire, wire);
        }
        let ready = request
            .arrival
            .map(|arrival| arrival.ready.unwrap_or(arrival.tcp))
            .or(request.ready);
        let softirq = "in the receive softirq";
        let ready = ready.unwrap_or(begin).min(request.received);
        let ready = gaps.upto(ready, Stage::Arrival, Kind::ReceiveSoftirq, softirq);

        // When the thread is done with it: a packet may leave before the send returns.
        let sent = request.last_send();
        let left = request.transmitted;
        let done = sent.at.min(left);
        // What it did for others until here, and for this request from here on.
        let busy = self
            .timelines
            .busy_until(request.tid, request.socket, ready, request.received)
            .unwrap_or(ready);
        for (from, to, other) in [(ready, busy, true), (busy, request.received, false)] {
            let intervals = self.timelines.intervals(request.tid, from, to);
            let name = |interval: Interval| vec![(interval, self.name(&interval, other))];
            self.threads(&intervals, Stage::Pickup, servers, &mut gaps, name);
        }
        let mut classes = Classes::new(self.timelines, request.received, done);
        let name = |interval: Interval| {
            let cut = classes.cut(interval).into_iter();
            let named = cut.map(|(interval, at_classes)| {
                let name = at_classes.then(|| self.at_classes(&interval)).flatten();
                (
                    interval,
                    name.unwrap_or_else(|| self.name(&interval, false)),
                )
            });
            named.collect()
        };
        let way = self.way(request, done);
        self.threads(&way, Stage::Work, servers, &mut gaps, name);
        if let Some(held) = held(sent.held) {
            // Then the acknowledgement came, and what follows is the way out.
            let until = request.acknowledged.filter(|at| (done..=left).contains(at));
            let until = until.unwrap_or(left);
            gaps.upto(until, Stage::Departure, Kind::HeldByTcp, held);
        }
        let out = "through TCP and IP to the device";
        gaps.upto(left, Stage::Departure, Kind::Transmit, out);
        if let Some(delivery) = request.delivery {
            self.back(delivery, request.end(), &mut gaps);
        }
        gaps.all
    }

    /// What threads did, each interval by the parts and names that `name` gives it. Where one waited for the
    /// answer of another watched server, what happened there, from the moment when it was asked.
    fn threads(
        &self,
        intervals: &[Interval],
        stage: Stage,
        servers: usize,
        gaps: &mut Gaps,
        mut name: impl FnMut(Interval) -> Vec<(Interval, (Kind, String))>,
    ) {
        let mut tell = |interval: Interval, gaps: &mut Gaps| {
            for (interval, (kind, name)) in name(interval) {
                self.interval(&interval, stage, kind, name, gaps);
            }
        };
        let mut awaited = self.awaited(intervals, servers).into_iter().peekable();
        for &interval in intervals {
            while let Some((asked, ready, request)) =
                awaited.next_if(|(asked, ..)| *asked < interval.to)
            {
                if asked > interval.from {
                    tell(
                        Interval {
                            to: asked,
                            ..interval
                        },
                        gaps,
                    );
                }
                let server = self.trace.thread(request.tid);
                for gap in self.gaps(request, servers + 1) {
                    let to = (asked + gap.at_ns + gap.ns).min(ready);
                    let name = format!("{server}: {}", gap.name);
                    gaps.push(to, stage, gap.kind, name, (gap.tid, gap.functions));
                }
            }
            tell(interval, gaps);
        }
    }

    /// The answers of other watched servers that the request hung on: backwards from the end, as
    /// whatever its threads did while one was still to come held up nothing. When each was asked for
    /// and when it was there, in their order.
    fn awaited(&self, intervals: &[Interval], servers: usize) -> Vec<(u64, u64, &Request)> {
        let mut found = Vec::new();
        let mut until = u64::MAX;
        for interval in intervals.iter().rev().filter(|_| servers < MOST_SERVERS) {
            let waits = matches!(interval.state, ThreadState::Blocked { fault: false, .. });
            if !waits || interval.to > until || self.pause(interval).is_some() {
                continue;
            }
            let answer = self
                .answers
                .awaited(interval.tid, interval.from, interval.to);
            if let Some((ready, request)) = answer {
                until = request.begin();
                found.push((until, ready, request));
            }
        }
        found.reverse();
        found
    }

    /// From the device to a client on this machine: through the stack, and what its thread did until
    /// it had received the answer.
    fn back(&self, delivery: Delivery, end: u64, gaps: &mut Gaps) {
        let arrival = delivery.arrival;
        let wire = "on the way back to the client's stack";
        gaps.upto(arrival.packet.min(end), Stage::Return, Kind::Wire, wire);
        let ready = arrival.ready.unwrap_or(arrival.tcp).min(end);
        let softirq = "in the client's receive softirq";
        gaps.upto(ready, Stage::Return, Kind::ReceiveSoftirq, softirq);
        self.client(delivery.tid, Stage::Return, end, gaps);
    }

    /// What a thread of the client did from here on.
    fn client(&self, tid: u32, stage: Stage, to: u64, gaps: &mut Gaps) {
        for interval in self.timelines.intervals(tid, gaps.at, to) {
            let (kind, name) = self.name(&interval, false);
            let name = format!("the client: {name}");
            self.interval(&interval, stage, kind, name, gaps);
        }
    }

    /// A gap of an interval of a thread, which begins where the gap before it ended.
    fn interval(
        &self,
        interval: &Interval,
        stage: Stage,
        kind: Kind,
        name: String,
        gaps: &mut Gaps,
    ) {
        let functions = self.functions(interval, gaps.at);
        gaps.push(interval.to, stage, kind, name, (interval.tid, functions));
    }

    /// Where ticks met the thread that had the CPU in an interval, from a moment on.
    fn functions(&self, interval: &Interval, from: u64) -> Vec<Function> {
        let ran = match interval.state {
            ThreadState::Running => interval.tid,
            ThreadState::Waiting {
                behind: Some(behind),
                ..
            } => behind,
            _ => return Vec::new(),
        };
        let mut found = Vec::new();
        for tick in self.timelines.ticks(ran, from, interval.to) {
            let function = Function {
                name: self.trace.function(tick.process, tick.address),
                in_kernel: tick.in_kernel,
                ticks: 1,
            };
            ticks::add(&mut found, &[function]);
        }
        found
    }

    /// What happened between the receive and `done`, on the thread that received; where another
    /// one answered, backwards from the answer, from each wait to the thread that ended it.
    fn way(&self, request: &Request, done: u64) -> Vec<Interval> {
        let received = request.received.min(done);
        if request.last_send().tid == request.tid {
            return self.timelines.intervals(request.tid, received, done);
        }
        let mut way: Vec<Interval> = Vec::new();
        let (mut tid, mut until) = (request.last_send().tid, done);
        for _ in 0..MOST_HOPS {
            let intervals = self.timelines.intervals(tid, received, until);
            let hop = intervals.iter().rposition(|interval| {
                tid != request.tid
                    && matches!(
                        interval.state,
                        ThreadState::Blocked { by: Waker::Thread(by), .. }
                            if by != 0 && (by == request.tid || self.timelines.process(by).is_some())
                    )
            });
            let Some(hop) = hop else {
                way.extend(intervals.into_iter().rev());
                until = received;
                break;
            };
            way.extend(intervals[hop + 1..].iter().rev());
            until = intervals[hop].to;
            if let ThreadState::Blocked {
                by: Waker::Thread(by),
                ..
            } = intervals[hop].state
            {
                tid = by;
            }
            if until <= received {
                break;
            }
        }
        if until > received {
            way.extend(
                self.timelines
                    .intervals(tid, received, until)
                    .into_iter()
                    .rev(),
            );
        }
        way.reverse();
        way
    }
}
