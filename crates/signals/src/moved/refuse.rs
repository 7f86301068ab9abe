//! What would make it unsafe to move a page, as far as `/proc` tells.
//!
//! All of this is looked at before anything is stopped. A kind of mapping that is not known to be
//! harmless is refused.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};

use super::Unmoved;

/// Flags of a mapping (`VmFlags` of smaps) that a page which was away and came back still has:
/// readable, writable, what it may become, accounted, soft-dirty.
const HARMLESS: [&str; 8] = ["rd", "wr", "mr", "mw", "me", "ac", "sd", "nr"];
/// So many more mappings have to fit below the kernel's limit.
const SPARE: usize = 64;

/// Nothing in sight forbids to move the page at an address.
pub(super) fn check(pid: u32, page: u64) -> Result<(), Unmoved> {
    status(pid)?;
    mapping(pid, page)?;
    asynchronous(pid)?;
    forks(pid)?;
    shares_memory(pid)
}

/// A number behind a name in a text like `/proc/PID/status`.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn status(pid: u32) -> Result<(), Unmoved> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| Unmoved::Gone)?;
    for task in tasks.flatten() {
        let Ok(text) = fs::read_to_string(task.path().join("status")) else {
            continue; // it ended meanwhile
        };
        let of = |name| number(&text, name).unwrap_or(0);
        if of("TracerPid:") != 0 {
            return Err(Unmoved::Traced(of("TracerPid:")));
        }
        if of("Seccomp:") != 0 {
            return Err(Unmoved::Seccomp);
        }
        if of("VmPin:") != 0 {
            return Err(Unmoved::Pinned);
        }
        let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if ignored.is_none_or(|mask| mask >> (libc::SIGTRAP - 1) & 1 == 1) {
            return Err(Unmoved::IgnoresTraps);
        }
        let state = text.lines().find_map(|line| line.strip_prefix("State:"));
        if state.is_some_and(|state| state.trim_start().starts_with('T')) {
            return Err(Unmoved::Stopped);
        }
    }
    Ok(())
}

/// What smaps says of one mapping.
#[derive(Debug, Default)]
struct Mapping {
    mode: String,
    name: String,
    /// kB: pages of it that are large, locked.
    huge: u64,
    locked: u64,
    /// kB: the size of its pages.
    page: u64,
    flags: Vec<String>,
}

fn mapping(pid: u32, page: u64) -> Result<(), Unmoved> {
    let file = File::open(format!("/proc/{pid}/smaps"))
        .map_err(|source| Unmoved::failed("read what it has mapped", source))?;
    let found = find(BufReader::new(file), page)?;
    let mapping = found.ok_or(Unmoved::Mapping("it is not mapped".into()))?;
    let count = fs::read_to_string(format!("/proc/{pid}/maps")).map_or(0, |t| t.lines().count());
    let most = fs::read_to_string("/proc/sys/vm/max_map_count");
    let most = most.ok().and_then(|text| text.trim().parse().ok());
    if most.is_some_and(|most: usize| count + SPARE > most) {
        return Err(Unmoved::Mapping("the process has too many mappings".into()));
    }
    reason(&mapping).map_or(Ok(()), |why| Err(Unmoved::Mapping(why)))
}

fn reason(mapping: &Mapping) -> Option<String> {
    if mapping.mode.ends_with('s') {
        return Some("it is shared already".into());
    }
    if mapping.mode != "rw-p" {
        return Some(format!(
            "its memory is {}, not plain data (rw-p)",
            mapping.mode
        ));
    }
    if mapping.name.starts_with("[stack") {
        return Some("it is in a stack".into());
    }
    if mapping.locked > 0 {
        return Some("it is locked in memory".into());
    }
    if mapping.huge > 0 || mapping.page > 64 {
        return Some("it is part of a huge page".into());
    }
    let other = |flag: &&String| !HARMLESS.contains(&flag.as_str());
    let flag = mapping.flags.iter().find(other)?;
    Some(match flag.as_str() {
        "lo" => "it is locked in memory".into(),
        "gd" => "it is in a stack".into(),
        "ht" => "it is part of a huge page".into(),
        "um" | "uw" | "ui" => "userfaultfd watches over it".into(),
        "sl" => "its mapping is sealed".into(),
        flag => format!("its mapping is of a special kind ({flag})"),
    })
}

/// The mapping around an address. What comes after it is not read: the kernel walks over all pages
/// for that.
fn find(smaps: impl BufRead, address: u64) -> Result<Option<Mapping>, Unmoved> {
    let mut found: Option<Mapping> = None;
    for line in smaps.lines() {
        let line = line.map_err(|source| Unmoved::failed("read what it has mapped", source))?;
        match (range(&line), &mut found) {
            (Some(_), Some(_)) => break,
            (Some((start, end)), None) if (start..end).contains(&address) => {
                let mut fields = line.split_whitespace().skip(1);
                found = Some(Mapping {
                    mode: fields.next().unwrap_or_default().to_owned(),
                    name: fields.nth(3).unwrap_or_default().to_owned(),
                    ..Mapping::default()
                });
            }
            (None, Some(mapping)) => mapping.learn(&line),
            _ => {}
        }
    }
    Ok(found)
}

impl Mapping {
    fn learn(&mut self, line: &str) {
        let of = |name| number(line, name);
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            self.flags = flags.split_whitespace().map(str::to_owned).collect();
        }
        self.huge += of("AnonHugePages:")
            .or_else(|| of("FilePmdMapped:"))
            .unwrap_or(0);
        self.locked += of("Locked:").unwrap_or(0);
        self.page += of("MMUPageSize:").unwrap_or(0);
    }
}

/// `START-END` at the begin of a line.
fn range(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    hex(start).zip(hex(end))
}

/// Devices may write into a page that the program gave them, while its threads stand still: only
/// those of asynchronous I/O can, for all other reading is over when a thread stops.
fn asynchronous(pid: u32) -> Result<(), Unmoved> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|_| Unmoved::Gone)?;
    if maps.lines().any(|line| line.contains("/[aio]")) {
        return Err(Unmoved::AsynchronousIo);
    }
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
        .map_err(|source| Unmoved::failed("read what it has open", source))?;
    for descriptor in descriptors.flatten() {
        let to = fs::read_link(descriptor.path()).unwrap_or_default();
        if to.to_string_lossy().contains("[io_uring]") {
            return Err(Unmoved::AsynchronousIo);
        }
    }
    Ok(())
}

/// It has children that run its own program: it may make another while its page is shared.
fn forks(pid: u32) -> Result<(), Unmoved> {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe"));
    let own = program(pid).map_err(|source| Unmoved::failed("see its program", source))?;
    let alike = |child: &u32| program(*child).is_ok_and(|program| program == own);
    match children(pid).into_iter().find(alike) {
        Some(child) => Err(Unmoved::Forks(child)),
        None => Ok(()),
    }
}

/// Its children.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let mut all = Vec::new();
    for task in tasks.into_iter().flatten().flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(
            text.split_whitespace()
                .filter_map(|id| id.parse::<u32>().ok()),
        );
    }
    all
}

/// Another process lives in the same memory: its threads would not be stopped.
fn shares_memory(pid: u32) -> Result<(), Unmoved> {
    const MEMORY: libc::c_int = 1; // KCMP_VM
    let processes = fs::read_dir("/proc").map_err(|e| Unmoved::failed("list processes", e))?;
    for process in processes.flatten() {
        let id = process.file_name().to_str().and_then(|n| n.parse().ok());
        let Some(other) = id.filter(|id: &u32| *id != pid) else {
            continue;
        };
        // SAFETY: a call of numbers alone.
        let order = unsafe { libc::syscall(libc::SYS_kcmp, pid, other, MEMORY, 0, 0) };
        let error = std::io::Error::last_os_error();
        match (order, error.raw_os_error()) {
            (0, _) => return Err(Unmoved::SharesMemory(other)),
            // Who may not be compared with belongs to another user; who is gone shares nothing.
            (-1, Some(libc::EPERM | libc::ESRCH | libc::EACCES)) | (1.., _) => {}
            _ => return Err(Unmoved::failed("compare its memory with others'", error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMAPS: &str = "\
00400000-00401000 r-xp 00000000 00:1 7  /bin/x
VmFlags: rd ex mr mw me
00601000-00603000 rw-p 00001000 00:1 7  /bin/x
AnonHugePages:         0 kB
Locked:                0 kB
MMUPageSize:           4 kB
VmFlags: rd wr mr mw me ac sd
7ff000-800000 rw-p 00000000 00:0 0  [stack]
VmFlags: rd wr mr mw me gd ac
";

    fn said(smaps: &str, address: u64) -> Option<String> {
        let found = find(smaps.as_bytes(), address).expect("text");
        reason(&found.expect("mapped"))
    }

    #[test]
    fn plain_data_may_be_moved() {
        assert_eq!(said(SMAPS, 0x0060_2008), None);
        assert!(find(SMAPS.as_bytes(), 0x0060_3000).expect("text").is_none());
    }

    #[test]
    fn what_is_no_plain_data_may_not() {
        let with = |from: &str, to: &str| said(&SMAPS.replace(from, to), 0x0060_1000);
        let told = |said: Option<String>, word: &str| said.is_some_and(|s| s.contains(word));
        assert!(told(said(SMAPS, 0x0040_0000), "r-xp"));
        assert!(told(said(SMAPS, 0x007f_f000), "stack"));
        assert!(told(with("ac sd", "ac lo"), "locked"));
        assert!(told(
            with("Locked:                0", "Locked: 4"),
            "locked"
        ));
        assert!(told(
            with("AnonHugePages:         0", "AnonHugePages: 2048"),
            "huge"
        ));
        assert!(told(with("ac sd", "ac um"), "userfaultfd"));
        assert!(told(with("ac sd", "ac dc"), "special kind (dc)"));
        assert!(told(with("rw-p", "rw-s"), "shared already"));
        assert!(told(with("rw-p", "rwxp"), "rwxp"));
    }

    #[test]
    fn our_own_children_and_memory_are_told() {
        let pid = std::process::id();
        assert!(shares_memory(pid).is_ok());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        assert!(children(pid).contains(&child.id()));
        child.kill().expect("ours");
        child.wait().expect("ours");
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(text: String, address: u64) {
            let _ = find(text.as_bytes(), address).map(|found| found.map(|m| reason(&m)));
        }
    }
}
