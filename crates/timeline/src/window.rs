//! Writing a window of the rings to a file, while the rings go on.
//!
//! The file: eight bytes of magic, the events of each CPU as they are in its ring, the spans of the
//! SDK in the same way, what the trace says of itself ([`About`]) as JSON, that JSON's length in eight bytes, and the magic again. It is
//! written under another name and renamed, so a trace that is there is whole.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, BufWriter, Write};

use tailscope_output::Folder;
use tailscope_signals::event::{EVENT_BYTES, abi, at_of, kind_of};
use tailscope_signals::event_ring::EventRings;

use crate::about::{About, Part};

/// How a trace begins and ends.
pub(crate) const MAGIC: &[u8; 8] = b"TSTRACE1";

/// In a ring of our own events may lie so far from the order of their time, in ns: a span is read at
/// the next look after its end, and its thread may be held up before it is written.
const LATE_NS: u64 = 1_000_000_000;

/// After this number of events a thread that works may have the CPU: the kernel would let it wait for
/// 3 ms or more. Not a lower priority: where no CPU is idle, new events would overwrite those
/// that are still to be copied.
const TURN: u64 = 1 << 12;

/// Addresses of code that are named in a window, at most: the latest that ticks met.
const MOST_ADDRESSES: usize = 16_384;

/// Where ticks met a process.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// The first of them, in ns.
    pub(crate) first: u64,
    /// The addresses in its code.
    pub(crate) addresses: BTreeSet<u64>,
}

/// What ran in a window.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Threads, with their processes.
    pub(crate) threads: BTreeMap<u32, u32>,
    /// When a tick last met a process at an address.
    met: HashMap<(u32, u64), u64>,
    /// When the first tick met a process.
    first: HashMap<u32, u64>,
}

impl Seen {
    fn tick(&mut self, process: u32, at: u64, address: u64) {
        let first = self.first.entry(process).or_insert(at);
        *first = at.min(*first);
        let last = self.met.entry((process, address)).or_insert(at);
        *last = at.max(*last);
        // The slow request is at the end of its window, on any CPU.
        if self.met.len() >= 2 * MOST_ADDRESSES {
            let mut all: Vec<u64> = self.met.values().copied().collect();
            let (_, middle, _) = all.select_nth_unstable(MOST_ADDRESSES);
            let middle = *middle;
            self.met.retain(|_, at| *at > middle);
        }
    }

    /// Where ticks met processes.
    pub(crate) fn ran(&self) -> BTreeMap<u32, Ran> {
        let mut ran: BTreeMap<u32, Ran> = BTreeMap::new();
        for (process, address) in self.met.keys() {
            let of = ran.entry(*process).or_default();
            of.first = self.first[process];
            of.addresses.insert(*address);
        }
        ran
    }
}

/// Writes the events of `from_ns..to_ns`, of the CPUs' rings and of one of our own, and what `describe`
/// makes of the parts and of what ran in it.
pub(crate) fn write(
    (rings, own): (&EventRings, Option<&EventRings>),
    from_ns: u64,
    to_ns: u64,
    (folder, name): (&Folder, &str),
    describe: impl FnOnce(Vec<Part>, Option<Part>, &Seen) -> About,
) -> io::Result<About> {
    let unsealed = format!("{name}.tmp");
    let about = (|| {
        let mut file = BufWriter::with_capacity(1 << 20, folder.create(&unsealed)?);
        file.write_all(MAGIC)?;
        let mut offset = MAGIC.len() as u64;
        let mut seen = Seen::default();
        let mut parts = Vec::new();
        for cpu in 0..rings.cpus() {
            let first = first_since(rings, cpu, from_ns);
            let range = (first, from_ns, to_ns);
            let part = write_part(rings, cpu, range, &mut file, &mut seen)?;
            parts.push(Part { offset, ..part });
            offset += part.events * EVENT_BYTES as u64;
        }
        let spans = own.map(|own| {
            let first = first_since(own, 0, from_ns.saturating_sub(LATE_NS));
            let part = write_part(own, 0, (first, from_ns, to_ns), &mut file, &mut seen)?;
            io::Result::Ok(Part { offset, ..part })
        });
        let about = describe(parts, spans.transpose()?, &seen);
        let text = serde_json::to_vec(&about)?;
        file.write_all(&text)?;
        file.write_all(&(text.len() as u64).to_le_bytes())?;
        file.write_all(MAGIC)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        folder.rename(&unsealed, name)?;
        Ok(about)
    })();
    if about.is_err() {
        let _ = folder.remove(&unsealed);
    }
    about
}

/// The number of the first event that is not older than `from_ns`, about: found by halving, and
/// events of one CPU are out of order by as much as an interrupt takes.
fn first_since(rings: &EventRings, cpu: usize, from_ns: u64) -> u64 {
    let head = rings.head(cpu);
    let (mut low, mut high) = (head.saturating_sub(rings.slots()), head);
    while low < high {
        let middle = low + (high - low) / 2;
        let mut at = None;
        rings.read(cpu, middle, high.min(middle + 16), |_, bytes| {
            at = Some(at_of(bytes));
            false
        });
        match at {
            Some(at) if at >= from_ns => high = middle,
            _ => low = middle + 1,
        }
    }
    low
}

fn write_part(
    rings: &EventRings,
    cpu: usize,
    (first, from_ns, to_ns): (u64, u64, u64),
    file: &mut impl Write,
    all: &mut Seen,
) -> io::Result<Part> {
    let head = rings.head(cpu);
    let full = head > rings.slots();
    let mut failed = Ok(());
    let mut events = 0;
    let mut oldest = None;
    let mut seen = BTreeSet::new();
    let read = rings.read(cpu, first, head, |_, bytes| {
        let at = at_of(bytes);
        if (from_ns..to_ns).contains(&at) {
            oldest.get_or_insert(at);
            let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4"));
            match u32::from(kind_of(bytes)) {
                abi::TL_SWITCH if seen.insert(word(20)) => {
                    all.threads.insert(word(20), word(24));
                    all.threads.insert(word(12), word(28));
                }
                abi::TL_TICK => {
                    let address = u64::from(word(20)) | u64::from(word(24)) << 32;
                    all.threads.entry(word(12)).or_insert(word(28));
                    all.tick(word(28), at, address);
                }
                _ => {}
            }
            failed = file.write_all(bytes);
            events += 1;
            if events % TURN == 0 {
                std::thread::yield_now();
            }
        }
        failed.is_ok()
    });
    failed?;
    // Where the oldest that the ring still has is younger than was asked for, some are gone.
    let short = full && (read.overwritten > 0 || first <= head.saturating_sub(rings.slots()));
    Ok(Part {
        cpu: cpu as u32,
        offset: 0,
        events,
        from_ns: if short {
            oldest.unwrap_or(to_ns)
        } else {
            from_ns
        },
        overwritten: read.overwritten,
        unwritten: read.unwritten,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_addresses_are_named() {
        let mut seen = Seen::default();
        let all = 3 * MOST_ADDRESSES as u64;
        // CPUs are read one after the other: the latest ticks do not come last.
        for at in (0..all).rev() {
            seen.tick((at % 3) as u32, at, at);
        }
        let ran = seen.ran();
        assert!(ran.values().all(|of| of.first < 3));
        let kept: BTreeSet<u64> = ran.values().flat_map(|of| of.addresses.clone()).collect();
        assert!(kept.len() < 2 * MOST_ADDRESSES);
        assert!((all - MOST_ADDRESSES as u64 / 2..all).all(|at| kept.contains(&at)));
    }
}
