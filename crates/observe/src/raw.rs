//! Raw samples on their way to disk: through a bounded number of buffers that another thread empties.
//!
//! The observer never waits: where no buffer is empty, a sample is dropped and counted. Buffers go
//! round, so nothing is allocated while it observes, and the other thread looks for full ones by
//! itself, for waking it would take the observer a system call.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use serde::{Serialize, Serializer};
use tailscope_trace::SamplesWriter;

use crate::sampler::{Sample, Sink};

/// Samples of a buffer.
const ROWS: usize = 8_192;
/// Buffers: two million samples, two seconds at a million a second.
const BUFFERS: usize = 256;
/// How often the writer looks.
const POLL_EVERY: Duration = Duration::from_millis(2);
/// While no buffer is free, the observer looks only so often for one.
const ASK_EVERY: u64 = 64;

/// Columns before the counters and tags: both readings of the clock as the first and how much later
/// the second was, and [`Mark`].
const OWN: [&str; 3] = ["cycles", "took", "mark"];

/// What is to be known of a sample.
#[derive(Debug, Clone, Copy)]
enum Mark {
    /// It makes a pair with the one before.
    Plain = 0,
    /// The observer lost its CPU since the one before.
    Preempted = 1,
    /// The first after a pause: no pair with the one before.
    First = 2,
}

/// What became of the raw samples.
#[derive(Debug, Clone, Serialize)]
pub struct Written {
    /// The folder.
    #[serde(serialize_with = "as_text")]
    pub folder: PathBuf,
    /// Samples in files that are whole.
    pub samples: u64,
    /// Samples that were dropped for want of an empty buffer, or lost with a file that could not be
    /// written: together with `samples`, all that were taken.
    pub lost: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// How many.
    pub files: u64,
    /// Why it ended early.
    pub error: Option<String>,
}

/// A path may be no text. A report says it as well as it can.
fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// The observer's end.
#[derive(Debug)]
pub(crate) struct Feed {
    buffer: Option<Vec<u64>>,
    full: SyncSender<Vec<u64>>,
    empty: Receiver<Vec<u64>>,
    room: usize,
    offered: u64,
    waited: u64,
    first: bool,
}

/// The writer's end.
pub(crate) struct Drain {
    writer: SamplesWriter,
    folder: PathBuf,
    full: Receiver<Vec<u64>>,
    empty: SyncSender<Vec<u64>>,
}

/// Makes the folder and both ends; `signals` are the columns after our own.
pub(crate) fn pipe(
    folder: &Path,
    signals: &[String],
) -> Result<(Feed, Drain), tailscope_trace::Error> {
    let columns: Vec<String> = OWN
        .into_iter()
        .map(str::to_owned)
        .chain(signals.iter().cloned())
        .collect();
    let writer = SamplesWriter::create(folder, &columns)?;
    let (full, to_write) = sync_channel(BUFFERS);
    let (back, empty) = sync_channel(BUFFERS);
    let room = ROWS * columns.len();
    for _ in 1..BUFFERS {
        // Written once, so that no page is new when the observer meets it.
        let mut buffer = vec![1; room];
        buffer.clear();
        let sent = back.try_send(buffer);
        debug_assert!(sent.is_ok(), "there is room for all of them");
    }
    let feed = Feed {
        buffer: Some(Vec::with_capacity(room)),
        full,
        empty,
        room,
        offered: 0,
        waited: 0,
        first: true,
    };
    let drain = Drain {
        writer,
        folder: folder.to_owned(),
        full: to_write,
        empty: back,
    };
    Ok((feed, drain))
}

impl Feed {
    /// The next sample makes no pair with the one before.
    pub(crate) fn interrupt(&mut self) {
        self.first = true;
    }

    /// Hands over what is left; how many samples there were in all.
    pub(crate) fn end(mut self) -> u64 {
        if let Some(buffer) = self.buffer.take() {
            // As many places as buffers: there is one. If the writer is gone, it is lost, and counted.
            let _ = self.full.try_send(buffer);
        }
        self.offered
    }

    #[cold]
    fn ask(&mut self) {
        if self.waited.is_multiple_of(ASK_EVERY) {
            self.buffer = self.empty.try_recv().ok();
        }
        self.waited += 1;
        if self.buffer.is_some() {
            self.waited = 0;
        }
    }
}

impl<const N: usize, const T: usize> Sink<N, T> for Feed {
    #[inline(always)]
    fn take(&mut self, sample: &Sample<N, T>) {
        self.offered += 1;
        if self.buffer.is_none() {
            self.ask();
        }
        let Some(buffer) = &mut self.buffer else {
            // What comes after a loss has not come after the sample before.
            self.first = true;
            return;
        };
        let mark = match (self.first, sample.preempted) {
            (true, _) => Mark::First,
            (false, true) => Mark::Preempted,
            (false, false) => Mark::Plain,
        };
        self.first = false;
        buffer.extend([
            sample.start,
            sample.end.wrapping_sub(sample.start),
            mark as u64,
        ]);
        buffer.extend(sample.counters);
        buffer.extend(sample.tags);
        if buffer.len() >= self.room
            && let Some(buffer) = self.buffer.take()
        {
            let _ = self.full.try_send(buffer);
            self.buffer = self.empty.try_recv().ok();
        }
    }
}

impl Drain {
    /// Writes until the observer's end is gone. `lost` of the answer still lacks what the observer
    /// dropped.
    pub(crate) fn run(mut self) -> Written {
        let mut error = None;
        loop {
            match self.full.try_recv() {
                Ok(mut buffer) => {
                    if let Err(e) = self.writer.push(&buffer) {
                        error = Some(e.to_string());
                        break;
                    }
                    buffer.clear();
                    let _ = self.empty.try_send(buffer);
                }
                Err(TryRecvError::Empty) => thread::sleep(POLL_EVERY),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        let before = self.writer.totals();
        let totals = match (&error, self.writer.finish()) {
            (None, Ok(totals)) => totals,
            (None, Err(e)) => {
                error = Some(e.to_string());
                before
            }
            (Some(_), Ok(totals)) => totals,
            (Some(_), Err(_)) => before,
        };
        Written {
            folder: self.folder,
            samples: totals.rows,
            lost: 0,
            bytes: totals.bytes,
            files: totals.files,
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u64) -> Sample<1, 1> {
        Sample {
            start: number * 100,
            end: number * 100 + 7,
            counters: [number],
            tags: [number % 3],
            again: false,
            preempted: false,
        }
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("raw");
        (parent, folder)
    }

    fn signals() -> [String; 2] {
        ["counter".into(), "tag".into()]
    }

    #[test]
    fn what_the_writer_keeps_up_with_is_all_written() {
        let (_parent, folder) = folder();
        let (mut feed, drain) = pipe(&folder, &signals()).expect("made");
        let writer = thread::spawn(|| drain.run());
        let count = 3 * ROWS as u64 + 17;
        (0..count).for_each(|number| feed.take(&sample(number)));
        assert_eq!(feed.end(), count);
        let written = writer.join().expect("it ends");
        assert_eq!((written.samples, written.error), (count, None));
    }

    #[test]
    fn what_finds_no_buffer_is_lost_and_the_count_is_exact() {
        let (_parent, folder) = folder();
        let (mut feed, drain) = pipe(&folder, &signals()).expect("made");
        // Nobody writes yet: all buffers fill, and no more.
        let room = (BUFFERS * ROWS) as u64;
        let count = room + 12_345;
        (0..count).for_each(|number| feed.take(&sample(number)));
        assert_eq!(feed.end(), count);
        assert_eq!(drain.run().samples, room);
    }

    #[test]
    fn a_folder_that_is_there_is_not_written_to() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let Err(error) = pipe(parent.path(), &signals()) else {
            panic!("it is there");
        };
        assert!(error.to_string().contains("exists"), "{error}");
    }
}
