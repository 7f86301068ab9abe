//! Who is to blame, by name: the numbers that episodes carry are those of threads, interrupt
//! lines, vectors and softirqs (`src/bpf/shared.h`).
//!
//! Of a thread only its name and its process's are known (what `ps -o comm` shows): no arguments,
//! no paths.

use std::cell::OnceCell;
use std::fs;

use libbpf_rs::{MapCore, MapFlags, Object};

use crate::probes;
use crate::shared::{self, Plain};

/// x86's vectors that have tracepoints (`arch/x86/include/asm/irq_vectors.h`).
const VECTORS: &[(u16, &str)] = &[
    (0xec, "local timer"),
    (0xf4, "deferred error"),
    (0xf6, "irq work"),
    (0xf7, "platform ipi"),
    (0xf9, "threshold"),
    (0xfa, "thermal"),
    (0xfb, "function call"),
    (0xfc, "function call"),
    (0xfd, "reschedule"),
    (0xfe, "error"),
    (0xff, "spurious"),
];

/// The kernel's softirqs by their number (`include/linux/interrupt.h`).
const SOFTIRQS: &[&str] = &[
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

const OTHER: u16 = shared::WHO_OTHER as u16;
const IDLE: u16 = shared::WHO_IDLE as u16;
/// An interrupt ended the wait: of a timer, of a device, or of a packet that made room. Or a signal did.
pub const BY_INTERRUPT: u16 = shared::WHO_INTERRUPT as u16;
const PACKETS: u16 = shared::WHO_PACKETS as u16;
const FREEZER: u16 = shared::WHO_FREEZER as u16;
const THREAD: u16 = shared::WHO_THREAD as u16;
const IRQ: u16 = shared::WHO_IRQ as u16;
const VECTOR: u16 = shared::WHO_VECTOR as u16;
const SOFTIRQ: u16 = shared::WHO_SOFTIRQ as u16;

/// The names that the kernel's programs have given numbers to, as they are at one look.
pub struct Names<'k> {
    object: &'k Object,
    /// The table of threads, read when the first is asked for.
    threads: OnceCell<Vec<u8>>,
}

impl<'k> Names<'k> {
    pub(crate) fn of(object: &'k Object) -> Self {
        Self {
            object,
            threads: OnceCell::new(),
        }
    }

    /// The name that an argument of a probe gave, by its number; `None` for one of too many.
    #[must_use]
    pub fn text(&self, number: u16) -> Option<String> {
        probes::text(self.object, number)
    }

    /// The name of who is to blame, by the number in a row; `None` if nobody has that number yet.
    /// A number keeps its name.
    #[must_use]
    pub fn blamed(&self, who: u16) -> Option<String> {
        match who {
            OTHER => Some("(other)".into()),
            IDLE => Some("(idle)".into()),
            BY_INTERRUPT => Some("(interrupt)".into()),
            PACKETS => Some("(packets)".into()),
            FREEZER => Some("(cgroup freezer)".into()),
            THREAD..IRQ => self.thread(usize::from(who - THREAD)),
            IRQ..VECTOR => Some(line(who - IRQ)),
            VECTOR..SOFTIRQ => Some(vector(who - VECTOR)),
            SOFTIRQ.. => Some(softirq(who - SOFTIRQ)),
            _ => None,
        }
    }

    fn thread(&self, place: usize) -> Option<String> {
        let table = self.threads.get_or_init(|| {
            let map = self.object.maps().find(|map| map.name() == ".bss.blamed");
            map.and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?)
                .unwrap_or_default()
        });
        let at = place * size_of::<shared::blamed>();
        let blamed = shared::blamed::from_bytes(table.get(at..)?)?;
        (blamed.state == shared::BLAMED_READY).then(|| {
            let name = thread_name(&text(&blamed.comm), &text(&blamed.process));
            match u32::from(blamed.process[blamed.process.len() - 1]) {
                shared::BLAMED_HAD_TURN => format!("{name} (GIL)"),
                _ => name,
            }
        })
    }
}

/// Whether the number is a thread's.
#[must_use]
pub fn is_thread(who: u16) -> bool {
    who == OTHER || (THREAD..IRQ).contains(&who)
}

/// `process/thread`, or one of them if they are the same.
fn thread_name(thread: &str, process: &str) -> String {
    if thread == process || process.is_empty() {
        thread.to_owned()
    } else {
        format!("{process}/{thread}")
    }
}

/// A name of the kernel's. Whoever gave it to the thread chose its bytes: what could move a
/// terminal's cursor is shown as a question mark.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).replace(
        |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER,
        "?",
    )
}

fn line(irq: u16) -> String {
    let table = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    device(&table, irq).map_or_else(|| format!("irq {irq}"), str::to_owned)
}

/// The device of an interrupt line in `/proc/interrupts`: the last word of its line, which has
/// further devices before it, each with a comma, if they share it.
fn device(table: &str, irq: u16) -> Option<&str> {
    let cpus = table.lines().next()?.split_whitespace().count();
    table.lines().skip(1).find_map(|row| {
        let (number, rest) = row.trim_start().split_once(':')?;
        if number.parse() != Ok(irq) {
            return None;
        }
        rest.split_whitespace().skip(cpus).last()
    })
}

/// The name of one of the CPU's vectors: timer, IPI, …
#[must_use]
pub fn vector(number: u16) -> String {
    VECTORS
        .iter()
        .find(|(known, _)| *known == number)
        .map_or_else(|| format!("vector {number:#x}"), |(_, name)| (*name).into())
}

/// The name of a softirq.
#[must_use]
pub fn softirq(number: u16) -> String {
    SOFTIRQS
        .get(usize::from(number))
        .map_or_else(|| format!("softirq {number}"), |name| (*name).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "           CPU0       CPU1
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 38:          0      27195 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:          0          3
NMI:          0          0   Non-maskable interrupts
ERR:          0
";

    #[test]
    fn a_line_is_named_for_its_device() {
        assert_eq!(device(TABLE, 38), Some("virtio2-input.0"));
        assert_eq!(device(TABLE, 24), Some("ACPI:Ged"));
        assert_eq!(device(TABLE, 39), None);
        assert_eq!(device(TABLE, 3), None);
        assert_eq!(device("", 3), None);
    }

    #[test]
    fn a_thread_is_named_with_its_process_where_they_differ() {
        assert_eq!(thread_name("stress-ng", "stress-ng"), "stress-ng");
        assert_eq!(thread_name("worker-3", "memcached"), "memcached/worker-3");
        assert_eq!(thread_name("kworker/0:1", ""), "kworker/0:1");
    }

    #[test]
    fn a_name_can_do_a_terminal_no_harm() {
        assert_eq!(text(b"\x1b[2Jx\0\0junk"), "?[2Jx");
        assert_eq!(text(b"0123456789abcdef"), "0123456789abcdef");
        assert_eq!(text(b"\xff\0"), "?");
    }

    #[test]
    fn unknown_numbers_have_names_too() {
        assert_eq!(vector(0xec), "local timer");
        assert_eq!(vector(0x30), "vector 0x30");
        assert_eq!(softirq(3), "NET_RX");
        assert_eq!(softirq(12), "softirq 12");
    }
}
