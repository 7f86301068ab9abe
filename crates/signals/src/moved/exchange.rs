//! The system calls that put a file in memory where a page is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{FlockOperation, MemfdFlags, SealFlags};

use super::call::Caller;
use super::still::Deadline;
use super::unmoved::{Unmoved, failed};
use super::{NAME, page_size};
use crate::remote;
use crate::view::View;

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
const SHARED: u64 = libc::MAP_SHARED as u64;

/// What takes the page's place, in the process already: made while one thread alone stands still, so that
/// all of them do only for the exchange.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) file: File,
    pub(super) view: Arc<View>,
    /// Where the page will wait. Until then a page is there that has the file's name.
    pub(super) parked: u64,
    /// Where the file is mapped.
    spare: u64,
    name: Vec<u8>,
}

impl Ready {
    /// Makes it. If that fails, what was made so far is taken away.
    pub(super) fn make(
        caller: &mut Caller,
        (pid, page): (u32, u64),
        flags: MemfdFlags,
    ) -> Result<Self, Unmoved> {
        let fresh = [0, page_size(), READ_WRITE, PRIVATE, u64::MAX, 0];
        let parked = caller
            .call(libc::SYS_mmap, fresh)
            .map_err(failed("map a page"))?;
        let made = Self::with_a_file(caller, pid, (page, parked), flags);
        if made.is_err() {
            unmap(caller, parked);
        }
        made
    }

    fn with_a_file(
        caller: &mut Caller,
        pid: u32,
        (page, parked): (u64, u64),
        flags: MemfdFlags,
    ) -> Result<Self, Unmoved> {
        let name = format!("{NAME}{page:x}:{parked:x}\0").into_bytes();
        remote::write(pid, parked, &name).map_err(failed("write into its memory"))?;
        let arguments = [parked, flags.bits().into(), 0, 0, 0, 0];
        let fd = caller
            .call(libc::SYS_memfd_create, arguments)
            .map_err(failed("make a file in memory"))?;
        let mapped = filled(pid, fd, &name).and_then(|(file, view)| {
            let shared = [0, page_size(), READ_WRITE, SHARED, fd, 0];
            let spare = caller.call(libc::SYS_mmap, shared);
            Ok((file, view, spare.map_err(failed("map the file"))?))
        });
        // No number of a file is left that the program could come upon.
        let _ = caller.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        let (file, view, spare) = mapped?;
        // Written to once, so that the program's own first write finds it there. If it can't be, the
        // exchange finds out.
        let _ = remote::write(pid, spare, &name);
        Ok(Self {
            file,
            view,
            parked,
            spare,
            name,
        })
    }

    /// Whether both are where they were: the process has not begun to run another program.
    fn is_there(&self, pid: u32) -> bool {
        let mut found = vec![0; self.name.len()];
        [self.parked, self.spare]
            .into_iter()
            .all(|at| remote::read(pid, at, &mut found).is_ok() && found == self.name)
    }

    /// Puts it where the page is, while all threads stand still.
    pub(super) fn exchange(
        self,
        caller: &mut Caller,
        (pid, page): (u32, u64),
        deadline: Deadline,
    ) -> Exchanged {
        if !self.is_there(pid) {
            return Exchanged::Failed(Unmoved::Gone);
        }
        let filled = copied(pid, page, &self.file).and_then(|()| deadline.holds());
        if let Err(late) = filled {
            // The file's name again, by which it is known.
            let _ = self.file.write_all_at(&self.name, 0);
            return Exchanged::NotYet(late, self);
        }
        // From here on nothing is left for later: who is let go may map something where a page was.
        if let Err(e) = remap(caller, page, self.parked) {
            unmap(caller, self.parked);
            unmap(caller, self.spare);
            return Exchanged::Failed(Unmoved::failed("park the page", e));
        }
        match remap(caller, self.spare, page) {
            Ok(()) => Exchanged::Done(self),
            Err(e) => {
                unmap(caller, self.spare);
                let undone = remap(caller, self.parked, page);
                let undone = undone.map_err(failed("map it where it was"));
                let why = Unmoved::failed("map the file", e);
                Exchanged::Failed(undone.err().unwrap_or(why))
            }
        }
    }

    /// Takes it away again.
    pub(super) fn remove(&self, caller: &mut Caller, pid: u32) {
        if self.is_there(pid) {
            unmap(caller, self.parked);
            unmap(caller, self.spare);
        }
    }
}

/// What became of an exchange.
pub(super) enum Exchanged {
    Done(Ready),
    /// Nothing has changed, and it can be tried again.
    NotYet(Unmoved, Ready),
    /// The page is where it was, and what was made for it is gone.
    Failed(Unmoved),
}

/// The file that is a number of the process, with some bytes.
fn filled(pid: u32, fd: u64, name: &[u8]) -> Result<(File, Arc<View>), Unmoved> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(failed("open its file in memory"))?;
    let mut bytes = vec![0; page_size() as usize];
    bytes[..name.len()].copy_from_slice(name);
    file.write_all_at(&bytes, 0)
        .map_err(failed("fill the file"))?;
    // Nobody can make it shorter: that would end who has it mapped.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(|e| failed("seal the file")(e.into()))?;
    lock(&file)?;
    let view = View::map(&file, 0, page_size() as usize).map_err(failed("map the file"))?;
    Ok((file, view))
}

fn copied(pid: u32, page: u64, file: &File) -> Result<(), Unmoved> {
    let mut bytes = vec![0; page_size() as usize];
    remote::read(pid, page, &mut bytes).map_err(failed("read the page"))?;
    file.write_all_at(&bytes, 0)
        .map_err(failed("fill the file"))
}

fn unmap(caller: &mut Caller, page: u64) {
    // It stays mapped then, and is never looked at.
    let _ = caller.call(libc::SYS_munmap, [page, page_size(), 0, 0, 0, 0]);
}

pub(super) fn remap(caller: &mut Caller, from: u64, to: u64) -> io::Result<()> {
    let size = page_size();
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    let arguments = [from, size, size, flags, to, 0];
    caller.call(libc::SYS_mremap, arguments).map(drop)
}

pub(super) fn lock(file: &File) -> Result<(), Unmoved> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|_| Unmoved::Taken)
}

/// The flags of a file in memory that can be sealed, and can't be executed where the kernel knows that.
pub(super) fn seals_against_code() -> MemfdFlags {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
    match rustix::fs::memfd_create("probe", flags) {
        Ok(_) => flags,
        Err(_) => MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Duration;

    use super::super::stops::Stops;
    use super::super::{alone, call, patiently};
    use super::*;

    /// A program that sleeps.
    struct Asleep(Child);

    impl Asleep {
        fn start() -> Self {
            let asleep = Self(Command::new("sleep").arg("60").spawn().expect("it starts"));
            // The loader has done its work, and it no longer maps anything.
            let asleep_in = |call: &str| asleep.read("syscall").starts_with(call);
            let sleeps = libc::SYS_clock_nanosleep.to_string();
            while !asleep_in(&sleeps) {
                std::thread::sleep(Duration::from_millis(1));
            }
            asleep
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }

        fn read(&self, what: &str) -> String {
            std::fs::read_to_string(format!("/proc/{}/{what}", self.pid())).expect("it lives")
        }

        fn heap(&self) -> u64 {
            let maps = self.read("maps");
            let line = maps.lines().find(|line| line.ends_with("[heap]"));
            let start = line.and_then(|line| line.split_once('-')).expect("one").0;
            u64::from_str_radix(start, 16).expect("an address")
        }

        /// Has its thread make calls, as often as it takes to stop it in time.
        fn with<R: Send>(&self, work: impl Fn(&mut Caller) -> R + Sync) -> R {
            let instruction = call::instruction(self.pid()).expect("it has one");
            let stops = Stops::default();
            let done = patiently(1000, || alone(self.pid(), instruction, &stops, &work));
            done.expect("it can be stopped")
        }
    }

    impl Drop for Asleep {
        fn drop(&mut self) {
            // After its end, that is no news.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_comes_too_late_changes_nothing_and_is_taken_away() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: moving a page wants root");
            return;
        }
        let asleep = Asleep::start();
        let (page, before) = ((asleep.pid(), asleep.heap()), asleep.read("maps"));
        let content = || {
            let mut bytes = vec![0; page_size() as usize];
            remote::read(page.0, page.1, &mut bytes).expect("it lives");
            bytes
        };
        let first = content();
        let made = asleep.with(|caller| Ready::make(caller, page, seals_against_code()));
        let ready = std::sync::Mutex::new(Some(made.expect("made")));
        let take = || ready.lock().expect("whole").take().expect("it is there");
        assert!(asleep.read("maps").lines().count() > before.lines().count());
        let late = asleep.with(|caller| {
            match take().exchange(caller, page, Deadline::of(Duration::ZERO)) {
                Exchanged::NotYet(Unmoved::Slow(_), again) => {
                    *ready.lock().expect("whole") = Some(again)
                }
                _ => return false,
            }
            true
        });
        assert!(late && content() == first);
        asleep.with(|caller| take().remove(caller, page.0));
        assert_eq!(asleep.read("maps"), before);
        // Who runs another program meanwhile has none of it: nothing is done there.
        let made = asleep.with(|caller| Ready::make(caller, page, seals_against_code()));
        let made = made.expect("made");
        let wrong = Ready {
            parked: page.1,
            ..made
        };
        let wrong = std::sync::Mutex::new(Some(wrong));
        let gone = asleep.with(|caller| {
            let wrong = wrong.lock().expect("whole").take().expect("once");
            matches!(
                wrong.exchange(caller, page, Deadline::of(Duration::MAX)),
                Exchanged::Failed(Unmoved::Gone)
            )
        });
        assert!(gone && content() == first);
    }
}
