//! What is new in the rings, and in the memory of programs with the SDK: the requests that ended.
//!
//! Each look takes the events that are older than the look before: by then they have been written
//! on all CPUs, so they can be sorted by time. It parses only the kinds that make requests
//! (`MATTERS`).

use tailscope_signals::event::{Event, abi, at_of, kind_of};

use super::{Flight, requests_of};
use crate::probed::Probed;
use crate::request::Request;

/// So many events of a CPU are looked at in one turn: bounds the memory where we were held up.
const MOST_EVENTS: u64 = 1 << 19;

impl Flight {
    /// Spans of the SDK that ended since.
    pub(super) fn follow_sdk(&mut self) {
        let Some(sdk) = &mut self.sdk else { return };
        let probed = &mut self.probed;
        let mut ended = Vec::new();
        sdk.take(|event| probed.take(event, |span| ended.push(span)));
        self.judge(ended);
    }

    /// Which of the requests are slow.
    pub(super) fn judge(&mut self, ended: Vec<Request>) {
        for request in ended {
            self.figures.requests += u64::from(request.amends.is_none());
            let exceeded = self.judge.take(request.end(), request.latency());
            let Some(slow_ns) = exceeded else { continue };
            // It may have been slow before more came of it.
            if request.amends.is_none_or(|before| before < slow_ns) {
                self.figures.slow += 1;
                self.cooldown.add(request, slow_ns);
            }
        }
    }

    /// Requests that end with the events of the rings that are older than `until`, in ns.
    pub(super) fn follow(&mut self, until: u64) {
        let mut fresh: Vec<(u32, Event)> = Vec::new();
        // Up to when events are missing that made requests, in ns; 0: never.
        let mut blind = 0;
        for cpu in 0..self.rings.cpus() {
            let mut next = None;
            let head = self.rings.head(cpu);
            let from = self.seen[cpu].max(head.saturating_sub(MOST_EVENTS));
            self.figures.unseen += from - self.seen[cpu];
            let mut expected = self.seen[cpu];
            let read = self.rings.read(cpu, from, head, |number, bytes| {
                let at = at_of(bytes);
                if number != expected {
                    blind = blind.max(at.min(until));
                }
                expected = number + 1;
                if at >= until {
                    next = Some(number);
                    return false;
                }
                if MATTERS[kind_of(bytes) as usize % MATTERS.len()] {
                    fresh.extend(Event::parse(bytes).map(|event| (cpu as u32, event)));
                }
                true
            });
            self.figures.unseen += read.overwritten;
            if next.is_none() && expected != head {
                blind = until;
            }
            self.seen[cpu] = next.unwrap_or(head);
        }
        if blind > 0 {
            // A receive or a send that was not seen would make one request of two, and a slow one.
            self.requests = requests_of(self.options.tier);
            self.probed = Probed::default();
            fresh.retain(|(_, event)| event.at >= blind);
        }
        fresh.sort_by_key(|(_, event)| event.at);
        let mut ended = Vec::new();
        for (cpu, event) in fresh {
            if self.options.sockets {
                let requests = &mut self.requests;
                requests.take(cpu, &event, |request| ended.push(request));
            }
            self.probed.take(&event, |span| ended.push(span));
        }
        self.judge(ended);
    }
}

/// The kinds of events that make requests, so that all others are passed over unread.
const MATTERS: [bool; 64] = {
    let mut kinds = [false; 64];
    kinds[abi::TL_SOFTIRQ_OUT as usize] = true;
    kinds[abi::TL_PACKET_IN as usize] = true;
    kinds[abi::TL_TCP_IN as usize] = true;
    kinds[abi::TL_READY as usize] = true;
    kinds[abi::TL_RECEIVE as usize] = true;
    kinds[abi::TL_TAKEN as usize] = true;
    kinds[abi::TL_SEND as usize] = true;
    kinds[abi::TL_TRANSMIT as usize] = true;
    kinds[abi::TL_SPAN_IN as usize] = true;
    kinds[abi::TL_SPAN_OUT as usize] = true;
    kinds[abi::TL_NAME_BACK as usize] = true;
    kinds
};
