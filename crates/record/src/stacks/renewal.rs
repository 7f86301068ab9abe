//! Where the tables of one ledger end, and those of the next begin.

use std::collections::HashMap;
use std::sync::Arc;

use super::frames::{Frame, Stack};
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
            stacks: super::Stacks::default(),
            processes: self.processes.renewed(),
            python: self.python.renewed(),
            kernel: Arc::clone(&self.kernel),
            samples: super::Samples::default(),
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
            let samples: std::collections::VecDeque<Waiting> = samples.collect();
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
