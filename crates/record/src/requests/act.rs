//! Receives and sends: which work a thread goes on with.

use tailscope_signals::slice::{Role, Slice};

use super::item::Item;
use super::name::{Protocol, is_handshake, protocol};
use super::thread::Thread;
use super::work::{Request, WorkId};
use super::{Requests, SHOWS_FROM_NS, link};

/// A send may take so long, and the other server may answer meanwhile.
const LONGEST_SEND_NS: u64 = 100_000;

/// A shorter wait for more of an answer is not kept: a long answer has very many.
const LEAST_WAIT_NS: u64 = 20_000;

/// The most works that wait in a socket of a pair, and the most calls on a socket.
pub(super) const MOST_WAITING: usize = 1024;

impl Requests {
    pub(super) fn receive(&mut self, thread: &mut Thread, slice: &Slice, role: Role) {
        let is_request = role == Role::Server && slice.length > 0;
        if !is_request || slice.quic {
            thread.note_receive(None);
        }
        match role {
            Role::Server if slice.quic => self.pass_quic(thread, slice),
            Role::Server if slice.length == 0 && !slice.datagram => {
                let owner = thread.owner;
                thread.timer = None;
                self.deliver(thread, owner, slice.at);
                self.peer_has_sent_all(slice.socket, slice.at);
            }
            Role::Server => self.receive_request(thread, slice),
            Role::Client => self.receive_answer(thread, slice),
            Role::Internal => self.receive_inside(thread, slice),
            Role::Other => {}
        }
    }

    /// The thread goes on with this work, which it has just received. `ready`: since when it could.
    fn turn_to(&mut self, thread: &mut Thread, work: WorkId, ready: u64, at: u64) {
        let had_cpu_from = self.begin_turn(thread, work, ready, at);
        self.queued_behind(thread, work, (ready, at), had_cpu_from);
    }

    /// The same of a request that the thread may have left where it was, although it had nothing to do.
    fn turn_to_left(
        &mut self,
        thread: &mut Thread,
        work: WorkId,
        (ready, answered): (u64, u64),
        at: u64,
    ) {
        let idle = thread.idle_in(ready.max(answered), at);
        let had_cpu_from = self.begin_turn(thread, work, ready, at);
        let mut from = ready;
        for idle in idle {
            self.queued_behind(thread, work, (from, idle.from), had_cpu_from);
            if let Some(of) = self.works.get_mut(work).filter(|_| idle.by_timer) {
                of.add(Item::Timer {
                    from: idle.from,
                    to: idle.to,
                });
            }
            from = idle.to;
        }
        self.queued_behind(thread, work, (from, at), had_cpu_from);
    }

    /// The same of a request that had come before its connection was accepted.
    fn turn_to_unaccepted(&mut self, thread: &mut Thread, work: WorkId, ready: u64, at: u64) {
        self.begin_turn(thread, work, ready, at);
        if let Some(of) = self.works.get_mut(work) {
            of.add(Item::Accept {
                from: ready,
                to: at,
            });
        }
    }

    /// What both have in common. Returns since when of that time the thread had a CPU.
    fn begin_turn(&mut self, thread: &mut Thread, work: WorkId, ready: u64, at: u64) -> u64 {
        let did = thread.take_since_data(ready);
        thread.timer = None;
        match (thread.owner, thread.after) {
            // The thread that woke it released a lock, and handed nothing over.
            (Some(part), _) if !did.is_empty() && thread.unproven => {
                self.goes_on_itself(part);
                self.deliver(thread, Some(work), at);
            }
            (None, None) => self.deliver(thread, Some(work), at), // it came from a wait for this
            (owner, _) => {
                self.learn_when_it_works(thread);
                self.deliver(thread, owner, at);
                self.take_dispatched(thread, work, ready);
                let own = owner.filter(|own| self.works.is_nobodys(*own));
                if let Some(own) = own.and_then(|own| self.works.get_mut(own)) {
                    own.turned_to = Some(work);
                }
            }
        }
        let mut had_cpu_from = ready;
        if let Some(woke) = &thread.woke
            && woke.to > ready
            && let Some(of) = self.works.get_mut(work)
        {
            of.add(Item::Slice(woke.after(ready)));
            had_cpu_from = woke.to.min(at);
        }
        if let Some(first) = did.first() {
            had_cpu_from = first.to.clamp(ready, at);
        }
        if let Some(of) = self.works.get_mut(work) {
            let did = did.iter().filter(|part| part.to > ready);
            did.for_each(|part| of.add(Item::Slice(part.after(ready))));
        }
        thread.owner = Some(work);
        thread.after = None;
        thread.handed = false;
        thread.unproven = false;
        thread.let_go();
        if !thread.pending.iter().any(|(of, _)| *of == work) {
            if thread.pending.len() >= MOST_WAITING {
                thread.pending.pop_front();
            }
            thread.pending.push_back((work, at));
        }
        had_cpu_from
    }

    /// A thread that has received a request, worked for long, and receives again, has worked for the first.
    fn learn_when_it_works(&self, thread: &mut Thread) {
        let owner = thread.owner.and_then(|owner| self.works.root(owner));
        let received = owner.and_then(|owner| self.received_at(thread, owner));
        let began = thread.run.first().map(|first| first.from);
        if received.is_some() && began == received && thread.ran_ns() >= SHOWS_FROM_NS {
            thread.has_worked_at_receive();
        }
    }

    /// The thread was woken by one that waits for data of all connections and serves none itself: what both
    /// have done since this came was for it. A thread of a runtime may do any other work in between.
    fn take_dispatched(&mut self, thread: &Thread, work: WorkId, ready: u64) {
        let woken = thread.owner.filter(|_| thread.unproven);
        let part = woken.and_then(|part| self.works.get(part));
        let Some(part) = part.filter(|part| part.request.is_none() && !part.proven) else {
            return;
        };
        let by = part.hint.and_then(|by| self.works.get(by));
        let waker = part.by.and_then(|by| self.threads.get(&by));
        let only_waits = waker.is_some_and(|waker| waker.serves_nobody());
        let Some(by) = by.filter(|by| only_waits && by.from_sockets && !by.proven) else {
            return;
        };
        let items = by.items.iter().chain(&part.items);
        let did = items.filter_map(|item| match item {
            Item::Slice(of) if of.to > ready => Some(Item::Slice(of.after(ready))),
            _ => None,
        });
        let did: Vec<_> = did.collect();
        if let Some(of) = self.works.get_mut(work) {
            did.into_iter().for_each(|item| of.add(item));
        }
    }

    /// What came in begins no request that can be followed.
    pub(super) fn pass_over(&mut self, thread: &mut Thread, at: u64) {
        let owner = thread.owner.take();
        self.deliver(thread, owner, at);
        thread.after = None;
        thread.timer = None;
    }

    fn receive_request(&mut self, thread: &mut Thread, slice: &Slice) {
        let socket = self.sockets.entry(slice.socket).or_default();
        socket.touched = slice.at;
        socket.asked = true;
        // Only what a connection's request begins with shows its protocol.
        let may_begin = socket.open.is_none() && !slice.datagram;
        if may_begin && protocol(&slice.text) == Protocol::Tls {
            socket.encrypted = true;
            self.tls.enter(slice.pid);
        }
        if socket.encrypted && socket.ready == 0 {
            socket.ready = slice.since;
        }
        if socket.frames.is_some() {
            return; // what is decrypted of it says more
        }
        if std::mem::take(&mut socket.answered) {
            socket.lost = false;
        }
        if socket.lost && !slice.datagram {
            self.pass_over(thread, slice.at);
            return;
        }
        let (encrypted, peer, open) = (socket.encrypted, socket.peer, socket.open);
        let same_thread = std::mem::replace(&mut socket.received_by, slice.tid) == slice.tid;
        let is_stream = socket.stream != 0;
        let connection = link::connection(&peer, socket.stream);
        let ready = match slice.since {
            0 => slice.at,
            since => since.min(slice.at),
        };
        let open = open.and_then(|work| self.works.root(work));
        let mut answered = if same_thread { 0 } else { u64::MAX };
        // What follows an answer is the next request; but a stream has one, and says when it ends.
        let goes_on =
            |work: &WorkId| is_stream || (self.works.is_live(*work) && !self.was_message(*work));
        let work = match open.filter(goes_on) {
            Some(work) => {
                self.name_by_rest(slice, work);
                if slice.since != 0
                    && let Some(of) = self.works.get_mut(work)
                    && let Some(request) = of.request.as_mut()
                {
                    request.latest = ready;
                }
                work
            }
            None => {
                let before = open.and_then(|work| self.works.get(work)?.request.as_ref());
                answered = answered.max(before.map_or(0, |before| before.ended));
                if !slice.datagram {
                    self.end_of(slice.socket, slice.at);
                }
                let naming = self.naming;
                let socket = self.sockets.entry(slice.socket).or_default();
                let name = naming.name(&slice.text, &mut socket.statements);
                let request = Request {
                    socket: slice.socket,
                    peer: peer.address,
                    connection,
                    pid: slice.pid,
                    received_by: slice.tid,
                    ready,
                    name,
                    encrypted,
                    handshake: encrypted && is_handshake(&slice.text),
                    ..Request::default()
                };
                let work = self.works.begin(Some(request), slice.at);
                if slice.datagram {
                    // Of many nobody expects an answer: they say nothing of the thread.
                    self.open_datagram(slice.socket, work);
                    return self.turn_to_request(thread, slice, work, (ready, answered));
                }
                thread.count_received();
                let before = thread.received_last.replace(work);
                thread.serves_several |= before.is_some_and(|of| self.works.is_live(of));
                if let Some(socket) = self.sockets.get_mut(&slice.socket) {
                    socket.open = Some(work);
                }
                work
            }
        };
        self.turn_to_request(thread, slice, work, (ready, answered));
    }

    /// The thread has received this request, or more of it. `answered`: since when it could have; before, it
    /// was up to another thread, or the one before on its connection had no answer.
    fn turn_to_request(
        &mut self,
        thread: &mut Thread,
        slice: &Slice,
        work: WorkId,
        (ready, answered): (u64, u64),
    ) {
        self.keep_held(thread, work, None); // it waited for the rest of the request
        match slice.unaccepted {
            true => self.turn_to_unaccepted(thread, work, ready, slice.at),
            false => self.turn_to_left(thread, work, (ready, answered), slice.at),
        }
        thread.note_receive(Some(work));
    }

    /// More of a request came in, and its first bytes may not have had its name.
    fn name_by_rest(&mut self, slice: &Slice, work: WorkId) {
        if slice.text.is_empty() {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(&slice.socket)
            && let Some(of) = self.works.get_mut(work)
            && let Some(request) = of.request.as_mut().filter(|r| r.name.is_none())
        {
            request.name = self
                .naming
                .name_of_rest(&slice.text, &mut socket.statements);
        }
    }

    /// What was received is decrypted now: it has the name.
    pub(super) fn name_by_plain(&mut self, slice: &Slice) {
        let open = self.sockets.get(&slice.socket).and_then(|s| s.open);
        let open = open.and_then(|work| self.works.root(work));
        if let Some(work) = open
            && let Some(socket) = self.sockets.get_mut(&slice.socket)
            && let Some(of) = self.works.get_mut(work)
            && let Some(request) = of.request.as_mut().filter(|r| r.encrypted && !r.decrypted)
        {
            socket.http2 |= protocol(&slice.text) == Protocol::Http2;
            if request.handshake && request.ended == 0 {
                // The client's last word of a handshake has no answer of its own.
                request.ready = request.ready.max(request.latest);
            }
            request.decrypted = true;
            request.overlaps = socket.http2;
            request.name = self.naming.name(&slice.text, &mut socket.statements);
            self.tls.decrypts(slice.pid);
        }
    }

    fn receive_answer(&mut self, thread: &mut Thread, slice: &Slice) {
        let socket = self.sockets.entry(slice.socket).or_default();
        socket.touched = slice.at;
        let peer = socket.whom();
        let connection = link::connection(&socket.peer, socket.stream);
        let first = if slice.length > 0 {
            socket.calls.pop_front()
        } else {
            None
        };
        let first = first.map(|call| call.after_all(&self.works));
        if let Some(call) = first {
            socket.answers = Some(call);
        }
        let shared = first.is_some_and(|call| socket.calls.iter().any(|c| c.work != call.work));
        let answers = socket.answers;
        let heard = std::mem::replace(&mut socket.heard, slice.at);
        // Data of an earlier answer says nothing of this one.
        let sent = first.map_or(0, |call| call.sent.min(slice.at));
        let ready = match slice.since {
            0 => slice.at,
            since if since + LONGEST_SEND_NS < sent => slice.at,
            since => since.clamp(sent, slice.at),
        };
        if let Some(call) = first
            && let Some(work) = self.works.get_mut(call.work)
        {
            work.ambiguous |= shared;
            work.asks.retain(|(socket, _)| *socket != slice.socket);
            work.add(Item::Downstream {
                sent,
                ready,
                received: slice.at,
                peer,
                connection,
                guess: call.guess,
                again: false,
            });
        } else if let Some(call) = answers
            && slice.since != 0 // else it was there already
            && slice.length > 0
            && ready >= heard + LEAST_WAIT_NS
            && let Some(work) = self.works.get_mut(call.work)
        {
            work.add(Item::Downstream {
                sent: heard,
                ready,
                received: slice.at,
                peer,
                connection,
                guess: false,
                again: true,
            });
        }
        match answers.and_then(|call| self.works.root(call.work)) {
            Some(work) => {
                self.turn_to(thread, work, ready, slice.at);
                thread.result = Some(work);
            }
            None => self.pass_over(thread, slice.at),
        }
    }

    fn receive_inside(&mut self, thread: &mut Thread, slice: &Slice) {
        let own = self
            .sockets
            .get(&slice.socket)
            .and_then(|socket| socket.peer.unix);
        let inbox = own
            .and_then(|(own, _)| self.inboxes.get_mut(&own))
            .map(std::mem::take);
        let mut first = None;
        for (work, sent) in inbox.into_iter().flatten() {
            if let Some(work) = self.works.root(work) {
                if let Some(request) = self.answered_before(work) {
                    self.works.merge(work, request);
                    continue;
                }
                self.turn_to(thread, work, sent, slice.at);
                first = first.or(Some(work));
            }
        }
        if first.is_some() {
            thread.owner = first;
        }
    }

    /// The request for which a part was made, if its answer is out already: a thread may put its result
    /// where others see it before it tells them.
    pub(super) fn answered_before(&self, part: WorkId) -> Option<WorkId> {
        let request = self.works.woken_for(part).filter(|of| *of != part)?;
        let of = self.works.get(request)?;
        let is_over = of
            .request
            .as_ref()
            .is_some_and(|request| request.ended != 0);
        (is_over && !of.taken && self.works.is_nobodys(part)).then_some(request)
    }

    pub(super) fn send(&mut self, thread: &mut Thread, slice: &Slice, role: Role) {
        thread.unproven = false;
        match role {
            Role::Server => self.answer(thread, slice),
            Role::Client => self.ask(thread, slice),
            Role::Internal => {
                let inbox = self
                    .sockets
                    .get(&slice.socket)
                    .and_then(|socket| socket.peer.unix);
                let work = self.choose(thread, slice.at);
                self.deliver(thread, work.map(|(work, _)| work), slice.at);
                let Some(((work, _), (_, inbox))) = work.zip(inbox) else {
                    return;
                };
                self.settle_pending(thread, work, slice.at);
                thread.hand_over(false);
                thread.passed_on = true;
                thread.owner = Some(work);
                let inbox = self.inboxes.entry(inbox).or_default();
                if inbox.len() < MOST_WAITING {
                    inbox.push_back((work, slice.at));
                } else {
                    self.missed.forgotten += 1;
                }
            }
            Role::Other => {}
        }
    }

    /// The thread goes on with this work: until now it queued. False if it did not.
    pub(super) fn settle_pending(&mut self, thread: &mut Thread, work: WorkId, at: u64) -> bool {
        let is = |of: WorkId| self.works.root(of) == Some(work);
        let place = thread.pending.iter().position(|(of, _)| is(*of));
        let settled = place.and_then(|place| thread.pending.remove(place));
        if let Some((_, since)) = settled {
            self.queued(thread, work, since, at);
        }
        settled.is_some()
    }
}
