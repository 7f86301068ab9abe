//! Events from their bytes, which come from a ring or a file: both are foreign.

use super::{EVENT_BYTES, Event, Held, Jvm, OnTop, Sequence, Socket, What, abi};

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
