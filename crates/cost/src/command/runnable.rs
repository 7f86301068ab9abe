//! A command for a process, ready to run.

/// Adds the processes and, where the command names none, an output that nobody reads.
///
/// perf and strace attach to the processes that are named, and not to children that these have:
/// so all are named whose hits are predicted.
#[must_use]
pub fn runnable(words: &[String], pids: &[u32]) -> Vec<String> {
    let mut line: Vec<String> = words.to_vec();
    let tool = words
        .first()
        .map_or("", |tool| tool.rsplit('/').next().unwrap_or(tool));
    let has = |names: &[&str]| {
        words.iter().any(|word| {
            names.iter().any(|name| {
                word == name || name.starts_with("--") && word.starts_with(&format!("{name}="))
            })
        })
    };
    let whose = ["-p", "--pid", "-t", "--tid", "-a", "--all-cpus", "--attach"];
    let at = match tool {
        "perf" => 2,
        "strace" => 1,
        _ => return line,
    };
    let mut added = Vec::new();
    let combined = |letter: char| {
        // Flags in one word, as in `strace -cfp`.
        words
            .iter()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.ends_with(letter))
    };
    if !has(&whose) && !combined('p') {
        let list: Vec<String> = pids.iter().map(u32::to_string).collect();
        added.extend(["-p".to_owned(), list.join(",")]);
    }
    let writes = tool == "strace" || words.get(1).is_some_and(|word| word == "record");
    if writes && !has(&["-o", "--output"]) {
        added.extend(["-o", "/dev/null"].map(str::to_owned));
    }
    let at = at.min(line.len());
    line.splice(at..at, added);
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::split;

    #[test]
    fn a_process_and_an_output_are_added_where_none_is_named() {
        for (line, wanted) in [
            (
                "perf record -F 99 -g",
                "perf record -p 7,8 -o /dev/null -F 99 -g",
            ),
            ("perf record -p 5 -o x", "perf record -p 5 -o x"),
            ("perf stat -e cs", "perf stat -p 7,8 -e cs"),
            ("strace -c -f", "strace -p 7,8 -o /dev/null -c -f"),
            ("bpftrace -e x", "bpftrace -e x"),
        ] {
            let words = split(line).expect("no quotes");
            assert_eq!(runnable(&words, &[7, 8]).join(" "), wanted);
        }
    }
}
