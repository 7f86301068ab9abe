//! One socket's requests: which is open, which wait for TCP or for their client, and which end.

use std::collections::VecDeque;

use tailscope_signals::event::{Event, Sequence, Socket};

use super::{
    Arrival, CONTINUED_NS, Delivery, MOST_ARRIVALS, MOST_SENDS, Request, SETTLED_NS, Sent,
    UNTAKEN_NS,
};

/// A request that has not ended, or after which nothing else came yet.
#[derive(Debug, Clone)]
pub(super) struct Open {
    tid: u32,
    arrival: Option<Arrival>,
    ready: Option<u64>,
    received: u64,
    bytes: u64,
    sends: VecDeque<Sent>,
    pub(super) acknowledged: Option<u64>,
    /// When the last byte of the last send left, once it has.
    left: Option<u64>,
    /// The client took it, if the client is on this machine.
    delivery: Option<Delivery>,
    /// It has been handed on as it is.
    told: bool,
    /// It had been handed on as whole, and so long, in ns.
    amends: Option<u64>,
    sent_again: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) arrivals: VecDeque<Arrival>,
    pub(super) ready: Option<u64>,
    /// The latest place in what came in.
    came: Option<Sequence>,
    /// The latest place up to which its reader took what came in.
    pub(super) taken: Option<Sequence>,
    /// The other end of the connection, where that is on this machine.
    pub(super) peer: Option<Socket>,
    open: Option<Open>,
    /// Answered, and a next request has come before the last byte had left and was taken.
    leaving: VecDeque<Open>,
    /// The latest byte that left, and when.
    pub(super) transmitted: Option<(Sequence, u64)>,
    /// What its client on this machine took, the latest last.
    deliveries: VecDeque<Delivery>,
    /// It has a client on this machine of whose receives nothing is told.
    untold: bool,
    /// Requests were received on it.
    pub(super) serves: bool,
    pub(super) touched: u64,
}

/// Which bytes of a connection its reader took at once, and the packets that brought them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    from: Sequence,
    end: Sequence,
    first: Option<Arrival>,
    /// One that ends where these bytes begin.
    before: Option<Arrival>,
}

impl Taken {
    pub(super) fn of(bytes: u32, end: Sequence) -> Self {
        Self {
            from: Sequence(end.0.wrapping_sub(bytes)),
            end,
            first: None,
            before: None,
        }
    }

    /// Packets from before are passed over: nobody was seen to take them. They can be of another
    /// connection, which had the place of this one in the kernel's memory, and numbers that are near by
    /// chance.
    fn meet(&mut self, arrival: Arrival) {
        if arrival.end == self.from {
            self.before.get_or_insert(arrival);
        } else if !self.from.reaches(arrival.end) {
            self.first.get_or_insert(arrival);
        }
    }

    /// The first packet. The end of the stream counts as a byte, so the last one can seem to lie before.
    pub(super) fn first(self) -> Option<Arrival> {
        self.first.or(self.before)
    }
}

impl Open {
    /// The request, if it was answered and has not been handed on.
    pub(super) fn done(self, socket: Socket) -> Option<Request> {
        let transmitted = self.left.filter(|_| !self.told)?;
        Some(Request {
            span: None,
            socket,
            tid: self.tid,
            arrival: self.arrival,
            ready: self.ready,
            received: self.received,
            bytes: self.bytes,
            acknowledged: self.acknowledged,
            transmitted: transmitted.max(self.received),
            delivery: self.delivery,
            sends: self.sends.into(),
            amends: self.amends,
            sent_again: self.sent_again,
        })
    }

    /// Hands it on as it is, and keeps it: more may come of it.
    fn request(&mut self, socket: Socket) -> Option<Request> {
        let request = self.clone().done(socket)?;
        self.told = true;
        self.amends = Some(request.latency());
        Some(request)
    }

    /// Everything up to its last send has left, and was taken where that can be seen.
    fn ended(&self, untold: bool) -> bool {
        let here = self.arrival.is_some_and(|arrival| arrival.from.is_some());
        self.left.is_some() && (self.delivery.is_some() || !here || untold)
    }
}

/// Takes the oldest out, if it is so.
fn pop_if(queue: &mut VecDeque<Open>, is: impl FnOnce(&Open) -> bool) -> Option<Open> {
    queue
        .front()
        .is_some_and(is)
        .then(|| queue.pop_front())
        .flatten()
}

impl Flow {
    /// Takes what came in up to here. True: it is of another connection, which has the place of this
    /// one in the kernel's memory, so that nothing that is known here is of use.
    pub(super) fn is_anew(&mut self, comes: Option<Sequence>, leaves: Option<Sequence>) -> bool {
        let far = |known: Option<Sequence>, now: Option<Sequence>| {
            known
                .zip(now)
                .is_some_and(|(known, now)| now.is_far_from(known))
        };
        let anew = far(self.came, comes) || far(self.transmitted.map(|(end, _)| end), leaves);
        self.came = comes.or(self.came);
        anew
    }

    /// What was received and not answered yet is of the connection that begins to send: the numbers of
    /// what comes in may be near those of the connection before by chance.
    pub(super) fn take_over(&mut self, old: &mut Self) {
        self.open = old.open.take_if(|open| open.sends.is_empty());
        if self.open.is_some() {
            self.arrivals = std::mem::take(&mut old.arrivals);
            self.came = old.came;
            self.taken = old.taken;
            self.peer = old.peer;
            self.serves = true;
            self.touched = old.touched;
        }
    }

    /// The requests of which the last byte has not left.
    pub(super) fn unsent(&mut self) -> impl Iterator<Item = &mut Open> {
        let all = self.open.iter_mut().chain(&mut self.leaving);
        all.filter(|open| open.left.is_none() && !open.sends.is_empty())
    }

    /// All that have not been handed on, oldest first.
    pub(super) fn into_open(self) -> impl Iterator<Item = Open> {
        self.leaving.into_iter().chain(self.open)
    }

    /// The next packet that lies before the end of what was taken as a whole. Notes in `taken` the first
    /// that has bytes of it.
    pub(super) fn next_of(&mut self, taken: &mut Taken) -> Option<Arrival> {
        let arrival = *self.arrivals.front()?;
        taken.meet(arrival);
        if !taken.end.reaches(arrival.end) {
            return None; // the rest of this packet is still to be received
        }
        self.arrivals.pop_front()
    }

    /// Its client took what it sent.
    pub(super) fn deliver(&mut self, delivery: Delivery) {
        if self.open.is_none() {
            return; // it is no server's socket
        }
        self.untold = false;
        if self.deliveries.len() == MOST_ARRIVALS {
            self.deliveries.pop_front();
        }
        self.deliveries.push_back(delivery);
    }

    /// Its client has everything up to `end`, so that has left. The kernel's programs may not have seen
    /// the packet: a kernel was found that runs none in the context of its process 1.
    pub(super) fn deliver_unseen(&mut self, by: &Event, end: Sequence, from: Socket) {
        let left = self.transmitted.map(|(left, _)| left);
        let came = self.deliveries.back().map(|latest| latest.arrival.end);
        if left.is_some_and(|left| left.is_far_from(end))
            || came.is_some_and(|came| came.reaches(end))
        {
            return;
        }
        if !left.is_some_and(|left| left.reaches(end)) {
            self.transmitted = Some((end, by.at));
        }
        let arrival = Arrival {
            asked: None,
            left: None,
            packet: by.at,
            tcp: by.at,
            ready: None,
            from: Some(from),
            end,
        };
        self.deliver(Delivery {
            arrival,
            taken: by.at,
            tid: by.tid,
        });
    }

    /// Bytes were sent. Gives back the request of which that says more, if it was handed on.
    pub(super) fn send(&mut self, sent: Sent, socket: Socket) -> Option<Request> {
        let open = self.open.as_mut()?;
        let silence = open
            .sends
            .back()
            .map_or(0, |last| sent.at.saturating_sub(last.at));
        if silence > CONTINUED_NS {
            if open.sent_again.is_none() {
                open.sent_again = Some(silence);
                if std::mem::take(&mut open.told) {
                    return open.request(socket);
                }
            }
            return None;
        }
        open.told = false;
        if open.sends.len() == MOST_SENDS {
            open.sends.pop_front();
        }
        open.sends.push_back(sent);
        // Where there are no packets it has left with the send.
        open.left = sent.end.is_none().then_some(sent.at);
        open.delivery = None;
        self.mark();
        None
    }

    /// Marks what has left and what was taken by now.
    fn mark(&mut self) {
        for open in self.leaving.iter_mut().chain(&mut self.open) {
            let Some(end) = open.sends.back().and_then(|sent| sent.end) else {
                continue;
            };
            if open.left.is_none() {
                open.left = self
                    .transmitted
                    .filter(|(up_to, _)| up_to.reaches(end))
                    .map(|(_, at)| at);
            }
            if open.left.is_some() && open.delivery.is_none() {
                // The first that reaches so far; it is among the latest, and all are of this connection.
                let of = |delivery: &&Delivery| delivery.arrival.end.reaches(end);
                open.delivery = self.deliveries.iter().rev().take_while(of).last().copied();
            }
        }
    }

    /// Bytes were received, `first` being the first packet of them. Gives back the request that
    /// ends thereby, if its end is known.
    pub(super) fn receive(
        &mut self,
        event: &Event,
        first: Option<Arrival>,
        tcp: bool,
        bytes: u32,
    ) -> Option<Open> {
        let ready = first
            .and_then(|arrival| arrival.ready)
            .or(self.ready.take().filter(|_| !tcp));
        self.ready = None;
        self.serves = true;
        let mut ended = None;
        if let Some(open) = self.open.take() {
            if open.sends.is_empty() {
                // The rest of a request that came in pieces.
                self.open = Some(Open {
                    bytes: open.bytes + u64::from(bytes),
                    ..open
                });
                return None;
            }
            if open.told || open.ended(self.untold) {
                ended = Some(open);
            } else {
                if self.leaving.len() == MOST_SENDS {
                    ended = self.leaving.pop_front();
                }
                self.leaving.push_back(open);
            }
        }
        self.open = Some(Open {
            tid: event.tid,
            arrival: first,
            ready,
            received: event.at,
            bytes: bytes.into(),
            sends: VecDeque::new(),
            acknowledged: None,
            left: None,
            delivery: None,
            told: false,
            amends: None,
            sent_again: None,
        });
        ended
    }

    /// Bytes left, or were taken. Gives back the requests that end thereby and have been followed
    /// by another.
    pub(super) fn settle(&mut self, socket: Socket) -> Vec<Request> {
        self.mark();
        let mut ended = Vec::new();
        while let Some(open) = pop_if(&mut self.leaving, |open| open.ended(self.untold)) {
            ended.extend(open.done(socket));
        }
        ended
    }

    /// Gives back what has been whole for a while. What was received last stays: more may be sent.
    pub(super) fn sweep(&mut self, now: u64, socket: Socket) -> Vec<Request> {
        let before = |ago: u64, at: u64| at < now.saturating_sub(ago);
        let mut whole = Vec::new();
        let in_vain = |open: &Open| open.left.is_some_and(|at| before(UNTAKEN_NS, at));
        while let Some(open) = pop_if(&mut self.leaving, in_vain) {
            self.untold |= open.delivery.is_none();
            whole.extend(open.done(socket));
        }
        let untold = self.untold;
        let rests = |open: &&mut Open| {
            let sent = open.sends.back().map_or(u64::MAX, |sent| sent.at);
            (open.ended(untold) && before(SETTLED_NS, sent))
                || (open.left.is_some() && before(UNTAKEN_NS, sent))
        };
        let rests = self.open.as_mut().filter(rests);
        whole.extend(rests.and_then(|open| open.request(socket)));
        whole
    }
}
