//! Functions of Python in stacks.
//!
//! One C function of the interpreter runs all of them. One call of it can run several functions of
//! Python. On the stack, these functions replace the call.
//!
//! The name of a code object is read from the process when its first sample is taken: within some
//! 50 ms.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tailscope_kernel::{PythonFrame, StackSample};
use tailscope_process::Allowance;

use super::frames::Frame;
use super::reader::{Question, Reader};
use crate::interpreters::{CodeLayout, Function, Layout};

/// Different functions that are remembered, at most.
const MOST_FUNCTIONS: usize = 1 << 16;
/// Bytes of their names, at most.
const MOST_BYTES: usize = 16 << 20;
/// Different code objects of all processes, at most.
const MOST_KNOWN: usize = 1 << 18;
/// The share of all time that reading names takes, and the time at once. The rest has no names.
const SHARE: f64 = 0.02;
const AT_ONCE: Duration = Duration::from_millis(500);
/// A process that did not let itself be read in time this often is not read any more.
const MOST_LATE: u8 = 3;

#[derive(Debug)]
struct Process {
    layout: Layout,
    /// Which process it was a copy of: if it is gone, that has the same code objects.
    parent: Option<u32>,
    /// How often it did not let itself be read in time.
    late: u8,
    /// `None`: something else was in its place, or it could not be read.
    known: HashMap<(u64, u64), Option<u32>>,
}

/// Functions by their numbers.
#[derive(Debug, Default)]
struct Numbers {
    functions: Vec<Function>,
    /// Of their names and files.
    bytes: usize,
    known: HashMap<Function, u32>,
}

impl Numbers {
    /// The number of a function; `None`: there are too many.
    fn of(&mut self, function: Function) -> Option<u32> {
        if let Some(known) = self.known.get(&function) {
            return Some(*known);
        }
        let next = self.functions.len() as u32;
        let bytes = function.name.len() + function.file.len();
        if next as usize >= MOST_FUNCTIONS || self.bytes + bytes > MOST_BYTES {
            return None;
        }
        self.bytes += bytes;
        self.functions.push(function.clone());
        self.known.insert(function, next);
        Some(next)
    }
}

/// All functions of Python that were seen.
#[derive(Debug)]
pub(super) struct Python {
    processes: HashMap<u32, Process>,
    /// Code objects of all processes.
    known: usize,
    numbers: Numbers,
    allowance: Allowance,
    reader: Reader,
}

impl Default for Python {
    fn default() -> Self {
        Self {
            processes: HashMap::new(),
            known: 0,
            numbers: Numbers::default(),
            allowance: Allowance::new(SHARE, AT_ONCE),
            reader: Reader::default(),
        }
    }
}

impl Python {
    /// Where a process has its functions of Python.
    pub(super) fn learn(&mut self, pid: u32, layout: Layout) {
        let parent = self.processes.get(&pid).and_then(|known| known.parent);
        self.add(pid, layout, parent);
    }

    fn add(&mut self, pid: u32, layout: Layout, parent: Option<u32>) {
        self.forget(pid);
        let process = Process {
            layout,
            parent,
            late: 0,
            known: HashMap::new(),
        };
        self.processes.insert(pid, process);
    }

    /// The process is a copy of its parent.
    pub(super) fn inherit(&mut self, pid: u32, parent: u32) {
        if let Some(layout) = self.processes.get(&parent).map(|parent| parent.layout) {
            self.add(pid, layout, Some(parent));
        }
    }

    /// The process runs another program, or is gone.
    pub(super) fn forget(&mut self, pid: u32) {
        let gone = self.processes.remove(&pid);
        self.known -= gone.map_or(0, |process| process.known.len());
    }

    /// A function by its number.
    pub(super) fn function(&self, number: u32) -> &Function {
        &self.numbers.functions[number as usize]
    }

    /// A thread's stack with its functions of Python. `native`: the stack without, as addresses and
    /// frames, the innermost first; `whole`: it reaches the thread's first function.
    pub(super) fn add_to(
        &mut self,
        native: Vec<(u64, Frame)>,
        whole: bool,
        sample: &StackSample,
    ) -> (Vec<Frame>, bool) {
        let layout = self.processes.get(&sample.pid).map(|p| p.layout);
        let Some(layout) = layout.filter(|_| !sample.python.is_empty()) else {
            let frames = native.into_iter().map(|(_, frame)| frame).collect();
            return (frames, whole);
        };
        let (begin, end) = layout.runs;
        let runs = |address: u64| (begin..end).contains(&address);
        let mut python: Vec<(Frame, bool)> = Vec::with_capacity(sample.python.len());
        for frame in &sample.python {
            let number = self.number(sample.pid, &layout.code, *frame);
            if !number.is_some_and(|number| self.function(number).file.is_empty()) {
                python.push((Frame::Python(number), frame.last));
            } else if let Some((_, last)) = python.last_mut() {
                *last |= frame.last; // the interpreter's own is not shown
            }
        }
        let native = native.into_iter().map(|(at, frame)| (frame, runs(at)));
        let frames = merged(native.collect(), &python, whole && sample.python_whole);
        // Without the outer functions of Python, there is a gap, though the native stack is whole.
        (frames, sample.python_whole)
    }

    fn number(&mut self, pid: u32, layout: &CodeLayout, frame: PythonFrame) -> Option<u32> {
        let process = self.processes.get_mut(&pid)?;
        let key = (frame.code, frame.mark);
        if let Some(known) = process.known.get(&key) {
            return *known;
        }
        let is_late = process.late >= MOST_LATE;
        if is_late || self.known >= MOST_KNOWN || self.allowance.left().is_zero() {
            return None;
        }
        let begun = Instant::now();
        let read = self.reader.read(Question {
            pid,
            parent: process.parent,
            layout: *layout,
            frame,
        });
        self.allowance.add(begun.elapsed());
        process.late += u8::from(read.is_err());
        let number = read.unwrap_or_default();
        let number = number.and_then(|function| self.numbers.of(function));
        self.known += 1;
        process.known.insert(key, number);
        number
    }

    /// The same processes, for the next ledger, which has its own numbers. This one reads no more.
    pub(super) fn renewed(&mut self) -> Self {
        let mut processes = std::mem::take(&mut self.processes);
        processes.values_mut().for_each(|known| known.known.clear());
        Self {
            processes,
            reader: std::mem::take(&mut self.reader),
            allowance: std::mem::replace(&mut self.allowance, Allowance::new(SHARE, AT_ONCE)),
            ..Self::default()
        }
    }

    /// A function of the ledger before, in this one's numbers.
    pub(super) fn carried(&mut self, number: u32, before: &Self) -> Option<u32> {
        self.numbers.of(before.function(number).clone())
    }
}

/// Puts functions of Python, each with whether it is the last that a call of the C function runs, in
/// place of those calls. `native`: frames, with whether they are such a call; `both_whole`: neither of
/// the two ends early.
fn merged(native: Vec<(Frame, bool)>, python: &[(Frame, bool)], both_whole: bool) -> Vec<Frame> {
    let mut groups = python.split_inclusive(|(_, last)| *last);
    let calls = native.iter().filter(|(_, runs)| *runs).count();
    // The innermost call may have begun just now, without a function yet.
    let begins = native.first().is_some_and(|(_, runs)| *runs);
    let mut without = usize::from(both_whole && begins && calls > groups.clone().count());
    let mut frames = Vec::with_capacity(native.len() + python.len());
    for (frame, runs) in native {
        let group = if runs && without == 0 {
            groups.next()
        } else {
            None
        };
        without -= usize::from(runs && without > 0);
        match group {
            Some(group) => frames.extend(group.iter().map(|(frame, _)| *frame)),
            None => frames.push(frame),
        }
    }
    // The thread's own stack was not copied as far as this.
    frames.extend(groups.flatten().map(|(frame, _)| *frame));
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: Frame = Frame::Unknown(1);
    const RUNS: Frame = Frame::Unknown(2);

    fn native(frames: &[Frame]) -> Vec<(Frame, bool)> {
        frames
            .iter()
            .map(|frame| (*frame, *frame == RUNS))
            .collect()
    }

    fn python(number: u32, last: bool) -> (Frame, bool) {
        (Frame::Python(Some(number)), last)
    }

    #[test]
    fn functions_of_python_come_in_place_of_the_c_function_that_runs_them() {
        let stack = native(&[C, RUNS, C, C, RUNS, C]);
        let of = [python(3, false), python(2, true), python(1, true)];
        let p = |n| Frame::Python(Some(n));
        assert_eq!(merged(stack, &of, true), [C, p(3), p(2), C, C, p(1), C]);
    }

    #[test]
    fn a_call_that_has_begun_just_now_has_no_function_yet() {
        let stack = native(&[RUNS, C, RUNS, C]);
        let of = [python(1, true)];
        let p = |n| Frame::Python(Some(n));
        assert_eq!(merged(stack.clone(), &of, true), [RUNS, C, p(1), C]);
        assert_eq!(merged(stack, &of, false), [p(1), C, RUNS, C]);
    }

    #[test]
    fn what_was_not_copied_of_the_stack_is_no_gap_in_python() {
        let of = [python(2, true), python(1, true)];
        let p = |n| Frame::Python(Some(n));
        assert_eq!(
            merged(native(&[C, RUNS, C]), &of, false),
            [C, p(2), C, p(1)]
        );
    }
}
