//! The kinds of hooks whose cost is measured, by the names that they have in files and tables.

/// What the hits of a kind are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// One hit, in words.
    pub hit: &'static str,
}

/// Every kind that some machine has, in the order of a table.
///
/// A BPF program's cost is that of its hook, where it does nothing, and that of what it does
/// (`payload`): the body of a program takes the same wherever it is attached.
pub const KINDS: &[Kind] = &[
    kind("sample.cpu-clock", "a sample of perf's cpu-clock"),
    kind("sample.cpu-clock.chain", "the same with its call chain"),
    kind(
        "sample.cpu-clock.stack",
        "the same with registers and 4 KiB of its stack, as locality takes it",
    ),
    kind(
        "sample.cpu-clock.bpf",
        "the same, handed to a BPF program that counts in a map",
    ),
    kind("sample.cycles", "a sample of the hardware's cycles"),
    kind(
        "sample.precise",
        "a sample that the processor takes itself (PEBS, IBS)",
    ),
    kind(
        "tracepoint",
        "a tracepoint with an empty BPF program, through perf",
    ),
    kind("tracepoint.perf.count", "a tracepoint that perf counts"),
    kind(
        "tracepoint.perf.sample",
        "a tracepoint that perf samples with its fields",
    ),
    kind(
        "rawtracepoint",
        "a raw tracepoint with an empty BPF program",
    ),
    kind(
        "uprobe",
        "a function's entry with an empty BPF program; the instruction is emulated",
    ),
    kind(
        "uprobe.stepped",
        "the same on an instruction that the kernel steps through",
    ),
    kind("uretprobe", "a function's return with an empty BPF program"),
    kind(
        "usdt",
        "a USDT probe (one-byte no-op) with an empty BPF program",
    ),
    kind("usdt.nop5", "the same on a five-byte no-op"),
    kind(
        "fentry",
        "a function of the kernel with an empty BPF program, by fentry",
    ),
    kind("kprobe", "the same by kprobe"),
    kind(
        "payload.map",
        "what a BPF program adds that counts in a map, by thread",
    ),
    kind(
        "payload.ring",
        "what a BPF program adds that writes 64 bytes into a ring",
    ),
    kind(
        "syscall",
        "a system call while an empty BPF program is on raw_syscalls:sys_enter",
    ),
    kind(
        "syscall.named",
        "a system call with an empty BPF program on its own entry tracepoint",
    ),
    kind(
        "syscall.other",
        "another system call while that one is hooked",
    ),
    kind(
        "syscall.perf",
        "a system call whose entry and exit perf samples",
    ),
    kind(
        "switch",
        "a context switch with an empty BPF program on sched_switch",
    ),
    kind(
        "switch.perf",
        "a context switch of a thread with a perf event that counts",
    ),
    kind("switch.sampled", "the same with perf's cpu-clock"),
    kind(
        "record.hook",
        "a hook of record, hit by a program that it does not record",
    ),
    kind(
        "record.switch",
        "what record adds at a context switch of a recorded thread",
    ),
    kind("record.switch.followed", "a switch with --span request"),
    kind(
        "record.request",
        "what record adds to a request that it sees at a socket",
    ),
    kind("record.request.followed", "a request with --span request"),
    kind(
        "record.interrupt",
        "what record adds to an interrupt or softirq of a recorded thread",
    ),
    kind(
        "record.fault",
        "what record takes at a page fault of a recorded thread, with the hook",
    ),
    kind(
        "record.probe",
        "what record adds to the two probes of a span",
    ),
    kind(
        "record.sdk",
        "a span of the SDK for C or Rust that record keeps",
    ),
    kind(
        "timeline.event",
        "an event that timeline writes for a watched thread, with its hook",
    ),
    kind("strace", "a system call that strace prints"),
    kind("strace.count", "a system call that strace -c counts"),
];

const fn kind(name: &'static str, hit: &'static str) -> Kind {
    Kind { name, hit }
}

impl Kind {
    /// The kind of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_name_and_words() {
        for each in [|kind: &Kind| kind.name, |kind: &Kind| kind.hit] {
            let mut words: Vec<_> = KINDS.iter().map(each).collect();
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len(), KINDS.len());
        }
    }
}
