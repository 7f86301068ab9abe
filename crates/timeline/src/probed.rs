//! Spans of programs: from probes, which begin an end belongs to; and those that the SDK tells of.
//!
//! As the recorder has it (kernel/src/bpf/probes.h): open spans lie on a stack of their thread, and
//! the stack pointer tells which begins will never see their end, after a longjmp or an exception.

use std::collections::HashMap;

use tailscope_signals::event::{Event, Held, Socket, What};

use crate::request::{Request, Sent};

/// Spans that may be open on a thread at a time; a begin beyond them is passed over.
const MOST_OPEN: usize = 32;

/// A place in a program, as its thread's stack has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Begun {
    source: u16,
    frame: u64,
    place: u32,
    at: u64,
}

/// Makes requests of events, which have to come in the order of their time.
#[derive(Debug, Default)]
pub struct Probed {
    open: HashMap<u32, Vec<Begun>>,
}

impl Probed {
    /// Takes the next event, and hands on the span that ends thereby.
    pub fn take(&mut self, event: &Event, each: impl FnOnce(Request)) {
        match event.what {
            What::SpanIn {
                source,
                frame,
                place,
            } => {
                let open = self.open.entry(event.tid).or_default();
                // The stack grows down: a begin further up, or at the same place of the same frame,
                // says that the frames of these have been left.
                open.retain(|begun| {
                    let again = begun.frame == frame && begun.place == place;
                    begun.source != source || (begun.frame >= frame && !again)
                });
                if open.len() < MOST_OPEN {
                    open.push(Begun {
                        source,
                        frame,
                        place,
                        at: event.at,
                    });
                }
            }
            What::SpanOut {
                source,
                frame,
                returns,
            } => {
                let Some(open) = self.open.get_mut(&event.tid) else {
                    return;
                };
                let of = |begun: &Begun| begun.source == source;
                let same = open.iter().rposition(|b| of(b) && b.frame == frame);
                // A return belongs to its own entry alone.
                let latest = || open.iter().rposition(of).filter(|_| !returns);
                let Some(at) = same.or_else(latest) else {
                    return;
                };
                let begun = open[at];
                let mut position = 0;
                open.retain(|b| {
                    position += 1;
                    position <= at || !of(b)
                });
                each(span(begun.source, begun.at, event.at, event.tid));
            }
            What::Span { source, ns } => {
                each(span(
                    source,
                    event.at.saturating_sub(ns),
                    event.at,
                    event.tid,
                ));
            }
            // Another program than the one whose frames these were.
            What::Name { back: true, .. } => {
                self.open.remove(&event.tid);
            }
            _ => {}
        }
    }
}

/// A request without a socket.
pub(crate) fn span(source: u16, begin: u64, end: u64, tid: u32) -> Request {
    Request {
        span: Some(source),
        socket: Socket(0),
        tid,
        arrival: None,
        ready: None,
        received: begin,
        bytes: 0,
        sends: vec![Sent {
            at: end,
            tid,
            bytes: 0,
            held: Held::Not,
            end: None,
        }],
        acknowledged: None,
        transmitted: end,
        delivery: None,
        amends: None,
        sent_again: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins and ends of spans: (at, source, frame), an end has the source's sign turned.
    fn ends(events: &[(u64, i32, u64)], returns: bool) -> Vec<(u16, u64, u64)> {
        let mut probed = Probed::default();
        let mut made = Vec::new();
        for &(at, source, frame) in events {
            let what = if source > 0 {
                What::SpanIn {
                    source: source as u16,
                    frame,
                    place: 1,
                }
            } else {
                What::SpanOut {
                    source: -source as u16,
                    frame,
                    returns,
                }
            };
            let event = Event { at, tid: 7, what };
            probed.take(&event, |r| {
                made.push((r.span.expect("a span"), r.begin(), r.end()));
            });
        }
        made
    }

    #[test]
    fn spans_nest_and_each_end_finds_its_begin() {
        let events = [(10, 1, 900), (20, 1, 800), (30, -1, 800), (40, -1, 900)];
        assert_eq!(ends(&events, true), [(1, 20, 30), (1, 10, 40)]);
    }

    #[test]
    fn a_begin_whose_frame_was_left_has_no_end() {
        // After a longjmp a begin further up the stack comes, and then its end.
        let events = [(10, 1, 800), (20, 1, 900), (30, -1, 900), (40, -1, 800)];
        assert_eq!(ends(&events, true), [(1, 20, 30)]);
        assert_eq!(ends(&events, false), [(1, 20, 30)]);
    }

    #[test]
    fn a_span_that_a_program_told_of_is_as_long_as_it_says() {
        let event = |at, ns| Event {
            at,
            tid: 7,
            what: What::Span { source: 3, ns },
        };
        let mut made = Vec::new();
        let mut take = |event| {
            Probed::default().take(&event, |r| made.push((r.span, r.begin(), r.end(), r.tid)));
        };
        take(event(50, 20));
        take(event(50, 90)); // nothing began before the clock did
        assert_eq!(made, [(Some(3), 30, 50, 7), (Some(3), 0, 50, 7)]);
    }

    #[test]
    fn a_pair_of_probes_may_lie_in_two_frames_and_a_return_may_not() {
        let events = [(10, 1, 900), (15, 2, 850), (30, -1, 700), (40, -2, 850)];
        assert_eq!(ends(&events, false), [(1, 10, 30), (2, 15, 40)]);
        assert_eq!(ends(&events, true), [(2, 15, 40)]);
    }
}
