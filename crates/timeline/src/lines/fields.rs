//! The values of each event's fields, as the schema has them.

use serde_json::{Value, json};
use tailscope_kernel::{softirq, vector};
use tailscope_signals::event::{Event, Held, Jvm, OnTop, Sequence, What};

use crate::calls;
use crate::trace::{Trace, printable};

/// An event's name, and its fields.
pub(super) type Fields = (&'static str, Vec<(&'static str, Value)>);

/// An event as the schema has it; `None`: it is not there, which a test excludes.
pub(super) fn fields_of(trace: &Trace, event: &Event) -> Option<Fields> {
    of_thread(trace, event.what)
        .or_else(|| of_kernel(trace, event.what))
        .or_else(|| of_socket(event.what))
        .or_else(|| of_program(trace, event.what))
}

fn text(bytes: &[u8]) -> Value {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    json!(printable(&String::from_utf8_lossy(&bytes[..end])))
}

fn of_thread(trace: &Trace, what: What) -> Option<Fields> {
    Some(match what {
        What::Switch {
            process,
            state,
            preempted,
            real_time,
            to,
            to_process,
        } => (
            "switch",
            vec![
                ("pid", json!(process)),
                ("state", json!(state)),
                ("preempted", json!(preempted)),
                ("real_time", json!(real_time)),
                ("to_tid", json!(to)),
                ("to_pid", json!(to_process)),
                ("to_thread", json!((to != 0).then(|| trace.thread(to)))),
            ],
        ),
        What::Waking { thread, process } => (
            "waking",
            vec![
                ("woken_tid", json!(thread)),
                ("woken_pid", json!(process)),
                ("woken_thread", json!(trace.thread(thread))),
            ],
        ),
        What::Migrate { thread, cpu } => (
            "migrate",
            vec![("moved_tid", json!(thread)), ("to_cpu", json!(cpu))],
        ),
        What::Name {
            back,
            process,
            text: name,
        } => (
            "name",
            vec![
                ("pid", json!(process)),
                ("is_second", json!(back)),
                ("text", text(&name)),
            ],
        ),
        _ => return None,
    })
}

fn of_on_top(trace: &Trace, on_top: OnTop) -> Vec<(&'static str, Value)> {
    let (kind, number, name) = match on_top {
        OnTop::Softirq(number) => ("softirq", number.into(), softirq(number).to_string()),
        OnTop::Irq(number) => {
            let name = trace.about.interrupts.get(&number);
            let name = name.map_or_else(|| number.to_string(), |name| printable(name));
            ("irq", number, name)
        }
        OnTop::Vector(number) => ("vector", number.into(), vector(number).to_string()),
    };
    vec![
        ("kind", json!(kind)),
        ("number", json!(number)),
        ("name", json!(name)),
    ]
}

fn of_program(trace: &Trace, what: What) -> Option<Fields> {
    Some(match what {
        What::Jvm {
            what, begins, name, ..
        } => {
            let what = match what {
                Jvm::Collection => "collection",
                Jvm::Operation => "operation",
                Jvm::Collector => "collector",
                Jvm::Class => "class",
                Jvm::Compile => "compilation",
                Jvm::Monitor => "monitor",
                Jvm::Start => "start",
                Jvm::Initialization => "initialization",
            };
            let event = if begins { "jvm_in" } else { "jvm_out" };
            (event, vec![("what", json!(what)), ("name", text(&name))])
        }
        What::Text(bytes) => ("text", vec![("text", text(&bytes))]),
        What::SpanIn {
            source,
            frame,
            place,
        } => (
            "span_in",
            vec![
                ("span", json!(trace.span(source))),
                ("frame", json!(frame)),
                ("place", json!(place)),
            ],
        ),
        What::SpanOut {
            source,
            frame,
            returns,
        } => (
            "span_out",
            vec![
                ("span", json!(trace.span(source))),
                ("frame", json!(frame)),
                ("returns", json!(returns)),
            ],
        ),
        What::Span { source, ns } => (
            "span",
            vec![
                ("span", json!(trace.span(source))),
                ("length_ns", json!(ns)),
            ],
        ),
        _ => return None,
    })
}

fn of_kernel(trace: &Trace, what: What) -> Option<Fields> {
    Some(match what {
        What::Tick {
            process,
            address,
            in_kernel,
        } => (
            "tick",
            vec![
                ("pid", json!(process)),
                ("address", json!(address)),
                ("function", json!(trace.function(process, address))),
                ("in_kernel", json!(in_kernel)),
            ],
        ),
        What::Enter(on_top) => ("enter", of_on_top(trace, on_top)),
        What::Leave(on_top) => ("leave", of_on_top(trace, on_top)),
        What::FaultIn { address } => {
            let address = (address != 0).then_some(address);
            ("fault_in", vec![("address", json!(address))])
        }
        What::FaultOut => ("fault_out", Vec::new()),
        What::SyscallIn { number, argument } => (
            "syscall_in",
            vec![
                ("call", json!(calls::name(number))),
                ("number", json!(number)),
                ("argument", json!(argument)),
            ],
        ),
        What::SyscallOut { number, result } => (
            "syscall_out",
            vec![
                ("call", json!(calls::name(number))),
                ("number", json!(number)),
                ("result", json!(result)),
            ],
        ),
        What::Idle(state) => ("idle", vec![("state", json!(state))]),
        What::BlockIssue { request, bytes } => (
            "disk_in",
            vec![("request", json!(request)), ("bytes", json!(bytes))],
        ),
        What::BlockDone { request, bytes } => (
            "disk_out",
            vec![("request", json!(request)), ("bytes", json!(bytes))],
        ),
        _ => return None,
    })
}

fn of_socket(what: What) -> Option<Fields> {
    let place = |end: Sequence| ("sequence", json!(end.0));
    let place_of_tcp = |end: Option<Sequence>| ("sequence", json!(end.map(|end| end.0)));
    Some(match what {
        What::PacketIn { bytes } => ("packet_in", vec![("bytes", json!(bytes))]),
        What::TcpIn {
            socket,
            end,
            acknowledges,
            bytes,
        } => (
            "tcp_in",
            vec![
                ("socket", json!(socket.0)),
                place(end),
                ("acknowledges", json!(acknowledges.0)),
                ("bytes", json!(bytes)),
            ],
        ),
        What::Ready { socket } => ("ready", vec![("socket", json!(socket.0))]),
        What::Receive {
            socket,
            end,
            bytes,
            connects,
        } => (
            "receive",
            vec![
                ("socket", json!(socket.0)),
                place_of_tcp(end),
                ("bytes", json!(bytes)),
                ("is_client", json!(connects)),
            ],
        ),
        What::Taken { socket, end, bytes } => (
            "taken",
            vec![
                ("socket", json!(socket.0)),
                place(end),
                ("bytes", json!(bytes)),
            ],
        ),
        What::Send {
            socket,
            end,
            bytes,
            held,
        } => (
            "send",
            vec![
                ("socket", json!(socket.0)),
                place_of_tcp(end),
                ("bytes", json!(bytes)),
                ("held", json!(held_by(held))),
            ],
        ),
        What::Transmit {
            socket,
            end,
            bytes,
            since,
        } => (
            "transmit",
            vec![
                ("socket", json!(socket.0)),
                place(end),
                ("bytes", json!(bytes)),
                ("since_ns", json!((since > 0).then_some(since))),
            ],
        ),
        _ => return None,
    })
}

fn held_by(held: Held) -> Option<&'static str> {
    match held {
        Held::Not => None,
        Held::Nagle => Some("nagle"),
        Held::Cork => Some("cork"),
        Held::Window => Some("window"),
        Held::Congestion => Some("congestion"),
        Held::Other => Some("other"),
    }
}
