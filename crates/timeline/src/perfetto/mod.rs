//! A trace as Perfetto's: ui.perfetto.dev opens it. CPUs, threads, wake-ups and interrupts are told
//! as the kernel's own tracing would tell them, so the viewer draws its usual lanes and arrows. Slow
//! requests have a lane each, cut into the gaps of their story; arrows lead from the packet to the
//! receive, to the send, to the device and to a client on this machine. What was lost has a lane too.

mod message;

use std::collections::HashSet;
use std::io::{self, Write};

use prost::Message;
use tailscope_kernel::vector;
use tailscope_signals::event::{Event, OnTop, What};

use crate::pause::Pause;
use crate::story::{self, Story};
use crate::trace::{Trace, printable};
use message as m;

/// So many slow requests have a lane.
const MOST_STORIES: usize = 200;
/// Events of a CPU that go into one packet: bounds the memory.
const BUNDLE: usize = 1024;
/// The sequence that all packets are of.
const SEQUENCE: u32 = 1;
/// Tracks by their numbers: threads' come first, by their id.
const REQUESTS: u64 = 1 << 40;
const LOSSES: u64 = 2 << 40;
const PACKETS: u64 = 3 << 40;
const THREADS: u64 = 4 << 40;
const JVMS: u64 = 5 << 40;
/// The priority of an ordinary thread; Perfetto wants one, and the events carry none.
const PRIORITY: i32 = 120;
/// A vector has no number of an interrupt, so it is shown as one beyond all that there are.
const VECTORS: u32 = 1 << 20;

struct Out<'w, W> {
    to: &'w mut W,
}

impl<W: Write> Out<'_, W> {
    fn packet(&mut self, packet: m::TracePacket) -> io::Result<()> {
        let packet = m::TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            ..packet
        };
        let mut bytes = vec![0x0a]; // field 1 of a trace: a packet
        packet
            .encode_length_delimited(&mut bytes)
            .map_err(io::Error::other)?;
        self.to.write_all(&bytes)
    }

    fn track(&mut self, uuid: u64, parent: Option<u64>, name: &str) -> io::Result<()> {
        self.packet(m::TracePacket {
            track_descriptor: Some(m::TrackDescriptor {
                uuid: Some(uuid),
                name: Some(name.into()),
                parent_uuid: parent,
                thread: None,
            }),
            ..Default::default()
        })
    }

    fn event(&mut self, at: u64, kind: i32, track: u64, name: &str, flow: u64) -> io::Result<()> {
        self.packet(m::TracePacket {
            timestamp: Some(at),
            track_event: Some(m::TrackEvent {
                kind: Some(kind),
                track_uuid: Some(track),
                categories: Vec::new(),
                name: (kind != m::SLICE_END).then(|| name.into()),
                flow_ids: if flow == 0 { Vec::new() } else { vec![flow] },
            }),
            ..Default::default()
        })
    }

    fn slice(&mut self, from: u64, ns: u64, track: u64, name: &str, flow: u64) -> io::Result<()> {
        self.event(from, m::SLICE_BEGIN, track, name, flow)?;
        self.event(from + ns, m::SLICE_END, track, "", 0)
    }
}

/// Writes a trace in Perfetto's format.
pub fn write(trace: &Trace, to: &mut impl Write) -> io::Result<()> {
    let mut out = Out { to };
    names(trace, &mut out)?;
    events(trace, &mut out)?;
    let told = story::analyze(trace, None, MOST_STORIES);
    requests(&told.stories, trace, &mut out)?;
    pauses(trace, &told.pauses, &mut out)?;
    losses(trace, &told.losses, &mut out)
}

fn pauses(trace: &Trace, pauses: &[Pause], out: &mut Out<'_, impl Write>) -> io::Result<()> {
    let mut known = HashSet::new();
    for pause in pauses {
        let track = JVMS + u64::from(pause.process);
        if known.insert(track) {
            let process = trace.thread(pause.process);
            out.track(track, None, &format!("JVM of {process}, {}", pause.process))?;
        }
        let ns = pause.to_ns - pause.from_ns.min(pause.to_ns);
        out.slice(pause.from_ns, ns, track, &pause.name, 0)?;
    }
    Ok(())
}

fn names(trace: &Trace, out: &mut Out<'_, impl Write>) -> io::Result<()> {
    let about = &trace.about;
    let processes = about.processes.iter().map(|(&pid, name)| m::Process {
        pid: Some(pid as i32),
        cmdline: vec![printable(name)],
    });
    let threads = about.threads.iter().map(|(&tid, thread)| m::Thread {
        tid: Some(tid as i32),
        name: Some(printable(&thread.name)),
        tgid: Some(thread.process as i32),
    });
    out.packet(m::TracePacket {
        timestamp: Some(about.from_ns),
        process_tree: Some(m::ProcessTree {
            processes: processes.collect(),
            threads: threads.collect(),
        }),
        ..Default::default()
    })
}

fn events(trace: &Trace, out: &mut Out<'_, impl Write>) -> io::Result<()> {
    for part in &trace.about.parts {
        let mut lost = part.from_ns > trace.about.from_ns || part.unwritten > 0;
        let mut bundle = Vec::with_capacity(BUNDLE);
        let mut flush = |bundle: &mut Vec<m::FtraceEvent>| {
            let event = std::mem::take(bundle);
            let lost_events = std::mem::take(&mut lost).then_some(true);
            out.packet(m::TracePacket {
                ftrace_events: Some(m::FtraceEventBundle {
                    cpu: Some(part.cpu),
                    event,
                    lost_events,
                }),
                ..Default::default()
            })
        };
        for event in trace.events_of(part.cpu) {
            bundle.extend(ftrace(trace, part.cpu, &event));
            if bundle.len() == BUNDLE {
                flush(&mut bundle)?;
            }
        }
        if !bundle.is_empty() {
            flush(&mut bundle)?;
        }
    }
    Ok(())
}

/// The kernel's own event for ours, where it has one that Perfetto draws.
fn ftrace(trace: &Trace, cpu: u32, event: &Event) -> Option<m::FtraceEvent> {
    let mut made = m::FtraceEvent {
        timestamp: Some(event.at),
        pid: Some(event.tid),
        ..Default::default()
    };
    match event.what {
        What::Switch { state, to, .. } => {
            made.sched_switch = Some(switch(trace, cpu, (event.tid, state), to));
        }
        What::Waking { thread, .. } => made.sched_waking = Some(waking(trace, cpu, thread)),
        What::Idle(state) => {
            made.cpu_idle = Some(m::CpuIdle {
                state: Some(state.unwrap_or(u32::MAX)),
                cpu_id: Some(cpu),
            });
        }
        What::Enter(OnTop::Softirq(number)) => {
            made.softirq_entry = Some(m::Softirq {
                vec: Some(number.into()),
            });
        }
        What::Leave(OnTop::Softirq(number)) => {
            made.softirq_exit = Some(m::Softirq {
                vec: Some(number.into()),
            });
        }
        What::Enter(on_top) => made.irq_handler_entry = Some(irq_entry(trace, on_top)),
        What::Leave(on_top) => {
            made.irq_handler_exit = Some(m::IrqExit {
                irq: Some(irq(on_top) as i32),
                ret: Some(1),
            });
        }
        _ => return None,
    }
    Some(made)
}

/// What a thread is called on this CPU. Where it is idle, that is named as the kernel names it.
fn comm(trace: &Trace, cpu: u32, tid: u32) -> String {
    if tid == 0 {
        return format!("swapper/{cpu}");
    }
    let thread = trace.about.threads.get(&tid);
    thread.map_or_else(|| tid.to_string(), |thread| printable(&thread.name))
}

/// A thread leaves the CPU in a state, and another one comes.
fn switch(trace: &Trace, cpu: u32, (from, state): (u32, u16), to: u32) -> m::SchedSwitch {
    m::SchedSwitch {
        prev_comm: Some(comm(trace, cpu, from)),
        prev_pid: Some(from as i32),
        prev_prio: Some(PRIORITY),
        prev_state: Some(state.into()),
        next_comm: Some(comm(trace, cpu, to)),
        next_pid: Some(to as i32),
        next_prio: Some(PRIORITY),
    }
}

fn waking(trace: &Trace, cpu: u32, thread: u32) -> m::SchedWaking {
    m::SchedWaking {
        comm: Some(comm(trace, cpu, thread)),
        pid: Some(thread as i32),
        prio: Some(PRIORITY),
        success: Some(1),
        target_cpu: Some(cpu as i32),
    }
}

/// The number that an interrupt or a vector is shown with.
fn irq(on_top: OnTop) -> u32 {
    match on_top {
        OnTop::Irq(number) => number,
        OnTop::Vector(number) | OnTop::Softirq(number) => VECTORS + u32::from(number),
    }
}

fn irq_entry(trace: &Trace, on_top: OnTop) -> m::IrqEntry {
    let name = match on_top {
        OnTop::Irq(number) => {
            let device = trace.about.interrupts.get(&number);
            device.map(|device| printable(device))
        }
        OnTop::Vector(number) | OnTop::Softirq(number) => Some(vector(number)),
    };
    m::IrqEntry {
        irq: Some(irq(on_top) as i32),
        name,
    }
}

fn requests(stories: &[Story], trace: &Trace, out: &mut Out<'_, impl Write>) -> io::Result<()> {
    if stories.is_empty() {
        return Ok(());
    }
    out.track(REQUESTS, None, "slow requests")?;
    out.track(PACKETS, None, "packets of slow requests")?;
    let mut known = HashSet::new();
    for (number, story) in (1..).zip(stories) {
        let (track, flow) = (REQUESTS + number, number);
        out.track(track, Some(REQUESTS), &format!("request {number}"))?;
        if known.insert(story.tid) {
            thread_track(trace, story.tid, out)?;
        }
        let begin = story.begin_ns;
        out.event(begin, m::SLICE_BEGIN, track, &story.sentence, 0)?;
        for gap in &story.gaps {
            out.slice(begin + gap.at_ns, gap.ns, track, &gap.words, 0)?;
        }
        out.event(begin + story.latency_ns, m::SLICE_END, track, "", 0)?;
        // The arrows: packet, receive, send, device.
        if story.span.is_none() {
            out.event(begin, m::INSTANT, PACKETS, "request arrives", flow)?;
        }
        let thread = THREADS + u64::from(story.tid);
        let received = begin + story.received_ns;
        let sent = (begin + story.sent_ns).max(received);
        let name = story.span.as_deref().unwrap_or("request");
        out.slice(received, sent - received, thread, name, flow)?;
        if story.span.is_none() {
            let left = begin + story.left_ns;
            out.event(left, m::INSTANT, PACKETS, "answer leaves", flow)?;
        }
        if story.to_client {
            let end = begin + story.latency_ns;
            out.event(end, m::INSTANT, PACKETS, "client receives it", flow)?;
        }
    }
    Ok(())
}

fn thread_track(trace: &Trace, tid: u32, out: &mut Out<'_, impl Write>) -> io::Result<()> {
    let thread = trace.about.threads.get(&tid);
    out.packet(m::TracePacket {
        track_descriptor: Some(m::TrackDescriptor {
            uuid: Some(THREADS + u64::from(tid)),
            thread: Some(m::ThreadDescriptor {
                pid: Some(thread.map_or(tid, |thread| thread.process) as i32),
                tid: Some(tid as i32),
                thread_name: thread.map(|thread| printable(&thread.name)),
            }),
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn losses(trace: &Trace, told: &[String], out: &mut Out<'_, impl Write>) -> io::Result<()> {
    let about = &trace.about;
    if told.is_empty() {
        return Ok(());
    }
    out.track(LOSSES, None, "lost")?;
    let cpus = about.parts.iter().map(|part| format!("CPU {}", part.cpu));
    let names = cpus.chain(["spans of the SDK".into()]);
    for (track, (part, name)) in (LOSSES + 1..).zip(about.all_parts().zip(names)) {
        let ns = part.from_ns.saturating_sub(about.from_ns);
        if ns == 0 {
            continue;
        }
        out.track(track, Some(LOSSES), &name)?;
        out.slice(about.from_ns, ns, track, "older than the ring buffers", 0)?;
    }
    for gap in &about.gaps {
        let name = format!("{} events skipped by the kernel", gap.events);
        out.slice(gap.from_ns, gap.to_ns - gap.from_ns, LOSSES, &name, 0)?;
    }
    for gap in &about.sdk_gaps {
        let name = format!("{} SDK spans lost: buffer full", gap.events);
        out.slice(gap.from_ns, gap.to_ns - gap.from_ns, LOSSES, &name, 0)?;
    }
    Ok(())
}
