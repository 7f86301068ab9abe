//! Tells one request: its gaps, from the moments that it has and the pieces of its threads.

use tailscope_signals::event::{Held, OnTop};

use super::{Cause, Gap, Kind, Stage, Story, losses, ms, on_top_name};
use crate::calls;
use crate::pause::Pause;
use crate::request::Request;
use crate::trace::Trace;
use crate::track::{Doing, Piece, Tracks, Waker};

/// So far before and after a piece classes are looked for that belong to the same burst, in ns.
const AROUND_NS: u64 = 1_000_000_000;
/// Most steps from thread to thread: a way that is longer is not followed.
const MOST_HOPS: usize = 64;

pub(super) struct Teller<'t> {
    pub(super) trace: &'t Trace,
    pub(super) tracks: &'t Tracks,
}

impl Teller<'_> {
    pub(super) fn story(&self, request: &Request) -> Story {
        let begin = request.begin();
        let mut gaps = self.gaps(request);
        gaps.retain(|gap| gap.ns > 0);
        let mut merged: Vec<Gap> = Vec::new();
        for gap in gaps {
            match merged.last_mut() {
                Some(last) if (last.stage, &last.name) == (gap.stage, &gap.name) => {
                    last.ns += gap.ns;
                }
                _ => merged.push(gap),
            }
        }
        let mut causes: Vec<Cause> = Vec::new();
        for gap in &merged {
            match causes.iter_mut().find(|cause| cause.name == gap.name) {
                Some(cause) => {
                    cause.ns += gap.ns;
                    cause.gaps += 1;
                }
                None => causes.push(Cause {
                    kind: gap.kind,
                    name: gap.name.clone(),
                    ns: gap.ns,
                    gaps: 1,
                }),
            }
        }
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.ns));
        let sentence = causes.first().map_or_else(String::new, |cause| {
            format!(
                "{} of {}: {}",
                ms(cause.ns),
                ms(request.latency()),
                cause.name
            )
        });
        Story {
            sentence,
            begin_ns: begin,
            latency_ns: request.latency(),
            tid: request.tid,
            thread: self.trace.thread(request.tid),
            socket: request.socket.0,
            from_packet: request.arrival.is_some(),
            received_ns: request.received - begin,
            sent_ns: request.last_send().at.saturating_sub(begin),
            causes,
            classes_loaded: self.tracks.classes(request.tid, begin, request.end()),
            gaps: merged,
            losses: losses(self.trace, begin, request.end()),
        }
    }

    fn gaps(&self, request: &Request) -> Vec<Gap> {
        let begin = request.begin();
        let mut gaps = Vec::new();
        let mut at = begin;
        let mut upto = |gaps: &mut Vec<Gap>, to: u64, stage, kind, name: &str| {
            if to > at {
                gaps.push(Gap {
                    at_ns: at - begin,
                    ns: to - at,
                    stage,
                    kind,
                    name: name.to_owned(),
                    tid: 0,
                });
                at = to;
            }
            at
        };
        if let Some(arrival) = request.arrival {
            let wire = "on the way from the client's device";
            upto(&mut gaps, arrival.packet, Stage::Arrival, Kind::Wire, wire);
        }
        let ready = request
            .arrival
            .map(|arrival| arrival.ready.unwrap_or(arrival.tcp))
            .or(request.ready);
        let softirq = "in the receive softirq";
        let ready = ready.unwrap_or(begin).min(request.received);
        let ready = upto(
            &mut gaps,
            ready,
            Stage::Arrival,
            Kind::ReceiveSoftirq,
            softirq,
        );

        // When the thread is done with it: a packet may leave before the send returns.
        let sent = request.last_send();
        let end = request.end();
        let done = if sent.at < end { sent.at } else { end };
        // What it did for others until here, and for this request from here on.
        let busy = self
            .tracks
            .busy_until(request.tid, request.socket, ready, request.received)
            .unwrap_or(ready);
        for (from, to, other) in [(ready, busy, true), (busy, request.received, false)] {
            for piece in self.tracks.pieces(request.tid, from, to) {
                gaps.push(self.gap(begin, Stage::Pickup, &piece, other));
            }
        }
        for piece in self.way(request, done) {
            for (piece, loading) in self.cut_by_classes(piece) {
                let mut gap = self.gap(begin, Stage::Work, &piece, false);
                if loading {
                    gap.kind = Kind::ClassLoading;
                    gap.name = "loading classes".into();
                }
                gaps.push(gap);
            }
        }
        at = done;
        let mut upto = |gaps: &mut Vec<Gap>, to: u64, kind, name: &str| {
            if to > at {
                gaps.push(Gap {
                    at_ns: at - begin,
                    ns: to - at,
                    stage: Stage::Departure,
                    kind,
                    name: name.to_owned(),
                    tid: 0,
                });
                at = to;
            }
        };
        let held = match sent.held {
            Held::Not => None,
            Held::Nagle => Some("kept back by TCP (Nagle) until the client acknowledged"),
            Held::Cork => Some("kept back by TCP until a piece was full (TCP_CORK)"),
            Held::Window => Some("kept back by TCP: the client's receive window was full"),
            Held::Congestion => Some("kept back by TCP: the congestion window was full"),
            Held::Other => Some("kept back by TCP (pacing or a full device queue)"),
        };
        if let Some(held) = held {
            // Then the acknowledgement came, and what follows is the way out.
            let until = request.acknowledged.filter(|at| (done..=end).contains(at));
            upto(&mut gaps, until.unwrap_or(end), Kind::HeldByTcp, held);
        }
        let out = "through TCP and IP to the device";
        upto(&mut gaps, end, Kind::Transmit, out);
        gaps
    }

    /// What happened between the receive and `done`, on the thread that received; where another
    /// one answered, backwards from the answer, from each wait to the thread that ended it.
    fn way(&self, request: &Request, done: u64) -> Vec<Piece> {
        let received = request.received.min(done);
        if request.last_send().tid == request.tid {
            return self.tracks.pieces(request.tid, received, done);
        }
        let mut way: Vec<Piece> = Vec::new();
        let (mut tid, mut until) = (request.last_send().tid, done);
        for _ in 0..MOST_HOPS {
            let pieces = self.tracks.pieces(tid, received, until);
            let hop = pieces.iter().rposition(|piece| {
                tid != request.tid
                    && matches!(
                        piece.doing,
                        Doing::Blocked { by: Waker::Thread(by), .. }
                            if by != 0 && (by == request.tid || self.tracks.process(by).is_some())
                    )
            });
            let Some(hop) = hop else {
                way.extend(pieces.into_iter().rev());
                until = received;
                break;
            };
            way.extend(pieces[hop + 1..].iter().rev());
            until = pieces[hop].to;
            if let Doing::Blocked {
                by: Waker::Thread(by),
                ..
            } = pieces[hop].doing
            {
                tid = by;
            }
            if until <= received {
                break;
            }
        }
        if until > received {
            way.extend(self.tracks.pieces(tid, received, until).into_iter().rev());
        }
        way.reverse();
        way
    }

    /// A piece on the CPU, cut where its thread began or ended to load classes.
    fn cut_by_classes(&self, piece: Piece) -> Vec<(Piece, bool)> {
        if !matches!(piece.doing, Doing::Running | Doing::Fault) {
            return vec![(piece, false)];
        }
        // A burst may have begun in a piece before, and go on in one behind.
        let (from, to) = (piece.from.saturating_sub(AROUND_NS), piece.to + AROUND_NS);
        let mut cut = Vec::new();
        let mut at = piece.from;
        for (begin, end) in self.tracks.loading(piece.tid, from, to) {
            let (begin, end) = (begin.clamp(at, piece.to), end.clamp(at, piece.to));
            for (from, to, loading) in [(at, begin, false), (begin, end, true)] {
                if to > from {
                    cut.push((Piece { from, to, ..piece }, loading));
                }
            }
            at = end;
        }
        if at < piece.to {
            let from = at;
            cut.push((Piece { from, ..piece }, false));
        }
        cut
    }

    fn gap(&self, begin: u64, stage: Stage, piece: &Piece, other: bool) -> Gap {
        let (kind, name) = self.name(piece, other);
        Gap {
            at_ns: piece.from - begin,
            ns: piece.to - piece.from,
            stage,
            kind,
            name,
            tid: piece.tid,
        }
    }

    fn name(&self, piece: &Piece, other: bool) -> (Kind, String) {
        match piece.doing {
            Doing::Running if other => (Kind::Busy, "busy with other requests".into()),
            Doing::Running => (Kind::Running, "running".into()),
            Doing::Interrupted(on_top) => self.on_top(on_top),
            Doing::Fault => (Kind::PageFault, "page faults".into()),
            Doing::Waiting {
                behind: Some(0), ..
            } => (Kind::WakeUp, "waking up an idle CPU".into()),
            Doing::Waiting {
                cpu,
                behind: Some(behind),
                ..
            } => (
                Kind::WaitingForCpu,
                format!("waiting for CPU {cpu} behind {}", self.trace.thread(behind)),
            ),
            Doing::Waiting { .. } => (Kind::WaitingForCpu, "waiting for a CPU".into()),
            Doing::Blocked { fault: true, .. } => (
                Kind::PageFault,
                "page faults that waited for memory or the disk".into(),
            ),
            Doing::Blocked { by, .. } => {
                if let Some(pause) = self.pause(piece) {
                    return (Kind::JvmPause, pause.name.clone());
                }
                let call = piece.call.map_or_else(|| "the kernel".into(), calls::name);
                let by = match by {
                    Waker::Thread(0) | Waker::Unknown => String::new(),
                    Waker::Thread(tid) => format!(" until {} woke it", self.trace.thread(tid)),
                    Waker::OnTop(on_top) => {
                        format!(" until {} woke it", on_top_name(self.trace, on_top))
                    }
                };
                (Kind::Blocked, format!("blocked in {call}{by}"))
            }
            Doing::Unknown => (
                Kind::Unknown,
                "not seen: the trace does not say what the thread did".into(),
            ),
        }
    }

    /// What the JVM stopped its threads for, while this one waited on a futex, as it then does.
    fn pause(&self, piece: &Piece) -> Option<&Pause> {
        let waits = |call: u16| i64::from(call) == libc::SYS_futex;
        if !piece.call.is_none_or(waits) {
            return None;
        }
        let process = self.tracks.process(piece.tid)?;
        self.tracks.pauses().over(process, piece.from, piece.to)
    }

    fn on_top(&self, on_top: OnTop) -> (Kind, String) {
        let name = on_top_name(self.trace, on_top);
        match on_top {
            OnTop::Softirq(_) => (Kind::Softirq, format!("interrupted by {name}")),
            _ => (Kind::Interrupt, format!("interrupted by {name}")),
        }
    }
}
