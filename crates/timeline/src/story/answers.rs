//! Which answer a thread waited for: where a server asks another one that is watched too, the way of
//! its request goes on there.

use std::collections::HashMap;

use crate::request::Request;

/// Between the moment when the answer is there and the wake-up that it causes lies no more, in ns.
const NEAR_NS: u64 = 100_000;

/// Requests by the thread that received their answers.
#[derive(Debug)]
pub(super) struct Answers<'r>(HashMap<u32, Vec<(u64, &'r Request)>>);

impl<'r> Answers<'r> {
    pub(super) fn of(requests: &'r [Request]) -> Self {
        let mut by_thread: HashMap<u32, Vec<(u64, &Request)>> = HashMap::new();
        for request in requests {
            if let Some(delivery) = request.delivery {
                let ready = delivery.arrival.ready.unwrap_or(delivery.arrival.tcp);
                let of = by_thread.entry(delivery.tid).or_default();
                of.push((ready, request));
            }
        }
        for of in by_thread.values_mut() {
            of.sort_by_key(|(ready, _)| *ready);
        }
        Self(by_thread)
    }

    /// The request whose answer ended a thread's wait from `from` to `to`, and when that was there.
    pub(super) fn awaited(&self, tid: u32, from: u64, to: u64) -> Option<(u64, &'r Request)> {
        let of = self.0.get(&tid)?;
        let (ready, request) = of[..of.partition_point(|(ready, _)| *ready <= to)].last()?;
        (*ready > from && to - ready <= NEAR_NS).then_some((*ready, *request))
    }
}
