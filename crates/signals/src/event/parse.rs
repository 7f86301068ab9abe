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

/// An event's bytes, with what most kinds have in the same places.
struct Fields<'b> {
    bytes: &'b [u8; EVENT_BYTES],
    flag: bool,
    small: u16,
    x: u32,
    y: u32,
    z: u32,
}

impl<'b> Fields<'b> {
    fn of(bytes: &'b [u8; EVENT_BYTES]) -> Self {
        Self {
            bytes,
            flag: bytes[17] & 1 != 0,
            small: u16::from_ne_bytes([bytes[18], bytes[19]]),
            x: word(bytes, 20),
            y: word(bytes, 24),
            z: word(bytes, 28),
        }
    }

    /// The first two words as one number.
    fn long(&self) -> u64 {
        u64::from(self.x) | u64::from(self.y) << 32
    }

    /// The place in the stream, where the socket is TCP's.
    fn stream(&self) -> Option<Sequence> {
        self.flag.then_some(Sequence(self.y))
    }
}

/// Threads, and what they call.
impl Fields<'_> {
    fn switch(&self) -> What {
        What::Switch {
            process: self.z,
            state: self.small,
            preempted: self.flag,
            real_time: self.bytes[17] & 2 != 0,
            to: self.x,
            to_process: self.y,
        }
    }

    fn waking(&self) -> What {
        What::Waking {
            thread: self.x,
            process: self.z,
        }
    }

    fn name(&self, back: bool) -> What {
        let bytes = self.bytes;
        What::Name {
            back,
            process: self.x,
            text: [
                bytes[24], bytes[25], bytes[26], bytes[27], bytes[28], bytes[29], bytes[30],
                bytes[31],
            ],
        }
    }

    fn tick(&self) -> What {
        What::Tick {
            process: self.z,
            address: self.long(),
            in_kernel: self.flag,
        }
    }

    fn syscall_in(&self) -> What {
        What::SyscallIn {
            number: self.small,
            argument: self.x,
        }
    }

    fn syscall_out(&self) -> What {
        What::SyscallOut {
            number: self.small,
            result: self.x as i32,
        }
    }
}

/// Bytes on their way through sockets.
impl Fields<'_> {
    fn tcp_in(&self) -> What {
        What::TcpIn {
            socket: Socket(self.x),
            end: Sequence(self.y),
            acknowledges: Sequence(self.z),
            bytes: self.small,
        }
    }

    fn receive(&self) -> What {
        What::Receive {
            socket: Socket(self.x),
            end: self.stream(),
            bytes: self.z,
            connects: self.bytes[17] & 2 != 0,
        }
    }

    fn taken(&self) -> What {
        What::Taken {
            socket: Socket(self.x),
            end: Sequence(self.y),
            bytes: self.z,
        }
    }

    fn send(&self) -> What {
        What::Send {
            socket: Socket(self.x),
            end: self.stream(),
            bytes: self.z,
            held: match u32::from(self.small) {
                abi::TL_HELD_NOT => Held::Not,
                abi::TL_HELD_NAGLE => Held::Nagle,
                abi::TL_HELD_CORK => Held::Cork,
                abi::TL_HELD_WINDOW => Held::Window,
                abi::TL_HELD_CONGESTION => Held::Congestion,
                _ => Held::Other,
            },
        }
    }

    fn transmit(&self) -> What {
        What::Transmit {
            socket: Socket(self.x),
            end: Sequence(self.y),
            bytes: self.small,
            since: self.z,
        }
    }
}

/// What programs tell of themselves, and probes of them.
impl Fields<'_> {
    /// `None`: of something that is not known here.
    fn jvm(&self, begins: bool) -> Option<What> {
        Some(What::Jvm {
            what: match u32::from(self.small) {
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
            begins,
            name: twelve(self.bytes),
            more: self.flag,
        })
    }

    fn span_in(&self) -> What {
        What::SpanIn {
            source: self.small,
            frame: self.long(),
            place: self.z,
        }
    }

    fn span_out(&self) -> What {
        What::SpanOut {
            source: self.small,
            frame: self.long(),
            returns: self.flag,
        }
    }

    fn span(&self) -> What {
        What::Span {
            source: self.small,
            ns: self.long(),
        }
    }
}

impl Event {
    /// Reads an event. `None`: it is of no kind that is known here.
    #[must_use]
    pub fn parse(bytes: &[u8; EVENT_BYTES]) -> Option<Self> {
        let fields = Fields::of(bytes);
        let (small, x, y) = (fields.small, fields.x, fields.y);
        // One `match` over all kinds: each event costs one jump.
        let what = match u32::from(kind_of(bytes)) {
            abi::TL_SWITCH => fields.switch(),
            abi::TL_WAKING => fields.waking(),
            abi::TL_MIGRATE => What::Migrate { thread: x, cpu: y },
            abi::TL_IDLE => What::Idle((x != u32::MAX).then_some(x)),
            kind @ (abi::TL_NAME_FRONT | abi::TL_NAME_BACK) => {
                fields.name(kind == abi::TL_NAME_BACK)
            }
            abi::TL_SOFTIRQ_IN => What::Enter(OnTop::Softirq(small)),
            abi::TL_SOFTIRQ_OUT => What::Leave(OnTop::Softirq(small)),
            abi::TL_IRQ_IN => What::Enter(OnTop::Irq(x)),
            abi::TL_IRQ_OUT => What::Leave(OnTop::Irq(x)),
            abi::TL_VECTOR_IN => What::Enter(OnTop::Vector(small)),
            abi::TL_VECTOR_OUT => What::Leave(OnTop::Vector(small)),
            abi::TL_FAULT_IN => What::FaultIn {
                address: fields.long(),
            },
            abi::TL_FAULT_OUT => What::FaultOut,
            abi::TL_SYSCALL_IN => fields.syscall_in(),
            abi::TL_SYSCALL_OUT => fields.syscall_out(),
            abi::TL_PACKET_IN => What::PacketIn { bytes: x },
            abi::TL_TCP_IN => fields.tcp_in(),
            abi::TL_READY => What::Ready { socket: Socket(x) },
            abi::TL_RECEIVE => fields.receive(),
            abi::TL_TAKEN => fields.taken(),
            abi::TL_SEND => fields.send(),
            abi::TL_TRANSMIT => fields.transmit(),
            abi::TL_BLOCK_ISSUE => What::BlockIssue {
                request: x,
                bytes: y,
            },
            abi::TL_BLOCK_DONE => What::BlockDone {
                request: x,
                bytes: y,
            },
            kind @ (abi::TL_JVM_IN | abi::TL_JVM_OUT) => fields.jvm(kind == abi::TL_JVM_IN)?,
            abi::TL_TEXT => What::Text(twelve(bytes)),
            abi::TL_SPAN_IN => fields.span_in(),
            abi::TL_SPAN_OUT => fields.span_out(),
            abi::TL_SPAN => fields.span(),
            abi::TL_TICK => fields.tick(),
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
