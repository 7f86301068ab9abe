//! Where a program's library for TLS hands over what it has decrypted: there the names of its requests
//! are, and with what it is given to encrypt the frames of HTTP/2.
//!
//! The files are those that processes have mapped, opened as such, and only their own symbols count.
//! A thread reads them: slow or very large ones delay this thread alone.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tailscope_kernel::{Kernel, TlsCall};
use tailscope_process::owner;
use tailscope_symbols::table;

use crate::Process;

/// OpenSSL's and BoringSSL's functions.
const CALLS: [TlsCall; 5] = [
    call("SSL_read", false, false),
    call("SSL_read_ex", false, true),
    call("SSL_read_early_data", false, true),
    call("SSL_write", true, false),
    call("SSL_write_ex", true, true),
];

const fn call(name: &'static str, writes: bool, tells_bytes: bool) -> TlsCall {
    TlsCall {
        name,
        writes,
        tells_bytes,
    }
}

/// The most files that get probes, and those that one user's processes may bring.
const MOST_FILES: usize = 64;
const MOST_OF_USER: usize = 16;
/// The most places of a function in a file: more than one are local functions of the same name.
const MOST_PLACES: usize = 8;
/// Larger files are not searched.
const MOST_BYTES: u64 = 1 << 30;
/// The most files without such functions that are remembered.
const MOST_OTHERS: usize = 4096;
/// The most processes that wait to be looked into.
const QUEUE: usize = 1024;
/// How long all processes together may keep a recording from its begin.
const PATIENCE: Duration = Duration::from_secs(2);

type Functions = Vec<(TlsCall, Vec<u64>)>;

/// What was found in a process.
#[derive(Debug)]
struct Answer {
    pid: u32,
    program: PathBuf,
    /// Files that nobody has found before.
    new: Vec<(File, Functions)>,
    found: Found,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    TooMany,
    Library,
}

/// Looks into processes, and attaches to what they have.
#[derive(Debug)]
pub(crate) struct TlsLibraries {
    asks: SyncSender<u32>,
    answers: Receiver<Answer>,
    /// How many have not been answered yet.
    pending: usize,
    /// Processes of whose requests over TLS it is known already.
    in_use: HashSet<u32>,
    patience: Duration,
    /// Files in which only the functions that read have probes so far: HTTP/1 needs no others.
    reading: Vec<(File, Functions)>,
    /// Whether those that write have some, too.
    writes: bool,
}

impl TlsLibraries {
    /// Starts the thread, which ends some time after this is dropped.
    pub(crate) fn start() -> io::Result<Self> {
        let (asks, asked) = sync_channel(QUEUE);
        let (answer, answers) = channel();
        let search = move || {
            let mut files = Files::default();
            while let Ok(pid) = asked.recv() {
                if answer.send(files.search(pid)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("tls-files".into())
            .spawn(search)?;
        Ok(Self {
            asks,
            answers,
            pending: 0,
            in_use: HashSet::new(),
            patience: PATIENCE,
            reading: Vec::new(),
            writes: false,
        })
    }

    /// Has a process looked into before its requests come in, and waits some time for that.
    pub(crate) fn prepare(&mut self, kernel: &mut Kernel, pid: u32) -> Vec<String> {
        let begun = Instant::now();
        let mut notices = Vec::new();
        self.ask(pid);
        while self.pending > 0 {
            let left = self.patience.saturating_sub(begun.elapsed());
            let Ok(answer) = self.answers.recv_timeout(left) else {
                break;
            };
            notices.extend(self.take(kernel, answer));
        }
        self.patience = self.patience.saturating_sub(begun.elapsed());
        notices
    }

    /// Requests over TLS came in in these processes. Returns what a person should know.
    pub(crate) fn attach(&mut self, kernel: &mut Kernel, in_use: &[u32]) -> Vec<String> {
        for pid in in_use {
            if self.ask(*pid) {
                self.in_use.insert(*pid);
            }
        }
        let answers: Vec<Answer> = self.answers.try_iter().collect();
        let notices = answers.into_iter();
        notices
            .filter_map(|answer| self.take(kernel, answer))
            .collect()
    }

    /// Requests came in over HTTP/2: what is sent shows where each ends. Returns what a person should
    /// know, the first time.
    pub(crate) fn attach_to_writes(
        &mut self,
        kernel: &mut Kernel,
    ) -> Option<Result<String, String>> {
        let mut why = None;
        for (file, functions) in self.reading.drain(..) {
            why = attach_to(kernel, &file, &functions).err().or(why);
        }
        let is_first = !std::mem::replace(&mut self.writes, true);
        is_first.then(|| match why {
            Some(why) => Err(format!(
                "requests over HTTP/2 in TLS can't be followed: {why}"
            )),
            None => {
                Ok("some requests come over HTTP/2 in TLS; they are followed from now on".into())
            }
        })
    }

    /// False: too many wait, and it goes without names.
    fn ask(&mut self, pid: u32) -> bool {
        let is_asked = self.asks.try_send(pid).is_ok();
        self.pending += usize::from(is_asked);
        is_asked
    }

    fn take(&mut self, kernel: &mut Kernel, answer: Answer) -> Option<String> {
        self.pending -= 1;
        let in_use = self.in_use.remove(&answer.pid);
        let mut why = None;
        for (file, functions) in answer.new {
            let (writing, reading): (Functions, Functions) =
                functions.into_iter().partition(|(call, _)| call.writes);
            why = attach_to(kernel, &file, &reading).err().or(why);
            if self.writes {
                why = attach_to(kernel, &file, &writing).err().or(why);
            } else {
                self.reading.push((file, writing));
            }
        }
        if why.is_none() && in_use {
            why = match answer.found {
                Found::Library => None,
                Found::Nothing => Some("it has no function SSL_read (OpenSSL, BoringSSL)".into()),
                Found::TooMany => Some(format!(
                    "the limit of {MOST_FILES} libraries, {MOST_OF_USER} of one user, is reached"
                )),
            };
        }
        let program = answer.program.file_name().map(Path::new)?.display();
        Some(format!(
            "requests of {program} over TLS get no names: {}",
            why?
        ))
    }
}

fn attach_to(kernel: &mut Kernel, file: &File, functions: &Functions) -> Result<(), String> {
    // A path that leads to this very file whatever happens to its name.
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    kernel.attach_tls(&path, functions)
}

/// The thread's side.
#[derive(Debug, Default)]
struct Files {
    /// Those that get probes, which the kernel then holds, and whose processes brought them.
    libraries: HashMap<Key, u32>,
    others: HashSet<Key>,
}

/// Device, inode, and time of its change.
type Key = (u64, u64, i64, i64);

impl Files {
    fn search(&mut self, pid: u32) -> Answer {
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let mut answer = Answer {
            pid,
            new: Vec::new(),
            found: Found::Nothing,
            program,
        };
        let user = owner::of(pid).unwrap_or(u32::MAX);
        for file in candidates(pid) {
            let Ok(about) = file.metadata() else { continue };
            let key = (about.dev(), about.ino(), about.ctime(), about.ctime_nsec());
            if self.libraries.contains_key(&key) {
                answer.found = Found::Library;
                continue;
            }
            if self.others.contains(&key) {
                continue;
            }
            let functions = functions_of(&file, about.size());
            if functions.is_empty() {
                if self.others.len() >= MOST_OTHERS {
                    self.others.clear();
                }
                self.others.insert(key);
                continue;
            }
            let of_user = self.libraries.values().filter(|of| **of == user).count();
            if self.libraries.len() >= MOST_FILES || of_user >= MOST_OF_USER {
                if answer.found == Found::Nothing {
                    answer.found = Found::TooMany;
                }
                continue;
            }
            self.libraries.insert(key, user);
            answer.new.push((file, functions));
            answer.found = Found::Library;
        }
        answer
    }
}

/// Files of a process in which the library may be: those of its name, and the program itself.
fn candidates(pid: u32) -> Vec<File> {
    let program = fs::metadata(format!("/proc/{pid}/exe"));
    let program = program.ok().map(|about| (about.dev(), about.ino()));
    // Some programs bring their own: libssl-1a2b3c4d.so.3.
    let is_library = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libssl") && name.contains(".so"))
    };
    let mapped = Process { pid }.code_files().unwrap_or_default();
    let is_meant = |file: &tailscope_process::maps::CodeFile| {
        let about = || Some(file.metadata().ok().map(|about| (about.dev(), about.ino())));
        is_library(file.path()) || about() == Some(program)
    };
    let meant = mapped.iter().filter(|file| is_meant(file));
    meant.filter_map(|file| file.open().ok()).collect()
}

/// Where the functions are in a file, by its own symbols; none if it has none that reads.
fn functions_of(file: &File, bytes: u64) -> Functions {
    let is_wanted = |symbol: &str| CALLS.iter().any(|call| call.name == symbol);
    if bytes > MOST_BYTES {
        return Vec::new();
    }
    let Ok(symbols) = table::functions_named(file, is_wanted) else {
        return Vec::new();
    };
    let places = |name: &str| {
        let named = symbols.all.iter().filter(|symbol| symbol.name == name);
        let mut addresses: Vec<u64> = named.map(|symbol| symbol.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(MOST_PLACES);
        let offsets = table::offsets(file, &addresses).unwrap_or_default();
        offsets.into_iter().flatten().collect::<Vec<u64>>()
    };
    let all = CALLS.iter().map(|call| (*call, places(call.name)));
    let found: Functions = all.filter(|(_, places)| !places.is_empty()).collect();
    if found.iter().all(|(call, _)| call.writes) {
        return Vec::new();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_the_library_has_none_and_is_read_once() {
        let mut files = Files::default();
        for _ in 0..2 {
            let answer = files.search(std::process::id());
            assert_eq!((answer.found, answer.new.len()), (Found::Nothing, 0));
            assert_eq!(files.others.len(), 1); // this program itself
        }
    }

    #[test]
    fn a_process_that_is_gone_has_none() {
        assert_eq!(Files::default().search(u32::MAX).found, Found::Nothing);
    }
}
