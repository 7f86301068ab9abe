//! Tailscope's own recorders: their hooks, and what their programs do at each.

use tailscope_kernel::{Hook as KernelHook, HookPlace};
use tailscope_record::{Ends, ProbeSource, SpanSource};

use super::{Hook, Plan, Rate};
use crate::statistics::Estimate;

/// What of a metered span's cost one that `--sample` passes over may have: from nothing to this.
const PASSED_OVER: f64 = 0.3;

/// A recording that has not begun.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Where its programs would be attached, but for the probes of its spans.
    pub hooks: Vec<KernelHook>,
    /// Where its spans come from.
    pub spans: Vec<SpanSource>,
    /// The share of the spans that it meters.
    pub sample: f64,
    /// Whether it writes fewer rows than it meters spans.
    pub keeps_less: bool,
    /// Whether stacks are sampled.
    pub stacks: bool,
}

/// What a program adds to its hook.
enum Adds {
    /// Nothing that is worth a kind.
    Nothing,
    /// This kind, for each hit.
    Each(&'static str),
    /// This kind, for the share of the hits that `--sample` selects.
    Selected(&'static str),
    /// What it takes is part of another hook's kind.
    Elsewhere,
}

/// What the programs in `crates/kernel/src/bpf` do. Where a pair of programs is timed together, it counts
/// at the second one.
fn adds(program: &str, followed: bool) -> Adds {
    let request = match followed {
        true => "record.request.followed",
        false => "record.request",
    };
    match program {
        "on_switch" if !followed => Adds::Each("record.switch"),
        "on_slice_switch" => Adds::Each("record.switch.followed"),
        "on_softirq_exit" | "on_irq_exit" | "on_vector_exit" => Adds::Each("record.interrupt"),
        "on_fault_event" | "on_fault_fexit" | "on_fault_kretprobe" => Adds::Each("record.fault"),
        _ if program.starts_with("on_fault_") => Adds::Elsewhere,
        _ if program.starts_with("on_") && program.ends_with("send") => Adds::Selected(request),
        _ => Adds::Nothing,
    }
}

/// What a recording would do.
#[must_use]
pub fn record(recording: &Recording) -> Plan {
    let mut plan = Plan::default();
    let followed = recording.spans.contains(&SpanSource::Request);
    for hook in &recording.hooks {
        kernel_hook(
            &mut plan,
            hook,
            adds(&hook.program, followed),
            recording.sample,
        );
    }
    for source in SpanSource::probes(&recording.spans) {
        probes(&mut plan, source, recording.sample);
    }
    if recording.spans.contains(&SpanSource::Sdk) {
        plan.hook("SDK spans", Rate::SdkSpans, &["record.sdk"]);
        select(&mut plan, recording.sample);
    }
    if recording.keeps_less {
        plan.notices.push(
            "it is predicted as if a row were written of each metered span: --keep, --tail and --budget \
             make it less"
                .into(),
        );
    }
    if recording.stacks {
        plan.notices.push(
            "a stack that is copied where a thread blocks in a span (--stacks) is not in the prediction"
                .into(),
        );
    }
    plan.notices.push(
        "the recorder's own CPU time is not in the prediction: it counts where no CPU is idle"
            .into(),
    );
    plan
}

/// What a timeline would do that is attached to these hooks: each of them writes an event.
#[must_use]
pub fn timeline(hooks: &[KernelHook]) -> Plan {
    let mut plan = Plan::default();
    for hook in hooks {
        let (name, rate) = place(&hook.place);
        plan.hook(name, rate, &["timeline.event"]);
    }
    plan.notices.push(
        "the recorder's own CPU time is not in the prediction: it counts where no CPU is idle"
            .into(),
    );
    plan
}

/// What sampling memory accesses would do. `rate`: samples a second of a thread's CPU time.
/// `watches`: whether it sets watchpoints. `phase`: whether it looks for callers.
#[must_use]
pub fn locality(rate: u32, watches: bool, phase: bool) -> Plan {
    let mut plan = Plan::default();
    let samples = Rate::PerCpuSecond(rate.into());
    plan.hook("samples of accesses", samples, &["sample.cpu-clock.stack"]);
    plan.hook("context switches", Rate::Switches, &["switch.sampled"]);
    if watches {
        plan.notices.push(
            "stops at debug registers are not in the prediction; there are none with --no-watch"
                .into(),
        );
    }
    if phase {
        plan.notices.push(
            "a sample with --phase copies four times as much of the stack as is predicted".into(),
        );
    }
    plan
}

fn kernel_hook(plan: &mut Plan, hook: &KernelHook, adds: Adds, sample: f64) {
    let (name, rate) = place(&hook.place);
    let way: &[&'static str] = match (&hook.place, &rate) {
        (HookPlace::Tracepoint(_), _) => &["record.hook"],
        (HookPlace::Clock(_), _) => &["sample.cpu-clock.bpf"],
        (_, Rate::PageFaults) => &[],
        _ => &["fentry"],
    };
    match adds {
        Adds::Elsewhere => {}
        Adds::Nothing => plan.hook(name, rate, way),
        Adds::Each(kind) => plan.hook(name, rate, &with(way, kind)),
        Adds::Selected(kind) if sample >= 1.0 => plan.hook(name, rate, &with(way, kind)),
        Adds::Selected(kind) => {
            plan.hook(name, rate.clone(), way);
            plan.hook("requests that are metered", rate, &[kind]);
            select(plan, sample);
        }
    }
}

fn with(way: &[&'static str], kind: &'static str) -> Vec<&'static str> {
    way.iter().copied().chain([kind]).collect()
}

/// What a place is called, and how often it is hit.
fn place(place: &HookPlace) -> (&str, Rate) {
    match place {
        HookPlace::Tracepoint(name) => (name, tracepoint(name)),
        HookPlace::PageFault => ("page faults", Rate::PageFaults),
        HookPlace::Function(name) if name == "handle_mm_fault" => (name, Rate::PageFaults),
        HookPlace::Function(name) => (name, Rate::KernelFunction(name.clone())),
        HookPlace::Clock(period_ns) => (
            "samples of stacks",
            Rate::PerCpuSecond(1e9 / *period_ns as f64),
        ),
    }
}

/// How often a tracepoint is hit. What both ends of something hit is counted at one.
fn tracepoint(name: &str) -> Rate {
    match name {
        "sched_switch" => Rate::Switches,
        "sys_enter" | "sys_exit" => Rate::Syscalls(None),
        "contention_end" => Rate::Tracepoint("contention_begin".into()),
        _ => Rate::Tracepoint(match name.strip_suffix("_exit") {
            Some(kind) if kind != "sched_process" => format!("{kind}_entry"),
            _ => name.to_owned(),
        }),
    }
}

/// The latest hook is hit by each span, and most of its cost is that of those that are metered.
fn select(plan: &mut Plan, sample: f64) {
    if let Some(Hook { share, .. }) = plan.hooks.last_mut() {
        *share = Estimate {
            value: sample + (1.0 - sample) * PASSED_OVER / 2.0,
            low: sample,
            high: sample + (1.0 - sample) * PASSED_OVER,
        };
    }
}

/// The probes of a source, as `cost` names them.
fn probes(plan: &mut Plan, source: &ProbeSource, sample: f64) {
    let file = &source.file;
    let (begin, end, way) = match &source.ends {
        Ends::Usdt {
            provider,
            begin,
            end,
        } => {
            let of = |name: &str| format!("usdt:{file}:{provider}:{name}");
            (of(&begin.symbol), of(&end.symbol), "usdt")
        }
        Ends::Functions { begin, end } => {
            let of = |name: &str| format!("uprobe:{file}:{name}");
            (of(&begin.symbol), of(&end.symbol), "uprobe")
        }
        Ends::Call(point) => {
            let of = format!("uprobe:{file}:{}", point.symbol);
            (of.clone(), of, "uretprobe")
        }
    };
    let first = if way == "uretprobe" { "uprobe" } else { way };
    plan.hook(begin.clone(), Rate::Probe(begin), &[first]);
    let name = match way {
        "uretprobe" => format!("return of {end}"),
        _ => end.clone(),
    };
    plan.hook(name, Rate::Probe(end.clone()), &[way]);
    plan.hook(
        format!("spans to {end}"),
        Rate::Probe(end),
        &["record.probe"],
    );
    if sample < 1.0 {
        select(plan, sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(program: &str, tracepoint: &str) -> KernelHook {
        KernelHook {
            program: program.into(),
            place: HookPlace::Tracepoint(tracepoint.into()),
        }
    }

    fn recording(spans: &[&str], sample: f64) -> Recording {
        let read = |text: &&str| text.parse().expect("it is a source");
        Recording {
            hooks: vec![
                at("on_switch", "sched_switch"),
                at("on_waking", "sched_waking"),
                at("on_softirq_exit", "softirq_exit"),
                at("on_exit", "sched_process_exit"),
                at("on_send", "sock_send_length"),
                at("on_fault_exception", "page_fault_user"),
                KernelHook {
                    program: "on_fault_event".into(),
                    place: HookPlace::PageFault,
                },
            ],
            spans: spans.iter().map(read).collect(),
            sample,
            keeps_less: false,
            stacks: false,
        }
    }

    fn named<'p>(plan: &'p Plan, name: &str) -> &'p Hook {
        let found = plan.hooks.iter().find(|hook| hook.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {plan:?}"))
    }

    #[test]
    fn each_hook_has_its_way_and_what_the_program_does() {
        let plan = record(&recording(&["syscall:ready..send"], 1.0));
        let switch = named(&plan, "sched_switch");
        assert_eq!(switch.rate, Rate::Switches);
        assert_eq!(switch.kinds, ["record.hook", "record.switch"]);
        assert_eq!(named(&plan, "sched_waking").kinds, ["record.hook"]);
        let send = named(&plan, "sock_send_length");
        assert_eq!(send.kinds, ["record.hook", "record.request"]);
        let softirq = named(&plan, "softirq_exit");
        assert_eq!(softirq.rate, Rate::Tracepoint("softirq_entry".into()));
        let exit = named(&plan, "sched_process_exit");
        assert_eq!(exit.rate, Rate::Tracepoint("sched_process_exit".into()));
    }

    #[test]
    fn a_page_fault_is_one_hook() {
        let plan = record(&recording(&["sdk"], 1.0));
        let faults = plan.hooks.iter().filter(|hook| hook.name.contains("fault"));
        assert_eq!(faults.count(), 1);
        assert_eq!(named(&plan, "page faults").rate, Rate::PageFaults);
    }

    #[test]
    fn requests_that_are_not_sampled_cost_less() {
        let plan = record(&recording(&["syscall:recv..send"], 0.01));
        let metered = named(&plan, "requests that are metered");
        assert_eq!(metered.kinds, ["record.request"]);
        assert!(metered.share.low == 0.01 && metered.share.high < 0.4);
        assert_eq!(named(&plan, "sock_send_length").share, Estimate::exact(1.0));
    }

    #[test]
    fn probes_are_counted_by_their_names() {
        let plan = record(&recording(
            &["uprobe:server:work", "usdt:server:app:a(id=arg0)..b"],
            1.0,
        ));
        let call = named(&plan, "return of uprobe:server:work");
        assert_eq!(call.kinds, ["uretprobe"]);
        assert_eq!(named(&plan, "usdt:server:app:a").kinds, ["usdt"]);
        let end = named(&plan, "spans to usdt:server:app:b");
        assert_eq!(end.rate, Rate::Probe("usdt:server:app:b".into()));
    }
}
