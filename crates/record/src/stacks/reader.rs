//! Reads what functions of Python are called, on a thread of its own.
//!
//! A process's memory can be a file of a file system in user space, which may never answer. So the
//! recorder gives a read some time, and then goes on without. The thread ends when its read does.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tailscope_kernel::PythonFrame;

use crate::interpreters::{CodeLayout, Function, MemoryOf};

/// A read takes some microseconds: what takes longer is the machine's doing, or the process's.
const PATIENCE: Duration = Duration::from_millis(200);
/// Threads whose read does not end, at most.
const MOST_THREADS: usize = 8;

/// What a code object is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    /// Whose it is.
    pub(super) pid: u32,
    /// Another process that has the same, for when the first is gone.
    pub(super) parent: Option<u32>,
    pub(super) layout: CodeLayout,
    pub(super) frame: PythonFrame,
}

impl Question {
    fn answer(self) -> Option<Function> {
        let Self { layout, frame, .. } = self;
        let read = |pid| layout.function(frame.code, frame.mark, &MemoryOf(pid));
        read(self.pid).or_else(|| self.parent.and_then(read))
    }
}

/// The process has not let itself be read in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Late;

type Answer<Q> = fn(Q) -> Option<Function>;

#[derive(Debug)]
struct Reading<Q> {
    questions: SyncSender<Q>,
    answers: Receiver<Option<Function>>,
}

#[derive(Debug)]
pub(super) struct Reader<Q = Question> {
    answer: Answer<Q>,
    reading: Option<Reading<Q>>,
    /// Each thread has one more.
    alive: Arc<()>,
}

impl Default for Reader {
    fn default() -> Self {
        Self::by(Question::answer)
    }
}

impl<Q: Send + 'static> Reader<Q> {
    fn by(answer: Answer<Q>) -> Self {
        Self {
            answer,
            reading: None,
            alive: Arc::new(()),
        }
    }

    /// The function, or `None`: something else is in its place.
    pub(super) fn read(&mut self, question: Q) -> Result<Option<Function>, Late> {
        let reading = match self.reading.take() {
            Some(reading) => reading,
            None => self.begin().ok_or(Late)?,
        };
        reading.questions.try_send(question).map_err(|_| Late)?;
        let found = reading.answers.recv_timeout(PATIENCE).map_err(|_| Late)?;
        self.reading = Some(reading);
        Ok(found)
    }

    fn begin(&self) -> Option<Reading<Q>> {
        let alive = self.alive.clone();
        if Arc::strong_count(&alive) > MOST_THREADS + 1 {
            return None;
        }
        let (questions, asked) = sync_channel::<Q>(1);
        let (answered, answers) = sync_channel(1);
        let answer = self.answer;
        let work = move || {
            let _alive = alive;
            while let Ok(question) = asked.recv()
                && answered.send(answer(question)).is_ok()
            {}
        };
        let builder = thread::Builder::new().name("python-names".into());
        builder.spawn(work).ok()?;
        Some(Reading { questions, answers })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Reads wait for this while a test has it.
    static HELD: Mutex<()> = Mutex::new(());

    fn slow_if(hangs: bool) -> Option<Function> {
        if hangs {
            drop(HELD.lock());
        }
        Some(Function::default())
    }

    #[test]
    fn who_is_never_answered_does_not_wait_and_keeps_few_threads() {
        let mut reader = Reader::by(slow_if);
        assert_eq!(reader.read(false), Ok(Some(Function::default())));
        let held = HELD.lock().expect("no test has failed with it");
        for _ in 0..MOST_THREADS + 1 {
            assert_eq!(reader.read(true), Err(Late));
        }
        assert_eq!(reader.read(false), Err(Late), "no more threads are begun");
        drop(held);
        while Arc::strong_count(&reader.alive) > 1 {
            thread::yield_now(); // they end with their reads
        }
        assert_eq!(reader.read(false), Ok(Some(Function::default())));
    }
}
