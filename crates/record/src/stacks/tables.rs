//! The tables `samples` and `stacks` in the ledger.

use std::collections::HashSet;

use tailscope_trace::{Kind, LedgerWriter, Result, STACKS, TableWriter, Value};

use super::frames::Stacks;
use super::names::Namer;
use super::{About, Waiting};

const SAMPLES: &[(&str, Kind)] = &[
    ("time_ns", Kind::Number),
    ("row", Kind::Number),
    ("span", Kind::Text),
    ("start_ns", Kind::Number),
    ("wall_ns", Kind::Number),
    ("weight", Kind::Real),
    ("pid", Kind::Number),
    ("tid", Kind::Number),
    ("cause", Kind::Text),
    ("ns", Kind::Number),
    ("stack", Kind::Number),
];

/// The columns of the table of stacks, a row for each function.
pub(crate) const FRAMES: &[(&str, Kind)] = &[
    ("stack", Kind::Number),
    ("depth", Kind::Number),
    ("function", Kind::Text),
    ("module", Kind::Text),
    ("address", Kind::Number),
    ("inlined", Kind::Number),
    ("whole", Kind::Number),
    ("python", Kind::Number),
    ("build_id", Kind::Text),
];

/// The cause of a sample of a thread that had the CPU.
const RUNNING: &str = "running";

/// The table of samples; it is begun with the first one.
#[derive(Default)]
pub(super) struct Samples {
    table: Option<TableWriter>,
}

impl std::fmt::Debug for Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Samples").finish_non_exhaustive()
    }
}

impl Samples {
    pub(super) fn push(
        &mut self,
        ledger: &LedgerWriter,
        about: &About,
        tid: u32,
        sample: &Waiting,
    ) -> Result<()> {
        let table = match &mut self.table {
            Some(table) => table,
            None => self.table.insert(ledger.table(STACKS, "samples", SAMPLES)?),
        };
        table.push(&[
            Value::Number((sample.at as i64).saturating_add(about.to_unix)),
            Value::Number(about.row as i64),
            Value::Text(&about.span),
            Value::Number(about.start_ns),
            Value::Number(about.wall_ns),
            Value::Real(about.weight),
            Value::Number(about.pid.into()),
            Value::Number(tid.into()),
            Value::Text(sample.cause.map_or(RUNNING, |cause| cause.name())),
            Value::Number(sample.ns as i64),
            Value::Number(sample.stack.0.into()),
        ])
    }

    pub(super) fn finish(self) -> Result<()> {
        self.table.map_or(Ok(()), |table| table.finish().map(drop))
    }
}

/// Writes the table of stacks: a row for each function of each stack that samples have.
pub(super) fn write_stacks(
    ledger: &LedgerWriter,
    stacks: &Stacks,
    mut namer: Namer<'_>,
) -> Result<()> {
    let mut table = ledger.table(STACKS, "stacks", FRAMES)?.of_one_file();
    let frames = stacks.used().flat_map(|(_, frames, _)| frames);
    let different: HashSet<u32> = frames.copied().collect();
    namer.prepare(different.into_iter().map(|it| stacks.frame(it)).collect());
    for (stack, frames, whole) in stacks.used() {
        let mut depth = 0;
        for frame in frames {
            let named = namer.name(stacks.frame(*frame));
            let row = FrameRow {
                stack: stack.0.into(),
                functions: &named.functions,
                module: &named.module,
                address: named.address as i64,
                whole: whole.into(),
                python: named.python.into(),
                build_id: &named.build_id,
            };
            depth = row.write(&mut table, depth)?;
        }
    }
    table.finish().map(drop)
}

/// A frame as the table has it: a row for its function, and one for each that was inlined into it.
pub(super) struct FrameRow<'f> {
    pub(super) stack: i64,
    /// The innermost first; empty: not known.
    pub(super) functions: &'f [String],
    pub(super) module: &'f str,
    pub(super) address: i64,
    pub(super) whole: i64,
    pub(super) python: i64,
    pub(super) build_id: &'f str,
}

impl FrameRow<'_> {
    /// Writes its rows from that depth on, and gives back the next one.
    pub(super) fn write(&self, table: &mut TableWriter, depth: i64) -> Result<i64> {
        let last = self.functions.len().saturating_sub(1);
        for index in 0..=last {
            table.push(&[
                Value::Number(self.stack),
                Value::Number(depth + index as i64),
                Value::Text(self.functions.get(index).map_or("", String::as_str)),
                Value::Text(self.module),
                Value::Number(self.address),
                Value::Number((index < last).into()),
                Value::Number(self.whole),
                Value::Number(self.python),
                Value::Text(self.build_id),
            ])?;
        }
        Ok(depth + last as i64 + 1)
    }
}
