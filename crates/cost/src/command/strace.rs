//! `strace`: two stops at each system call, whether it is shown or not.

use super::words::Given;
use super::{CommandError, Plan, Rate};

const TAKES: &[&str] = &[
    "-p",
    "--attach",
    "-e",
    "--trace",
    "-o",
    "--output",
    "-s",
    "--string-limit",
    "-a",
    "-b",
    "-E",
    "-I",
    "-O",
    "-P",
    "-S",
    "-u",
    "-U",
    "-X",
];

pub(super) fn read(words: &[String]) -> Result<Plan, CommandError> {
    let given = Given::read(words, TAKES);
    let mut plan = Plan::default();
    if given.has(&["--seccomp-bpf"]) {
        return Err(CommandError::Unreadable {
            tool: "strace",
            why: "--seccomp-bpf stops at some calls only, and not at all of a running process"
                .into(),
        });
    }
    let expressions = given.values(&["-e", "--trace"]);
    let named: Vec<String> = expressions
        .iter()
        .filter_map(|text| {
            let list = text.strip_prefix("trace=").unwrap_or(text);
            (!list.contains('=')).then_some(list)
        })
        .flat_map(|list| list.split(',').map(str::to_owned))
        .collect();
    let is_plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let kind = if given.has(&["-c", "--summary-only"]) {
        "strace.count"
    } else {
        "strace"
    };
    match named.as_slice() {
        [] => plan.hook("system calls", Rate::Syscalls(None), &[kind]),
        names if names.iter().all(|name| is_plain(name) && name != "all") => {
            let calls = named.clone();
            plan.hook(
                names.join(","),
                Rate::Syscalls(Some(calls.clone())),
                &[kind],
            );
            plan.hook(
                "other system calls",
                Rate::OtherSyscalls(calls),
                &["strace.count"],
            );
        }
        _ => {
            plan.hook("system calls", Rate::Syscalls(None), &[kind]);
            plan.notices
                .push("classes of calls (-e) are predicted as if all were shown".into());
        }
    }
    if !given.has(&["-f", "--follow-forks"]) {
        plan.notices
            .push("without -f strace stops one thread; the prediction is for all of them".into());
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;

    #[test]
    fn calls_that_are_not_shown_are_stopped_at_too() {
        let found = plan("strace -f -p 1 -e trace=openat,read").expect("it can be read");
        assert_eq!(found.hooks.len(), 2);
        assert_eq!(found.hooks[1].kinds, ["strace.count"]);
        let found = plan("strace -cfp 1").expect("it can be read");
        assert_eq!(found.hooks[0].kinds, ["strace.count"]);
        assert!(found.notices.is_empty(), "{:?}", found.notices);
    }
}
