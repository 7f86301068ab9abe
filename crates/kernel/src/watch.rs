//! Which processes are watched.

use std::io::Read;
use std::ops::Range;

use libbpf_rs::{Iter, MapCore, MapFlags, Object};

use crate::PythonFrames;
use crate::answers::Answers;
use crate::load::Kernel;
use crate::object::map_of;
use crate::pid_namespace::kernels_number;
use crate::shared::{self, Plain};
use crate::watch_error::{WatchError, kernel};

/// Changes what the programs keep of a watched process. A signal that stops it at this very moment may
/// go without its sender.
pub(crate) fn update_process(
    object: &Object,
    number: u32,
    change: impl FnOnce(&mut shared::process),
) -> Result<(), libbpf_rs::Error> {
    let (processes, key) = (map_of(object, "processes"), number.to_ne_bytes());
    let known = processes.lookup(&key, MapFlags::ANY)?;
    let mut process = known
        .and_then(|bytes| shared::process::from_bytes(&bytes))
        .unwrap_or_default();
    change(&mut process);
    processes.update(&key, process.as_bytes(), MapFlags::EXIST)
}

impl Kernel {
    /// Watches a process: its threads are metered from now on, and those it makes.
    pub fn watch(&mut self, pid: u32) -> Result<(), WatchError> {
        let Some(number) = kernels_number(&self.numbers, pid)? else {
            return Ok(()); // it has ended
        };
        let processes = map_of(&self.object, "processes");
        let key = number.to_ne_bytes();
        if processes
            .lookup(&key, MapFlags::ANY)
            .ok()
            .flatten()
            .is_some()
        {
            return Ok(());
        }
        processes
            .update(
                &key,
                shared::process::default().as_bytes(),
                MapFlags::NO_EXIST,
            )
            .map_err(|_| WatchError::TooMany)?;
        self.watched.add(number);
        // Reading the iterator runs its program over all tasks; it has no text to give.
        let mut text = Vec::new();
        Iter::new(&self.take_in)
            .map_err(kernel("open the iterator over tasks"))?
            .read_to_end(&mut text)
            .map_err(|e| kernel("find its threads")(e.into()))?;
        self.answers
            .as_ref()
            .map_or(Ok(()), Answers::take_in_listeners)
    }

    /// Stops watching it; what its threads cost afterwards is one load at each switch.
    pub fn unwatch(&mut self, pid: u32) {
        // One that has ended is watched no more.
        if let Ok(Some(number)) = kernels_number(&self.numbers, pid)
            && map_of(&self.object, "processes")
                .delete(&number.to_ne_bytes())
                .is_ok()
        {
            self.watched.remove(number);
        }
        self.sdk_meters.take_back(pid);
    }

    /// Where a watched process keeps the lock of its interpreter: of a thread that waits there it is known
    /// that it waits for its turn to run. And where it keeps the frames of Python. Both are forgotten when
    /// the process runs another program.
    ///
    /// # Errors
    /// The process is watched no more.
    pub fn knows_interpreter(
        &mut self,
        pid: u32,
        lock: &Range<u64>,
        python: Option<PythonFrames>,
    ) -> Result<(), WatchError> {
        let number = kernels_number(&self.numbers, pid)?.unwrap_or_default();
        update_process(&self.object, number, |process| {
            process.interpreter = lock.start;
            process.interpreter_end = lock.end;
            process.python = python.unwrap_or_default();
        })
        .map_err(kernel("find the process"))
    }
}
