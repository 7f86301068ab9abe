//! The figures of a budget of overhead.

use tailscope_trace::Overhead;

use super::page::Page;

/// How the budget of overhead is held.
pub(super) fn tell(overhead: &Overhead, page: &mut Page) {
    page.gauge(
        "tailscope_overhead_budget_ratio",
        "By which share the processes may be slower: overhead in [record].",
        overhead.budget,
    );
    let attached = overhead.attached_ns as f64 / overhead.whole_ns.max(1) as f64;
    page.gauge(
        "tailscope_attached_ratio",
        "The share of the time since the last (re)load for which the agent was attached.",
        attached,
    );
    page.family(
        "tailscope_overhead_ratio",
        "gauge",
        "By which share the processes are slower: measured, or predicted, with its 95 % interval.",
    );
    for (basis, of) in [
        ("measured", overhead.measured),
        ("predicted", overhead.predicted),
    ] {
        for (bound, share) in ["value", "low", "high"]
            .iter()
            .zip(of.into_iter().flatten())
        {
            page.labelled("", &[("basis", basis), ("bound", bound)], share);
        }
    }
}
