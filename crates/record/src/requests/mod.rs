//! Requests put together from slices: what each thread did between its receives, sends and waits.
//!
//! The kernel's programs say what happened, and this module infers for whom. A receive as a server
//! opens a request, and the thread's slice is for it. A send to another server belongs to the request
//! of its slice, and so does the slice of the thread that receives the answer. A thread that wakes
//! an idle thread hands its request on. The request ends with the latest send on its own socket.
//!
//! An event loop may receive several requests before it goes on with the first. What it has not gone
//! on with waits in the thread's list, and the next send to another server is the oldest one's. A send
//! on a request's own socket is certain. Where it shows that a guess was wrong, the answer of the other
//! server goes to the request that it was for. What stays doubtful is counted as ambiguous.
//!
//! On a connection of HTTP/2 requests overlap: each of its streams counts as a socket here.

mod account;
mod act;
mod answer;
mod ask;
mod bounds;
mod datagrams;
mod gaps;
mod hpack;
mod http2;
mod item;
mod link;
mod losses;
mod name;
mod newest;
mod push;
mod queue;
mod request;
mod socket;
mod sql;
mod statements;
mod thread;
mod tls;
mod turn;
mod wait;
mod work;
mod works;

use std::collections::{HashSet, VecDeque};

use rustc_hash::FxHashMap;
use tailscope_signals::slice::{Act, Role, Slice};

pub(crate) use account::Finished;
use account::account;
pub(crate) use item::Behind;
use item::Item;
#[cfg(test)]
pub(crate) use link::Asked;
pub(crate) use link::{Links, Trace};
pub use name::{Naming, UnknownNaming};
use push::Pushers;
use request::Held;
use socket::Socket;
use thread::Thread;
use tls::TlsProcesses;
use work::WorkId;
use works::Works;

/// Entries of CPUs are read one CPU after the other, so that those of the latest moments may still
/// lack what came before them.
const SETTLES_AFTER_NS: u64 = 2_000_000;
/// A thread keeps room for at most this number of parts of a slice.
const KEPT_ROOM: usize = 64;
/// A doubtful slice shorter than this is not counted as ambiguous.
const DOUBTFUL_FROM_NS: u64 = 50_000;
/// Work of this length shows for which request a thread works: reading and sending take less.
const SHOWS_FROM_NS: u64 = 200_000;

/// Requests that are no rows, or whose rows say too little.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    /// Rows in which some time may be another request's.
    pub(crate) ambiguous: u64,
    /// They were open on a connection of HTTP/2 when it could no longer be followed.
    pub(crate) multiplexed: u64,
    /// The connection ended before an answer, or they were messages to which nobody answers.
    pub(crate) unanswered: u64,
    /// Answers that went on after their rows' ends: with a send, or where TCP kept back their ends.
    pub(crate) continued: u64,
    /// Rows of connections with TLS of which nothing more is known, or that may overlap.
    pub(crate) encrypted: u64,
    /// Handshakes and other messages of TLS that are no requests, as far as that is known.
    pub(crate) handshakes: u64,
    /// Sockets, threads or work that found no room, and for which something was under way.
    pub(crate) forgotten: u64,
    /// What showed when they began or ended was lost.
    pub(crate) incomplete: u64,
}

/// Puts requests together.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// By which protocol they are named.
    naming: Naming,
    /// Whether their traces are asked for.
    traces: bool,
    waiting: Vec<Slice>,
    threads: FxHashMap<u32, Box<Thread>>,
    sockets: FxHashMap<u64, Socket>,
    works: Works,
    /// What was sent to a socket of a pair and not yet received, by its number in the kernel.
    inboxes: FxHashMap<u64, VecDeque<(WorkId, u64)>>,
    finished: Vec<Finished>,
    tls: TlsProcesses,
    pushers: Pushers,
    /// Whether requests came in over HTTP/2 inside of TLS.
    http2_over_tls: bool,
    /// Since when what is sent on such connections is seen; `None`: it is not.
    writes_seen_from: Option<u64>,
    /// The number that was given to a stream last: from the highest down, where no socket's is.
    latest_stream: u64,
    pub(crate) missed: Missed,
    expired: u64,
    /// Processes that have ended since then, and before.
    ended: [HashSet<u32>; 2],
}

impl Requests {
    /// Requests that are named by this protocol, with their traces if those are asked for.
    pub(crate) fn named_by(naming: Naming, traces: bool) -> Self {
        Self {
            naming,
            traces,
            ..Self::default()
        }
    }

    /// Takes an entry; in the order of its CPU.
    pub(crate) fn take(&mut self, slice: &Slice) {
        self.waiting.push(slice.clone());
    }

    /// Goes through what happened until shortly before `now` (`CLOCK_MONOTONIC`, ns), in its order.
    /// Returns the requests that have ended.
    pub(crate) fn advance(&mut self, now: u64) -> Vec<Finished> {
        let until = now.saturating_sub(SETTLES_AFTER_NS);
        self.go_through(until);
        self.bound(until);
        std::mem::take(&mut self.finished)
    }

    /// Processes in which connections with TLS came up since the last call.
    pub(crate) fn take_encrypted(&mut self) -> Vec<u32> {
        self.tls.take_new()
    }

    /// Whether requests came in over HTTP/2 inside of TLS.
    pub(crate) fn has_http2_over_tls(&self) -> bool {
        self.http2_over_tls
    }

    /// What is sent inside of TLS is seen from this moment on (`CLOCK_MONOTONIC`, ns).
    pub(crate) fn sees_writes_from(&mut self, at: u64) {
        self.writes_seen_from = Some(at);
    }

    /// This process has ended, or runs another program: its number may be another's.
    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.tls.forget(pid);
        self.pushers.forget(pid);
    }

    /// This process has ended: what it has not answered by now has no answer.
    pub(crate) fn end_process(&mut self, pid: u32) {
        self.forget_process(pid);
        self.ended[0].insert(pid);
    }

    /// The same to the end: every answer is complete.
    pub(crate) fn finish(&mut self) -> Vec<Finished> {
        self.go_through(u64::MAX);
        let open: Vec<_> = self
            .sockets
            .values_mut()
            .flat_map(Socket::take_open)
            .collect();
        for work in open {
            self.complete(work, true);
        }
        std::mem::take(&mut self.finished)
    }

    fn go_through(&mut self, until: u64) {
        let slices = std::mem::take(&mut self.waiting);
        let ready = slices
            .iter()
            .enumerate()
            .filter(|(_, slice)| slice.at <= until);
        let place = |(i, slice): (usize, &Slice)| (slice.at, slice.tid, slice.number, i);
        let mut order: Vec<_> = ready.map(place).collect();
        order.sort(); // each CPU's are in order, which this makes use of
        for (.., i) in order {
            self.enter(&slices[i]);
        }
        self.waiting = slices;
        self.waiting.retain(|slice| slice.at > until);
    }

    fn enter(&mut self, slice: &Slice) {
        let mut thread = self.threads.remove(&slice.tid).unwrap_or_default();
        if !thread.follows(slice) {
            self.lose_thread(&mut thread);
        }
        if slice.after_loss {
            self.lose_open(slice);
        }
        match thread.blocked {
            Some(wait) if !matches!(slice.act, Act::Run(_)) => {
                let (run, rest) = wait.unseen_end(slice);
                self.go_on(&mut thread, &run);
                self.go_on(&mut thread, &rest);
            }
            _ => self.go_on(&mut thread, slice),
        }
        self.threads.insert(slice.tid, thread);
    }

    /// What the thread does next: for whom, and what that says of the work so far.
    fn go_on(&mut self, thread: &mut Thread, slice: &Slice) {
        let adds_itself = matches!(slice.act, Act::Block(_) | Act::Run(_));
        if !adds_itself {
            thread.add(thread.segment(slice));
        }
        match slice.act {
            Act::Socket(_) => self.introduce(slice),
            Act::Receive(role) => self.receive(thread, slice, role),
            Act::Send(role) => self.send(thread, slice, role),
            Act::StreamReceive(role, frame) => {
                self.receive_stream(thread, slice, role, frame);
            }
            Act::StreamSend(role, frame) => self.send_stream(thread, slice, role, frame),
            Act::Headers(frame) => self.take_headers(slice, frame),
            Act::Framed => self.begin_frames_in_tls(slice),
            Act::Unframed { received } => self.lose_streams(slice.socket, received),
            Act::Close(role) => self.close(slice, role),
            Act::Block(cause) => self.block(thread, slice, cause),
            Act::Run(cause) => self.run(thread, slice, cause),
            Act::Wake(cause) => self.wake(thread, slice, cause),
            Act::Spawn => self.spawn(thread, slice),
            Act::Trace => self.join_trace(slice),
            Act::Plain => self.name_by_plain(slice),
            Act::PassedOn => {
                self.pass_on(slice);
                self.pass_on_streams(slice);
            }
            Act::Other => {}
        }
        thread.last = slice.at;
        thread.number = slice.number;
    }

    fn introduce(&mut self, slice: &Slice) {
        let socket = Socket {
            peer: slice.peer.as_deref().copied().unwrap_or_default(),
            touched: slice.at,
            lost: slice.after_loss,
            ..Socket::default()
        };
        self.sockets.insert(slice.socket, socket);
    }

    fn close(&mut self, slice: &Slice, role: Role) {
        self.close_streams(slice.socket, slice.at);
        if role == Role::Server {
            self.end_of(slice.socket, slice.at);
            self.sockets.remove(&slice.socket);
        } else if let Some(socket) = self.sockets.get_mut(&slice.socket) {
            socket.closed = true; // the last answer may still come in
        }
    }

    /// The request that is open on the socket says to which trace it belongs.
    fn join_trace(&mut self, slice: &Slice) {
        let open = self.sockets.get(&slice.socket).and_then(|s| s.open);
        let work = open.and_then(|work| self.works.get_mut(work));
        if let Some(request) = work.and_then(|work| work.request.as_mut()) {
            request.trace = request.trace.or_else(|| Trace::parse(&slice.text));
        }
    }

    /// The thread's slice so far was for this work; `None`: for nobody who asks.
    fn deliver(&mut self, thread: &mut Thread, work: Option<WorkId>, at: u64) {
        let from = thread.run_from;
        let mut run = thread.take_run(at);
        let Some(work) = work.and_then(|work| self.works.root(work)) else {
            return;
        };
        let from = run.first().map_or(from, |first| first.from);
        thread.remember(work, from, at);
        let Some(of) = self.works.get_mut(work) else {
            return;
        };
        of.touched = at;
        for segment in run.drain(..).filter(|s| s.from < s.to) {
            of.add(match thread.handed {
                true => Item::Tail(segment),
                false => Item::Slice(segment),
            });
        }
        if run.capacity() <= KEPT_ROOM {
            thread.run = run;
        }
    }

    /// What is open on a socket on which nothing more comes in has ended.
    fn end_of(&mut self, socket: u64, at: u64) {
        let Some(socket) = self.sockets.get_mut(&socket) else {
            return;
        };
        socket.touched = at;
        for work in socket.take_open() {
            self.complete(work, false);
        }
    }

    /// The other side sends no more on this socket. It may still wait for an answer.
    fn peer_has_sent_all(&mut self, socket: u64, at: u64) {
        let open = self.sockets.get(&socket).and_then(|s| s.open);
        let work = open.and_then(|work| self.works.get(work));
        let request = work.and_then(|work| work.request.as_ref());
        if request.is_none_or(|request| request.ended != 0) {
            self.end_of(socket, at);
        }
    }

    /// The request of this work has ended, with or without an answer. `quietly`: it may just not have
    /// been given yet.
    fn complete(&mut self, work: WorkId, quietly: bool) {
        self.works.settle_queues(work);
        self.works.take_back(work);
        let Some(mut work) = self.works.end(work) else {
            return;
        };
        if let Some(request) = &mut work.request {
            self.leave_out_pushes(request);
        }
        let Some(request) = &work.request else { return };
        if request.has_no_data() && self.tls.shows_plain(request.pid) {
            self.missed.handshakes += 1;
            return;
        }
        if request.ended == 0 {
            self.missed.unanswered += u64::from(!quietly);
            return;
        }
        self.missed.encrypted += u64::from(request.is_doubtful());
        // Its answer went on for longer than its row says.
        let is_unseen = matches!(request.held, Some(Held::Still { .. } | Held::Unseen { .. }));
        self.missed.continued += u64::from(is_unseen);
        let finished = account(request, &work);
        self.missed.ambiguous += u64::from(finished.ambiguous);
        self.finished.push(finished);
    }
}

/// Headers of requests over HTTP/2, as clients send them.
#[cfg(fuzzing)]
pub fn fuzz_headers(bytes: &[u8]) {
    hpack::fuzz(bytes);
}

#[cfg(test)]
mod tests;
