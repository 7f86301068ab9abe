//! `bpftrace -e`: the probes that a script names, and roughly what it does at each.

use super::words::Given;
use super::{CommandError, Plan, Rate};

const TAKES: &[&str] = &["-e", "-p", "-c", "-o", "-f", "-B", "-I", "--include"];

fn unreadable(why: impl Into<String>) -> CommandError {
    CommandError::Unreadable {
        tool: "bpftrace",
        why: why.into(),
    }
}

pub(super) fn read(words: &[String]) -> Result<Plan, CommandError> {
    let given = Given::read(words, TAKES);
    let script = given.value(&["-e"]).ok_or_else(|| {
        unreadable("only scripts on the command line are read; write bpftrace -e 'SCRIPT'")
    })?;
    let mut plan = Plan::default();
    for (probes, body) in clauses(script)? {
        let does = payload(body);
        for probe in probes.split(',') {
            hook(&mut plan, probe.trim(), does)?;
        }
    }
    if plan.hooks.is_empty() {
        plan.notices
            .push("the script has no probe that is hit while it runs".into());
    }
    Ok(plan)
}

/// Each list of probes with its body: `a,b /filter/ { body }`.
fn clauses(script: &str) -> Result<Vec<(&str, &str)>, CommandError> {
    let mut found = Vec::new();
    let mut rest = script.trim();
    while !rest.is_empty() {
        let open = rest
            .find('{')
            .ok_or_else(|| unreadable(format!("no {{ after '{rest}'")))?;
        let close = closing(&rest[open..]).ok_or_else(|| unreadable("a { is not closed"))?;
        // A filter begins with a slash after a blank; paths in probes have no blank before theirs.
        let head = rest[..open].trim();
        let probes = head.find(" /").map_or(head, |at| &head[..at]);
        found.push((probes, &rest[open + 1..open + close]));
        rest = rest[open + close + 1..].trim_start();
    }
    Ok(found)
}

/// Where the brace that is first in the text is closed. Strings are passed over.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0, false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '{' if !in_string => depth += 1,
            '}' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// What the body does, as the kinds of cost have it.
fn payload(body: &str) -> Option<&'static str> {
    let prints = ["printf", "print(", "time(", "join(", "strftime", "system("];
    if prints.iter().any(|word| body.contains(word)) {
        Some("payload.ring")
    } else if body.contains('@') {
        Some("payload.map")
    } else {
        None
    }
}

fn hook(plan: &mut Plan, probe: &str, does: Option<&'static str>) -> Result<(), CommandError> {
    let with = |kinds: &[&'static str]| -> Vec<&'static str> {
        kinds.iter().copied().chain(does).collect()
    };
    let parts: Vec<&str> = probe.split(':').collect();
    if probe.contains('*') {
        return Err(unreadable(format!(
            "'{probe}' stands for many probes; name each of them"
        )));
    }
    match parts.as_slice() {
        ["BEGIN" | "END"] | ["interval" | "i", ..] => {}
        ["tracepoint" | "t", group, name] => tracepoint(plan, group, name, &with),
        ["rawtracepoint" | "rt", .., name] => {
            let rate = Rate::Tracepoint((*name).to_owned());
            plan.hook(probe, rate, &with(&["rawtracepoint"]));
        }
        ["profile" | "p", "hz", hz] => {
            let number = hz
                .parse::<f64>()
                .ok()
                .filter(|hz| hz.is_finite() && *hz > 0.0);
            let hz = number.ok_or_else(|| unreadable(format!("'{hz}' is not a frequency")))?;
            plan.hook(probe, Rate::PerCpuSecond(hz), &["sample.cpu-clock.bpf"]);
        }
        ["profile" | "p", unit, count] => {
            let factor = match *unit {
                "s" => 1.0,
                "ms" => 1e3,
                "us" => 1e6,
                _ => return Err(unreadable(format!("'{unit}' is not a unit of time"))),
            };
            let count = count.parse::<f64>().ok().filter(|count| *count >= 1.0);
            let count = count.ok_or_else(|| unreadable(format!("'{probe}' has no time")))?;
            plan.hook(
                probe,
                Rate::PerCpuSecond(factor / count),
                &["sample.cpu-clock.bpf"],
            );
        }
        ["uprobe" | "u", path, symbol] => {
            plan.hook(
                probe,
                Rate::Probe(format!("uprobe:{path}:{symbol}")),
                &with(&["uprobe"]),
            );
        }
        ["uretprobe" | "ur", path, symbol] => {
            plan.hook(
                probe,
                Rate::Probe(format!("uprobe:{path}:{symbol}")),
                &with(&["uretprobe"]),
            );
        }
        ["usdt" | "U", path, provider, name] => {
            let source = format!("usdt:{path}:{provider}:{name}");
            plan.hook(probe, Rate::Probe(source), &with(&["usdt"]));
        }
        ["kprobe" | "k", name] => {
            let rate = Rate::KernelFunction((*name).to_owned());
            plan.hook(probe, rate, &with(&["kprobe"]));
        }
        ["kfunc" | "fentry" | "f", .., name] => {
            let rate = Rate::KernelFunction((*name).to_owned());
            plan.hook(probe, rate, &with(&["fentry"]));
        }
        _ => {
            return Err(unreadable(format!(
                "the probe '{probe}' is of no known kind"
            )));
        }
    }
    Ok(())
}

/// A tracepoint; those of one system call slow down all others too.
fn tracepoint(
    plan: &mut Plan,
    group: &str,
    name: &str,
    with: &dyn Fn(&[&'static str]) -> Vec<&'static str>,
) {
    let shown = format!("tracepoint:{group}:{name}");
    let call = name
        .strip_prefix("sys_enter_")
        .or(name.strip_prefix("sys_exit_"));
    match (group, call) {
        ("syscalls", Some(call)) => {
            let calls = vec![call.to_owned()];
            plan.hook(
                shown,
                Rate::Syscalls(Some(calls.clone())),
                &with(&["syscall.named"]),
            );
            plan.hook(
                "other system calls",
                Rate::OtherSyscalls(calls),
                &["syscall.other"],
            );
        }
        ("raw_syscalls", _) => plan.hook(shown, Rate::Syscalls(None), &with(&["syscall"])),
        ("sched", None) if name == "sched_switch" => {
            plan.hook(shown, Rate::Switches, &with(&["switch"]))
        }
        _ => plan.hook(
            shown,
            Rate::Tracepoint(name.to_owned()),
            &with(&["tracepoint"]),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, read};
    use super::*;

    fn plan(script: &str) -> Result<Plan, CommandError> {
        let words = ["bpftrace", "-e", script].map(String::from);
        read(&words, Machine { has_cycles: false })
    }

    #[test]
    fn probes_are_read_with_what_they_do() {
        let script = "BEGIN { printf(\"{\"); } uprobe:/bin/x:work /pid == 7/ { @[tid] = count(); } \
                      profile:hz:99 { @ = count(); } tracepoint:syscalls:sys_enter_read {}";
        let found = plan(script).expect("it can be read");
        let hooks: Vec<_> = found
            .hooks
            .iter()
            .map(|hook| (&hook.rate, hook.kinds.clone()))
            .collect();
        assert_eq!(*hooks[0].0, Rate::Probe("uprobe:/bin/x:work".into()));
        assert_eq!(hooks[0].1, ["uprobe", "payload.map"]);
        assert_eq!(*hooks[1].0, Rate::PerCpuSecond(99.0));
        assert_eq!(hooks[2].1, ["syscall.named"]);
        assert_eq!(hooks[3].1, ["syscall.other"]);
    }

    #[test]
    fn what_prints_writes_into_a_ring() {
        let found =
            plan("usdt:/bin/x:p:begin { printf(\"%d\\n\", pid); }").expect("it can be read");
        assert_eq!(found.hooks[0].kinds, ["usdt", "payload.ring"]);
    }

    #[test]
    fn scripts_that_can_not_be_read_are_refused() {
        for script in [
            "uprobe:/x:*  {}",
            "uprobe:/x:f",
            "watchpoint:0x1:8:w {}",
            "uprobe:/x:f {",
        ] {
            assert!(plan(script).is_err(), "{script}");
        }
    }
}
