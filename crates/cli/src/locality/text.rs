//! The report of `tailscope locality` as text.

use std::fmt::Write;

use tailscope_locality::profile::groups::{Group, PhaseScope, SessionScope};
use tailscope_locality::profile::hot::Sharing;
use tailscope_locality::profile::interval::Share;
use tailscope_locality::report::{HotLine, LineField, LineUser, Part, Report};
use tailscope_locality::walk::{End, Unresolved};

use crate::units::count;

/// Rows of the tables of functions, threads and lines.
const ROWS: usize = 10;
/// Threads that are named of a line.
const USERS: usize = 4;
/// Members of variables and types that are named of a thread.
const FIELDS: usize = 3;
/// Columns of a name at least.
const NAME: usize = 24;

/// What was sampled and what was not first, then the tables.
pub fn report(report: &Report, width: usize) -> String {
    let mut text = String::new();
    sampled(&mut text, report);
    if report.counts.accesses == 0 {
        return text;
    }
    working_set(&mut text, report);
    groups(&mut text, report);
    let room = width.saturating_sub(57).max(NAME);
    parts(&mut text, "Functions", &report.functions, room);
    parts(&mut text, "Threads", &report.threads, room);
    lines(&mut text, "Hot lines", &report.hot);
    let title = "Lines that several threads use and at least one writes";
    lines(&mut text, title, &report.contended);
    if report.contended.is_empty() {
        let _ = writeln!(text, "\n{title}: none was seen.");
    }
    if !report.members_complete {
        let _ = writeln!(
            text,
            "\nTo look for members of variables and types took too long: some are not named."
        );
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn part_of(part: u64, all: u64) -> String {
    percent(part as f64 / all.max(1) as f64)
}

fn sampled(text: &mut String, report: &Report) {
    let counts = &report.counts;
    let user = counts.samples - counts.in_kernel;
    let _ = writeln!(
        text,
        "Process {}: {} samples in {:.1} s, {} accesses with a known address. {} of the samples in user \
         space have one. {} of all samples were in the kernel, where no access is seen.",
        report.pid,
        count(counts.samples),
        report.seconds,
        count(counts.accesses),
        part_of(counts.resolved, user),
        part_of(counts.in_kernel, counts.samples),
    );
    let unknown: u64 = counts.unresolved.iter().map(|(_, n)| n).sum();
    if unknown > 0 {
        let reasons = counts.unresolved.iter().filter(|(_, n)| *n > 0);
        let reasons: Vec<String> = reasons
            .map(|(why, n)| format!("{} {}", count(*n), reason(*why)))
            .collect();
        let _ = writeln!(
            text,
            "{} accesses on the way have no known address: {}.",
            count(unknown),
            reasons.join(", ")
        );
    }
    let walks: u64 = counts.ends.iter().map(|(_, n)| n).sum();
    let ends: Vec<String> = counts
        .ends
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(end, n)| format!("{} {}", part_of(*n, walks), end_of(*end)))
        .collect();
    if !ends.is_empty() {
        let _ = writeln!(text, "Walks from samples ended: {}.", ends.join(", "));
    }
    losses(text, report);
    let _ = writeln!(
        text,
        "Sampling took {:.2} s of CPU time itself. {} words were watched, with {} hits.",
        report.own_cpu_seconds,
        count(report.watch.words),
        count(report.watch.hits)
    );
    if let Some(why) = &report.watch.stopped {
        let _ = writeln!(text, "Watchpoints were given up: {why}.");
    }
}

fn losses(text: &mut String, report: &Report) {
    let counts = &report.counts;
    let losses = [
        (counts.lost, "samples found a ring full"),
        (counts.throttled, "times the kernel stopped a clock"),
        (counts.without_registers, "samples were of ending threads"),
        (counts.dropped, "samples and accesses found no room"),
        (counts.threads_left_out, "threads were not sampled"),
    ];
    let losses = losses.iter().filter(|(n, _)| *n > 0);
    let losses: Vec<String> = losses
        .map(|(n, what)| format!("{} {what}", count(*n)))
        .collect();
    if !losses.is_empty() {
        let _ = writeln!(text, "Lost: {}.", losses.join(", "));
    }
}

fn reason(why: Unresolved) -> &'static str {
    match why {
        Unresolved::Register => "depend on a value loaded after the sample",
        Unresolved::Segment => "are in thread-local memory (fs, gs)",
        Unresolved::Repeat => "are of string instructions",
        Unresolved::Gather => "are gathers or scatters",
        Unresolved::Masked => "are masked",
        Unresolved::Size => "have no fixed size",
    }
}

fn end_of(end: End) -> &'static str {
    match end {
        End::Steps => "after enough instructions",
        End::Branch => "at an unknown branch",
        End::Target => "at an unknown target",
        End::Kernel => "at a system call",
        End::Code => "at code that can't be read",
    }
}

fn working_set(text: &mut String, report: &Report) {
    let lines = &report.lines;
    let kib = |lines: f64| format!("{:.1} KiB", lines * 64.0 / 1024.0);
    let _ = writeln!(
        text,
        "\nWorking set: {} lines were seen, at least {:.0} exist (95 % interval {:.0} to {:.0}): {}.",
        count(lines.seen),
        lines.estimate,
        lines.low,
        lines.high,
        kib(lines.estimate),
    );
    let _ = writeln!(
        text,
        "The next sampled line would be a known one with probability {}.",
        percent(lines.coverage)
    );
}

fn groups(text: &mut String, report: &Report) {
    let _ = writeln!(
        text,
        "\n{:<32}{:>16}{:>16}{:>16}",
        "Groups of lines", "lines", "CPU time", "updates"
    );
    for group in &report.groups {
        let updates = group.updates.as_ref().map_or("-".into(), share);
        let _ = writeln!(
            text,
            "{:<32}{:>16}{:>16}{:>16}",
            name_of(group, report.phase.as_deref()),
            share(&group.lines),
            share(&group.time),
            updates
        );
    }
}

fn name_of(group: &Group, phase: Option<&str>) -> String {
    let session = match group.session {
        SessionScope::Local => "one thread",
        SessionScope::Global => "several threads",
    };
    match (phase, group.phase) {
        (None, _) => format!("used by {session}"),
        (Some(_), PhaseScope::Phase) => format!("in the phase only, {session}"),
        (Some(_), PhaseScope::Rest) => format!("outside only, {session}"),
        (Some(_), PhaseScope::Global) => format!("in both, {session}"),
    }
}

/// `12.3 % (±1.2)`.
fn share(share: &Share) -> String {
    match (share.low, share.high) {
        (Some(low), Some(high)) => {
            format!("{} (±{:.1})", percent(share.value), (high - low) * 50.0)
        }
        _ => percent(share.value),
    }
}

fn parts(text: &mut String, title: &str, parts: &[Part], room: usize) {
    let _ = writeln!(
        text,
        "\n{title:<room$}{:>15}{:>8}{:>9}{:>9}{:>15}",
        "CPU time", "lines", "loads", "stores", "updates"
    );
    for part in parts.iter().take(ROWS) {
        let name = match part.tid {
            Some(tid) => format!("{} ({tid})", part.name),
            None => part.name.clone(),
        };
        let _ = writeln!(
            text,
            "{:<room$}{:>15}{:>8}{:>9}{:>9}{:>15}",
            cut(&name, room - 1),
            share(&part.time),
            count(part.lines),
            count(part.reads),
            count(part.writes),
            share(&part.updates)
        );
    }
    if parts.len() > ROWS {
        let _ = writeln!(text, "and {} more (--json)", parts.len() - ROWS);
    }
}

/// A name in this many columns.
fn cut(name: &str, room: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    match letters.len() > room {
        true => letters[..room.saturating_sub(1)]
            .iter()
            .chain(&['…'])
            .collect(),
        false => name.to_owned(),
    }
}

fn lines(text: &mut String, title: &str, lines: &[HotLine]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    for line in lines.iter().take(ROWS) {
        let _ = writeln!(
            text,
            "  {} {}  {}  {}",
            line.address,
            line.what,
            share(&line.time),
            sharing(line.sharing)
        );
        for one in line.users.iter().take(USERS) {
            let _ = writeln!(text, "      {}", user(one));
        }
        if line.users.len() > USERS {
            let more = line.users.len() - USERS;
            let _ = writeln!(text, "      and {more} more threads (--json)");
        }
        let _ = writeln!(text, "      in {}", line.functions.join(", "));
        if line.watched[0] > 0 {
            let _ = writeln!(
                text,
                "      watched {} times: several threads touched the word {} times",
                line.watched[0], line.watched[1]
            );
        }
    }
    if lines.len() > ROWS {
        let _ = writeln!(text, "  and {} more (--json)", lines.len() - ROWS);
    }
}

fn user(user: &LineUser) -> String {
    let [first, behind] = user.bytes;
    let last = behind.saturating_sub(1);
    format!(
        "{} ({}): {} loads, {} stores, bytes {first} to {last}{}",
        user.name,
        user.tid,
        count(user.reads),
        count(user.writes),
        fields(&user.fields)
    )
}

/// `: stats.hits (long int), stats.misses (long int)`.
fn fields(fields: &[LineField]) -> String {
    let mut most: Vec<&LineField> = fields.iter().collect();
    most.sort_by_key(|field| std::cmp::Reverse(field.accesses));
    let named = most
        .iter()
        .take(FIELDS)
        .map(|field| match field.name == field.kind {
            true => field.name.clone(),
            false => format!("{} ({})", field.name, field.kind),
        });
    let named: Vec<String> = named.collect();
    match named.len() {
        0 => String::new(),
        _ => format!(": {}", named.join(", ")),
    }
}

fn sharing(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Private => "one thread",
        Sharing::ReadOnly => "shared, never written",
        Sharing::True => "TRUE SHARING: the same bytes",
        Sharing::False => "FALSE SHARING: different bytes of one line",
        Sharing::Unclear => "shared and written; too few samples to tell true from false sharing",
    }
}

#[cfg(test)]
mod tests;
