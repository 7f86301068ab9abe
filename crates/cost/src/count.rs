//! How often a command's hooks would be hit, counted for at most a second.
//!
//! Goal: rates with intervals, at a cost that the program does not feel. System calls and each probe are
//! counted in a few short windows, spread over the second, and a window ends early after so many
//! hits. Tracepoints are counted together, since attaching to one takes as long as a window; that ends
//! after so many hits of all. Spans of the SDK are counted by a recorder that meters one of a hundred
//! and keeps nothing: nothing else tells how many there are. Context switches, page faults and CPU time are read from `/proc`, at no
//! cost to the program.

mod spans;
mod stepped;
mod together;

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use tailscope_kernel::LoadError;
use tailscope_kernel::cost::{COUNTED_TOGETHER, Counts, syscall_number};

use crate::command::{Hook, Rate};
use crate::statistics::{Estimate, mean, student};
use crate::target::Target;

/// How long all of it may take.
const WHOLE: Duration = Duration::from_millis(900);
/// Windows of each tracepoint or probe.
const WINDOWS: u32 = 6;
/// Hits after which a window ends: of a tracepoint some 30 ns each, of a probe some 400.
const TRACEPOINT_HITS: u64 = 4_000;
const PROBE_HITS: u64 = 400;
/// The same where the kernel steps through the instruction, which takes microseconds.
const STEPPED_HITS: u64 = 15;
/// How often a window is looked at.
const LOOK: Duration = Duration::from_micros(300);

/// A probe's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A path that leads to the file.
    pub file: PathBuf,
    /// Where its instruction is in the file.
    pub offset: u64,
    /// Where its semaphore is, or 0.
    pub semaphore: u64,
}

/// How often one hook is hit.
#[derive(Debug, Clone, PartialEq)]
pub struct HookRate {
    /// Hits of the program a second.
    pub rate: Estimate,
    /// Whether the kernel steps through the instruction there.
    pub stepped: bool,
    /// Why it is not known, if it is not.
    pub unknown: Option<String>,
}

/// What was counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// For each hook.
    pub hooks: Vec<HookRate>,
    /// CPU time of the program, in seconds a second.
    pub cpu: f64,
    /// Threads that ran.
    pub threads: usize,
    /// What counting cost.
    pub effort: Effort,
}

/// What counting took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Effort {
    /// How long it took.
    pub seconds: f64,
    /// Hits of tracepoints that ran a counting program in the program's time.
    pub tracepoint_hits: u64,
    /// The same of probes.
    pub probe_hits: u64,
    /// The same of probes that the kernel steps through.
    pub stepped_hits: u64,
}

/// What is counted for a hook.
#[derive(Debug, Clone, PartialEq)]
enum Source {
    Free,
    Calls,
    Tracepoint(String),
    Probe(Vec<Place>),
    Spans,
    Unknown(String),
}

/// One window: hits, and how long it was.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    hits: u64,
    seconds: f64,
}

/// Counts. `resolve`: where a probe is.
///
/// # Errors
/// If the programs that count can't be loaded.
pub fn count(
    target: &Target,
    hooks: &[Hook],
    resolve: &dyn Fn(&str) -> Result<Vec<Place>, String>,
) -> Result<Counted, LoadError> {
    let sources: Vec<Source> = hooks.iter().map(|hook| source(hook, resolve)).collect();
    let needed: Vec<&Source> = distinct(&sources);
    let mut counts = Counts::load(&target.pids)?;
    let (begin, before) = (Instant::now(), target.read());
    let names = tracepoints(&sources);
    let mut effort = Effort::default();
    let share = if needed.is_empty() { 1 } else { 2 };
    let together = together::count(&mut counts, &names, WHOLE / share, &mut effort);
    let mut windows: Vec<Vec<(Window, Vec<u64>)>> = vec![Vec::new(); needed.len()];
    let mut failed: Vec<Option<String>> = vec![None; needed.len()];
    let spans = sources
        .contains(&Source::Spans)
        .then(|| spans::count(target));
    let numbers = wanted_numbers(hooks);
    let left = WHOLE.saturating_sub(begin.elapsed());
    let slots = (needed.len() as u32 * WINDOWS).max(1);
    for _ in 0..WINDOWS {
        for (number, source) in needed.iter().enumerate() {
            if failed[number].is_some() {
                continue;
            }
            match window(&mut counts, source, left / slots, &numbers, &mut effort) {
                Ok(one) => windows[number].push(one),
                Err(why) => failed[number] = Some(why),
            }
        }
    }
    sleep(WHOLE.saturating_sub(begin.elapsed()));
    let used = target.read().since(&before);
    let seconds = begin.elapsed().as_secs_f64();
    effort.seconds = seconds;
    let rates = hooks.iter().zip(&sources).map(|(hook, source)| {
        let place = needed.iter().position(|known| *known == source);
        if let Source::Tracepoint(name) = source {
            let place = names.iter().position(|known| known == name);
            return together::rate(place.map(|place| &together[place]));
        }
        if *source == Source::Spans {
            return spans.clone().unwrap_or_else(|| together::rate(None));
        }
        let why = match (source, place) {
            (Source::Unknown(why), _) => Some(why.clone()),
            (_, Some(place)) => failed[place].clone(),
            _ => None,
        };
        let rate = match (&hook.rate, place) {
            (Rate::PerCpuSecond(hz), _) => {
                Estimate::exact(*hz * used.cpu_ns as f64 / 1e9 / seconds)
            }
            (Rate::Switches, _) => poisson(used.switches, seconds),
            (Rate::PageFaults, _) => poisson(used.faults, seconds),
            (rate, Some(place)) => of_windows(&windows[place], rate, &numbers),
            _ => Estimate::exact(0.0),
        };
        HookRate {
            rate,
            stepped: stepped::is_stepped(source),
            unknown: why,
        }
    });
    Ok(Counted {
        hooks: rates.collect(),
        cpu: used.cpu_ns as f64 / 1e9 / seconds,
        threads: used.running,
        effort,
    })
}

fn source(hook: &Hook, resolve: &dyn Fn(&str) -> Result<Vec<Place>, String>) -> Source {
    match &hook.rate {
        Rate::PerCpuSecond(_) | Rate::Switches | Rate::PageFaults => Source::Free,
        Rate::Tracepoint(name) if name == "sys_enter" => Source::Calls,
        Rate::Tracepoint(name) => Source::Tracepoint(name.clone()),
        Rate::Syscalls(Some(names)) | Rate::OtherSyscalls(names) => {
            match names.iter().find(|name| syscall_number(name).is_none()) {
                Some(name) => Source::Unknown(format!("the system call '{name}' is not known")),
                None => Source::Calls,
            }
        }
        Rate::Syscalls(None) => Source::Calls,
        Rate::SdkSpans => Source::Spans,
        Rate::Probe(probe) => match resolve(probe) {
            Ok(places) => Source::Probe(places),
            Err(why) => Source::Unknown(why),
        },
        Rate::KernelFunction(name) => Source::Unknown(format!(
            "calls of the kernel's function {name} can't be counted without a probe on it"
        )),
    }
}

/// The tracepoints that are counted together, each once.
fn tracepoints(sources: &[Source]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for source in sources {
        if let Source::Tracepoint(name) = source
            && !names.contains(name)
            && names.len() < COUNTED_TOGETHER
        {
            names.push(name.clone());
        }
    }
    names
}

/// What has to be counted by itself, each once.
fn distinct(sources: &[Source]) -> Vec<&Source> {
    let mut needed: Vec<&Source> = Vec::new();
    for source in sources {
        let counts = matches!(source, Source::Calls | Source::Probe(_));
        if counts && !needed.contains(&source) {
            needed.push(source);
        }
    }
    needed
}

fn wanted_numbers(hooks: &[Hook]) -> Vec<u32> {
    let names = hooks.iter().filter_map(|hook| match &hook.rate {
        Rate::Syscalls(Some(names)) | Rate::OtherSyscalls(names) => Some(names),
        _ => None,
    });
    let mut numbers: Vec<u32> = names
        .flatten()
        .filter_map(|name| syscall_number(name))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn window(
    counts: &mut Counts,
    source: &Source,
    most: Duration,
    numbers: &[u32],
    effort: &mut Effort,
) -> Result<(Window, Vec<u64>), String> {
    let stepped = stepped::is_stepped(source);
    let at_first = counts.counted();
    let limit = match source {
        Source::Calls => {
            counts.system_calls()?;
            TRACEPOINT_HITS
        }
        Source::Probe(places) => {
            let place = places.first().ok_or("it has no place in the file")?;
            counts.probe(&place.file, place.offset, place.semaphore)?;
            if stepped { STEPPED_HITS } else { PROBE_HITS }
        }
        _ => return Err("it is not counted".into()),
    };
    // Attaching took some time, in which it was hit already.
    let calls =
        |counts: &Counts| -> Vec<u64> { numbers.iter().map(|n| counts.calls(*n)).collect() };
    let (begin, from, calls_from) = (Instant::now(), counts.counted(), calls(counts));
    let hits = loop {
        sleep(LOOK);
        let hits = counts.counted().ours - from.ours;
        if hits >= limit || begin.elapsed() >= most {
            break hits;
        }
    };
    let seconds = begin.elapsed().as_secs_f64();
    let calls_to = calls(counts);
    counts.stop();
    let all = counts.counted().ours - at_first.ours;
    match (source, stepped) {
        (Source::Calls, _) => effort.tracepoint_hits += all,
        (_, false) => effort.probe_hits += all,
        (_, true) => effort.stepped_hits += all,
    }
    let by_number = calls_to.iter().zip(&calls_from).map(|(to, from)| to - from);
    Ok((Window { hits, seconds }, by_number.collect()))
}

/// Hits a second of a hook from its source's windows.
fn of_windows(windows: &[(Window, Vec<u64>)], rate: &Rate, numbers: &[u32]) -> Estimate {
    let named = |names: &[String], by_number: &[u64]| -> u64 {
        let wanted: Vec<u32> = names
            .iter()
            .filter_map(|name| syscall_number(name))
            .collect();
        let pairs = numbers.iter().zip(by_number);
        pairs
            .filter(|(number, _)| wanted.contains(number))
            .map(|(_, hits)| hits)
            .sum()
    };
    let hits = |window: &Window, by_number: &[u64]| match rate {
        Rate::Syscalls(Some(names)) => named(names, by_number),
        Rate::OtherSyscalls(names) => window.hits.saturating_sub(named(names, by_number)),
        _ => window.hits,
    };
    let all: Vec<(u64, f64)> = windows
        .iter()
        .map(|(window, by_number)| (hits(window, by_number), window.seconds))
        .collect();
    combined(&all)
}

/// A rate from windows: all hits over all time, with an interval from the spread of the windows, and
/// at least that of counts that come by chance.
fn combined(windows: &[(u64, f64)]) -> Estimate {
    let hits: u64 = windows.iter().map(|(hits, _)| hits).sum();
    let seconds: f64 = windows.iter().map(|(_, seconds)| seconds).sum();
    let chance = poisson(hits, seconds);
    let rates: Vec<f64> = windows
        .iter()
        .map(|(hits, seconds)| *hits as f64 / seconds)
        .collect();
    let Some(spread) = mean(&rates) else {
        return chance;
    };
    let half = (spread.high - spread.low) / 2.0;
    Estimate {
        value: chance.value,
        low: chance.low.min(chance.value - half).max(0.0),
        high: chance.high.max(chance.value + half),
    }
}

/// Events that come by chance. Of none the upper end is what three in the time would be.
fn poisson(hits: u64, seconds: f64) -> Estimate {
    let (n, wide) = (hits as f64, student(usize::MAX).min(1.96));
    let seconds = seconds.max(1e-9);
    let high = if hits == 0 { 3.0 } else { n + wide * n.sqrt() };
    Estimate {
        value: n / seconds,
        low: (n - wide * n.sqrt()).max(0.0) / seconds,
        high: high / seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_counted_is_a_bound_and_not_0() {
        let found = combined(&[(0, 0.1), (0, 0.1), (0, 0.1)]);
        assert_eq!(found.value, 0.0);
        assert!((found.high - 10.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn windows_that_differ_widen_the_interval() {
        let same = combined(&[(1000, 0.1); 4]);
        let apart = combined(&[(100, 0.1), (1900, 0.1), (100, 0.1), (1900, 0.1)]);
        assert_eq!(same.value, apart.value);
        assert!(apart.high - apart.low > 5.0 * (same.high - same.low));
    }
}
