//! The story of a request: the way from packet to packet, each gap with its name.
//!
//! The gaps lie end to end, so they sum to the request's latency by construction. Up to the moment
//! when its data was ready a request is with the network's stack; from then to its last send with
//! the thread that serves it, whose time is cut into what it did; from the send on with TCP; and
//! where the client is on this machine, with it. Where another thread answers than received, the way
//! is followed backwards from the answer, from each wait to whoever ended it; where a thread waits for
//! another watched server's answer, through that server.

mod answers;
mod classes;
mod critical_path;
mod gaps;
mod jvm;
mod losses;
mod naming;
mod picture;

use serde::{Deserialize, Serialize};
use tailscope_kernel::{softirq, vector};
use tailscope_signals::event::OnTop;

use crate::pause::Pause;
use crate::probed::Probed;
use crate::request::{Request, Requests};
use crate::thread_timeline::{Spans, ThreadTimelines};
use crate::ticks::Function;
use crate::trace::{Trace, printable};
use crate::watched::Watched;
use answers::Answers;
use critical_path::CriticalPath;
pub use jvm::JvmMeanwhile;
pub use picture::{Interval, Lane, Picture};

/// Which part of a request's way a gap belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// From the first packet to the moment when its data was ready for the reader.
    Arrival,
    /// From there to the return of the receive.
    Pickup,
    /// From there to the return of the last send.
    Work,
    /// From there to the device.
    Departure,
    /// From there to the return of the receive of a client on this machine.
    Return,
}

/// Why a gap is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Between the client's device and this machine's stack.
    Wire,
    /// In the softirq that receives.
    ReceiveSoftirq,
    /// The thread ran, for this request.
    Running,
    /// The thread was busy with others' requests.
    Busy,
    /// The thread could run, and another had the CPU.
    WaitingForCpu,
    /// The thread could run, and its CPU was idle: the wake-up took so long.
    WakeUp,
    /// A softirq ran on top of the thread.
    Softirq,
    /// A hard interrupt did.
    Interrupt,
    /// A page fault.
    PageFault,
    /// The JVM had stopped all its threads.
    JvmPause,
    /// The JVM loaded one class after the other on the thread.
    ClassLoading,
    /// The thread waited for a Java monitor that another one held.
    JvmMonitor,
    /// The thread waited for something.
    Blocked,
    /// TCP kept the answer back.
    HeldByTcp,
    /// The answer was on its way through the stack to the device.
    Transmit,
    /// The trace does not say.
    Unknown,
}

/// One gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// After the request's begin, in ns.
    pub at_ns: u64,
    /// How long, in ns.
    pub ns: u64,
    /// Which part of the way.
    pub stage: Stage,
    /// Why.
    pub kind: Kind,
    /// The same in words, with who is to blame.
    pub name: String,
    /// The thread that was looked at; 0: none.
    pub tid: u32,
    /// Where ticks met the thread that had the CPU: this one, or the one that it waited behind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
    /// The name, with the function that most of these ticks met.
    pub words: String,
}

/// All gaps of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Why.
    pub kind: Kind,
    /// In words.
    pub name: String,
    /// How long together, in ns.
    pub ns: u64,
    /// How many gaps.
    pub gaps: u32,
    /// Where ticks met the threads that had the CPU in them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
}

/// A request's story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Story {
    /// The sentence that leads: what most of the time went to.
    pub sentence: String,
    /// When it began, in ns of `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// How long it took, in ns: the sum of the gaps.
    pub latency_ns: u64,
    /// The thread that received it.
    pub tid: u32,
    /// Its name.
    pub thread: String,
    /// The span that it is, where probes in a program begin and end it, or the SDK.
    pub span: Option<String>,
    /// Its socket, by a number; 0: it has none.
    pub socket: u32,
    /// Whether its packet was seen on its way in; else it begins later than the client saw it.
    pub from_packet: bool,
    /// The first receive's return after the begin, in ns.
    pub received_ns: u64,
    /// The last send's return after the begin, in ns.
    pub sent_ns: u64,
    /// When the last byte left after the begin, in ns.
    pub left_ns: u64,
    /// Whether it ends when a client on this machine received the answer; else when the answer left.
    pub to_client: bool,
    /// The causes, the longest first.
    pub causes: Vec<Cause>,
    /// What the JVMs did meanwhile whose threads it was with.
    pub jvms: Vec<JvmMeanwhile>,
    /// The gaps, in their order.
    pub gaps: Vec<Gap>,
    /// So long after the last send the server sent again, in ns, and nothing had been received between:
    /// whether that belongs to the answer nobody can tell here.
    pub sent_again_ns: Option<u64>,
    /// What the trace lost that may be missing here, and where.
    pub losses: Vec<String>,
    /// What the CPUs did meanwhile: see [`picture`](crate::picture()). `None`: nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<Picture>,
}

/// Which requests are told of.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    /// Those that took at least so many ns.
    pub slower_ns: u64,
    /// The slowest of them, so many.
    pub most: usize,
}

/// All that a trace tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stories {
    /// The machine.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The version of Tailscope that wrote the window.
    pub tailscope: String,
    /// How the recorder was started.
    pub arguments: Vec<String>,
    /// Events in the window.
    pub events: u64,
    /// Requests that were followed from begin to end, without those of an earlier window.
    pub requests: u64,
    /// Requests that this window holds too, and that an earlier one tells of.
    pub in_earlier_windows: u64,
    /// Requests after whose answer, and a silence, the server sent again, without being asked.
    pub sent_again: u64,
    /// Those that were slow.
    pub slow: u64,
    /// Above which latency, in ns.
    pub slower_ns: u64,
    /// From when on all events are there, in ns of `CLOCK_MONOTONIC`.
    pub whole_from_ns: u64,
    /// Until when.
    pub to_ns: u64,
    /// Events that are missing, and where.
    pub losses: Vec<String>,
    /// When JVMs stood still.
    pub pauses: Vec<Pause>,
    /// The slowest first.
    pub stories: Vec<Story>,
}

/// The latency above which one request in so many lies, where the trace has no threshold.
const ONE_IN: usize = 100;

/// Tells the stories of a trace's slow requests. `None` for what is slow: what was when it was
/// recorded, else the slowest hundredth.
#[must_use]
pub fn analyze(trace: &Trace, slower_ns: Option<u64>, most: usize) -> Stories {
    let Followed {
        requests,
        earlier,
        timelines,
        choice,
    } = follow(trace, slower_ns, most);
    let told = chosen(&requests, choice);
    let answers = Answers::of(&requests);
    Stories {
        host: printable(&trace.about.host),
        kernel: printable(&trace.about.kernel),
        tailscope: printable(&trace.about.tailscope),
        arguments: trace
            .about
            .arguments
            .iter()
            .map(|word| printable(word))
            .collect(),
        events: trace.about.all_parts().map(|part| part.events).sum(),
        requests: requests.len() as u64,
        in_earlier_windows: earlier,
        sent_again: requests
            .iter()
            .filter(|request| request.sent_again.is_some())
            .count() as u64,
        slow: requests
            .iter()
            .filter(|request| request.latency() >= choice.slower_ns)
            .count() as u64,
        slower_ns: choice.slower_ns,
        whole_from_ns: trace.about.whole_from_ns(),
        to_ns: trace.about.to_ns,
        losses: losses::of_all(trace),
        pauses: timelines.pauses().all().to_vec(),
        stories: told
            .iter()
            .map(|request| {
                CriticalPath {
                    trace,
                    timelines: &timelines,
                    answers: &answers,
                }
                .story(request)
            })
            .collect(),
    }
}

/// The slow ones, the slowest first.
pub(crate) fn chosen(requests: &[Request], choice: Choice) -> Vec<&Request> {
    let mut slow: Vec<&Request> = requests
        .iter()
        .filter(|request| request.latency() >= choice.slower_ns)
        .collect();
    slow.sort_by_key(|request| (std::cmp::Reverse(request.latency()), request.begin()));
    slow.truncate(choice.most);
    slow
}

/// A trace's requests, and what threads did in some of them.
pub(crate) struct Followed {
    pub(crate) requests: Vec<Request>,
    /// How many an earlier window tells of.
    earlier: u64,
    pub(crate) timelines: ThreadTimelines,
    pub(crate) choice: Choice,
}

/// The requests of a trace by when they were found, and who is watched.
fn requests(trace: &Trace) -> (Vec<Request>, Watched) {
    let has_packets = ["tcp", "transmit"].iter().any(|of| trace.about.records(of));
    let mut found = Requests::with(has_packets);
    let mut requests: Vec<Request> = Vec::new();
    let mut probed = Probed::default();
    let mut watched = Watched::of(trace);
    let add = |requests: &mut Vec<Request>, request: Request| {
        let before = request.amends.and_then(|_| {
            let same = |other: &&mut Request| request.is(other);
            requests.iter_mut().rev().find(same)
        });
        match before {
            Some(before) => *before = request,
            None => requests.push(request),
        }
    };
    for (cpu, event) in trace.events() {
        watched.take(&event);
        if trace.about.sockets {
            found.take(cpu, &event, |request| add(&mut requests, request));
        }
        probed.take(&event, |request| requests.push(request));
    }
    found.finish(|request| add(&mut requests, request));
    // The recorder followed it from before the window's begin: it may know more than is in here.
    let slow = trace.about.slow_request.clone();
    if let Some(slow) = slow.filter(|slow| slow.is_sound(trace.about.to_ns)) {
        requests.retain(|request| !request.is(&slow));
        requests.push(slow);
    }
    (requests, watched)
}

/// Finds a trace's requests, and what threads did in those that will be told of.
pub(crate) fn follow(trace: &Trace, slower_ns: Option<u64>, most: usize) -> Followed {
    let (mut requests, watched) = requests(trace);
    let all = requests.len();
    requests.retain(|request| request.end() >= trace.about.told_until_ns);
    let earlier = (all - requests.len()) as u64;
    let slower_ns = slower_ns.or(trace.about.slow_ns).unwrap_or_else(|| {
        let mut all: Vec<u64> = requests.iter().map(Request::latency).collect();
        all.sort_unstable();
        all.get(all.len() - all.len() / ONE_IN - usize::from(!all.is_empty()))
            .copied()
            .unwrap_or_default()
    });
    let choice = Choice { slower_ns, most };
    let told = chosen(&requests, choice);
    let spans = Spans::of(told.iter().map(|r| (r.begin(), r.end())).collect());
    let threads: Vec<u32> = told
        .iter()
        .flat_map(|request| {
            let client = request.delivery.map(|delivery| delivery.tid);
            [request.tid, request.last_send().tid]
                .into_iter()
                .chain(client)
        })
        .collect();
    let mut timelines = ThreadTimelines::new(spans, watched.processes(), &threads);
    for (cpu, event) in trace.events() {
        timelines.take(cpu, &event);
    }
    timelines.finish(trace.about.to_ns);
    Followed {
        requests,
        earlier,
        timelines,
        choice,
    }
}

/// In words that name it in a sentence.
pub(crate) fn on_top_name(trace: &Trace, on_top: OnTop) -> String {
    match on_top {
        OnTop::Softirq(number) => format!("softirq {}", softirq(number)),
        OnTop::Irq(number) => match trace.about.interrupts.get(&number) {
            Some(device) => format!("interrupt {}", printable(device)),
            None => format!("interrupt {number}"),
        },
        OnTop::Vector(number) => format!("interrupt '{}'", vector(number)),
    }
}

/// A length in ms, with digits enough for what it is.
#[must_use]
pub fn ms(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    match ms {
        ms if ms < 0.1 => format!("{ms:.4} ms"),
        ms if ms < 1.0 => format!("{ms:.3} ms"),
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms => format!("{ms:.1} ms"),
    }
}

#[cfg(test)]
pub(crate) mod tests;
