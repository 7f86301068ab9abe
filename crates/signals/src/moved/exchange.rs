//! The system calls that put a file in memory where a page is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, MemfdFlags, SealFlags};

use super::call::Caller;
use super::unmoved::{Unmoved, failed};
use super::{NAME, page_size};
use crate::remote;
use crate::view::View;

/// Whoever stands still for so long is let go, if nothing has changed yet. What remains of a
/// millisecond is for the change, and for all of them to go on.
const LATEST: Duration = Duration::from_micros(650);

/// Puts the file where the page is: the file, its bytes here, and where the page is parked.
pub(super) fn there(
    caller: &mut Caller,
    (pid, page): (u32, u64),
    flags: MemfdFlags,
    since: Instant,
) -> Result<(File, Arc<View>, u64), Unmoved> {
    let size = page_size();
    let fresh = [0, size, READ_WRITE, PRIVATE, u64::MAX, 0];
    let parked = caller
        .call(libc::SYS_mmap, fresh)
        .map_err(failed("map a page"))?;
    let made = file(caller, pid, page, parked, flags);
    let (file, view, fd) = match made {
        Ok(made) => made,
        Err(e) => {
            let _ = caller.call(libc::SYS_munmap, [parked, size, 0, 0, 0, 0]);
            return Err(e);
        }
    };
    let done = match in_time(since) {
        Ok(()) => exchange(caller, page, parked, fd),
        Err(late) => {
            let _ = caller.call(libc::SYS_munmap, [parked, size, 0, 0, 0, 0]);
            Err(late)
        }
    };
    let _ = caller.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    done.map(|()| (file, view, parked))
}

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
const SHARED_HERE: u64 = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;

/// A file in memory with the page's bytes, and its number in the process.
fn file(
    caller: &mut Caller,
    pid: u32,
    page: u64,
    parked: u64,
    flags: MemfdFlags,
) -> Result<(File, Arc<View>, u64), Unmoved> {
    let name = format!("{NAME}{page:x}:{parked:x}\0");
    remote::write(pid, parked, name.as_bytes()).map_err(failed("write into its memory"))?;
    let arguments = [parked, flags.bits().into(), 0, 0, 0, 0];
    let fd = caller
        .call(libc::SYS_memfd_create, arguments)
        .map_err(failed("make a file in memory"))?;
    let filled = filled(pid, page, fd);
    if filled.is_err() {
        let _ = caller.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    }
    filled.map(|(file, view)| (file, view, fd))
}

fn filled(pid: u32, page: u64, fd: u64) -> Result<(File, Arc<View>), Unmoved> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(failed("open its file in memory"))?;
    let mut bytes = vec![0; page_size() as usize];
    remote::read(pid, page, &mut bytes).map_err(failed("read the page"))?;
    file.write_all_at(&bytes, 0)
        .map_err(failed("fill the file"))?;
    // Nobody can make it shorter: that would end who has it mapped.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(|e| failed("seal the file")(e.into()))?;
    lock(&file)?;
    let view = View::map(&file, 0, page_size() as usize).map_err(failed("map the file"))?;
    Ok((file, view))
}

/// The page goes to the parking place, the file to where it was. If the second fails, it comes back.
fn exchange(caller: &mut Caller, page: u64, parked: u64, fd: u64) -> Result<(), Unmoved> {
    if let Err(e) = remap(caller, page, parked) {
        let _ = caller.call(libc::SYS_munmap, [parked, page_size(), 0, 0, 0, 0]);
        return Err(Unmoved::failed("park the page", e));
    }
    let shared = [page, page_size(), READ_WRITE, SHARED_HERE, fd, 0];
    match caller.call(libc::SYS_mmap, shared) {
        Ok(_) => Ok(()),
        Err(e) => {
            let undone = remap(caller, parked, page);
            undone.map_err(failed("map it where it was"))?;
            Err(Unmoved::failed("map the file", e))
        }
    }
}

/// Nothing has changed yet, and only what is soon done is still to come.
pub(super) fn in_time(since: Instant) -> Result<(), Unmoved> {
    match since.elapsed() {
        late if late > LATEST => Err(Unmoved::Slow(late)),
        _ => Ok(()),
    }
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
