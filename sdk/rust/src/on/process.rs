//! Attaching: what this process, and each thread of it, shares with a recorder. Two recorders may listen at a
//! time; the process attaches to each for itself, and `which` says to which of them.
//!
//! What a process knows of a recorder lies in one page that is all zeros in its children, so that a child, however
//! it was made, begins like a program that has just started.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::time::Duration;

use super::abi::{self, Answer, COUNTERS, Meter, RECORDERS, Region};
use super::clock::cycles;
use super::probe::tell;
use super::sys::{self, AfterFork, Errno, KeptErrno};
use super::thread::Thread;

/// In cycles: about 0.1 s, and about a minute.
const RETRY_FIRST: u64 = 1 << 28;
const RETRY_LAST: u64 = 1 << 37;
const PAGE: usize = 4096;

/// How long the first begin waits for the recorder's answer: what `record` sets for the command that
/// it starts, as nobody else waits for that; else 200 ms.
fn patience_ms() -> i64 {
    std::env::var("TAILSCOPE_PATIENCE_MS")
        .ok()
        .and_then(|said| said.parse().ok())
        .filter(|ms| (1..=60_000).contains(ms))
        .unwrap_or(200)
}

/// What the page holds. Zeros: not attached.
#[repr(C)]
pub(crate) struct Process {
    locked: AtomicU32,
    /// Of the connection, plus one.
    socket: AtomicU32,
    /// The attachment's number, never used twice; 0: not attached.
    pub(crate) epoch: AtomicU64,
    /// Where meters and region are mapped, once and for all recorders to come.
    reserved: AtomicPtr<u8>,
    retry_after: AtomicU64,
    retry_wait: AtomicU64,
    /// When to ask again whether a silent recorder lives.
    check_after: AtomicU64,
    socket_device: AtomicU64,
    socket_inode: AtomicU64,
    /// Where perf's pages are mapped, by meter; null: nowhere yet.
    counters: AtomicPtr<u8>,
    /// Which thread's they are, by meter; 0: nobody's.
    counting: AtomicPtr<AtomicU32>,
    /// Begins since the recorder left while threads counted.
    pub(crate) left: AtomicU32,
    /// The first one's is held while the handler of faults is set or lifted, for both.
    pub(crate) guard_locked: AtomicU32,
}

static PROCESSES: [AtomicPtr<Process>; RECORDERS] =
    [const { AtomicPtr::new(null_mut()) }; RECORDERS];
static EPOCHS: AtomicU64 = AtomicU64::new(0);

/// This process's page for a recorder, once one was made.
#[inline(always)]
pub(crate) fn process(which: usize) -> Option<&'static Process> {
    // SAFETY: null, or the page that `make_process` put there, which is never unmapped.
    unsafe { PROCESSES[which].load(Acquire).as_ref() }
}

pub(crate) fn make_process(which: usize) -> Result<&'static Process, Errno> {
    if let Some(process) = process(which) {
        return Ok(process);
    }
    let page = sys::map_private(PAGE)?;
    // SAFETY: the page that was just made.
    unsafe { sys::after_fork(page, PAGE, AfterFork::Zeros) }?;
    // Where another thread was first, a page is left over, once.
    let _ = PROCESSES[which].compare_exchange(null_mut(), page.cast(), AcqRel, Acquire);
    process(which).ok_or(sys::EPROTO)
}

/// Attaching is rare and short. A thread that waits longer than it should goes unmetered, so a
/// signal handler that interrupts its own thread here can't hang it.
pub(crate) fn lock(locked: &AtomicU32) -> bool {
    for _ in 0..5000 {
        let free = locked.compare_exchange(0, 1, Acquire, Relaxed);
        if free.is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    false
}

impl Process {
    /// Only while attached.
    pub(crate) fn region(&self) -> &'static Region {
        let at = self.reserved.load(Relaxed);
        // SAFETY: whoever has seen an epoch has seen the place, where a region is mapped for good;
        // a later recorder's takes the place of an earlier one's.
        unsafe { &*at.add(abi::METERS_BYTES).cast() }
    }

    /// Only while attached.
    pub(crate) fn meters(&self) -> &'static [Meter] {
        let at = self.reserved.load(Relaxed).cast();
        // SAFETY: as for the region; there are so many meters before it.
        unsafe { core::slice::from_raw_parts(at, abi::METERS as usize) }
    }

    /// Only while attached, and below `abi::CHUNKS`.
    pub(crate) fn chunk(&self, index: u32) -> &'static abi::Chunk {
        let start = abi::METERS_BYTES + abi::REGION_HEAD;
        let at = start + index.min(abi::CHUNKS - 1) as usize * abi::CHUNK_BYTES;
        // SAFETY: inside the region, as for the region.
        unsafe { &*self.reserved.load(Relaxed).add(at).cast() }
    }

    /// Which one a meter is.
    pub(crate) fn slot(&self, meter: &'static Meter) -> u32 {
        let first = self.meters().as_ptr();
        // SAFETY: the meter is one of them.
        (unsafe { (&raw const *meter).offset_from(first) }) as u32
    }

    /// Where perf's pages are mapped, and which thread's they are, by meter.
    pub(crate) fn counting(&self) -> Option<(*mut u8, &'static [AtomicU32])> {
        let threads = self.counting.load(Acquire);
        if threads.is_null() {
            return None;
        }
        // SAFETY: what `set_counting` stored: never unmapped, one for each meter.
        let threads = unsafe { core::slice::from_raw_parts(threads, abi::METERS as usize) };
        Some((self.counters.load(Relaxed), threads))
    }

    /// Under the lock, once.
    pub(crate) fn set_counting(&self, pages: *mut u8, threads: *mut AtomicU32) {
        self.counters.store(pages, Relaxed);
        self.counting.store(threads, Release);
    }

    pub(crate) fn lock(&self) -> bool {
        lock(&self.locked)
    }

    pub(crate) fn unlock(&self) {
        self.locked.store(0, Release);
    }

    fn close_socket(&self) {
        if let Some(fd) = self.socket.swap(0, Relaxed).checked_sub(1) {
            let was = (
                self.socket_device.load(Relaxed),
                self.socket_inode.load(Relaxed),
            );
            if sys::identity(fd as i32) == Ok(was) {
                drop(sys::Fd(fd as i32));
            }
        }
    }

    fn connect(&self, which: usize) -> Result<[sys::Fd; 2], Errno> {
        let path = std::env::var_os("TAILSCOPE_SOCKET");
        let path = path
            .as_ref()
            .map_or(abi::SOCKET.as_bytes(), |p| p.as_bytes());
        let second = if which == 0 { "" } else { abi::SECOND };
        let path = &[path, second.as_bytes()].concat()[..];
        // At everybody's socket others can keep us waiting, so this user's comes first.
        let own = [path, format!(".{}", sys::effective_user()).as_bytes()].concat();
        let socket = match sys::connect(&own, patience_ms()) {
            Err(e) if e != sys::EAGAIN => sys::connect(path, patience_ms())?,
            reached => reached?,
        };
        let mut bytes = [0; size_of::<Answer>()];
        let fds = sys::receive(&socket, &mut bytes)?;
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let magic = u64::from(word(0)) | u64::from(word(4)) << 32;
        let (abi, status) = (word(8), word(12));
        if status == abi::NOT_WATCHED {
            return Err(sys::ESRCH);
        }
        if (magic, abi, status) != (abi::MAGIC, abi::ABI, abi::ACCEPTED) {
            return Err(sys::EPROTO);
        }
        let fds = fds.ok_or(sys::EPROTO)?;
        let (device, inode) = sys::identity(socket.0)?;
        self.socket_device.store(device, Relaxed);
        self.socket_inode.store(inode, Relaxed);
        self.socket.store(socket.0 as u32 + 1, Relaxed);
        core::mem::forget(socket); // its end tells of the recorder's: kept until then
        Ok(fds)
    }

    fn map(&self, [meters, region]: &[sys::Fd; 2]) -> Result<(), Errno> {
        let mut at = self.reserved.load(Relaxed);
        if at.is_null() {
            at = sys::reserve(abi::METERS_BYTES + abi::REGION_BYTES)?;
            self.reserved.store(at, Relaxed);
        }
        // SAFETY: both lie in what was reserved, which has room for both.
        unsafe {
            let rows = at.add(abi::METERS_BYTES);
            sys::map_over(at, abi::METERS_BYTES, meters)?;
            sys::map_over(rows, abi::REGION_BYTES, region)?;
            let whole = abi::METERS_BYTES + abi::REGION_BYTES;
            sys::after_fork(at, whole, AfterFork::Nothing)?;
        }
        let region = self.region();
        if region.magic.load(Relaxed) != abi::MAGIC || region.abi.load(Relaxed) != abi::ABI {
            return Err(sys::EPROTO);
        }
        Ok(())
    }

    /// Whether the recorder was not heard of at `now` for longer than it said it would be silent.
    pub(crate) fn is_silent(&self, now: u64) -> bool {
        let region = self.region();
        // A heartbeat may be from a moment after `now`.
        let since = now.wrapping_sub(region.heartbeat.load(Relaxed)) as i64;
        since > 0 && since as u64 >= region.heartbeat_overdue.load(Relaxed)
    }

    fn has_hung_up(&self) -> bool {
        let socket = self.socket.load(Relaxed).checked_sub(1);
        !socket.is_some_and(|fd| sys::is_quiet(fd as i32))
    }

    fn attach_process(&self, which: usize, now: u64) -> Result<(), Errno> {
        if self.epoch.load(Relaxed) != 0 {
            // A thread that has just begun has no span that could have noticed.
            if !(self.is_silent(now) && self.has_hung_up()) {
                return Ok(());
            }
            self.epoch.store(0, Release);
        }
        self.close_socket();
        let fds = self.connect(which)?;
        self.map(&fds)?;
        self.check_after.store(0, Relaxed);
        self.epoch.store(EPOCHS.fetch_add(1, Relaxed) + 1, Release);
        Ok(())
    }

    /// Claims a meter for this thread and tells the kernel.
    fn claim(&self, which: usize, thread: &Thread) -> Result<(), Errno> {
        let me = sys::thread_id();
        let meters = self.meters();
        // Another module of this program may have claimed one for this thread already.
        let mine = meters.iter().position(|m| m.tid.load(Relaxed) == me);
        if let Some(meter) = mine.map(|slot| &meters[slot])
            && meter.kernel_tid.load(Relaxed) != 0
        {
            thread.meter.set(Some(meter));
            return Ok(());
        }
        let claimed = |m: &Meter| {
            m.tid.load(Relaxed) == 0 && m.tid.compare_exchange(0, me, AcqRel, Relaxed).is_ok()
        };
        let slot = mine
            .or_else(|| meters.iter().position(claimed))
            .ok_or(sys::ENOSPC)?;
        tell(which, slot as i64);
        let meter = &meters[slot];
        if meter.kernel_tid.load(Acquire) == 0 {
            meter.tid.store(0, Release);
            return Err(sys::ESRCH); // nobody listened
        }
        thread.meter.set(Some(meter));
        Ok(())
    }

    /// The recorder has not been heard of for a while: whether it still lives. If it does not, the
    /// next begin looks for another.
    #[cold]
    pub(crate) fn recorder_is_alive(&self, now: u64) -> bool {
        if now < self.check_after.load(Relaxed) {
            return true;
        }
        let _kept = KeptErrno::here();
        if !self.lock() {
            return true;
        }
        let lives = self.epoch.load(Relaxed) != 0 && !self.has_hung_up();
        if lives {
            let patience = self.region().heartbeat_overdue.load(Relaxed);
            self.check_after.store(now.wrapping_add(patience), Relaxed);
        } else {
            self.epoch.store(0, Release);
        }
        self.unlock();
        lives
    }
}

/// This thread counts nothing any more.
pub(super) fn stop_counting(process: &Process, thread: &Thread) {
    let counters = &thread.counters;
    let Some(pages) = counters.pages() else {
        return;
    };
    if counters.is_reading.load(Relaxed) {
        return;
    }
    counters.forget();
    // Nowhere: this is a child, which has none of its parent's pages.
    let Some((first, threads)) = process.counting() else {
        return;
    };
    let bytes = COUNTERS * sys::page_bytes();
    let slot = (pages as usize).wrapping_sub(first as usize) / bytes;
    if let Some(thread) = threads.get(slot) {
        // SAFETY: the pages of this thread's meter, which nobody reads now.
        let _ = unsafe { sys::empty(pages.cast_mut(), bytes) };
        thread.store(0, Relaxed);
    }
}

/// Attaches the process if it is not, and this thread. Returns whether the thread is metered now.
#[cold]
#[inline(never)]
pub(crate) fn attach(which: usize, thread: &Thread) -> bool {
    let now = cycles();
    let Ok(process) = make_process(which) else {
        return false;
    };
    stop_counting(process, thread);
    if now < process.retry_after.load(Relaxed) {
        return false;
    }
    let _kept = KeptErrno::here();
    if !process.lock() {
        return false;
    }
    // Of threads that waited for one that failed, each would only fail again, and put all off for
    // longer.
    if now < process.retry_after.load(Relaxed) {
        process.unlock();
        return false;
    }
    let attached = process.attach_process(which, now).and_then(|()| {
        thread.forget(now ^ (&raw const *thread as u64) << 16);
        process.claim(which, thread)?;
        thread.epoch.set(process.epoch.load(Relaxed));
        Ok(())
    });
    match attached {
        Ok(()) => process.retry_wait.store(0, Relaxed),
        Err(errno) => {
            if errno != sys::ESRCH {
                tell(which, -i64::from(errno.0));
            }
            let wait = (process.retry_wait.load(Relaxed) * 2).clamp(RETRY_FIRST, RETRY_LAST);
            process.retry_wait.store(wait, Relaxed);
            process.retry_after.store(now.wrapping_add(wait), Relaxed);
        }
    }
    process.unlock();
    attached.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::on::thread::with_thread;

    /// Nobody serves the socket here, or refuses a process that is not watched.
    #[test]
    fn attaching_leaves_the_programs_error_number_alone() {
        // SAFETY: this thread's own number.
        let errno = || unsafe { &mut *libc::__errno_location() };
        *errno() = libc::EDOM;
        assert!(!with_thread(1, |thread| attach(1, thread)));
        assert_eq!(*errno(), libc::EDOM);
        let retried_after = process(1).expect("a page").retry_after.load(Relaxed);
        assert_ne!(retried_after, 0, "it has tried");
    }
}
