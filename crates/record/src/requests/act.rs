//! Receives and sends: which work a thread goes on with.

use tailscope_signals::slice::{Role, Slice};

use super::item::Item;
use super::name::{Protocol, is_confirmation, is_handshake, protocol};
use super::request::Request;
use super::thread::Thread;
use super::work::WorkId;
use super::{Requests, link};

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
        let open = socket.open;
        let same_thread = std::mem::replace(&mut socket.received_by, slice.tid) == slice.tid;
        let is_stream = socket.stream != 0;
        let ready = match slice.since {
            0 => slice.at,
            since => since.min(slice.at),
        };
        let open = open.and_then(|work| self.works.root(work));
        let mut answered = if same_thread { 0 } else { u64::MAX };
        // What follows an answer is the next request; but a stream has one, and says when it ends.
        let goes_on = |work: &WorkId| {
            is_stream || (self.works.is_live(*work) && !self.was_message(*work, ready))
        };
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
                let work = self.begin_request(slice, ready);
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

    /// What was received is the next request of its socket.
    fn begin_request(&mut self, slice: &Slice, ready: u64) -> WorkId {
        if !slice.datagram {
            self.end_of(slice.socket, slice.at);
        }
        let naming = self.naming;
        let socket = self.sockets.entry(slice.socket).or_default();
        socket.is_listener |= !slice.datagram && is_confirmation(&slice.text);
        let request = Request {
            socket: slice.socket,
            peer: socket.peer.address,
            connection: link::connection(&socket.peer, socket.stream),
            pid: slice.pid,
            received_by: slice.tid,
            ready,
            name: naming.name(&slice.text, &mut socket.statements),
            encrypted: socket.encrypted,
            handshake: socket.encrypted && is_handshake(&slice.text),
            ..Request::default()
        };
        self.works.begin(Some(request), slice.at)
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
