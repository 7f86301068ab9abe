//! `perf record`, `perf stat`, `perf trace`.

use super::words::Given;
use super::{CommandError, Machine, Plan, Rate};

const TAKES: &[&str] = &[
    "-F",
    "--freq",
    "-c",
    "--count",
    "-e",
    "--event",
    "-p",
    "--pid",
    "-t",
    "--tid",
    "-o",
    "--output",
    "-m",
    "--mmap-pages",
    "--call-graph",
    "-C",
    "--cpu",
    "-I",
    "--interval-print",
    "-u",
    "--uid",
    "-G",
    "--cgroup",
    "-D",
    "--delay",
    "--max-stack",
    "-r",
    "--repeat",
    "--duration",
    "--expr",
    "--filter",
    "--clockid",
    "--timeout",
];
/// What `perf record` takes without `-F`.
const DEFAULT_HZ: f64 = 4000.0;

fn unreadable(tool: &'static str, why: impl Into<String>) -> CommandError {
    CommandError::Unreadable {
        tool,
        why: why.into(),
    }
}

fn number(tool: &'static str, text: &str) -> Result<f64, CommandError> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|n| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| unreadable(tool, format!("'{text}' is not a number above 0")))
}

/// Events of `-e`, without their modifiers: `cycles:u` is `cycles`.
fn events<'g>(given: &'g Given, default: &'g str) -> Vec<&'g str> {
    let named = given.values(&["-e", "--event"]);
    let named = if named.is_empty() {
        vec![default]
    } else {
        named
    };
    named
        .into_iter()
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .collect()
}

/// The name of a tracepoint `group:name`; modifiers of other events are a few letters.
fn tracepoint(event: &str) -> Option<(&str, &str)> {
    let (group, name) = event.split_once(':')?;
    let is_modifier = name.chars().all(|letter| "ukhGHpPDSIWe".contains(letter));
    (!is_modifier && !event.contains('/')).then_some((group, name.split(':').next()?))
}

fn plain(event: &str) -> &str {
    event.split(':').next().unwrap_or(event)
}

/// `perf record`.
pub(super) fn record(words: &[String], machine: Machine) -> Result<Plan, CommandError> {
    const TOOL: &str = "perf record";
    let given = Given::read(words, TAKES);
    let mut plan = Plan::default();
    let chain = given.has(&["-g", "--call-graph"]);
    let default = if machine.has_cycles {
        "cycles"
    } else {
        "cpu-clock"
    };
    let mut samples = false;
    for event in events(&given, default) {
        if let Some((group, name)) = tracepoint(event) {
            by_tracepoint(&mut plan, group, name, "tracepoint.perf.sample");
            if given
                .value(&["-c", "--count"])
                .is_some_and(|count| count != "1")
            {
                plan.notices.push(format!(
                    "{event}: the prediction is for a sample at each hit; -c takes fewer"
                ));
            }
            continue;
        }
        let kind = match (plain(event), chain) {
            ("cpu-clock" | "task-clock", false) => "sample.cpu-clock",
            ("cpu-clock" | "task-clock", true) => "sample.cpu-clock.chain",
            ("cycles", false) if machine.has_cycles => "sample.cycles",
            ("cycles", _) if !machine.has_cycles => {
                plan.notices
                    .push("this machine counts no cycles: perf takes cpu-clock".into());
                if chain {
                    "sample.cpu-clock.chain"
                } else {
                    "sample.cpu-clock"
                }
            }
            _ => {
                return Err(unreadable(
                    TOOL,
                    format!("how often '{event}' samples is not known"),
                ));
            }
        };
        samples = true;
        let hz = match (
            given.value(&["-c", "--count"]),
            given.value(&["-F", "--freq"]),
        ) {
            (Some(period), None) if kind != "sample.cycles" => 1e9 / number(TOOL, period)?,
            (Some(_), _) => {
                return Err(unreadable(
                    TOOL,
                    "how often a count of cycles is reached is not known",
                ));
            }
            (None, Some("max")) => return Err(unreadable(TOOL, "-F max; name a frequency")),
            (None, Some(hz)) => number(TOOL, hz)?,
            (None, None) => DEFAULT_HZ,
        };
        if kind == "sample.cycles" {
            plan.notices.push(
                "the kernel re-tunes the period of cycles until it meets -F: the first samples come at \
                 another rate"
                    .into(),
            );
        }
        plan.hook(event, Rate::PerCpuSecond(hz), &[kind]);
    }
    let kind = if samples {
        "switch.sampled"
    } else {
        "switch.perf"
    };
    plan.hook("context switches", Rate::Switches, &[kind]);
    Ok(plan)
}

/// A tracepoint by perf. Those of one system call are hit by that call, and slow down all others.
fn by_tracepoint(plan: &mut Plan, group: &str, name: &str, kind: &'static str) {
    let call = name
        .strip_prefix("sys_enter_")
        .or(name.strip_prefix("sys_exit_"));
    match (group, call) {
        ("syscalls", Some(call)) => {
            let calls = vec![call.to_owned()];
            plan.hook(
                format!("{group}:{name}"),
                Rate::Syscalls(Some(calls.clone())),
                &[kind, "syscall.other"],
            );
            plan.hook(
                "other system calls",
                Rate::OtherSyscalls(calls),
                &["syscall.other"],
            );
        }
        ("raw_syscalls", _) => {
            plan.hook(
                format!("{group}:{name}"),
                Rate::Syscalls(None),
                &[kind, "syscall.other"],
            );
        }
        _ => plan.hook(
            format!("{group}:{name}"),
            Rate::Tracepoint(name.to_owned()),
            &[kind],
        ),
    }
}

/// `perf stat`.
pub(super) fn stat(words: &[String], machine: Machine) -> Result<Plan, CommandError> {
    let given = Given::read(words, TAKES);
    let mut plan = Plan::default();
    for event in events(&given, "task-clock") {
        if let Some((group, name)) = tracepoint(event) {
            by_tracepoint(&mut plan, group, name, "tracepoint.perf.count");
        }
    }
    plan.hook("context switches", Rate::Switches, &["switch.perf"]);
    if machine.has_cycles {
        plan.notices.push(
            "hardware counters are read and written at each switch too; that part is not predicted"
                .into(),
        );
    }
    Ok(plan)
}

/// `perf trace` has its reader woken at each sample, and what that takes is not measured. On virtual
/// machines it can be a hundred times the sample: then the sum is not known either.
const WAKEUP: &str = "perf.wakeup";

/// `perf trace`: perf samples the entry and the exit of each system call.
pub(super) fn trace(words: &[String]) -> Result<Plan, CommandError> {
    let given = Given::read(words, TAKES);
    let mut plan = Plan::default();
    plan.hook(
        "system calls",
        Rate::Syscalls(None),
        &["syscall.perf", WAKEUP],
    );
    plan.hook("context switches", Rate::Switches, &["switch.perf"]);
    if given.has(&["-F", "--pf"]) {
        plan.notices
            .push("page faults (-F) are not predicted".into());
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;

    fn hz(line: &str) -> f64 {
        let plan = plan(line).expect("it can be read");
        let rate = plan.hooks.iter().find_map(|hook| match hook.rate {
            Rate::PerCpuSecond(hz) => Some(hz),
            _ => None,
        });
        rate.expect("it samples")
    }

    #[test]
    fn rates_of_samples_are_read() {
        assert_eq!(hz("perf record -F 999 -g -p 1"), 999.0);
        assert_eq!(hz("perf record -p 1"), DEFAULT_HZ);
        assert_eq!(hz("perf record -e cpu-clock -c 500000 -p 1"), 2000.0);
        assert_eq!(hz("perf record -e cycles:u -F99"), 99.0);
    }

    #[test]
    fn chains_and_tracepoints_have_their_kinds() {
        let found = plan("perf record -F 99 -g -e cpu-clock,sched:sched_switch").expect("read");
        let kinds: Vec<_> = found.hooks.iter().map(|hook| hook.kinds.clone()).collect();
        assert_eq!(
            kinds,
            [
                vec!["sample.cpu-clock.chain"],
                vec!["tracepoint.perf.sample"],
                vec!["switch.sampled"]
            ]
        );
        let found = plan("perf stat -e syscalls:sys_enter_read").expect("read");
        assert_eq!(
            found.hooks[0].rate,
            Rate::Syscalls(Some(vec!["read".into()]))
        );
    }

    #[test]
    fn frequency_mode_of_a_hardware_event_is_a_notice() {
        let words = ["perf", "record", "-F", "99"].map(String::from);
        let found = super::super::read(&words, Machine { has_cycles: true }).expect("read");
        assert!(
            found
                .notices
                .iter()
                .any(|notice| notice.contains("re-tunes"))
        );
        assert_eq!(found.hooks[0].kinds, ["sample.cycles"]);
    }

    #[test]
    fn readers_that_are_woken_at_each_sample_are_not_predicted() {
        let found = plan("perf trace -p 1").expect("it can be read");
        assert!(found.hooks[0].kinds.contains(&WAKEUP));
    }

    #[test]
    fn what_has_no_known_rate_is_refused() {
        for line in [
            "perf record -e instructions",
            "perf record -F x",
            "perf record -F -1",
            "perf record -F max",
        ] {
            assert!(plan(line).is_err(), "{line}");
        }
    }
}
