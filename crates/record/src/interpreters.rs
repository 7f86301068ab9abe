//! Where an interpreter keeps the lock by which one of its threads runs at a time. A thread that waits
//! there waits for its turn to run, also in the middle of a request. And where it keeps the functions
//! that its threads are in ([`layout`]), for stacks.
//!
//! CPython 3.7 and later has its lock (the GIL) in the exported variable `_PyRuntime`
//! (`Include/internal/pycore_runtime.h`). Its few other locks count as the GIL, too.
//!
//! A thread reads the files: slow or very large ones delay this thread alone.

mod code;
mod layout;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tailscope_process::Allowance;
use tailscope_process::maps::{self, Mapping};
use tailscope_process::rooted::FileKey;
use tailscope_signals::remote;
use tailscope_symbols::table::{self, Symbols};

pub(crate) use code::Function;
pub(crate) use layout::{CodeLayout, Layout, Memory};

/// Its variables, and the function that runs those of Python.
const RUNTIME: &str = "_PyRuntime";
const VERSION: &str = "Py_Version";
const CODE_TYPE: &str = "PyCode_Type";
const RUNS: &str = "_PyEval_EvalFrameDefault";
/// How the names of files begin in which the interpreter may be: programs, the library, uWSGI's own. Others
/// have it in the midst: `_socket.cpython-311-x86_64-linux-gnu.so`.
const NAMES: [&str; 3] = ["python", "libpython", "uwsgi"];
/// Larger files are not searched.
const MOST_BYTES: u64 = 256 << 20;
/// The most files of a process that are looked at.
const MOST_CANDIDATES: usize = 8;
/// The most files that are remembered.
const MOST_FILES: usize = 1024;
/// The most processes that wait to be looked into.
const QUEUE: usize = 1024;
/// How long all processes together may keep a recording from its begin.
const PATIENCE: Duration = Duration::from_millis(500);
/// The share of all time that the searches take, and the time at once.
const SHARE: f64 = 0.02;
const AT_ONCE: Duration = Duration::from_millis(500);

/// An interpreter in a process.
#[derive(Debug, Clone)]
pub(crate) struct Interpreter {
    /// Where it keeps its lock.
    pub(crate) lock: Range<u64>,
    /// Where it keeps the functions that its threads are in; `None`: that is not known of its version.
    pub(crate) layout: Option<Layout>,
}

/// A process's memory, read by a system call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryOf(pub(crate) u32);

impl Memory for MemoryOf {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        remote::read(self.0, address, into)
    }
}

/// Looks into processes.
#[derive(Debug)]
pub(crate) struct Interpreters {
    asks: SyncSender<u32>,
    answers: Receiver<(u32, Option<Interpreter>)>,
    /// Processes without an answer yet; false: it has run another program since, so the answer is stale.
    asked: HashMap<u32, bool>,
    patience: Duration,
    /// Processes in which one was found.
    known: HashSet<u32>,
}

impl Interpreters {
    /// Starts the thread, which ends some time after this is dropped.
    pub(crate) fn start() -> io::Result<Self> {
        let (asks, asked) = sync_channel(QUEUE);
        let (answer, answers) = channel();
        let search = move || {
            let mut files = Files::default();
            let mut allowance = Allowance::new(SHARE, AT_ONCE);
            while let Ok(pid) = asked.recv() {
                let begun = Instant::now();
                if answer.send((pid, files.interpreter_of(pid))).is_err() {
                    return;
                }
                allowance.add(begun.elapsed());
                thread::sleep(allowance.debt());
            }
        };
        thread::Builder::new()
            .name("interpreters".into())
            .spawn(search)?;
        Ok(Self {
            asks,
            answers,
            asked: HashMap::new(),
            patience: PATIENCE,
            known: HashSet::new(),
        })
    }

    /// Has a process looked into, unless one was found there. If too many wait, it goes without.
    pub(crate) fn ask(&mut self, pid: u32) {
        let is_new = !self.known.contains(&pid) && !self.asked.contains_key(&pid);
        if is_new && self.asks.try_send(pid).is_ok() {
            self.asked.insert(pid, true);
        }
    }

    /// What is [found](Self::found), after some time for those that have just been asked for.
    pub(crate) fn found_soon(&mut self) -> Vec<(u32, Interpreter)> {
        let begun = Instant::now();
        let mut found = Vec::new();
        while !self.asked.is_empty() {
            let left = self.patience.saturating_sub(begun.elapsed());
            let Ok(answer) = self.answers.recv_timeout(left) else {
                break;
            };
            found.extend(self.take(answer));
        }
        self.patience = self.patience.saturating_sub(begun.elapsed());
        found
    }

    /// The process has ended, or runs another program.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.known.remove(&pid);
        if let Some(is_valid) = self.asked.get_mut(&pid) {
            *is_valid = false;
        }
    }

    /// The processes in which one was found since the last time.
    pub(crate) fn found(&mut self) -> Vec<(u32, Interpreter)> {
        let answers: Vec<_> = self.answers.try_iter().collect();
        let found = answers.into_iter().filter_map(|answer| self.take(answer));
        found.collect()
    }

    fn take(&mut self, answer: (u32, Option<Interpreter>)) -> Option<(u32, Interpreter)> {
        let (pid, found) = answer;
        let is_valid = self.asked.remove(&pid).unwrap_or(false);
        let found = found.filter(|_| is_valid)?;
        self.known.insert(pid);
        Some((pid, found))
    }
}

/// The thread's side: the files that were searched, and what each has of an interpreter.
#[derive(Debug, Default)]
struct Files(HashMap<Key, Option<Symbols>>);

/// A file, and the time of its last change.
type Key = (FileKey, i64, i64);

impl Files {
    fn interpreter_of(&mut self, pid: u32) -> Option<Interpreter> {
        let maps = maps::read(pid).ok()?;
        let mut seen = HashSet::new();
        let candidates = maps
            .iter()
            .filter(|mapping| mapping.code && is_named(mapping.name()));
        let candidates = candidates.filter(|mapping| seen.insert(mapping.file));
        for mapping in candidates.take(MOST_CANDIDATES) {
            let first = maps.iter().find(|other| other.file == mapping.file);
            let Some(symbols) = self.symbols_of(pid, mapping) else {
                continue;
            };
            let bias = symbols.bias(first.unwrap_or(mapping))?;
            let place = |name: &str| {
                let symbol = symbols.all.iter().find(|symbol| symbol.name == name)?;
                let start = symbol.address.wrapping_add(bias);
                Some(start..start.saturating_add(symbol.size))
            };
            let lock = place(RUNTIME)?;
            let layout = || {
                let runs = place(RUNS)?;
                let addresses = layout::Addresses {
                    runtime: lock.start,
                    version: place(VERSION)?.start,
                    code_type: place(CODE_TYPE)?.start,
                    runs: (runs.start, runs.end),
                };
                layout::of(&addresses, &MemoryOf(pid))
            };
            let layout = layout();
            return Some(Interpreter { lock, layout });
        }
        None
    }

    fn symbols_of(&mut self, pid: u32, mapping: &Mapping) -> Option<&Symbols> {
        let file = mapping.open(pid).ok()?;
        let about = file.metadata().ok()?;
        if self.0.len() >= MOST_FILES {
            self.0.clear();
        }
        self.0
            .entry((mapping.file, about.ctime(), about.ctime_nsec()))
            .or_insert_with(|| runtime_in(&file, about.len()))
            .as_ref()
    }
}

fn is_named(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| NAMES.iter().any(|begin| name.starts_with(begin)))
}

/// An interpreter's symbols, if the file has one.
fn runtime_in(file: &File, bytes: u64) -> Option<Symbols> {
    if bytes > MOST_BYTES {
        return None;
    }
    let wanted = [RUNTIME, VERSION, CODE_TYPE, RUNS];
    let mut symbols = table::named(file, |name| wanted.contains(&name)).ok()?;
    let mut seen = HashSet::new(); // the same may stand in two tables
    symbols
        .all
        .retain(|symbol| seen.insert(symbol.name.clone()));
    seen.contains(RUNTIME).then_some(symbols)
}

/// Memory of a process with CPython, from address 0 on.
#[cfg(fuzzing)]
pub fn fuzz_memory(bytes: &[u8]) {
    code::fuzz(bytes);
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_lock_of_python_lies_in_its_own_memory() {
        let mut python = Command::new("python3")
            .args(["-c", "print(flush=True); input()"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let mut line = String::new();
        let mut output = BufReader::new(python.stdout.take().expect("a pipe"));
        output.read_line(&mut line).expect("it runs");
        let mut files = Files::default();
        let found = files.interpreter_of(python.id()).expect("Python has it");
        let lock = found.lock;
        let maps = maps::read(python.id()).expect("its maps");
        let holds = |at: u64| {
            maps.iter()
                .any(|m| m.writable && m.addresses().contains(&at))
        };
        assert!(holds(lock.start) && holds(lock.end - 1), "{lock:?}");
        assert_eq!(
            files.interpreter_of(python.id()).map(|known| known.lock),
            Some(lock),
            "the file is known now"
        );
        let mut input = python.stdin.take().expect("a pipe");
        input.write_all(b"\n").expect("it ends");
        python.wait().expect("it ends");
    }

    #[test]
    fn modules_of_an_interpreter_are_not_mistaken_for_it() {
        let named = |path: &str| is_named(Path::new(path));
        assert!(named("/usr/bin/python3.11") && named("/usr/lib/libpython3.11.so.1.0"));
        assert!(named("/usr/bin/uwsgi-core"));
        assert!(!named(
            "/usr/lib/python3.11/_socket.cpython-311-x86_64-linux-gnu.so"
        ));
    }

    #[test]
    fn other_programs_have_none_and_are_not_read() {
        let mut files = Files::default();
        assert!(files.interpreter_of(std::process::id()).is_none());
        assert!(files.interpreter_of(u32::MAX).is_none());
        assert!(files.0.is_empty());
    }
}
