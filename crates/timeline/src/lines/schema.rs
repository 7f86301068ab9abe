//! Which events there are, with their fields.

use serde_json::{Value, json};

/// What a field can be.
#[derive(Debug, Clone, Copy)]
enum Type {
    Number,
    NumberOrNull,
    Text,
    TextOrNull,
    Flag,
}

/// A field: its name, what it can be, and what it means.
type Field = (&'static str, Type, &'static str);

/// An event.
struct Named {
    name: &'static str,
    meaning: &'static str,
    fields: &'static [Field],
}

const SOCKET: Field = (
    "socket",
    Type::Number,
    "a number that no other socket has while it lives",
);
const BYTES: Field = ("bytes", Type::Number, "how many");
const END: Field = (
    "sequence",
    Type::Number,
    "the place in the TCP stream after the data",
);
const END_OF_TCP: Field = (
    "sequence",
    Type::NumberOrNull,
    "the place in the TCP stream after the data; null: not TCP",
);
const ON_TOP: &[Field] = &[
    ("kind", Type::Text, "softirq, irq or vector"),
    ("number", Type::Number, "its number"),
    ("name", Type::Text, "its name"),
];
const CALL: Field = ("call", Type::Text, "the system call");
const NUMBER: Field = ("number", Type::Number, "its number on this architecture");
const SOURCE: Field = ("span", Type::Text, "the span's name");
const FRAME: Field = (
    "frame",
    Type::Number,
    "the stack pointer at the entry of the call",
);
const REQUEST: Field = ("request", Type::Number, "the request to the disk");
const JVM: &[Field] = &[
    (
        "what",
        Type::Text,
        "collection, operation, collector, class, compilation, monitor, start or initialization",
    ),
    ("name", Type::Text, "the first 12 bytes of its name"),
];

const fn named(name: &'static str, meaning: &'static str, fields: &'static [Field]) -> Named {
    Named {
        name,
        meaning,
        fields,
    }
}

/// All of them.
const EVENTS: &[Named] = &[
    named(
        "switch",
        "the CPU goes from the thread to another one",
        &[
            ("pid", Type::Number, "the process of the thread that leaves"),
            (
                "state",
                Type::Number,
                "the kernel's task state of the thread that leaves; 0: it could go on",
            ),
            ("preempted", Type::Flag, "it was made to leave"),
            ("real_time", Type::Flag, "it had real-time priority"),
            ("to_tid", Type::Number, "the thread that comes; 0: idle"),
            ("to_pid", Type::Number, "its process"),
            ("to_thread", Type::TextOrNull, "its name; null: idle"),
        ],
    ),
    named(
        "waking",
        "the thread, or what runs on top of it, wakes another one",
        &[
            ("woken_tid", Type::Number, "the thread that is woken"),
            ("woken_pid", Type::Number, "its process"),
            ("woken_thread", Type::Text, "its name"),
        ],
    ),
    named(
        "migrate",
        "a thread goes to another CPU's queue",
        &[
            ("moved_tid", Type::Number, "the thread"),
            ("to_cpu", Type::Number, "the CPU"),
        ],
    ),
    named(
        "enter",
        "an interrupt or a softirq begins on top of the thread",
        ON_TOP,
    ),
    named("leave", "an interrupt or a softirq ends", ON_TOP),
    named(
        "tick",
        "the CPU's timer interrupts the thread",
        &[
            ("pid", Type::Number, "its process"),
            ("address", Type::Number, "where in its program it was"),
            (
                "function",
                Type::TextOrNull,
                "the function there; null: not known",
            ),
            (
                "in_kernel",
                Type::Flag,
                "the kernel was at work for it there",
            ),
        ],
    ),
    named(
        "fault_in",
        "a page fault begins",
        &[(
            "address",
            Type::NumberOrNull,
            "of which address; null: this kernel does not say",
        )],
    ),
    named("fault_out", "a page fault was handled", &[]),
    named(
        "syscall_in",
        "a system call begins",
        &[
            CALL,
            NUMBER,
            (
                "argument",
                Type::Number,
                "the low half of its first argument",
            ),
        ],
    ),
    named(
        "syscall_out",
        "a system call returns",
        &[
            CALL,
            NUMBER,
            ("result", Type::Number, "the low half of its result"),
        ],
    ),
    named(
        "packet_in",
        "the network stack takes a packet from a device",
        &[BYTES],
    ),
    named(
        "tcp_in",
        "TCP looks at a packet",
        &[
            SOCKET,
            END,
            (
                "acknowledges",
                Type::Number,
                "the place up to which it acknowledges",
            ),
            BYTES,
        ],
    ),
    named("ready", "the reader of a socket is notified", &[SOCKET]),
    named(
        "receive",
        "the thread receives from a socket",
        &[
            SOCKET,
            END_OF_TCP,
            BYTES,
            (
                "is_client",
                Type::Flag,
                "connect chose the port of the socket",
            ),
        ],
    ),
    named(
        "taken",
        "a process that is not watched receives what a watched one sent",
        &[SOCKET, END, BYTES],
    ),
    named(
        "send",
        "the thread gives bytes to a socket",
        &[
            SOCKET,
            END_OF_TCP,
            BYTES,
            (
                "held",
                Type::TextOrNull,
                "why TCP keeps them back: nagle, cork, window, congestion or other",
            ),
        ],
    ),
    named(
        "transmit",
        "a device takes a TCP packet",
        &[
            SOCKET,
            END,
            BYTES,
            (
                "since_ns",
                Type::NumberOrNull,
                "since when the thread is in the call that sends; null: not known",
            ),
        ],
    ),
    named(
        "idle",
        "the CPU sleeps, or is awake again",
        &[("state", Type::NumberOrNull, "how deep; null: awake again")],
    ),
    named("disk_in", "a disk is given a request", &[REQUEST, BYTES]),
    named(
        "disk_out",
        "a disk is done with a request",
        &[REQUEST, BYTES],
    ),
    named("jvm_in", "the JVM begins something on the thread", JVM),
    named("jvm_out", "the JVM ends something on the thread", JVM),
    named(
        "text",
        "more of the name in the event before it of this thread",
        &[("text", Type::Text, "12 bytes of it")],
    ),
    named(
        "span_in",
        "a probe in a program begins a span",
        &[
            SOURCE,
            FRAME,
            ("place", Type::Number, "where in the program, the low half"),
        ],
    ),
    named(
        "span_out",
        "a probe in a program ends a span",
        &[
            SOURCE,
            FRAME,
            (
                "returns",
                Type::Flag,
                "at the return of the call that began it",
            ),
        ],
    ),
    named(
        "span",
        "a span of the SDK ends",
        &[SOURCE, ("length_ns", Type::Number, "how long it took")],
    ),
    named(
        "name",
        "half of the name of a thread that ends, or is renamed",
        &[
            ("pid", Type::Number, "its process"),
            ("is_second", Type::Flag, "the second half"),
            ("text", Type::Text, "8 bytes of it"),
        ],
    ),
];

/// The names of all events.
pub fn names() -> impl Iterator<Item = &'static str> {
    EVENTS.iter().map(|event| event.name)
}

/// What each line is, as JSON Schema (draft 2020-12).
#[must_use]
pub fn schema() -> Value {
    let all = EVENTS.iter().map(|event| {
        let mut properties = json!({
            "at_ns": {"type": "integer", "description": "ns of CLOCK_MONOTONIC"},
            "event": {"const": event.name},
            "cpu": {"type": ["integer", "null"], "description": "null: a span of the SDK"},
            "tid": {"type": "integer", "description": "the thread that had the CPU; 0: idle"},
            "thread": {"type": ["string", "null"], "description": "its name; null: idle"},
        });
        for (name, kind, meaning) in event.fields {
            properties[name] = json!({"type": kind.in_schema(), "description": meaning});
        }
        let required: Vec<&String> = properties
            .as_object()
            .into_iter()
            .flat_map(|o| o.keys())
            .collect();
        json!({
            "title": event.name,
            "description": event.meaning,
            "type": "object",
            "required": required,
            "properties": properties,
            "additionalProperties": false,
        })
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of `tailscope timeline events`",
        "oneOf": all.collect::<Vec<_>>(),
    })
}

impl Type {
    fn in_schema(self) -> Value {
        match self {
            Self::Number => json!("integer"),
            Self::NumberOrNull => json!(["integer", "null"]),
            Self::Text => json!("string"),
            Self::TextOrNull => json!(["string", "null"]),
            Self::Flag => json!("boolean"),
        }
    }
}
