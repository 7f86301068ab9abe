//! Bars whose parts are letters, so that they are read without colours too.

use tailscope_record::Breakdown;
use tailscope_trace::Cause;

use super::line::{Ink, Line};

/// A part of a span's time: a cause, or `None` for what the span ran itself.
pub type Part = Option<Cause>;

/// All parts, in the order of the bars.
pub fn parts() -> impl Iterator<Item = Part> {
    Cause::ALL.into_iter().map(Some).chain([None])
}

/// The name of a part.
pub fn name(part: Part) -> &'static str {
    part.map_or("running", Cause::name)
}

/// What it is, in a few words.
pub fn meaning(part: Part) -> &'static str {
    match part {
        Some(Cause::Runqueue) => "waiting for a CPU that other threads had",
        Some(Cause::Preempted) => "preempted with work left",
        Some(Cause::Throttled) => "held back by a CPU quota",
        Some(Cause::Lock) => "waiting for a lock",
        Some(Cause::Io) => "waiting for a disk or the page cache",
        Some(Cause::Network) => "blocked in a socket, epoll or poll call",
        Some(Cause::Sleep) => "asleep, or blocked on something else",
        Some(Cause::Irq) => "interrupts on its CPU",
        Some(Cause::SoftirqNet) => "network packets handled on its CPU",
        Some(Cause::SoftirqTimer) => "kernel timers handled on its CPU",
        Some(Cause::SoftirqOther) => "other kernel work on its CPU",
        Some(Cause::Fault) => "page faults",
        Some(Cause::Steal) => "the hypervisor running something else",
        Some(Cause::Queue) => "ready while its thread did other work",
        Some(Cause::Stopped) => "stopped by a signal, a tracer or a freezer",
        Some(Cause::Reclaim) => "reclaiming memory for an allocation",
        Some(Cause::Tcp) => "TCP held back the end of the answer",
        Some(Cause::Accept) => "its connection waited to be accepted",
        Some(Cause::Unknown) => "unknown: no hook shows what it did or waited for",
        Some(Cause::Downstream) => "waiting for another server",
        None => "the span's own instructions",
    }
}

/// The letter of a part. No two differ only in case.
pub fn letter(part: Part) -> char {
    match part {
        Some(Cause::Runqueue) => 'R',
        Some(Cause::Preempted) => 'P',
        Some(Cause::Throttled) => 'T',
        Some(Cause::Lock) => 'L',
        Some(Cause::Io) => 'D',
        Some(Cause::Network) => 'N',
        Some(Cause::Sleep) => 'Z',
        Some(Cause::Irq) => 'I',
        Some(Cause::SoftirqNet) => 'X',
        Some(Cause::SoftirqTimer) => 'C',
        Some(Cause::SoftirqOther) => 'O',
        Some(Cause::Fault) => 'F',
        Some(Cause::Steal) => 'V',
        Some(Cause::Queue) => 'Q',
        Some(Cause::Stopped) => 'S',
        Some(Cause::Reclaim) => 'M',
        Some(Cause::Tcp) => 'K',
        Some(Cause::Accept) => 'A',
        Some(Cause::Unknown) => 'U',
        Some(Cause::Downstream) => 'W',
        None => '.',
    }
}

/// The sum of a part, in ns.
pub fn sum_ns(breakdown: &Breakdown, part: Part) -> f64 {
    part.map_or_else(
        || breakdown.running_ns(),
        |cause| breakdown.cause_ns[cause.index()],
    )
}

/// How many of `width` columns each part gets, by largest remainders; parts without any are left
/// out. Nothing where there is no time.
pub fn columns(breakdown: &Breakdown, width: usize) -> Vec<(Part, usize)> {
    let sums: Vec<_> = parts()
        .map(|part| (part, sum_ns(breakdown, part)))
        .collect();
    let all: f64 = sums.iter().map(|(_, ns)| ns).sum();
    if all <= 0.0 {
        return Vec::new();
    }
    let share = |ns: f64| ns / all * width as f64;
    let mut columns: Vec<_> = sums
        .iter()
        .map(|(part, ns)| (*part, share(*ns) as usize))
        .collect();
    let given: usize = columns.iter().map(|(_, n)| n).sum();
    let mut by_remainder: Vec<usize> = (0..sums.len()).collect();
    by_remainder.sort_by(|a, b| {
        share(sums[*b].1)
            .fract()
            .total_cmp(&share(sums[*a].1).fract())
    });
    for place in by_remainder.into_iter().take(width.saturating_sub(given)) {
        columns[place].1 += 1;
    }
    columns.retain(|(_, n)| *n > 0);
    columns
}

/// Adds a bar. Returns how long it is: as long as `width`, or 0.
pub fn draw(line: &mut Line, breakdown: &Breakdown, width: usize) -> usize {
    let mut drawn = 0;
    for (part, columns) in columns(breakdown, width) {
        drawn += columns;
        let text = letter(part).to_string().repeat(columns);
        line.push(text, Ink::Part(part));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_part_has_a_letter_of_its_own() {
        let letters: HashSet<_> = parts().map(|p| letter(p).to_ascii_lowercase()).collect();
        assert_eq!(letters.len(), parts().count());
    }

    proptest! {
        #[test]
        fn a_bar_is_as_long_as_asked_and_true_to_a_column(
            ns in proptest::array::uniform20(0.0..1e9f64),
            running in 0.0..1e9f64,
            width in 1..200usize,
        ) {
            let wall_ns = ns.iter().sum::<f64>() + running;
            prop_assume!(wall_ns > 0.0);
            let breakdown = Breakdown { spans: 1.0, wall_ns, cause_ns: ns };
            let columns = columns(&breakdown, width);
            prop_assert_eq!(columns.iter().map(|(_, n)| n).sum::<usize>(), width);
            for (part, n) in columns {
                let exact = sum_ns(&breakdown, part) / wall_ns * width as f64;
                prop_assert!((n as f64 - exact).abs() < 1.0 + 1e-6);
            }
        }
    }
}
