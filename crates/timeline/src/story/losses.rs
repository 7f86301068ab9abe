//! What a trace lost, in words.

use crate::trace::Trace;

/// Since the window's begin.
pub(super) fn of_all(trace: &Trace) -> Vec<String> {
    let mut told: Vec<String> = shortage(trace).into_iter().collect();
    told.extend(between(trace, 0, u64::MAX));
    told
}

/// What is missing of a request, or may be, that went on from here to there.
pub(super) fn of_request(trace: &Trace, from: u64, to: u64) -> Vec<String> {
    let about = &trace.about;
    let mut told = Vec::new();
    if from < about.whole_from_ns() {
        told.extend(shortage(trace));
    }
    if from < about.from_ns {
        told.push(format!(
            "it started {:.3} s before the window; earlier events are missing",
            (about.from_ns - from) as f64 / 1e9
        ));
    }
    told.extend(between(trace, from, to));
    told
}

/// Where the memory did not reach as far back as the window.
fn shortage(trace: &Trace) -> Option<String> {
    let whole = trace.about.whole_from_ns();
    (whole > trace.about.from_ns).then(|| {
        format!(
            "the ring buffers are complete only from {} into the window; some earlier events are missing",
            into(trace, whole)
        )
    })
}

/// How far into the window a moment is.
fn into(trace: &Trace, at: u64) -> String {
    format!(
        "{:.3} s",
        at.saturating_sub(trace.about.from_ns) as f64 / 1e9
    )
}

/// Single events, between two moments.
fn between(trace: &Trace, from: u64, to: u64) -> Vec<String> {
    let about = &trace.about;
    let mut told = Vec::new();
    for gap in about
        .gaps
        .iter()
        .filter(|gap| gap.to_ns >= from && gap.from_ns <= to)
    {
        told.push(format!(
            "the kernel skipped {} events between {} and {} of the window",
            gap.events,
            into(trace, gap.from_ns),
            into(trace, gap.to_ns)
        ));
    }
    for gap in about
        .sdk_gaps
        .iter()
        .filter(|gap| gap.to_ns >= from && gap.from_ns <= to)
    {
        told.push(format!(
            "{} SDK spans that ended between {} and {} of the window are missing: their \
             process's buffer was full",
            gap.events,
            into(trace, gap.from_ns),
            into(trace, gap.to_ns)
        ));
    }
    let unwritten: u64 = about.parts.iter().map(|part| part.unwritten).sum();
    if unwritten > 0 && to >= about.to_ns.saturating_sub(1_000_000) {
        told.push(format!(
            "{unwritten} events were still being written when the window was read"
        ));
    }
    told
}
