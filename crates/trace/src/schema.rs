//! The columns of a file, in their order on disk.

use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::errors::Result;
use parquet::schema::types::{Type, TypePtr};

use crate::{Cause, CauseSet, Counter, Link};

/// A column of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Start,
    Span,
    Id,
    Pid,
    Tid,
    Cpu,
    Wall,
    Weight,
    CauseNs(Cause),
    CauseN(Cause),
    CauseBy(Cause),
    Others,
    /// A hardware counter, by its place among those of the ledger.
    Counter(usize),
    /// What joins spans with other records.
    Link(Link),
}

impl Column {
    /// Every column that each ledger has, in the order on disk; hardware counters come after them.
    pub(crate) fn all() -> impl Iterator<Item = Column> {
        use Column::{
            CauseBy, CauseN, CauseNs, Cpu, Id, Others, Pid, Span, Start, Tid, Wall, Weight,
        };
        [Start, Span, Id, Pid, Tid, Cpu, Wall, Weight]
            .into_iter()
            .chain(
                Cause::ALL
                    .into_iter()
                    .flat_map(|cause| [CauseNs(cause), CauseN(cause)]),
            )
            .chain(
                Cause::ALL
                    .into_iter()
                    .filter(|cause| cause.blames())
                    .map(CauseBy),
            )
            .chain([Others])
    }

    /// Every column of a ledger with this number of hardware counters, and with these links.
    pub(crate) fn all_with(counters: usize, links: &[Link]) -> impl Iterator<Item = Column> {
        Self::all()
            .chain((0..counters).map(Column::Counter))
            .chain(links.iter().copied().map(Column::Link))
    }

    /// The name, for a hardware counter from `counters`.
    pub(crate) fn name(self, counters: &[Counter]) -> String {
        match self {
            Column::Counter(place) => counters[place].column.clone(), // only of `all_with`
            Column::Start => "start_ns".to_owned(),
            Column::Span => "span".to_owned(),
            Column::Id => "id".to_owned(),
            Column::Pid => "pid".to_owned(),
            Column::Tid => "tid".to_owned(),
            Column::Cpu => "cpu".to_owned(),
            Column::Wall => "wall_ns".to_owned(),
            Column::Weight => "weight".to_owned(),
            Column::CauseNs(cause) => format!("{cause}_ns"),
            Column::CauseN(cause) => format!("{cause}_n"),
            Column::CauseBy(cause) => format!("{cause}_by"),
            Column::Others => "others".to_owned(),
            Column::Link(link) => link.column().to_owned(),
        }
    }

    pub(crate) fn physical(self) -> Physical {
        match self {
            Column::Span | Column::CauseBy(_) => Physical::BYTE_ARRAY,
            Column::Weight => Physical::DOUBLE,
            _ => Physical::INT64,
        }
    }

    /// A column that can't be null in this ledger is REQUIRED: it then has no definition levels
    /// to write and to read. Engines treat both alike.
    fn repetition(self, measured: CauseSet) -> Repetition {
        match self {
            Column::Id
            | Column::CauseBy(_)
            | Column::Others
            | Column::Counter(_)
            | Column::Link(_) => Repetition::OPTIONAL,
            Column::CauseNs(cause) | Column::CauseN(cause) if !measured.contains(cause) => {
                Repetition::OPTIONAL
            }
            _ => Repetition::REQUIRED,
        }
    }

    fn parquet_type(self, measured: CauseSet, counters: &[Counter]) -> Result<Type> {
        let name = self.name(counters);
        let builder = Type::primitive_type_builder(&name, self.physical())
            .with_repetition(self.repetition(measured));
        match self {
            // The converted type is for older readers.
            Column::Span | Column::CauseBy(_) => builder
                .with_logical_type(Some(LogicalType::String))
                .with_converted_type(ConvertedType::UTF8)
                .build(),
            _ => builder.build(),
        }
    }
}

/// Whether each ledger has a column of that name already.
#[must_use]
pub fn is_taken(column: &str) -> bool {
    let mut links = Link::CHAIN.iter().chain(&Link::TRACE);
    column.is_empty()
        || Column::all().any(|known| known.name(&[]) == column)
        || links.any(|link| link.column() == column)
}

/// The schema of every file of a ledger in which those causes are measured, those events counted, and
/// those links known.
pub(crate) fn schema(measured: CauseSet, counters: &[Counter], links: &[Link]) -> Result<TypePtr> {
    let columns = Column::all_with(counters.len(), links)
        .map(|column| column.parquet_type(measured, counters).map(Arc::new))
        .collect::<Result<Vec<_>>>()?;
    Type::group_type_builder("span")
        .with_fields(columns)
        .build()
        .map(Arc::new)
}
