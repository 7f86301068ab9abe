//! Where the tables of one ledger end, and those of the next begin.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::frames::{Frame, Stack, Stacks};
use super::tables::Samples;
use super::{StackPipeline, Waiting};

impl StackPipeline {
    /// Goes on with the next ledger. Gives back what the one before still has to write: its names are
    /// found on any thread ([`finish`](Self::finish)). To be called when all rows are joined.
    ///
    /// Samples of spans that are under way go with the next ledger, which will have their rows.
    pub(crate) fn renew(&mut self) -> Self {
        let next = Self {
            threads: HashMap::new(),
            waiting: 0,
            ended: Vec::new(),
            stacks: Stacks::with_room(self.code_for.stacks()),
            processes: self.processes.renewed(),
            python: self.python.renewed(),
            kernel: Arc::clone(&self.kernel),
            samples: Samples::default(),
            code_for: self.code_for,
            hot: self.hot.take(),
            lost: self.lost,
        };
        let mut before = std::mem::replace(self, next);
        let mut carried = HashMap::new();
        for (tid, samples) in std::mem::take(&mut before.threads) {
            let samples = samples.into_iter().filter_map(|sample| {
                let known = carried.entry(sample.stack);
                let stack = *known.or_insert_with(|| self.carried(sample.stack, &before));
                self.lost += u64::from(stack.is_none());
                Some(Waiting {
                    stack: stack?,
                    ..sample
                })
            });
            let samples: VecDeque<Waiting> = samples.collect();
            self.waiting += samples.len();
            self.threads.insert(tid, samples);
        }
        before
    }

    /// A stack of the ledger before, in this one's numbers; `None`: there is no room.
    fn carried(&mut self, stack: Stack, before: &Self) -> Option<Stack> {
        let (frames, whole) = before.stacks.of(stack);
        let carried = frames
            .iter()
            .map(|frame| match before.stacks.frame(*frame) {
                Frame::Python(Some(number)) => {
                    Frame::Python(self.python.carried(number, &before.python))
                }
                frame => self.processes.carried(frame, &before.processes),
            });
        let frames: Vec<Frame> = carried.collect();
        self.stacks.intern(&frames, whole)
    }
}

#[cfg(test)]
mod tests {
    use std::process;

    use tailscope_kernel::{Registers, StackSample};

    use super::*;
    use crate::options::CodeFor;

    /// A thread of this process was in a function of this program.
    fn sample(at: u64, tid: u32) -> StackSample {
        StackSample {
            at,
            ns: 7,
            pid: process::id(),
            tid,
            registers: Registers {
                ip: process::id as *const () as u64,
                ..Registers::default()
            },
            stack: vec![0; 64],
            ..StackSample::default()
        }
    }

    /// Where the innermost frame of a thread's oldest sample is: the file, and the byte.
    fn place(pipeline: &StackPipeline, tid: u32) -> (std::path::PathBuf, u64) {
        let sample = pipeline.threads[&tid].front().expect("it waits");
        let (frames, _) = pipeline.stacks.of(sample.stack);
        match pipeline.stacks.frame(frames[0]) {
            Frame::Code { module, offset } => {
                let module = &pipeline.processes.modules()[module as usize];
                (module.path.clone(), offset)
            }
            frame => panic!("{frame:?} is in no file"),
        }
    }

    #[test]
    fn samples_of_spans_under_way_go_with_the_next_ledger() {
        let mut pipeline = StackPipeline::start(CodeFor::Ledgers);
        pipeline.take(&sample(1, 5));
        pipeline.take(&sample(2, 5));
        pipeline.take(&sample(3, 6));
        let was = (place(&pipeline, 5), place(&pipeline, 6));
        let before = pipeline.renew();
        assert_eq!((pipeline.waiting, pipeline.lost), (3, 0));
        assert_eq!((place(&pipeline, 5), place(&pipeline, 6)), was);
        let times: Vec<u64> = pipeline.threads[&5].iter().map(|one| one.at).collect();
        assert_eq!(times, [1, 2]);
        // The one before keeps what its ledger needs, and no more samples.
        assert!(before.threads.is_empty());
        // Of the files, the next one has those that it uses.
        assert_eq!(pipeline.processes.modules().len(), 1);
        pipeline.take(&sample(4, 6));
        assert_eq!(pipeline.waiting, 4);
        let files = |of: &StackPipeline| of.processes.modules().len();
        assert_eq!(files(&pipeline), files(&before));
    }

    #[test]
    fn samples_count_from_the_start_of_the_program_however_late_that_is_known() {
        let mut pipeline = StackPipeline::start(CodeFor::Ledgers);
        pipeline.forget_process(process::id(), 2);
        pipeline.take(&sample(2, 5));
        place(&pipeline, 5);
        pipeline.take(&sample(1, 6)); // it was of the program before
        let of = &pipeline.threads[&6];
        let (frames, _) = pipeline.stacks.of(of[0].stack);
        assert!(matches!(
            pipeline.stacks.frame(frames[0]),
            Frame::Unknown(_)
        ));
    }
}
