//! What the ledger says of a recording before its first row.

use std::collections::BTreeMap;

use tailscope_kernel::{Kernel, Measurement, SocketSpans};
use tailscope_signals::clock::{Clock, unix_ns};
use tailscope_trace::{Cause, CauseSet, Link, Metadata, Rung, StackSampling};

use crate::counting::Counting;
use crate::options::period_ns;
use crate::{Options, SpanSource, machine};

/// Which causes this machine measures in this recording.
pub(crate) fn measured(kernel: &Kernel, steal: bool, sockets: Option<SocketSpans>) -> CauseSet {
    let mechanisms = kernel.mechanisms();
    let from_ready = sockets == Some(SocketSpans::FromReady);
    let slices = sockets == Some(SocketSpans::Slices);
    Cause::ALL
        .into_iter()
        .filter(|cause| match cause {
            // The scheduler's tracepoints, without which nothing is recorded, measure these.
            Cause::Runqueue
            | Cause::Preempted
            | Cause::Lock
            | Cause::Io
            | Cause::Network
            | Cause::Sleep
            | Cause::Stopped => true,
            Cause::Throttled => mechanisms.measures(Measurement::Throttled),
            Cause::Irq => mechanisms.measures(Measurement::Irq),
            Cause::SoftirqNet | Cause::SoftirqTimer | Cause::SoftirqOther => {
                mechanisms.measures(Measurement::Softirq)
            }
            Cause::Fault => mechanisms.measures(Measurement::Fault),
            Cause::Reclaim => mechanisms.measures(Measurement::Reclaim),
            Cause::Steal => steal,
            Cause::Queue => from_ready || slices,
            Cause::Downstream => slices,
            Cause::Tcp => (from_ready || slices) && mechanisms.measures(Measurement::Ready),
            Cause::Accept => {
                (from_ready || slices)
                    && mechanisms.measures(Measurement::Ready)
                    && mechanisms.measures(Measurement::Connections)
            }
            Cause::Unknown => sockets.is_some(),
        })
        .collect()
}

/// What is known when it begins.
pub(crate) fn metadata(
    options: &Options,
    kernel: &Kernel,
    clock: &Clock,
    steal: bool,
    counting: &Counting,
) -> Metadata {
    let mut mechanisms: BTreeMap<String, Rung> = kernel
        .mechanisms()
        .iter()
        .map(|(of, mechanism)| {
            let hook = mechanism.hook.map(str::to_owned);
            (
                of.name().to_owned(),
                Rung {
                    rung: hook,
                    why: mechanism.why.clone(),
                },
            )
        })
        .collect();
    mechanisms.insert("steal".into(), steal_rung(steal));
    if !options.spans.contains(&SpanSource::Request) {
        mechanisms.insert("downstream".into(), no_downstream());
    }
    if !options.counters.is_empty() {
        mechanisms.insert("counters".into(), counting.rung());
    }
    Metadata {
        tailscope: env!("CARGO_PKG_VERSION").into(),
        started_ns: unix_ns(),
        machine: machine::describe(),
        clock: tailscope_trace::Clock {
            source: if cfg!(target_arch = "x86_64") {
                "tsc"
            } else {
                "cntvct"
            }
            .into(),
            hz: clock.hz() as f64,
        },
        command: options.command.clone(),
        spans: options.spans.iter().map(ToString::to_string).collect(),
        sample: options.sample,
        keep: options.keep.others,
        tail: options.keep.tail,
        budget: options.keep.budget,
        ladder: mechanisms,
        counters: counting.columns(),
        links: links(options),
        stacks: options.stacks.map(|rate| StackSampling {
            period_ns: period_ns(rate),
        }),
    }
}

/// Why a recording of other spans than requests does not say what they waited for.
fn no_downstream() -> Rung {
    Rung {
        rung: None,
        why: "only --span request measures it".into(),
    }
}

/// What joins spans of the ledger with other records.
fn links(options: &Options) -> Vec<Link> {
    let mut links = Vec::new();
    if options.spans.contains(&SpanSource::Request) {
        links.extend(Link::CHAIN);
        if options.traces {
            links.extend(Link::TRACE);
        }
    }
    links
}

/// How stolen time is measured here, for the ledger and for `doctor`.
fn steal_rung(told: bool) -> Rung {
    if told {
        Rung {
            rung: Some("/proc/stat per CPU and 100 ms, shared out by running time".into()),
            why: "the kernel does not export its own steal_time".into(),
        }
    } else {
        Rung {
            rung: None,
            why: "/proc/stat has shown none since boot: no hypervisor, or it does not report any"
                .into(),
        }
    }
}
