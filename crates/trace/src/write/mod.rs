//! Writing a ledger.

mod checksum;
mod edit;
mod encode;
mod file;
mod folder;
mod names;
mod samples;
mod sealer;
mod sealing;
mod series;
mod table;
mod written;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parquet::file::properties::WriterProperties;
use parquet::schema::types::TypePtr;
use tailscope_output::Folder;

use self::encode::Encoder;
use self::file::UnsealedFile;
use self::sealer::{Outcome, Sealer};
use crate::columns::Columns;
use crate::info::{LedgerInfo, State};
use crate::{CauseSet, Error, Metadata, Result, SpanName, SpanRow, Summary, partition, schema};

pub use self::edit::{OwnedValue, TableEditor};
pub use self::folder::{Existing, STACKS, clear, may_begin};
pub use self::names::Names;
pub use self::samples::SamplesWriter;
pub use self::sealing::Sealing;
pub use self::table::{Kind, TableWriter, Value};
pub use self::written::{Totals, Written};

/// Rows that are collected before they are encoded. A row takes 48 bytes until then, and 16 more
/// for each cause that struck it.
const GROUP_ROWS: usize = 65_536;

/// The key of [`Summary::lost`] for rows that could not be written.
pub const LOST_UNWRITTEN: &str = "unwritten";

/// Writes one ledger from one thread.
///
/// Rows are collected in memory, encoded by row groups into an unsealed file, and become readable
/// when that is sealed: whole, synced, renamed. Syncing and renaming happen on a thread of the
/// writer's own, so that a slow disk does not hold up the thread that pushes; that one waits only
/// when two files are in the queue already.
///
/// A writer that is dropped without [`finish`](LedgerWriter::finish) removes its unsealed file and
/// leaves `ledger.json` in the state `recording`, like one that was killed.
pub struct LedgerWriter {
    folder: PathBuf,
    held: Arc<Folder>,
    host: String,
    info: LedgerInfo,
    schema: TypePtr,
    properties: Arc<WriterProperties>,
    encoder: Encoder,
    sealing: Sealing,
    group_rows: usize,
    names: Names,
    columns: Columns,
    file: Option<UnsealedFile>,
    files_begun: u64,
    /// Files that were ended, by their age, their rows or the caller.
    files_closed: u64,
    /// When `tick` first saw the rows that are not sealed yet.
    unsealed_since: Option<Instant>,
    sealer: Sealer,
    totals: Totals,
    lost_rows: u64,
    written: Arc<Written>,
    /// Held as long as this value.
    _being_written: Option<File>,
}

impl LedgerWriter {
    /// Begins a ledger in `folder`, which is created if need be, and writes its `ledger.json`.
    /// `measured` are the causes that this machine can measure; the others are null in every row.
    ///
    /// # Errors
    /// [`Error::Exists`] if `folder` holds a ledger and `existing` does not allow to replace it;
    /// [`Error::Io`] or [`Error::Full`] if the folder can't be written.
    pub fn create(
        folder: impl AsRef<Path>,
        metadata: Metadata,
        measured: CauseSet,
        sealing: Sealing,
        existing: Existing,
    ) -> Result<LedgerWriter> {
        let folder = folder.as_ref().to_path_buf();
        let held = Arc::new(folder::prepare(&folder, existing)?);
        let host = partition::sanitized_host(&metadata.machine.host);
        let counters = metadata.counters.clone();
        let links = metadata.links.clone();
        let schema =
            schema::schema(measured, &counters, &links).map_err(|source| Error::Encode {
                path: folder.clone(),
                source,
            })?;
        let info = LedgerInfo::recording(metadata, measured);
        info.write(&held)?;
        let being_written = folder::mark(&held.held_path());
        let group_rows = sealing.max_rows.clamp(1, GROUP_ROWS as u64) as usize;
        Ok(LedgerWriter {
            folder,
            held,
            host,
            info,
            encoder: Encoder::new(schema.clone(), measured),
            schema,
            properties: Arc::new(encode::properties()),
            sealing,
            group_rows,
            names: Names::default(),
            columns: Columns::new(group_rows, measured, counters.len(), links),
            file: None,
            files_begun: 0,
            files_closed: 0,
            unsealed_since: None,
            sealer: Sealer::default(),
            totals: Totals::default(),
            lost_rows: 0,
            written: Arc::default(),
            _being_written: being_written,
        })
    }

    /// The handle of a span's name. The same text gives the same handle.
    pub fn intern(&mut self, name: &str) -> SpanName {
        self.names.intern(name)
    }

    /// Takes over the names of the ledger before, whose handles then hold for this one too. To be
    /// called before any name is interned here.
    pub fn take_over(&mut self, names: &Names) {
        self.names.clone_from(names);
    }

    /// Counts what it writes and loses there, to its end. To be called before any row is pushed.
    pub fn count_in(&mut self, written: Arc<Written>) {
        self.written = written;
    }

    fn lose(&mut self, rows: u64) {
        self.lost_rows += rows;
        self.written.add_lost_rows(rows);
    }

    /// The names that it has interned.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Begins a table that lies beside the rows, in the ledger's folder `folder`: a name that starts
    /// with `_`, which engines pass over when they read a whole ledger. Its files are named after it.
    ///
    /// # Errors
    /// [`Error::Encode`] if the columns make no schema.
    pub fn table(
        &self,
        folder: &str,
        name: &'static str,
        columns: &[(&str, Kind)],
    ) -> Result<TableWriter> {
        TableWriter::create(&self.held, self.folder.join(folder), name, columns)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::UnknownName`] if the row's name is not of this writer: that row is not added.
    /// Every other error means that the unsealed rows up to and with this one are lost (and
    /// counted in [`lost_rows`](LedgerWriter::lost_rows)), and that the writer can go on with a
    /// new file if the caller wants it to.
    pub fn push(&mut self, row: &SpanRow) -> Result<()> {
        let known = self.names.len();
        let mut names = row.cause_by.iter().flatten().chain([&row.span]);
        if let Some(unknown) = names.find(|name| name.0 >= known) {
            return Err(Error::UnknownName {
                index: unknown.0,
                known,
            });
        }
        self.columns.push(row);
        if self.columns.len() >= self.group_rows {
            self.encode_group()?;
            if self
                .file
                .as_ref()
                .is_some_and(|file| file.rows() >= self.sealing.max_rows)
            {
                self.close_file()?;
            }
        }
        Ok(())
    }

    /// Lets time pass: seals the file whose first row is as old as [`Sealing`] says, and
    /// reports what went wrong with files that were sealed in the background. To be called a few
    /// times a second, also when there are no rows.
    ///
    /// # Errors
    /// Those of [`push`](LedgerWriter::push).
    pub fn tick(&mut self, now: Instant) -> Result<()> {
        let outcomes = self.sealer.finished();
        self.account(outcomes)?;
        if self.columns.len() == 0 && self.file.is_none() {
            self.unsealed_since = None;
            return Ok(());
        }
        let since = *self.unsealed_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= self.sealing.age_after(self.files_closed) {
            self.close_file()?;
        }
        Ok(())
    }

    /// Seals what was pushed so far and waits until it is on disk.
    ///
    /// # Errors
    /// Those of [`push`](LedgerWriter::push).
    pub fn seal(&mut self) -> Result<()> {
        let closed = self.close_file();
        let outcomes = self.sealer.wait();
        let sealed = self.account(outcomes);
        closed.and(sealed)
    }

    /// Seals what was pushed and writes the final `ledger.json`, to whose `lost` the rows are
    /// added (as `unwritten`) that this writer could not write.
    ///
    /// # Errors
    /// Those of [`push`](LedgerWriter::push). `ledger.json` is written all the same if it can be.
    pub fn finish(mut self, summary: Summary) -> Result<Totals> {
        let sealed = self.seal();
        let Summary {
            ended_ns,
            seen,
            mut lost,
            uncovered,
            adjusted,
            cost,
            overhead,
        } = summary;
        if self.lost_rows > 0 {
            *lost.entry(LOST_UNWRITTEN.to_owned()).or_default() += self.lost_rows;
        }
        self.info.state = State::Done;
        self.info.ended_ns = Some(ended_ns);
        self.info.rows = Some(self.totals.rows);
        self.info.bytes = Some(self.totals.bytes);
        self.info.files = Some(self.totals.files);
        self.info.seen = Some(seen);
        self.info.lost = Some(lost);
        self.info.uncovered = Some(uncovered);
        self.info.adjusted = Some(adjusted);
        self.info.cost = Some(cost);
        self.info.overhead = overhead;
        self.info.write(&self.held)?;
        sealed?;
        Ok(self.totals)
    }

    /// What is sealed so far. A file counts from the first call after it was sealed.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Rows that were pushed and could not be written.
    #[must_use]
    pub fn lost_rows(&self) -> u64 {
        self.lost_rows
    }

    /// The ledger's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn encode_group(&mut self) -> Result<()> {
        let Some(&first_start_ns) = self.columns.start_ns.first() else {
            return Ok(());
        };
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.begin_file(first_start_ns)?,
        };
        let encoded = file.encode(&mut self.encoder, &self.columns, &self.names);
        let rows = file.rows() + self.columns.len() as u64;
        if let Err(source) = encoded {
            self.columns.clear();
            self.unsealed_since = None;
            self.lose(rows);
            return Err(Error::losing(file.sealed_path(), rows, source));
        }
        file.add_rows(self.columns.len() as u64);
        self.columns.clear();
        self.file = Some(file);
        Ok(())
    }

    fn begin_file(&mut self, first_start_ns: i64) -> Result<UnsealedFile> {
        let path = partition::file(&self.folder, &self.host, first_start_ns, self.files_begun);
        self.files_begun += 1;
        let (schema, properties) = (self.schema.clone(), self.properties.clone());
        UnsealedFile::create(&self.held, path.clone(), schema, properties).map_err(|source| {
            let rows = self.columns.len() as u64;
            self.columns.clear();
            self.unsealed_since = None;
            self.lose(rows);
            Error::losing(&path, rows, source)
        })
    }

    /// Ends the file and hands it to the thread that seals.
    fn close_file(&mut self) -> Result<()> {
        self.encode_group()?;
        self.unsealed_since = None;
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        self.files_closed += 1;
        let (path, rows) = (file.sealed_path().to_path_buf(), file.rows());
        match file.close() {
            Ok(closed) => self.sealer.submit(closed),
            Err(source) => {
                self.lose(rows);
                return Err(Error::losing(&path, rows, source));
            }
        }
        let outcomes = self.sealer.finished();
        self.account(outcomes)
    }

    /// Counts what became of files; the first error of several is returned.
    fn account(&mut self, outcomes: Vec<Outcome>) -> Result<()> {
        let mut first_error = Ok(());
        for Outcome { rows, result } in outcomes {
            match result {
                Ok(bytes) => {
                    self.totals.rows += rows;
                    self.totals.bytes += bytes;
                    self.written.add_bytes(bytes);
                    self.totals.files += 1;
                }
                Err(error) => {
                    self.lose(rows);
                    first_error = first_error.and(Err(error));
                }
            }
        }
        first_error
    }
}
