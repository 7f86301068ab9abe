//! The timeline's events as Rust values: what can have happened, and where.

mod parse;

pub use parse::{at_of, kind_of, place_of};

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
        /// It had real-time priority.
        real_time: bool,
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
    /// The CPU's timer interrupts the event's thread.
    Tick {
        /// Its process.
        process: u32,
        /// Where in its program it was.
        address: u64,
        /// The kernel was at work for it there: in a system call, as a rule.
        in_kernel: bool,
    },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_sequences_goes_round() {
        assert!(Sequence(5).reaches(Sequence(5)) && Sequence(6).reaches(Sequence(5)));
        assert!(!Sequence(4).reaches(Sequence(5)));
        assert!(Sequence(3).reaches(Sequence(u32::MAX - 3)));
    }
}
