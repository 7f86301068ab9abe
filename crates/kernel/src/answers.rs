//! Requests of sockets that need a look from outside: where processes listen, and answers after
//! which nothing came on their connection.

use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object, OpenObject};
use rustix::time::{ClockId, clock_gettime};
use tailscope_signals::row::Row;

use crate::load_error::{LoadError, kernel};
use crate::object::{map_of, program};
use crate::process_events::{self, Ring};
use crate::select::{autoload, loads};
use crate::shared::{self, Plain};
use crate::watch_error::{self, WatchError};

/// After so long without a send or a receive an answer counts as complete. One that goes on later is
/// counted as [`Uncovered::continued`](crate::Uncovered::continued).
const COMPLETE_AFTER: Duration = Duration::from_secs(2);

/// What the program that finishes answers goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerIterator {
    /// The states of sockets: quick however many files there are.
    States,
    /// All open files: for kernels that refuse the other.
    Files,
}

/// Switches on the programs that this file runs, if they are wanted: those that this kernel has.
pub(crate) fn choose_programs(open: &mut OpenObject, wanted: bool) -> AnswerIterator {
    let iterator = match wanted && !loads("probe_socket_iterator") {
        true => AnswerIterator::Files,
        false => AnswerIterator::States,
    };
    let states = wanted && iterator == AnswerIterator::States;
    autoload(open, "take_in_listeners", wanted);
    autoload(open, "finish_answers", states);
    autoload(open, "finish_answers_of_files", wanted && !states);
    iterator
}

/// The programs that are run by reading them, and the rows that are finished outside of their thread.
pub(crate) struct Answers {
    finish: Link,
    listeners: Link,
    rows: Ring<Row>,
}

impl Answers {
    pub(crate) fn of(object: &mut Object, iterator: AnswerIterator) -> Result<Self, LoadError> {
        let finish =
            match iterator {
                AnswerIterator::States => {
                    let requests = map_of(object, "requests");
                    let requests = requests.as_fd().try_clone_to_owned().map_err(|source| {
                        LoadError::System {
                            what: "keep the map of requests",
                            source,
                        }
                    })?;
                    program(object, "finish_answers").attach_iter(requests.as_fd())
                }
                AnswerIterator::Files => program(object, "finish_answers_of_files").attach(),
            }
            .map_err(kernel("attach the iterator over requests"))?;
        let listeners = program(object, "take_in_listeners")
            .attach()
            .map_err(kernel("attach the iterator over files"))?;
        let rows = process_events::rows(&map_of(object, "late_rows"))
            .map_err(kernel("open the ring of late rows"))?;
        Ok(Self {
            finish,
            listeners,
            rows,
        })
    }

    /// Hands on the rows that were finished outside of their thread.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&Row)) {
        self.rows.drain(|row| each(&row));
    }

    /// Learns on which ports and addresses the watched processes listen.
    pub(crate) fn take_in_listeners(&self) -> Result<(), WatchError> {
        run(&self.listeners).map_err(watch_error::kernel("find listening sockets"))
    }

    /// Finishes the answers after which nothing has come on their connection: for two seconds, or
    /// with `all`, whenever they were. `each` gets their rows.
    pub(crate) fn finish(
        &mut self,
        object: &Object,
        all: bool,
        mut each: impl FnMut(&Row),
    ) -> Result<(), WatchError> {
        let before = if all {
            u64::MAX
        } else {
            let now = clock_gettime(ClockId::Monotonic);
            let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
            now.saturating_sub(COMPLETE_AFTER).as_nanos() as u64
        };
        let refused = || watch_error::kernel("find complete answers");
        let asked = shared::late { before, left: 0 };
        let mut most = u64::MAX;
        loop {
            map_of(object, ".bss.late")
                .update(&0u32.to_ne_bytes(), asked.as_bytes(), MapFlags::ANY)
                .map_err(refused())?;
            run(&self.finish).map_err(refused())?;
            self.drain(&mut each);
            let left = left(object);
            if left == 0 || left >= most {
                return Ok(());
            }
            most = left; // the ring was full: there is room again
        }
    }
}

/// Reading an iterator runs its program over all that it goes through; ours have no text to give.
fn run(link: &Link) -> libbpf_rs::Result<()> {
    Iter::new(link)?.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// How many answers the latest run found no room for.
fn left(object: &Object) -> u64 {
    let bytes = map_of(object, ".bss.late").lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let bytes = bytes.ok().flatten().unwrap_or_default();
    shared::late::from_bytes(&bytes).map_or(0, |late| late.left)
}

const _: () = assert!(shared::LATE_ROWS_BYTES.is_power_of_two());
