//! Stacks and their frames, each stored once.

use std::collections::HashMap;

/// For each of the stacks that there is room for: different frames, and frames of all stacks.
const FRAMES: usize = 8;
const CALLS: usize = 32;

/// Where code is, the same in every process that has the file mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Frame {
    /// An address of the kernel.
    Kernel(u64),
    /// A byte of a file, by the file's number.
    Code { module: u32, offset: u64 },
    /// Code that a process made at run time: which process (`made.rs`), and the address.
    Made { process: u32, address: u64 },
    /// A function of Python, by its number (`python.rs`); `None`: not known which.
    Python(Option<u32>),
    /// An address of a process whose code is not known: it is gone, for example.
    Unknown(u64),
}

/// A stack's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stack(pub(super) u32);

#[derive(Debug, Clone, Copy)]
struct Calls {
    from: u32,
    length: u32,
    whole: bool,
    used: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Stacks {
    /// Different stacks, at most.
    room: usize,
    frames: Vec<Frame>,
    frame_numbers: HashMap<Frame, u32>,
    calls: Vec<u32>,
    stacks: Vec<Calls>,
    stack_numbers: HashMap<(Box<[u32]>, bool), Stack>,
}

impl Stacks {
    /// For this number of different stacks.
    pub(super) fn with_room(room: usize) -> Self {
        Self {
            room,
            frames: Vec::new(),
            frame_numbers: HashMap::new(),
            calls: Vec::new(),
            stacks: Vec::new(),
            stack_numbers: HashMap::new(),
        }
    }

    /// The number of a stack, the innermost frame first; `whole`: it reaches the thread's first
    /// function. `None`: there are too many different ones.
    pub(super) fn intern(&mut self, frames: &[Frame], whole: bool) -> Option<Stack> {
        let mut numbers = Vec::with_capacity(frames.len());
        for frame in frames {
            numbers.push(match self.frame_numbers.get(frame) {
                Some(known) => *known,
                None if self.frames.len() >= FRAMES * self.room => return None,
                None => {
                    let number = self.frames.len() as u32;
                    self.frames.push(*frame);
                    self.frame_numbers.insert(*frame, number);
                    number
                }
            });
        }
        let key = (numbers.into_boxed_slice(), whole);
        if let Some(known) = self.stack_numbers.get(&key) {
            return Some(*known);
        }
        let calls = self.calls.len() + key.0.len();
        if self.stacks.len() >= self.room || calls > CALLS * self.room {
            return None;
        }
        let stack = Stack(self.stacks.len() as u32);
        self.stacks.push(Calls {
            from: self.calls.len() as u32,
            length: key.0.len() as u32,
            whole,
            used: false,
        });
        self.calls.extend_from_slice(&key.0);
        self.stack_numbers.insert(key, stack);
        Some(stack)
    }

    /// The frames of a stack, by their numbers, and whether it is whole.
    pub(super) fn of(&self, stack: Stack) -> (&[u32], bool) {
        let calls = &self.stacks[stack.0 as usize];
        let from = calls.from as usize;
        let frames = &self.calls[from..from + calls.length as usize];
        (frames, calls.whole)
    }

    /// A row's sample has this stack.
    pub(super) fn is_used(&mut self, stack: Stack) {
        self.stacks[stack.0 as usize].used = true;
    }

    /// Those that rows' samples have: number, frames by their numbers, whether it is whole.
    pub(super) fn used(&self) -> impl Iterator<Item = (Stack, &[u32], bool)> {
        let numbered = (0..).map(Stack).zip(&self.stacks);
        let used = numbered.filter(|(_, calls)| calls.used);
        used.map(|(stack, _)| {
            let (frames, whole) = self.of(stack);
            (stack, frames, whole)
        })
    }

    /// Code that processes made, of stacks that samples have: the process's number, the address.
    pub(super) fn made(&self) -> impl Iterator<Item = (u32, u64)> {
        let frames = self.used().flat_map(|(_, frames, _)| frames);
        frames.filter_map(|frame| self.made_at(*frame))
    }

    /// Where a frame's code is, if a process made it: the process's number, the address.
    pub(super) fn made_at(&self, frame: u32) -> Option<(u32, u64)> {
        match self.frame(frame) {
            Frame::Made { process, address } => Some((process, address)),
            _ => None,
        }
    }

    /// A frame by its number.
    pub(super) fn frame(&self, number: u32) -> Frame {
        self.frames[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_stored_once_and_only_used_ones_are_told() {
        let mut stacks = Stacks::with_room(8);
        let (a, b) = (
            Frame::Kernel(1),
            Frame::Code {
                module: 0,
                offset: 2,
            },
        );
        let first = stacks.intern(&[a, b], true).expect("room");
        assert_eq!(stacks.intern(&[a, b], true), Some(first));
        let cut = stacks.intern(&[a, b], false).expect("room");
        assert_ne!(cut, first);
        assert_eq!(stacks.used().count(), 0);
        stacks.is_used(first);
        let told: Vec<_> = stacks.used().collect();
        assert_eq!(told, [(first, &[0, 1][..], true)]);
        assert_eq!((stacks.frame(0), stacks.frame(1)), (a, b));
    }
}
