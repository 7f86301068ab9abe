//! The timeline's events as Rust values. Their bytes come from a ring or a file: both are foreign.

/// `include/tailscope_event.h`, as Rust sees it. The words on each item are in the header.
pub mod abi {
    #![allow(missing_docs, non_camel_case_types, non_upper_case_globals)]
    #![allow(clippy::all, clippy::undocumented_unsafe_blocks)]

    include!(concat!(env!("OUT_DIR"), "/event_abi.rs"));
}

/// Bytes of an event.
pub const EVENT_BYTES: usize = abi::TL_EVENT_BYTES as usize;

const _: () = assert!(size_of::<abi::tl_event>() == EVENT_BYTES);

/// A socket, by a number that no other has while it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Socket(pub u32);

/// A place in a TCP stream. Wraps around, so it has an order only among its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Sequence(pub u32);

impl Sequence {
    /// Whether everything up to `other` lies before or at this place.
    #[must_use]
    pub fn reaches(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0) as i32 >= 0
    }

    /// Whether this place is so far from another that they are hardly of one connection's stream, in
    /// which no more than a window lies between two neighbours.
    #[must_use]
    pub fn is_far_from(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32).unsigned_abs() > 1 << 26
    }
}

/// What runs on top of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OnTop {
    /// A softirq, by its number.
    Softirq(u16),
    /// A device's interrupt, by its number.
    Irq(u32),
    /// A vector of the CPU: timer, IPI, …
    Vector(u16),
}

/// Why TCP keeps bytes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Held {
    /// It does not.
    Not,
    /// A small piece waits until an earlier one is acknowledged.
    Nagle,
    /// The program asked for full pieces.
    Cork,
    /// The receiver has no room.
    Window,
    /// The network's share is used up.
    Congestion,
    /// Pacing, or the device's queue is full.
    Other,
}

/// What a JVM says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Jvm {
    /// A collection, with all threads stopped.
    Collection,
    /// What all threads are stopped for.
    Operation,
    /// A collector works on a pool of memory.
    Collector,
    /// A class was loaded: told at its end alone.
    Class,
    /// A method is compiled.
    Compile,
    /// A thread waits for a monitor.
    Monitor,
    /// The JVM starts.
    Start,
    /// A class is initialised, or the thread waits for another one that does it.
    Initialization,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The CPU goes from the event's thread to another.
    Switch {
        /// The one that leaves: its process.
        process: u32,
        /// Why it leaves: the kernel's task state; 0: it could go on.
        state: u16,
        /// It was made to.
        preempted: bool,
        /// Who comes.
        to: u32,
        /// Its process.
        to_process: u32,
    },
    /// The event's thread, or what runs on top of it, wakes another.
    Waking {
        /// Who is woken.
        thread: u32,
        /// Its process.
        process: u32,
    },
    /// A thread goes to another CPU's queue.
    Migrate {
        /// Who.
        thread: u32,
        /// To which.
        cpu: u32,
    },
    /// Something begins on top of the event's thread.
    Enter(OnTop),
    /// And ends.
    Leave(OnTop),
    /// A page fault begins.
    FaultIn {
        /// Where; 0: not told.
        address: u64,
    },
    /// A page fault has been handled.
    FaultOut,
    /// A system call begins.
    SyscallIn {
        /// Its number.
        number: u16,
        /// The low half of its first argument.
        argument: u32,
    },
    /// A system call returns.
    SyscallOut {
        /// Its number.
        number: u16,
        /// The low half of its result.
        result: i32,
    },
    /// The stack takes a packet from a device.
    PacketIn {
        /// Its length.
        bytes: u32,
    },
    /// TCP looks at a packet.
    TcpIn {
        /// Whose.
        socket: Socket,
        /// The place after it.
        end: Sequence,
        /// Up to where it acknowledges.
        acknowledges: Sequence,
        /// Bytes of data, 65,535 at most.
        bytes: u16,
    },
    /// The reader of a socket is told that there is something.
    Ready {
        /// Which.
        socket: Socket,
    },
    /// The event's thread took bytes from a socket.
    Receive {
        /// Which.
        socket: Socket,
        /// Up to where it has now read; `None`: it is not TCP.
        end: Option<Sequence>,
        /// How many.
        bytes: u32,
        /// It is a client's: connect chose its port.
        connects: bool,
    },
    /// The event's thread, of a process that is not watched, took bytes from a TCP socket whose
    /// other end a watched process has, as a rule.
    Taken {
        /// Which.
        socket: Socket,
        /// Up to where it has now read.
        end: Sequence,
        /// How many.
        bytes: u32,
    },
    /// The event's thread gave bytes to a socket.
    Send {
        /// Which.
        socket: Socket,
        /// The place after them; `None`: it is not TCP.
        end: Option<Sequence>,
        /// How many.
        bytes: u32,
        /// Why they are not sent yet.
        held: Held,
    },
    /// A device takes a TCP packet.
    Transmit {
        /// Whose.
        socket: Socket,
        /// The place after it.
        end: Sequence,
        /// Bytes of data, 65,535 at most.
        bytes: u16,
        /// So long, in ns, the event's thread is in the system call that sends it; 0: not known.
        since: u32,
    },
    /// The CPU goes to sleep, how deep; `None`: it is awake again.
    Idle(Option<u32>),
    /// A disk is given a request.
    BlockIssue {
        /// Which.
        request: u32,
        /// Its size.
        bytes: u32,
    },
    /// A disk is done with it.
    BlockDone {
        /// Which.
        request: u32,
        /// How much of it.
        bytes: u32,
    },
    /// The JVM says that something begins on the event's thread, or ends.
    Jvm {
        /// What.
        what: Jvm,
        /// It begins?
        begins: bool,
        /// The begin of its name.
        name: [u8; 12],
        /// The next event is a [`What::Text`] with more of it.
        more: bool,
    },
    /// More of the name that the event before it on this thread began.
    Text([u8; 12]),
    /// A probe in a program begins a span.
    SpanIn {
        /// Of which source.
        source: u16,
        /// The stack pointer.
        frame: u64,
        /// Where in the program, the low half.
        place: u32,
    },
    /// A probe in a program ends one.
    SpanOut {
        /// Of which source.
        source: u16,
        /// The stack pointer, as it was at the begin of the same call.
        frame: u64,
        /// It is the return of the call whose entry began it.
        returns: bool,
    },
    /// A span ends of which the program told itself.
    Span {
        /// Its name's number.
        source: u16,
        /// How long it took.
        ns: u64,
    },
    /// Half of the name of a thread that ends.
    Name {
        /// The second half?
        back: bool,
        /// Its process.
        process: u32,
        /// Eight bytes of it.
        text: [u8; 8],
    },
}

/// One event of a CPU's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, in ns of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// The thread that the CPU was with.
    pub tid: u32,
    /// What.
    pub what: What,
}

fn word(bytes: &[u8; EVENT_BYTES], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn twelve(bytes: &[u8; EVENT_BYTES]) -> [u8; 12] {
    std::array::from_fn(|at| bytes[20 + at])
}

/// When the event of these bytes happened, in ns, whatever it was.
#[must_use]
pub fn at_of(bytes: &[u8; EVENT_BYTES]) -> u64 {
    u64::from(word(bytes, 0)) | u64::from(word(bytes, 4)) << 32
}

/// The low bits of its number on its CPU.
#[must_use]
pub fn place_of(bytes: &[u8; EVENT_BYTES]) -> u32 {
    word(bytes, 8)
}

/// Its kind, one of `TL_…`.
#[must_use]
pub fn kind_of(bytes: &[u8; EVENT_BYTES]) -> u8 {
    bytes[16]
}

impl Event {
    /// Reads an event. `None`: it is of no kind that is known here.
    #[must_use]
    pub fn parse(bytes: &[u8; EVENT_BYTES]) -> Option<Self> {
        let flag = bytes[17] & 1 != 0;
        let small = u16::from_ne_bytes([bytes[18], bytes[19]]);
        let (x, y, z) = (word(bytes, 20), word(bytes, 24), word(bytes, 28));
        let stream = flag.then_some(Sequence(y));
        let what = match u32::from(kind_of(bytes)) {
            abi::TL_SWITCH => What::Switch {
                process: z,
                state: small,
                preempted: flag,
                to: x,
                to_process: y,
            },
            abi::TL_WAKING => What::Waking {
                thread: x,
                process: z,
            },
            abi::TL_SOFTIRQ_IN => What::Enter(OnTop::Softirq(small)),
            abi::TL_SOFTIRQ_OUT => What::Leave(OnTop::Softirq(small)),
            abi::TL_IRQ_IN => What::Enter(OnTop::Irq(x)),
            abi::TL_IRQ_OUT => What::Leave(OnTop::Irq(x)),
            abi::TL_VECTOR_IN => What::Enter(OnTop::Vector(small)),
            abi::TL_VECTOR_OUT => What::Leave(OnTop::Vector(small)),
            abi::TL_FAULT_IN => What::FaultIn {
                address: u64::from(x) | u64::from(y) << 32,
            },
            abi::TL_FAULT_OUT => What::FaultOut,
            abi::TL_SYSCALL_IN => What::SyscallIn {
                number: small,
                argument: x,
            },
            abi::TL_SYSCALL_OUT => What::SyscallOut {
                number: small,
                result: x as i32,
            },
            abi::TL_PACKET_IN => What::PacketIn { bytes: x },
            abi::TL_TCP_IN => What::TcpIn {
                socket: Socket(x),
                end: Sequence(y),
                acknowledges: Sequence(z),
                bytes: small,
            },
            abi::TL_READY => What::Ready { socket: Socket(x) },
            abi::TL_RECEIVE => What::Receive {
                socket: Socket(x),
                end: stream,
                bytes: z,
                connects: bytes[17] & 2 != 0,
            },
            abi::TL_TAKEN => What::Taken {
                socket: Socket(x),
                end: Sequence(y),
                bytes: z,
            },
            abi::TL_SEND => What::Send {
                socket: Socket(x),
                end: stream,
                bytes: z,
                held: match u32::from(small) {
                    abi::TL_HELD_NOT => Held::Not,
                    abi::TL_HELD_NAGLE => Held::Nagle,
                    abi::TL_HELD_CORK => Held::Cork,
                    abi::TL_HELD_WINDOW => Held::Window,
                    abi::TL_HELD_CONGESTION => Held::Congestion,
                    _ => Held::Other,
                },
            },
            abi::TL_TRANSMIT => What::Transmit {
                socket: Socket(x),
                end: Sequence(y),
                bytes: small,
                since: z,
            },
            abi::TL_IDLE => What::Idle((x != u32::MAX).then_some(x)),
            abi::TL_BLOCK_ISSUE => What::BlockIssue {
                request: x,
                bytes: y,
            },
            abi::TL_BLOCK_DONE => What::BlockDone {
                request: x,
                bytes: y,
            },
            kind @ (abi::TL_NAME_FRONT | abi::TL_NAME_BACK) => What::Name {
                back: kind == abi::TL_NAME_BACK,
                process: x,
                text: [
                    bytes[24], bytes[25], bytes[26], bytes[27], bytes[28], bytes[29], bytes[30],
                    bytes[31],
                ],
            },
            kind @ (abi::TL_JVM_IN | abi::TL_JVM_OUT) => What::Jvm {
                what: match u32::from(small) {
                    abi::TL_JVM_COLLECTION => Jvm::Collection,
                    abi::TL_JVM_OPERATION => Jvm::Operation,
                    abi::TL_JVM_COLLECTOR => Jvm::Collector,
                    abi::TL_JVM_CLASS => Jvm::Class,
                    abi::TL_JVM_COMPILE => Jvm::Compile,
                    abi::TL_JVM_MONITOR => Jvm::Monitor,
                    abi::TL_JVM_START => Jvm::Start,
                    abi::TL_JVM_INITIALIZATION => Jvm::Initialization,
                    _ => return None,
                },
                begins: kind == abi::TL_JVM_IN,
                name: twelve(bytes),
                more: flag,
            },
            abi::TL_TEXT => What::Text(twelve(bytes)),
            abi::TL_SPAN_IN => What::SpanIn {
                source: small,
                frame: u64::from(x) | u64::from(y) << 32,
                place: z,
            },
            abi::TL_SPAN_OUT => What::SpanOut {
                source: small,
                frame: u64::from(x) | u64::from(y) << 32,
                returns: flag,
            },
            abi::TL_SPAN => What::Span {
                source: small,
                ns: u64::from(x) | u64::from(y) << 32,
            },
            abi::TL_MIGRATE => What::Migrate { thread: x, cpu: y },
            _ => return None,
        };
        Some(Self {
            at: at_of(bytes),
            tid: word(bytes, 12),
            what,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_order_of_sequences_goes_round() {
        assert!(Sequence(5).reaches(Sequence(5)) && Sequence(6).reaches(Sequence(5)));
        assert!(!Sequence(4).reaches(Sequence(5)));
        assert!(Sequence(3).reaches(Sequence(u32::MAX - 3)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_of_their_time_or_none(bytes: [u8; EVENT_BYTES]) {
            let event = Event::parse(&bytes);
            let known = (1..abi::TL_KINDS).contains(&u32::from(kind_of(&bytes)));
            let jvm = (abi::TL_JVM_IN..=abi::TL_JVM_OUT).contains(&u32::from(kind_of(&bytes)));
            let last = abi::TL_JVM_INITIALIZATION as u16;
            let told = !jvm || u16::from_ne_bytes([bytes[18], bytes[19]]) <= last;
            prop_assert_eq!(event.is_some(), known && told);
            if let Some(event) = event {
                prop_assert_eq!(event.at, u64::from_ne_bytes(bytes[..8].try_into().expect("eight")));
            }
        }
    }
}
