//! Rows while they are collected, column by column: those of one row group, and of tables beside them.

use crate::{Cause, CauseSet, Link, SpanName, SpanRow};

/// One row group's rows. What nearly every row has is a flat vector; causes are kept as the list
/// of the rows that they struck, because most of them strike one row in hundreds: that makes
/// pushing, memory and encoding proportional to what happened and not to the number of causes.
pub(crate) struct Columns {
    pub(crate) start_ns: Vec<i64>,
    pub(crate) wall_ns: Vec<i64>,
    pub(crate) weight: Vec<f64>,
    pub(crate) span: Vec<u32>,
    pub(crate) pid: Vec<i32>,
    pub(crate) tid: Vec<i32>,
    pub(crate) cpu: Vec<i32>,
    /// Ids of the rows that have one, in their order.
    pub(crate) id: Vec<i64>,
    /// Which rows those are.
    pub(crate) id_rows: Vec<u32>,
    /// How many other requests had their thread meanwhile, of the rows that had some.
    pub(crate) others: Vec<i64>,
    /// Which rows those are.
    pub(crate) others_rows: Vec<u32>,
    pub(crate) strikes: [Strikes; Cause::COUNT],
    pub(crate) counters: Vec<Counted>,
    /// The links that the ledger has, in the order of their columns.
    pub(crate) links: Vec<Link>,
    /// Their values.
    linked: Vec<Counted>,
    measured: u32,
}

/// What a hardware counter counted, or a link says, and in which rows, ascending.
#[derive(Clone, Default)]
pub(crate) struct Counted {
    pub(crate) rows: Vec<u32>,
    pub(crate) values: Vec<i64>,
}

/// The rows that a cause struck, ascending, and how hard.
#[derive(Default)]
pub(crate) struct Strikes {
    pub(crate) rows: Vec<u32>,
    pub(crate) ns: Vec<i64>,
    pub(crate) n: Vec<u32>,
    /// The names of those to blame, and which rows have one.
    pub(crate) by: Vec<u32>,
    pub(crate) by_rows: Vec<u32>,
}

impl Strikes {
    fn push(&mut self, row: u32, ns: i64, n: u32, by: Option<SpanName>) {
        self.rows.push(row);
        self.ns.push(ns);
        self.n.push(n);
        if let Some(by) = by {
            self.by.push(by.0);
            self.by_rows.push(row);
        }
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.ns.clear();
        self.n.clear();
        self.by.clear();
        self.by_rows.clear();
    }
}

impl Columns {
    pub(crate) fn new(
        capacity: usize,
        measured: CauseSet,
        counters: usize,
        links: Vec<Link>,
    ) -> Columns {
        Columns {
            start_ns: Vec::with_capacity(capacity),
            wall_ns: Vec::with_capacity(capacity),
            weight: Vec::with_capacity(capacity),
            span: Vec::with_capacity(capacity),
            pid: Vec::with_capacity(capacity),
            tid: Vec::with_capacity(capacity),
            cpu: Vec::with_capacity(capacity),
            id: Vec::new(),
            id_rows: Vec::new(),
            others: Vec::new(),
            others_rows: Vec::new(),
            strikes: std::array::from_fn(|_| Strikes::default()),
            counters: vec![Counted::default(); counters],
            linked: vec![Counted::default(); links.len()],
            links,
            measured: measured.bits(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.start_ns.len()
    }

    pub(crate) fn push(&mut self, row: &SpanRow) {
        // A row group holds far fewer rows than u32 counts.
        let number = self.len() as u32;
        self.start_ns.push(row.start_ns);
        self.wall_ns.push(row.wall_ns);
        self.weight.push(row.weight);
        self.span.push(row.span.0);
        self.pid.push(row.pid);
        self.tid.push(row.tid);
        self.cpu.push(row.cpu);
        if let Some(id) = row.id {
            self.id.push(id);
            self.id_rows.push(number);
        }
        if row.others > 0 {
            self.others.push(row.others.into());
            self.others_rows.push(number);
        }
        let mut struck = 0;
        for cause in 0..Cause::COUNT {
            let strikes = (row.cause_ns[cause] | i64::from(row.cause_n[cause])) != 0;
            struck |= u32::from(strikes) << cause;
        }
        struck &= self.measured;
        while struck != 0 {
            let cause = struck.trailing_zeros() as usize;
            self.strikes[cause].push(
                number,
                row.cause_ns[cause],
                row.cause_n[cause],
                row.cause_by[cause],
            );
            struck &= struck - 1;
        }
        for (counter, value) in row.counts.iter() {
            if let Some(counted) = self.counters.get_mut(counter) {
                counted.rows.push(number);
                counted.values.push(value);
            }
        }
        for (link, linked) in self.links.iter().zip(&mut self.linked) {
            if let Some(value) = row.links[link.index()] {
                linked.rows.push(number);
                linked.values.push(value);
            }
        }
    }

    /// The values of a link, if the ledger has it.
    pub(crate) fn linked(&self, link: Link) -> Option<&Counted> {
        let place = self.links.iter().position(|of| *of == link)?;
        self.linked.get(place)
    }

    pub(crate) fn clear(&mut self) {
        self.start_ns.clear();
        self.wall_ns.clear();
        self.weight.clear();
        self.span.clear();
        self.pid.clear();
        self.tid.clear();
        self.cpu.clear();
        self.id.clear();
        self.id_rows.clear();
        self.others.clear();
        self.others_rows.clear();
        self.strikes.iter_mut().for_each(Strikes::clear);
        for counted in self.counters.iter_mut().chain(&mut self.linked) {
            counted.rows.clear();
            counted.values.clear();
        }
    }
}

/// The values of a column that are not encoded yet; texts by their place in the table of names.
pub(crate) enum TableColumn {
    Numbers(Vec<i64>),
    Reals(Vec<f64>),
    Texts(Vec<u32>),
}

impl TableColumn {
    pub(crate) fn clear(&mut self) {
        match self {
            Self::Numbers(values) => values.clear(),
            Self::Reals(values) => values.clear(),
            Self::Texts(values) => values.clear(),
        }
    }
}
