//! What a picture of a request needs beside its gaps: which thread each CPU ran when, what ran on
//! top of that, and the wake-ups of the request's threads.
//!
//! A picture is bounded, however long the request took and however many CPUs there are: intervals
//! that are too short to be seen are left out, and counted.

use std::collections::BTreeMap;

use tailscope_signals::event::{Event, OnTop, What};

use crate::story::{Interval, Lane, Picture, Story, on_top_name};
use crate::trace::Trace;

/// The picture starts before the request, and ends after it, by its length divided by this.
const AROUND: u64 = 25;
/// An interval shorter than this part of the picture can't be seen beside another one.
const STEPS: u64 = 2000;
/// More intervals or arrows than this make a page that no browser shows quickly.
const MOST_INTERVALS: usize = 20_000;
const MOST_WAKE_UPS: usize = 1000;
/// More lanes than this are more than anybody scrolls through.
const MOST_CPUS: usize = 1024;

/// The picture of a story of this trace.
#[must_use]
pub fn picture(trace: &Trace, story: &Story) -> Picture {
    let around = (story.latency_ns / AROUND).max(1000);
    let from = story.begin_ns.saturating_sub(around);
    let to = story
        .begin_ns
        .saturating_add(story.latency_ns)
        .saturating_add(around);
    let mut threads: Vec<u32> = story.gaps.iter().map(|gap| gap.tid).collect();
    threads.push(story.tid);
    threads.sort_unstable();
    threads.dedup();
    threads.retain(|tid| *tid != 0);
    let mut seen = Seen::of(trace, from, to, &threads);
    let left_out = seen.thin(from, to);
    let after = |at: u64| at.wrapping_sub(story.begin_ns) as i64;
    let names = seen.cpus.values().flat_map(|cpu| &cpu.threads);
    let names = names
        .map(|bar| (bar.what, trace.thread(bar.what)))
        .collect();
    Picture {
        from_ns: after(from),
        to_ns: after(to),
        threads,
        names,
        cpus: seen
            .cpus
            .into_iter()
            .map(|(cpu, seen)| Lane {
                cpu,
                threads: intervals(seen.threads, after, |tid| tid),
                on_top: intervals(seen.on_top, after, |what| on_top_name(trace, what)),
            })
            .collect(),
        wake_ups: seen
            .wake_ups
            .iter()
            .map(|woken| (after(woken.at), woken.cpu, after(woken.runs), woken.on_cpu))
            .collect(),
        left_out,
    }
}

fn intervals<T, U>(
    bars: Vec<Bar<T>>,
    after: impl Fn(u64) -> i64,
    named: impl Fn(T) -> U,
) -> Vec<Interval<U>> {
    bars.into_iter()
        .map(|bar| (after(bar.from), bar.length(), named(bar.what)))
        .collect()
}

/// Something that lasted, in ns of the trace's clock.
#[derive(Debug, Clone, Copy)]
struct Bar<T> {
    from: u64,
    to: u64,
    what: T,
}

impl<T> Bar<T> {
    fn length(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// What was seen of one CPU.
#[derive(Debug, Default)]
struct Cpu {
    threads: Vec<Bar<u32>>,
    on_top: Vec<Bar<OnTop>>,
    current: Option<(u32, u64)>,
    open: Vec<(OnTop, u64)>,
}

/// A wake-up of one of the story's threads, to the moment when it ran.
#[derive(Debug, Clone, Copy)]
struct WakeUp {
    at: u64,
    cpu: u32,
    runs: u64,
    on_cpu: u32,
}

impl Cpu {
    /// The CPU as it was at a moment: the thread since the last switch, and what is on top of it.
    fn at(trace: &Trace, cpu: u32, from: u64) -> Self {
        let mut since = Vec::new();
        for event in trace.events_before(cpu, from) {
            let is_switch = matches!(event.what, What::Switch { .. });
            since.push(event);
            if is_switch {
                break;
            }
        }
        let mut found = Self::default();
        for event in since.into_iter().rev() {
            match event.what {
                What::Switch { to, .. } => found.current = Some((to, from)),
                What::Enter(on_top) => found.open.push((on_top, from)),
                What::Leave(on_top) => {
                    found.close(on_top);
                }
                _ => {}
            }
        }
        found
    }

    fn close(&mut self, on_top: OnTop) -> Option<u64> {
        let at = self.open.iter().rposition(|(other, _)| *other == on_top)?;
        let since = self.open[at].1;
        self.open.truncate(at);
        Some(since)
    }

    /// Ends the current thread's interval.
    fn leave(&mut self, now: u64) {
        if let Some((tid, from)) = self.current.take()
            && tid != 0
            && now > from
        {
            self.threads.push(Bar {
                from,
                to: now,
                what: tid,
            });
        }
    }

    fn take(&mut self, event: &Event, from: u64) {
        let now = event.at;
        match event.what {
            What::Switch { to, .. } => {
                if self.current.is_none() {
                    self.current = Some((event.tid, from));
                }
                self.leave(now);
                self.current = Some((to, now));
            }
            What::Enter(on_top) => self.open.push((on_top, now)),
            What::Leave(what) => {
                if let Some(from) = self.close(what)
                    && now > from
                {
                    self.on_top.push(Bar {
                        from,
                        to: now,
                        what,
                    });
                }
            }
            _ => {}
        }
    }
}

/// What was seen of all CPUs.
#[derive(Debug, Default)]
struct Seen {
    cpus: BTreeMap<u32, Cpu>,
    wake_ups: Vec<WakeUp>,
}

impl Seen {
    fn of(trace: &Trace, from: u64, to: u64, threads: &[u32]) -> Self {
        let mut seen = Self::default();
        for part in &trace.about.parts {
            let cpu = || Cpu::at(trace, part.cpu, from);
            seen.cpus.entry(part.cpu).or_insert_with(cpu);
        }
        let mut woken: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for (cpu, event) in trace.events_between(from, to) {
            match event.what {
                What::Switch { to: next, .. } => {
                    if let Some((at, by)) = woken.remove(&next) {
                        seen.wake_ups.push(WakeUp {
                            at,
                            cpu: by,
                            runs: event.at,
                            on_cpu: cpu,
                        });
                    }
                }
                What::Waking { thread, .. } if threads.contains(&thread) => {
                    woken.entry(thread).or_insert((event.at, cpu));
                }
                _ => {}
            }
            // Spans of the SDK have no CPU.
            if let Some(seen) = seen.cpus.get_mut(&cpu) {
                seen.take(&event, from);
            }
        }
        for cpu in seen.cpus.values_mut() {
            cpu.leave(to);
        }
        seen
    }

    fn intervals(&self) -> usize {
        let of = |cpu: &Cpu| cpu.threads.len() + cpu.on_top.len();
        self.cpus.values().map(of).sum()
    }

    /// Leaves out what can't be seen, in steps that grow until few enough intervals are left; returns
    /// how many it left out.
    fn thin(&mut self, from: u64, to: u64) -> u64 {
        let before = self.intervals() + self.wake_ups.len();
        if let Some(&last) = self.cpus.keys().nth(MOST_CPUS) {
            self.cpus.split_off(&last);
        }
        let length = to.saturating_sub(from).max(1);
        let mut step = length / STEPS;
        loop {
            for cpu in self.cpus.values_mut() {
                thin(&mut cpu.threads, from, step);
                thin(&mut cpu.on_top, from, step);
            }
            if self.intervals() <= MOST_INTERVALS || step > length {
                break;
            }
            step = step.saturating_mul(2).max(1);
        }
        if self.wake_ups.len() > MOST_WAKE_UPS {
            // The longest waits are why somebody looks.
            let waits = |woken: &WakeUp| std::cmp::Reverse(woken.runs.saturating_sub(woken.at));
            self.wake_ups.sort_by_key(waits);
            self.wake_ups.truncate(MOST_WAKE_UPS);
            self.wake_ups.sort_by_key(|woken| woken.at);
        }
        (before - self.intervals() - self.wake_ups.len()) as u64
    }
}

/// Of neighbours that are shorter than a step and start in the same step, keeps the longest.
fn thin<T: Copy>(bars: &mut Vec<Bar<T>>, from: u64, step: u64) {
    if step == 0 {
        return;
    }
    let place = |bar: &Bar<T>| bar.from.saturating_sub(from) / step;
    let mut kept: Vec<Bar<T>> = Vec::with_capacity(bars.len().min(MOST_INTERVALS));
    for &bar in bars.iter() {
        match kept.last_mut() {
            Some(last) if last.length().max(bar.length()) < step && place(last) == place(&bar) => {
                if bar.length() > last.length() {
                    *last = bar;
                }
            }
            _ => kept.push(bar),
        }
    }
    *bars = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_busy_cpus_make_a_bounded_picture_with_the_longest_intervals() {
        let mut seen = Seen::default();
        for cpu in 0..2000 {
            let bar = |at: u64| Bar {
                from: at * 20,
                to: at * 20 + 15,
                what: 1,
            };
            let mut threads: Vec<_> = (0..1000).map(bar).collect();
            threads[500].to += 5;
            let cpu_seen = Cpu {
                threads,
                ..Cpu::default()
            };
            seen.cpus.insert(cpu, cpu_seen);
        }
        let left_out = seen.thin(0, 20_000);
        assert_eq!(seen.cpus.len(), MOST_CPUS);
        assert!(seen.intervals() <= MOST_INTERVALS, "{}", seen.intervals());
        assert_eq!(seen.intervals() as u64 + left_out, 2_000_000);
        let longest = seen.cpus.values().map(|cpu| {
            let lengths = cpu.threads.iter().map(Bar::length);
            lengths.max().unwrap_or_default()
        });
        assert!(longest.into_iter().all(|ns| ns == 20));
    }
}
