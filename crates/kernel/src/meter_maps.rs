//! The maps of meters that processes with the SDK get, one each.
//!
//! To place maps or to take one back, the kernel has every CPU pass through a quiet state first: some
//! 10 ms in which a recorder must not stand still. So a thread of its own does both, and some maps are
//! ready before anybody asks. Those that are asked for meanwhile are placed together.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{Error, MapCore, MapFlags, MapHandle, MapType, Object, Result};
use tailscope_signals::abi;

use crate::object::map_of;
use crate::watch_error::{WatchError, kernel};

/// Maps that are ready for processes that come at once.
const SPARES: usize = 6;

/// A map of meters, and its place in the programs' array.
type Placed = (u32, MapHandle);

/// Places of the array `meters` of loaded programs, and who has a map in which.
#[derive(Debug)]
pub(crate) struct MeterMaps {
    places: usize,
    free: Vec<u32>,
    given: HashMap<u32, Placed>,
    spares: VecDeque<Placed>,
    /// How many the worker has been asked for.
    asked: usize,
    worker: Option<Worker>,
}

impl MeterMaps {
    /// `places`: those that may be given.
    pub(crate) fn new(places: Range<u32>) -> Self {
        Self {
            places: places.len(),
            free: places.rev().collect(),
            given: HashMap::new(),
            spares: VecDeque::new(),
            asked: 0,
            worker: None,
        }
    }

    /// Has maps made for the processes that come next. The first call starts a thread, which has the
    /// capabilities of this one.
    pub(crate) fn prepare(&mut self, object: &Object) -> std::result::Result<(), WatchError> {
        if self.worker.is_none() {
            let worker = Worker::start(object).map_err(kernel("start a thread"))?;
            self.worker = Some(worker);
        }
        let refused = self.collect(false);
        while self.spares.len() + self.asked < SPARES
            && let Some(index) = self.free.pop()
        {
            self.ask(Job::Place(index));
            self.asked += 1;
        }
        refused.map_err(kernel("install a map of meters"))
    }

    /// How many are ready, if there will be more.
    pub(crate) fn ready(&self) -> Option<usize> {
        let will_be = self.asked > 0 || !self.free.is_empty();
        will_be.then_some(self.spares.len())
    }

    /// Gives a process a map, in place of one that it had; `tell` has the programs know of its place.
    pub(crate) fn give(
        &mut self,
        object: &Object,
        pid: u32,
        tell: impl FnOnce(u32) -> Result<()>,
    ) -> std::result::Result<BorrowedFd<'_>, WatchError> {
        let prepared = self.prepare(object);
        while self.spares.is_empty() && self.asked > 0 {
            self.collect(true)
                .map_err(kernel("install a map of meters"))?;
        }
        let Some(placed) = self.spares.pop_front() else {
            prepared?;
            return Err(WatchError::TooManySdk(self.places));
        };
        if let Err(source) = tell(placed.0) {
            self.spares.push_front(placed);
            return Err(kernel("register a map of meters")(source));
        }
        self.take_back(pid);
        self.given.insert(pid, placed);
        Ok(self.given[&pid].1.as_fd())
    }

    /// The map that a process was given.
    pub(crate) fn of(&self, pid: u32) -> Option<BorrowedFd<'_>> {
        self.given.get(&pid).map(|(_, map)| map.as_fd())
    }

    /// Takes the map away from a process, if it had one.
    pub(crate) fn take_back(&mut self, pid: u32) {
        if let Some((index, _)) = self.given.remove(&pid) {
            self.ask(Job::Clear(index));
        }
    }

    fn ask(&self, job: Job) {
        if let Some(worker) = &self.worker {
            let _ = worker.jobs.send(job); // it ends only with us
        }
    }

    /// Takes what the worker has done; `waits`: for one thing at least.
    fn collect(&mut self, waits: bool) -> Result<()> {
        let Some(worker) = &self.worker else {
            return Ok(());
        };
        let first = waits.then(|| worker.done.recv().ok()).flatten();
        if waits && first.is_none() {
            self.asked = 0; // its thread is gone
        }
        let done: Vec<Done> = first.into_iter().chain(worker.done.try_iter()).collect();
        let mut refused = Ok(());
        for done in done {
            match done {
                Done::Placed(index, made) => {
                    self.asked -= 1;
                    match made {
                        Ok(map) => self.spares.push_back((index, map)),
                        Err(why) => {
                            self.free.push(index);
                            refused = Err(why);
                        }
                    }
                }
                Done::Cleared(index) => self.free.push(index),
            }
        }
        refused
    }
}

/// What takes a quiet state of every CPU.
#[derive(Debug)]
enum Job {
    Place(u32),
    Clear(u32),
}

#[derive(Debug)]
enum Done {
    Placed(u32, Result<MapHandle>),
    Cleared(u32),
}

/// The thread that waits for the kernel. It ends when nobody can ask it any more.
#[derive(Debug)]
struct Worker {
    jobs: Sender<Job>,
    done: Receiver<Done>,
}

impl Worker {
    fn start(object: &Object) -> Result<Self> {
        let places = MapHandle::try_from(&map_of(object, "meters"))?;
        let (jobs, asked) = channel();
        let (tell, done) = channel();
        let work = move || {
            let (mut to_place, mut to_clear) = (Vec::new(), VecDeque::new());
            loop {
                let first = to_clear.is_empty().then(|| asked.recv());
                let Ok(first) = first.transpose() else { return };
                for job in first.into_iter().chain(asked.try_iter()) {
                    match job {
                        Job::Place(index) => to_place.push(index),
                        Job::Clear(index) => to_clear.push_back(index),
                    }
                }
                // A process may wait for a place, and nobody waits for one to be cleared.
                let done = if to_place.is_empty() {
                    to_clear.pop_front().map_or_else(Vec::new, |index| {
                        let _ = places.delete(&u32::to_ne_bytes(index));
                        vec![Done::Cleared(index)]
                    })
                } else {
                    place_all(&places, std::mem::take(&mut to_place))
                };
                if done.into_iter().any(|done| tell.send(done).is_err()) {
                    return;
                }
            }
        };
        let name = "meter-maps".to_owned();
        let spawned = thread::Builder::new().name(name).spawn(work);
        spawned.map_err(Error::from)?;
        Ok(Self { jobs, done })
    }
}

/// Makes maps and puts them into these places by one call, so that they wait for the kernel once.
fn place_all(places: &MapHandle, indices: Vec<u32>) -> Vec<Done> {
    let made: Vec<_> = indices.into_iter().map(|i| (i, new_meters())).collect();
    let maps = || {
        made.iter()
            .filter_map(|(i, map)| Some((i, map.as_ref().ok()?)))
    };
    let keys: Vec<u8> = maps().flat_map(|(i, _)| i.to_ne_bytes()).collect();
    let fds = maps().map(|(_, map)| map.as_fd().as_raw_fd());
    let values: Vec<u8> = fds.flat_map(i32::to_ne_bytes).collect();
    let count = maps().count() as u32;
    let (flags, none) = (MapFlags::ANY, MapFlags::ANY);
    let together = count > 1
        && places
            .update_batch(&keys, &values, count, flags, none)
            .is_ok();
    let placed = made.into_iter().map(|(index, map)| {
        let map = map.and_then(|map| {
            if !together {
                place(places, index, &map)?;
            }
            Ok(map)
        });
        Done::Placed(index, map)
    });
    placed.collect()
}

fn place(places: &impl MapCore, index: u32, meters: &MapHandle) -> Result<()> {
    let fd = meters.as_fd().as_raw_fd().to_ne_bytes();
    places.update(&index.to_ne_bytes(), &fd, MapFlags::ANY)
}

/// A map of meters like those the programs were compiled for.
pub(crate) fn new_meters() -> Result<MapHandle> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as libbpf_rs::libbpf_sys::size_t,
        map_flags: libbpf_rs::libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    MapHandle::create(
        MapType::Array,
        Some("ts_meters"),
        4,
        size_of::<abi::ts_meter>() as u32,
        abi::TS_METERS,
        &options,
    )
}

pub(crate) fn place_meters(object: &Object, index: u32, meters: &MapHandle) -> Result<()> {
    place(&map_of(object, "meters"), index, meters)
}
