//! One process that is connected.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tailscope_kernel::SdkPrograms;
use tailscope_process::owner;
use tailscope_signals::abi;
use tailscope_signals::clock::Cycles;
use tailscope_signals::meters::Meters;
use tailscope_signals::retention::Retention;
use tailscope_signals::row::Row;

use crate::region::{Region, RegionLoss};
use crate::sockets::Connections;

/// Where rows go.
pub trait Sink {
    /// What stands for a span's name from then on.
    type Name: Copy;

    /// A name that a process of this user has not used yet. `None`: its text had no room in the region.
    fn name(&mut self, user: u32, text: Option<String>) -> Self::Name;

    /// A row. Its times are in cycles.
    fn row(&mut self, pid: u32, name: Self::Name, row: &Row);
}

/// One process. `N` stands for the name of a span.
#[derive(Debug)]
pub(crate) struct Client<N> {
    region: Region,
    meters: Meters,
    /// Whose it is, by its first connection.
    user: u32,
    created: Instant,
    /// When the process started, in the kernel's ticks.
    start: Option<u64>,
    /// The names by their numbers in the region, as far as rows had them.
    names: Vec<Option<N>>,
    pub(crate) connections: Connections,
    /// Whether the refusal of its counters was reported.
    reported: bool,
}

impl<N: Copy> Client<N> {
    /// Makes the region and the map of meters of a user's process. `sample`: the probability that a span is
    /// metered, of 2^32.
    pub(crate) fn create(
        (pid, user): (u32, u32),
        programs: &mut SdkPrograms<'_>,
        sample: u64,
        retention: Retention,
    ) -> io::Result<Self> {
        let region = Region::create(sample, retention)?;
        let meters = programs.give_meters(pid).map_err(io::Error::other)?;
        Ok(Self {
            region,
            meters: Meters::map(meters)?,
            user,
            created: Instant::now(),
            start: owner::start_of(pid),
            names: vec![None; usize::from(u8::MAX) + 1],
            connections: Connections::default(),
            reported: false,
        })
    }

    pub(crate) fn region_fd(&self) -> BorrowedFd<'_> {
        self.region.as_fd()
    }

    pub(crate) fn user(&self) -> u32 {
        self.user
    }

    pub(crate) fn age(&self) -> Duration {
        self.created.elapsed()
    }

    /// Whether another process has its number now.
    pub(crate) fn is_anothers(&self, pid: u32) -> bool {
        self.start != owner::start_of(pid)
    }

    /// Has its threads count these events.
    pub(crate) fn count(&mut self, group: u16, events: &[abi::ts_event]) {
        self.region.count(group, events);
    }

    /// Why one of its threads can't count; only the first time.
    pub(crate) fn refusal(&mut self) -> Option<io::Error> {
        let why = if self.reported {
            None
        } else {
            self.region.refusal()
        };
        self.reported |= why.is_some();
        why
    }

    /// Sets which rows it writes.
    pub(crate) fn keep(&self, of: impl Fn(N) -> Retention) {
        for (number, name) in (0..=u8::MAX).zip(&self.names) {
            if let Some(name) = name {
                self.region.keep(number, of(*name));
            }
        }
    }

    pub(crate) fn heartbeat(&self, now: Cycles, overdue: u64) {
        self.region.beat(now, overdue);
    }

    /// Takes what it has written.
    pub(crate) fn drain(&mut self, pid: u32, sink: &mut impl Sink<Name = N>) {
        let (known, user) = (&mut self.names, self.user);
        self.region.drain(&self.meters, |names, row| {
            let place = &mut known[usize::from(row.name)];
            let name = *place.get_or_insert_with(|| sink.name(user, names.get(row.name)));
            sink.row(pid, name, &row);
        });
    }

    pub(crate) fn loss(&self) -> RegionLoss {
        self.region.loss()
    }

    /// Spans that ended, kept or not.
    pub(crate) fn spans(&self) -> u64 {
        self.meters.spans_of_sdk()
    }
}
