//! The highest rate of samples that stays within a budget.

use serde::Serialize;

use crate::calibration::Calibration;
use crate::count::Counted;
use crate::statistics::Estimate;

/// Bytes of a sample in perf's ring: its head and fields, and with a call chain of 30 frames.
const SAMPLE_BYTES: f64 = 48.0;
const CHAIN_BYTES: f64 = SAMPLE_BYTES + 8.0 * 32.0;
/// How long a ring should last, so that its reader is rarely woken.
const RING_SECONDS: f64 = 0.5;
/// perf's smallest ring, in pages of 4096 bytes.
const FEWEST_PAGES: u64 = 8;
const PAGE: f64 = 4096.0;

/// One way to sample within the budget.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The way, in words.
    pub way: String,
    /// The command, if the budget allows one.
    pub command: Option<String>,
    /// Samples a second of CPU time.
    pub per_second: f64,
    /// What it is predicted to cost.
    pub slowdown: Option<Estimate>,
    /// Why there is none, or what limits it.
    pub why: String,
}

/// Ways of sampling this process within a budget (a share of its CPU time), the upper end of what is
/// predicted being within it. `cache`: bytes of the cache that each CPU has to itself.
#[must_use]
pub fn advise(
    pid: u32,
    budget: f64,
    counted: &Counted,
    costs: &Calibration,
    cache: Option<u64>,
) -> Vec<Advice> {
    let has_cycles = costs.cost("sample.cycles").is_some();
    let (plain, event) = match has_cycles {
        true => ("sample.cycles", "cycles"),
        false => ("sample.cpu-clock", "cpu-clock"),
    };
    let mut ways = vec![
        sampling("a flat profile", plain, SAMPLE_BYTES, move |hz, pages| {
            format!("perf record -e {event} -F {hz} -m {pages} -p {pid}")
        }),
        sampling(
            "a profile with call chains",
            "sample.cpu-clock.chain",
            CHAIN_BYTES,
            move |hz, pages| format!("perf record -e cpu-clock -g -F {hz} -m {pages} -p {pid}"),
        ),
    ];
    ways.push(sampling(
        "a profile by bpftrace",
        "sample.cpu-clock.bpf",
        0.0,
        move |hz, _| {
            format!("bpftrace -e 'profile:hz:{hz} /pid == {pid}/ {{ @[ustack] = count(); }}'")
        },
    ));
    ways.into_iter()
        .map(|way| way(budget, counted, costs, cache))
        .collect()
}

type Way = Box<dyn Fn(f64, &Counted, &Calibration, Option<u64>) -> Advice>;

fn sampling(
    way: &'static str,
    kind: &'static str,
    bytes: f64,
    command: impl Fn(u64, u64) -> String + 'static,
) -> Way {
    Box::new(move |budget, counted, costs, cache| {
        let none = |why: String| Advice {
            way: way.to_owned(),
            command: None,
            per_second: 0.0,
            slowdown: None,
            why,
        };
        let Some(sample) = costs.cost(kind) else {
            return none(format!("no cost of {kind}: {}", costs.why_absent(kind)));
        };
        let switches = switching(counted, costs, kind);
        let left = budget - switches.high;
        // Of the time that it takes: 1 / (1 − share) − 1 is the budget.
        let hz = (left / (1.0 + left) / (sample.high * 1e-9)).floor();
        if left <= 0.0 || hz < 1.0 {
            return none(format!(
                "the event alone costs up to {:.2} % at the program's context switches",
                switches.high * 100.0
            ));
        }
        let limit = limit_of(costs);
        let (hz, why) = match limit {
            Some(limit) if limit < hz => (
                limit,
                "the kernel allows no more (perf_event_max_sample_rate)",
            ),
            _ => (hz, ""),
        };
        let share = sample.scaled(hz * 1e-9);
        let taken = |share: f64| 1.0 / (1.0 - share) - 1.0;
        let clock = Estimate {
            value: taken(share.value),
            low: taken(share.low),
            high: taken(share.high),
        };
        Advice {
            way: way.to_owned(),
            command: Some(command(hz as u64, pages(hz, bytes, cache))),
            per_second: hz,
            slowdown: Some(clock.plus(switches)),
            why: why.to_owned(),
        }
    })
}

/// What the event costs at context switches, as a share of the program's CPU time.
fn switching(counted: &Counted, costs: &Calibration, kind: &str) -> Estimate {
    let rate = counted
        .hooks
        .first()
        .map_or(Estimate::exact(0.0), |found| found.rate);
    // bpftrace's event is the CPU's, and nothing is done at a switch.
    let cost = costs
        .cost("switch.sampled")
        .filter(|_| !kind.ends_with("bpf"));
    let cost = cost.map_or(Estimate::exact(0.0), |cost| Estimate {
        value: cost.value.max(0.0),
        low: cost.low.max(0.0),
        high: cost.high.max(0.0),
    });
    rate.times(cost).scaled(1e-9 / counted.cpu.max(1e-3))
}

fn limit_of(costs: &Calibration) -> Option<f64> {
    let text = costs
        .machine
        .settings
        .get("kernel/perf_event_max_sample_rate")?;
    text.parse().ok()
}

/// Pages of the ring: what lasts for half a second, and no more than half of the CPU's own cache, as
/// the samples are written through it.
fn pages(hz: f64, bytes: f64, cache: Option<u64>) -> u64 {
    let wanted = (hz * bytes * RING_SECONDS / PAGE).ceil().max(1.0) as u64;
    let most = cache.map_or(u64::MAX, |cache| {
        (cache / 2 / PAGE as u64).max(FEWEST_PAGES)
    });
    let pages = wanted.next_power_of_two().max(FEWEST_PAGES);
    let mut fits = pages;
    while fits > most && fits > FEWEST_PAGES {
        fits /= 2;
    }
    fits
}

/// Bytes of the largest cache that one CPU has to itself, as the kernel shows it.
#[must_use]
pub fn own_cache() -> Option<u64> {
    let caches = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).ok();
    let of = |entry: std::fs::DirEntry| -> Option<u64> {
        let shared = read(entry.path().join("shared_cpu_list"))?;
        let kind = read(entry.path().join("type"))?;
        let size = read(entry.path().join("size"))?;
        let alone = shared.trim().chars().all(|letter| letter.is_ascii_digit());
        let holds_data = kind.trim() != "Instruction";
        let kib: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
        (alone && holds_data).then_some(kib * 1024)
    };
    caches.flatten().filter_map(of).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::KindCost;
    use crate::count::{Effort, HookRate};
    use crate::identity::Identity;

    fn costs(ns: f64) -> Calibration {
        let mut costs = Calibration::new(Identity::default(), 0);
        costs.kinds = ["sample.cpu-clock", "switch.sampled"]
            .map(|kind| KindCost {
                kind: kind.into(),
                ns: Estimate::exact(ns).widened(0.1),
                loops: 1.0,
                hits: 1,
                earlier: Vec::new(),
            })
            .into();
        costs
    }

    fn counted(switches: f64) -> Counted {
        Counted {
            hooks: vec![HookRate {
                rate: Estimate::exact(switches),
                stepped: false,
                unknown: None,
            }],
            cpu: 1.0,
            threads: 1,
            effort: Effort::default(),
        }
    }

    #[test]
    fn what_is_advised_stays_within_the_budget() {
        for budget in [0.001, 0.01, 0.2] {
            let ways = advise(1, budget, &counted(10.0), &costs(12_000.0), None);
            let slowdown = ways[0].slowdown.expect("it is possible");
            assert!(slowdown.high <= budget * 1.001, "{slowdown:?}");
            assert!(
                slowdown.high >= budget * 0.9 || budget < 0.01,
                "{slowdown:?}"
            );
        }
    }

    #[test]
    fn where_switches_use_the_budget_up_there_is_no_command() {
        let ways = advise(1, 0.01, &counted(1e6), &costs(12_000.0), None);
        assert!(
            ways[0].command.is_none() && ways[0].why.contains("switches"),
            "{ways:?}"
        );
        assert!(ways[1].why.contains("chain"), "{ways:?}");
    }

    #[test]
    fn rings_fit_into_the_cache() {
        assert_eq!(pages(1e6, SAMPLE_BYTES, Some(1 << 20)), 128);
        assert_eq!(pages(100.0, SAMPLE_BYTES, None), FEWEST_PAGES);
    }
}
