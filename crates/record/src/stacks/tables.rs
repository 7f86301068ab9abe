//! The tables `samples` and `stacks` in the ledger.

use tailscope_trace::{Kind, LedgerWriter, Result, STACKS, TableWriter, Value};

use super::frames::Stacks;
use super::names::{Named, Namer};
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
    for (stack, frames, whole) in stacks.used() {
        let mut depth = 0;
        for frame in frames {
            let Named {
                functions,
                module,
                address,
                python,
                build_id,
            } = namer.name(stacks.frame(*frame));
            let last = functions.len().saturating_sub(1);
            for place in 0..=last {
                table.push(&[
                    Value::Number(stack.0.into()),
                    Value::Number(depth),
                    Value::Text(functions.get(place).map_or("", String::as_str)),
                    Value::Text(module),
                    Value::Number(*address as i64),
                    Value::Number((place < last).into()),
                    Value::Number(whole.into()),
                    Value::Number((*python).into()),
                    Value::Text(build_id),
                ])?;
                depth += 1;
            }
        }
    }
    table.finish().map(drop)
}
