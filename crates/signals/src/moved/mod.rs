//! A page of another process's private memory, moved to where it can be mapped here too.
//!
//! Goal: to read a global variable of a program as it is by a load. Rejected: a page of ours that the
//! program would need to open by a path (it may have another root). Chosen: one of its threads makes a
//! file in memory and maps it somewhere, while the others go on. Then all stand still: the file gets the
//! page's bytes, the page is parked beside, and the file moved to where it was. To the program nothing has changed: the same address has the same
//! bytes. Back it goes in the same way: the bytes of that moment are copied into the parked page,
//! and that is mapped where it was before, so that the kernel joins it to its neighbours again.
//!
//! What the file's name says is enough to put a page back: whoever finds it mapped, and no observer
//! alive (the file is locked), can ([`MovedPage::found`]). Until then it is memory like any other, but
//! for one thing: a child that is forked meanwhile writes to the same page as its parent.

mod call;
mod exchange;
mod guard;
mod refuse;
mod still;
mod stops;
mod trace;
mod unmoved;
mod urgent;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use crate::remote;
use crate::view::View;
use call::Caller;
use exchange::{Exchanged, Ready, lock, remap, seals_against_code};
use still::{Deadline, LONGEST, Still};
pub use stops::Stops;
pub use unmoved::Unmoved;
use unmoved::failed;
use urgent::urgently;

/// After a stop in vain the process is left alone for a moment, then it is tried again.
const TRIES: u32 = 8;
/// To have a page back, or what was prepared for it gone, is worth more patience.
const TRIES_BACK: u32 = 100;
const RECOVER: Duration = Duration::from_millis(20);
/// How the file's name begins; after it come the page's address and that of the parked one.
const NAME: &str = "tailscope-moved:";

/// A page that is shared with its process. When this is dropped, it goes back.
#[derive(Debug)]
pub struct MovedPage {
    pid: u32,
    /// Its address.
    page: u64,
    /// Where the private one waits.
    parked: u64,
    /// Its bytes; locked, which shows that somebody looks after it.
    file: File,
    view: Arc<View>,
    /// For how long the process stood still; `None`: it was found moved.
    stood: Option<Duration>,
    stops: Stops,
    back: Mutex<bool>,
}

impl MovedPage {
    /// Moves the page around an address.
    ///
    /// # Errors
    /// Why not: nothing has changed then.
    pub fn take(pid: u32, address: u64) -> Result<Self, Unmoved> {
        let page = address & !(page_size() - 1);
        refuse::check(pid, page)?;
        let instruction = call::instruction(pid)?;
        let seals = seals_against_code();
        let stops = Stops::default();
        let mut ready = None;
        let moved = patiently(TRIES, || {
            let prepared = match ready.take() {
                Some(ready) => ready,
                None => alone(pid, instruction, &stops, |caller| {
                    Ready::make(caller, (pid, page), seals)
                })??,
            };
            // Looked at again, for time has passed: it may have forked, or another observer come first.
            let held = refuse::check(pid, page).and_then(|()| Still::hold(pid, LONGEST, &stops));
            let still = match held {
                Ok(still) => still,
                Err(why) => {
                    ready = Some(prepared);
                    return Err(why);
                }
            };
            let mut prepared = Some(prepared);
            let (done, still) = with_caller(still, instruction, |caller, deadline| {
                let prepared = prepared.take().expect("it is called once");
                Ok(prepared.exchange(caller, (pid, page), deadline))
            });
            let stood = still.release();
            ready = prepared;
            match done? {
                Exchanged::Done(done) => Ok((done, stood)),
                Exchanged::Failed(why) => Err(why),
                Exchanged::NotYet(why, again) => {
                    ready = Some(again);
                    Err(why)
                }
            }
        });
        if let Some(ready) = ready {
            // Until nothing is left of the last try.
            std::thread::sleep(RECOVER);
            // If that can't be, two pages stay mapped that nobody looks at.
            let _ = patiently(TRIES_BACK, || {
                alone(pid, instruction, &stops, |caller| ready.remove(caller, pid))
            });
        }
        let (
            Ready {
                file, view, parked, ..
            },
            stood,
        ) = moved.map_err(|why| match why {
            Unmoved::Slow(_) | Unmoved::NoCaller => Unmoved::InVain {
                why: Box::new(why),
                stops: stops.count(),
                longest: stops.longest(),
            },
            why => why,
        })?;
        Ok(Self {
            pid,
            page,
            parked,
            file,
            view,
            stood: Some(stood),
            stops,
            back: Mutex::new(false),
        })
    }

    /// A page that an observer left moved: one that was killed.
    ///
    /// # Errors
    /// Somebody looks after it.
    pub fn found(pid: u32, address: u64, name: &str) -> Result<Option<Self>, Unmoved> {
        let page = address & !(page_size() - 1);
        let Some((there, parked)) = addresses(name).filter(|(there, _)| *there == page) else {
            return Ok(None);
        };
        let path = format!("/proc/{pid}/map_files/{there:x}-{:x}", there + page_size());
        let file = File::open(path).map_err(failed("open the page that was left moved"))?;
        let view = View::map(&file, 0, page_size() as usize).map_err(failed("map it"))?;
        lock(&file)?;
        Ok(Some(Self {
            pid,
            page,
            parked,
            file,
            view,
            stood: None,
            stops: Stops::default(),
            back: Mutex::new(false),
        }))
    }

    /// Its bytes.
    #[must_use]
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The address that it has in its process.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.page
    }

    /// Whether an address of a process lies in it.
    #[must_use]
    pub fn holds(&self, pid: u32, address: u64) -> bool {
        pid == self.pid && address & !(page_size() - 1) == self.page
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// For how long the process stood still when it was moved; `None`: somebody else did that.
    #[must_use]
    pub fn stood(&self) -> Option<Duration> {
        self.stood
    }

    /// Every stop that moving it took, there and back.
    #[must_use]
    pub fn stops(&self) -> &Stops {
        &self.stops
    }

    /// Whether others than the process and this one have it mapped: it has forked. `None`: the
    /// kernel tells that only an administrator.
    #[must_use]
    pub fn is_shared_with_children(&self) -> Option<bool> {
        let entry = entry("/proc/self/pagemap", self.view.address() / page_size())?;
        let (present, frame) = (entry >> 63 == 1, entry & ((1 << 55) - 1));
        if !present || frame == 0 {
            return None;
        }
        entry_of_frame(frame).map(|mapped| mapped > 2)
    }

    /// Has the page back in the process's own memory, with the bytes of this moment, and in
    /// children that it forked meanwhile: for how long it stood still, and these children. From
    /// then on the view no longer changes. `None`: it was back already.
    ///
    /// # Errors
    /// Why not: the page stays shared, which is memory that works.
    pub fn put_back(&self) -> Result<Option<(Duration, Vec<u32>)>, Unmoved> {
        let mut back = self
            .back
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        if std::mem::replace(&mut *back, true) {
            return Ok(None);
        }
        // A process that has ended, or runs another program, has it no more.
        let stood = match self.has_it(self.pid) {
            true => self.back_in(self.pid)?,
            false => return Ok(None),
        };
        let mut forked = refuse::children(self.pid);
        forked.retain(|child| self.has_it(*child));
        for child in &forked {
            self.back_in(*child)?;
        }
        Ok(Some((stood, forked)))
    }

    /// Leaves it as it is: for whoever finds it, and for tests of that.
    pub fn abandon(self) {
        *self
            .back
            .lock()
            .unwrap_or_else(|broken| broken.into_inner()) = true;
    }

    /// Whether a process has the file where the page was.
    fn has_it(&self, pid: u32) -> bool {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let begin = format!("{:x}-", self.page);
        let line = maps
            .lines()
            .find(|line| line.trim_start_matches('0').starts_with(&begin));
        // START-END MODE OFFSET DEVICE INODE NAME
        let mut fields = line.unwrap_or_default().split_whitespace();
        let inode = fields.nth(4).and_then(|inode| inode.parse().ok());
        let ours = fields.next().is_some_and(|name| name.contains(NAME));
        ours && self
            .file
            .metadata()
            .is_ok_and(|own| Some(own.ino()) == inode)
    }

    fn back_in(&self, pid: u32) -> Result<Duration, Unmoved> {
        let instruction = call::instruction(pid)?;
        patiently(TRIES_BACK, || {
            let still = Still::hold(pid, LONGEST, &self.stops)?;
            let (done, still) = with_caller(still, instruction, |caller, deadline| {
                let bytes = self.view.copy(0, page_size() as usize);
                let bytes = bytes.unwrap_or_default();
                remote::write(pid, self.parked, &bytes).map_err(failed("write its bytes"))?;
                deadline.holds()?;
                remap(caller, self.parked, self.page).map_err(failed("map it where it was"))
            });
            let stood = still.release();
            done.map(|()| stood)
        })
    }
}

impl Drop for MovedPage {
    fn drop(&mut self) {
        // Who wants to know why it failed has called it before.
        let _ = self.put_back();
    }
}

/// Tries it on a thread of its own, again where threads were too slow to stop.
fn patiently<R: Send>(
    tries: u32,
    mut work: impl FnMut() -> Result<R, Unmoved> + Send,
) -> Result<R, Unmoved> {
    for _ in 1..tries {
        match urgently(&mut work).map_err(failed("start a thread"))? {
            Err(Unmoved::Slow(_) | Unmoved::NoCaller) => std::thread::sleep(RECOVER),
            done => return done,
        }
    }
    urgently(&mut work).map_err(failed("start a thread"))?
}

/// Has one thread make the calls of `work`, while the others go on.
fn alone<R>(
    pid: u32,
    instruction: u64,
    stops: &Stops,
    work: impl FnOnce(&mut Caller) -> R,
) -> Result<R, Unmoved> {
    let still = Still::hold_one(pid, stops)?;
    let (done, _goes_on) = with_caller(still, instruction, |caller, _| Ok(work(caller)));
    done
}

/// Has a thread make the calls of `work`, and is as it was before.
fn with_caller<R>(
    mut still: Still<'_>,
    instruction: u64,
    work: impl FnOnce(&mut Caller, Deadline) -> Result<R, Unmoved>,
) -> (Result<R, Unmoved>, Still<'_>) {
    let Some(thread) = still.caller() else {
        return (Err(Unmoved::NoCaller), still);
    };
    let mut caller = match Caller::begin(thread, instruction) {
        Ok(caller) => caller,
        Err(e) => return (Err(Unmoved::failed("take hold of a thread", e)), still),
    };
    let done = work(&mut caller, still.deadline());
    match caller.end() {
        Ok(owed) => still.owe(thread, owed),
        Err(e) => return (done.and(Err(Unmoved::failed("leave its thread", e))), still),
    }
    (done, still)
}

/// Whose page a file's name, as the kernel tells it, says it is, and where that is parked.
fn addresses(name: &str) -> Option<(u64, u64)> {
    let rest = name.strip_prefix("/memfd:")?.strip_prefix(NAME)?;
    let (page, parked) = rest
        .strip_suffix(" (deleted)")
        .unwrap_or(rest)
        .split_once(':')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let aligned =
        |at: &u64| at.is_multiple_of(page_size()) && at.checked_add(page_size()).is_some();
    hex(page).filter(aligned).zip(hex(parked).filter(aligned))
}

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// How often a page of the machine's memory is mapped.
fn entry_of_frame(frame: u64) -> Option<u64> {
    entry("/proc/kpagecount", frame)
}

/// The entry of that number in a file of 64-bit numbers.
fn entry(path: &str, number: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let file = File::open(path).ok()?;
    file.read_exact_at(&mut bytes, number * 8).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_tells_where_a_page_belongs() {
        let size = page_size();
        let (page, parked) = (16 * size, 99 * size);
        let name = format!("/memfd:{NAME}{page:x}:{parked:x} (deleted)");
        assert_eq!(addresses(&name), Some((page, parked)));
        assert_eq!(addresses(&name.replace("moved", "movd")), None);
        assert_eq!(addresses(&format!("/memfd:{NAME}1:2")), None);
    }

    proptest! {
        #[test]
        fn foreign_names_never_panic(name: String) {
            let _ = addresses(&format!("/memfd:{NAME}{name}"));
        }
    }
}
